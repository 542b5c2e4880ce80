//! Limits CPU-heavy work to one task per core, because more would only slow all of them down. Callers that would wait
//! too long for a slot are rejected at once.

use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vintem_domain::Problem;

use super::budget::WorkOwner;
use super::fair_gate::{FairGate, GateTurn};
use super::load_limiter::{LoadLimiter, LoadPermit};
use super::shedding::ShedReason;
use crate::api_error::ApiError;

/// The expected wait of the last task in the queue, given how long tasks usually take. Including the task's own work
/// and PostgreSQL's timeouts, every request is answered within 600 ms.
const TARGET_WAIT: Duration = Duration::from_millis(40);
/// The hard limit, for when tasks take longer than usual.
const MAX_WAIT: Duration = Duration::from_millis(80);
/// The queue never grows beyond this.
const MAX_QUEUE: usize = 128;
/// The queue may always be this long: after a machine stalls for a moment, about this many requests arrive at once.
const MIN_QUEUE: usize = 32;

#[derive(Debug)]
pub struct BlockingPool {
    limiter: LoadLimiter,
    gate: Arc<FairGate>,
}

/// The right to use one core, until dropped.
#[derive(Debug)]
pub struct PoolSlot<'a> {
    load_permit: LoadPermit<'a>,
    started_at: Instant,
    _turn: GateTurn,
}

impl BlockingPool {
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, NonZero::get);
        Self { limiter: LoadLimiter::new(MAX_QUEUE, MIN_QUEUE, TARGET_WAIT), gate: FairGate::new(cores) }
    }

    /// Runs the work on a blocking thread, so that it does not hold up other requests.
    pub async fn run<T: Send + 'static>(
        &self,
        owner: WorkOwner,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let _slot = self.acquire(owner).await?;
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => {
                tracing::error!(%error, "blocking task was canceled");
                Err(ApiError(Problem::Internal))
            }
        }
    }

    pub async fn acquire(&self, owner: WorkOwner) -> Result<PoolSlot<'_>, ApiError> {
        let refuse = || ApiError(ShedReason::Queue.refuse());
        let load_permit = self.limiter.try_acquire(owner).ok_or_else(refuse)?;
        let turn = self.gate.acquire_within(owner, MAX_WAIT).await.ok_or_else(refuse)?;
        Ok(PoolSlot { load_permit, started_at: Instant::now(), _turn: turn })
    }
}

impl Drop for PoolSlot<'_> {
    fn drop(&mut self) {
        self.load_permit.record_busy_time(self.started_at.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use vintem_domain::Plan;

    use super::*;

    #[tokio::test]
    async fn slow_work_shortens_the_queue() {
        // For paying callers, some of the queue is reserved.
        let owner = WorkOwner::new(Plan::Free, None, Ipv4Addr::LOCALHOST.into());
        let pool = BlockingPool::new();
        for _ in 0..200 {
            pool.limiter.acquire_unlimited().record_busy_time(Duration::from_secs(1));
        }

        let permits: Vec<_> = (0..MIN_QUEUE).map(|_| pool.limiter.acquire_unlimited()).collect();
        assert_eq!(pool.acquire(owner).await.unwrap_err().0, Problem::Overloaded);

        drop(permits);
        assert!(pool.acquire(owner).await.is_ok());
    }
}
