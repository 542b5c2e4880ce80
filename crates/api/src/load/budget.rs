//! What each caller may have at once.
//!
//! Work on a paid plan is charged to its key. Everything Free is charged to the client's address, with or without a key:
//! many Free keys at one address get more requests, but not a larger share of the machine.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use vintem_domain::{AddressBucket, KeyId, Plan, Problem};

use super::shedding::ShedReason;

/// A request that exceeds a budget, of time on a core too, waits this long for other requests to finish.
pub const MAX_WAIT: Duration = Duration::from_secs(1);

/// Callers are forgotten when they have nothing in use, but not while there are fewer than this.
const MIN_SWEEP_THRESHOLD: usize = 1024;

/// Whom work is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkOwner {
    /// A key on a paid plan.
    Key(KeyId),
    /// Everything Free.
    Address(AddressBucket),
}

impl WorkOwner {
    pub fn new(plan: Plan, key: Option<KeyId>, client: IpAddr) -> Self {
        match key {
            Some(key) if plan > Plan::Free => Self::Key(key),
            _ => Self::Address(AddressBucket::from_ip(client)),
        }
    }

    pub const fn is_paid(self) -> bool {
        matches!(self, Self::Key(_))
    }
}

/// What a caller has a budget of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Requests in flight.
    Requests,
    /// Request bodies that have not arrived completely.
    RequestBodies,
    /// Responses that are not sent yet, in KiB.
    UnsentKib,
    /// Tables that are longer than a page.
    LongTables,
    /// Requests that wait for new events.
    LongPolls,
    /// DNS lookups for webhooks. One may take seconds.
    DnsLookups,
}

const RESOURCE_COUNT: usize = 6;

/// The number of long polls is public, because the description of the API names it.
pub const MAX_LONG_POLLS: usize = 8;

/// What one caller may have of each resource, in the order of [`Resource`].
#[derive(Debug, Clone, Copy)]
pub struct OwnerCaps([usize; RESOURCE_COUNT]);

impl OwnerCaps {
    /// At least 32 requests in flight, because a browser sends a dozen at once for one page; at most an eighth of what
    /// the process serves.
    pub fn new(max_in_flight: usize) -> Self {
        Self([(max_in_flight / 8).max(32), 8, 16 * 1024, 2, MAX_LONG_POLLS, 4])
    }
}

/// What the process has of a resource, for all callers together. Free callers never get the last quarter of it, so that
/// they cannot crowd out paying ones.
#[derive(Debug)]
pub struct SharedCapacity {
    all: Semaphore,
    free: Semaphore,
}

impl SharedCapacity {
    pub fn new(capacity: usize) -> Self {
        Self { all: Semaphore::new(capacity), free: Semaphore::new(free_share(capacity)) }
    }
}

/// What Free callers may have of a capacity.
pub const fn free_share(capacity: usize) -> usize {
    let share = capacity - capacity / 4;
    if share == 0 { 1 } else { share }
}

/// What one caller has left of each resource.
#[derive(Debug)]
pub struct OwnerBudget {
    pub owner: WorkOwner,
    available: [Semaphore; RESOURCE_COUNT],
}

/// Counts against the caller's budget until dropped.
#[derive(Debug)]
pub struct OwnerPermit {
    budget: Arc<OwnerBudget>,
    resource: Resource,
    amount: u32,
    /// What it also takes of a capacity that callers share.
    shared: Option<Arc<SharedCapacity>>,
}

impl OwnerBudget {
    fn new(owner: WorkOwner, caps: &OwnerCaps) -> Self {
        Self { owner, available: caps.0.map(Semaphore::new) }
    }

    fn available(&self, resource: Resource) -> &Semaphore {
        &self.available[resource as usize]
    }

    /// Fails at once if the budget is used up.
    pub fn try_acquire(self: &Arc<Self>, resource: Resource) -> Result<OwnerPermit, Problem> {
        self.take_available(resource).ok_or_else(|| ShedReason::CallerBudget.refuse())
    }

    /// Waits a little if the budget is used up, and then fails.
    pub async fn acquire(self: &Arc<Self>, resource: Resource) -> Result<OwnerPermit, Problem> {
        if let Some(permit) = self.take_available(resource) {
            return Ok(permit);
        }
        let deadline = Instant::now() + MAX_WAIT;
        self.acquire_amount(resource, 1, deadline).await
    }

    /// Like [`Self::acquire`], and takes the amount of a shared capacity too.
    pub async fn acquire_shared(
        self: &Arc<Self>,
        resource: Resource,
        amount: u32,
        shared: &Arc<SharedCapacity>,
    ) -> Result<OwnerPermit, Problem> {
        let deadline = Instant::now() + MAX_WAIT;
        let take_shared = |semaphore| take(semaphore, amount, deadline, ShedReason::SharedCapacity);
        let mut permit = self.acquire_amount(resource, amount, deadline).await?;
        let free = if self.owner.is_paid() { None } else { Some(take_shared(&shared.free).await?) };
        let all = take_shared(&shared.all).await?;
        // The permit returns them from now on.
        all.forget();
        if let Some(free) = free {
            free.forget();
        }
        permit.shared = Some(shared.clone());
        Ok(permit)
    }

    fn take_available(self: &Arc<Self>, resource: Resource) -> Option<OwnerPermit> {
        self.available(resource).try_acquire().ok()?.forget();
        Some(OwnerPermit { budget: self.clone(), resource, amount: 1, shared: None })
    }

