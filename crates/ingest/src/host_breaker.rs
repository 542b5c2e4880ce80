//! Leaves a host alone that does not answer.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// Parts that fail one after the other before the host counts as down. One alone may be the fault of the part.
const FAILURES_UNTIL_DOWN: u32 = 2;
/// The first wait; doubled after each further failure.
const FIRST_WAIT: TimeDelta = TimeDelta::seconds(30);
/// Short, so that the end of an outage is noticed soon. One request is enough to notice it.
const MAX_WAIT: TimeDelta = TimeDelta::minutes(5);

/// Longer waits are not believed.
const MAX_REQUESTED_WAIT: Duration = Duration::from_secs(24 * 3600);

/// The wait that a host asks for, within bounds.
pub fn believable_wait(requested: Duration) -> TimeDelta {
    TimeDelta::from_std(requested.min(MAX_REQUESTED_WAIT)).unwrap_or(MAX_WAIT)
}

/// The outages of one host.
#[derive(Debug, Default)]
pub struct HostBreaker {
    /// Parts in a row that got no answer.
    failures: u32,
    down_since: Option<DateTime<Utc>>,
    retry_at: Option<DateTime<Utc>>,
}

impl HostBreaker {
    /// When to try again, if the host counts as down.
    pub fn retry_at(&self) -> Option<DateTime<Utc>> {
        self.retry_at
    }

    pub fn is_down(&self) -> bool {
        self.down_since.is_some()
    }

    /// Returns since when the host was down, if it was.
    pub fn record_answer(&mut self) -> Option<DateTime<Utc>> {
        std::mem::take(self).down_since
    }

    /// Returns whether the host counts as down from now on. A host that asks for a wait does so at once.
    pub fn record_outage(&mut self, now: DateTime<Utc>, requested_wait: Option<Duration>) -> bool {
        self.failures += 1;
        if self.failures < FAILURES_UNTIL_DOWN && requested_wait.is_none() {
            return false;
        }
        let doublings = self.failures.saturating_sub(FAILURES_UNTIL_DOWN).min(8);
        let wait = (FIRST_WAIT * (1 << doublings)).min(MAX_WAIT);
        self.retry_at = Some(now + wait.max(requested_wait.map_or(wait, believable_wait)));
        let is_new = self.down_since.is_none();
        self.down_since = self.down_since.or(Some(now));
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_left_alone_for_longer_and_longer_until_it_answers() {
        let now = DateTime::<Utc>::UNIX_EPOCH;
        let mut breaker = HostBreaker::default();
        assert!(!breaker.record_outage(now, None) && breaker.retry_at().is_none());
        assert_eq!(breaker.record_answer(), None);

        assert!(!breaker.record_outage(now, None));
        assert!(breaker.record_outage(now, None), "the second in a row");
        let mut waits = Vec::new();
        for _ in 0..6 {
            waits.push((breaker.retry_at().unwrap() - now).num_seconds());
            assert!(!breaker.record_outage(now, None) && breaker.is_down());
        }
        assert_eq!(waits, [30, 60, 120, 240, 300, 300]);
        assert_eq!(breaker.record_answer(), Some(now));
        assert!(!breaker.is_down() && breaker.retry_at().is_none());

        assert!(breaker.record_outage(now, Some(Duration::from_secs(3_600))), "it asked for it");
        assert_eq!(breaker.retry_at(), Some(now + TimeDelta::hours(1)));
    }
}
