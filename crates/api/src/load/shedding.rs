//! Counts requests that were refused for lack of capacity.

use std::sync::OnceLock;

use metrics::Counter;
use vintem_domain::Problem;

/// What a refused request found no room in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShedReason {
    /// All requests in flight.
    InFlight,
    /// The caller's own budget.
    CallerBudget,
    /// Request bodies, or unsent responses, of all callers.
    SharedCapacity,
    /// Turns on a core.
    Cores,
    /// The queue of searches, long lists or point-in-time queries.
    Queue,
    /// The lookups of unknown keys that an address may cause.
    KeyLookups,
}

impl ShedReason {
    pub const ALL: [Self; 6] =
        [Self::InFlight, Self::CallerBudget, Self::SharedCapacity, Self::Cores, Self::Queue, Self::KeyLookups];

    const fn id(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::CallerBudget => "caller_budget",
            Self::SharedCapacity => "shared_capacity",
            Self::Cores => "cores",
            Self::Queue => "queue",
            Self::KeyLookups => "key_lookups",
        }
    }

    /// Each is looked up once, because a lookup costs more than refusing a request.
    fn counter(self) -> &'static Counter {
        static COUNTERS: [OnceLock<Counter>; ShedReason::ALL.len()] =
            [const { OnceLock::new() }; ShedReason::ALL.len()];
        COUNTERS[self as usize].get_or_init(|| metrics::counter!("vintem_requests_shed_total", "reason" => self.id()))
    }

    pub fn count(self) {
        self.counter().increment(1);
    }

    /// Counts the request and returns what it is answered with.
    pub fn refuse(self) -> Problem {
        self.count();
        Problem::Overloaded
    }
}

/// Makes all counters appear with 0, so that the first refusal is an increase.
pub fn register_shed_counters() {
    ShedReason::ALL.into_iter().for_each(|reason| reason.counter().increment(0));
}
