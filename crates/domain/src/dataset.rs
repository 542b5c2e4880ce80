//! Datasets: each series, the exchange rates, companies, filings and statements. Each is loaded, versioned and swapped
//! on its own.

use chrono::{DateTime, Days, NaiveDate, Utc};

use crate::lang::LocalizedText;
use crate::series::{FX_SCHEDULE, License, Series, published_series};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dataset {
    Series(&'static Series),
    Fx,
    Companies,
    Filings,
    Statements,
}

/// Whether a dataset came from its publisher or was generated for a demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataOrigin {
    Real,
    Synthetic,
}

impl DataOrigin {
    pub const fn id(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Synthetic => "synthetic",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        [Self::Real, Self::Synthetic].into_iter().find(|origin| origin.id() == id)
    }
}

impl Dataset {
    /// The datasets that are served.
    pub fn all() -> impl Iterator<Item = Self> {
        published_series().map(Self::Series).chain([Self::Fx, Self::Companies, Self::Filings, Self::Statements])
    }

    /// The id as stored, notified and shown.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Series(series) => series.id,
            Self::Fx => "fx",
            Self::Companies => "companies",
            Self::Filings => "filings",
            Self::Statements => "statements",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::all().find(|dataset| dataset.id() == id)
    }

    pub const fn name(self) -> LocalizedText {
        match self {
            Self::Series(series) => series.name,
            Self::Fx => {
                LocalizedText::new("PTAX exchange rates, closing bulletin", "Câmbio PTAX, boletim de fechamento")
            }
            Self::Companies => LocalizedText::new("Company registry", "Cadastro de companhias"),
            Self::Filings => LocalizedText::new("Company filings", "Documentos das companhias"),
            Self::Statements => LocalizedText::new("Financial statements", "Demonstrações financeiras"),
        }
    }

    pub const fn source_name(self) -> &'static str {
        match self {
            Self::Series(_) => "BCB SGS",
            Self::Fx => "BCB PTAX",
            Self::Companies | Self::Filings | Self::Statements => "CVM",
        }
    }

    /// The terms under which its publisher releases it.
    pub const fn license(self) -> License {
        match self {
            Self::Series(series) => series.license,
            Self::Fx | Self::Companies | Self::Filings | Self::Statements => License::OpenDatabase,
        }
    }

    /// The day on which the data after `newest` is expected.
    pub fn next_expected_on(self, newest: NaiveDate) -> NaiveDate {
        match self {
            Self::Series(series) => series.schedule().next_expected_on(newest),
            Self::Fx => FX_SCHEDULE.next_expected_on(newest),
            Self::Companies => newest + Days::new(1),
            Self::Filings | Self::Statements => newest + Days::new(7),
        }
    }

    /// The moment from which the data after `newest` is expected; `None` if its publisher keeps no hour.
    pub fn next_expected_at(self, newest: NaiveDate) -> Option<DateTime<Utc>> {
        match self {
            Self::Series(series) => Some(series.schedule().next_expected_at(newest)),
            Self::Fx => Some(FX_SCHEDULE.next_expected_at(newest)),
            Self::Companies | Self::Filings | Self::Statements => None,
        }
    }

    /// Whether newer data is overdue, given the newest date that we have.
    pub fn is_stale(self, newest: NaiveDate, today: NaiveDate) -> bool {
        match self {
            Self::Series(series) => series.schedule().is_stale(newest, today),
            Self::Fx => FX_SCHEDULE.is_stale(newest, today),
            // These have no date that advances every day, so staleness depends on their loads, not on their rows.
            Self::Companies | Self::Statements => false,
            // CVM rewrites its file weekly, sometimes a week late.
            Self::Filings => (today - newest).num_days() > 14,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dates::parse_date;
    use crate::series;

    #[test]
    fn dataset_ids_round_trip() {
        for dataset in Dataset::all() {
            assert_eq!(Dataset::from_id(dataset.id()), Some(dataset));
        }
    }

    #[test]
    fn the_next_expected_date_follows_the_frequency() {
        let day = |text| parse_date(text).unwrap();
        let dataset = |id| Dataset::from_id(id).unwrap();
        assert_eq!(dataset("selic").next_expected_on(day("2026-11-13")), day("2026-11-14"));
        assert_eq!(dataset("cdi").next_expected_on(day("2026-11-13")), day("2026-11-16"));
        assert_eq!(dataset("cdi").next_expected_on(day("2026-11-19")), day("2026-11-23"));
        assert_eq!(dataset("ipca").next_expected_on(day("2026-10-01")), day("2026-12-10"));
    }

    #[test]
    fn staleness_follows_the_frequency() {
        let day = |text| parse_date(text).unwrap();
        let selic = Dataset::Series(series::find_series("selic").unwrap());
        let ipca = Dataset::Series(series::find_series("ipca").unwrap());

        assert!(!selic.is_stale(day("2026-11-12"), day("2026-11-13")));
        assert!(selic.is_stale(day("2026-11-11"), day("2026-11-13")));
        assert!(!ipca.is_stale(day("2026-10-01"), day("2026-12-15")));
        assert!(ipca.is_stale(day("2026-10-01"), day("2026-12-16")));
        assert!(!Dataset::Filings.is_stale(day("2026-11-01"), day("2026-11-15")));
    }
}
