//! Limits CPU-heavy work to one task per core, because more would only slow all of them down. Callers that would wait
//! too long for a slot are rejected at once.

use std::num::NonZero;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};
use vintem_domain::Problem;

use super::load_limiter::{LoadLimiter, LoadPermit};
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
    slots: Semaphore,
}

/// The right to use one core, until dropped.
#[derive(Debug)]
pub struct PoolSlot<'a> {
    load_permit: LoadPermit<'a>,
    started_at: Instant,
    _permit: SemaphorePermit<'a>,
}

impl BlockingPool {
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, NonZero::get);
        Self { limiter: LoadLimiter::new(MAX_QUEUE, MIN_QUEUE, TARGET_WAIT), slots: Semaphore::new(cores) }
    }

    /// Runs the work on a blocking thread, so that it does not hold up other requests.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let _slot = self.acquire().await?;
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => {
                tracing::error!(%error, "blocking task was canceled");
                Err(ApiError(Problem::Internal))
            }
        }
    }

    pub async fn acquire(&self) -> Result<PoolSlot<'_>, ApiError> {
        let load_permit = self.limiter.try_acquire().ok_or(ApiError(Problem::Overloaded))?;
        match tokio::time::timeout(MAX_WAIT, self.slots.acquire()).await {
            Ok(Ok(permit)) => Ok(PoolSlot { load_permit, started_at: Instant::now(), _permit: permit }),
            _ => Err(ApiError(Problem::Overloaded)),
        }
    }
}

impl Drop for PoolSlot<'_> {
    fn drop(&mut self) {
        self.load_permit.record_busy_time(self.started_at.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiting_too_long_fails_and_takes_no_slot() {
        let pool = BlockingPool::new();
        let cores = pool.slots.available_permits();
        let mut slots = Vec::new();
        for _ in 0..cores {
            slots.push(pool.acquire().await.unwrap());
        }

        let started = tokio::time::Instant::now();
        assert_eq!(pool.acquire().await.unwrap_err().0, Problem::Overloaded);
        assert_eq!(started.elapsed().as_millis(), MAX_WAIT.as_millis());

        drop(slots.pop());
        assert!(pool.acquire().await.is_ok());
    }

    #[tokio::test]
    async fn slow_work_shortens_the_queue() {
        let pool = BlockingPool::new();
        for _ in 0..200 {
            pool.limiter.acquire_unlimited().record_busy_time(Duration::from_secs(1));
        }

        let permits: Vec<_> = (0..MIN_QUEUE).map(|_| pool.limiter.acquire_unlimited()).collect();
        assert_eq!(pool.acquire().await.unwrap_err().0, Problem::Overloaded);

        drop(permits);
        assert!(pool.acquire().await.is_ok());
    }
}
