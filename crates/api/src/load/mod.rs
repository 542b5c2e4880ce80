//! Everything that protects the process from more work than it can do.
//!
//! The rate limit (crate `meter`) is a promise to each caller. The controls here know nothing about plans: they keep
//! this process responsive whatever arrives. A request meets them in this order:
//!
//! 1. [`LoadLimiter`] counts the requests in flight. Each request measures its own CPU time, so the limit adapts:
//!    hundreds of cheap requests may be in flight, but only dozens of expensive ones. A request above the limit is shed
//!    at once with 503 (`front/shed.rs`). Health checks are never shed.
//! 2. [`CpuGate`] lets one handler per core compute at a time. Handlers wait in front of it and not in the runtime's
//!    run queue, so that health checks, cached responses and shed requests stay fast.
//! 3. [`BlockingPool`] runs work of more than a few milliseconds on blocking threads, one per core. There are two
//!    pools: one for searches and long lists, one for point-in-time queries, which also wait for PostgreSQL.
//! 4. [`PerKeyLimit`] keeps one key from using up scarce capacity: long tables, long polls, DNS lookups.
//! 5. [`LoadControls::body_reads`] limits how many request bodies are read at once.
//!
//! A request that reaches a limit gets 503 `overloaded` at once. Nothing queues for longer than [`BlockingPool`] allows.
//! Each [`crate::app::App`] has its own controls: two replicas in one process share nothing.

mod blocking_pool;
mod cpu_gate;
mod load_limiter;
mod per_key_limit;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

pub use blocking_pool::BlockingPool;
pub use cpu_gate::CpuGate;
pub use load_limiter::LoadLimiter;
pub use per_key_limit::{KeyPermit, PerKeyLimit};

/// The longest time that the last admitted request should wait for a core.
const TARGET_CPU_WAIT: Duration = Duration::from_millis(40);

/// This many concurrent requests are always admitted: a browser sends a dozen requests at once for one page.
const MIN_IN_FLIGHT: usize = 32;

/// Concurrent tables that are longer than a page, per key.
const MAX_LONG_TABLES_PER_KEY: usize = 2;

/// Concurrent requests that wait for new events, per key.
pub const MAX_LONG_POLLS_PER_KEY: usize = 8;

/// Concurrent DNS lookups per key. One may take seconds.
const MAX_DNS_LOOKUPS_PER_KEY: usize = 4;

/// Request bodies that are read at once, so that slow senders cannot take the capacity of requests without a body.
const MAX_BODY_READS: usize = 64;

/// The controls of one replica.
#[derive(Debug)]
pub struct LoadControls {
    pub requests: LoadLimiter,
    pub handlers: Arc<CpuGate>,
    /// Searches and long lists.
    pub search_pool: BlockingPool,
    /// Point-in-time queries. They also wait for PostgreSQL, and searches must not wait for them.
    pub history_pool: BlockingPool,
    pub long_tables: Arc<PerKeyLimit>,
    pub long_polls: Arc<PerKeyLimit>,
    pub dns_lookups: Arc<PerKeyLimit>,
    pub body_reads: Semaphore,
    last_shed_log_second: AtomicU64,
}

impl LoadControls {
    pub fn new(max_in_flight: usize) -> Self {
        Self {
            requests: LoadLimiter::new(max_in_flight, MIN_IN_FLIGHT, TARGET_CPU_WAIT),
            handlers: Arc::new(CpuGate::new()),
            search_pool: BlockingPool::new(),
            history_pool: BlockingPool::new(),
            long_tables: PerKeyLimit::new(MAX_LONG_TABLES_PER_KEY),
            long_polls: PerKeyLimit::new(MAX_LONG_POLLS_PER_KEY),
            dns_lookups: PerKeyLimit::new(MAX_DNS_LOOKUPS_PER_KEY),
            body_reads: Semaphore::new(MAX_BODY_READS),
            last_shed_log_second: AtomicU64::new(0),
        }
    }

    /// Logs that requests are shed, once a second: a line per request would cost more than the response itself.
    pub fn log_shedding(&self, now_us: u64) {
        let second = now_us / 1_000_000;
        if self.last_shed_log_second.swap(second, Ordering::Relaxed) != second {
            tracing::warn!("overloaded; shedding requests");
        }
    }
}
