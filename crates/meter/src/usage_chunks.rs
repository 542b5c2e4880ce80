//! Moves counts from Redis, and those of this process, to where they are stored: chunk by chunk. A chunk is stored under
//! its id, then dropped.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{AsyncCommands, Script};
use vintem_domain::usage::{UsageChunkId, UsageRow};

use crate::admit_call::{BATCHES_LUA, SLIDING_LOG_LUA};
use crate::error::Result;
use crate::meter::Meter;
use crate::shard::{RedisShard, UsageGap};
use crate::usage::{group_usage_rows, parse_usage_fields};

static NEXT_CHUNK_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[SLIDING_LOG_LUA, BATCHES_LUA, include_str!("next_chunk.lua")].concat()));
static BACKLOG_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[SLIDING_LOG_LUA, BATCHES_LUA, include_str!("backlog.lua")].concat()));

/// One process stores the counts of a server. After this long without a sign of it, another one does.
const STORING_TIMEOUT: Duration = Duration::from_secs(3);
/// Fields read in one call, so that no call keeps Redis busy for long.
const FIELDS_PER_READ: usize = 1_000;

/// Where live counts wait to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageSource {
    /// Counts that this process made by itself.
    LocalProcess,
    /// Counts that all processes made in one of the Redis servers.
    RedisServer(usize),
}

/// Counts that wait to be stored and no longer change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageChunk {
    pub id: UsageChunkId,
    pub source: UsageSource,
    pub rows: Vec<UsageRow>,
}

/// The counts in one place that are not stored yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageBacklog {
    pub fields: u64,
    /// How long the oldest of them may have waited.
    pub oldest_age: Duration,
}

impl Meter {
    pub fn usage_sources(&self) -> impl Iterator<Item = UsageSource> {
        std::iter::once(UsageSource::LocalProcess).chain((0..self.shards.len()).map(UsageSource::RedisServer))
    }

    /// The next chunk to store, then to drop, if there is one and no other process stores what is in this place. Even if
    /// two processes get the same chunk, its id makes sure that it is stored once. Counts that are still open are closed
    /// if nothing else waits and `closes_open` says so.
    pub async fn next_usage_chunk(&self, source: UsageSource, closes_open: bool) -> Result<Option<UsageChunk>> {
        let shard = match source {
            UsageSource::LocalProcess => {
                let chunk = self.process.local_usage.next_chunk(closes_open);
                return Ok(chunk.map(|(id, counts)| UsageChunk { id, source, rows: group_usage_rows(counts) }));
            }
            UsageSource::RedisServer(index) => &self.shards[index],
        };
        if !shard.is_redis_available() {
            return Ok(None);
        }

        let Some(id) = shard.find_next_chunk(closes_open).await? else { return Ok(None) };
        let fields = shard.read_chunk(&id).await?;
        Ok(Some(UsageChunk { rows: group_usage_rows(parse_usage_fields(fields)?), source, id: UsageChunkId::new(id) }))
    }

    /// Removes a chunk that is stored.
    pub async fn drop_usage_chunk(&self, chunk: &UsageChunk) -> Result<()> {
        let shard = match chunk.source {
            UsageSource::LocalProcess => {
                self.process.local_usage.drop_chunk(&chunk.id);
                return Ok(());
            }
            UsageSource::RedisServer(index) => &self.shards[index],
        };

        let key = shard.redis_keys().chunk(chunk.id.as_str());
        shard.background_connection.run(async |redis| redis.unlink(key).await).await
    }

    /// Whether the chunk is still there: another process may have stored and dropped it meanwhile.
    pub async fn has_usage_chunk(&self, chunk: &UsageChunk) -> Result<bool> {
        let shard = match chunk.source {
            UsageSource::LocalProcess => return Ok(true),
            UsageSource::RedisServer(index) => &self.shards[index],
        };
        let key = shard.redis_keys().chunk(chunk.id.as_str());
        shard.background_connection.run(async |redis| redis.exists(key).await).await
    }

    /// What is not stored yet; `None` for a server that is unavailable.
    pub async fn usage_backlog(&self, source: UsageSource) -> Result<Option<UsageBacklog>> {
        let shard = match source {
            UsageSource::LocalProcess => {
                let local = &self.process.local_usage;
                return Ok(Some(UsageBacklog { fields: local.len() as u64, oldest_age: local.oldest_age() }));
            }
            UsageSource::RedisServer(index) => &self.shards[index],
        };
        if !shard.is_redis_available() {
            return Ok(None);
        }
        shard.fetch_backlog().await.map(Some)
    }

    /// Losses of counts that the database does not know of yet.
    pub fn usage_gaps(&self) -> Vec<UsageGap> {
        self.process.usage_gaps.lock().expect("never held across a panic").clone()
    }

    /// Forgets losses that the database knows of now.
    pub fn drop_usage_gaps(&self, gaps: &[UsageGap]) {
        self.process.usage_gaps.lock().expect("never held across a panic").retain(|gap| !gaps.contains(gap));
    }
}

impl RedisShard {
    async fn find_next_chunk(&self, closes_open: bool) -> Result<Option<String>> {
        let keys = self.redis_keys();
        let (last_batch, next_index) = self.lock_storing_position().clone();
        let mut call = NEXT_CHUNK_SCRIPT.key(keys.open_batch());
        call.key(keys.closed_batches()).key(keys.storing_process());
        call.key(keys.former_open_batch()).key(keys.former_closed_batches());
        call.arg(keys.chunk_prefix()).arg(self.process_id()).arg(STORING_TIMEOUT.as_millis() as u64);
        call.arg(if closes_open { "close" } else { "" }).arg(last_batch).arg(next_index);
        call.arg(keys.former_batch_prefix());

        let id: Option<String> = self.background_connection.run(async |redis| call.invoke_async(redis).await).await?;
        if let Some((batch, index)) = id.as_ref().and_then(|id| id.rsplit_once(':')) {
            *self.lock_storing_position() = (batch.to_owned(), index.parse::<u64>().unwrap_or(0));
        }
        Ok(id)
    }

    async fn read_chunk(&self, id: &str) -> Result<HashMap<String, u64>> {
        let key = self.redis_keys().chunk(id);
        let mut counts = HashMap::new();
        let mut cursor = 0u64;
        loop {
            let read = self.background_connection.run(async |redis| {
                let mut command = redis::cmd("HSCAN");
                command.arg(&key).arg(cursor).arg("COUNT").arg(FIELDS_PER_READ);
                command.query_async::<(u64, Vec<(String, u64)>)>(redis).await
            });
            let (next_cursor, fields) = read.await?;
            // A scan may return a field twice.
            counts.extend(fields);
            if next_cursor == 0 {
                return Ok(counts);
            }
            cursor = next_cursor;
        }
    }

    async fn fetch_backlog(&self) -> Result<UsageBacklog> {
        let keys = self.redis_keys();
        let mut call = BACKLOG_SCRIPT.key(keys.open_batch());
        call.key(keys.closed_batches()).arg(keys.chunk_prefix());
        let (fields, age_us): (u64, u64) =
            self.background_connection.run(async |redis| call.invoke_async(redis).await).await?;

        let oldest_us = if fields > 0 { self.now_us().saturating_sub(age_us) } else { 0 };
        self.oldest_batch_us().store(oldest_us, Ordering::Relaxed);
        Ok(UsageBacklog { fields, oldest_age: Duration::from_micros(age_us) })
    }
}
