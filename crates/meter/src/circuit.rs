//! The circuit breaker of a Redis server, the number of live replicas, and an estimate of Redis' clock.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Consecutive failures before the circuit opens; after that only probes reach Redis.
const MAX_CONSECUTIVE_FAILURES: u32 = 5;

/// Closed: Redis decides. Open: this process decides.
#[derive(Debug, Default)]
pub struct Circuit {
    is_open: bool,
    consecutive_failures: u32,
}

impl Circuit {
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns true if this failure opened the circuit.
    pub fn record_failure(&mut self) -> bool {
        self.consecutive_failures += 1;
        let opens = self.consecutive_failures >= MAX_CONSECUTIVE_FAILURES && !self.is_open;
        self.is_open |= opens;
        opens
    }

    /// Returns true if this success closed the circuit.
    pub fn record_success(&mut self) -> bool {
        self.consecutive_failures = 0;
        std::mem::replace(&mut self.is_open, false)
    }
}

/// How long an observed replica count remains valid: after a restart of Redis the replicas come back one by one.
const REPLICA_COUNT_WINDOW: Duration = Duration::from_secs(5);

/// Number of replicas that share a limit: the highest count observed recently.
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
    /// Starts with `assumed` replicas until Redis reports a count.
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
        let mut window = self.window.lock().expect("never held across a panic");
        if window.started_at.elapsed() > REPLICA_COUNT_WINDOW {
            *window = ReplicaWindow {
                previous_max: window.current_max,
                current_max: live_replicas,
                started_at: Instant::now(),
            };
        }
        window.current_max = window.current_max.max(live_replicas);
    }

    /// Each replica's share of `limit`, so that all replicas together admit the limit.
    pub fn share_of(&self, limit: u32) -> u32 {
        let window = self.window.lock().expect("never held across a panic");
        limit.div_ceil(window.current_max.max(window.previous_max).max(1))
    }
}

/// Redis' clock, estimated from its last reply.
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

/// This machine's clock.
pub fn local_now_us() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)
}
