//! Exchange rates in reais as series of the catalog: the value is the sell rate, the buy rate is beside it.

use std::ops::Range;

use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{CellWriter, Column};
use vintem_domain::series::{DatedValue, Schedule};
use vintem_domain::{Currency, CurrencyPair, Dataset, DateRange, Lang, LocalizedText};
use vintem_snapshot::Snapshot;
use vintem_store::reader::RowProvenance;

use super::market::{FxRateBody, FxSource, RateRowBody, RateSource, RowOptions, fx_source, pair_body};
use super::provenance::TraceBody;
use super::series::SeriesBody;
use crate::api_error::ApiError;
use crate::json_number::JsonNumber;

/// The rates of one day.
#[derive(Serialize)]
pub struct FxSeriesRateBody {
    pub date: NaiveDate,
    pub value: JsonNumber,
    buy: JsonNumber,
    #[serde(skip_serializing_if = "Option::is_none")]
    disputed: Option<bool>,
    #[serde(flatten)]
    trace: TraceBody,
}

impl RateRowBody for FxSeriesRateBody {
    fn columns(decimals: u32) -> Vec<Column> {
        vec![Column::date("date"), Column::decimal("value", decimals), Column::decimal("buy", decimals)]
    }

    fn write_cells(&self, cells: &mut dyn CellWriter) {
        cells.write_date(Some(self.date));
        cells.write_decimal(Some(self.value.value));
        cells.write_decimal(Some(self.buy.value));
    }

    fn trace(&self) -> &TraceBody {
        &self.trace
    }
}

pub struct FxSeriesSource<'s> {
    pub currency: Currency,
    pub fx: FxSource<'s>,
}

pub fn fx_series_source(snapshot: &Snapshot, currency: Currency) -> Result<FxSeriesSource<'_>, ApiError> {
    Ok(FxSeriesSource { currency, fx: fx_source(snapshot, CurrencyPair::Published(currency))? })
}

impl RateSource for FxSeriesSource<'_> {
    type Row = FxSeriesRateBody;

    fn datasets(&self) -> Vec<Dataset> {
        self.fx.datasets()
    }

    fn schedule(&self) -> Schedule {
        self.fx.schedule()
    }

    fn describe(&self, lang: Lang) -> SeriesBody {
        fx_series_body(self.currency, lang)
    }

    fn series_id(&self) -> Option<&'static str> {
        self.fx.series_id()
    }

    fn max_decimals(&self) -> u32 {
        self.fx.max_decimals()
    }

    fn row_range(&self, days: DateRange) -> Range<usize> {
        self.fx.row_range(days)
    }

    fn empty_range_message(&self, days: DateRange) -> Option<LocalizedText> {
        self.fx.empty_range_message(days)
    }

    fn row(&self, at: usize, options: RowOptions<'_>) -> Option<FxSeriesRateBody> {
        let FxRateBody { date, buy, sell, disputed, trace, .. } = self.fx.row(at, options)?;
        Some(FxSeriesRateBody { date, value: sell, buy, disputed, trace })
    }

    fn row_provenances(&self, at: usize) -> Vec<RowProvenance> {
        self.fx.row_provenances(at)
    }

    fn value(&self, at: usize) -> Option<DatedValue> {
        self.fx.value(at)
    }
}

/// Describes the rates of a currency in reais as a series of the catalog.
pub fn fx_series_body(currency: Currency, lang: Lang) -> SeriesBody {
    let name = currency.series_name().in_lang(lang);
    SeriesBody { id: currency.series_id(), name, ..pair_body(CurrencyPair::Published(currency), lang) }
}
