//! Webhooks: what one wants to hear of, how it stands, and when to try again.

use chrono::TimeDelta;

use crate::event::EventKind;

/// What an event can be chosen by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterField {
    Companies,
    Categories,
    Series,
    Pairs,
}

/// What a webhook wants to hear of. Filters are and-ed; an empty one leaves nothing out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    pub kinds: Vec<EventKind>,
    pub companies: Vec<String>,
    pub categories: Vec<String>,
    pub series: Vec<String>,
    pub pairs: Vec<String>,
}

impl EventFilter {
    /// Whether each type that it names, or where it names none any type at all, has all that it filters by.
    pub fn is_satisfiable(&self) -> bool {
        let filters = [
            (FilterField::Companies, &self.companies),
            (FilterField::Categories, &self.categories),
            (FilterField::Series, &self.series),
            (FilterField::Pairs, &self.pairs),
        ];
        let can_meet =
            |kind: &EventKind| filters.iter().all(|(filter, list)| list.is_empty() || kind.supports_filter(*filter));
        if self.kinds.is_empty() { EventKind::ALL.iter().any(can_meet) } else { self.kinds.iter().all(can_meet) }
    }
}

/// What an event is about, for filters to look at.
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
    /// By its owner.
    Paused,
    Disabled(DisabledReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisabledReason {
    /// The receiver answered 410.
    Gone,
    /// No attempt succeeded for [`DISABLED_AFTER`].
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
        all.into_iter().find(|known| known.id() == status && known.disabled_reason() == reason)
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

/// After the first failure, the second and so on: svix's schedule, 27.6 hours in all.
const RETRY_DELAYS: [TimeDelta; 7] = [
    TimeDelta::seconds(5),
    TimeDelta::minutes(5),
    TimeDelta::minutes(30),
    TimeDelta::hours(2),
    TimeDelta::hours(5),
    TimeDelta::hours(10),
    TimeDelta::hours(10),
];
/// A wait is so much shorter or longer by chance, so that not all come again at once.
const RETRY_JITTER_PERCENT: i32 = 10;
/// A receiver that asks for more is tried after that.
const MAX_RETRY_AFTER: TimeDelta = TimeDelta::hours(24);
/// A webhook of which nothing succeeded for so long is given up.
pub const DISABLE_AFTER_FAILING: TimeDelta = TimeDelta::days(5);
/// Of one key.
pub const MAX_WEBHOOKS_PER_KEY: usize = 20;

/// How long to wait after so many failures, or nothing where it was the last attempt. `chance` from -100 to 100 spreads
/// it; what the receiver asked for is waited if it is longer.
pub fn retry_delay(failures: usize, jitter: i32, retry_after: Option<TimeDelta>) -> Option<TimeDelta> {
    let wait = *RETRY_DELAYS.get(failures.checked_sub(1)?)?;
    let spread = wait + wait * (RETRY_JITTER_PERCENT * jitter.clamp(-100, 100)) / 10_000;
    Some(retry_after.map_or(spread, |asked| asked.min(MAX_RETRY_AFTER).max(spread)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delays_grow_with_jitter_and_end() {
        let seconds = |failures, chance| retry_delay(failures, chance, None).map(|wait| wait.num_milliseconds());
        assert_eq!(seconds(1, 0), Some(5_000));
        assert_eq!((seconds(1, -100), seconds(1, 100)), (Some(4_500), Some(5_500)));
        assert_eq!((seconds(7, 100), seconds(8, 0)), (Some(39_600_000), None));
        assert_eq!(seconds(0, 0), None);
        let all: TimeDelta = (1..=7).filter_map(|failures| retry_delay(failures, 0, None)).sum();
        assert_eq!(all, TimeDelta::seconds(5) + TimeDelta::minutes(5 + 30) + TimeDelta::hours(27));
    }

    #[test]
    fn a_receiver_can_request_a_longer_delay_up_to_a_day() {
        let asked = |failures, seconds| retry_delay(failures, 0, Some(TimeDelta::seconds(seconds)));
        assert_eq!(asked(1, 60), Some(TimeDelta::seconds(60)));
        assert_eq!(asked(2, 60), Some(TimeDelta::minutes(5)));
        assert_eq!(asked(1, i64::from(u32::MAX)), Some(TimeDelta::hours(24)));
        assert_eq!(asked(8, 60), None);
    }

    #[test]
    fn an_unsatisfiable_filter_is_detected() {
        let some = || vec!["x".to_owned()];
        let interest = |kinds: &[EventKind], companies, series| EventFilter {
            kinds: kinds.to_vec(),
            companies,
            series,
            ..EventFilter::default()
        };
        assert!(EventFilter::default().is_satisfiable());
        assert!(interest(&[], some(), Vec::new()).is_satisfiable());
        assert!(!interest(&[], some(), some()).is_satisfiable());
        assert!(
            interest(&[EventKind::FilingPublished, EventKind::CompanyUpdated], some(), Vec::new()).is_satisfiable()
        );
        assert!(
            !interest(&[EventKind::FilingPublished, EventKind::RatePublished], some(), Vec::new()).is_satisfiable()
        );
    }
}
