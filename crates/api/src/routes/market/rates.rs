//! What all rates have in common: the parameters, one page of a list, and the value of one day.

use axum::response::Response;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_domain::{Currency, CurrencyPair, DateRange, Lang, Problem, Series};
use vintem_snapshot::{FxRates, SeriesValues, Snapshot, fx_as_of, series_as_of};

use crate::api_error::ApiError;
use crate::bodies::format_instant;
use crate::bodies::fx_series::FxSeriesSource;
use crate::bodies::market::{
    CurrentRateBody, RateSource, RowOptions, SeriesHeaderBody, SeriesSource, current_rate_body, fx_source, rate_table,
    series_source,
};
use crate::bodies::provenance::TraceBody;
use crate::csv::ListFormat;
use crate::params::{MAX_OBSERVATIONS, Pagination, QueryParams, SortOrder};
use crate::responses::{EtagResponder, with_page_links};
use crate::snapshot_request::SnapshotRequest;

#[derive(Serialize)]
struct RateListBody<Row> {
    #[serde(flatten)]
    series: SeriesHeaderBody,
    as_of: String,
    stale: bool,
    total: usize,
    limit: usize,
    offset: usize,
    /// Why the range has no rows, if it can't have any.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'static str>,
    data: Vec<Row>,
}

/// The query parameters of all lists of rates.
pub struct RateListParams {
    pub format: ListFormat,
    pub days: DateRange,
    pub pagination: Pagination,
    pub order: SortOrder,
    pub as_text: bool,
}

/// The query parameters about the origin and age of rows; `compare` has none of them.
pub struct HistoryParams {
    pub provenance: bool,
    /// Unix seconds.
    pub updated_since: Option<u32>,
    /// Point-in-time query: only what was known on this day.
    pub as_of: Option<NaiveDate>,
}

impl HistoryParams {
    pub fn from_query(query: &QueryParams) -> Result<Self, Problem> {
        Ok(Self {
            provenance: query.flag("provenance")?,
            updated_since: query.updated_since()?,
            as_of: query.date("as_of")?,
        })
    }
}

impl RateListParams {
    pub fn from_query(request: &SnapshotRequest, query: &QueryParams) -> Result<Self, Problem> {
        Ok(Self {
            format: ListFormat::from_query(query, request.prefers_csv)?,
            days: query.date_range()?,
            pagination: query.pagination(MAX_OBSERVATIONS)?,
            order: query.sort_order()?,
            as_text: query.numbers_as_text()?,
        })
    }
}

pub async fn series_list_response(
    request: &SnapshotRequest,
    query: &QueryParams,
    id: &str,
) -> Result<Response, ApiError> {
    if let Some(currency) = Currency::from_series_id(id) {
        return fx_series_list_response(request, query, currency).await;
    }
    let list_params = RateListParams::from_query(request, query)?;
    let history_params = HistoryParams::from_query(query)?;

    let snapshot = request.snapshot()?;
    let current = series_source(&snapshot, id)?;
    let historical = load_series_as_of(request, current.series, history_params.as_of).await?;
    let source = SeriesSource { values: historical.as_ref().unwrap_or(current.values), ..current };
    Ok(rate_list_response(request, (&list_params, &history_params), &snapshot, &source))
}

pub async fn series_value_response(
    request: &SnapshotRequest,
    query: &QueryParams,
    id: &str,
) -> Result<Response, ApiError> {
    if let Some(currency) = Currency::from_series_id(id) {
        return fx_series_value_response(request, query, currency).await;
    }
    let params = CurrentRateParams::from_query_as_of(request, query, request.today)?;
    let snapshot = request.snapshot()?;
    let current = series_source(&snapshot, id)?;
    let current_no_data_error = current.no_data_error(request.today);
    let historical = load_series_as_of(request, current.series, params.as_of).await?;
    let source = SeriesSource { values: historical.as_ref().unwrap_or(current.values), ..current };
    rate_value_response(request, &params, &snapshot, &source, current_no_data_error)
}

async fn fx_series_list_response(
    request: &SnapshotRequest,
    query: &QueryParams,
    currency: Currency,
) -> Result<Response, ApiError> {
    let list_params = RateListParams::from_query(request, query)?;
    let history_params = HistoryParams::from_query(query)?;

    let snapshot = request.snapshot()?;
    let current = fx_source(&snapshot, CurrencyPair::Published(currency))?;
    let historical = load_fx_as_of(request, current.pair, history_params.as_of).await?;
    let source = FxSeriesSource { currency, fx: current.with_historical_rates(historical.as_ref()) };
    Ok(rate_list_response(request, (&list_params, &history_params), &snapshot, &source))
}

async fn fx_series_value_response(
    request: &SnapshotRequest,
    query: &QueryParams,
    currency: Currency,
) -> Result<Response, ApiError> {
    let params = CurrentRateParams::from_query_as_of(request, query, request.today)?;
    let snapshot = request.snapshot()?;
    let current = fx_source(&snapshot, CurrencyPair::Published(currency))?;
    let current_no_data_error = current.no_data_error(request.today);
    let historical = load_fx_as_of(request, current.pair, params.as_of).await?;
    let source = FxSeriesSource { currency, fx: current.with_historical_rates(historical.as_ref()) };
    rate_value_response(request, &params, &snapshot, &source, current_no_data_error)
}

