//! What lists and values are made from: a series, or a pair of currencies.

use std::ops::Range;

use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{Cells, Column};
use vintem_domain::dates::month_end;
use vintem_domain::series::{self, Frequency};
use vintem_domain::{Dataset, DateRange, Lang, Pair, Problem, Series, Text};
use vintem_snapshot::{PairRates, SeriesValues, Snapshot};
use vintem_store::read::Known;

use crate::number::Number;
use crate::problem::Refusal;
use crate::routes::loaded;
use crate::routes::provenance::{TraceBody, provenance};

/// The system that all series come from.
const SGS: &str = "BCB SGS";

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
        Column::flag("derived"),
        Column::text("formula"),
    ];

    pub fn write(&self, cells: &mut dyn Cells) {
        cells.text(self.id);
        cells.text(self.source);
        cells.text(&self.code);
        cells.text(self.name);
        cells.text(&self.unit);
        cells.text(self.basis);
        cells.text(self.frequency);
        cells.flag(self.derived.unwrap_or(false));
        cells.text(self.formula.unwrap_or(""));
    }
}

#[derive(Serialize)]
pub struct RateBody {
    pub date: NaiveDate,
    pub value: Number,
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
    buy: Number,
    pub sell: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    derived: Option<bool>,
    #[serde(flatten)]
    trace: TraceBody,
}

/// A row of a list, as JSON and as cells.
pub trait RowBody: Serialize + Send + 'static {
    /// In the order of the cells, values with so many decimals.
    fn columns(decimals: u32) -> Vec<Column>;
    fn write(&self, cells: &mut dyn Cells);
    fn trace(&self) -> &TraceBody;
}

impl RowBody for RateBody {
    fn columns(decimals: u32) -> Vec<Column> {
        vec![Column::day("date"), Column::decimal("value", decimals), Column::flag("derived")]
    }

    fn write(&self, cells: &mut dyn Cells) {
        cells.day(Some(self.date));
        cells.decimal(Some(self.value.value));
        cells.flag(self.derived.unwrap_or(false));
    }

    fn trace(&self) -> &TraceBody {
        &self.trace
    }
}

impl RowBody for FxRateBody {
    fn columns(decimals: u32) -> Vec<Column> {
        vec![
            Column::day("date"),
            Column::text("pair"),
            Column::decimal("buy", decimals),
            Column::decimal("sell", decimals),
            Column::flag("derived"),
        ]
    }

    fn write(&self, cells: &mut dyn Cells) {
        cells.day(Some(self.date));
        cells.text(&self.pair);
        cells.decimal(Some(self.buy.value));
        cells.decimal(Some(self.sell.value));
        cells.flag(self.derived.unwrap_or(false));
    }

    fn trace(&self) -> &TraceBody {
        &self.trace
    }
}

/// How rows are shown.
#[derive(Clone, Copy)]
pub struct Shown<'s> {
    pub as_text: bool,
    /// What knows where they come from, where that is asked for.
    pub provenance: Option<&'s Snapshot>,
    /// Whether they are those of a day, with how we know that they could be known then.
    pub certainty: bool,
}

/// Rows with a day each.
pub trait Source {
    type Row: RowBody;

    /// Those that the rows are made of.
    fn datasets(&self) -> Vec<Dataset>;
    fn frequency(&self) -> Frequency;

    /// That of a further dataset from which single rows may follow.
    fn further_generation(&self, _: &Snapshot) -> i64 {
        0
    }

    fn describe(&self, lang: Lang) -> SeriesBody;
    /// How many decimals its values have at most.
    fn decimals(&self) -> u32;
    /// The places of the rows within these days, oldest first.
    fn range(&self, days: DateRange) -> Range<usize>;
    fn row(&self, at: usize, shown: Shown<'_>) -> Option<Self::Row>;
    /// Since when we know a row.
    fn known(&self, at: usize) -> Vec<Known>;
    fn date(&self, at: usize) -> Option<NaiveDate>;

    /// The place of the newest row until a day.
    fn newest(&self, until: NaiveDate) -> Option<usize> {
        self.range(DateRange::ALL.until(until)).last()
    }

    fn is_known_since(&self, at: usize, second: u32) -> bool {
        self.known(at).iter().any(|known| known.at >= second)
    }

    /// Whether a newer row is overdue.
    fn is_stale(&self, today: NaiveDate) -> bool {
        let newest = self.newest(today).and_then(|at| self.date(at));
        newest.is_none_or(|newest| self.frequency().is_stale(newest, today))
    }

    /// What is answered where there is no row until a day: when the first one is, if there is any.
    fn nothing_until(&self, today: NaiveDate) -> Refusal {
        let first = self.range(DateRange::ALL.until(today)).next().and_then(|at| self.date(at));
        Refusal(match first {
            Some(first) => Problem::NothingUntil { first: first.to_string() },
            None => Problem::NeverLoaded { dataset: self.datasets()[0].id() },
        })
    }
}

pub struct SeriesSource<'s> {
    pub series: &'static Series,
    pub values: &'s SeriesValues,
}

