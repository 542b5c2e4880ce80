//! Divides the cores among callers: one piece of work per core at a time, and the caller who has used the least goes
//! first.
//!
//! This is start-time fair queueing. Each piece of work gets a tag when it begins to wait: the virtual time at which its
//! caller's earlier work ends. The lowest tag goes first, and virtual time advances with it. So a caller who has used
//! little is next, however much work others have queued.
//!
//! Paying and Free callers wait in two queues, which share the cores four to one. A queue that is empty leaves its share
//! to the other.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::budget::WorkOwner;

/// What a piece of work is charged until its time is known.
const ESTIMATED_NANOS: u64 = 1_000_000;

/// The share of paying callers, if Free ones have 1.
const PAID_WEIGHT: u64 = 4;

/// Callers whose work has ended in virtual time are forgotten, but not while there are fewer than this.
const MIN_SWEEP_THRESHOLD: usize = 1024;

#[derive(Debug)]
pub struct FairGate {
    state: Mutex<GateState>,
}

#[derive(Debug)]
struct GateState {
    idle_slots: usize,
    paid: FairQueue,
    free: FairQueue,
    /// Position in line: of two equal tags, the earlier goes first.
    next_sequence: u64,
}

/// The callers who pay, or those who do not.
#[derive(Debug)]
struct FairQueue {
    weight: u64,
    /// Time that all of them have used while others waited, divided by the weight.
    used_nanos: u64,
    /// The tag that was let in last.
    virtual_time: u64,
    /// By caller: the virtual time at which its work so far ends.
    end_tags: HashMap<WorkOwner, u64>,
    sweep_threshold: usize,
    waiting: BTreeMap<(u64, u64), (WorkOwner, oneshot::Sender<GateTurn>)>,
}

/// The right to use one core, until dropped.
#[derive(Debug)]
pub struct GateTurn {
    /// `None` if there is nothing to return.
    gate: Option<Arc<FairGate>>,
    owner: WorkOwner,
    started_at: Instant,
}

impl FairGate {
    pub fn new(slots: usize) -> Arc<Self> {
        let queue = |weight| FairQueue {
            weight,
            used_nanos: 0,
            virtual_time: 0,
            end_tags: HashMap::new(),
            sweep_threshold: MIN_SWEEP_THRESHOLD,
            waiting: BTreeMap::new(),
        };
        let state = GateState { idle_slots: slots, paid: queue(PAID_WEIGHT), free: queue(1), next_sequence: 0 };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Waits for a core.
    pub async fn acquire(self: &Arc<Self>, owner: WorkOwner) -> GateTurn {
        match self.acquire_or_enqueue(owner) {
            Ok(turn) => turn,
            Err(turn) => begin(turn.await),
        }
    }

    /// `None` if no core was free in time.
    pub async fn acquire_within(self: &Arc<Self>, owner: WorkOwner, max_wait: Duration) -> Option<GateTurn> {
        match self.acquire_or_enqueue(owner) {
            Ok(turn) => Some(turn),
            Err(turn) => tokio::time::timeout(max_wait, turn).await.ok().map(begin),
        }
    }

    fn acquire_or_enqueue(self: &Arc<Self>, owner: WorkOwner) -> Result<GateTurn, oneshot::Receiver<GateTurn>> {
        let mut state = self.lock_state();
        if state.idle_slots > 0 {
            state.idle_slots -= 1;
            return Ok(self.turn(owner));
        }
        Err(state.enqueue(owner))
    }

    fn turn(self: &Arc<Self>, owner: WorkOwner) -> GateTurn {
        GateTurn { gate: Some(self.clone()), owner, started_at: Instant::now() }
    }

    /// Charges the work, and gives its core to the next who waits.
    fn finish(self: &Arc<Self>, owner: WorkOwner, time: Duration) {
        let mut state = self.lock_state();
        state.charge(owner, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        while let Some((next, sender)) = state.pop_next() {
            match sender.send(self.turn(next)) {
                Ok(()) => return,
                // It stopped waiting. Its turn goes to the next one, and must not be returned.
                Err(mut turn) => turn.gate = None,
            }
        }
        state.idle_slots += 1;
    }

    fn lock_state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().expect("never held across a panic")
    }
}

/// The time until now was spent waiting.
fn begin(turn: Result<GateTurn, oneshot::error::RecvError>) -> GateTurn {
    let mut turn = turn.expect("the gate gives everybody a turn");
    turn.started_at = Instant::now();
    turn
}

impl GateState {
    fn enqueue(&mut self, owner: WorkOwner) -> oneshot::Receiver<GateTurn> {
        self.next_sequence += 1;
        let sequence = self.next_sequence;
        let (queue, other) = self.queue_and_other(owner);
        if queue.waiting.is_empty() {
            // It has no claim to time that it did not ask for.
            queue.used_nanos = queue.used_nanos.max(if other.waiting.is_empty() { 0 } else { other.used_nanos });
        }
        queue.push(owner, sequence)
    }

    fn charge(&mut self, owner: WorkOwner, nanos: u64) {
        // Without anybody waiting there is nothing to divide.
        if self.paid.waiting.is_empty() && self.free.waiting.is_empty() {
            return;
        }
        let (queue, _) = self.queue_and_other(owner);
        queue.used_nanos += nanos / queue.weight;
        let end_tag = queue.end_tags.entry(owner).or_insert(queue.virtual_time + ESTIMATED_NANOS);
        *end_tag = (*end_tag + nanos).saturating_sub(ESTIMATED_NANOS);
    }

