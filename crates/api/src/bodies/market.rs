//! Rates as JSON and as table rows. Their source is a series or a currency pair, behind one trait ([`RateSource`]).

use std::borrow::Cow;
use std::ops::Range;

use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{CellWriter, Column, OutputTable};
use vintem_domain::dates::month_end;
use vintem_domain::fx::BRL_START_DATE;
use vintem_domain::series::{self, DatedValue, FX_SCHEDULE, Schedule, Shape};
use vintem_domain::{CurrencyPair, Dataset, DateRange, Lang, LocalizedText, Problem, Series};
use vintem_snapshot::{FxRates, PairRates, SeriesValues, Snapshot};
use vintem_store::change_id::ChangeId;
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
    /// The day until which the rate counts. Only present in series of such rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    period_end: Option<NaiveDate>,
    /// Only present on values that we compute from daily rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    derived: Option<bool>,
    /// Only present on values that may still grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    provisional: Option<bool>,
    /// Only present on values that do not agree with other data.
    #[serde(skip_serializing_if = "Option::is_none")]
    disputed: Option<bool>,
    #[serde(flatten)]
    trace: TraceBody,
}

#[derive(Serialize)]
pub struct FxRateBody {
    pub date: NaiveDate,
    pub pair: String,
    pub buy: JsonNumber,
    pub sell: JsonNumber,
    #[serde(skip_serializing_if = "Option::is_none")]
    derived: Option<bool>,
    /// As in [`RateBody`]; also on rates that are computed from such a rate or parity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disputed: Option<bool>,
    #[serde(flatten)]
    pub trace: TraceBody,
}

/// Which series an answer is about.
#[derive(Serialize)]
pub struct SeriesHeaderBody {
    /// The id in the catalog. Inverses and crosses have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    series_id: Option<&'static str>,
    unit_code: Cow<'static, str>,
    series: SeriesBody,
}

impl SeriesHeaderBody {
    pub fn of<S: RateSource>(source: &S, lang: Lang) -> Self {
        let series = source.describe(lang);
        Self { series_id: source.series_id(), unit_code: series.unit_code.clone(), series }
    }
}

/// The value of a day, with its description.
#[derive(Serialize)]
pub struct CurrentRateBody<Row> {
    #[serde(flatten)]
    pub row: Row,
    pub unit: String,
    #[serde(flatten)]
    pub series: SeriesHeaderBody,
    pub stale: bool,
}

/// A row of a list, as JSON and as table cells.
pub trait RateRowBody: Serialize + Send + 'static {
    /// In the order of `write_cells`; values have this many decimals.
    fn columns(decimals: u32) -> Vec<Column>;
    fn write_cells(&self, cells: &mut dyn CellWriter);
    fn trace(&self) -> &TraceBody;

    /// Writes the cells of [`shape_columns`], which are the last ones of a row.
    fn write_shape_cells(&self, _: Shape, _: &mut dyn CellWriter) {}
}

