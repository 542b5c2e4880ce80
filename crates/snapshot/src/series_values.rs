//! Series: sorted columns in which two binary searches find a date range.

use std::ops::Range;

use chrono::NaiveDate;
use vintem_domain::point_in_time::Certainty;
use vintem_domain::series::DatedValue;
use vintem_domain::{DateRange, Decimal};
use vintem_store::load::Observation;
use vintem_store::reader::RowProvenance;

/// One series, oldest first.
#[derive(Debug, Default)]
pub struct SeriesValues {
    dates: Vec<NaiveDate>,
    values: Vec<Decimal>,
    provenance: Vec<RowProvenance>,
    /// The end of the period of each row; empty for a series whose rows have none.
    period_ends: Vec<Option<NaiveDate>>,
    /// Days whose values may still grow, sorted.
    provisional_days: Vec<NaiveDate>,
    /// Days whose values were computed from another series, sorted.
    derived_days: Vec<NaiveDate>,
    /// Days whose values do not agree with other data, sorted.
    disputed_days: Vec<NaiveDate>,
    /// In a point-in-time view: days whose availability is only estimated, sorted.
    estimated_days: Vec<NaiveDate>,
}

impl SeriesValues {
    /// `derived` fills the days that the series itself lacks.
    pub(crate) fn new(mut rows: Vec<(Observation, RowProvenance)>, derived: Vec<(Observation, RowProvenance)>) -> Self {
        let derived_days = derived.iter().map(|(row, _)| row.date).collect();
        if !derived.is_empty() {
            rows.extend(derived);
            rows.sort_by_key(|(row, _)| row.date);
        }

        let has_periods = rows.iter().any(|(row, _)| row.period_end.is_some());
        let mut values = Self { derived_days, ..Self::default() };
        for (row, provenance) in rows {
            values.period_ends.extend(has_periods.then_some(row.period_end));
            values.dates.push(row.date);
            values.values.push(row.value);
            values.provenance.push(provenance);
            values.provisional_days.extend(row.is_provisional.then_some(row.date));
        }
        values
    }

    /// Since when we know a value, and which fetch brought it; for a computed value those of the input.
    pub fn provenance(&self, index: usize) -> RowProvenance {
        self.provenance[index]
    }

    pub(crate) fn with_estimated_days(mut self, mut days: Vec<NaiveDate>) -> Self {
        days.sort_unstable();
        days.dedup();
        self.estimated_days = days;
        self
    }

    pub(crate) fn with_disputed_days(mut self, days: Vec<NaiveDate>) -> Self {
        self.disputed_days = days;
        self
    }

    /// Whether we observed since when the value could be known, or estimate it.
    pub fn certainty(&self, index: usize) -> Certainty {
        match self.estimated_days.binary_search(&self.dates[index]) {
            Ok(_) => Certainty::Estimated,
            Err(_) => Certainty::Observed,
        }
    }

    /// The day until which the rate of a row counts, if the series has such rows.
    pub fn period_end(&self, index: usize) -> Option<NaiveDate> {
        self.period_ends.get(index).copied().flatten()
    }

    /// Whether the value may still grow.
    pub fn is_provisional(&self, index: usize) -> bool {
        self.provisional_days.binary_search(&self.dates[index]).is_ok()
    }

    /// Whether a cross-check found that the value does not agree with other data.
    pub fn is_disputed(&self, index: usize) -> bool {
        self.disputed_days.binary_search(&self.dates[index]).is_ok()
    }

    pub(crate) fn disputed_days(&self) -> &[NaiveDate] {
        &self.disputed_days
    }

    pub fn is_derived(&self, index: usize) -> bool {
        self.derived_days.binary_search(&self.dates[index]).is_ok()
    }

    pub fn len(&self) -> usize {
        self.dates.len()
    }

    pub fn is_empty(&self) -> bool {
        self.dates.is_empty()
    }

    /// Indexes of the observations within these days.
    pub fn range(&self, days: DateRange) -> Range<usize> {
        find_date_range(self.dates.len(), |index| self.dates[index], days)
    }

    pub fn get(&self, index: usize) -> DatedValue {
        (self.dates[index], self.values[index])
    }

    pub(crate) fn rows_with_provenance(&self) -> Vec<(Observation, RowProvenance)> {
        (0..self.len()).map(|index| self.row_with_provenance(index)).collect()
    }

    /// The rows that the source published, without those computed from another series.
    pub(crate) fn published_rows(&self) -> Vec<(Observation, RowProvenance)> {
        let published = (0..self.len()).filter(|index| !self.is_derived(*index));
        published.map(|index| self.row_with_provenance(index)).collect()
    }

    fn row_with_provenance(&self, index: usize) -> (Observation, RowProvenance) {
        let observation = Observation {
            date: self.dates[index],
            value: self.values[index],
            period_end: self.period_end(index),
            is_provisional: self.is_provisional(index),
        };
        (observation, self.provenance[index])
    }
}

/// The index range within `days` in a column sorted by date.
pub(crate) fn find_date_range(len: usize, date: impl Fn(usize) -> NaiveDate, days: DateRange) -> Range<usize> {
    let first_index_where = |predicate: &dyn Fn(NaiveDate) -> bool| {
        let mut low = 0;
        let mut high = len;
        while low < high {
            let middle = low + (high - low) / 2;
            if predicate(date(middle)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    };

    let start = first_index_where(&|day| day >= days.from);
    let end = first_index_where(&|day| day > days.to);
    start..end.max(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(number: u32) -> NaiveDate {
        NaiveDate::from_ymd_opt(2026, 1, number).unwrap()
    }

    #[test]
    fn a_date_range_includes_both_ends() {
        let rows = [2, 3, 5, 9].map(|number| (Observation::new(day(number), Decimal::ONE), RowProvenance::default()));
        let series = SeriesValues::new(rows.to_vec(), Vec::new());

        let range = |from, to| series.range(DateRange { from: day(from), to: day(to) });
        assert_eq!(range(3, 5), 1..3);
        assert_eq!(range(1, 31), 0..4);
        assert_eq!(range(6, 8), 3..3);
        assert_eq!(range(9, 1).len(), 0);
    }
}
