//! Market data: series and exchange rates, as history and as the value of one day.

pub mod accumulation;
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

/// The query parameters of all lists of rates.
struct RateListParams {
    format: ListFormat,
    days: DateRange,
    pagination: Pagination,
    order: SortOrder,
    as_text: bool,
}

/// The query parameters about the origin and age of rows; `compare` has none of them.
struct HistoryParams {
    provenance: bool,
    /// Unix seconds.
    updated_since: Option<u32>,
    /// Point-in-time query: only what was known on this day.
    as_of: Option<NaiveDate>,
}

impl HistoryParams {
    fn from_query(query: &QueryParams) -> Result<Self, Problem> {
        Ok(Self {
            provenance: query.flag("provenance")?,
            updated_since: query.updated_since()?,
            as_of: query.date("as_of")?,
        })
    }
}

impl RateListParams {
    fn from_query(caller: &Caller, query: &QueryParams) -> Result<Self, Problem> {
        Ok(Self {
            format: ListFormat::from_query(caller, query)?,
            days: query.date_range()?,
            pagination: query.pagination(MAX_OBSERVATIONS)?,
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
    for module_handlers in [accumulation::handlers(), catalog::handlers(), compare::handlers(), fx::handlers()] {
        handlers.extend(module_handlers);
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
    let snapshot = app.current_snapshot()?;
    let today = today(&app);
    let as_text = query.numbers_as_text()?;
    let provenance = query.flag("provenance")?;
    let params = CurrentRateParams { day: today, as_text, provenance, as_of: None, lang: caller.lang };

    let selic = series_source(&snapshot, "selic")?;
    let cdi = series_source(&snapshot, "cdi")?;
    let ipca = series_source(&snapshot, "ipca")?;
    let fx = fx_source(&snapshot, CurrencyPair::DEFAULT)?;
    let body = OverviewBody {
        selic: current_rate(&snapshot, &selic, &params, today)?,
        cdi: current_rate(&snapshot, &cdi, &params, today)?,
        ipca: current_rate(&snapshot, &ipca, &params, today)?,
        fx: current_rate(&snapshot, &fx, &params, today)?,
    };

    let datasets = [selic.datasets(), cdi.datasets(), ipca.datasets(), fx.datasets()].concat();
    let dates = (body.selic.row.date, body.cdi.row.date, body.ipca.row.date, body.fx.row.date);
    let stale = (body.selic.stale, body.cdi.stale, body.ipca.stale, body.fx.stale);
    let extra_state = (dates, stale, cdi.base_generation(&snapshot));
    Ok(EtagResponder::new(&caller, &app, &snapshot, &datasets, extra_state).respond_json(|| body))
}

async fn series_list_response(caller: &Caller, app: &App, query: &QueryParams, id: &str) -> Result<Response, ApiError> {
    let list_params = RateListParams::from_query(caller, query)?;
    let history_params = HistoryParams::from_query(query)?;

    let snapshot = app.current_snapshot()?;
    let current = series_source(&snapshot, id)?;
    let historical = load_series_as_of(app, current.series, history_params.as_of).await?;
    let source = SeriesSource { values: historical.as_ref().unwrap_or(current.values), ..current };
    Ok(rate_list_response(caller, app, (&list_params, &history_params), &snapshot, &source))
}

async fn series_value_response(
    caller: &Caller,
    app: &App,
    query: &QueryParams,
    id: &str,
) -> Result<Response, ApiError> {
    let params = CurrentRateParams::from_query_as_of(caller, query, today(app))?;
    let snapshot = app.current_snapshot()?;
    let current = series_source(&snapshot, id)?;
    let current_no_data_error = current.no_data_error(today(app));
    let historical = load_series_as_of(app, current.series, params.as_of).await?;
    let source = SeriesSource { values: historical.as_ref().unwrap_or(current.values), ..current };

    // If nothing was known on the day of `as_of`, the error names the first date of the current data.
    let no_data_error = |error| if params.as_of.is_some() { current_no_data_error.clone() } else { error };
    let body = current_rate(&snapshot, &source, &params, today(app)).map_err(no_data_error)?;
    let extra_state = (body.row.date, body.stale, source.base_generation(&snapshot));
    let responder = EtagResponder::new(caller, app, &snapshot, &source.datasets(), extra_state);
    Ok(responder.respond_json(|| body))
}

/// The values as known on the day of `as_of`, if requested. They come from the store, because only it has every
/// version.
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

/// One page of a range: newest first, or oldest first in ascending order.
fn rate_list_response<S: RateSource>(
    caller: &Caller,
    app: &App,
    (list_params, history_params): (&RateListParams, &HistoryParams),
    snapshot: &Snapshot,
    source: &S,
) -> Response {
    let RateListParams { format, days, pagination, order, as_text } = *list_params;
    let today = history_params.as_of.map_or(today(app), |day| day.min(today(app)));
    let is_updated =
        |at: &usize| history_params.updated_since.is_none_or(|unix_seconds| source.is_updated_since(*at, unix_seconds));
    let matching: Vec<usize> = source.row_range(days.capped_at(today)).filter(is_updated).collect();
    let total = matching.len();
    let stale = source.is_stale(today);

    // Stored values may lie in the future, so the latest date can change without a load.
    let latest_date = matching.last().and_then(|at| source.row_date(*at));
    let extra_state = (latest_date, stale, source.base_generation(snapshot));
    let responder = EtagResponder::new(caller, app, snapshot, &source.datasets(), extra_state);

    let with_certainty = history_params.as_of.is_some();
    let rows = || -> Vec<S::Row> {
        let provenance = history_params.provenance.then_some(snapshot);
        let options = RowOptions { as_text, provenance, with_certainty };
        let row = |at: &usize| source.row(*at, options);
        let Pagination { limit, offset } = pagination;
        match order {
            SortOrder::Descending => matching.iter().rev().skip(offset).take(limit).filter_map(row).collect(),
            SortOrder::Ascending => matching.iter().skip(offset).take(limit).filter_map(row).collect(),
        }
    };
    let body = |()| RateListBody {
        series: source.describe(caller.lang),
        as_of: format_loaded_at(snapshot, source),
        stale,
        total,
        limit: pagination.limit,
        offset: pagination.offset,
        data: rows(),
    };
    let table = |()| {
        let trace_columns = TraceBody::columns(history_params.provenance, with_certainty);
        rate_table(source.describe(caller.lang), source.max_decimals(), rows(), trace_columns)
    };
    with_page_links(responder.respond_list(format, (), body, table), caller, app, pagination, total)
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

/// When the source's data was loaded; for several datasets, the first one that is loaded.
fn format_loaded_at<S: RateSource>(snapshot: &Snapshot, source: &S) -> String {
    let state = source.datasets().into_iter().find_map(|dataset| snapshot.state(dataset));
    state.map(|state| format_instant(state.loaded_at)).unwrap_or_default()
}

/// The query parameters of single values.
struct CurrentRateParams {
    /// The latest value on or before this day is returned.
    day: NaiveDate,
    as_text: bool,
    provenance: bool,
    /// Point-in-time query: only what was known on this day.
    as_of: Option<NaiveDate>,
    lang: Lang,
}

impl CurrentRateParams {
    fn from_query(caller: &Caller, query: &QueryParams, today: NaiveDate) -> Result<Self, Problem> {
        let day = query.date("on")?.map_or(today, |on| on.min(today));
        let as_text = query.numbers_as_text()?;
        let provenance = query.flag("provenance")?;
        Ok(Self { day, as_text, provenance, as_of: None, lang: caller.lang })
    }

    /// Like [`Self::from_query`], and also accepts `as_of`.
    fn from_query_as_of(caller: &Caller, query: &QueryParams, today: NaiveDate) -> Result<Self, Problem> {
        let params = Self::from_query(caller, query, today)?;
        let as_of = query.date("as_of")?;
        Ok(Self { day: as_of.map_or(params.day, |day| day.min(params.day)), as_of, ..params })
    }

    fn row_options<'s>(&self, snapshot: &'s Snapshot) -> RowOptions<'s> {
        let provenance = self.provenance.then_some(snapshot);
        RowOptions { as_text: self.as_text, provenance, with_certainty: self.as_of.is_some() }
    }
}

/// The value of exactly this day, in the shape of a current value.
pub fn rate_on_day<S: RateSource>(source: &S, day: NaiveDate, today: NaiveDate) -> Option<impl Serialize + use<S>> {
    let options = RowOptions { as_text: false, provenance: None, with_certainty: false };
    let row = source.row(source.row_range(DateRange { from: day, to: day }).next()?, options)?;
    let series = source.describe(Lang::En);
    Some(CurrentRateBody { row, unit: series.unit.clone(), series, stale: source.is_stale(today) })
}

fn current_rate<S: RateSource>(
    snapshot: &Snapshot,
    source: &S,
    params: &CurrentRateParams,
    today: NaiveDate,
) -> Result<CurrentRateBody<S::Row>, ApiError> {
    let row = source.latest_row_until(params.day).and_then(|at| source.row(at, params.row_options(snapshot)));
    let row = row.ok_or_else(|| source.no_data_error(today))?;
    let series = source.describe(params.lang);
    Ok(CurrentRateBody { row, unit: series.unit.clone(), series, stale: source.is_stale(today) })
}
