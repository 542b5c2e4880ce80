//! Limits the CPU work of handlers to one at a time per core.
//!
//! All tasks wait in the runtime's run queue in order. If every admitted request put its work there, `/health` and
//! requests that are about to be shed would wait behind all of it. Handlers wait for a turn instead, outside the run
//! queue, so cheap requests stay fast under load.

use std::future::poll_fn;
use std::num::NonZero;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use vintem_domain::Problem;

use super::budget::{MAX_WAIT, WorkOwner};
use super::fair_gate::{FairGate, GateTurn};
use super::shedding::ShedReason;

#[derive(Debug, Clone)]
pub struct CpuGate(Arc<FairGate>);

impl CpuGate {
    pub fn new() -> Self {
        Self::with_cores(std::thread::available_parallelism().map_or(1, NonZero::get))
    }

    fn with_cores(cores: usize) -> Self {
        Self(FairGate::new(cores))
    }

    /// Runs a handler in its turn, or fails if that does not come in time.
    pub async fn run_handler<F: Future>(&self, owner: WorkOwner, work: F) -> Result<F::Output, Problem> {
        let turn = self.0.acquire_within(owner, MAX_WAIT).await.ok_or_else(|| ShedReason::Cores.refuse())?;
        Ok(run_in_turn(turn, work).await)
    }

    /// Runs a part of a response that has begun, and waits for its turn as long as it takes.
    pub async fn run_part<F: Future>(&self, owner: WorkOwner, work: F) -> F::Output {
        run_in_turn(self.0.acquire(owner).await, work).await
    }
}

/// Runs the future and holds the turn during its first poll, where handlers do their computing. Handlers that wait for
/// I/O do so after the first poll and have little left to compute.
async fn run_in_turn<F: Future>(turn: GateTurn, work: F) -> F::Output {
    let mut work = pin!(work);
    // Let cheap tasks run first. We hold the turn meanwhile, so that other handlers wait for it and not in the run queue.
    tokio::task::yield_now().await;
    let first_poll = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
    drop(turn);

    match first_poll {
        Poll::Ready(output) => output,
        Poll::Pending => work.await,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;

    use super::*;

    const OWNER: WorkOwner = WorkOwner::Key(1);

    #[tokio::test]
    async fn work_starts_in_its_turn_and_gives_it_up_while_waiting() {
        let gate = CpuGate::with_cores(1);
        let turn = gate.0.acquire(OWNER).await;
        let has_started = Cell::new(false);

        let mut work = pin!(gate.run_handler(OWNER, async { has_started.set(true) }));
        assert!(poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await.is_pending());
        assert!(!has_started.get());

        drop(turn);
        work.await.unwrap();
        assert!(has_started.get());

        tokio::select! {
            _ = gate.run_handler(OWNER, pending::<()>()) => unreachable!("it waits for ever"),
            seven = gate.run_handler(OWNER, async { 7 }) => assert_eq!(seven, Ok(7)),
        }
    }
}
