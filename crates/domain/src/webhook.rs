//! Webhooks: what one wants to hear of, how it stands, and when to try again.

use chrono::TimeDelta;

use crate::event::EventKind;

/// What an event can be chosen by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    Companies,
    Categories,
    Series,
    Pairs,
}

/// What a webhook wants to hear of. Filters are and-ed; an empty one leaves nothing out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interest {
    pub kinds: Vec<EventKind>,
    pub companies: Vec<String>,
    pub categories: Vec<String>,
    pub series: Vec<String>,
    pub pairs: Vec<String>,
}

impl Interest {
    /// Whether each type that it names, or where it names none any type at all, has all that it filters by.
    pub fn can_be_met(&self) -> bool {
        let filters = [
            (Filter::Companies, &self.companies),
            (Filter::Categories, &self.categories),
            (Filter::Series, &self.series),
            (Filter::Pairs, &self.pairs),
        ];
        let can_meet = |kind: &EventKind| filters.iter().all(|(filter, list)| list.is_empty() || kind.has(*filter));
        if self.kinds.is_empty() { EventKind::ALL.iter().any(can_meet) } else { self.kinds.iter().all(can_meet) }
    }
}

/// What an event is about, for filters to look at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topic {
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

    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Disabled(DisabledReason::Gone) => Some("gone"),
            Self::Disabled(DisabledReason::Failing) => Some("failing"),
            Self::Active | Self::Paused => None,
        }
    }

    pub fn from_ids(status: &str, reason: Option<&str>) -> Option<Self> {
        let all =
            [Self::Active, Self::Paused, Self::Disabled(DisabledReason::Gone), Self::Disabled(DisabledReason::Failing)];
        all.into_iter().find(|known| known.id() == status && known.reason() == reason)
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
const WAITS: [TimeDelta; 7] = [
    TimeDelta::seconds(5),
    TimeDelta::minutes(5),
    TimeDelta::minutes(30),
    TimeDelta::hours(2),
    TimeDelta::hours(5),
    TimeDelta::hours(10),
    TimeDelta::hours(10),
];
/// A wait is so much shorter or longer by chance, so that not all come again at once.
const JITTER_PERCENT: i32 = 10;
/// A receiver that asks for more is tried after that.
const LONGEST_ASKED_WAIT: TimeDelta = TimeDelta::hours(24);
/// A webhook of which nothing succeeded for so long is given up.
pub const DISABLED_AFTER: TimeDelta = TimeDelta::days(5);
/// Of one key.
pub const MOST_WEBHOOKS: usize = 20;

/// How long to wait after so many failures, or nothing where it was the last attempt. `chance` from -100 to 100 spreads
/// it; what the receiver asked for is waited if it is longer.
pub fn wait_after(failures: usize, chance: i32, asked: Option<TimeDelta>) -> Option<TimeDelta> {
    let wait = *WAITS.get(failures.checked_sub(1)?)?;
    let spread = wait + wait * (JITTER_PERCENT * chance.clamp(-100, 100)) / 10_000;
    Some(asked.map_or(spread, |asked| asked.min(LONGEST_ASKED_WAIT).max(spread)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_spread_and_end() {
        let seconds = |failures, chance| wait_after(failures, chance, None).map(|wait| wait.num_milliseconds());
        assert_eq!(seconds(1, 0), Some(5_000));
        assert_eq!((seconds(1, -100), seconds(1, 100)), (Some(4_500), Some(5_500)));
        assert_eq!((seconds(7, 100), seconds(8, 0)), (Some(39_600_000), None));
        assert_eq!(seconds(0, 0), None);
        let all: TimeDelta = (1..=7).filter_map(|failures| wait_after(failures, 0, None)).sum();
        assert_eq!(all, TimeDelta::seconds(5) + TimeDelta::minutes(5 + 30) + TimeDelta::hours(27));
    }

    #[test]
    fn a_receiver_may_ask_for_more_time_but_not_for_ever() {
        let asked = |failures, seconds| wait_after(failures, 0, Some(TimeDelta::seconds(seconds)));
        assert_eq!(asked(1, 60), Some(TimeDelta::seconds(60)));
        assert_eq!(asked(2, 60), Some(TimeDelta::minutes(5)));
        assert_eq!(asked(1, i64::from(u32::MAX)), Some(TimeDelta::hours(24)));
        assert_eq!(asked(8, 60), None);
    }

    #[test]
    fn what_no_event_can_meet_is_noticed() {
        let some = || vec!["x".to_owned()];
        let interest = |kinds: &[EventKind], companies, series| Interest {
            kinds: kinds.to_vec(),
            companies,
            series,
            ..Interest::default()
        };
        assert!(Interest::default().can_be_met());
        assert!(interest(&[], some(), Vec::new()).can_be_met());
        assert!(!interest(&[], some(), some()).can_be_met());
        assert!(interest(&[EventKind::FilingPublished, EventKind::CompanyUpdated], some(), Vec::new()).can_be_met());
        assert!(!interest(&[EventKind::FilingPublished, EventKind::RatePublished], some(), Vec::new()).can_be_met());
    }
}
