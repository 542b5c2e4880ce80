//! Market data: each series and the exchange rates, as history and as the value of a day.

mod accumulation;
mod catalog;
mod compare;
mod fx;
mod source;

use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{Column, OutputTable};
use vintem_domain::{CurrencyPair, DateRange, Lang, Problem, Series};
use vintem_snapshot::{SeriesValues, Snapshot, series_as_of};

use super::provenance::TraceBody;
use super::status::format_instant;
use super::{AppState, Handlers, today};
use crate::App;
use crate::api_error::ApiError;
use crate::caller::Caller;
use crate::csv::ListFormat;
use crate::params::{MAX_OBSERVATIONS, Pagination, QueryParams, SortOrder};
use crate::responses::{EtagResponder, with_page_links};
pub use source::{
    FX_DECIMALS, FxRateBody, RateBody, RateRowBody, RateSource, RowOptions, fx_source, series_body, series_datasets,
    series_source,
};
use source::{SeriesBody, SeriesSource};

#[derive(Serialize)]
struct RateListBody<Row> {
    series: SeriesBody,
    as_of: String,
    stale: bool,
    total: usize,
    limit: usize,
    offset: usize,
    data: Vec<Row>,
}

#[derive(Serialize)]
struct CurrentRateBody<Row> {
    #[serde(flatten)]
    row: Row,
    unit: String,
    series: SeriesBody,
    stale: bool,
}

/// What a list can be asked for, whatever it lists.
struct RateListParams {
    form: ListFormat,
    days: DateRange,
    page: Pagination,
    order: SortOrder,
    as_text: bool,
}

/// What concerns where rows come from, on lists of rows alone.
struct HistoryParams {
    provenance: bool,
    updated_since: Option<u32>,
    /// As what could be known on this day.
    as_of: Option<NaiveDate>,
}

impl HistoryParams {
    fn from_query(query: &QueryParams) -> Result<Self, Problem> {
        let (provenance, updated_since) = (query.flag("provenance")?, query.updated_since()?);
        Ok(Self { provenance, updated_since, as_of: query.date("as_of")? })
    }
}

impl RateListParams {
    fn from_query(caller: &Caller, query: &QueryParams) -> Result<Self, Problem> {
        Ok(Self {
            form: ListFormat::from_query(caller, query)?,
            days: query.date_range()?,
            page: query.pagination(MAX_OBSERVATIONS)?,
            order: query.sort_order()?,
            as_text: query.numbers_as_text()?,
        })
    }
}

#[derive(Serialize)]
struct OverviewBody {
    selic: CurrentRateBody<RateBody>,
    cdi: CurrentRateBody<RateBody>,
    ipca: CurrentRateBody<RateBody>,
    fx: CurrentRateBody<FxRateBody>,
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
    for further in [accumulation::handlers(), catalog::handlers(), compare::handlers(), fx::handlers()] {
        handlers.extend(further);
    }
    handlers
}

async fn list_selic(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    series_list_response(&caller, &app, &query, "selic").await
}

async fn get_selic(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    series_value_response(&caller, &app, &query, "selic").await
}

async fn list_cdi(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    series_list_response(&caller, &app, &query, "cdi").await
}

async fn get_cdi(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    series_value_response(&caller, &app, &query, "cdi").await
}

async fn list_ipca(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    series_list_response(&caller, &app, &query, "ipca").await
}

async fn get_ipca(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    series_value_response(&caller, &app, &query, "ipca").await
}

async fn list_observations(
    caller: Caller,
    State(app): AppState,
    Path(id): Path<String>,
    query: QueryParams,
) -> Result<Response, ApiError> {
    series_list_response(&caller, &app, &query, &id).await
}

async fn get_observation(
    caller: Caller,
    State(app): AppState,
    Path(id): Path<String>,
    query: QueryParams,
) -> Result<Response, ApiError> {
    series_value_response(&caller, &app, &query, &id).await
}

