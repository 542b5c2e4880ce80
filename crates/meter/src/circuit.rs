//! Whether one Redis is asked at all, how many replicas share it, and what time it has.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// So many calls that fail one after the other, and Redis is not asked any more but by probes.
const MOST_FAILURES: u32 = 5;

/// Closed: Redis decides. Open: this process does.
#[derive(Debug, Default)]
pub struct Circuit {
    is_open: bool,
    failures: u32,
}

impl Circuit {
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// True if this opened it.
    pub fn note_failure(&mut self) -> bool {
        self.failures += 1;
        let opens = self.failures >= MOST_FAILURES && !self.is_open;
        self.is_open |= opens;
        opens
    }

    /// True if this closed it.
    pub fn note_success(&mut self) -> bool {
        self.failures = 0;
        std::mem::replace(&mut self.is_open, false)
    }
}

/// How long a number of replicas that was seen counts: after a restart of Redis they come back one by one.
const REMEMBERED: Duration = Duration::from_secs(5);

/// How many replicas count together: the most that were seen of late.
#[derive(Debug)]
pub struct Replicas {
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    before: u32,
    most: u32,
    since: Instant,
}

impl Replicas {
    /// `assumed` until some were seen.
    pub fn assume(assumed: u32) -> Self {
        Self { seen: Mutex::new(Seen { before: 0, most: assumed.max(1), since: Instant::now() }) }
    }

    pub fn note(&self, live: u32) {
        let mut seen = self.seen.lock().expect("never held across a panic");
        if seen.since.elapsed() > REMEMBERED {
            *seen = Seen { before: seen.most, most: live, since: Instant::now() };
        }
        seen.most = seen.most.max(live);
    }

    /// What each of them may admit of `limit`, so that together they admit it.
    pub fn share_of(&self, limit: u32) -> u32 {
        let seen = self.seen.lock().expect("never held across a panic");
        limit.div_ceil(seen.most.max(seen.before).max(1))
    }
}

/// Redis' clock, as far as this process can tell without asking.
#[derive(Debug, Default)]
pub struct RemoteClock {
    ahead_us: AtomicI64,
}

impl RemoteClock {
    pub fn note(&self, remote_us: u64) {
        self.ahead_us.store(remote_us.cast_signed() - local_us(), Ordering::Relaxed);
    }

    pub fn now_us(&self) -> u64 {
        u64::try_from(local_us() + self.ahead_us.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

fn local_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
