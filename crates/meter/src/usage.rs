//! Counts of outcomes, and the live usage of a key, which is read together with the stored usage.

use std::collections::HashMap;
use std::sync::LazyLock;

use redis::Script;
use vintem_domain::KeyId;
use vintem_domain::usage::{RequestOutcome, RouteGroup, UsageChunkId, UsageCounts, UsageRow, utc_date_from_micros};

use crate::admit_call::{BATCHES_LUA, DAY_US, SLIDING_LOG_LUA, UsageClass, UsageField, UsageFieldCounts};
use crate::error::{MeterError, Result};
use crate::meter::Meter;
use crate::shard::RedisShard;

static LIVE_USAGE_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[SLIDING_LOG_LUA, BATCHES_LUA, include_str!("live.lua")].concat()));

/// The counts of one key in a chunk that may not be stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveUsageChunk {
    /// `None` for counts that are in no closed chunk yet.
    pub id: Option<UsageChunkId>,
    pub rows: Vec<UsageRow>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveUsage {
    pub chunks: Vec<LiveUsageChunk>,
    /// False while Redis is unavailable or a call is unconfirmed: counts in Redis that are not stored yet are missing.
    /// Also false while this process knows of lost counts that the database does not know of.
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

    /// The counts of a key that may not be stored yet, by chunk. Counts all outcomes recorded so far first.
    pub async fn live_usage(&self, key_id: KeyId) -> LiveUsage {
        let shard = self.shard_for_key(key_id);
        // A call that arrives also delivers all unconfirmed counts before it.
        let all_confirmed = shard.flush_outcomes().await;

        // Local counts come first, so that a chunk that is stored in between is found in one of the two places.
        let local = self.process.local_usage.unstored_counts().into_iter().map(|(id, mut counts)| {
            counts.retain(|field, _| field.key_id == key_id);
            LiveUsageChunk { id, rows: group_usage_rows(counts) }
        });
        let mut chunks: Vec<LiveUsageChunk> = local.collect();
        if !shard.is_redis_available() {
            return LiveUsage { chunks, is_complete: false };
        }

        match self.fetch_live_chunks(shard, key_id).await {
            Ok(redis_chunks) => {
                chunks.extend(redis_chunks);
                LiveUsage { chunks, is_complete: all_confirmed && self.usage_gaps().is_empty() }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read live usage");
                LiveUsage { chunks, is_complete: false }
            }
        }
    }

    async fn fetch_live_chunks(&self, shard: &RedisShard, key_id: KeyId) -> Result<Vec<LiveUsageChunk>> {
        let mut call = LIVE_USAGE_SCRIPT.key(shard.redis_keys().open_batch());
        call.key(shard.redis_keys().closed_batches()).arg(shard.redis_keys().chunk_prefix()).arg(key_id);
        let mut field_prefix = String::new();
        for group in RouteGroup::ALL {
            for class in UsageClass::ALL {
                UsageField::write_field_prefix(key_id, group, class, &mut field_prefix);
                call.arg(&field_prefix);
            }
        }
        let reply: Vec<String> = shard.background_connection.run(async |redis| call.invoke_async(redis).await).await?;

        let mut fields_by_chunk: HashMap<&str, Vec<(String, u64)>> = HashMap::new();
        for entry in reply.chunks_exact(3) {
            let count = entry[2].parse().map_err(|_| MeterError::UnexpectedReply(entry.join(" ")))?;
            fields_by_chunk.entry(&entry[0]).or_default().push((entry[1].clone(), count));
        }

        let chunk = |(id, fields): (&str, _)| {
            let rows = group_usage_rows(parse_usage_fields(fields)?);
            Ok(LiveUsageChunk { id: Some(UsageChunkId::new(id.to_owned())), rows })
        };
        fields_by_chunk.into_iter().map(chunk).collect()
    }
}

pub fn parse_usage_fields(fields: impl IntoIterator<Item = (String, u64)>) -> Result<UsageFieldCounts> {
    fields
        .into_iter()
        .map(|(text, count)| match UsageField::parse(&text) {
            Some(field) => Ok((field, count)),
            None => Err(MeterError::UnexpectedReply(text)),
        })
        .collect()
}

/// One row for each key, day and route group.
pub fn group_usage_rows(fields: UsageFieldCounts) -> Vec<UsageRow> {
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
