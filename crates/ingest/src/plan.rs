//! Which parts to fetch, and when.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Days, NaiveDate, TimeDelta, Utc};
use vintem_domain::DateRange;
use vintem_domain::dates::{sao_paulo_date, sao_paulo_instant};
use vintem_domain::series::{FX_SCHEDULE, Frequency, Release};
use vintem_store::sources::{PartFailure, SourcePartState};
use vintem_store::{Store, StoreError};

use crate::source::{DataSource, SourcePart};

/// How often to ask for a value that is expected, and how often once it is a day late: a holiday that the calendar does
/// not know, or an outage of its publisher.
const EXPECTED_POLL_INTERVAL: TimeDelta = TimeDelta::minutes(4);
const LATE_POLL_INTERVAL: TimeDelta = TimeDelta::minutes(30);
const LATE_AFTER: TimeDelta = TimeDelta::days(1);
/// Gaps are asked for again each day at this hour and minute, when publishers have little to do.
const SWEEP: (u32, u32) = (4, 0);
/// The wait after the first failure of a part; doubled after each further one.
const FIRST_RETRY_DELAY: TimeDelta = TimeDelta::minutes(1);
/// The longest wait. What is published today must not wait that long.
const MAX_RETRY_DELAY: TimeDelta = TimeDelta::days(1);
const MAX_CURRENT_RETRY_DELAY: TimeDelta = TimeDelta::minutes(30);
/// No series is older.
const EARLIEST_YEAR: NaiveDate = NaiveDate::from_ymd_opt(1900, 1, 1).expect("a day of the calendar");

/// A part with its state.
#[derive(Debug, Clone)]
pub struct PlannedPart {
    pub source: DataSource,
    pub part: SourcePart,
    pub state: SourcePartState,
    /// `None` if nothing is ever expected from it again.
    pub due_at: Option<DateTime<Utc>>,
    /// Whether it lacks values, so that all of its days are fetched again.
    pub has_gap: bool,
}

