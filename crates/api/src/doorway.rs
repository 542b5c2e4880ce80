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
pub struct Doorway {
    /// Never more than these at once, however small, and never fewer than those, however large.
    most: usize,
    least: usize,
    /// What the cores together may have before them: beyond it the last would wait too long.
    work_before_the_last: Duration,
    under_way: AtomicUsize,
    /// What one took lately of a core, in nanoseconds.
    usual_nanos: AtomicU64,
}

/// One that is under way; it makes room when it is dropped.
#[derive(Debug)]
pub struct Place<'d> {
    doorway: &'d Doorway,
    worked: Duration,
}

/// One of so many weighs in what is usual: a burst of large ones is noticed within dozens, a single one is not.
const WEIGHT_OF_THE_USUAL: u64 = 32;
/// What took longer did not work all the time: its thread, or the machine, stood still meanwhile.
const MOST_TIMES_THE_USUAL: u64 = 16;
const LEAST_USUAL_NANOS: u64 = 50_000;

impl Doorway {
    /// For at most `most` at once, of which the last is to wait no longer than this for the cores.
    pub fn new(most: usize, least: usize, longest_wait: Duration) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let work_before_the_last = longest_wait * u32::try_from(cores).unwrap_or(u32::MAX);
        Self {
            most,
            least: least.min(most),
            work_before_the_last,
            under_way: AtomicUsize::new(0),
            usual_nanos: AtomicU64::new(0),
        }
    }

    /// `None` where there is no room.
    pub fn enter(&self) -> Option<Place<'_>> {
        let (place, before) = self.count_in();
        (before < self.room()).then_some(place)
    }

    /// For what is never turned away.
    pub fn enter_anyway(&self) -> Place<'_> {
        self.count_in().0
    }

    /// A place, and how many had one before.
    fn count_in(&self) -> (Place<'_>, usize) {
        let before = self.under_way.fetch_add(1, Ordering::Relaxed);
        (Place { doorway: self, worked: Duration::ZERO }, before)
    }

    /// How many may be under way by what they usually take.
    fn room(&self) -> usize {
        let usual = self.usual_nanos.load(Ordering::Relaxed).max(1);
        let in_time = nanos(self.work_before_the_last) / usual;
        usize::try_from(in_time).unwrap_or(usize::MAX).clamp(self.least, self.most)
    }
}

impl Place<'_> {
    /// Does a step of the work and takes its time; the last one makes it known.
    pub fn work<T>(&mut self, step: impl FnOnce() -> Poll<T>) -> Poll<T> {
        let began = Instant::now();
        let worked = step();
        self.worked += began.elapsed();
        if worked.is_ready() {
            self.note(self.worked);
        }
        worked
    }

    /// Makes known what one took of a core.
    pub fn note(&self, worked: Duration) {
        // Of two that end at once one may be forgotten: it is an estimate either way.
        let usual = self.doorway.usual_nanos.load(Ordering::Relaxed);
        let believed = nanos(worked).min(MOST_TIMES_THE_USUAL * usual.max(LEAST_USUAL_NANOS));
        let moved = (usual * (WEIGHT_OF_THE_USUAL - 1) + believed) / WEIGHT_OF_THE_USUAL;
        self.doorway.usual_nanos.store(moved, Ordering::Relaxed);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.doorway.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(60);

    fn doorway(most: usize, least: usize) -> Doorway {
        // As on two cores, whatever the machine has.
        Doorway { work_before_the_last: WAIT * 2, ..Doorway::new(most, least, WAIT) }
    }

    /// How many get in at once.
    fn capacity(doorway: &Doorway) -> usize {
        let mut places = Vec::new();
        while let Some(place) = doorway.enter() {
            places.push(place);
        }
        places.len()
    }

    fn work(doorway: &Doorway, times: usize, each: Duration) {
        for _ in 0..times {
            doorway.enter_anyway().note(each);
        }
    }

    #[test]
    fn who_leaves_makes_room_and_who_is_turned_away_takes_none() {
        let doorway = doorway(3, 1);
        for _ in 0..3 {
            assert_eq!(capacity(&doorway), 3);
        }
        let held = doorway.enter();
        assert_eq!(capacity(&doorway), 2);
        drop(held);
        assert_eq!(capacity(&doorway), 3);
    }

    #[test]
    fn large_requests_leave_room_for_fewer_but_never_for_none() {
        let doorway = doorway(512, 64);
        assert_eq!(capacity(&doorway), 512);
        work(&doorway, 500, Duration::from_micros(50));
        assert_eq!(capacity(&doorway), 512, "2400 small ones would be done in time");
        work(&doorway, 500, Duration::from_millis(1));
        assert!((115..=120).contains(&capacity(&doorway)), "{} of a millisecond each", capacity(&doorway));
        work(&doorway, 500, Duration::from_millis(50));
        assert_eq!(capacity(&doorway), 64);
        work(&doorway, 1_000, Duration::from_micros(50));
        assert_eq!(capacity(&doorway), 512, "what was large once is forgotten");
    }

    #[test]
    fn one_large_request_among_small_ones_changes_little() {
        let doorway = doorway(512, 64);
        work(&doorway, 500, Duration::from_micros(50));
        work(&doorway, 1, Duration::from_millis(5));
        assert_eq!(capacity(&doorway), 512);
    }

    #[test]
    fn waiting_is_no_work() {
        let doorway = doorway(512, 64);
        work(&doorway, 100, Duration::from_micros(50));
        let mut place = doorway.enter_anyway();
        assert!(place.work(|| Poll::<()>::Pending).is_pending());
        std::thread::sleep(Duration::from_millis(20));
        assert!(place.work(|| Poll::Ready(())).is_ready());
        assert!(place.worked < Duration::from_millis(20));
    }
}
