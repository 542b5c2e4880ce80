//! Turns for what computes for long: as many at once as there are cores, since more would only make all of them slower.
//! Who would wait too long for a turn is told at once that there is none.

use std::num::NonZero;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};
use vintem_domain::Problem;

use crate::doorway::{Doorway, Place};
use crate::problem::Refusal;

/// What the last in the queue waits for its turn by what they usually take; and in any case, should they take longer.
/// With what it then takes itself, PostgreSQL's own limits included, all is said within 600 ms.
const USUAL_WAIT: Duration = Duration::from_millis(40);
const LONGEST_WAIT: Duration = Duration::from_millis(80);
/// The longest queue, and one that is always granted: a machine that stands still for a moment finds as many when it goes on.
const MOST: usize = 128;
const LEAST: usize = 32;

#[derive(Debug)]
pub struct Aside {
    doorway: Doorway,
    turns: Semaphore,
}

/// One of the cores, until it is dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    place: Place<'a>,
    began: Instant,
    _permit: SemaphorePermit<'a>,
}

impl Aside {
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, NonZero::get);
        Self { doorway: Doorway::new(MOST, LEAST, USUAL_WAIT), turns: Semaphore::new(cores) }
    }

    pub async fn turn(&self) -> Result<Turn<'_>, Refusal> {
        let place = self.doorway.enter().ok_or(Refusal(Problem::Overloaded))?;
        match tokio::time::timeout(LONGEST_WAIT, self.turns.acquire()).await {
            Ok(Ok(permit)) => Ok(Turn { place, began: Instant::now(), _permit: permit }),
            _ => Err(Refusal(Problem::Overloaded)),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.place.note(self.began.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_would_wait_too_long_is_told_and_takes_no_turn() {
        let aside = Aside::new();
        let cores = aside.turns.available_permits();
        let mut held = Vec::new();
        for _ in 0..cores {
            held.push(aside.turn().await.unwrap());
        }
        let asked = tokio::time::Instant::now();
        assert_eq!(aside.turn().await.unwrap_err().0, Problem::Overloaded);
        assert_eq!(asked.elapsed().as_millis(), LONGEST_WAIT.as_millis());
        drop(held.pop());
        assert!(aside.turn().await.is_ok());
    }

    #[tokio::test]
    async fn where_turns_are_known_to_take_long_the_queue_is_short() {
        let aside = Aside::new();
        for _ in 0..200 {
            aside.doorway.enter_anyway().note(Duration::from_secs(1));
        }
        let waiting: Vec<_> = (0..LEAST).map(|_| aside.doorway.enter_anyway()).collect();
        assert_eq!(aside.turn().await.unwrap_err().0, Problem::Overloaded);
        drop(waiting);
        assert!(aside.turn().await.is_ok());
    }
}
