//! What could be known on a day.
//!
//! What we saw appear is known from then on. What was there when we first looked is history: it is taken to have been
//! known since the day on which its publisher publishes such values, by a rule that errs late, so that nobody who looks
//! back sees what was still ahead.

use chrono::{DateTime, NaiveDate, Utc};

use crate::dates::sao_paulo_date;

/// How it is known that something could be known on a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// We saw it appear.
    Observed,
    /// By rule.
    Estimated,
}

impl Certainty {
    pub const fn id(self) -> &'static str {
        match self {
            Self::Observed => "observed",
            Self::Estimated => "estimated",
        }
    }
}

/// Of the versions of one thing, oldest first, each with when we learned of it, the one that could be known on a day.
/// `published_on` is the day on which the first was published by rule, if it is history: known to us no later than when
/// all history was there.
pub fn version_known_on<V>(
    versions: &[V],
    known_at: impl Fn(&V) -> DateTime<Utc>,
    published_on: NaiveDate,
    backfilled_at: Option<DateTime<Utc>>,
    day: NaiveDate,
) -> Option<(&V, Certainty)> {
    let mut known = None;
    for (at, version) in versions.iter().enumerate() {
        let seen_on = sao_paulo_date(known_at(version));
        let is_history = at == 0 && backfilled_at.is_none_or(|filled_at| known_at(version) <= filled_at);
        let (since, certainty) = if is_history && published_on < seen_on {
            (published_on, Certainty::Estimated)
        } else {
            (seen_on, Certainty::Observed)
        };
        if since <= day {
            known = Some((version, certainty));
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backfilled_versions_date_from_publication_and_later_ones_from_observation() {
        let instant = |day: &str| -> DateTime<Utc> { format!("{day}T15:00:00Z").parse().unwrap() };
        let day = |day: &str| -> NaiveDate { day.parse().unwrap() };
        let versions = [instant("2026-11-10"), instant("2026-11-20")];
        let known = |published_on: &str, filled_at: Option<&str>, on: &str| {
            let found = version_known_on(&versions, |at| *at, day(published_on), filled_at.map(instant), day(on));
            found.map(|(version, certainty)| (*version == versions[1], certainty))
        };
        let filled = Some("2026-11-12");
        assert_eq!(known("2020-01-15", filled, "2020-01-14"), None);
        assert_eq!(known("2020-01-15", filled, "2020-01-15"), Some((false, Certainty::Estimated)));
        assert_eq!(known("2020-01-15", filled, "2026-11-19"), Some((false, Certainty::Estimated)));
        assert_eq!(known("2020-01-15", filled, "2026-11-20"), Some((true, Certainty::Observed)));
        // Seen to appear late: the rule does not matter.
        assert_eq!(known("2026-11-05", Some("2026-11-01"), "2026-11-09"), None);
        assert_eq!(known("2026-11-05", Some("2026-11-01"), "2026-11-10"), Some((false, Certainty::Observed)));
        // Seen before the rule expects it.
        assert_eq!(known("2026-11-15", filled, "2026-11-10"), Some((false, Certainty::Observed)));
        assert_eq!(known("2020-01-15", None, "2020-01-15"), Some((false, Certainty::Estimated)));
    }
}
