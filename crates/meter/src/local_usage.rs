//! Usage that this process counted by itself, until it is stored. Its batch ids go into the same ledger as those of the
//! batches in Redis.

use std::sync::Mutex;

use crate::admit_call::{UsageField, UsageFieldCounts};

#[derive(Debug)]
pub struct LocalUsage {
    /// Distinguishes the batches of this process from those of all others.
    process_id: String,
    counts: Mutex<LocalCounts>,
}

#[derive(Debug, Default)]
struct LocalCounts {
    open_counts: UsageFieldCounts,
    /// The batch may already be stored under this id, so it must not change until that is known.
    closed_batch: Option<(String, UsageFieldCounts)>,
    last_batch_number: u64,
}

impl Default for LocalUsage {
    fn default() -> Self {
        Self { process_id: format!("{:016x}", rand::random::<u64>()), counts: Mutex::default() }
    }
}

impl LocalUsage {
    pub fn add(&self, field: UsageField, count: u64) {
        *self.lock_counts().open_counts.entry(field).or_default() += count;
    }

    pub fn add_all(&self, counts: UsageFieldCounts) {
        if counts.is_empty() {
            return;
        }

        let mut local = self.lock_counts();
        for (field, count) in counts {
            *local.open_counts.entry(field).or_default() += count;
        }
    }

    /// The next batch to store: the same one until `drop_batch` removes it.
    pub fn next_batch(&self) -> Option<(String, UsageFieldCounts)> {
        let mut local = self.lock_counts();
        if local.closed_batch.is_none() && !local.open_counts.is_empty() {
            local.last_batch_number += 1;
            let id = format!("process-{}-{}", self.process_id, local.last_batch_number);
            local.closed_batch = Some((id, std::mem::take(&mut local.open_counts)));
        }
        local.closed_batch.clone()
    }

    /// Removes a batch that is stored.
    pub fn drop_batch(&self, id: &str) {
        let mut local = self.lock_counts();
        if local.closed_batch.as_ref().is_some_and(|(closed, _)| closed == id) {
            local.closed_batch = None;
        }
    }

    /// All counts that may not be stored yet, with the id of their batch; counts in no batch yet have none.
    pub fn unstored_counts(&self) -> Vec<(Option<String>, UsageFieldCounts)> {
        let local = self.lock_counts();
        let closed = local.closed_batch.clone().map(|(id, counts)| (Some(id), counts));
        closed.into_iter().chain([(None, local.open_counts.clone())]).collect()
    }

    /// Number of counts that are not known to be stored.
    pub fn len(&self) -> usize {
        let local = self.lock_counts();
        local.open_counts.len() + local.closed_batch.as_ref().map_or(0, |(_, counts)| counts.len())
    }

    fn lock_counts(&self) -> std::sync::MutexGuard<'_, LocalCounts> {
        self.counts.lock().expect("never held across a panic")
    }
}
