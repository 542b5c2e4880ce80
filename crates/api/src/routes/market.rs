//! Market data: each series and the exchange rates, as history and as current value.

use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_domain::series::{self, Frequency, SERIES};
use vintem_domain::{Dataset, DateRange, Lang, Pair, Problem, Series};
use vintem_snapshot::{PairRates, SeriesValues, Snapshot};

use super::status::{self, instant};
use super::{AppState, Handlers, loaded, today};
use crate::App;
use crate::answer::{Tag, with_links};
use crate::caller::Caller;
use crate::number::Number;
use crate::params::{MOST_OBSERVATIONS, Order, Page, Query};
use crate::problem::Refusal;

#[derive(Serialize)]
struct SeriesBody {
    id: &'static str,
    source: &'static str,
    code: String,
    name: &'static str,
    unit: String,
    basis: &'static str,
    frequency: &'static str,
}

/// A series in the catalogue: what it is, and from when to when it reaches.
#[derive(Serialize)]
struct CatalogueBody {
    #[serde(flatten)]
    series: SeriesBody,
    first_date: Option<NaiveDate>,
    last_date: Option<NaiveDate>,
    next_expected_on: Option<NaiveDate>,
    stale: bool,
    licence: &'static str,
}

#[derive(Serialize)]
struct CataloguePageBody {
    data: Vec<CatalogueBody>,
    total: usize,
}

#[derive(Serialize)]
struct RateBody {
    date: NaiveDate,
    value: Number,
    /// Only where it is so: computed from daily rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    derived: Option<bool>,
}

#[derive(Serialize)]
struct FxRateBody {
    date: NaiveDate,
    pair: String,
    buy: Number,
    sell: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    derived: Option<bool>,
}

#[derive(Serialize)]
struct ListBody<Row> {
    series: SeriesBody,
    as_of: String,
    stale: bool,
    total: usize,
    limit: usize,
    offset: usize,
    data: Vec<Row>,
}

#[derive(Serialize)]
struct CurrentBody<Row> {
    #[serde(flatten)]
    row: Row,
    unit: String,
    series: SeriesBody,
    stale: bool,
}

/// What a list can be asked for, whatever it lists.
struct ListParams {
    days: DateRange,
    page: Page,
    order: Order,
    as_text: bool,
}

impl ListParams {
    fn read(query: &Query) -> Result<Self, Problem> {
        Ok(Self {
            days: query.days()?,
            page: query.page(MOST_OBSERVATIONS)?,
            order: query.order()?,
            as_text: query.numbers_as_text()?,
        })
    }
}

#[derive(Serialize)]
struct OverviewBody {
    selic: CurrentBody<RateBody>,
    cdi: CurrentBody<RateBody>,
    ipca: CurrentBody<RateBody>,
    fx: CurrentBody<FxRateBody>,
}

pub fn handlers() -> Handlers {
    vec![
        ("list_selic", get(list_selic)),
        ("get_selic", get(get_selic)),
        ("list_cdi", get(list_cdi)),
        ("get_cdi", get(get_cdi)),
        ("list_ipca", get(list_ipca)),
        ("get_ipca", get(get_ipca)),
        ("list_series", get(list_series)),
        ("list_observations", get(list_observations)),
        ("get_observation", get(get_observation)),
        ("list_fx", get(list_fx)),
        ("get_fx", get(get_fx)),
        ("get_overview", get(get_overview)),
    ]
}

async fn list_selic(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    observations(&caller, &app, &query, "selic")
}

async fn get_selic(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    observation(&caller, &app, &query, "selic")
}

async fn list_cdi(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    observations(&caller, &app, &query, "cdi")
}

async fn get_cdi(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    observation(&caller, &app, &query, "cdi")
}

async fn list_ipca(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    observations(&caller, &app, &query, "ipca")
}

async fn get_ipca(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    observation(&caller, &app, &query, "ipca")
}

async fn list_series(caller: Caller, State(app): AppState) -> Result<Response, Refusal> {
    let (snapshot, today) = (app.snapshot()?, today(&app));
    let series = SERIES.iter().map(|series| {
        let dataset = Dataset::Series(series);
        let held = snapshot.series(series);
        let served = held.map(|values| (values, values.range(DateRange::ALL.until(today))));
        let date = |at: Option<usize>| at.zip(held).map(|(at, values)| values.get(at).0);
        let (first, last) = served.map_or((None, None), |(_, served)| (served.clone().next(), served.last()));
        let last_date = date(last);
        CatalogueBody {
            series: describe(series),
            first_date: date(first),
            last_date,
            next_expected_on: last_date.map(|last| dataset.next_expected_on(last)),
            stale: status::is_stale(&app, &snapshot, dataset),
            licence: dataset.licence(),
        }
    });
    let data: Vec<CatalogueBody> = series.collect();
    let datasets: Vec<Dataset> = SERIES.iter().map(Dataset::Series).collect();
    let tag = Tag::new(&caller, &app, &snapshot, &datasets, today);
    Ok(tag.answer(|| CataloguePageBody { total: data.len(), data }))
}

