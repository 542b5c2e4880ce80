//! Usage that this process counted by itself, until it is stored. The ids of its chunks go into the same ledger as those
//! of the chunks in Redis.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use vintem_domain::usage::UsageChunkId;

use crate::admit_call::{UsageField, UsageFieldCounts};
use crate::circuit::local_now_us;

/// As many fields as a chunk in Redis has.
const MAX_FIELDS_IN_CHUNK: usize = 5_000;

#[derive(Debug)]
pub struct LocalUsage {
    /// Distinguishes the chunks of this process from those of all others.
    process_id: String,
    counts: Mutex<LocalCounts>,
}

#[derive(Debug, Default)]
struct LocalCounts {
    open_counts: UsageFieldCounts,
    /// When the oldest of the open counts was added.
    opened_at: Option<Instant>,
    /// The first may already be stored under its id. None of them changes.
    closed_chunks: VecDeque<ClosedChunk>,
    last_chunk_number: u64,
}

#[derive(Debug)]
struct ClosedChunk {
    id: UsageChunkId,
    counts: UsageFieldCounts,
    opened_at: Instant,
}

impl LocalCounts {
    fn add(&mut self, field: UsageField, count: u64) {
        *self.open_counts.entry(field).or_default() += count;
        self.opened_at.get_or_insert_with(Instant::now);
    }

    /// Divides the open counts into chunks.
    fn close(&mut self, process_id: &str) {
        let Some(opened_at) = self.opened_at.take() else { return };
        let mut counts = std::mem::take(&mut self.open_counts).into_iter().peekable();
        while counts.peek().is_some() {
            self.last_chunk_number += 1;
            let id = format!("{}-local-{process_id}-{}/1:0", local_now_us(), self.last_chunk_number);
            let counts = counts.by_ref().take(MAX_FIELDS_IN_CHUNK).collect();
            self.closed_chunks.push_back(ClosedChunk { id: UsageChunkId::new(id), counts, opened_at });
        }
    }
}

impl Default for LocalUsage {
    fn default() -> Self {
        Self { process_id: format!("{:016x}", rand::random::<u64>()), counts: Mutex::default() }
    }
}

impl LocalUsage {
    pub fn add(&self, field: UsageField, count: u64) {
        self.lock_counts().add(field, count);
    }

    pub fn add_all(&self, counts: UsageFieldCounts) {
        if counts.is_empty() {
            return;
        }

        let mut local = self.lock_counts();
        for (field, count) in counts {
            local.add(field, count);
        }
    }

    /// The next chunk to store: the same one until `drop_chunk` removes it. Open counts are closed if no chunk waits and
    /// `closes_open` says so.
    pub fn next_chunk(&self, closes_open: bool) -> Option<(UsageChunkId, UsageFieldCounts)> {
        let mut local = self.lock_counts();
        if local.closed_chunks.is_empty() && closes_open {
            local.close(&self.process_id);
        }
        local.closed_chunks.front().map(|chunk| (chunk.id.clone(), chunk.counts.clone()))
    }

    /// Removes a chunk that is stored.
    pub fn drop_chunk(&self, id: &UsageChunkId) {
        self.lock_counts().closed_chunks.retain(|chunk| chunk.id != *id);
    }

    /// How long the oldest count has not been stored.
    pub fn oldest_age(&self) -> Duration {
        let local = self.lock_counts();
        let opened_at = local.closed_chunks.front().map(|chunk| chunk.opened_at).or(local.opened_at);
        opened_at.map_or(Duration::ZERO, |opened_at| opened_at.elapsed())
    }

    /// All counts that may not be stored yet, with the id of their chunk; counts in no chunk yet have none.
    pub fn unstored_counts(&self) -> Vec<(Option<UsageChunkId>, UsageFieldCounts)> {
        let local = self.lock_counts();
        let closed = local.closed_chunks.iter().map(|chunk| (Some(chunk.id.clone()), chunk.counts.clone()));
        closed.chain([(None, local.open_counts.clone())]).collect()
    }

    /// Number of counts that are not known to be stored.
    pub fn len(&self) -> usize {
        let local = self.lock_counts();
        local.open_counts.len() + local.closed_chunks.iter().map(|chunk| chunk.counts.len()).sum::<usize>()
    }

    fn lock_counts(&self) -> std::sync::MutexGuard<'_, LocalCounts> {
        self.counts.lock().expect("never held across a panic")
    }
}

#[cfg(test)]
mod tests {
    use vintem_domain::usage::RouteGroup;

    use super::*;
    use crate::admit_call::UsageClass;

    fn count_keys(usage: &LocalUsage, key_ids: std::ops::Range<i64>) {
        for key_id in key_ids {
            usage.add(UsageField { key_id, group: RouteGroup::Market, class: UsageClass::Request, day: 20_000 }, 1);
        }
    }

    /// Otherwise a process that counts all the time would never get to storing anything else.
    #[test]
    fn counts_that_arrive_while_chunks_are_stored_wait_for_the_next_time() {
        let usage = LocalUsage::default();
        count_keys(&usage, 0..12_000);

        let mut sizes = Vec::new();
        let mut closes_open = true;
        while let Some((id, counts)) = usage.next_chunk(closes_open) {
            closes_open = false;
            assert_eq!(usage.next_chunk(true).map(|(id, _)| id), Some(id.clone()), "the same until it is dropped");
            sizes.push(counts.len());
            count_keys(&usage, 0..10);
            usage.drop_chunk(&id);
        }
        assert_eq!(sizes, [5_000, 5_000, 2_000]);
        assert_eq!(usage.len(), 10);
        assert_eq!(usage.next_chunk(true).map(|(_, counts)| counts.len()), Some(10));
    }
}
