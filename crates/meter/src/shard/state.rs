//! The state that callers of a shard share with its worker: checks and outcomes that wait for the next call, and the
//! limiter that decides while Redis does not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use chrono::NaiveDate;
use tokio::sync::{Notify, oneshot};
use vintem_domain::usage::utc_date_from_micros;

use crate::admit_call::{DAY_US, LimitCheck, UsageClass, UsageField, UsageFieldCounts};
use crate::circuit::{Circuit, RedisClock, ReplicaCount};
use crate::local_usage::LocalUsage;
use crate::redis_keys::{AdmissionLogId, RedisKeys};
use crate::sliding_log::{LimitStatus, LocalRateLimiter};

/// State shared by all shards of this process.
#[derive(Debug)]
pub struct ProcessState {
    pub window_us: u64,
    /// How long a call may take before this process decides its checks.
    pub redis_timeout: Duration,
    pub replica_count: ReplicaCount,
    pub local_usage: LocalUsage,
    /// Losses of counts that are not stored yet.
    pub usage_gaps: Mutex<Vec<UsageGap>>,
}

/// The decision on a check, and when it was made.
#[derive(Debug, Clone, Copy)]
pub struct LimitDecision {
    pub status: LimitStatus,
    pub now_us: u64,
}

/// Days on which counts may be missing, because a Redis server lost its last writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageGap {
    pub from: NaiveDate,
    pub to: NaiveDate,
    /// Calls of this process that the server has lost.
    pub lost_calls: u64,
}

pub struct ShardState {
    pub redis_keys: RedisKeys,
    /// Distinguishes the calls and batches of this process from those of all others.
    pub process_id: String,
    pub redis_clock: RedisClock,
    /// Creation of the oldest batch that was not stored yet when this process last looked, or 0.
    pub oldest_batch_us: AtomicU64,
    pub process: Arc<ProcessState>,
    pub local_limiter: LocalRateLimiter<AdmissionLogId>,
    /// Wakes the worker.
    pub work_arrived: Notify,
    queue: Mutex<ShardQueue>,
    pending_outcomes: Mutex<UsageFieldCounts>,
}

#[derive(Default)]
pub struct ShardQueue {
    pub circuit: Circuit,
    pub is_shut_down: bool,
    pub checks: Vec<QueuedCheck>,
    pub flush_waiters: Vec<oneshot::Sender<bool>>,
}

/// A check, and where to send its decision.
pub type QueuedCheck = (LimitCheck, oneshot::Sender<LimitDecision>);

impl ShardState {
    pub fn new(redis_keys: RedisKeys, process: Arc<ProcessState>) -> Self {
        Self {
            redis_keys,
            process_id: format!("{:016x}", rand::random::<u64>()),
            redis_clock: RedisClock::default(),
            oldest_batch_us: AtomicU64::new(0),
            local_limiter: LocalRateLimiter::new(process.window_us),
            process,
            work_arrived: Notify::new(),
            queue: Mutex::default(),
            pending_outcomes: Mutex::default(),
        }
    }

    pub fn is_redis_available(&self) -> bool {
        !self.lock_queue().circuit.is_open()
    }

    pub fn check_and_count_locally(&self, check: &LimitCheck) -> LimitDecision {
        let decision = self.check_locally(check);
        if let Some(field) = usage_field(check, decision.now_us) {
            self.process.local_usage.add(field, 1);
        }
        decision
    }

    pub fn check_locally(&self, check: &LimitCheck) -> LimitDecision {
        let now_us = self.redis_clock.now_us();
        let limit = self.process.replica_count.share_of(check.limit);
        LimitDecision { status: self.local_limiter.check(check.log_id, limit, check.consumes, now_us), now_us }
    }

    /// Notes that the server lost the counts of calls since this time, or all counts that were not stored.
    pub fn record_lost_counts(&self, lost_calls: u64, since_us: u64) {
        let oldest_us = match self.oldest_batch_us.load(Ordering::Relaxed) {
            0 => since_us,
            oldest_us => oldest_us.min(since_us),
        };
        let date = |micros: u64| utc_date_from_micros(micros.cast_signed());
        let gap = UsageGap { from: date(oldest_us), to: date(self.redis_clock.now_us().max(oldest_us)), lost_calls };
        self.process.usage_gaps.lock().expect("never held across a panic").push(gap);
    }

    pub fn add_pending_outcome(&self, field: UsageField) {
        *self.lock_pending_outcomes().entry(field).or_default() += 1;
    }

    /// Takes the pending outcomes, up to `max_count` of them.
    pub fn take_pending_outcomes(&self, max_count: usize) -> UsageFieldCounts {
        let mut outcomes = self.lock_pending_outcomes();
        if outcomes.len() <= max_count {
            return std::mem::take(&mut outcomes);
        }

        let fields: Vec<UsageField> = outcomes.keys().take(max_count).copied().collect();
        fields.into_iter().filter_map(|field| outcomes.remove_entry(&field)).collect()
    }

    pub fn lock_queue(&self) -> MutexGuard<'_, ShardQueue> {
        self.queue.lock().expect("never held across a panic")
    }

    fn lock_pending_outcomes(&self) -> MutexGuard<'_, UsageFieldCounts> {
        self.pending_outcomes.lock().expect("never held across a panic")
    }
}

/// The count for a request that was checked at this time, if it is counted.
pub fn usage_field(check: &LimitCheck, now_us: u64) -> Option<UsageField> {
    let (key_id, group) = check.counted_usage?;
    Some(UsageField { key_id, group, class: UsageClass::Request, day: now_us / DAY_US })
}
