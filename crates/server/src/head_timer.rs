//! A cheap timer for the read timeout of request heads.
//!
//! hyper creates a new timer for every head and drops it when the head has arrived. Here one Tokio timer per connection
//! serves them all: it is rearmed only if it fires before the current deadline.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

/// The timer of one connection, which runs in a single task.
#[derive(Debug, Clone, Default)]
pub struct RequestHeadTimer {
    armed_sleep: Arc<Mutex<Option<Pin<Box<tokio::time::Sleep>>>>>,
}

#[derive(Debug)]
struct RequestHeadSleep {
    timer: RequestHeadTimer,
    deadline: Instant,
}

impl Timer for RequestHeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    /// Each deadline is later than the one before, so a timer that is already armed fires early enough for all of them.
    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(RequestHeadSleep { timer: self.clone(), deadline })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

impl Sleep for RequestHeadSleep {}

impl Future for RequestHeadSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut armed = self.timer.armed_sleep.lock().expect("never held across a panic");
        // The armed timer already has this task's waker.
        if armed.as_ref().is_some_and(|armed| !armed.is_elapsed()) {
            return Poll::Pending;
        }

        let mut sleep = Box::pin(tokio::time::sleep_until(self.deadline.into()));
        let elapsed = sleep.as_mut().poll(context);
        *armed = Some(sleep);
        elapsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_sleep_ends_at_its_own_deadline() {
        let timer = RequestHeadTimer::default();
        let started = tokio::time::Instant::now();
        let second = Duration::from_secs(1);

        // Dropped after it was polled, as when a head arrives in time.
        let dropped = tokio::time::timeout(second, timer.sleep(10 * second)).await;
        assert!(dropped.is_err());

        // Polled while the first is still armed; the first fires in between.
        timer.sleep(12 * second).await;
        assert_eq!(started.elapsed(), 13 * second);

        // Polled when no timer is armed.
        tokio::time::sleep(5 * second).await;
        timer.sleep(second).await;
        assert_eq!(started.elapsed(), 19 * second);
    }
}
