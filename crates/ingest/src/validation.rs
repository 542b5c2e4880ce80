//! Validation: decides whether to accept a parsed response. Rejected data never replaces the data being served.

use chrono::NaiveDate;
use vintem_domain::{Decimal, Series};
use vintem_store::load::{BulletinKind, NewBulletin, Observation, QuarantinedRow};

use crate::parsers::{BadRow, BadRowKind, ParsedRows};

/// Up to this many bad rows of a kind look like typing errors; more mean that the format has changed.
const MAX_BAD_ROWS: usize = 50;
const ALWAYS_TOLERATED_BAD_ROWS: usize = 3;
/// A file with fewer rows than this share of the last good one has lost rows.
const MIN_ROW_COUNT_PERCENT: u64 = 90;
/// Since the real was introduced, no rate has moved this far from one day to the next.
const MAX_JUMP_FACTOR: i64 = 10;
const JUMP_CHECK_SINCE: NaiveDate = NaiveDate::from_ymd_opt(1995, 1, 1).expect("a day of the calendar");

/// Why a response is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValidationError {
    #[error("{bad} of its {total} rows are bad, the first in line {line}: {reason}")]
    TooManyBadRows { bad: usize, total: u64, line: u64, reason: String },
    #[error("it has {rows} rows where the last good one had {before}")]
    RowCountShrunk { rows: u64, before: u64 },
    #[error("{date}: {value} is not plausible for {series} ({reason})")]
    ValueOutOfRange { series: &'static str, date: NaiveDate, value: Decimal, reason: &'static str },
    #[error("{date}: {value} is more than ten times the value before it, {before}, or less than a tenth")]
    ValueJump { date: NaiveDate, value: Decimal, before: Decimal },
}

/// Rejects more than 1% or 50 bad rows of one kind, apart from the kinds that say nothing about the rest of the file. In a
/// short response 1% is less than one row, so up to three bad rows are always accepted.
pub fn validate_bad_row_count<T>(parsed: &ParsedRows<T>) -> Result<(), ValidationError> {
    let total = parsed.total;
    for kind in BadRowKind::ALL.into_iter().filter(|kind| kind.may_reject_file()) {
        let mut bad_rows = parsed.bad_rows.iter().filter(|row| row.kind == kind).peekable();
        let Some(first) = bad_rows.peek().copied() else { continue };
        let bad = bad_rows.count();
        let share_is_small = bad as u64 * 100 <= total || bad <= ALWAYS_TOLERATED_BAD_ROWS;
        if bad > MAX_BAD_ROWS || !share_is_small {
            let (line, reason) = (first.line, first.reason.clone());
            return Err(ValidationError::TooManyBadRows { bad, total, line, reason });
        }
    }
    Ok(())
}

pub fn validate_row_count(rows: u64, before: u64) -> Result<(), ValidationError> {
    if rows * 100 < before * MIN_ROW_COUNT_PERCENT {
        Err(ValidationError::RowCountShrunk { rows, before })
    } else {
        Ok(())
    }
}

/// Every value must be within the plausible range of its series and must not jump. Series whose values are sometimes close
/// to zero, such as inflation, may jump.
pub fn validate_observations(series: &'static Series, rows: &[Observation]) -> Result<(), ValidationError> {
    let min = Decimal::from(series.plausible.min);
    let max = Decimal::from(series.plausible.max);
    for row in rows {
        if row.value < min || row.value > max {
            return Err(ValidationError::ValueOutOfRange {
                series: series.id,
                date: row.date,
                value: row.value,
                reason: series.plausible.reason,
            });
        }
    }

    if series.plausible.may_jump {
        return Ok(());
    }

    validate_no_jumps(rows.iter().map(|row| (row.date, row.value)))
}

pub fn validate_bulletins(rows: &[NewBulletin]) -> Result<(), ValidationError> {
    for row in rows {
        if row.buy <= Decimal::ZERO || row.sell <= Decimal::ZERO {
            return Err(ValidationError::ValueOutOfRange {
                series: "fx",
                date: row.date,
                value: row.buy.min(row.sell),
                reason: "a rate is above zero",
            });
        }
    }

    validate_no_jumps(rows.iter().filter(|row| row.kind == BulletinKind::Closing).map(|row| (row.date, row.sell)))
}

fn validate_no_jumps(rows: impl Iterator<Item = (NaiveDate, Decimal)>) -> Result<(), ValidationError> {
    let mut before: Option<Decimal> = None;
    for (date, value) in rows.filter(|(date, _)| *date >= JUMP_CHECK_SINCE) {
        if let Some(before) = before.filter(|before| !before.is_zero()) {
            let factor = Decimal::from(MAX_JUMP_FACTOR);
            if value > before * factor || value * factor < before {
                return Err(ValidationError::ValueJump { date, value, before });
            }
        }
        before = Some(value);
    }
    Ok(())
}

pub fn to_quarantined_rows(bad_rows: &[BadRow]) -> Vec<QuarantinedRow> {
    bad_rows
        .iter()
        .map(|row| QuarantinedRow { line: row.line, reason: row.reason.clone(), content: row.text.clone() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vintem_domain::series;

    fn observations(values: &[(&str, &str)]) -> Vec<Observation> {
        values.iter().map(|(date, value)| Observation::new(date.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn hyperinflation_passes_and_a_misplaced_decimal_point_is_rejected() {
        let cdi = series::find_series("cdi").unwrap();
        assert_eq!(
            validate_observations(cdi, &observations(&[("1990-02-19", "438898.12"), ("1990-03-20", "120.00")])),
            Ok(())
        );

        assert!(matches!(
            validate_observations(cdi, &observations(&[("2026-01-02", "-1")])),
            Err(ValidationError::ValueOutOfRange { .. })
        ));

        let too_large = observations(&[("2026-01-02", "14.90"), ("2026-01-05", "1490")]);
        assert!(matches!(validate_observations(cdi, &too_large), Err(ValidationError::ValueJump { .. })));

        let too_small = observations(&[("2026-01-02", "14.90"), ("2026-01-05", "0.149")]);
        assert!(matches!(validate_observations(cdi, &too_small), Err(ValidationError::ValueJump { .. })));
    }

    #[test]
    fn daily_rates_may_be_half_as_high_again_as_at_their_peak() {
        // 3.626% on 1990-02-19 was the highest rate of a day; the annual rates are those of the daily ones.
        for (series, value) in
            [("selic-daily", "5.439"), ("cdi-daily", "5.439"), ("cdi", "62400000"), ("selic-effective", "62400000")]
        {
            let series = series::find_series(series).unwrap();
            assert_eq!(validate_observations(series, &observations(&[("1990-02-19", value)])), Ok(()));
        }
    }

    #[test]
    fn inflation_may_be_near_zero_or_below() {
        let ipca = series::find_series("ipca").unwrap();
        let months = observations(&[("2025-08-01", "-0.11"), ("2025-09-01", "0.48"), ("2025-10-01", "0.01")]);
        assert_eq!(validate_observations(ipca, &months), Ok(()));
    }

    #[test]
    fn at_most_a_tenth_of_the_rows_may_disappear() {
        assert_eq!(validate_row_count(90, 100), Ok(()));
        assert_eq!(validate_row_count(89, 100), Err(ValidationError::RowCountShrunk { rows: 89, before: 100 }));
        assert_eq!(validate_row_count(0, 0), Ok(()));
    }
}
