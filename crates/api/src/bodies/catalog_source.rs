//! Any series of the catalog: one of the central bank, one that we compute, or an exchange rate in reais.

use std::ops::Range;

use chrono::NaiveDate;
use vintem_domain::series::{DatedValue, Schedule};
use vintem_domain::{Currency, Dataset, DateRange, Lang};
use vintem_snapshot::Snapshot;
use vintem_store::change_id::ChangeId;

use super::fx_series::{FxSeriesSource, fx_series_source};
use super::market::{RateSource, SeriesSource, series_source};
use super::series::SeriesBody;
use crate::api_error::ApiError;

pub enum CatalogSource<'s> {
    Series(SeriesSource<'s>),
    Fx(FxSeriesSource<'s>),
}

impl<'s> CatalogSource<'s> {
    pub fn find(snapshot: &'s Snapshot, id: &str) -> Result<Self, ApiError> {
        match Currency::from_series_id(id) {
            Some(currency) => fx_series_source(snapshot, currency).map(Self::Fx),
            None => series_source(snapshot, id).map(Self::Series),
        }
    }

    pub fn id(&self) -> &'static str {
        match self {
            Self::Series(source) => source.series.id,
            Self::Fx(source) => source.currency.series_id(),
        }
    }

    pub fn describe(&self, lang: Lang) -> SeriesBody {
        match self {
            Self::Series(source) => source.describe(lang),
            Self::Fx(source) => source.describe(lang),
        }
    }

    pub fn datasets(&self) -> Vec<Dataset> {
        match self {
            Self::Series(source) => source.datasets(),
            Self::Fx(source) => source.datasets(),
        }
    }

    pub fn base_load_id(&self, snapshot: &Snapshot) -> Option<ChangeId> {
        match self {
            Self::Series(source) => source.base_load_id(snapshot),
            Self::Fx(source) => source.base_load_id(snapshot),
        }
    }

    pub fn schedule(&self) -> Schedule {
        match self {
            Self::Series(source) => source.schedule(),
            Self::Fx(source) => source.schedule(),
        }
    }

    pub fn max_decimals(&self) -> u32 {
        match self {
            Self::Series(source) => source.max_decimals(),
            Self::Fx(source) => source.max_decimals(),
        }
    }

    pub fn row_range(&self, days: DateRange) -> Range<usize> {
        match self {
            Self::Series(source) => source.row_range(days),
            Self::Fx(source) => source.row_range(days),
        }
    }

    pub fn value(&self, at: usize) -> Option<DatedValue> {
        match self {
            Self::Series(source) => source.value(at),
            Self::Fx(source) => source.value(at),
        }
    }

    /// The latest value on or before a day.
    pub fn latest_value_until(&self, day: NaiveDate) -> Option<DatedValue> {
        self.value(self.row_range(DateRange::ALL.capped_at(day)).last()?)
    }

    /// The days of the rows in a range, in order.
    pub fn dates(&self, days: DateRange) -> impl Iterator<Item = NaiveDate> {
        self.row_range(days).filter_map(|at| self.value(at)).map(|(date, _)| date)
    }

    /// The first and last dates with a value, up to today.
    pub fn first_and_last_date(&self, today: NaiveDate) -> (Option<NaiveDate>, Option<NaiveDate>) {
        let rows = self.row_range(DateRange::ALL.capped_at(today));
        let date = |at: Option<usize>| at.and_then(|at| self.value(at)).map(|(date, _)| date);
        (date(rows.clone().next()), date(rows.last()))
    }
}
