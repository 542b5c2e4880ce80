//! Live usage: read together with the stored usage, and drained in batches whose ids are never reused.

use std::collections::HashMap;
use std::sync::LazyLock;

use redis::{AsyncCommands, Script};
use vintem_domain::KeyId;
use vintem_domain::usage::{RequestOutcome, RouteGroup, UsageCounts, UsageRow, utc_date_from_micros};

use crate::admit_call::{DAY_US, SLIDING_LOG_LUA, UsageClass, UsageField, UsageFieldCounts};
use crate::error::{MeterError, Result};
use crate::meter::Meter;
use crate::shard::RedisShard;

static ROTATE_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[SLIDING_LOG_LUA, include_str!("rotate.lua")].concat()));
static LIVE_USAGE_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[SLIDING_LOG_LUA, include_str!("live.lua")].concat()));

/// Where live counts wait to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageSource {
    /// Counts that this process made by itself.
    LocalProcess,
    /// Counts that all processes made in one of the Redis servers.
    RedisServer(usize),
}

/// A closed batch of counts that waits to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageBatch {
    pub id: String,
    pub source: UsageSource,
    pub rows: Vec<UsageRow>,
}

/// The counts of one key in a batch that may not be stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveUsageBatch {
    /// `None` for counts that are in no closed batch yet.
    pub id: Option<String>,
    pub rows: Vec<UsageRow>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveUsage {
    pub batches: Vec<LiveUsageBatch>,
    /// False while Redis is unavailable or a call is unconfirmed: counts in Redis that are not stored yet are missing.
    pub is_complete: bool,
}

impl Meter {
    /// Records the outcome of a request that was admitted or refused at this time. Never blocks.
    pub fn record_outcome(&self, key_id: KeyId, group: RouteGroup, decided_at_us: u64, outcome: RequestOutcome) {
        self.shard_for_key(key_id).record_outcome(key_id, group, decided_at_us, outcome);
    }

    /// Counts a request that was answered without an admission check. Never blocks.
    pub fn record_unmetered_request(&self, key_id: KeyId, group: RouteGroup, outcome: RequestOutcome) {
        let day = self.shard_for_key(key_id).now_us() / DAY_US;
        for class in [UsageClass::Request, UsageClass::Outcome(outcome)] {
            self.process.local_usage.add(UsageField { key_id, group, class, day }, 1);
        }
    }

    /// Returns once all outcomes recorded so far are counted, in Redis or in this process.
    pub async fn flush_outcomes(&self) {
        for shard in self.shards.iter() {
            shard.flush_outcomes().await;
        }
    }

    pub fn usage_sources(&self) -> impl Iterator<Item = UsageSource> {
        std::iter::once(UsageSource::LocalProcess).chain((0..self.shards.len()).map(UsageSource::RedisServer))
    }

    /// The next batch to drain: store it under its id, then drop it. If two drainers get the same batch, its id makes
    /// sure that it is stored once.
    pub async fn next_usage_batch(&self, source: UsageSource) -> Result<Option<UsageBatch>> {
        let shard = match source {
            UsageSource::LocalProcess => {
                let batch = self.process.local_usage.next_batch();
                return Ok(batch.map(|(id, counts)| UsageBatch { id, source, rows: group_usage_rows(counts) }));
            }
            UsageSource::RedisServer(index) => &self.shards[index],
        };
        if !shard.is_redis_available() {
            return Ok(None);
        }

        let mut call = ROTATE_SCRIPT.key(shard.redis_keys().current_batch());
        call.key(shard.redis_keys().pending_batches()).arg(shard.redis_keys().batch_prefix()).arg(shard.process_id());
        let rotation = shard.background_connection.run(async |redis| {
            let Some(id) = call.invoke_async::<Option<String>>(redis).await? else { return Ok(None) };
            let fields: Vec<(String, u64)> = redis.hgetall(shard.redis_keys().batch(&id)).await?;
            Ok(Some((id, fields)))
        });
        let Some((id, fields)) = rotation.await? else { return Ok(None) };

        Ok(Some(UsageBatch { rows: group_usage_rows(parse_usage_fields(fields)?), source, id }))
    }