async fn list_observations(
    caller: Caller,
    State(app): AppState,
    Path(id): Path<String>,
    query: Query,
) -> Result<Response, Refusal> {
    observations(&caller, &app, &query, &id)
}

async fn get_observation(
    caller: Caller,
    State(app): AppState,
    Path(id): Path<String>,
    query: Query,
) -> Result<Response, Refusal> {
    observation(&caller, &app, &query, &id)
}

async fn list_fx(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (pair, params) = (query.pair()?, ListParams::read(&query)?);
    let snapshot = app.snapshot()?;
    let rates = loaded(snapshot.fx(), Dataset::Fx)?.pair(pair);
    Ok(list(&caller, &app, &params, &snapshot, &FxSource { pair, rates }))
}

async fn get_fx(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (pair, as_text) = (query.pair()?, query.numbers_as_text()?);
    let (snapshot, today) = (app.snapshot()?, today(&app));
    let rates = loaded(snapshot.fx(), Dataset::Fx)?.pair(pair);
    let body = current(&FxSource { pair, rates }, as_text, today)?;
    let tag = Tag::new(&caller, &app, &snapshot, &[Dataset::Fx], (body.row.date, body.stale));
    Ok(tag.answer(|| body))
}

async fn get_overview(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let as_text = query.numbers_as_text()?;
    let (snapshot, today) = (app.snapshot()?, today(&app));
    let rate = |id: &str| -> Result<CurrentBody<RateBody>, Refusal> {
        let source = series_source(&snapshot, id)?;
        current(&source, as_text, today)
    };
    let pair = Pair::DEFAULT;
    let fx = FxSource { pair, rates: loaded(snapshot.fx(), Dataset::Fx)?.pair(pair) };
    let body = OverviewBody {
        selic: rate("selic")?,
        cdi: rate("cdi")?,
        ipca: rate("ipca")?,
        fx: current(&fx, as_text, today)?,
    };
    let datasets = ["selic", "cdi", "ipca", "fx"].map(|id| Dataset::from_id(id).expect("in the table of series"));
    let days = (body.selic.row.date, body.cdi.row.date, body.ipca.row.date, body.fx.row.date);
    let stale = (body.selic.stale, body.cdi.stale, body.ipca.stale, body.fx.stale);
    let further = series_source(&snapshot, "cdi")?.further_generation(&snapshot);
    let tag = Tag::new(&caller, &app, &snapshot, &datasets, (days, stale, further));
    Ok(tag.answer(|| body))
}

fn observations(caller: &Caller, app: &App, query: &Query, id: &str) -> Result<Response, Refusal> {
    let params = ListParams::read(query)?;
    let snapshot = app.snapshot()?;
    Ok(list(caller, app, &params, &snapshot, &series_source(&snapshot, id)?))
}

fn observation(caller: &Caller, app: &App, query: &Query, id: &str) -> Result<Response, Refusal> {
    let as_text = query.numbers_as_text()?;
    let snapshot = app.snapshot()?;
    let source = series_source(&snapshot, id)?;
    let body = current(&source, as_text, today(app))?;
    let tag = Tag::new(
        caller,
        app,
        &snapshot,
        &[source.dataset()],
        (body.row.date, body.stale, source.further_generation(&snapshot)),
    );
    Ok(tag.answer(|| body))
}

/// What a list and a current value are made from: a series, or a pair of currencies.
trait Source {
    type Row: Serialize;

    fn dataset(&self) -> Dataset;
    fn describe(&self) -> SeriesBody;
    /// The places of the rows within these days, oldest first.
    fn range(&self, days: DateRange) -> std::ops::Range<usize>;
    fn row(&self, at: usize, as_text: bool) -> Option<Self::Row>;
    fn date(&self, at: usize) -> Option<NaiveDate>;

    /// That of a further dataset which the rows depend on.
    fn further_generation(&self, _: &Snapshot) -> i64 {
        0
    }

    /// Whether a newer row is overdue.
    fn is_stale(&self, today: NaiveDate) -> bool {
        let newest = self.range(DateRange::ALL.until(today)).last().and_then(|at| self.date(at));
        newest.is_none_or(|newest| self.dataset().is_stale(newest, today))
    }
}

struct SeriesSource<'s> {
    series: &'static Series,
    values: &'s SeriesValues,
}

