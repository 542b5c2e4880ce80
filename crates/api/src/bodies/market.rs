//! Rates as JSON and as table rows. Their source is a series or a currency pair, behind one trait ([`RateSource`]).

use std::ops::Range;

use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{CellWriter, Column, OutputTable};
use vintem_domain::dates::month_end;
use vintem_domain::series::{self, Frequency};
use vintem_domain::{CurrencyPair, Dataset, DateRange, Lang, LocalizedText, Problem, Series};
use vintem_snapshot::{PairRates, SeriesValues, Snapshot};
use vintem_store::reader::RowProvenance;

use super::provenance::{TraceBody, provenance_bodies};
use super::require_loaded;
use super::series::{SeriesBody, series_body, series_datasets};
use crate::api_error::ApiError;
use crate::json_number::JsonNumber;

/// The system that all series come from.
const SGS_SOURCE_NAME: &str = "BCB SGS";

/// Decimals of exchange rates: derived rates have eight, published ones no more.
pub const FX_DECIMALS: u32 = 8;

#[derive(Serialize)]
pub struct RateBody {
    pub date: NaiveDate,
    pub value: JsonNumber,
    /// Only present on values that we compute from daily rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    derived: Option<bool>,
    #[serde(flatten)]
    trace: TraceBody,
}

#[derive(Serialize)]
pub struct FxRateBody {
    pub date: NaiveDate,
    pub pair: String,
    buy: JsonNumber,
    pub sell: JsonNumber,
    #[serde(skip_serializing_if = "Option::is_none")]
    derived: Option<bool>,
    #[serde(flatten)]
    trace: TraceBody,
}

/// The value of a day, with its description.
#[derive(Serialize)]
pub struct CurrentRateBody<Row> {
    #[serde(flatten)]
    pub row: Row,
    pub unit: String,
    pub series: SeriesBody,
    pub stale: bool,
}

/// A row of a list, as JSON and as table cells.
pub trait RateRowBody: Serialize + Send + 'static {
    /// In the order of `write_cells`; values have this many decimals.
    fn columns(decimals: u32) -> Vec<Column>;
    fn write_cells(&self, cells: &mut dyn CellWriter);
    fn trace(&self) -> &TraceBody;
}

impl RateRowBody for RateBody {
    fn columns(decimals: u32) -> Vec<Column> {
        vec![Column::date("date"), Column::decimal("value", decimals), Column::boolean("derived")]
    }

    fn write_cells(&self, cells: &mut dyn CellWriter) {
        cells.write_date(Some(self.date));
        cells.write_decimal(Some(self.value.value));
        cells.write_boolean(self.derived.unwrap_or(false));
    }

    fn trace(&self) -> &TraceBody {
        &self.trace
    }
}

impl RateRowBody for FxRateBody {
    fn columns(decimals: u32) -> Vec<Column> {
        vec![
            Column::date("date"),
            Column::text("pair"),
            Column::decimal("buy", decimals),
            Column::decimal("sell", decimals),
            Column::boolean("derived"),
        ]
    }

    fn write_cells(&self, cells: &mut dyn CellWriter) {
        cells.write_date(Some(self.date));
        cells.write_text(&self.pair);
        cells.write_decimal(Some(self.buy.value));
        cells.write_decimal(Some(self.sell.value));
        cells.write_boolean(self.derived.unwrap_or(false));
    }

    fn trace(&self) -> &TraceBody {
        &self.trace
    }
}

/// How rows are rendered.
#[derive(Clone, Copy)]
pub struct RowOptions<'s> {
    pub as_text: bool,
    /// The snapshot that has the provenance, if it was requested.
    pub provenance: Option<&'s Snapshot>,
    /// Whether this is a point-in-time query, whose rows say how we know that they were known then.
    pub with_certainty: bool,
}

/// Rows with one date each, addressed by index, oldest first.
pub trait RateSource {
    type Row: RateRowBody;

    /// The datasets that the rows come from.
    fn datasets(&self) -> Vec<Dataset>;
    fn frequency(&self) -> Frequency;

    /// The generation of another dataset from which single rows may be derived.
    fn base_generation(&self, _: &Snapshot) -> i64 {
        0
    }

