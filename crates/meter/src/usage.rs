//! The live usage: read together with what is stored, and drained in batches that each have an id for ever.

use std::collections::HashMap;
use std::sync::LazyLock;

use redis::{AsyncCommands, Script};
use vintem_domain::KeyId;
use vintem_domain::usage::{RequestOutcome, RouteGroup, UsageCounts, UsageRow, utc_date_from_micros};

use crate::admit_call::{DAY_US, SLIDING_LOG_LUA, UsageClass, UsageField, UsageFieldCounts};
use crate::shard::RedisShard;
use crate::{Meter, MeterError, Result};

static ROTATE_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[SLIDING_LOG_LUA, include_str!("rotate.lua")].concat()));
static LIVE_USAGE_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[SLIDING_LOG_LUA, include_str!("live.lua")].concat()));

/// Where live counts wait to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageSource {
    /// What this process counted by itself.
    LocalProcess,
    /// What all processes counted in one of the Redis servers.
    RedisServer(usize),
}

/// Closed counts that wait to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageBatch {
    pub id: String,
    pub source: UsageSource,
    pub rows: Vec<UsageRow>,
}

/// What is counted for a key in one batch that may not be stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveUsageBatch {
    /// None where it cannot be stored yet.
    pub id: Option<String>,
    pub rows: Vec<UsageRow>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveUsage {
    pub batches: Vec<LiveUsageBatch>,
    /// False while Redis is away, or a call to it is in doubt: what was counted there and is not stored yet is missing.
    pub is_complete: bool,
}

impl Meter {
    /// Notes how a visit ended that was admitted or refused at this instant. Returns at once.
    pub fn record_outcome(&self, key_id: KeyId, group: RouteGroup, decided_at_us: u64, outcome: RequestOutcome) {
        self.shard_for_key(key_id).record_outcome(key_id, group, decided_at_us, outcome);
    }

    /// Counts a request that was answered without being asked for admission. Returns at once.
    pub fn record_unmetered_request(&self, key_id: KeyId, group: RouteGroup, outcome: RequestOutcome) {
        let day = self.shard_for_key(key_id).redis_clock.now_us() / DAY_US;
        for class in [UsageClass::Request, UsageClass::Outcome(outcome)] {
            self.shared.local_usage.add(UsageField { key_id, group, class, day }, 1);
        }
    }

    /// Returns once all outcomes noted before are counted, in Redis or here.
    pub async fn flush_outcomes(&self) {
        for shard in self.shards.iter() {
            shard.flush_outcomes().await;
        }
    }

    pub fn usage_sources(&self) -> impl Iterator<Item = UsageSource> {
        std::iter::once(UsageSource::LocalProcess).chain((0..self.shards.len()).map(UsageSource::RedisServer))
    }

    /// The next batch to drain: to be stored under its id, then dropped. One that two drainers see is stored once, as
    /// its id says.
    pub async fn next_usage_batch(&self, source: UsageSource) -> Result<Option<UsageBatch>> {
        let server = match source {
            UsageSource::LocalProcess => {
                let batch = self.shared.local_usage.next_batch();
                return Ok(batch.map(|(id, counts)| UsageBatch { id, source, rows: group_usage_rows(counts) }));
            }
            UsageSource::RedisServer(server) => &self.shards[server],
        };
        if !server.is_redis_available() {
            return Ok(None);
        }
        let mut call = ROTATE_SCRIPT.key(server.redis_keys.current_batch());
        call.key(server.redis_keys.pending_batches()).arg(server.redis_keys.batch_prefix()).arg(&server.process_id);
        let closed = server.background_connection.run(async |redis| {
            let Some(id) = call.invoke_async::<Option<String>>(redis).await? else { return Ok(None) };
            let fields: Vec<(String, u64)> = redis.hgetall(server.redis_keys.batch(&id)).await?;
            Ok(Some((id, fields)))
        });
        let Some((id, fields)) = closed.await? else { return Ok(None) };
        Ok(Some(UsageBatch { rows: group_usage_rows(parse_usage_fields(fields)?), source, id }))
    }

