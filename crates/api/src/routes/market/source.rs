//! What lists and values are made from: a series, or a pair of currencies.

use std::ops::Range;

use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{CellWriter, Column};
use vintem_domain::dates::month_end;
use vintem_domain::series::{self, Frequency};
use vintem_domain::{CurrencyPair, Dataset, DateRange, Lang, LocalizedText, Problem, Series};
use vintem_snapshot::{PairRates, SeriesValues, Snapshot};
use vintem_store::reader::RowProvenance;

use crate::api_error::ApiError;
use crate::json_number::JsonNumber;
use crate::routes::provenance::{TraceBody, provenance_bodies};
use crate::routes::require_loaded;

/// The system that all series come from.
const SGS_SOURCE_NAME: &str = "BCB SGS";

/// Of exchange rates: those that we compute have as many, and published ones no more.
pub const FX_DECIMALS: u32 = 8;

/// Which series it is, so that nobody has to guess.
#[derive(Serialize)]
pub struct SeriesBody {
    pub id: &'static str,
    source: &'static str,
    pub code: String,
    name: &'static str,
    pub unit: String,
    basis: &'static str,
    frequency: &'static str,
    /// Only where it is so: computed by us.
    #[serde(skip_serializing_if = "Option::is_none")]
    derived: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    formula: Option<&'static str>,
}

impl SeriesBody {
    /// In the order of the cells.
    pub const COLUMNS: [Column; 9] = [
        Column::text("id"),
        Column::text("source"),
        Column::text("code"),
        Column::text("name"),
        Column::text("unit"),
        Column::text("basis"),
        Column::text("frequency"),
        Column::boolean("derived"),
        Column::text("formula"),
    ];

    pub fn write_cells(&self, cells: &mut dyn CellWriter) {
        cells.write_text(self.id);
        cells.write_text(self.source);
        cells.write_text(&self.code);
        cells.write_text(self.name);
        cells.write_text(&self.unit);
        cells.write_text(self.basis);
        cells.write_text(self.frequency);
        cells.write_boolean(self.derived.unwrap_or(false));
        cells.write_text(self.formula.unwrap_or(""));
    }
}

#[derive(Serialize)]
pub struct RateBody {
    pub date: NaiveDate,
    pub value: JsonNumber,
    /// Only where it is so: computed from daily rates.
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

/// A row of a list, as JSON and as cells.
pub trait RateRowBody: Serialize + Send + 'static {
    /// In the order of the cells, values with so many decimals.
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

/// How rows are shown.
#[derive(Clone, Copy)]
pub struct RowOptions<'s> {
    pub as_text: bool,
    /// What knows where they come from, where that is asked for.
    pub provenance: Option<&'s Snapshot>,
    /// Whether they are those of a day, with how we know that they could be known then.
    pub with_certainty: bool,
}

/// Rows with a day each.
pub trait RateSource {
    type Row: RateRowBody;

    /// Those that the rows are made of.
    fn datasets(&self) -> Vec<Dataset>;
    fn frequency(&self) -> Frequency;

    /// That of a further dataset from which single rows may follow.
    fn base_generation(&self, _: &Snapshot) -> i64 {
        0
    }

