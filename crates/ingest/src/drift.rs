//! Notices that a publisher changed something, although its response can still be read: a column that is blank now, days
//! with fewer rows, values that arrive at another hour. What is usual is learned from the responses before.

use std::collections::BTreeMap;
use std::fmt;

use chrono::{NaiveDate, TimeDelta};
use vintem_domain::Calendar;
use vintem_domain::dates::DateRange;
use vintem_store::sources::UsualResponse;

use crate::parsers::ColumnBlanks;

/// A change that an operator should look at, although the response was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriftAlert {
    /// More rows than usual have nothing in a column. Shares are in percent.
    BlankColumn { column: String, share: u64, usual: u64 },
    /// The last days have fewer rows than usual.
    RowsPerDay { rows: u64, usual: u64 },
    /// The last values arrived earlier or later than usual. Minutes after they were expected.
    ArrivalTime { delay: i64, usual: i64 },
}

/// Smaller tables have no usual share: in January a yearly file has few rows.
const MIN_ROWS_TO_COMPARE: u64 = 100;
/// Of ten thousand rows.
const MAX_BLANK_SHARE_CHANGE: u64 = 2_000;
/// The usual share moves by an eighth of each change, so that a lasting one counts as usual after some files.
const USUAL_SHARE_WEIGHT: u64 = 8;

/// The days, and the arrivals, that are compared with the ones before.
const RECENT: usize = 3;
const MIN_ARRIVALS_BEFORE: usize = 5;
const MAX_KEPT_ARRIVALS: usize = 20;

/// Compares the shares of blank fields with the usual ones, which then move towards them.
pub fn compare_blanks(usual: &mut UsualResponse, blanks: &BTreeMap<String, ColumnBlanks>) -> Vec<DriftAlert> {
    let mut alerts = Vec::new();
    for (column, blanks) in blanks.iter().filter(|(_, blanks)| blanks.total >= MIN_ROWS_TO_COMPARE) {
        let share = blanks.blank * 10_000 / blanks.total;
        let Some(usual) = usual.blank_shares.get_mut(column) else {
            usual.blank_shares.insert(column.clone(), share);
            continue;
        };
        if share > *usual + MAX_BLANK_SHARE_CHANGE {
            let (share, usual) = (share / 100, *usual / 100);
            alerts.push(DriftAlert::BlankColumn { column: column.clone(), share, usual });
        }
        *usual = (*usual * (USUAL_SHARE_WEIGHT - 1) + share) / USUAL_SHARE_WEIGHT;
    }
    // Columns that are not there any more have nothing usual about them.
    usual.blank_shares.retain(|column, _| blanks.contains_key(column));
    alerts
}

/// How few rows a day may have before it is unusual.
#[derive(Debug, Clone, Copy)]
pub struct DailyRowNorm {
    /// The business days that are needed to know what is usual.
    min_days_before: usize,
    /// Three days in a row with less than this share of the usual rows are unusual.
    min_percent: u64,
}

impl DailyRowNorm {
    /// A quiet day has a third of the filings of a usual one.
    pub const FILINGS: Self = Self { min_days_before: 20, min_percent: 10 };
    /// Each day has the same number of bulletins.
    pub const BULLETINS: Self = Self { min_days_before: 4, min_percent: 100 };
}

/// Compares the last business days before `until`, which may be incomplete, with those before them.
pub fn compare_days(
    norm: DailyRowNorm,
    rows_by_day: &BTreeMap<NaiveDate, u64>,
    until: NaiveDate,
) -> Option<DriftAlert> {
    let first = *rows_by_day.keys().next()?;
    let range = DateRange { from: first, to: until.pred_opt()? };
    let rows_of = |day| rows_by_day.get(&day).copied().unwrap_or(0);
    let days: Vec<u64> = Calendar::Settlement.business_days(range).map(rows_of).collect();

    let (before, recent) = days.split_at_checked(days.len().checked_sub(RECENT)?)?;
    if before.len() < norm.min_days_before {
        return None;
    }
    let usual = median(before)?;
    let rows = recent.iter().copied().max()?;
    (rows * 100 < usual * norm.min_percent).then_some(DriftAlert::RowsPerDay { rows, usual })
}

/// Remembers how long after it was expected a value arrived.
pub fn record_arrival(usual: &mut UsualResponse, delay: TimeDelta) {
    usual.arrival_delays.push(delay.num_minutes());
    let surplus = usual.arrival_delays.len().saturating_sub(MAX_KEPT_ARRIVALS);
    usual.arrival_delays.drain(..surplus);
}