/// The columns that only series of this shape have.
fn shape_columns(shape: Shape) -> Vec<Column> {
    match shape {
        Shape::Period => vec![Column::date("period_end")],
        Shape::RunningMonth => vec![Column::boolean("provisional")],
        Shape::Value | Shape::Reestimated => Vec::new(),
    }
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

    fn write_shape_cells(&self, shape: Shape, cells: &mut dyn CellWriter) {
        match shape {
            Shape::Period => cells.write_date(self.period_end),
            Shape::RunningMonth => cells.write_boolean(self.provisional.unwrap_or(false)),
            Shape::Value | Shape::Reestimated => {}
        }
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
    /// Whether this is a point-in-time query. Its rows say how we know that they were public on that day.
    pub with_certainty: bool,
}

/// Rows with one date each, addressed by index, oldest first.
pub trait RateSource {
    type Row: RateRowBody;

    /// The datasets that the rows come from.
    fn datasets(&self) -> Vec<Dataset>;
    fn schedule(&self) -> Schedule;

    fn shape(&self) -> Shape {
        Shape::Value
    }

    /// The load of another dataset from which single rows may be derived.
    fn base_load_id(&self, _: &Snapshot) -> Option<ChangeId> {
        None
    }

    fn describe(&self, lang: Lang) -> SeriesBody;
    /// The id in the catalog. Inverses and crosses have none.
    fn series_id(&self) -> Option<&'static str>;
    /// The most decimals that a value can have.
    fn max_decimals(&self) -> u32;
    /// The indexes of the rows within these days.
    fn row_range(&self, days: DateRange) -> Range<usize>;
    fn row(&self, at: usize, options: RowOptions<'_>) -> Option<Self::Row>;
    /// The fetches that a row comes from, with the time since when we know it.
    fn row_provenances(&self, at: usize) -> Vec<RowProvenance>;
    /// The date and the value of a row; for exchange rates, the sell rate.
    fn value(&self, at: usize) -> Option<DatedValue>;

    fn row_date(&self, at: usize) -> Option<NaiveDate> {
        self.value(at).map(|(date, _)| date)
    }

    /// The index of the latest row on or before a day.
    fn latest_row_until(&self, until: NaiveDate) -> Option<usize> {
        self.row_range(DateRange::ALL.capped_at(until)).last()
    }

    fn is_updated_since(&self, at: usize, unix_seconds: u32) -> bool {
        self.row_provenances(at).iter().any(|provenance| provenance.known_at_seconds >= unix_seconds)
    }

    /// Explains why a range has no rows, if it can't have any.
    fn empty_range_message(&self, _: DateRange) -> Option<LocalizedText> {
        None
    }

    /// Whether a newer row is overdue.
    fn is_stale(&self, today: NaiveDate) -> bool {
        let latest_date = self.latest_row_until(today).and_then(|at| self.row_date(at));
        latest_date.is_none_or(|date| self.schedule().is_stale(date, today))
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
        Some(series::source_series(self.series).into_iter().filter_map(latest_provenance).collect())
    }
}

impl RateSource for SeriesSource<'_> {
    type Row = RateBody;

    fn base_load_id(&self, snapshot: &Snapshot) -> Option<ChangeId> {
        let base = self.series.gap_fill_series.and_then(series::find_series)?;
        snapshot.load_id(Dataset::Series(base))
    }

    fn datasets(&self) -> Vec<Dataset> {
        series_datasets(self.series)
    }

    fn schedule(&self) -> Schedule {
        self.series.schedule()
    }

    fn shape(&self) -> Shape {
        self.series.shape
    }

    fn describe(&self, lang: Lang) -> SeriesBody {
        series_body(self.series, lang)
    }

    fn series_id(&self) -> Option<&'static str> {
        Some(self.series.id)
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

        Some(RateBody {
            date,
            value: JsonNumber { value, as_text: options.as_text },
            period_end: self.values.period_end(at),
            derived,
            provisional: self.values.is_provisional(at).then_some(true),
            disputed: self.values.is_disputed(at).then_some(true),
            trace,
        })
    }

    fn row_provenances(&self, at: usize) -> Vec<RowProvenance> {
        vec![self.values.provenance(at)]
    }

    fn value(&self, at: usize) -> Option<DatedValue> {
        Some(self.values.get(at))
    }
}

const BEFORE_THE_REAL: LocalizedText = LocalizedText::new(
    "Rates in BRL begin on 1994-07-01, the first day of the real. Earlier bulletins, in the currency of the time, are \
     at /api/v1/market/fx/bulletins.",
    "As cotações em BRL começam em 1994-07-01, o primeiro dia do real. Os boletins anteriores, na moeda da época, \
     estão em /api/v1/market/fx/bulletins.",
);

pub struct FxSource<'s> {
    pub pair: CurrencyPair,
    pub rates: PairRates<'s>,
}

pub fn fx_source(snapshot: &Snapshot, pair: CurrencyPair) -> Result<FxSource<'_>, ApiError> {
    Ok(FxSource { pair, rates: require_loaded(snapshot.fx(), Dataset::Fx)?.pair_rates(pair) })
}

