//! Limits concurrent work. Requests above the limit are rejected at once instead of waiting in a growing queue: a
//! client that waits too long gives up and retries, which only adds load.
//!
//! How long the last request waits depends on the CPU time of all the others, so the limiter measures CPU time:
//! hundreds of cheap requests may run concurrently, but only dozens of expensive ones. Requests that wait for Postgres
//! or Redis use no CPU time, so only the fixed maximum limits them.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use super::budget::{WorkOwner, free_share};

#[derive(Debug)]
pub struct LoadLimiter {
    /// The maximum number of concurrent requests, however cheap they are.
    max_in_flight: usize,
    /// This many concurrent requests are always allowed, however expensive they are.
    min_in_flight: usize,
    /// CPU time that may be queued for all cores together; with more, the last request would wait too long.
    max_queued_work: Duration,
    in_flight: AtomicUsize,
    /// Those of paying callers among them.
    paid_in_flight: AtomicUsize,
    /// Moving average of the CPU time per request, in nanoseconds.
    average_nanos: AtomicU64,
}

/// One admitted request; dropping it frees its permit.
#[derive(Debug)]
pub struct LoadPermit<'d> {
    limiter: &'d LoadLimiter,
    is_paid: bool,
    busy_time: Duration,
}

/// Each sample contributes 1/32 to the average: dozens of expensive requests change it, a single one hardly does.
const AVERAGE_WEIGHT: u64 = 32;
/// A sample is capped at this multiple of the average. Anything longer was not CPU time: the thread or the machine was
/// paused.
const MAX_SAMPLE_RATIO: u64 = 16;
const MIN_AVERAGE_NANOS: u64 = 50_000;

impl LoadLimiter {
    /// Allows at most `max_in_flight` requests; the last of them should wait at most `max_wait` for a core.
    pub fn new(max_in_flight: usize, min_in_flight: usize, max_wait: Duration) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let max_queued_work = max_wait * u32::try_from(cores).unwrap_or(u32::MAX);
        Self {
            max_in_flight,
            min_in_flight: min_in_flight.min(max_in_flight),
            max_queued_work,
            in_flight: AtomicUsize::new(0),
            paid_in_flight: AtomicUsize::new(0),
            average_nanos: AtomicU64::new(0),
        }
    }

    /// `None` if the limit is reached. A quarter is reserved for paying callers, even when the limit has dropped below
    /// what others already have in flight.
    pub fn try_acquire(&self, owner: WorkOwner) -> Option<LoadPermit<'_>> {
        let is_paid = owner.is_paid();
        let in_flight = self.in_flight();
        let limit = self.current_limit();
        let free_limit = free_share(limit);
        let is_reserved = || self.paid_in_flight.load(Ordering::Relaxed) < limit - free_limit;
        let is_admitted = if is_paid { in_flight < limit || is_reserved() } else { in_flight < free_limit };
        // Two requests at the same instant may both take the last permit, which does no harm.
        is_admitted.then(|| self.issue_permit(is_paid))
    }

    /// For requests that must never be rejected.
    pub fn acquire_unlimited(&self) -> LoadPermit<'_> {
        self.issue_permit(false)
    }

    fn issue_permit(&self, is_paid: bool) -> LoadPermit<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.paid_in_flight.fetch_add(usize::from(is_paid), Ordering::Relaxed);
        LoadPermit { limiter: self, is_paid, busy_time: Duration::ZERO }
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The concurrency limit for the current average CPU time.
    pub fn current_limit(&self) -> usize {
        let average = self.average_nanos.load(Ordering::Relaxed).max(1);
        let limit = saturating_nanos(self.max_queued_work) / average;
        usize::try_from(limit).unwrap_or(usize::MAX).clamp(self.min_in_flight, self.max_in_flight)
    }
}

impl LoadPermit<'_> {
    /// Polls the work once and adds up the time. When the work is done, the sum is recorded.
    pub fn poll_timed<T>(&mut self, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        let started = Instant::now();
        let result = poll();
        self.busy_time += started.elapsed();

        if result.is_ready() {
            self.record_busy_time(self.busy_time);
        }
        result
    }

    /// Adds the CPU time of one request to the average.
    pub fn record_busy_time(&self, busy_time: Duration) {
        // If two requests finish at once, one sample may be lost. That is fine for an estimate.
        let average = self.limiter.average_nanos.load(Ordering::Relaxed);
        let sample = saturating_nanos(busy_time).min(MAX_SAMPLE_RATIO * average.max(MIN_AVERAGE_NANOS));
        let new_average = (average * (AVERAGE_WEIGHT - 1) + sample) / AVERAGE_WEIGHT;
        self.limiter.average_nanos.store(new_average, Ordering::Relaxed);
    }
}

