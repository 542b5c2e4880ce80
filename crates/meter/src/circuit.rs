//! Whether one Redis is asked at all, how many replicas share it, and what time it has.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// So many calls that fail one after the other, and Redis is not asked any more but by probes.
const MAX_CONSECUTIVE_FAILURES: u32 = 5;

/// Closed: Redis decides. Open: this process does.
#[derive(Debug, Default)]
pub struct Circuit {
    is_open: bool,
    consecutive_failures: u32,
}

impl Circuit {
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// True if this opened it.
    pub fn record_failure(&mut self) -> bool {
        self.consecutive_failures += 1;
        let opens = self.consecutive_failures >= MAX_CONSECUTIVE_FAILURES && !self.is_open;
        self.is_open |= opens;
        opens
    }

    /// True if this closed it.
    pub fn record_success(&mut self) -> bool {
        self.consecutive_failures = 0;
        std::mem::replace(&mut self.is_open, false)
    }
}

/// How long a number of replicas that was seen counts: after a restart of Redis they come back one by one.
const REPLICA_COUNT_WINDOW: Duration = Duration::from_secs(5);

/// How many replicas count together: the most that were seen of late.
#[derive(Debug)]
pub struct ReplicaCount {
    window: Mutex<ReplicaWindow>,
}

#[derive(Debug)]
struct ReplicaWindow {
    previous_max: u32,
    current_max: u32,
    started_at: Instant,
}

impl ReplicaCount {
    /// `assumed` until some were seen.
    pub fn with_assumed(assumed: u32) -> Self {
        Self {
            window: Mutex::new(ReplicaWindow {
                previous_max: 0,
                current_max: assumed.max(1),
                started_at: Instant::now(),
            }),
        }
    }

    pub fn record(&self, live_replicas: u32) {
        let mut seen = self.window.lock().expect("never held across a panic");
        if seen.started_at.elapsed() > REPLICA_COUNT_WINDOW {
            *seen = ReplicaWindow {
                previous_max: seen.current_max,
                current_max: live_replicas,
                started_at: Instant::now(),
            };
        }
        seen.current_max = seen.current_max.max(live_replicas);
    }

    /// What each of them may admit of `limit`, so that together they admit it.
    pub fn share_of(&self, limit: u32) -> u32 {
        let seen = self.window.lock().expect("never held across a panic");
        limit.div_ceil(seen.current_max.max(seen.previous_max).max(1))
    }
}

/// Redis' clock, as far as this process can tell without asking.
#[derive(Debug, Default)]
pub struct RedisClock {
    offset_us: AtomicI64,
}

impl RedisClock {
    pub fn sync(&self, redis_us: u64) {
        self.offset_us.store(redis_us.cast_signed() - local_now_us(), Ordering::Relaxed);
    }

    pub fn now_us(&self) -> u64 {
        u64::try_from(local_now_us() + self.offset_us.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

fn local_now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
