//! How long a head may take, at little cost.
//!
//! hyper asks for a new timer with every head and drops it when the head is there. One of Tokio's, kept for as long as the
//! connection, serves them all: it is set anew only when it has gone off before its time.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

/// The timer of one connection, all of which runs in one task.
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

    /// Deadlines are later each time, so what is armed goes off in time for all of them.
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
        // It knows this task since it was armed, and will wake it.
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
        let (timer, began) = (RequestHeadTimer::default(), tokio::time::Instant::now());
        let second = Duration::from_secs(1);
        // One that is given up after it was polled, as with a head that came in time.
        let given_up = tokio::time::timeout(second, timer.sleep(10 * second)).await;
        assert!(given_up.is_err());
        // Polled while the first is still armed: the first goes off in between.
        timer.sleep(12 * second).await;
        assert_eq!(began.elapsed(), 13 * second);
        // And after all that was armed has gone off.
        tokio::time::sleep(5 * second).await;
        timer.sleep(second).await;
        assert_eq!(began.elapsed(), 19 * second);
    }
}