    fn describe(&self, lang: Lang) -> SeriesBody;
    /// The most decimals that a value can have.
    fn max_decimals(&self) -> u32;
    /// The indexes of the rows within these days.
    fn row_range(&self, days: DateRange) -> Range<usize>;
    fn row(&self, at: usize, options: RowOptions<'_>) -> Option<Self::Row>;
    /// The fetches that a row comes from, with the time since when we know it.
    fn row_provenances(&self, at: usize) -> Vec<RowProvenance>;
    fn row_date(&self, at: usize) -> Option<NaiveDate>;

    /// The index of the latest row on or before a day.
    fn latest_row_until(&self, until: NaiveDate) -> Option<usize> {
        self.row_range(DateRange::ALL.capped_at(until)).last()
    }

    fn is_updated_since(&self, at: usize, unix_seconds: u32) -> bool {
        self.row_provenances(at).iter().any(|provenance| provenance.known_at_seconds >= unix_seconds)
    }

    /// Whether a newer row is overdue.
    fn is_stale(&self, today: NaiveDate) -> bool {
        let latest_date = self.latest_row_until(today).and_then(|at| self.row_date(at));
        latest_date.is_none_or(|date| self.frequency().is_stale(date, today))
    }

    /// The error if no row matches. It names the date of the first row, if there is one.
    fn no_data_error(&self, today: NaiveDate) -> ApiError {
        let first_date = self.row_range(DateRange::ALL.capped_at(today)).next().and_then(|at| self.row_date(at));
        ApiError(match first_date {
            Some(date) => Problem::NoValueOnOrBefore { first_date: date.to_string() },
            None => Problem::DatasetNotLoaded { dataset: self.datasets()[0].id() },
        })
    }
}

pub struct SeriesSource<'s> {
    pub series: &'static Series,
    pub values: &'s SeriesValues,
}

pub fn series_source<'s>(snapshot: &'s Snapshot, id: &str) -> Result<SeriesSource<'s>, ApiError> {
    let series = series::find_series(id).ok_or(Problem::NoSuchSeries)?;
    let values = snapshot.series(series).ok_or(Problem::DatasetNotLoaded { dataset: series.id })?;
    Ok(SeriesSource { series, values })
}

impl SeriesSource<'_> {
    /// For a computed series: the provenance of the latest input values up to the end of the month.
    fn input_provenances(&self, snapshot: &Snapshot, month: NaiveDate) -> Option<Vec<RowProvenance>> {
        self.series.formula.as_ref()?;
        let latest_provenance = |input: &'static Series| {
            let source = series_source(snapshot, input.id).ok()?;
            source.latest_row_until(month_end(month)).map(|at| source.values.provenance(at))
        };
        Some(self.series.source_series().into_iter().filter_map(latest_provenance).collect())
    }
}

impl RateSource for SeriesSource<'_> {
    type Row = RateBody;

    fn base_generation(&self, snapshot: &Snapshot) -> i64 {
        let base = self.series.gap_fill_series.and_then(series::find_series);
        base.map_or(0, |base| snapshot.generation(Dataset::Series(base)))
    }

    fn datasets(&self) -> Vec<Dataset> {
        series_datasets(self.series)
    }

    fn frequency(&self) -> Frequency {
        self.series.frequency
    }

    fn describe(&self, lang: Lang) -> SeriesBody {
        series_body(self.series, lang)
    }

    fn max_decimals(&self) -> u32 {
        self.series.decimals
    }

    fn row_range(&self, days: DateRange) -> Range<usize> {
        self.values.range(days)
    }

    fn row(&self, at: usize, options: RowOptions<'_>) -> Option<RateBody> {
        let (date, value) = self.values.get(at);
        let derived = (self.series.formula.is_some() || self.values.is_derived(at)).then_some(true);

        let provenance = options.provenance.map(|snapshot| {
            // In a point-in-time query, the current inputs may be newer than the requested day.
            let inputs = if options.with_certainty { None } else { self.input_provenances(snapshot, date) };
            let provenances = inputs.unwrap_or_else(|| self.row_provenances(at));
            provenance_bodies(snapshot, SGS_SOURCE_NAME, &provenances)
        });
        let known = options.with_certainty.then(|| self.values.certainty(at).id());
        let trace = TraceBody { provenance, known };

        Some(RateBody { date, value: JsonNumber { value, as_text: options.as_text }, derived, trace })
    }

    fn row_provenances(&self, at: usize) -> Vec<RowProvenance> {
        vec![self.values.provenance(at)]
    }

    fn row_date(&self, at: usize) -> Option<NaiveDate> {
        Some(self.values.get(at).0)
    }
}