    async fn acquire_amount(
        self: &Arc<Self>,
        resource: Resource,
        amount: u32,
        deadline: Instant,
    ) -> Result<OwnerPermit, Problem> {
        take(self.available(resource), amount, deadline, ShedReason::CallerBudget).await?.forget();
        Ok(OwnerPermit { budget: self.clone(), resource, amount, shared: None })
    }
}

/// Waits until the deadline, and then refuses for this reason.
async fn take(
    semaphore: &Semaphore,
    amount: u32,
    deadline: Instant,
    reason: ShedReason,
) -> Result<SemaphorePermit<'_>, Problem> {
    match tokio::time::timeout_at(deadline, semaphore.acquire_many(amount)).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) | Err(_) => Err(reason.refuse()),
    }
}

impl Drop for OwnerPermit {
    fn drop(&mut self) {
        let amount = self.amount as usize;
        self.budget.available(self.resource).add_permits(amount);
        if let Some(shared) = &self.shared {
            shared.all.add_permits(amount);
            if !self.budget.owner.is_paid() {
                shared.free.add_permits(amount);
            }
        }
    }
}

/// The budgets of all callers that use something now.
#[derive(Debug)]
pub struct OwnerBudgets {
    caps: OwnerCaps,
    state: Mutex<BudgetMap>,
}

#[derive(Debug)]
struct BudgetMap {
    by_owner: HashMap<WorkOwner, Arc<OwnerBudget>>,
    /// Number of callers at which those without anything in use are removed.
    sweep_threshold: usize,
}

impl OwnerBudgets {
    pub fn new(caps: OwnerCaps) -> Self {
        let map = BudgetMap { by_owner: HashMap::new(), sweep_threshold: MIN_SWEEP_THRESHOLD };
        Self { caps, state: Mutex::new(map) }
    }

    /// The budget is kept as long as the returned reference.
    pub fn get(&self, owner: WorkOwner) -> Arc<OwnerBudget> {
        let mut state = self.state.lock().expect("never held across a panic");
        if let Some(budget) = state.by_owner.get(&owner) {
            return budget.clone();
        }
        if state.by_owner.len() >= state.sweep_threshold {
            state.by_owner.retain(|_, budget| Arc::strong_count(budget) > 1);
            state.sweep_threshold = (2 * state.by_owner.len()).max(MIN_SWEEP_THRESHOLD);
        }
        let budget = Arc::new(OwnerBudget::new(owner, &self.caps));
        state.by_owner.insert(owner, budget.clone());
        budget
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const CAPS: OwnerCaps = OwnerCaps([2, 2, 100, 2, 2, 2]);

    fn address(last: u8) -> WorkOwner {
        WorkOwner::new(Plan::Free, None, Ipv4Addr::new(203, 0, 113, last).into())
    }

    #[test]
    fn free_keys_share_the_budget_of_their_address_and_paid_keys_have_their_own() {
        let client = Ipv4Addr::new(203, 0, 113, 1).into();
        assert_eq!(WorkOwner::new(Plan::Free, Some(7), client), address(1));
        assert_eq!(WorkOwner::new(Plan::Bronze, Some(7), client), WorkOwner::Key(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_used_up_budget_is_waited_for_and_does_not_concern_others() {
        let budgets = OwnerBudgets::new(CAPS);
        let held = [0; 2].map(|_| budgets.get(address(1)).try_acquire(Resource::Requests).unwrap());

        let started = Instant::now();
        let refused = budgets.get(address(1)).acquire(Resource::Requests).await;
        assert_eq!((refused.unwrap_err(), started.elapsed()), (Problem::Overloaded, MAX_WAIT));
        assert!(budgets.get(address(2)).acquire(Resource::Requests).await.is_ok());

        let waiting = tokio::spawn({
            let budget = budgets.get(address(1));
            async move { budget.acquire(Resource::Requests).await.is_ok() }
        });
        tokio::task::yield_now().await;
        drop(held);
        assert!(waiting.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn free_callers_leave_a_quarter_of_a_shared_capacity_to_paying_ones() {
        let budgets = OwnerBudgets::new(CAPS);
        let shared = Arc::new(SharedCapacity::new(100));
        let acquire =
            async |owner, amount| budgets.get(owner).acquire_shared(Resource::UnsentKib, amount, &shared).await;

        let held = (acquire(address(1), 50).await.unwrap(), acquire(address(2), 25).await.unwrap());
        assert_eq!(acquire(address(3), 1).await.unwrap_err(), Problem::Overloaded);
        drop(acquire(WorkOwner::Key(1), 25).await.unwrap());

        // A refused acquisition keeps nothing.
        drop(held);
        assert!(acquire(address(3), 75).await.is_ok());
        assert!(acquire(WorkOwner::Key(1), 100).await.is_ok());
    }

    #[test]
    fn callers_without_anything_in_use_are_forgotten() {
        let budgets = OwnerBudgets::new(CAPS);
        let held = budgets.get(WorkOwner::Key(-1)).try_acquire(Resource::LongTables).unwrap();
        for key in 0..=MIN_SWEEP_THRESHOLD as i64 {
            budgets.get(WorkOwner::Key(key));
        }
        assert!(budgets.state.lock().unwrap().by_owner.len() < 10);
        assert_eq!(budgets.get(WorkOwner::Key(-1)).available(Resource::LongTables).available_permits(), 1);
        drop(held);
    }
}
