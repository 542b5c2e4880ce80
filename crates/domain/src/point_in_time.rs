//! Point-in-time data: which version of a value was known on a given day.
//!
//! A version that we saw appear was known from that day. A backfilled version existed before we first looked: it counts
//! as known from the day on which its publisher usually publishes such values, by a rule that errs on the late side, so
//! that a point-in-time query never sees the future.

use chrono::{DateTime, NaiveDate, Utc};

use crate::dates::sao_paulo_date;

/// How we know the day from which a version was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// We saw it appear.
    Observed,
    /// Estimated by the publication rule.
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

/// Finds the version that was known on `day`. `versions` are oldest first; `known_at` returns when we learned of each.
///
/// The first version is backfilled if we learned of it no later than `backfilled_at`, when the backfill was complete,
/// or if that is `None`. It then counts as known from `published_on`, its publication day by rule.
pub fn version_known_on<V>(
    versions: &[V],
    known_at: impl Fn(&V) -> DateTime<Utc>,
    published_on: NaiveDate,
    backfilled_at: Option<DateTime<Utc>>,
    day: NaiveDate,
) -> Option<(&V, Certainty)> {
    let mut known_version = None;
    for (index, version) in versions.iter().enumerate() {
        let seen_on = sao_paulo_date(known_at(version));
        let is_backfilled = index == 0 && backfilled_at.is_none_or(|backfilled_at| known_at(version) <= backfilled_at);
        let (since, certainty) = if is_backfilled && published_on < seen_on {
            (published_on, Certainty::Estimated)
        } else {
            (seen_on, Certainty::Observed)
        };

        if since <= day {
            known_version = Some((version, certainty));
        }
    }
    known_version
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backfilled_versions_date_from_publication_and_later_ones_from_observation() {
        let instant = |day: &str| -> DateTime<Utc> { format!("{day}T15:00:00Z").parse().unwrap() };
        let day = |day: &str| -> NaiveDate { day.parse().unwrap() };
        let versions = [instant("2026-11-10"), instant("2026-11-20")];
        let known = |published_on: &str, backfilled_at: Option<&str>, on: &str| {
            let found =
                version_known_on(&versions, |version| *version, day(published_on), backfilled_at.map(instant), day(on));
            found.map(|(version, certainty)| (*version == versions[1], certainty))
        };

        let backfilled = Some("2026-11-12");
        assert_eq!(known("2020-01-15", backfilled, "2020-01-14"), None);
        assert_eq!(known("2020-01-15", backfilled, "2020-01-15"), Some((false, Certainty::Estimated)));
        assert_eq!(known("2020-01-15", backfilled, "2026-11-19"), Some((false, Certainty::Estimated)));
        assert_eq!(known("2020-01-15", backfilled, "2026-11-20"), Some((true, Certainty::Observed)));

        // Observed after the backfill: the rule does not apply.
        assert_eq!(known("2026-11-05", Some("2026-11-01"), "2026-11-09"), None);
        assert_eq!(known("2026-11-05", Some("2026-11-01"), "2026-11-10"), Some((false, Certainty::Observed)));

        // Observed before the rule expects it.
        assert_eq!(known("2026-11-15", backfilled, "2026-11-10"), Some((false, Certainty::Observed)));
        assert_eq!(known("2020-01-15", None, "2020-01-15"), Some((false, Certainty::Estimated)));
    }
}