/// Compares the last arrivals with those before them.
pub fn compare_arrivals(usual: &UsualResponse, tolerance: TimeDelta) -> Option<DriftAlert> {
    let delays = &usual.arrival_delays;
    let (before, recent) = delays.split_at_checked(delays.len().checked_sub(RECENT)?)?;
    if before.len() < MIN_ARRIVALS_BEFORE {
        return None;
    }
    let (usual, tolerance) = (median(before)?, tolerance.num_minutes());
    let (earliest, latest) = (recent.iter().copied().min()?, recent.iter().copied().max()?);
    if earliest > usual + tolerance {
        Some(DriftAlert::ArrivalTime { delay: earliest, usual })
    } else {
        (latest < usual - tolerance).then_some(DriftAlert::ArrivalTime { delay: latest, usual })
    }
}

fn median<T: Copy + Ord>(values: &[T]) -> Option<T> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

impl fmt::Display for DriftAlert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BlankColumn { column, share, usual } => {
                write!(f, "{column} is blank in {share} % of the rows, usually in {usual} %")
            }
            Self::RowsPerDay { rows, usual } => {
                write!(f, "the last {RECENT} business days have at most {rows} rows each, usually {usual}")
            }
            Self::ArrivalTime { delay, usual } => {
                let side = if delay > usual { "least" } else { "most" };
                write!(
                    f,
                    "the last {RECENT} values arrived at {side} {delay} minutes after they were expected, usually {usual}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blanks(blank: u64, total: u64) -> BTreeMap<String, ColumnBlanks> {
        BTreeMap::from([("Assunto".to_owned(), ColumnBlanks { blank, total })])
    }

    fn day(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    #[test]
    fn a_column_that_is_suddenly_blank_is_noticed_until_it_is_filled_again_or_usual() {
        let mut usual = UsualResponse::default();
        assert_eq!(compare_blanks(&mut usual, &blanks(10, 1_000)), []);
        assert_eq!(compare_blanks(&mut usual, &blanks(200, 1_000)), [], "less than 20 points more");

        let alert = &compare_blanks(&mut usual, &blanks(1_000, 1_000))[0];
        assert_eq!(alert.to_string(), "Assunto is blank in 100 % of the rows, usually in 3 %");
        assert_eq!(compare_blanks(&mut usual, &blanks(20, 1_000)), []);

        let is_noticed = |usual: &mut UsualResponse| !compare_blanks(usual, &blanks(900, 1_000)).is_empty();
        assert!((0..5).all(|_| is_noticed(&mut usual)));
        assert!((0..20).any(|_| !is_noticed(&mut usual)), "it became usual");
    }

    #[test]
    fn a_small_file_says_nothing_about_its_columns() {
        let mut usual = UsualResponse::default();
        compare_blanks(&mut usual, &blanks(0, 1_000));
        assert_eq!(compare_blanks(&mut usual, &blanks(99, 99)), []);
        assert_eq!(usual.blank_shares["Assunto"], 0);
    }

    #[test]
    fn three_days_with_few_rows_are_noticed_and_one_is_not() {
        let range = DateRange { from: day("2026-08-03"), to: day("2026-09-30") };
        let mut rows: BTreeMap<NaiveDate, u64> =
            Calendar::Settlement.business_days(range).map(|day| (day, 300)).collect();
        let until = day("2026-10-01");
        let compare = |rows: &BTreeMap<NaiveDate, u64>| compare_days(DailyRowNorm::FILINGS, rows, until);
        assert_eq!(compare(&rows), None);

        rows.insert(day("2026-09-30"), 2);
        rows.remove(&day("2026-09-29"));
        assert_eq!(compare(&rows), None);
        rows.insert(day("2026-09-28"), 29);
        assert_eq!(
            compare(&rows).unwrap().to_string(),
            "the last 3 business days have at most 29 rows each, usually 300"
        );
        rows.insert(day("2026-09-30"), 40);
        assert_eq!(compare(&rows), None);
    }

    #[test]
    fn values_that_arrive_hours_later_or_earlier_than_usual_are_noticed() {
        let mut usual = UsualResponse::default();
        let two_hours = TimeDelta::hours(2);
        let mut record = |minutes: i64| {
            record_arrival(&mut usual, TimeDelta::minutes(minutes));
            compare_arrivals(&usual, two_hours).map(|alert| alert.to_string())
        };
        assert!([10, 20, 5, 15, 10, 12, 900, 30].into_iter().all(|minutes| record(minutes).is_none()));
        assert_eq!([300, 400].map(&mut record), [None, None]);
        let alert = "the last 3 values arrived at least 240 minutes after they were expected, usually 15";
        assert_eq!(record(240).as_deref(), Some(alert));
        assert_eq!(record(10), None);

        for _ in 0..20 {
            record(180);
        }
        assert_eq!([30, 20].map(&mut record), [None, None]);
        let alert = "the last 3 values arrived at most 40 minutes after they were expected, usually 180";
        assert_eq!(record(40).as_deref(), Some(alert));
        assert_eq!(usual.arrival_delays.len(), MAX_KEPT_ARRIVALS);
    }
}