async fn get_overview(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let (snapshot, today) = (app.current_snapshot()?, today(&app));
    let (as_text, provenance) = (query.numbers_as_text()?, query.flag("provenance")?);
    let asked = CurrentRateParams { day: today, as_text, provenance, as_of: None, lang: caller.lang };
    let series = |id: &str| series_source(&snapshot, id);
    let (selic, cdi, ipca) = (series("selic")?, series("cdi")?, series("ipca")?);
    let fx = fx_source(&snapshot, CurrencyPair::DEFAULT)?;
    let body = OverviewBody {
        selic: current_rate(&snapshot, &selic, &asked, today)?,
        cdi: current_rate(&snapshot, &cdi, &asked, today)?,
        ipca: current_rate(&snapshot, &ipca, &asked, today)?,
        fx: current_rate(&snapshot, &fx, &asked, today)?,
    };
    let datasets = [selic.datasets(), cdi.datasets(), ipca.datasets(), fx.datasets()].concat();
    let days = (body.selic.row.date, body.cdi.row.date, body.ipca.row.date, body.fx.row.date);
    let stale = (body.selic.stale, body.cdi.stale, body.ipca.stale, body.fx.stale);
    let further = cdi.base_generation(&snapshot);
    Ok(EtagResponder::new(&caller, &app, &snapshot, &datasets, (days, stale, further)).respond_json(|| body))
}

async fn series_list_response(caller: &Caller, app: &App, query: &QueryParams, id: &str) -> Result<Response, ApiError> {
    let (params, origin) = (RateListParams::from_query(caller, query)?, HistoryParams::from_query(query)?);
    let snapshot = app.current_snapshot()?;
    let served = series_source(&snapshot, id)?;
    let known = load_series_as_of(app, served.series, origin.as_of).await?;
    let source = SeriesSource { values: known.as_ref().unwrap_or(served.values), ..served };
    Ok(rate_list_response(caller, app, (&params, &origin), &snapshot, &source))
}

async fn series_value_response(
    caller: &Caller,
    app: &App,
    query: &QueryParams,
    id: &str,
) -> Result<Response, ApiError> {
    let asked = CurrentRateParams::from_query_as_of(caller, query, today(app))?;
    let snapshot = app.current_snapshot()?;
    let served = series_source(&snapshot, id)?;
    let served_first = served.no_data_error(today(app));
    let known = load_series_as_of(app, served.series, asked.as_of).await?;
    let source = SeriesSource { values: known.as_ref().unwrap_or(served.values), ..served };
    // Where nothing was known yet, there is something now.
    let nothing_yet = |refusal| if asked.as_of.is_some() { served_first.clone() } else { refusal };
    let body = current_rate(&snapshot, &source, &asked, today(app)).map_err(nothing_yet)?;
    let further = source.base_generation(&snapshot);
    let tag = EtagResponder::new(caller, app, &snapshot, &source.datasets(), (body.row.date, body.stale, further));
    Ok(tag.respond_json(|| body))
}

/// What could be known on a day, where one is asked for: from the store, which alone has every version.
async fn load_series_as_of(
    app: &App,
    series: &'static Series,
    as_of: Option<NaiveDate>,
) -> Result<Option<SeriesValues>, ApiError> {
    match as_of {
        Some(day) => Ok(Some(series_as_of(&app.store, series, day).await?)),
        None => Ok(None),
    }
}

/// The newest N of a range, or the oldest N in ascending order.
fn rate_list_response<S: RateSource>(
    caller: &Caller,
    app: &App,
    (params, origin): (&RateListParams, &HistoryParams),
    snapshot: &Snapshot,
    source: &S,
) -> Response {
    let RateListParams { form, days, page, order, as_text } = *params;
    let today = origin.as_of.map_or(today(app), |day| day.min(today(app)));
    let is_wanted = |at: &usize| origin.updated_since.is_none_or(|second| source.is_updated_since(*at, second));
    let served: Vec<usize> = source.row_range(days.capped_at(today)).filter(is_wanted).collect();
    let stale = source.is_stale(today);
    let total = served.len();
    // The newest that is served moves without a load where days ahead are stored.
    let newest = served.last().and_then(|at| source.row_date(*at));
    let datasets = source.datasets();
    let tag = EtagResponder::new(caller, app, snapshot, &datasets, (newest, stale, source.base_generation(snapshot)));
    let certainty = origin.as_of.is_some();
    let rows = || -> Vec<S::Row> {
        let shown =
            RowOptions { as_text, provenance: origin.provenance.then_some(snapshot), with_certainty: certainty };
        let rows = |at: &usize| source.row(*at, shown);
        match order {
            SortOrder::Descending => served.iter().rev().skip(page.offset).take(page.limit).filter_map(rows).collect(),
            SortOrder::Ascending => served.iter().skip(page.offset).take(page.limit).filter_map(rows).collect(),
        }
    };
    let body = |()| {
        let (series, as_of) = (source.describe(caller.lang), format_loaded_at(snapshot, source));
        RateListBody { series, as_of, stale, total, limit: page.limit, offset: page.offset, data: rows() }
    };
    let table = |()| {
        let trace = TraceBody::columns(origin.provenance, certainty);
        rate_table(source.describe(caller.lang), source.max_decimals(), rows(), trace)
    };
    with_page_links(tag.respond_list(form, (), body, table), caller, app, page, total)
}

