//! The same exact log as in Redis, within the process: what limits while Redis is away.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use crate::redis_keys::AdmissionLogId;

/// How a caller stands after an ask. Instants are in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitStatus {
    pub admitted: bool,
    pub remaining: u32,
    /// Until one would pass; zero if this one did.
    pub wait_us: u64,
    /// When all is free again.
    pub reset_at_us: u64,
}

/// The instants at which a caller was admitted, in order.
#[derive(Debug, Default)]
pub struct SlidingLog {
    admitted_at: VecDeque<u64>,
}

impl SlidingLog {
    pub fn check(&mut self, limit: u32, consume: bool, window_us: u64, now_us: u64) -> LimitStatus {
        let mut at = now_us;
        if let Some(&last) = self.admitted_at.back() {
            // The clock went back. A little: time stands still. By more than a window: start anew.
            if last > now_us + window_us {
                self.admitted_at.clear();
            } else {
                at = at.max(last);
            }
        }
        while self.admitted_at.front().is_some_and(|first| first + window_us <= at) {
            self.admitted_at.pop_front();
        }
        let (held, limit) = (self.admitted_at.len(), limit as usize);
        let admitted = held < limit;
        if admitted && consume {
            self.admitted_at.push_back(at);
        }
        LimitStatus {
            admitted,
            remaining: u32::try_from(limit.saturating_sub(self.admitted_at.len())).unwrap_or(u32::MAX),
            wait_us: if admitted { 0 } else { self.admitted_at[held - limit] + window_us - at },
            reset_at_us: self.admitted_at.back().map_or(at, |last| last + window_us),
        }
    }

    fn is_expired(&self, window_us: u64, now_us: u64) -> bool {
        self.admitted_at.back().is_none_or(|last| last + window_us <= now_us)
    }

    /// Takes the last admission back.
    pub fn refund_last(&mut self) {
        self.admitted_at.pop_back();
    }
}

/// The logs of all callers that were decided on here.
#[derive(Debug)]
pub struct LocalRateLimiter {
    window_us: u64,
    state: Mutex<LimiterState>,
}

#[derive(Debug, Default)]
struct LimiterState {
    logs: HashMap<AdmissionLogId, SlidingLog>,
    /// So many logs call for a look at which of them are over.
    sweep_threshold: usize,
}

/// Fewer are not worth a look.
const MIN_SWEEP_THRESHOLD: usize = 1024;

impl LocalRateLimiter {
    pub fn new(window_us: u64) -> Self {
        Self { window_us, state: Mutex::default() }
    }

    pub fn check(&self, log_id: AdmissionLogId, limit: u32, consume: bool, now_us: u64) -> LimitStatus {
        let mut kept = self.state.lock().expect("never held across a panic");
        if kept.logs.len() >= kept.sweep_threshold {
            kept.logs.retain(|_, log| !log.is_expired(self.window_us, now_us));
            kept.sweep_threshold = (2 * kept.logs.len()).max(MIN_SWEEP_THRESHOLD);
        }
        kept.logs.entry(log_id).or_default().check(limit, consume, self.window_us, now_us)
    }

    /// Redis counts again: what was admitted here is forgotten.
    pub fn clear(&self) {
        *self.state.lock().expect("never held across a panic") = LimiterState::default();
    }
}
