//! The gate: which answers are believed. What is refused here never touches what is served.

use chrono::NaiveDate;
use vintem_domain::{Decimal, Series};
use vintem_store::load::{Bulletin, BulletinKind, Misfit, Observation};

use crate::read::{BadRow, Read};

/// So many bad rows are somebody's typing; more are another format.
const MOST_BAD_ROWS: usize = 50;
const FEW_BAD_ROWS: usize = 3;
/// A file that has fewer rows than this share of the last good one has lost some.
const LEAST_PERCENT: u64 = 90;
/// From one day to the next no rate has ever moved so far since the real.
const LARGEST_JUMP: i64 = 10;
const CALM_SINCE: NaiveDate = NaiveDate::from_ymd_opt(1995, 1, 1).expect("a day of the calendar");

/// Why an answer is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Disbelief {
    #[error("{bad} of its {total} rows are bad, the first in line {line}: {reason}")]
    ManyBadRows { bad: usize, total: u64, line: u64, reason: String },
    #[error("it has {rows} rows where the last good one had {before}")]
    Shrunk { rows: u64, before: u64 },
    #[error("{date}: {value} is beyond what {series} can be")]
    Implausible { series: &'static str, date: NaiveDate, value: Decimal },
    #[error("{date}: {value} is more than ten times the value before it, {before}, or less than a tenth")]
    Jump { date: NaiveDate, value: Decimal, before: Decimal },
}

/// More than 1 % or 50 bad rows are too many. Of a short answer 1 % is less than a row: there a few may be bad.
pub fn few_bad_rows<T>(read: &Read<T>) -> Result<(), Disbelief> {
    let (bad, total) = (read.bad.len(), read.total);
    let share_is_small = bad as u64 * 100 <= total || bad <= FEW_BAD_ROWS;
    match read.bad.first() {
        Some(first) if bad > MOST_BAD_ROWS || !share_is_small => {
            Err(Disbelief::ManyBadRows { bad, total, line: first.line, reason: first.reason.clone() })
        }
        _ => Ok(()),
    }
}

pub fn not_shrunk(rows: u64, before: u64) -> Result<(), Disbelief> {
    if rows * 100 < before * LEAST_PERCENT { Err(Disbelief::Shrunk { rows, before }) } else { Ok(()) }
}

/// Within the bounds of its series, and no leap. Changes, such as inflation's, may leap: they are near zero at times.
pub fn plausible(series: &'static Series, rows: &[Observation]) -> Result<(), Disbelief> {
    let (lowest, highest) = (Decimal::from(series.plausible.0), Decimal::from(series.plausible.1));
    for row in rows {
        if row.value < lowest || row.value > highest {
            return Err(Disbelief::Implausible { series: series.id, date: row.date, value: row.value });
        }
    }
    if lowest < Decimal::ZERO {
        return Ok(());
    }
    no_leap(rows.iter().map(|row| (row.date, row.value)))
}

pub fn plausible_rates(rows: &[Bulletin]) -> Result<(), Disbelief> {
    for row in rows {
        if row.buy <= Decimal::ZERO || row.sell <= Decimal::ZERO {
            return Err(Disbelief::Implausible { series: "fx", date: row.date, value: row.buy.min(row.sell) });
        }
    }
    no_leap(rows.iter().filter(|row| row.kind == BulletinKind::Closing).map(|row| (row.date, row.sell)))
}

fn no_leap(rows: impl Iterator<Item = (NaiveDate, Decimal)>) -> Result<(), Disbelief> {
    let mut before: Option<Decimal> = None;
    for (date, value) in rows.filter(|(date, _)| *date >= CALM_SINCE) {
        if let Some(before) = before.filter(|before| !before.is_zero()) {
            let factor = Decimal::from(LARGEST_JUMP);
            if value > before * factor || value * factor < before {
                return Err(Disbelief::Jump { date, value, before });
            }
        }
        before = Some(value);
    }
    Ok(())
}

pub fn misfits(bad: &[BadRow]) -> Vec<Misfit> {
    bad.iter().map(|row| Misfit { line: row.line, reason: row.reason.clone(), content: row.text.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vintem_domain::series;

    fn rows(values: &[(&str, &str)]) -> Vec<Observation> {
        values
            .iter()
            .map(|(date, value)| Observation { date: date.parse().unwrap(), value: value.parse().unwrap() })
            .collect()
    }

    #[test]
    fn hyperinflation_is_plausible_and_a_slipped_point_is_not() {
        let cdi = series::by_id("cdi").unwrap();
        assert_eq!(plausible(cdi, &rows(&[("1990-02-19", "438898.12"), ("1990-03-20", "120.00")])), Ok(()));
        assert!(matches!(plausible(cdi, &rows(&[("2026-01-02", "-1")])), Err(Disbelief::Implausible { .. })));
        let slipped = rows(&[("2026-01-02", "14.90"), ("2026-01-05", "1490")]);
        assert!(matches!(plausible(cdi, &slipped), Err(Disbelief::Jump { .. })));
        let lost = rows(&[("2026-01-02", "14.90"), ("2026-01-05", "0.149")]);
        assert!(matches!(plausible(cdi, &lost), Err(Disbelief::Jump { .. })));
    }

    #[test]
    fn inflation_may_be_near_zero_or_below() {
        let ipca = series::by_id("ipca").unwrap();
        let months = rows(&[("2025-08-01", "-0.11"), ("2025-09-01", "0.48"), ("2025-10-01", "0.01")]);
        assert_eq!(plausible(ipca, &months), Ok(()));
    }

    #[test]
    fn a_tenth_of_the_rows_may_go_and_no_more() {
        assert_eq!(not_shrunk(90, 100), Ok(()));
        assert_eq!(not_shrunk(89, 100), Err(Disbelief::Shrunk { rows: 89, before: 100 }));
        assert_eq!(not_shrunk(0, 0), Ok(()));
    }
}
