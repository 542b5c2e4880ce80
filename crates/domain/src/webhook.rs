//! Webhooks: event filters, statuses and the retry schedule.

use chrono::TimeDelta;

use crate::event::{EventKind, FilterField};

/// The events that a webhook subscribes to. An event must match all filters; an empty filter matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    pub kinds: Vec<EventKind>,
    pub companies: Vec<String>,
    pub categories: Vec<String>,
    pub series: Vec<String>,
    pub pairs: Vec<String>,
}

impl EventFilter {
    /// Whether all listed kinds support all filters. If no kinds are listed, one kind that supports them is enough.
    pub fn is_satisfiable(&self) -> bool {
        let filters = [
            (FilterField::Companies, &self.companies),
            (FilterField::Categories, &self.categories),
            (FilterField::Series, &self.series),
            (FilterField::Pairs, &self.pairs),
        ];
        let supports_all =
            |kind: &EventKind| filters.iter().all(|(field, values)| values.is_empty() || kind.supports_filter(*field));

        if self.kinds.is_empty() {
            EventKind::ALL.iter().any(supports_all)
        } else {
            self.kinds.iter().all(supports_all)
        }
    }
}

/// The values of an event that filters match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventAttributes {
    pub company: Option<String>,
    pub category: Option<String>,
    pub series: Option<String>,
    pub pair: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookStatus {
    Active,
    /// Paused by its owner.
    Paused,
    Disabled(DisabledReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisabledReason {
    /// The receiver answered 410.
    Gone,
    /// No attempt succeeded for [`DISABLE_AFTER_FAILING`].
    Failing,
}

impl WebhookStatus {
    pub const fn id(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Disabled(_) => "disabled",
        }
    }

    pub const fn disabled_reason(self) -> Option<&'static str> {
        match self {
            Self::Disabled(DisabledReason::Gone) => Some("gone"),
            Self::Disabled(DisabledReason::Failing) => Some("failing"),
            Self::Active | Self::Paused => None,
        }
    }

    pub fn from_ids(status: &str, reason: Option<&str>) -> Option<Self> {
        let all =
            [Self::Active, Self::Paused, Self::Disabled(DisabledReason::Gone), Self::Disabled(DisabledReason::Failing)];
        all.into_iter().find(|candidate| candidate.id() == status && candidate.disabled_reason() == reason)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    Waiting,
    Sending,
    Delivered,
    /// Every attempt failed; it may be replayed.
    Dead,
}

impl DeliveryState {
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Sending, Self::Delivered, Self::Dead];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Sending => "sending",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.id() == id)
    }
}

/// The delay after the first failure, the second and so on: svix's schedule, 27.6 hours in total.
const RETRY_DELAYS: [TimeDelta; 7] = [
    TimeDelta::seconds(5),
    TimeDelta::minutes(5),
    TimeDelta::minutes(30),
    TimeDelta::hours(2),
    TimeDelta::hours(5),
    TimeDelta::hours(10),
    TimeDelta::hours(10),
];
/// Each delay is randomly shortened or lengthened by up to this much, so that retries don't arrive all at once.
const RETRY_JITTER_PERCENT: i32 = 10;
/// The longest `Retry-After` that we honor.
const MAX_RETRY_AFTER: TimeDelta = TimeDelta::hours(24);
/// A webhook is disabled when none of its attempts succeeded for this long.
pub const DISABLE_AFTER_FAILING: TimeDelta = TimeDelta::days(5);
pub const MAX_WEBHOOKS_PER_KEY: usize = 20;

/// The delay before the next attempt, or `None` after the last one. `jitter` goes from -100 to 100. The receiver's
/// `retry_after` wins if it is longer, up to 24 hours.
pub fn retry_delay(failures: usize, jitter: i32, retry_after: Option<TimeDelta>) -> Option<TimeDelta> {
    let delay = *RETRY_DELAYS.get(failures.checked_sub(1)?)?;
    let jittered = delay + delay * (RETRY_JITTER_PERCENT * jitter.clamp(-100, 100)) / 10_000;
    Some(retry_after.map_or(jittered, |requested| requested.min(MAX_RETRY_AFTER).max(jittered)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delays_grow_with_jitter_and_end() {
        let millis = |failures, jitter| retry_delay(failures, jitter, None).map(|delay| delay.num_milliseconds());
        assert_eq!(millis(1, 0), Some(5_000));
        assert_eq!((millis(1, -100), millis(1, 100)), (Some(4_500), Some(5_500)));
        assert_eq!((millis(7, 100), millis(8, 0)), (Some(39_600_000), None));
        assert_eq!(millis(0, 0), None);

        let total: TimeDelta = (1..=7).filter_map(|failures| retry_delay(failures, 0, None)).sum();
        assert_eq!(total, TimeDelta::seconds(5) + TimeDelta::minutes(5 + 30) + TimeDelta::hours(27));
    }

    #[test]
    fn a_receiver_can_request_a_longer_delay_up_to_a_day() {
        let delay = |failures, seconds| retry_delay(failures, 0, Some(TimeDelta::seconds(seconds)));
        assert_eq!(delay(1, 60), Some(TimeDelta::seconds(60)));
        assert_eq!(delay(2, 60), Some(TimeDelta::minutes(5)));
        assert_eq!(delay(1, i64::from(u32::MAX)), Some(TimeDelta::hours(24)));
        assert_eq!(delay(8, 60), None);
    }

    #[test]
    fn an_unsatisfiable_filter_is_detected() {
        let some = || vec!["x".to_owned()];
        let filter = |kinds: &[EventKind], companies, series| EventFilter {
            kinds: kinds.to_vec(),
            companies,
            series,
            ..EventFilter::default()
        };

        assert!(EventFilter::default().is_satisfiable());
        assert!(filter(&[], some(), Vec::new()).is_satisfiable());
        assert!(!filter(&[], some(), some()).is_satisfiable());
        assert!(filter(&[EventKind::FilingPublished, EventKind::CompanyUpdated], some(), Vec::new()).is_satisfiable());
        assert!(!filter(&[EventKind::FilingPublished, EventKind::RatePublished], some(), Vec::new()).is_satisfiable());
    }
}
