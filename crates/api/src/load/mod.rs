//! Everything that protects the process from more work than it can do, and callers from each other.
//!
//! The rate limit (crate `meter`) is a promise to each caller. The controls here keep this process responsive whatever
//! arrives, and divide its capacity: no caller can take what others need. Work is charged to its [`WorkOwner`], the key
//! on paid plans and the client's address for everything Free. A request meets these controls in this order:
//!
//! 1. `key_lookups` limits how often each address has unknown keys looked up, before the request takes any capacity.
//! 2. [`OwnerBudgets`] limits what each caller has at once: requests in flight, unfinished request bodies, unsent
//!    responses and scarce things such as DNS lookups. A request above a budget waits up to a second, then gets 503.
//! 3. [`LoadLimiter`] counts the requests in flight of all callers. Each request measures its own CPU time, so the limit
//!    adapts: hundreds of cheap requests may be in flight, but only dozens of expensive ones. A request above the limit is
//!    shed at once with 503 (`front/shed.rs`). Health checks are never shed.
//! 4. [`CpuGate`] lets one handler per core compute at a time. Handlers wait in front of it and not in the runtime's
//!    run queue, so that health checks, cached responses and shed requests stay fast. Long responses take a new turn for
//!    every part.
//! 5. [`BlockingPool`] runs work of more than a few milliseconds on blocking threads, one per core. There are two
//!    pools: one for searches and long lists, one for point-in-time queries, which also wait for PostgreSQL.
//!
//! Gate and pools serve the caller who has used the least first (`fair_gate.rs`). Free callers never get the last quarter
//! of any capacity. Each [`crate::app::App`] has its own controls: two replicas in one process share nothing.

mod blocking_pool;
mod budget;
mod cpu_gate;
mod fair_gate;
mod load_limiter;
mod shedding;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use vintem_domain::{AddressBucket, Problem};
use vintem_meter::LocalRateLimiter;

pub use blocking_pool::BlockingPool;
pub use budget::{
    MAX_LONG_POLLS, OwnerBudget, OwnerBudgets, OwnerCaps, OwnerPermit, Resource, SharedCapacity, WorkOwner,
};
pub use cpu_gate::CpuGate;
pub use load_limiter::{LoadLimiter, LoadPermit};
pub use shedding::{ShedReason, register_shed_counters};

/// The longest time that the last admitted request should wait for a core.
const TARGET_CPU_WAIT: Duration = Duration::from_millis(40);

/// This many concurrent requests are always admitted: a browser sends a dozen requests at once for one page.
const MIN_IN_FLIGHT: usize = 32;

/// Request bodies that are awaited at once, so that slow senders cannot take the capacity of requests without a body.
const MAX_REQUEST_BODIES: usize = 64;

/// Memory for responses that are not sent yet.
const MAX_UNSENT_KIB: usize = 64 * 1024;

/// What a stream takes while it is sent: its encoder, and the parts that wait.
const STREAM_KIB: u32 = 3072;

const MINUTE_US: u64 = 60_000_000;

/// The controls of one replica.
#[derive(Debug)]
pub struct LoadControls {
    pub key_lookups: LocalRateLimiter<AddressBucket>,
    pub budgets: OwnerBudgets,
    pub request_bodies: Arc<SharedCapacity>,
    pub unsent_kib: Arc<SharedCapacity>,
    pub requests: LoadLimiter,
    pub handlers: CpuGate,
    /// Searches and long lists.
    pub search_pool: BlockingPool,
    /// Point-in-time queries. They also wait for PostgreSQL, and searches must not wait for them.
    pub history_pool: BlockingPool,
    last_shed_log_second: AtomicU64,
}

impl LoadControls {
    pub fn new(max_in_flight: usize) -> Self {
        Self {
            key_lookups: LocalRateLimiter::new(MINUTE_US),
            budgets: OwnerBudgets::new(OwnerCaps::new(max_in_flight)),
            request_bodies: Arc::new(SharedCapacity::new(MAX_REQUEST_BODIES)),
            unsent_kib: Arc::new(SharedCapacity::new(MAX_UNSENT_KIB)),
            requests: LoadLimiter::new(max_in_flight, MIN_IN_FLIGHT, TARGET_CPU_WAIT),
            handlers: CpuGate::new(),
            search_pool: BlockingPool::new(),
            history_pool: BlockingPool::new(),
            last_shed_log_second: AtomicU64::new(0),
        }
    }

    /// `None` if too many requests are in flight.
    pub fn try_acquire_request(&self, owner: WorkOwner) -> Option<LoadPermit<'_>> {
        let permit = self.requests.try_acquire(owner);
        if permit.is_none() {
            ShedReason::InFlight.count();
        }
        permit
    }

    /// Charges a stream to a caller until the permit is dropped.
    pub async fn acquire_stream(&self, budget: &Arc<OwnerBudget>) -> Result<OwnerPermit, Problem> {
        budget.acquire_shared(Resource::UnsentKib, STREAM_KIB, &self.unsent_kib).await
    }

    /// Logs that requests are shed, once a second: a line per request would cost more than the response itself.
    pub fn log_shedding(&self, now_us: u64) {
        let second = now_us / 1_000_000;
        if self.last_shed_log_second.swap(second, Ordering::Relaxed) != second {
            tracing::warn!("overloaded; shedding requests");
        }
    }
}
