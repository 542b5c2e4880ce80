//! Market data: each series and the exchange rates, as history and as the value of a day.

mod accumulated;
mod catalogue;
mod compare;
mod fx;
mod source;

use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{Column, Table};
use vintem_domain::{DateRange, Lang, Pair, Problem, Series};
use vintem_snapshot::{SeriesValues, Snapshot, series_as_of};

use super::provenance::TraceBody;
use super::status::instant;
use super::{AppState, Handlers, today};
use crate::App;
use crate::answer::{Tag, with_links};
use crate::caller::Caller;
use crate::csv::Form;
use crate::params::{MOST_OBSERVATIONS, Order, Page, Query};
use crate::problem::Refusal;
pub use source::{
    FX_DECIMALS, FxRateBody, RateBody, RowBody, Shown, Source, datasets_of, describe, fx_source, series_source,
};
use source::{SeriesBody, SeriesSource};

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
    form: Form,
    days: DateRange,
    page: Page,
    order: Order,
    as_text: bool,
}

/// What concerns where rows come from, on lists of rows alone.
struct OriginParams {
    provenance: bool,
    updated_since: Option<u32>,
    /// As what could be known on this day.
    as_of: Option<NaiveDate>,
}

impl OriginParams {
    fn read(query: &Query) -> Result<Self, Problem> {
        let (provenance, updated_since) = (query.flag("provenance")?, query.updated_since()?);
        Ok(Self { provenance, updated_since, as_of: query.day("as_of")? })
    }
}