/// The value of one day. If nothing was known on the day of `as_of`, the error is that of the current data, which names
/// its first date.
pub fn rate_value_response<S: RateSource>(
    request: &SnapshotRequest,
    params: &CurrentRateParams,
    snapshot: &Snapshot,
    source: &S,
    current_no_data_error: ApiError,
) -> Result<Response, ApiError> {
    let no_data_error = |error| if params.as_of.is_some() { current_no_data_error } else { error };
    let body = current_rate(snapshot, source, params, request.today).map_err(no_data_error)?;

    let date = source.latest_row_until(params.day).and_then(|at| source.row_date(at));
    let extra_state = (date, body.stale, source.base_load_id(snapshot));
    let responder = EtagResponder::new(request, snapshot, &source.datasets(), extra_state);
    Ok(responder.respond_json(|| body))
}

/// The rates as known on the day of `as_of`, if requested. They come from the store, because only it has every version.
pub async fn load_fx_as_of(
    request: &SnapshotRequest,
    pair: CurrencyPair,
    as_of: Option<NaiveDate>,
) -> Result<Option<FxRates>, ApiError> {
    match as_of {
        Some(day) => Ok(Some(fx_as_of(&request.app_without_caching().store, pair, day).await?)),
        None => Ok(None),
    }
}

/// The values as known on the day of `as_of`, if requested. They come from the store, because only it has every
/// version.
async fn load_series_as_of(
    request: &SnapshotRequest,
    series: &'static Series,
    as_of: Option<NaiveDate>,
) -> Result<Option<SeriesValues>, ApiError> {
    match as_of {
        Some(day) => Ok(Some(series_as_of(&request.app_without_caching().store, series, day).await?)),
        None => Ok(None),
    }
}

/// One page of a range: newest first, or oldest first in ascending order.
pub fn rate_list_response<S: RateSource>(
    request: &SnapshotRequest,
    (list_params, history_params): (&RateListParams, &HistoryParams),
    snapshot: &Snapshot,
    source: &S,
) -> Response {
    let RateListParams { format, days, pagination, order, as_text } = *list_params;
    let today = history_params.as_of.map_or(request.today, |day| day.min(request.today));
    let is_updated =
        |at: &usize| history_params.updated_since.is_none_or(|unix_seconds| source.is_updated_since(*at, unix_seconds));
    let matching: Vec<usize> = source.row_range(days.capped_at(today)).filter(is_updated).collect();
    let total = matching.len();
    let stale = source.is_stale(today);

    // Stored values may lie in the future, so the latest date can change without a load.
    let latest_date = matching.last().and_then(|at| source.row_date(*at));
    let extra_state = (latest_date, stale, source.base_load_id(snapshot));
    let responder = EtagResponder::new(request, snapshot, &source.datasets(), extra_state);

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
        series: SeriesHeaderBody::of(source, request.lang),
        as_of: format_loaded_at(snapshot, source),
        stale,
        total,
        limit: pagination.limit,
        offset: pagination.offset,
        message: source.empty_range_message(days).map(|message| message.in_lang(request.lang)),
        data: rows(),
    };
    let table = |()| {
        let trace_columns = TraceBody::columns(history_params.provenance, with_certainty);
        let value_format = (source.max_decimals(), source.shape());
        rate_table(source.describe(request.lang), source.series_id(), value_format, rows(), trace_columns)
    };
    with_page_links(responder.respond_list(format, (), body, table), request, pagination, total)
}

/// When the source's data was loaded; for several datasets, the first one that is loaded.
pub fn format_loaded_at<S: RateSource>(snapshot: &Snapshot, source: &S) -> String {
    let state = source.datasets().into_iter().find_map(|dataset| snapshot.state(dataset));
    state.map(|state| format_instant(state.loaded_at)).unwrap_or_default()
}

/// The query parameters of single values.
pub struct CurrentRateParams {
    /// The latest value on or before this day is returned.
    pub day: NaiveDate,
    pub as_text: bool,
    pub provenance: bool,
    /// Point-in-time query: only what was known on this day.
    pub as_of: Option<NaiveDate>,
    pub lang: Lang,
}

impl CurrentRateParams {
    pub fn from_query(request: &SnapshotRequest, query: &QueryParams, today: NaiveDate) -> Result<Self, Problem> {
        let day = query.date("on")?.map_or(today, |on| on.min(today));
        let as_text = query.numbers_as_text()?;
        let provenance = query.flag("provenance")?;
        Ok(Self { day, as_text, provenance, as_of: None, lang: request.lang })
    }

    /// Like [`Self::from_query`], and also accepts `as_of`.
    pub fn from_query_as_of(request: &SnapshotRequest, query: &QueryParams, today: NaiveDate) -> Result<Self, Problem> {
        let params = Self::from_query(request, query, today)?;
        let as_of = query.date("as_of")?;
        Ok(Self { day: as_of.map_or(params.day, |day| day.min(params.day)), as_of, ..params })
    }

    pub fn row_options<'s>(&self, snapshot: &'s Snapshot) -> RowOptions<'s> {
        let provenance = self.provenance.then_some(snapshot);
        RowOptions { as_text: self.as_text, provenance, with_certainty: self.as_of.is_some() }
    }
}

pub fn current_rate<S: RateSource>(
    snapshot: &Snapshot,
    source: &S,
    params: &CurrentRateParams,
    today: NaiveDate,
) -> Result<CurrentRateBody<S::Row>, ApiError> {
    let row = source.latest_row_until(params.day).and_then(|at| source.row(at, params.row_options(snapshot)));
    let row = row.ok_or_else(|| source.no_data_error(today))?;
    Ok(current_rate_body(source, row, params.lang, today))
}
