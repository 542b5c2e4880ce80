//! Market data: series and exchange rates, as history and as the value of one day.

pub mod accumulation;
mod catalog;
pub mod compare;
mod fx;
mod rates;

use axum::extract::Path;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use vintem_domain::CurrencyPair;

use crate::api_error::ApiError;
use crate::app::Handlers;
use crate::bodies::market::{CurrentRateBody, FxRateBody, RateBody, RateSource, fx_source, series_source};
use crate::params::QueryParams;
use crate::responses::EtagResponder;
use crate::snapshot_request::SnapshotRequest;
use rates::{CurrentRateParams, current_rate, series_list_response, series_value_response};

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

async fn list_selic(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    series_list_response(&request, &query, "selic").await
}

async fn get_selic(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    series_value_response(&request, &query, "selic").await
}

async fn list_cdi(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    series_list_response(&request, &query, "cdi").await
}

async fn get_cdi(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    series_value_response(&request, &query, "cdi").await
}

async fn list_ipca(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    series_list_response(&request, &query, "ipca").await
}

async fn get_ipca(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    series_value_response(&request, &query, "ipca").await
}

async fn list_observations(
    request: SnapshotRequest,
    Path(id): Path<String>,
    query: QueryParams,
) -> Result<Response, ApiError> {
    series_list_response(&request, &query, &id).await
}

async fn get_observation(
    request: SnapshotRequest,
    Path(id): Path<String>,
    query: QueryParams,
) -> Result<Response, ApiError> {
    series_value_response(&request, &query, &id).await
}

async fn get_overview(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let snapshot = request.snapshot()?;
    let today = request.today;
    let as_text = query.numbers_as_text()?;
    let provenance = query.flag("provenance")?;
    let params = CurrentRateParams { day: today, as_text, provenance, as_of: None, lang: request.lang };

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
    let extra_state = (dates, stale, cdi.base_load_id(&snapshot));
    Ok(EtagResponder::new(&request, &snapshot, &datasets, extra_state).respond_json(|| body))
}
