//! The series. Storage, endpoints and documentation of a series are derived from its entry in `catalog`.

mod attributes;
mod base;
mod catalog;
mod computed;
mod entry;
mod frequency;
mod release;

use std::collections::HashSet;
use std::sync::OnceLock;

pub use crate::unit::Unit;
pub use attributes::{License, Publisher, SeriesGroup};
pub use computed::DERIVED_SERIES;
pub use entry::{Accumulation, DatedValue, Formula, PlausibleRange, Series, Shape};
pub use frequency::{Frequency, LAST_ANNIVERSARY_DAY};
pub use release::{DailyRelease, FX_SCHEDULE, MonthlyRelease, Release, Schedule};

/// The series that this process neither fetches nor serves, by choice of its operator.
static SWITCHED_OFF: OnceLock<HashSet<&'static str>> = OnceLock::new();

/// The API has paths of their own for these, or needs them for those paths.
const ALWAYS_ON: [&str; 5] = ["selic", "selic-daily", "cdi", "cdi-daily", "ipca"];

/// A series that can be switched off, by its id.
pub fn optional_series(id: &str) -> Option<&'static Series> {
    let mut all = catalog::GROUPS.iter().copied().flatten();
    all.find(|series| series.id == id && !ALWAYS_ON.contains(&id))
}

/// Leaves series out of everything that this process does. Call it once, before anything else reads the table.
pub fn switch_off(series: &[&'static Series]) {
    if !series.is_empty() {
        let _ = SWITCHED_OFF.set(series.iter().map(|series| series.id).collect());
    }
}

fn is_switched_on(series: &Series) -> bool {
    let Some(switched_off) = SWITCHED_OFF.get() else { return true };
    !series.inputs().iter().any(|id| switched_off.contains(id))
}

/// The series that the central bank publishes and that are served.
pub fn published_series() -> impl Iterator<Item = &'static Series> + Clone {
    catalog::GROUPS.iter().copied().flatten().filter(|series| is_switched_on(series))
}

/// The series that we compute from published ones. They are served like the others, but never stored.
pub fn derived_series() -> impl Iterator<Item = &'static Series> + Clone {
    DERIVED_SERIES.iter().filter(|series| is_switched_on(series))
}

/// Series that are stored only to cross-check others and are never served.
pub fn cross_check_series() -> impl Iterator<Item = &'static Series> + Clone {
    catalog::CROSS_CHECK_SERIES.iter()
}

/// All served series, with derived ones last.
pub fn served_series() -> impl Iterator<Item = &'static Series> + Clone {
    published_series().chain(derived_series())
}

pub fn find_series(id: &str) -> Option<&'static Series> {
    served_series().find(|series| series.id == id)
}

/// The published series that the values of a series come from: itself, or the inputs of its formula.
pub fn source_series(series: &Series) -> Vec<&'static Series> {
    series.inputs().iter().copied().filter_map(find_series).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_is_published_or_computed_from_published_ones() {
        for series in served_series() {
            assert_eq!(series.sgs_code.is_none(), series.formula.is_some(), "{}", series.id);
            assert!(source_series(series).iter().all(|input| input.sgs_code.is_some()), "{}", series.id);
            assert_eq!(source_series(series).len(), series.inputs().len(), "{}", series.id);
            if let Accumulation::DailyTwin(id) | Accumulation::Refused { instead: Some(id) } = series.accumulation {
                let accumulated = find_series(id).expect("a series");
                assert_eq!(accumulated.accumulation, Accumulation::OwnValues, "{}", series.id);
            }
            let has_periods = series.shape == Shape::Period;
            assert_eq!(series.accumulation == Accumulation::Anniversaries, has_periods, "{}", series.id);
        }
    }

    #[test]
    fn every_series_is_there_once_and_says_where_its_code_comes_from() {
        let mut ids = HashSet::new();
        let mut codes = HashSet::new();
        for series in served_series().chain(cross_check_series()) {
            assert!(ids.insert(series.id) && series.sgs_code.is_none_or(|code| codes.insert(code)), "{}", series.id);
            assert!(
                series.plausible.min < series.plausible.max && !series.plausible.reason.is_empty(),
                "{}",
                series.id
            );
            for text in [series.name, series.basis, series.is_not] {
                assert!(!text.en.is_empty() && !text.pt.is_empty(), "{}", series.id);
            }
        }
        for series in published_series() {
            let has_dataset = series.evidence.iter().any(|source| source.starts_with("dataset "));
            assert!(has_dataset || series.evidence.len() >= 2, "{}", series.id);
            // Only the portal declares a license.
            assert!(has_dataset || series.license == License::Undeclared, "{}", series.id);
        }
    }
}