impl ListParams {
    fn read(caller: &Caller, query: &Query) -> Result<Self, Problem> {
        Ok(Self {
            form: Form::read(caller, query)?,
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
    let mut handlers: Handlers = vec![
        ("list_selic", get(list_selic)),
        ("get_selic", get(get_selic)),
        ("list_cdi", get(list_cdi)),
        ("get_cdi", get(get_cdi)),
        ("list_ipca", get(list_ipca)),
        ("get_ipca", get(get_ipca)),
        ("list_observations", get(list_observations)),
        ("get_observation", get(get_observation)),
        ("get_overview", get(get_overview)),
    ];
    for further in [accumulated::handlers(), catalogue::handlers(), compare::handlers(), fx::handlers()] {
        handlers.extend(further);
    }
    handlers
}

async fn list_selic(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    observations(&caller, &app, &query, "selic").await
}

async fn get_selic(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    observation(&caller, &app, &query, "selic").await
}

async fn list_cdi(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    observations(&caller, &app, &query, "cdi").await
}

async fn get_cdi(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    observation(&caller, &app, &query, "cdi").await
}

async fn list_ipca(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    observations(&caller, &app, &query, "ipca").await
}

async fn get_ipca(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    observation(&caller, &app, &query, "ipca").await
}

async fn list_observations(
    caller: Caller,
    State(app): AppState,
    Path(id): Path<String>,
    query: Query,
) -> Result<Response, Refusal> {
    observations(&caller, &app, &query, &id).await
}

async fn get_observation(
    caller: Caller,
    State(app): AppState,
    Path(id): Path<String>,
    query: Query,
) -> Result<Response, Refusal> {
    observation(&caller, &app, &query, &id).await
}

async fn get_overview(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (snapshot, today) = (app.snapshot()?, today(&app));
    let (as_text, provenance) = (query.numbers_as_text()?, query.flag("provenance")?);
    let asked = CurrentParams { day: today, as_text, provenance, as_of: None, lang: caller.lang };
    let series = |id: &str| series_source(&snapshot, id);
    let (selic, cdi, ipca) = (series("selic")?, series("cdi")?, series("ipca")?);
    let fx = fx_source(&snapshot, Pair::DEFAULT)?;
    let body = OverviewBody {
        selic: current(&snapshot, &selic, &asked, today)?,
        cdi: current(&snapshot, &cdi, &asked, today)?,
        ipca: current(&snapshot, &ipca, &asked, today)?,
        fx: current(&snapshot, &fx, &asked, today)?,
    };
    let datasets = [selic.datasets(), cdi.datasets(), ipca.datasets(), fx.datasets()].concat();
    let days = (body.selic.row.date, body.cdi.row.date, body.ipca.row.date, body.fx.row.date);
    let stale = (body.selic.stale, body.cdi.stale, body.ipca.stale, body.fx.stale);
    let further = cdi.further_generation(&snapshot);
    Ok(Tag::new(&caller, &app, &snapshot, &datasets, (days, stale, further)).answer(|| body))
}

async fn observations(caller: &Caller, app: &App, query: &Query, id: &str) -> Result<Response, Refusal> {
    let (params, origin) = (ListParams::read(caller, query)?, OriginParams::read(query)?);
    let snapshot = app.snapshot()?;
    let served = series_source(&snapshot, id)?;
    let known = values_as_of(app, served.series, origin.as_of).await?;
    let source = SeriesSource { values: known.as_ref().unwrap_or(served.values), ..served };
    Ok(list(caller, app, (&params, &origin), &snapshot, &source))
}

async fn observation(caller: &Caller, app: &App, query: &Query, id: &str) -> Result<Response, Refusal> {
    let asked = CurrentParams::read_as_of(caller, query, today(app))?;
    let snapshot = app.snapshot()?;
    let served = series_source(&snapshot, id)?;
    let served_first = served.nothing_until(today(app));
    let known = values_as_of(app, served.series, asked.as_of).await?;
    let source = SeriesSource { values: known.as_ref().unwrap_or(served.values), ..served };
    // Where nothing was known yet, there is something now.
    let nothing_yet = |refusal| if asked.as_of.is_some() { served_first.clone() } else { refusal };
    let body = current(&snapshot, &source, &asked, today(app)).map_err(nothing_yet)?;
    let further = source.further_generation(&snapshot);
    let tag = Tag::new(caller, app, &snapshot, &source.datasets(), (body.row.date, body.stale, further));
    Ok(tag.answer(|| body))
}

/// What could be known on a day, where one is asked for: from the store, which alone has every version.
async fn values_as_of(
    app: &App,
    series: &'static Series,
    as_of: Option<NaiveDate>,
) -> Result<Option<SeriesValues>, Refusal> {
    match as_of {
        Some(day) => Ok(Some(series_as_of(&app.store, series, day).await?)),
        None => Ok(None),
    }
}

/// The newest N of a range, or the oldest N in ascending order.
fn list<S: Source>(
    caller: &Caller,
    app: &App,
    (params, origin): (&ListParams, &OriginParams),
    snapshot: &Snapshot,
    source: &S,
) -> Response {
    let ListParams { form, days, page, order, as_text } = *params;
    let today = origin.as_of.map_or(today(app), |day| day.min(today(app)));
    let is_wanted = |at: &usize| origin.updated_since.is_none_or(|second| source.is_known_since(*at, second));
    let served: Vec<usize> = source.range(days.until(today)).filter(is_wanted).collect();
    let stale = source.is_stale(today);
    let total = served.len();
    // The newest that is served moves without a load where days ahead are stored.
    let newest = served.last().and_then(|at| source.date(*at));
    let datasets = source.datasets();
    let tag = Tag::new(caller, app, snapshot, &datasets, (newest, stale, source.further_generation(snapshot)));
    let certainty = origin.as_of.is_some();
    let rows = || -> Vec<S::Row> {
        let shown = Shown { as_text, provenance: origin.provenance.then_some(snapshot), certainty };
        let rows = |at: &usize| source.row(*at, shown);
        match order {
            Order::Descending => served.iter().rev().skip(page.offset).take(page.limit).filter_map(rows).collect(),
            Order::Ascending => served.iter().skip(page.offset).take(page.limit).filter_map(rows).collect(),
        }
    };
    let body = |()| {
        let (series, as_of) = (source.describe(caller.lang), as_of(snapshot, source));
        ListBody { series, as_of, stale, total, limit: page.limit, offset: page.offset, data: rows() }
    };
    let table = |()| {
        let trace = TraceBody::columns(origin.provenance, certainty);
        rows_table(source.describe(caller.lang), source.decimals(), rows(), trace)
    };
    with_links(tag.list(form, (), body, table), caller, app, page, total)
}

/// Rows of one series, with what it is: a file has no place for that but beside each value.
pub fn rows_table<Row: RowBody>(series: SeriesBody, decimals: u32, rows: Vec<Row>, trace: Vec<Column>) -> Table {
    let columns = [Row::columns(decimals), vec![Column::text("unit"), Column::text("series")], trace].concat();
    Table::of(series.id, columns, rows, move |row, cells| {
        row.write(cells);
        cells.text(&series.unit);
        cells.text(&series.code);
        row.trace().write(cells);
    })
}

/// When what a source serves was loaded; of several datasets the first.
fn as_of<S: Source>(snapshot: &Snapshot, source: &S) -> String {
    let state = source.datasets().into_iter().find_map(|dataset| snapshot.state(dataset));
    state.map(|state| instant(state.loaded_at)).unwrap_or_default()
}

/// What a single value can be asked for.
struct CurrentParams {
    /// The newest value on or before this day is meant.
    day: NaiveDate,
    as_text: bool,
    provenance: bool,
    /// As what could be known on this day.
    as_of: Option<NaiveDate>,
    lang: Lang,
}

impl CurrentParams {
    fn read(caller: &Caller, query: &Query, today: NaiveDate) -> Result<Self, Problem> {
        let day = query.day("on")?.map_or(today, |on| on.min(today));
        let (as_text, provenance) = (query.numbers_as_text()?, query.flag("provenance")?);
        Ok(Self { day, as_text, provenance, as_of: None, lang: caller.lang })
    }

    /// Also as it could be known on a day.
    fn read_as_of(caller: &Caller, query: &Query, today: NaiveDate) -> Result<Self, Problem> {
        let (asked, as_of) = (Self::read(caller, query, today)?, query.day("as_of")?);
        Ok(Self { day: as_of.map_or(asked.day, |day| day.min(asked.day)), as_of, ..asked })
    }

    fn shown<'s>(&self, snapshot: &'s Snapshot) -> Shown<'s> {
        let provenance = self.provenance.then_some(snapshot);
        Shown { as_text: self.as_text, provenance, certainty: self.as_of.is_some() }
    }
}

/// The value of just this day, as the current one is told.
pub fn of_day<S: Source>(source: &S, day: NaiveDate, today: NaiveDate) -> Option<impl Serialize + use<S>> {
    let shown = Shown { as_text: false, provenance: None, certainty: false };
    let row = source.row(source.range(DateRange { from: day, to: day }).next()?, shown)?;
    let series = source.describe(Lang::En);
    Some(CurrentBody { row, unit: series.unit.clone(), series, stale: source.is_stale(today) })
}

fn current<S: Source>(
    snapshot: &Snapshot,
    source: &S,
    asked: &CurrentParams,
    today: NaiveDate,
) -> Result<CurrentBody<S::Row>, Refusal> {
    let row = source.newest(asked.day).and_then(|at| source.row(at, asked.shown(snapshot)));
    let row = row.ok_or_else(|| source.nothing_until(today))?;
    let series = source.describe(asked.lang);
    Ok(CurrentBody { row, unit: series.unit.clone(), series, stale: source.is_stale(today) })
}
