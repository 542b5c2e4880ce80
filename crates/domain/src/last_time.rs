//! How long ago something last happened.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// When something last happened, on a clock that nobody can set.
#[derive(Debug)]
pub struct LastTime {
    created: Instant,
    at: Mutex<Option<Instant>>,
}

impl Default for LastTime {
    fn default() -> Self {
        Self { created: Instant::now(), at: Mutex::default() }
    }
}

impl LastTime {
    /// It happened at this moment.
    pub fn set(&self, at: Instant) {
        *self.at.lock().expect("never held across a panic") = Some(at);
    }

    /// How long ago it happened; `None` if it never did.
    pub fn age(&self) -> Option<Duration> {
        self.at.lock().expect("never held across a panic").map(|at| at.elapsed())
    }

    /// How long it has not happened, at first counted from the start.
    pub fn pause(&self) -> Duration {
        self.age().unwrap_or_else(|| self.created.elapsed())
    }
}
