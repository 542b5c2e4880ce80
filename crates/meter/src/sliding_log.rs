//! The same exact sliding log as in Redis, inside the process. It limits requests while Redis is unavailable, and what
//! each replica limits for itself.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Mutex;

/// A caller's quota after a check. Times are in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitStatus {
    pub admitted: bool,
    pub remaining: u32,
    /// Until a request would be admitted; zero if this one was.
    pub wait_us: u64,
    /// When the whole quota is free again.
    pub reset_at_us: u64,
}

/// The times at which a caller was admitted, in order.
#[derive(Debug, Default)]
pub struct SlidingLog {
    admitted_at: VecDeque<u64>,
}

impl SlidingLog {
    pub fn check(&mut self, limit: u32, consume: bool, window_us: u64, now_us: u64) -> LimitStatus {
        let mut at_us = now_us;
        if let Some(&last) = self.admitted_at.back() {
            // If the clock went back a little, time stands still. If it went back by more than a window, start over.
            if last > now_us + window_us {
                self.admitted_at.clear();
            } else {
                at_us = at_us.max(last);
            }
        }
        while self.admitted_at.front().is_some_and(|first| first + window_us <= at_us) {
            self.admitted_at.pop_front();
        }

        let limit = limit as usize;
        let count = self.admitted_at.len();
        let admitted = count < limit;
        if admitted && consume {
            self.admitted_at.push_back(at_us);
        }

        LimitStatus {
            admitted,
            remaining: u32::try_from(limit.saturating_sub(self.admitted_at.len())).unwrap_or(u32::MAX),
            wait_us: if admitted { 0 } else { self.admitted_at[count - limit] + window_us - at_us },
            reset_at_us: self.admitted_at.back().map_or(at_us, |last| last + window_us),
        }
    }

    fn is_expired(&self, window_us: u64, now_us: u64) -> bool {
        self.admitted_at.back().is_none_or(|last| last + window_us <= now_us)
    }

    /// Removes the last admission.
    pub fn refund_last(&mut self) {
        self.admitted_at.pop_back();
    }
}

/// Limits callers, or whatever `K` names, inside this process.
#[derive(Debug)]
pub struct LocalRateLimiter<K> {
    window_us: u64,
    state: Mutex<LimiterState<K>>,
}

#[derive(Debug)]
struct LimiterState<K> {
    logs: HashMap<K, SlidingLog>,
    /// Number of logs at which expired ones are removed.
    sweep_threshold: usize,
}

/// Sweeping fewer logs is not worth the time.
const MIN_SWEEP_THRESHOLD: usize = 1024;

impl<K> Default for LimiterState<K> {
    fn default() -> Self {
        Self { logs: HashMap::new(), sweep_threshold: 0 }
    }
}

impl<K: Eq + Hash> LocalRateLimiter<K> {
    pub fn new(window_us: u64) -> Self {
        Self { window_us, state: Mutex::default() }
    }

    pub fn check(&self, log_id: K, limit: u32, consume: bool, now_us: u64) -> LimitStatus {
        let mut state = self.state.lock().expect("never held across a panic");
        if state.logs.len() >= state.sweep_threshold {
            state.logs.retain(|_, log| !log.is_expired(self.window_us, now_us));
            state.sweep_threshold = (2 * state.logs.len()).max(MIN_SWEEP_THRESHOLD);
        }
        state.logs.entry(log_id).or_default().check(limit, consume, self.window_us, now_us)
    }

    /// Discards all admissions, because Redis counts again.
    pub fn clear(&self) {
        *self.state.lock().expect("never held across a panic") = LimiterState::default();
    }
}