/// Parts that lack values on days that should have one: source and part.
pub type GappyParts = HashSet<(&'static str, String)>;

/// All parts of these sources, newest first across sources, but bulky ones last.
pub async fn plan_parts(
    store: &Store,
    sources: &[DataSource],
    gaps: &GappyParts,
    now: DateTime<Utc>,
) -> Result<Vec<PlannedPart>, StoreError> {
    let ids: Vec<&str> = sources.iter().map(|source| source.id()).collect();
    let states = store.part_states(&ids).await?;
    let states: HashMap<(&str, &str), &SourcePartState> =
        states.iter().map(|state| ((state.source.as_str(), state.part.as_str()), state)).collect();

    let today = sao_paulo_date(now);
    let mut planned = Vec::new();
    for source in sources {
        let state_of = |part: SourcePart| {
            let id = part.id();
            let initial = || SourcePartState::new(source.id(), &id);
            states.get(&(source.id(), id.as_str())).map_or_else(initial, |state| (*state).clone())
        };
        let mut parts = source.parts(today);
        // Not every series documents its real start: go back while there is something.
        while let Some(oldest) = parts.last().copied()
            && state_of(oldest).rows > 0
            && let Some(earlier) = oldest.earlier().filter(|part| part.first_day() >= EARLIEST_YEAR)
        {
            parts.push(earlier);
        }

        planned.extend(parts.into_iter().map(|part| {
            let state = state_of(part);
            let has_gap = gaps.contains(&(source.id(), state.part.clone()));
            let due_at = due_at(*source, part, &state, has_gap, today);
            PlannedPart { source: *source, part, state, due_at, has_gap }
        }));
    }

    // Stable, so that sources stay in load order among parts of the same years.
    planned.sort_by_key(|planned| (planned.source.is_bulk(), std::cmp::Reverse(planned.part.last_day().min(today))));
    Ok(planned)
}

fn due_at(
    source: DataSource,
    part: SourcePart,
    state: &SourcePartState,
    has_gap: bool,
    today: NaiveDate,
) -> Option<DateTime<Utc>> {
    if let Some(failure) = &state.failure {
        return Some(failure.next_attempt_at);
    }
    let Some(checked_at) = state.checked_at else { return Some(DateTime::<Utc>::MIN_UTC) };
    if !part.is_open(today) {
        return match state.backfilled_at {
            Some(_) => has_gap.then(|| next_sweep_at(checked_at)),
            None => Some(DateTime::<Utc>::MIN_UTC),
        };
    }

    let regular = source.next_fetch_at(checked_at);
    let expected = state.newest_date.and_then(|newest| source.expected_at(newest));
    // What comes after the last day belongs to the next part.
    let expected = expected.filter(|expected| sao_paulo_date(*expected) <= part.last_day());
    let next_poll =
        expected.zip(source.schedule()).and_then(|(at, schedule)| next_poll_at(schedule.release, at, checked_at));
    Some(next_poll.map_or(regular, |next_poll| regular.min(next_poll)))
}

/// When to ask for a value that is expected at a certain time; `None` leaves it to the regular fetches.
fn next_poll_at(release: Release, expected_at: DateTime<Utc>, checked_at: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let is_recent = checked_at - expected_at < LATE_AFTER;
    let interval = match release {
        // The day of a monthly release is known only roughly, and many series share it.
        Release::Monthly(_) if is_recent => LATE_POLL_INTERVAL,
        Release::Monthly(_) => return None,
        Release::InAdvance(_) | Release::Daily(_) | Release::RunningMonth(_) if is_recent => EXPECTED_POLL_INTERVAL,
        Release::InAdvance(_) | Release::Daily(_) | Release::RunningMonth(_) => LATE_POLL_INTERVAL,
    };
    Some(expected_at.max(checked_at + interval))
}

fn next_sweep_at(checked_at: DateTime<Utc>) -> DateTime<Utc> {
    let day = sao_paulo_date(checked_at);
    let sweep = sao_paulo_instant(day, SWEEP);
    if sweep > checked_at { sweep } else { sao_paulo_instant(day + Days::new(1), SWEEP) }
}

/// When to repeat a part after its failures: later and later. An outage of the host counts as one, because all of its
/// parts fail together, and their attempts are limited elsewhere.
pub fn next_attempt_at(
    part: SourcePart,
    failure: Option<&PartFailure>,
    is_outage: bool,
    now: DateTime<Utc>,
) -> DateTime<Utc> {
    let failures_before = failure.map_or(0, |failure| failure.attempts);
    let doublings = if is_outage { 0 } else { failures_before.min(16) };
    let max_delay = if part.is_current(sao_paulo_date(now)) { MAX_CURRENT_RETRY_DELAY } else { MAX_RETRY_DELAY };
    now + (FIRST_RETRY_DELAY * (1 << doublings)).min(max_delay)
}

/// The parts that have gaps between their first and last value. `/coverage` shows the same gaps.
pub async fn find_gaps(store: &Store, sources: &[DataSource], today: NaiveDate) -> Result<GappyParts, StoreError> {
    let mut gaps = GappyParts::new();
    for source in sources {
        match source {
            DataSource::Series(series) => {
                let dates = store.observation_dates(series.id).await?;
                gaps.extend(parts_with_gaps(*source, series.frequency, &dates, &source.parts(today)));
            }
            DataSource::Fx => {
                for (currency, dates) in store.closing_dates().await? {
                    let mut parts = source.parts(today);
                    parts.retain(|part| matches!(part, SourcePart::CurrencyYear(other, _) if *other == currency));
                    gaps.extend(parts_with_gaps(*source, FX_SCHEDULE.frequency, &dates, &parts));
                }
            }
            DataSource::Companies | DataSource::Filings(_) | DataSource::Statements(_) => {}
        }
    }
    Ok(gaps)
}

/// `dates` in order.
fn parts_with_gaps(
    source: DataSource,
    frequency: Frequency,
    dates: &[NaiveDate],
    parts: &[SourcePart],
) -> Vec<(&'static str, String)> {
    let (Some(first), Some(last)) = (dates.first(), dates.last()) else { return Vec::new() };
    let missing: Vec<NaiveDate> = frequency
        .expected_dates(DateRange { from: *first, to: *last })
        .into_iter()
        .filter(|day| dates.binary_search(day).is_err())
        .collect();
    let has_gap = |part: &&SourcePart| missing.iter().any(|day| (part.first_day()..=part.last_day()).contains(day));
    parts.iter().filter(has_gap).map(|part| (source.id(), part.id())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vintem_domain::Currency;

    fn parse_utc(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).unwrap().to_utc()
    }

    fn parse_date(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    fn loaded_state(checked_at: &str, newest: &str) -> SourcePartState {
        SourcePartState {
            checked_at: Some(parse_utc(checked_at)),
            backfilled_at: Some(parse_utc("2026-01-01T00:00:00Z")),
            newest_date: Some(parse_date(newest)),
            ..SourcePartState::new("cdi", "2025")
        }
    }

    #[test]
    fn a_value_is_asked_for_every_few_minutes_from_its_expected_time_until_it_is_there() {
        let cdi = DataSource::from_id("cdi").unwrap();
        let today = parse_date("2026-11-16");
        let part = cdi.parts(today)[0];
        let due = |checked_at: &str, newest: &str| {
            due_at(cdi, part, &loaded_state(checked_at, newest), false, today).unwrap()
        };

        // Monday's rate is expected at 18:00 in São Paulo.
        assert_eq!(due("2026-11-16T20:00:00Z", "2026-11-13"), parse_utc("2026-11-16T21:00:00Z"));
        assert_eq!(due("2026-11-16T21:00:00Z", "2026-11-13"), parse_utc("2026-11-16T21:04:00Z"));
        assert_eq!(due("2026-11-17T20:59:00Z", "2026-11-13"), parse_utc("2026-11-17T21:03:00Z"));
        assert_eq!(due("2026-11-17T21:01:00Z", "2026-11-13"), parse_utc("2026-11-17T21:31:00Z"));
        // It is there: the next regular fetch, and then Tuesday's.
        assert_eq!(due("2026-11-16T21:04:00Z", "2026-11-16"), parse_utc("2026-11-16T23:20:00Z"));
    }

    #[test]
    fn a_part_of_the_past_is_only_asked_for_gaps_once_a_day() {
        let cdi = DataSource::from_id("cdi").unwrap();
        let today = parse_date("2026-11-16");
        let part = cdi.parts(today)[3];
        let state = loaded_state("2026-11-16T21:04:00Z", "2018-12-31");
        assert_eq!(due_at(cdi, part, &state, false, today), None);
        assert_eq!(due_at(cdi, part, &state, true, today), Some(parse_utc("2026-11-17T07:00:00Z")));
        let never_loaded = SourcePartState::new("cdi", &part.id());
        assert_eq!(due_at(cdi, part, &never_loaded, false, today), Some(DateTime::<Utc>::MIN_UTC));
    }

    #[test]
    fn a_failed_part_is_repeated_later_and_later() {
        let now = parse_utc("2026-11-16T12:00:00Z");
        let failure = |attempts| PartFailure {
            attempts,
            since: now,
            last_failed_at: now,
            next_attempt_at: now,
            problem: String::new(),
            rejected_file: None,
        };
        let minutes = |part: SourcePart, attempts: u32, is_outage: bool| {
            (next_attempt_at(part, Some(&failure(attempts)), is_outage, now) - now).num_minutes()
        };

        let old = SourcePart::CurrencyYear(Currency::Usd, 1990);
        let current = SourcePart::CurrencyYear(Currency::Usd, 2026);
        assert_eq!([0, 1, 2, 5, 20].map(|attempts| minutes(old, attempts, false)), [1, 2, 4, 32, 1440]);
        assert_eq!([0, 5, 20].map(|attempts| minutes(current, attempts, false)), [1, 30, 30]);
        assert_eq!([0, 20].map(|attempts| minutes(old, attempts, true)), [1, 1]);
    }

    #[test]
    fn gaps_are_days_without_a_value_between_the_first_and_the_last() {
        let cdi = DataSource::from_id("cdi").unwrap();
        let parts = cdi.parts(parse_date("2026-11-16"));
        let days = ["2024-12-30", "2024-12-31", "2025-01-02", "2025-01-06"].map(parse_date);
        // January 1 is a holiday; January 3 is missing.
        let gaps = parts_with_gaps(cdi, Frequency::BusinessDaily, &days, &parts);
        assert_eq!(gaps, [("cdi", "2025".to_owned())]);
        assert_eq!(parts_with_gaps(cdi, Frequency::BusinessDaily, &days[..3], &parts), []);
    }
}
