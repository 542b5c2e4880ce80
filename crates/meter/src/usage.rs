//! The live usage: read together with what is stored, and drained in batches that each have an id for ever.

use std::collections::HashMap;
use std::sync::LazyLock;

use redis::{AsyncCommands, Script};
use vintem_domain::KeyId;
use vintem_domain::usage::{Counts, KeyDay, utc_day};

use crate::admission::LOG_LUA;
use crate::{Meter, MeterError, Result, within_budget};

static ROTATE: LazyLock<Script> = LazyLock::new(|| Script::new(&[LOG_LUA, include_str!("rotate.lua")].concat()));
static LIVE: LazyLock<Script> = LazyLock::new(|| Script::new(&[LOG_LUA, include_str!("live.lua")].concat()));

const DAY_US: i64 = 24 * 3600 * 1_000_000;

/// Closed counts that wait to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub id: String,
    pub rows: Vec<KeyDay>,
}

/// What is counted for a key in one batch that may not be stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveUsage {
    pub batch_id: String,
    pub days: Vec<KeyDay>,
}

impl Meter {
    /// The next batch to drain: to be stored under its id, then dropped. One that two drainers see is stored once, as
    /// its id says.
    pub async fn next_batch(&self) -> Result<Option<Batch>> {
        let mut call = ROTATE.key(self.keys.current_batch());
        call.key(self.keys.pending_batches()).arg(self.keys.batch_prefix()).arg(self.outcomes.nonce());
        let Some(id) = self.invoke::<Option<String>>(&call).await? else { return Ok(None) };
        let mut redis = self.redis.clone();
        let fields: Vec<(String, u64)> = within_budget(redis.hgetall(self.batch_key(&id))).await?;
        Ok(Some(Batch { rows: key_days(fields)?, id }))
    }

    /// Forgets a batch that is stored.
    pub async fn drop_batch(&self, id: &str) -> Result<()> {
        let mut redis = self.redis.clone();
        let mut pipe = redis::pipe();
        pipe.atomic().lrem(self.keys.pending_batches(), 0, id).del(self.batch_key(id));
        within_budget(pipe.exec_async(&mut redis)).await
    }

    /// What is counted for a key and may not be stored yet, by batch.
    pub async fn live_usage(&self, key_id: KeyId) -> Result<Vec<LiveUsage>> {
        let mut call = LIVE.key(self.keys.current_batch());
        call.key(self.keys.pending_batches()).arg(self.keys.batch_prefix()).arg(key_id);
        let answer: Vec<String> = self.invoke(&call).await?;
        let mut fields_by_batch: HashMap<&str, Vec<(String, u64)>> = HashMap::new();
        for entry in answer.chunks_exact(3) {
            let count = entry[2].parse().map_err(|_| MeterError::Foreign(entry.join(" ")))?;
            fields_by_batch.entry(&entry[0]).or_default().push((entry[1].clone(), count));
        }
        fields_by_batch
            .into_iter()
            .map(|(batch_id, fields)| Ok(LiveUsage { batch_id: batch_id.to_owned(), days: key_days(fields)? }))
            .collect()
    }

    fn batch_key(&self, id: &str) -> String {
        format!("{}{id}", self.keys.batch_prefix())
    }
}

/// `key:day:class` → count, gathered by key and day.
fn key_days(fields: Vec<(String, u64)>) -> Result<Vec<KeyDay>> {
    let mut days: HashMap<(KeyId, i64), Counts> = HashMap::new();
    for (field, count) in fields {
        let foreign = || MeterError::Foreign(field.clone());
        let mut parts = field.split(':');
        let key_id: KeyId = parts.next().and_then(|part| part.parse().ok()).ok_or_else(foreign)?;
        let day: i64 = parts.next().and_then(|part| part.parse().ok()).ok_or_else(foreign)?;
        let counts = days.entry((key_id, day)).or_default();
        let place = match parts.next() {
            Some("r") => &mut counts.requests,
            Some("s") => &mut counts.successful,
            Some("c") => &mut counts.client_errors,
            Some("e") => &mut counts.server_errors,
            Some("l") => &mut counts.rate_limited,
            _ => return Err(foreign()),
        };
        *place += count;
    }
    Ok(days.into_iter().map(|((key_id, day), counts)| KeyDay { key_id, day: utc_day(day * DAY_US), counts }).collect())
}
