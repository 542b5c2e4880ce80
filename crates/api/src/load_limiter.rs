//! How much may be under way at once. What is beyond is told so at once, in place of waiting in a queue that grows: who
//! waits long is not answered in time, and by then asks again.
//!
//! How long the last one would wait follows from what each takes of the processor, so that is watched: hundreds of small
//! requests may be under way where only dozens of large ones may. Waiting for an engine takes nothing of the processor
//! and is bounded by the number alone.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct LoadLimiter {
    /// Never more than these at once, however small, and never fewer than those, however large.
    max_in_flight: usize,
    min_in_flight: usize,
    /// What the cores together may have before them: beyond it the last would wait too long.
    max_queued_work: Duration,
    in_flight: AtomicUsize,
    /// What one took lately of a core, in nanoseconds.
    average_nanos: AtomicU64,
}

/// One that is under way; it makes room when it is dropped.
#[derive(Debug)]
pub struct LoadPermit<'d> {
    limiter: &'d LoadLimiter,
    busy_time: Duration,
}

/// One of so many weighs in what is usual: a burst of large ones is noticed within dozens, a single one is not.
const AVERAGE_WEIGHT: u64 = 32;
/// What took longer did not work all the time: its thread, or the machine, stood still meanwhile.
const MAX_SAMPLE_RATIO: u64 = 16;
const MIN_AVERAGE_NANOS: u64 = 50_000;

impl LoadLimiter {
    /// For at most `most` at once, of which the last is to wait no longer than this for the cores.
    pub fn new(max_in_flight: usize, min_in_flight: usize, max_wait: Duration) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let max_queued_work = max_wait * u32::try_from(cores).unwrap_or(u32::MAX);
        Self {
            max_in_flight,
            min_in_flight: min_in_flight.min(max_in_flight),
            max_queued_work,
            in_flight: AtomicUsize::new(0),
            average_nanos: AtomicU64::new(0),
        }
    }

    /// `None` where there is no room.
    pub fn try_acquire(&self) -> Option<LoadPermit<'_>> {
        let (place, before) = self.issue_permit();
        (before < self.current_limit()).then_some(place)
    }

    /// For what is never turned away.
    pub fn acquire_unlimited(&self) -> LoadPermit<'_> {
        self.issue_permit().0
    }

    /// A place, and how many had one before.
    fn issue_permit(&self) -> (LoadPermit<'_>, usize) {
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        (LoadPermit { limiter: self, busy_time: Duration::ZERO }, before)
    }

    /// How many may be under way by what they usually take.
    fn current_limit(&self) -> usize {
        let usual = self.average_nanos.load(Ordering::Relaxed).max(1);
        let in_time = saturating_nanos(self.max_queued_work) / usual;
        usize::try_from(in_time).unwrap_or(usize::MAX).clamp(self.min_in_flight, self.max_in_flight)
    }
}

impl LoadPermit<'_> {
    /// Does a step of the work and takes its time; the last one makes it known.
    pub fn poll_timed<T>(&mut self, step: impl FnOnce() -> Poll<T>) -> Poll<T> {
        let began = Instant::now();
        let worked = step();
        self.busy_time += began.elapsed();
        if worked.is_ready() {
            self.record_busy_time(self.busy_time);
        }
        worked
    }

    /// Makes known what one took of a core.
    pub fn record_busy_time(&self, busy_time: Duration) {
        // Of two that end at once one may be forgotten: it is an estimate either way.
        let usual = self.limiter.average_nanos.load(Ordering::Relaxed);
        let believed = saturating_nanos(busy_time).min(MAX_SAMPLE_RATIO * usual.max(MIN_AVERAGE_NANOS));
        let moved = (usual * (AVERAGE_WEIGHT - 1) + believed) / AVERAGE_WEIGHT;
        self.limiter.average_nanos.store(moved, Ordering::Relaxed);
    }
}

impl Drop for LoadPermit<'_> {
    fn drop(&mut self) {
        self.limiter.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_WAIT: Duration = Duration::from_millis(60);

    fn two_core_limiter(max_in_flight: usize, min_in_flight: usize) -> LoadLimiter {
        // As on two cores, whatever the machine has.
        LoadLimiter { max_queued_work: MAX_WAIT * 2, ..LoadLimiter::new(max_in_flight, min_in_flight, MAX_WAIT) }
    }

    /// How many get in at once.
    fn count_available_permits(doorway: &LoadLimiter) -> usize {
        let mut places = Vec::new();
        while let Some(place) = doorway.try_acquire() {
            places.push(place);
        }
        places.len()
    }

    fn record_requests(doorway: &LoadLimiter, times: usize, each: Duration) {
        for _ in 0..times {
            doorway.acquire_unlimited().record_busy_time(each);
        }
    }

    #[test]
    fn dropped_permits_free_room_and_rejected_requests_take_none() {
        let doorway = two_core_limiter(3, 1);
        for _ in 0..3 {
            assert_eq!(count_available_permits(&doorway), 3);
        }
        let held = doorway.try_acquire();
        assert_eq!(count_available_permits(&doorway), 2);
        drop(held);
        assert_eq!(count_available_permits(&doorway), 3);
    }

    #[test]
    fn expensive_requests_lower_the_limit_down_to_its_minimum() {
        let doorway = two_core_limiter(512, 64);
        assert_eq!(count_available_permits(&doorway), 512);
        record_requests(&doorway, 500, Duration::from_micros(50));
        assert_eq!(count_available_permits(&doorway), 512, "2400 small ones would be done in time");
        record_requests(&doorway, 500, Duration::from_millis(1));
        assert!(
            (115..=120).contains(&count_available_permits(&doorway)),
            "{} of a millisecond each",
            count_available_permits(&doorway)
        );
        record_requests(&doorway, 500, Duration::from_millis(50));
        assert_eq!(count_available_permits(&doorway), 64);
        record_requests(&doorway, 1_000, Duration::from_micros(50));
        assert_eq!(count_available_permits(&doorway), 512, "what was large once is forgotten");
    }

    #[test]
    fn one_expensive_request_does_not_change_the_limit() {
        let doorway = two_core_limiter(512, 64);
        record_requests(&doorway, 500, Duration::from_micros(50));
        record_requests(&doorway, 1, Duration::from_millis(5));
        assert_eq!(count_available_permits(&doorway), 512);
    }

    #[test]
    fn pending_time_does_not_count_as_work() {
        let doorway = two_core_limiter(512, 64);
        record_requests(&doorway, 100, Duration::from_micros(50));
        let mut place = doorway.acquire_unlimited();
        assert!(place.poll_timed(|| Poll::<()>::Pending).is_pending());
        std::thread::sleep(Duration::from_millis(200));
        assert!(place.poll_timed(|| Poll::Ready(())).is_ready());
        assert!(place.busy_time < Duration::from_millis(200));
    }
}
