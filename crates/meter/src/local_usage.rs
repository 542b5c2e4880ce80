//! What this process counted by itself, until it is stored: under ids of the same ledger as the batches in Redis.

use std::sync::Mutex;

use crate::admit_call::{UsageField, UsageFieldCounts};

#[derive(Debug)]
pub struct LocalUsage {
    /// Tells the batches of this process from those of all others.
    process_id: String,
    counts: Mutex<LocalCounts>,
}

#[derive(Debug, Default)]
struct LocalCounts {
    open_counts: UsageFieldCounts,
    /// Under this id it may be stored already: it stays as it is until that is known.
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
        let mut kept = self.lock_counts();
        for (field, by) in counts {
            *kept.open_counts.entry(field).or_default() += by;
        }
    }

    /// The next batch to store: the same until it is dropped.
    pub fn next_batch(&self) -> Option<(String, UsageFieldCounts)> {
        let mut kept = self.lock_counts();
        if kept.closed_batch.is_none() && !kept.open_counts.is_empty() {
            kept.last_batch_number += 1;
            let id = format!("process-{}-{}", self.process_id, kept.last_batch_number);
            kept.closed_batch = Some((id, std::mem::take(&mut kept.open_counts)));
        }
        kept.closed_batch.clone()
    }

    /// Forgets a batch that is stored.
    pub fn drop_batch(&self, id: &str) {
        let mut kept = self.lock_counts();
        if kept.closed_batch.as_ref().is_some_and(|(closed, _)| closed == id) {
            kept.closed_batch = None;
        }
    }

    /// Everything that may not be stored yet, by the id of its batch; what is in none yet has none.
    pub fn unstored_counts(&self) -> Vec<(Option<String>, UsageFieldCounts)> {
        let kept = self.lock_counts();
        let closed = kept.closed_batch.clone().map(|(id, counts)| (Some(id), counts));
        closed.into_iter().chain([(None, kept.open_counts.clone())]).collect()
    }

    /// How many counts are not known to be stored.
    pub fn len(&self) -> usize {
        let kept = self.lock_counts();
        kept.open_counts.len() + kept.closed_batch.as_ref().map_or(0, |(_, counts)| counts.len())
    }

    fn lock_counts(&self) -> std::sync::MutexGuard<'_, LocalCounts> {
        self.counts.lock().expect("never held across a panic")
    }
}