pub fn series_source<'s>(snapshot: &'s Snapshot, id: &str) -> Result<SeriesSource<'s>, Refusal> {
    let series = series::by_id(id).ok_or(Problem::NoSuchSeries)?;
    let values = snapshot.series(series).ok_or(Problem::NeverLoaded { dataset: series.id })?;
    Ok(SeriesSource { series, values })
}

/// The datasets that a series is made of.
pub fn datasets_of(series: &Series) -> Vec<Dataset> {
    series.made_of().into_iter().map(Dataset::Series).collect()
}

pub fn describe(series: &'static Series, lang: Lang) -> SeriesBody {
    SeriesBody {
        id: series.id,
        source: series.code.map_or("Vintém", |_| Dataset::Series(series).source()),
        code: series.code.map_or_else(|| series.id.to_owned(), |code| code.to_string()),
        name: series.name.in_lang(lang),
        unit: series.unit.in_lang(lang).to_owned(),
        basis: series.basis.in_lang(lang),
        frequency: series.frequency.id(),
        derived: series.formula.is_some().then_some(true),
        formula: series.formula.as_ref().map(|formula| formula.text.in_lang(lang)),
    }
}

impl SeriesSource<'_> {
    /// Of a computed series: the newest values that a month's follows from.
    fn inputs(&self, snapshot: &Snapshot, month: NaiveDate) -> Option<Vec<Known>> {
        self.series.formula.as_ref()?;
        let newest = |input: &'static Series| {
            let source = series_source(snapshot, input.id).ok()?;
            source.newest(month_end(month)).map(|at| source.values.known(at))
        };
        Some(self.series.made_of().into_iter().filter_map(newest).collect())
    }
}

impl Source for SeriesSource<'_> {
    type Row = RateBody;

    fn further_generation(&self, snapshot: &Snapshot) -> i64 {
        let base = self.series.derived_from.and_then(series::by_id);
        base.map_or(0, |base| snapshot.generation(Dataset::Series(base)))
    }

    fn datasets(&self) -> Vec<Dataset> {
        datasets_of(self.series)
    }

    fn frequency(&self) -> Frequency {
        self.series.frequency
    }

    fn describe(&self, lang: Lang) -> SeriesBody {
        describe(self.series, lang)
    }

    fn decimals(&self) -> u32 {
        self.series.decimals
    }

    fn range(&self, days: DateRange) -> Range<usize> {
        self.values.range(days)
    }

    fn row(&self, at: usize, shown: Shown<'_>) -> Option<RateBody> {
        let (date, value) = self.values.get(at);
        let derived = (self.series.formula.is_some() || self.values.is_derived(at)).then_some(true);
        let provenance = shown.provenance.map(|snapshot| {
            // What is served now may have come later than the day that is asked for.
            let inputs = if shown.certainty { None } else { self.inputs(snapshot, date) };
            let known = inputs.unwrap_or_else(|| self.known(at));
            provenance(snapshot, SGS, &known)
        });
        let known = shown.certainty.then(|| self.values.certainty(at).id());
        let trace = TraceBody { provenance, known };
        Some(RateBody { date, value: Number { value, as_text: shown.as_text }, derived, trace })
    }

    fn known(&self, at: usize) -> Vec<Known> {
        vec![self.values.known(at)]
    }

    fn date(&self, at: usize) -> Option<NaiveDate> {
        Some(self.values.get(at).0)
    }
}

pub struct FxSource<'s> {
    pub pair: Pair,
    pub rates: PairRates<'s>,
}

pub fn fx_source(snapshot: &Snapshot, pair: Pair) -> Result<FxSource<'_>, Refusal> {
    Ok(FxSource { pair, rates: loaded(snapshot.fx(), Dataset::Fx)?.pair(pair) })
}

impl Source for FxSource<'_> {
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
        let per = Text::new("per", "por").in_lang(lang);
        SeriesBody {
            id: Dataset::Fx.id(),
            source: Dataset::Fx.source(),
            unit: format!("{} {per} {base}", &quote[1..]),
            name: Dataset::Fx.name().in_lang(lang),
            basis: Text::new("closing bulletin", "boletim de fechamento").in_lang(lang),
            frequency: self.frequency().id(),
            derived: self.pair.is_derived().then_some(true),
            formula: None,
            code: pair,
        }
    }

    fn decimals(&self) -> u32 {
        FX_DECIMALS
    }

    fn range(&self, days: DateRange) -> Range<usize> {
        self.rates.range(days)
    }

    fn known(&self, at: usize) -> Vec<Known> {
        self.rates.known(at)
    }

    fn row(&self, at: usize, shown: Shown<'_>) -> Option<FxRateBody> {
        let (date, quote) = self.rates.get(at)?;
        let number = |value| Number { value, as_text: shown.as_text };
        let known = self.rates.known(at);
        let provenance = shown.provenance.map(|snapshot| provenance(snapshot, Dataset::Fx.source(), &known));
        let derived = self.pair.is_derived().then_some(true);
        Some(FxRateBody {
            date,
            pair: self.pair.to_string(),
            buy: number(quote.buy),
            sell: number(quote.sell),
            derived,
            trace: TraceBody { provenance, known: shown.certainty.then(|| self.rates.certainty(at).id()) },
        })
    }

    fn date(&self, at: usize) -> Option<NaiveDate> {
        self.rates.get(at).map(|(date, _)| date)
    }
}