    /// Removes a batch that is stored.
    pub async fn drop_usage_batch(&self, batch: &UsageBatch) -> Result<()> {
        let shard = match batch.source {
            UsageSource::LocalProcess => {
                self.process.local_usage.drop_batch(&batch.id);
                return Ok(());
            }
            UsageSource::RedisServer(index) => &self.shards[index],
        };

        let mut pipe = redis::pipe();
        pipe.atomic().lrem(shard.redis_keys().pending_batches(), 0, &batch.id).del(shard.redis_keys().batch(&batch.id));
        shard.background_connection.run(async |redis| pipe.exec_async(redis).await).await
    }

    /// The counts of a key that may not be stored yet, by batch. Counts all outcomes recorded so far first.
    pub async fn live_usage(&self, key_id: KeyId) -> LiveUsage {
        let shard = self.shard_for_key(key_id);
        // A call that arrives also delivers all unconfirmed counts before it.
        let all_confirmed = shard.flush_outcomes().await;

        // Local counts come first, so that a batch that is stored in between is found in one of the two places.
        let local = self.process.local_usage.unstored_counts().into_iter().map(|(id, mut counts)| {
            counts.retain(|field, _| field.key_id == key_id);
            LiveUsageBatch { id, rows: group_usage_rows(counts) }
        });
        let mut batches: Vec<LiveUsageBatch> = local.collect();
        if !shard.is_redis_available() {
            return LiveUsage { batches, is_complete: false };
        }

        match self.fetch_live_batches(shard, key_id).await {
            Ok(redis_batches) => {
                batches.extend(redis_batches);
                LiveUsage { batches, is_complete: all_confirmed }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read live usage");
                LiveUsage { batches, is_complete: false }
            }
        }
    }

    async fn fetch_live_batches(&self, shard: &RedisShard, key_id: KeyId) -> Result<Vec<LiveUsageBatch>> {
        let mut call = LIVE_USAGE_SCRIPT.key(shard.redis_keys().current_batch());
        call.key(shard.redis_keys().pending_batches()).arg(shard.redis_keys().batch_prefix());
        let mut field_prefix = String::new();
        for group in RouteGroup::ALL {
            for class in UsageClass::ALL {
                UsageField::write_field_prefix(key_id, group, class, &mut field_prefix);
                call.arg(&field_prefix);
            }
        }
        let reply: Vec<String> = shard.background_connection.run(async |redis| call.invoke_async(redis).await).await?;

        let mut fields_by_batch: HashMap<&str, Vec<(String, u64)>> = HashMap::new();
        for entry in reply.chunks_exact(3) {
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

/// One row for each key, day and route group.
fn group_usage_rows(fields: UsageFieldCounts) -> Vec<UsageRow> {
    let mut groups: HashMap<(KeyId, u64, RouteGroup), UsageCounts> = HashMap::new();
    for (field, count) in fields {
        let counts = groups.entry((field.key_id, field.day, field.group)).or_default();
        *match field.class {
            UsageClass::Request => &mut counts.requests,
            UsageClass::Outcome(RequestOutcome::Successful) => &mut counts.successful,
            UsageClass::Outcome(RequestOutcome::ClientError) => &mut counts.client_errors,
            UsageClass::Outcome(RequestOutcome::ServerError) => &mut counts.server_errors,
            UsageClass::Outcome(RequestOutcome::RateLimited) => &mut counts.rate_limited,
        } += count;
    }

    let to_date = |day: u64| utc_date_from_micros((day * DAY_US).cast_signed());
    groups
        .into_iter()
        .map(|((key_id, day, group), counts)| UsageRow { key_id, day: to_date(day), group, counts })
        .collect()
}