    /// Forgets a batch that is stored.
    pub async fn drop_usage_batch(&self, batch: &UsageBatch) -> Result<()> {
        let server = match batch.source {
            UsageSource::LocalProcess => {
                self.shared.local_usage.drop_batch(&batch.id);
                return Ok(());
            }
            UsageSource::RedisServer(server) => &self.shards[server],
        };
        let mut pipe = redis::pipe();
        pipe.atomic().lrem(server.redis_keys.pending_batches(), 0, &batch.id).del(server.redis_keys.batch(&batch.id));
        server.background_connection.run(async |redis| pipe.exec_async(redis).await).await
    }

    /// What is counted for a key and may not be stored yet, by batch; all outcomes noted before are counted first.
    pub async fn live_usage(&self, key_id: KeyId) -> LiveUsage {
        let server = self.shard_for_key(key_id);
        // A call that arrives brings along all that was in doubt before it.
        let nothing_in_doubt = server.flush_outcomes().await;
        // First, so that what moves from here to the store in between is met in one of the two.
        let here = self.shared.local_usage.unstored_counts().into_iter().map(|(id, mut counts)| {
            counts.retain(|field, _| field.key_id == key_id);
            LiveUsageBatch { id, rows: group_usage_rows(counts) }
        });
        let mut batches: Vec<LiveUsageBatch> = here.collect();
        if !server.is_redis_available() {
            return LiveUsage { batches, is_complete: false };
        }
        match self.fetch_live_batches(server, key_id).await {
            Ok(live) => {
                batches.extend(live);
                LiveUsage { batches, is_complete: nothing_in_doubt }
            }
            Err(error) => {
                tracing::warn!(%error, "live usage cannot be read");
                LiveUsage { batches, is_complete: false }
            }
        }
    }

    async fn fetch_live_batches(&self, shard: &RedisShard, key_id: KeyId) -> Result<Vec<LiveUsageBatch>> {
        let mut call = LIVE_USAGE_SCRIPT.key(shard.redis_keys.current_batch());
        call.key(shard.redis_keys.pending_batches()).arg(shard.redis_keys.batch_prefix());
        let mut beginning = String::new();
        for group in RouteGroup::ALL {
            for class in UsageClass::ALL {
                UsageField::write_field_prefix(key_id, group, class, &mut beginning);
                call.arg(&beginning);
            }
        }
        let answer: Vec<String> = shard.background_connection.run(async |redis| call.invoke_async(redis).await).await?;
        let mut fields_by_batch: HashMap<&str, Vec<(String, u64)>> = HashMap::new();
        for entry in answer.chunks_exact(3) {
            let count = entry[2].parse().map_err(|_| MeterError::UnexpectedReply(entry.join(" ")))?;
            fields_by_batch.entry(&entry[0]).or_default().push((entry[1].clone(), count));
        }
        let batch = |(id, fields): (&str, _)| {
            Ok(LiveUsageBatch { id: Some(id.to_owned()), rows: group_usage_rows(parse_usage_fields(fields)?) })
        };
        fields_by_batch.into_iter().map(batch).collect()
    }
}

fn parse_usage_fields(fields: Vec<(String, u64)>) -> Result<UsageFieldCounts> {
    fields
        .into_iter()
        .map(|(text, count)| match UsageField::parse(&text) {
            Some(field) => Ok((field, count)),
            None => Err(MeterError::UnexpectedReply(text)),
        })
        .collect()
}

/// Gathered by key, day and group.
fn group_usage_rows(fields: UsageFieldCounts) -> Vec<UsageRow> {
    let mut gathered: HashMap<(KeyId, u64, RouteGroup), UsageCounts> = HashMap::new();
    for (field, count) in fields {
        let counts = gathered.entry((field.key_id, field.day, field.group)).or_default();
        *match field.class {
            UsageClass::Request => &mut counts.requests,
            UsageClass::Outcome(RequestOutcome::Successful) => &mut counts.successful,
            UsageClass::Outcome(RequestOutcome::ClientError) => &mut counts.client_errors,
            UsageClass::Outcome(RequestOutcome::ServerError) => &mut counts.server_errors,
            UsageClass::Outcome(RequestOutcome::RateLimited) => &mut counts.rate_limited,
        } += count;
    }
    let day_of = |day: u64| utc_date_from_micros((day * DAY_US).cast_signed());
    gathered
        .into_iter()
        .map(|((key_id, day, group), counts)| UsageRow { key_id, day: day_of(day), group, counts })
        .collect()
}
