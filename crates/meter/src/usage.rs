//! The live usage: read together with what is stored, and drained in batches that each have an id for ever.

use std::collections::HashMap;
use std::sync::LazyLock;

use redis::{AsyncCommands, Script};
use vintem_domain::KeyId;
use vintem_domain::usage::{Counts, Outcome, RouteGroup, UsageRow, utc_day};

use crate::call::{Class, DAY_US, Field, FieldCounts, LOG_LUA};
use crate::shard::Shard;
use crate::{Meter, MeterError, Result};

static ROTATE: LazyLock<Script> = LazyLock::new(|| Script::new(&[LOG_LUA, include_str!("rotate.lua")].concat()));
static LIVE: LazyLock<Script> = LazyLock::new(|| Script::new(&[LOG_LUA, include_str!("live.lua")].concat()));

/// Where live counts wait to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// What this process counted by itself.
    Process,
    /// What all processes counted in one of the Redis servers.
    Server(usize),
}

/// Closed counts that wait to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub id: String,
    pub source: Source,
    pub rows: Vec<UsageRow>,
}

/// What is counted for a key in one batch that may not be stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveBatch {
    /// None where it cannot be stored yet.
    pub id: Option<String>,
    pub rows: Vec<UsageRow>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveUsage {
    pub batches: Vec<LiveBatch>,
    /// False while Redis is away, or a call to it is in doubt: what was counted there and is not stored yet is missing.
    pub is_complete: bool,
}

impl Meter {
    /// Notes how a visit ended that was admitted or refused at this instant. Returns at once.
    pub fn note_outcome(&self, key_id: KeyId, group: RouteGroup, decided_at_us: u64, outcome: Outcome) {
        self.shard_of_key(key_id).note_outcome(key_id, group, decided_at_us, outcome);
    }

    /// Counts a request that was answered without being asked for admission. Returns at once.
    pub fn note_unmetered(&self, key_id: KeyId, group: RouteGroup, outcome: Outcome) {
        let day = self.shard_of_key(key_id).clock.now_us() / DAY_US;
        for class in [Class::Request, Class::Outcome(outcome)] {
            self.common.usage.add(Field { key_id, group, class, day }, 1);
        }
    }

    /// Returns once all outcomes noted before are counted, in Redis or here.
    pub async fn flush_outcomes(&self) {
        for shard in self.shards.iter() {
            shard.flush().await;
        }
    }

    pub fn sources(&self) -> impl Iterator<Item = Source> {
        std::iter::once(Source::Process).chain((0..self.shards.len()).map(Source::Server))
    }

    /// The next batch to drain: to be stored under its id, then dropped. One that two drainers see is stored once, as
    /// its id says.
    pub async fn next_batch(&self, source: Source) -> Result<Option<Batch>> {
        let server = match source {
            Source::Process => {
                let batch = self.common.usage.next_batch();
                return Ok(batch.map(|(id, counts)| Batch { id, source, rows: rows(counts) }));
            }
            Source::Server(server) => &self.shards[server],
        };
        if !server.is_shared() {
            return Ok(None);
        }
        let mut call = ROTATE.key(server.names.current_batch());
        call.key(server.names.pending_batches()).arg(server.names.batch_prefix()).arg(&server.process);
        let closed = server.aside.ask(async |redis| {
            let Some(id) = call.invoke_async::<Option<String>>(redis).await? else { return Ok(None) };
            let fields: Vec<(String, u64)> = redis.hgetall(server.names.batch(&id)).await?;
            Ok(Some((id, fields)))
        });
        let Some((id, fields)) = closed.await? else { return Ok(None) };
        Ok(Some(Batch { rows: rows(parse(fields)?), source, id }))
    }

    /// Forgets a batch that is stored.
    pub async fn drop_batch(&self, batch: &Batch) -> Result<()> {
        let server = match batch.source {
            Source::Process => {
                self.common.usage.drop_batch(&batch.id);
                return Ok(());
            }
            Source::Server(server) => &self.shards[server],
        };
        let mut pipe = redis::pipe();
        pipe.atomic().lrem(server.names.pending_batches(), 0, &batch.id).del(server.names.batch(&batch.id));
        server.aside.ask(async |redis| pipe.exec_async(redis).await).await
    }

    /// What is counted for a key and may not be stored yet, by batch; all outcomes noted before are counted first.
    pub async fn live_usage(&self, key_id: KeyId) -> LiveUsage {
        let server = self.shard_of_key(key_id);
        // A call that arrives brings along all that was in doubt before it.
        let nothing_in_doubt = server.flush().await;
        // First, so that what moves from here to the store in between is met in one of the two.
        let here = self.common.usage.live().into_iter().map(|(id, mut counts)| {
            counts.retain(|field, _| field.key_id == key_id);
            LiveBatch { id, rows: rows(counts) }
        });
        let mut batches: Vec<LiveBatch> = here.collect();
        if !server.is_shared() {
            return LiveUsage { batches, is_complete: false };
        }
        match self.live_in(server, key_id).await {
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

    async fn live_in(&self, server: &Shard, key_id: KeyId) -> Result<Vec<LiveBatch>> {
        let mut call = LIVE.key(server.names.current_batch());
        call.key(server.names.pending_batches()).arg(server.names.batch_prefix());
        let mut beginning = String::new();
        for group in RouteGroup::ALL {
            for class in Class::ALL {
                Field::write_beginning(key_id, group, class, &mut beginning);
                call.arg(&beginning);
            }
        }
        let answer: Vec<String> = server.aside.ask(async |redis| call.invoke_async(redis).await).await?;
        let mut fields_by_batch: HashMap<&str, Vec<(String, u64)>> = HashMap::new();
        for entry in answer.chunks_exact(3) {
            let count = entry[2].parse().map_err(|_| MeterError::Foreign(entry.join(" ")))?;
            fields_by_batch.entry(&entry[0]).or_default().push((entry[1].clone(), count));
        }
        let batch = |(id, fields): (&str, _)| Ok(LiveBatch { id: Some(id.to_owned()), rows: rows(parse(fields)?) });
        fields_by_batch.into_iter().map(batch).collect()
    }
}

fn parse(fields: Vec<(String, u64)>) -> Result<FieldCounts> {
    fields
        .into_iter()
        .map(|(text, count)| match Field::parse(&text) {
            Some(field) => Ok((field, count)),
            None => Err(MeterError::Foreign(text)),
        })
        .collect()
}

/// Gathered by key, day and group.
fn rows(fields: FieldCounts) -> Vec<UsageRow> {
    let mut gathered: HashMap<(KeyId, u64, RouteGroup), Counts> = HashMap::new();
    for (field, count) in fields {
        let counts = gathered.entry((field.key_id, field.day, field.group)).or_default();
        *match field.class {
            Class::Request => &mut counts.requests,
            Class::Outcome(Outcome::Successful) => &mut counts.successful,
            Class::Outcome(Outcome::ClientError) => &mut counts.client_errors,
            Class::Outcome(Outcome::ServerError) => &mut counts.server_errors,
            Class::Outcome(Outcome::RateLimited) => &mut counts.rate_limited,
        } += count;
    }
    let day_of = |day: u64| utc_day((day * DAY_US).cast_signed());
    gathered
        .into_iter()
        .map(|((key_id, day, group), counts)| UsageRow { key_id, day: day_of(day), group, counts })
        .collect()
}
