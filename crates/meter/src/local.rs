//! What this process counted by itself, until it is stored: under ids of the same ledger as the batches in Redis.

use std::sync::Mutex;

use crate::call::{Field, FieldCounts};

#[derive(Debug)]
pub struct LocalUsage {
    /// Tells the batches of this process from those of all others.
    process: String,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    open: FieldCounts,
    /// Under this id it may be stored already: it stays as it is until that is known.
    closed: Option<(String, FieldCounts)>,
    last_number: u64,
}

impl Default for LocalUsage {
    fn default() -> Self {
        Self { process: format!("{:016x}", rand::random::<u64>()), counts: Mutex::default() }
    }
}

impl LocalUsage {
    pub fn add(&self, field: Field, by: u64) {
        *self.counts().open.entry(field).or_default() += by;
    }

    pub fn add_all(&self, counts: FieldCounts) {
        if counts.is_empty() {
            return;
        }
        let mut kept = self.counts();
        for (field, by) in counts {
            *kept.open.entry(field).or_default() += by;
        }
    }

    /// The next batch to store: the same until it is dropped.
    pub fn next_batch(&self) -> Option<(String, FieldCounts)> {
        let mut kept = self.counts();
        if kept.closed.is_none() && !kept.open.is_empty() {
            kept.last_number += 1;
            let id = format!("process-{}-{}", self.process, kept.last_number);
            kept.closed = Some((id, std::mem::take(&mut kept.open)));
        }
        kept.closed.clone()
    }

    /// Forgets a batch that is stored.
    pub fn drop_batch(&self, id: &str) {
        let mut kept = self.counts();
        if kept.closed.as_ref().is_some_and(|(closed, _)| closed == id) {
            kept.closed = None;
        }
    }

    /// Everything that may not be stored yet, by the id of its batch; what is in none yet has none.
    pub fn live(&self) -> Vec<(Option<String>, FieldCounts)> {
        let kept = self.counts();
        let closed = kept.closed.clone().map(|(id, counts)| (Some(id), counts));
        closed.into_iter().chain([(None, kept.open.clone())]).collect()
    }

    /// How many counts are not known to be stored.
    pub fn len(&self) -> usize {
        let kept = self.counts();
        kept.open.len() + kept.closed.as_ref().map_or(0, |(_, counts)| counts.len())
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().expect("never held across a panic")
    }
}