impl Drop for LoadPermit<'_> {
    fn drop(&mut self) {
        self.limiter.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.limiter.paid_in_flight.fetch_sub(usize::from(self.is_paid), Ordering::Relaxed);
    }
}

fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use vintem_domain::Plan;

    use super::*;

    const MAX_WAIT: Duration = Duration::from_millis(60);

    fn two_core_limiter(max_in_flight: usize, min_in_flight: usize) -> LoadLimiter {
        // As if there were two cores, whatever the machine has.
        LoadLimiter { max_queued_work: MAX_WAIT * 2, ..LoadLimiter::new(max_in_flight, min_in_flight, MAX_WAIT) }
    }

    const PAYING: WorkOwner = WorkOwner::Key(1);

    /// How many permits a paying caller can acquire at once.
    fn count_available_permits(limiter: &LoadLimiter) -> usize {
        count_permits_for(limiter, PAYING)
    }

    fn count_permits_for(limiter: &LoadLimiter, owner: WorkOwner) -> usize {
        let mut permits = Vec::new();
        while let Some(permit) = limiter.try_acquire(owner) {
            permits.push(permit);
        }
        permits.len()
    }

    fn record_requests(limiter: &LoadLimiter, count: usize, busy_time: Duration) {
        for _ in 0..count {
            limiter.acquire_unlimited().record_busy_time(busy_time);
        }
    }

    #[test]
    fn dropped_permits_free_room_and_rejected_requests_take_none() {
        let limiter = two_core_limiter(3, 1);
        for _ in 0..3 {
            assert_eq!(count_available_permits(&limiter), 3);
        }

        let permit = limiter.try_acquire(PAYING);
        assert_eq!(count_available_permits(&limiter), 2);

        drop(permit);
        assert_eq!(count_available_permits(&limiter), 3);
    }

    #[test]
    fn free_callers_leave_a_quarter_to_paying_ones() {
        let free = WorkOwner::new(Plan::Free, None, Ipv4Addr::LOCALHOST.into());
        let limiter = two_core_limiter(512, 64);
        assert_eq!(count_permits_for(&limiter, free), 384);

        let permits: Vec<_> = (0..384).map(|_| limiter.try_acquire(free).unwrap()).collect();
        assert_eq!((count_permits_for(&limiter, free), count_permits_for(&limiter, PAYING)), (0, 128));
        // Expensive requests lower the limit to 64, but the quarter stays reserved.
        record_requests(&limiter, 500, Duration::from_millis(50));
        assert_eq!((count_permits_for(&limiter, free), count_permits_for(&limiter, PAYING)), (0, 16));
        drop(permits);
        assert_eq!(count_permits_for(&two_core_limiter(1, 1), free), 1);
    }

    #[test]
    fn expensive_requests_lower_the_limit_down_to_its_minimum() {
        let limiter = two_core_limiter(512, 64);
        assert_eq!(count_available_permits(&limiter), 512);

        record_requests(&limiter, 500, Duration::from_micros(50));
        assert_eq!(count_available_permits(&limiter), 512, "2400 small ones would be done in time");

        record_requests(&limiter, 500, Duration::from_millis(1));
        assert!(
            (115..=120).contains(&count_available_permits(&limiter)),
            "{} of a millisecond each",
            count_available_permits(&limiter)
        );

        record_requests(&limiter, 500, Duration::from_millis(50));
        assert_eq!(count_available_permits(&limiter), 64);

        record_requests(&limiter, 1_000, Duration::from_micros(50));
        assert_eq!(count_available_permits(&limiter), 512, "what was large once is forgotten");
    }

    #[test]
    fn one_expensive_request_does_not_change_the_limit() {
        let limiter = two_core_limiter(512, 64);
        record_requests(&limiter, 500, Duration::from_micros(50));
        record_requests(&limiter, 1, Duration::from_millis(5));
        assert_eq!(count_available_permits(&limiter), 512);
    }

    #[test]
    fn pending_time_does_not_count_as_work() {
        let limiter = two_core_limiter(512, 64);
        record_requests(&limiter, 100, Duration::from_micros(50));

        let mut permit = limiter.acquire_unlimited();
        assert!(permit.poll_timed(|| Poll::<()>::Pending).is_pending());
        std::thread::sleep(Duration::from_millis(200));
        assert!(permit.poll_timed(|| Poll::Ready(())).is_ready());
        assert!(permit.busy_time < Duration::from_millis(200));
    }
}
