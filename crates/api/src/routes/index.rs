//! Discovery: `/api/v1` and `/api/v1/market` list the operations below them, from the route table.

use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use vintem_domain::route::{ROUTES, Route, route_by_operation};
use vintem_domain::{Currency, LocalizedText, series};

use crate::app::Handlers;
use crate::responses::{self, WholeList};
use crate::snapshot_request::SnapshotRequest;

#[derive(Serialize)]
struct IndexBody {
    data: Vec<OperationBody>,
    #[serde(flatten)]
    position: WholeList,
    docs_url: String,
    openapi_url: String,
    plans_url: String,
}

#[derive(Serialize)]
struct MarketIndexBody {
    #[serde(flatten)]
    index: IndexBody,
    series: Vec<SeriesLinkBody>,
}

#[derive(Serialize)]
struct OperationBody {
    path: &'static str,
    method: &'static str,
    operation: &'static str,
    plan: &'static str,
    params: Vec<&'static str>,
}

#[derive(Serialize)]
struct SeriesLinkBody {
    id: &'static str,
    name: &'static str,
    url: String,
}

pub fn handlers() -> Handlers {
    vec![("get_index", get(get_index)), ("get_market_index", get(get_market_index))]
}

async fn get_index(request: SnapshotRequest) -> Response {
    responses::cacheable_json(&request, &index_body(&request, "get_index"))
}

async fn get_market_index(request: SnapshotRequest) -> Response {
    let history_path = route_by_operation("list_observations").path;
    let names_of_series = series::served_series().map(|series| (series.id, series.name));
    let names_of_rates = Currency::ALL.into_iter().map(|currency| (currency.series_id(), currency.series_name()));
    let series_link = |(id, name): (&'static str, LocalizedText)| SeriesLinkBody {
        id,
        name: name.in_lang(request.lang),
        url: format!("{}{}", request.settings().public_url, history_path.replace("{id}", id)),
    };

    let body = MarketIndexBody {
        index: index_body(&request, "get_market_index"),
        series: names_of_series.chain(names_of_rates).map(series_link).collect(),
    };
    responses::cacheable_json(&request, &body)
}

/// The operations below the path of an index, which is an operation itself.
fn index_body(request: &SnapshotRequest, index_operation: &str) -> IndexBody {
    let index_path = route_by_operation(index_operation).path;
    let is_below = |route: &&Route| route.path.strip_prefix(index_path).is_some_and(|rest| rest.starts_with('/'));
    let data: Vec<OperationBody> = ROUTES.iter().filter(is_below).map(operation_body).collect();

    let absolute_url =
        |operation: &str| format!("{}{}", request.settings().public_url, route_by_operation(operation).path);
    IndexBody {
        position: WholeList::of(data.len()),
        data,
        docs_url: absolute_url("show_docs"),
        openapi_url: absolute_url("get_openapi"),
        plans_url: absolute_url("list_plans"),
    }
}

fn operation_body(route: &'static Route) -> OperationBody {
    OperationBody {
        path: route.path,
        method: route.method.as_str(),
        operation: route.operation,
        plan: route.plan.id(),
        params: route.param_names().collect(),
    }
}