impl<'s> FxSource<'s> {
    /// The same pair, from historical rates if they were loaded.
    pub fn with_historical_rates(self, historical: Option<&'s FxRates>) -> Self {
        match historical {
            Some(rates) => Self { pair: self.pair, rates: rates.pair_rates(self.pair) },
            None => self,
        }
    }
}

/// Describes a pair for responses with its rates.
pub(super) fn pair_body(pair: CurrencyPair, lang: Lang) -> SeriesBody {
    let (base, quote) = pair.codes();
    let per = LocalizedText::new("per", "por").in_lang(lang);

    SeriesBody {
        id: Dataset::Fx.id(),
        source: Dataset::Fx.source_name(),
        unit: format!("{quote} {per} {base}"),
        unit_code: pair.unit_code().into(),
        name: Dataset::Fx.name().in_lang(lang),
        basis: LocalizedText::new("closing bulletin", "boletim de fechamento").in_lang(lang),
        frequency: FX_SCHEDULE.frequency.id(),
        derived: pair.is_derived().then_some(true),
        formula: None,
        code: pair.to_string(),
    }
}

impl RateSource for FxSource<'_> {
    type Row = FxRateBody;

    fn datasets(&self) -> Vec<Dataset> {
        vec![Dataset::Fx]
    }

    fn schedule(&self) -> Schedule {
        FX_SCHEDULE
    }

    fn describe(&self, lang: Lang) -> SeriesBody {
        pair_body(self.pair, lang)
    }

    fn series_id(&self) -> Option<&'static str> {
        self.pair.series_id()
    }

    fn max_decimals(&self) -> u32 {
        FX_DECIMALS
    }

    fn empty_range_message(&self, days: DateRange) -> Option<LocalizedText> {
        (days.to < BRL_START_DATE).then_some(BEFORE_THE_REAL)
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
            disputed: self.rates.is_disputed(at).then_some(true),
            trace: TraceBody { provenance, known: options.with_certainty.then(|| self.rates.certainty(at).id()) },
        })
    }

    fn value(&self, at: usize) -> Option<DatedValue> {
        self.rates.get(at).map(|(date, quote)| (date, quote.sell))
    }
}

/// Rows of one series. The series and its unit repeat on every row, because a CSV file has no other place for them.
pub fn rate_table<Row: RateRowBody>(
    series: SeriesBody,
    series_id: Option<&'static str>,
    (decimals, shape): (u32, Shape),
    rows: Vec<Row>,
    trace_columns: Vec<Column>,
) -> OutputTable {
    let series_columns = vec![Column::text("unit"), Column::text("series")];
    let id_columns = vec![Column::text("series_id"), Column::text("unit_code")];
    let columns = [Row::columns(decimals), series_columns, trace_columns, id_columns, shape_columns(shape)].concat();
    OutputTable::from_rows(series.id, columns, rows, move |row, cells| {
        row.write_cells(cells);
        cells.write_text(&series.unit);
        cells.write_text(&series.code);
        row.trace().write_cells(cells);
        cells.write_text(series_id.unwrap_or(""));
        cells.write_text(&series.unit_code);
        row.write_shape_cells(shape, cells);
    })
}

pub fn current_rate_body<S: RateSource>(
    source: &S,
    row: S::Row,
    lang: Lang,
    today: NaiveDate,
) -> CurrentRateBody<S::Row> {
    let series = SeriesHeaderBody::of(source, lang);
    CurrentRateBody { row, unit: series.series.unit.clone(), series, stale: source.is_stale(today) }
}

/// The value of exactly this day, in the shape of a current value.
pub fn rate_on_day<S: RateSource>(source: &S, day: NaiveDate, today: NaiveDate) -> Option<impl Serialize + use<S>> {
    let options = RowOptions { as_text: false, provenance: None, with_certainty: false };
    let row = source.row(source.row_range(DateRange { from: day, to: day }).next()?, options)?;
    Some(current_rate_body(source, row, Lang::En, today))
}