    fn pop_next(&mut self) -> Option<(WorkOwner, oneshot::Sender<GateTurn>)> {
        let is_paid_next = self.free.waiting.is_empty()
            || (!self.paid.waiting.is_empty() && self.paid.used_nanos <= self.free.used_nanos);
        let queue = if is_paid_next { &mut self.paid } else { &mut self.free };
        let ((tag, _), next) = queue.waiting.pop_first()?;
        queue.virtual_time = queue.virtual_time.max(tag);
        Some(next)
    }

    fn queue_and_other(&mut self, owner: WorkOwner) -> (&mut FairQueue, &FairQueue) {
        if owner.is_paid() { (&mut self.paid, &self.free) } else { (&mut self.free, &self.paid) }
    }
}

impl FairQueue {
    fn push(&mut self, owner: WorkOwner, sequence: u64) -> oneshot::Receiver<GateTurn> {
        let virtual_time = self.virtual_time;
        if self.end_tags.len() >= self.sweep_threshold {
            self.end_tags.retain(|_, tag| *tag > virtual_time);
            self.sweep_threshold = (2 * self.end_tags.len()).max(MIN_SWEEP_THRESHOLD);
        }

        let end_tag = self.end_tags.entry(owner).or_default();
        let start_tag = virtual_time.max(*end_tag);
        *end_tag = start_tag + ESTIMATED_NANOS;
        let (sender, turn) = oneshot::channel();
        self.waiting.insert((start_tag, sequence), (owner, sender));
        turn
    }
}

impl Drop for GateTurn {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.finish(self.owner, self.started_at.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use vintem_domain::Plan;

    use super::*;

    fn address(last: u8) -> WorkOwner {
        WorkOwner::new(Plan::Free, None, Ipv4Addr::new(203, 0, 113, last).into())
    }

    /// Queues one piece of work per owner behind one that runs, lets each take `nanos`, and returns the order.
    fn order_of_turns(queued: &[WorkOwner], nanos: u64) -> Vec<WorkOwner> {
        let gate = FairGate::new(0);
        let mut receivers: Vec<_> = queued.iter().map(|owner| gate.lock_state().enqueue(*owner)).collect();
        let mut order = Vec::new();
        gate.finish(WorkOwner::Key(0), Duration::ZERO);
        while order.len() < queued.len() {
            let turn = receivers.iter_mut().find_map(|receiver| receiver.try_recv().ok()).expect("somebody's turn");
            order.push(turn.owner);
            end_turn(turn, nanos);
        }
        order
    }

    fn end_turn(mut turn: GateTurn, nanos: u64) {
        let gate = turn.gate.take().expect("has not ended");
        gate.finish(turn.owner, Duration::from_nanos(nanos));
    }

    #[test]
    fn a_caller_with_little_work_does_not_wait_behind_the_queue_of_another() {
        let (greedy, modest) = (address(1), address(2));
        let order = order_of_turns(&[greedy, greedy, greedy, greedy, modest], 1_000_000);
        assert_eq!(order, [greedy, modest, greedy, greedy, greedy]);
    }

    #[test]
    fn whoever_used_more_time_goes_later() {
        let (slow, fast) = (address(1), address(2));
        let gate = FairGate::new(0);
        let mut waiting = Vec::new();
        let mut order = Vec::new();
        for owner in [slow, fast] {
            waiting.push(gate.lock_state().enqueue(owner));
        }
        gate.finish(WorkOwner::Key(0), Duration::ZERO);
        for _ in 0..12 {
            let turn = waiting.iter_mut().find_map(|receiver| receiver.try_recv().ok()).expect("somebody's turn");
            let owner = turn.owner;
            order.push(owner);
            // Asks for the next turn before this one ends, as somebody who always has work.
            waiting.push(gate.lock_state().enqueue(owner));
            end_turn(turn, if owner == slow { 10_000_000 } else { 1_000_000 });
        }
        let slow_turns = order.iter().filter(|owner| **owner == slow).count();
        assert!((1..=3).contains(&slow_turns), "{order:?}");
    }

    #[test]
    fn a_paying_caller_goes_before_any_number_of_free_addresses() {
        let queued: Vec<WorkOwner> = (0..50).map(address).chain([WorkOwner::Key(1), WorkOwner::Key(1)]).collect();
        let order = order_of_turns(&queued, 1_000_000);
        let first_turns: Vec<bool> = order.iter().take(3).map(|owner| owner.is_paid()).collect();
        assert_eq!(first_turns.iter().filter(|is_paid| **is_paid).count(), 2, "{order:?}");
    }

    #[test]
    fn free_callers_get_a_fifth_beside_paying_ones() {
        let queued: Vec<WorkOwner> = (0..100).flat_map(|key| [WorkOwner::Key(key), address(key as u8)]).collect();
        let order = order_of_turns(&queued, 1_000_000);
        let free_turns = order.iter().take(50).filter(|owner| !owner.is_paid()).count();
        assert!((8..=12).contains(&free_turns), "{free_turns}");
    }

    #[tokio::test]
    async fn a_turn_goes_on_to_the_next_when_nobody_takes_it() {
        let gate = FairGate::new(1);
        let held = gate.acquire(address(1)).await;
        let mut gives_up = Box::pin(gate.acquire(address(2)));
        let mut waits = Box::pin(gate.acquire(address(3)));
        assert!(futures_util::poll!(&mut gives_up).is_pending());
        assert!(futures_util::poll!(&mut waits).is_pending());

        drop(gives_up);
        drop(held);
        drop(waits.await);
        assert_eq!(gate.lock_state().idle_slots, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_after_its_time() {
        let gate = FairGate::new(1);
        let held = gate.acquire(address(1)).await;
        assert!(gate.acquire_within(address(2), Duration::from_millis(80)).await.is_none());
        drop(held);
        assert!(gate.acquire_within(address(2), Duration::from_millis(80)).await.is_some());
        assert_eq!(gate.lock_state().idle_slots, 1);
    }
}