pub struct FxSource<'s> {
    pub pair: CurrencyPair,
    pub rates: PairRates<'s>,
}

pub fn fx_source(snapshot: &Snapshot, pair: CurrencyPair) -> Result<FxSource<'_>, ApiError> {
    Ok(FxSource { pair, rates: require_loaded(snapshot.fx(), Dataset::Fx)?.pair_rates(pair) })
}

impl RateSource for FxSource<'_> {
    type Row = FxRateBody;

    fn datasets(&self) -> Vec<Dataset> {
        vec![Dataset::Fx]
    }

    fn frequency(&self) -> Frequency {
        Frequency::BusinessDaily
    }

    fn describe(&self, lang: Lang) -> SeriesBody {
        let pair = self.pair.to_string();
        let (base, quote) = pair.split_at(3);
        let per = LocalizedText::new("per", "por").in_lang(lang);

        SeriesBody {
            id: Dataset::Fx.id(),
            source: Dataset::Fx.source_name(),
            unit: format!("{} {per} {base}", &quote[1..]),
            name: Dataset::Fx.name().in_lang(lang),
            basis: LocalizedText::new("closing bulletin", "boletim de fechamento").in_lang(lang),
            frequency: self.frequency().id(),
            derived: self.pair.is_derived().then_some(true),
            formula: None,
            code: pair,
        }
    }

    fn max_decimals(&self) -> u32 {
        FX_DECIMALS
    }

    fn row_range(&self, days: DateRange) -> Range<usize> {
        self.rates.range(days)
    }

    fn row_provenances(&self, at: usize) -> Vec<RowProvenance> {
        self.rates.provenances(at)
    }

    fn row(&self, at: usize, options: RowOptions<'_>) -> Option<FxRateBody> {
        let (date, quote) = self.rates.get(at)?;
        let number = |value| JsonNumber { value, as_text: options.as_text };
        let provenances = self.rates.provenances(at);
        let provenance =
            options.provenance.map(|snapshot| provenance_bodies(snapshot, Dataset::Fx.source_name(), &provenances));
        let derived = self.pair.is_derived().then_some(true);

        Some(FxRateBody {
            date,
            pair: self.pair.to_string(),
            buy: number(quote.buy),
            sell: number(quote.sell),
            derived,
            trace: TraceBody { provenance, known: options.with_certainty.then(|| self.rates.certainty(at).id()) },
        })
    }

    fn row_date(&self, at: usize) -> Option<NaiveDate> {
        self.rates.get(at).map(|(date, _)| date)
    }
}

/// Rows of one series. The unit and the series code repeat on every row, because a CSV file has no other place for
/// them.
pub fn rate_table<Row: RateRowBody>(
    series: SeriesBody,
    decimals: u32,
    rows: Vec<Row>,
    trace_columns: Vec<Column>,
) -> OutputTable {
    let columns = [Row::columns(decimals), vec![Column::text("unit"), Column::text("series")], trace_columns].concat();
    OutputTable::from_rows(series.id, columns, rows, move |row, cells| {
        row.write_cells(cells);
        cells.write_text(&series.unit);
        cells.write_text(&series.code);
        row.trace().write_cells(cells);
    })
}

/// The value of exactly this day, in the shape of a current value.
pub fn rate_on_day<S: RateSource>(source: &S, day: NaiveDate, today: NaiveDate) -> Option<impl Serialize + use<S>> {
    let options = RowOptions { as_text: false, provenance: None, with_certainty: false };
    let row = source.row(source.row_range(DateRange { from: day, to: day }).next()?, options)?;
    let series = source.describe(Lang::En);
    Some(CurrentRateBody { row, unit: series.unit.clone(), series, stale: source.is_stale(today) })
}
