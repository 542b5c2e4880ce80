//! Limits the CPU work of handlers to one at a time per core.
//!
//! All tasks wait in the runtime's run queue in order. If every admitted request put its work there, `/health` and
//! requests that are about to be shed would wait behind all of it. Handlers wait for a permit instead, outside the run
//! queue, so cheap requests stay fast under load.

use std::future::poll_fn;
use std::num::NonZero;
use std::pin::pin;
use std::task::Poll;

use tokio::sync::Semaphore;

#[derive(Debug)]
pub struct CpuGate(Semaphore);

impl CpuGate {
    pub fn new() -> Self {
        Self::with_cores(std::thread::available_parallelism().map_or(1, NonZero::get))
    }

    fn with_cores(cores: usize) -> Self {
        Self(Semaphore::new(cores))
    }

    /// Runs the future and holds a permit during its first poll, where handlers do their computing. Handlers that wait
    /// for I/O do so after the first poll and have little left to compute.
    pub async fn run<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        let permit = self.0.acquire().await;

        // Let cheap tasks run first. We hold the permit meanwhile, so that other handlers wait for it and not in the
        // run queue.
        tokio::task::yield_now().await;
        let first_poll = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
        drop(permit);

        match first_poll {
            Poll::Ready(output) => output,
            Poll::Pending => work.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn work_starts_with_a_permit_and_releases_it_while_waiting() {
        let gate = CpuGate::with_cores(1);
        let permit = gate.0.acquire().await.unwrap();
        let has_started = Cell::new(false);

        let mut work = pin!(gate.run(async { has_started.set(true) }));
        assert!(poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await.is_pending());
        assert!(!has_started.get());

        drop(permit);
        work.await;
        assert!(has_started.get());

        tokio::select! {
            () = gate.run(pending()) => unreachable!("it waits for ever"),
            seven = gate.run(async { 7 }) => assert_eq!(seven, 7),
        }
    }
}