/// Rows of one series, with what it is: a file has no place for that but beside each value.
pub fn rate_table<Row: RateRowBody>(
    series: SeriesBody,
    decimals: u32,
    rows: Vec<Row>,
    trace: Vec<Column>,
) -> OutputTable {
    let columns = [Row::columns(decimals), vec![Column::text("unit"), Column::text("series")], trace].concat();
    OutputTable::from_rows(series.id, columns, rows, move |row, cells| {
        row.write_cells(cells);
        cells.write_text(&series.unit);
        cells.write_text(&series.code);
        row.trace().write_cells(cells);
    })
}

/// When what a source serves was loaded; of several datasets the first.
fn format_loaded_at<S: RateSource>(snapshot: &Snapshot, source: &S) -> String {
    let state = source.datasets().into_iter().find_map(|dataset| snapshot.state(dataset));
    state.map(|state| format_instant(state.loaded_at)).unwrap_or_default()
}

/// What a single value can be asked for.
struct CurrentRateParams {
    /// The newest value on or before this day is meant.
    day: NaiveDate,
    as_text: bool,
    provenance: bool,
    /// As what could be known on this day.
    as_of: Option<NaiveDate>,
    lang: Lang,
}

impl CurrentRateParams {
    fn from_query(caller: &Caller, query: &QueryParams, today: NaiveDate) -> Result<Self, Problem> {
        let day = query.date("on")?.map_or(today, |on| on.min(today));
        let (as_text, provenance) = (query.numbers_as_text()?, query.flag("provenance")?);
        Ok(Self { day, as_text, provenance, as_of: None, lang: caller.lang })
    }

    /// Also as it could be known on a day.
    fn from_query_as_of(caller: &Caller, query: &QueryParams, today: NaiveDate) -> Result<Self, Problem> {
        let (asked, as_of) = (Self::from_query(caller, query, today)?, query.date("as_of")?);
        Ok(Self { day: as_of.map_or(asked.day, |day| day.min(asked.day)), as_of, ..asked })
    }

    fn row_options<'s>(&self, snapshot: &'s Snapshot) -> RowOptions<'s> {
        let provenance = self.provenance.then_some(snapshot);
        RowOptions { as_text: self.as_text, provenance, with_certainty: self.as_of.is_some() }
    }
}

/// The value of just this day, as the current one is told.
pub fn rate_on_day<S: RateSource>(source: &S, day: NaiveDate, today: NaiveDate) -> Option<impl Serialize + use<S>> {
    let shown = RowOptions { as_text: false, provenance: None, with_certainty: false };
    let row = source.row(source.row_range(DateRange { from: day, to: day }).next()?, shown)?;
    let series = source.describe(Lang::En);
    Some(CurrentRateBody { row, unit: series.unit.clone(), series, stale: source.is_stale(today) })
}

fn current_rate<S: RateSource>(
    snapshot: &Snapshot,
    source: &S,
    asked: &CurrentRateParams,
    today: NaiveDate,
) -> Result<CurrentRateBody<S::Row>, ApiError> {
    let row = source.latest_row_until(asked.day).and_then(|at| source.row(at, asked.row_options(snapshot)));
    let row = row.ok_or_else(|| source.no_data_error(today))?;
    let series = source.describe(asked.lang);
    Ok(CurrentRateBody { row, unit: series.unit.clone(), series, stale: source.is_stale(today) })
}