    fn describe(&self, lang: Lang) -> SeriesBody;
    /// How many decimals its values have at most.
    fn max_decimals(&self) -> u32;
    /// The places of the rows within these days, oldest first.
    fn row_range(&self, days: DateRange) -> Range<usize>;
    fn row(&self, at: usize, shown: RowOptions<'_>) -> Option<Self::Row>;
    /// Since when we know a row.
    fn first_known(&self, at: usize) -> Vec<RowProvenance>;
    fn row_date(&self, at: usize) -> Option<NaiveDate>;

    /// The place of the newest row until a day.
    fn latest_row_until(&self, until: NaiveDate) -> Option<usize> {
        self.row_range(DateRange::ALL.capped_at(until)).last()
    }

    fn is_updated_since(&self, at: usize, second: u32) -> bool {
        self.first_known(at).iter().any(|known| known.known_at_seconds >= second)
    }

    /// Whether a newer row is overdue.
    fn is_stale(&self, today: NaiveDate) -> bool {
        let newest = self.latest_row_until(today).and_then(|at| self.row_date(at));
        newest.is_none_or(|newest| self.frequency().is_stale(newest, today))
    }

    /// What is answered where there is no row until a day: when the first one is, if there is any.
    fn no_data_error(&self, today: NaiveDate) -> ApiError {
        let first = self.row_range(DateRange::ALL.capped_at(today)).next().and_then(|at| self.row_date(at));
        ApiError(match first {
            Some(first) => Problem::NoValueOnOrBefore { first_date: first.to_string() },
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

/// The datasets that a series is made of.
pub fn series_datasets(series: &Series) -> Vec<Dataset> {
    series.source_series().into_iter().map(Dataset::Series).collect()
}

pub fn series_body(series: &'static Series, lang: Lang) -> SeriesBody {
    SeriesBody {
        id: series.id,
        source: series.sgs_code.map_or("Vintém", |_| Dataset::Series(series).source_name()),
        code: series.sgs_code.map_or_else(|| series.id.to_owned(), |code| code.to_string()),
        name: series.name.in_lang(lang),
        unit: series.unit.in_lang(lang).to_owned(),
        basis: series.basis.in_lang(lang),
        frequency: series.frequency.id(),
        derived: series.formula.is_some().then_some(true),
        formula: series.formula.as_ref().map(|formula| formula.description.in_lang(lang)),
    }
}

impl SeriesSource<'_> {
    /// Of a computed series: the newest values that a month's follows from.
    fn inputs_first_known(&self, snapshot: &Snapshot, month: NaiveDate) -> Option<Vec<RowProvenance>> {
        self.series.formula.as_ref()?;
        let newest = |input: &'static Series| {
            let source = series_source(snapshot, input.id).ok()?;
            source.latest_row_until(month_end(month)).map(|at| source.values.provenance(at))
        };
        Some(self.series.source_series().into_iter().filter_map(newest).collect())
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

    fn row(&self, at: usize, shown: RowOptions<'_>) -> Option<RateBody> {
        let (date, value) = self.values.get(at);
        let derived = (self.series.formula.is_some() || self.values.is_derived(at)).then_some(true);
        let provenance = shown.provenance.map(|snapshot| {
            // What is served now may have come later than the day that is asked for.
            let inputs = if shown.with_certainty { None } else { self.inputs_first_known(snapshot, date) };
            let known = inputs.unwrap_or_else(|| self.first_known(at));
            provenance_bodies(snapshot, SGS_SOURCE_NAME, &known)
        });
        let known = shown.with_certainty.then(|| self.values.certainty(at).id());
        let trace = TraceBody { provenance, known };
        Some(RateBody { date, value: JsonNumber { value, as_text: shown.as_text }, derived, trace })
    }

    fn first_known(&self, at: usize) -> Vec<RowProvenance> {
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

    fn first_known(&self, at: usize) -> Vec<RowProvenance> {
        self.rates.provenances(at)
    }

    fn row(&self, at: usize, shown: RowOptions<'_>) -> Option<FxRateBody> {
        let (date, quote) = self.rates.get(at)?;
        let number = |value| JsonNumber { value, as_text: shown.as_text };
        let known = self.rates.provenances(at);
        let provenance =
            shown.provenance.map(|snapshot| provenance_bodies(snapshot, Dataset::Fx.source_name(), &known));
        let derived = self.pair.is_derived().then_some(true);
        Some(FxRateBody {
            date,
            pair: self.pair.to_string(),
            buy: number(quote.buy),
            sell: number(quote.sell),
            derived,
            trace: TraceBody { provenance, known: shown.with_certainty.then(|| self.rates.certainty(at).id()) },
        })
    }

    fn row_date(&self, at: usize) -> Option<NaiveDate> {
        self.rates.get(at).map(|(date, _)| date)
    }
}
