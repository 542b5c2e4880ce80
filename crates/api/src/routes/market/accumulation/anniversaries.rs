//! Counts the months of series whose rows are rates of a whole month, such as the yield of savings accounts.
//!
//! Money that is deposited on the 15th gets the rates that begin on each 15th. A deposit of the 29th, 30th or 31st counts
//! from the 1st of the next month (law 8,177 of 1991, article 12). Months that are not whole earn nothing.

use chrono::{Datelike, Months, NaiveDate};
use vintem_domain::series::{DatedValue, LAST_ANNIVERSARY_DAY};
use vintem_domain::{DateRange, Lang};

use super::body::incomplete_message;
use super::params::Period;
use crate::bodies::market::{RateSource, SeriesSource};

/// The months of a period, each beginning on the same day of its month.
pub struct AnniversaryMonths {
    /// The first day of the first month, whether or not the period has room for it.
    pub first: NaiveDate,
    /// The end of the period; if it is open, that of the newest rate that counts.
    pub end: NaiveDate,
    /// The whole months of the period, whether or not their rates are known.
    pub months: usize,
    pub rows: Vec<DatedValue>,
    /// The first days of the months without a rate, up to the newest rate.
    pub missing: Vec<NaiveDate>,
    /// Whether no month of the period begins after the newest rate.
    pub is_complete: bool,
}

impl AnniversaryMonths {
    /// `day` is the day of the month on which months begin; that of the period's start by default. An open period ends
    /// with the last month that is over.
    pub fn count(
        period: Period,
        day: Option<u32>,
        source: &SeriesSource<'_>,
        (newest, today): (NaiveDate, NaiveDate),
    ) -> Self {
        let first = first_anniversary(period.start(), day);
        let begins = (0..).map(|months| first + Months::new(months));
        let period_end = period.end().unwrap_or(today);
        let has_room = |begin: &NaiveDate| *begin + Months::new(1) <= period_end;
        let begins: Vec<NaiveDate> = begins.take_while(has_room).collect();

        let mut rows = Vec::new();
        let mut missing = Vec::new();
        for begin in begins.iter().copied().filter(|begin| *begin <= newest) {
            match source.row_range(DateRange { from: begin, to: begin }).next() {
                Some(at) => rows.push(source.values.get(at)),
                None => missing.push(begin),
            }
        }
        let last_end = begins.last().map_or(first, |begin| *begin + Months::new(1));
        let is_complete = begins.last().is_none_or(|begin| *begin <= newest);
        let end = period.end().unwrap_or(last_end).max(period.start());
        Self { first, end, months: begins.len(), rows, missing, is_complete }
    }
}

/// Says which months are counted, because a rate of the month ahead can be counted in several ways.
pub fn describe_anniversaries(months: &AnniversaryMonths, counted_end: NaiveDate, lang: Lang) -> String {
    let first = months.first;
    let (whole, known, missing) = (months.months, months.rows.len(), months.missing.len());
    let counted = match lang {
        _ if whole > 0 && known + missing == 0 => None,
        Lang::En if whole == 0 => {
            Some(format!("No whole month begins on or after {first} and ends within the period."))
        }
        Lang::Pt if whole == 0 => {
            Some(format!("Nenhum mês inteiro começa em {first} ou depois e termina dentro do período."))
        }
        Lang::En if missing > 0 => Some(format!("There is no factor. Whole months without a rate: {missing}.")),
        Lang::Pt if missing > 0 => Some(format!("Não há fator. Meses inteiros sem taxa: {missing}.")),
        Lang::En => Some(format!(
            "Counts the whole months between {first} and {counted_end} ({known}), each at the rate of its first day."
        )),
        Lang::Pt => Some(format!(
            "Considera os meses inteiros entre {first} e {counted_end} ({known}), cada um com a taxa do seu primeiro dia."
        )),
    };
    let incomplete = (!months.is_complete).then(|| incomplete_message(months.rows.last().map(|(date, _)| *date), lang));
    counted.into_iter().chain(incomplete).collect::<Vec<_>>().join(" ")
}

/// The first anniversary on or after a day.
fn first_anniversary(from: NaiveDate, day: Option<u32>) -> NaiveDate {
    let day = day.unwrap_or(from.day());
    let day = if day > LAST_ANNIVERSARY_DAY { 1 } else { day };
    from.iter_days().find(|date| date.day() == day).unwrap_or(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deposit_of_the_last_days_of_a_month_counts_from_the_first_of_the_next() {
        let first = |from: &str, day| first_anniversary(from.parse().unwrap(), day).to_string();
        assert_eq!(first("2024-01-15", None), "2024-01-15");
        assert_eq!(first("2024-01-28", None), "2024-01-28");
        for from in ["2024-01-29", "2024-01-30", "2024-01-31"] {
            assert_eq!(first(from, None), "2024-02-01");
        }
        assert_eq!(first("2024-01-15", Some(15)), "2024-01-15");
        assert_eq!(first("2024-01-15", Some(14)), "2024-02-14");
        assert_eq!(first("2024-01-15", Some(31)), "2024-02-01");
    }
}
