//! Turns at the cores for what handlers compute, one for each core.
//!
//! The runtime's own queue has one end for all. If every admitted request stood in it with its work, so would those that
//! are only to be told that there is no room, and `/health`: they would wait for all of the work before them. Who waits for
//! a turn stands beside that queue, so what is quick is quick however much waits.

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

    /// The work, its first step in turn: there handlers compute. Those that wait for something do so after it, and then
    /// have little left to do.
    pub async fn run<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        let turn = self.0.acquire().await;
        // What is quick goes first. The turn is taken meanwhile, so that all others wait for theirs and not in that queue.
        tokio::task::yield_now().await;
        let first_step = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
        drop(turn);
        match first_step {
            Poll::Ready(done) => done,
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
        let turns = CpuGate::with_cores(1);
        let held = turns.0.acquire().await.unwrap();
        let has_begun = Cell::new(false);
        let mut work = pin!(turns.run(async { has_begun.set(true) }));
        assert!(poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await.is_pending());
        assert!(!has_begun.get());
        drop(held);
        work.await;
        assert!(has_begun.get());

        tokio::select! {
            () = turns.run(pending()) => unreachable!("it waits for ever"),
            seven = turns.run(async { 7 }) => assert_eq!(seven, 7),
        }
    }
}