fn series_source<'s>(snapshot: &'s Snapshot, id: &str) -> Result<SeriesSource<'s>, Refusal> {
    let series = series::by_id(id).ok_or(Problem::NoSuchSeries)?;
    Ok(SeriesSource { series, values: loaded(snapshot.series(series), Dataset::Series(series))? })
}

fn describe(series: &'static Series) -> SeriesBody {
    SeriesBody {
        id: series.id,
        source: Dataset::Series(series).source(),
        code: series.code.to_string(),
        name: series.name.in_lang(Lang::En),
        unit: series.unit.in_lang(Lang::En).to_owned(),
        basis: series.basis.in_lang(Lang::En),
        frequency: series.frequency.id(),
    }
}

impl Source for SeriesSource<'_> {
    type Row = RateBody;

    fn dataset(&self) -> Dataset {
        Dataset::Series(self.series)
    }

    fn describe(&self) -> SeriesBody {
        describe(self.series)
    }

    fn range(&self, days: DateRange) -> std::ops::Range<usize> {
        self.values.range(days)
    }

    fn row(&self, at: usize, as_text: bool) -> Option<RateBody> {
        let (date, value) = self.values.get(at);
        let derived = self.values.is_derived(at).then_some(true);
        Some(RateBody { date, value: Number { value, as_text }, derived })
    }

    fn date(&self, at: usize) -> Option<NaiveDate> {
        Some(self.values.get(at).0)
    }

    fn further_generation(&self, snapshot: &Snapshot) -> i64 {
        let base = self.series.derived_from.and_then(series::by_id);
        base.map_or(0, |base| snapshot.generation(Dataset::Series(base)))
    }
}

struct FxSource<'s> {
    pair: Pair,
    rates: PairRates<'s>,
}

impl Source for FxSource<'_> {
    type Row = FxRateBody;

    fn dataset(&self) -> Dataset {
        Dataset::Fx
    }

    fn describe(&self) -> SeriesBody {
        let pair = self.pair.to_string();
        let (base, quote) = pair.split_at(3);
        SeriesBody {
            id: Dataset::Fx.id(),
            source: Dataset::Fx.source(),
            unit: format!("{} per {base}", &quote[1..]),
            name: Dataset::Fx.name().in_lang(Lang::En),
            basis: "closing bulletin",
            frequency: Frequency::BusinessDaily.id(),
            code: pair,
        }
    }

    fn range(&self, days: DateRange) -> std::ops::Range<usize> {
        self.rates.range(days)
    }

    fn row(&self, at: usize, as_text: bool) -> Option<FxRateBody> {
        let (date, quote) = self.rates.get(at)?;
        let number = |value| Number { value, as_text };
        let derived = self.pair.is_derived().then_some(true);
        Some(FxRateBody {
            date,
            pair: self.pair.to_string(),
            buy: number(quote.buy),
            sell: number(quote.sell),
            derived,
        })
    }

    fn date(&self, at: usize) -> Option<NaiveDate> {
        self.rates.get(at).map(|(date, _)| date)
    }
}

/// The newest N of a range, or the oldest N in ascending order.
fn list<S: Source>(caller: &Caller, app: &App, params: &ListParams, snapshot: &Snapshot, source: &S) -> Response {
    let ListParams { days, page, order, as_text } = *params;
    let today = today(app);
    let served = source.range(days.until(today));
    let stale = source.is_stale(today);
    let total = served.len();
    // The newest that is served moves without a load where days ahead are stored.
    let newest = served.clone().last().and_then(|at| source.date(at));
    let tag =
        Tag::new(caller, app, snapshot, &[source.dataset()], (newest, stale, source.further_generation(snapshot)));
    let response = tag.answer(|| {
        let rows = |at: usize| source.row(at, as_text);
        let data = match order {
            Order::Descending => served.rev().skip(page.offset).take(page.limit).filter_map(rows).collect(),
            Order::Ascending => served.skip(page.offset).take(page.limit).filter_map(rows).collect(),
        };
        let as_of = snapshot.state(source.dataset()).map(|state| instant(state.loaded_at)).unwrap_or_default();
        ListBody { series: source.describe(), as_of, stale, total, limit: page.limit, offset: page.offset, data }
    });
    with_links(response, caller, &app.settings.public_url, page, total)
}

fn current<S: Source>(source: &S, as_text: bool, today: NaiveDate) -> Result<CurrentBody<S::Row>, Refusal> {
    let newest = source.range(DateRange::ALL.until(today)).last();
    let row = newest.and_then(|at| source.row(at, as_text));
    let row = row.ok_or(Refusal(Problem::NeverLoaded { dataset: source.dataset().id() }))?;
    let series = source.describe();
    Ok(CurrentBody { row, unit: series.unit.clone(), series, stale: source.is_stale(today) })
}
