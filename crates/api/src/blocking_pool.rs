//! Turns for what computes for long: as many at once as there are cores, since more would only make all of them slower.
//! Who would wait too long for a turn is told at once that there is none.

use std::num::NonZero;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};
use vintem_domain::Problem;

use crate::api_error::ApiError;
use crate::load_limiter::{LoadLimiter, LoadPermit};

/// What the last in the queue waits for its turn by what they usually take; and in any case, should they take longer.
/// With what it then takes itself, PostgreSQL's own limits included, all is said within 600 ms.
const TARGET_WAIT: Duration = Duration::from_millis(40);
const MAX_WAIT: Duration = Duration::from_millis(80);
/// The longest queue, and one that is always granted: a machine that stands still for a moment finds as many when it goes on.
const MAX_QUEUE: usize = 128;
const MIN_QUEUE: usize = 32;

#[derive(Debug)]
pub struct BlockingPool {
    limiter: LoadLimiter,
    slots: Semaphore,
}

/// One of the cores, until it is dropped.
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

    pub async fn acquire(&self) -> Result<PoolSlot<'_>, ApiError> {
        let place = self.limiter.try_acquire().ok_or(ApiError(Problem::Overloaded))?;
        match tokio::time::timeout(MAX_WAIT, self.slots.acquire()).await {
            Ok(Ok(permit)) => Ok(PoolSlot { load_permit: place, started_at: Instant::now(), _permit: permit }),
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
        let aside = BlockingPool::new();
        let cores = aside.slots.available_permits();
        let mut held = Vec::new();
        for _ in 0..cores {
            held.push(aside.acquire().await.unwrap());
        }
        let asked = tokio::time::Instant::now();
        assert_eq!(aside.acquire().await.unwrap_err().0, Problem::Overloaded);
        assert_eq!(asked.elapsed().as_millis(), MAX_WAIT.as_millis());
        drop(held.pop());
        assert!(aside.acquire().await.is_ok());
    }

    #[tokio::test]
    async fn slow_work_shortens_the_queue() {
        let aside = BlockingPool::new();
        for _ in 0..200 {
            aside.limiter.acquire_unlimited().record_busy_time(Duration::from_secs(1));
        }
        let waiting: Vec<_> = (0..MIN_QUEUE).map(|_| aside.limiter.acquire_unlimited()).collect();
        assert_eq!(aside.acquire().await.unwrap_err().0, Problem::Overloaded);
        drop(waiting);
        assert!(aside.acquire().await.is_ok());
    }
}
