//! `/docs`: the API reference. A script renders it from the OpenAPI description in the language of the page. Without
//! scripts, the page shows the route table.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;
use vintem_domain::lang::{Lang, LocalizedText};
use vintem_domain::route::{ROUTES, RateLimitKind, Route};

use crate::context::SharedSettings;
use crate::docs_bundle;
use crate::layout::{Layout, PageMetadata, PageRequest, StylePolicy, html_response};

#[derive(Template)]
#[template(path = "docs.html")]
struct DocsPage {
    page: Layout,
    bundle_hash: &'static str,
    operations: Vec<OperationRow>,
}

struct OperationRow {
    method: &'static str,
    path: &'static str,
    /// The lowest plan that may call it.
    plan: &'static str,
}

const TITLE: LocalizedText = LocalizedText::new("API reference", "Referência da API");
const DESCRIPTION: LocalizedText = LocalizedText::new(
    "Every operation with parameters, responses and samples in curl, Python, JavaScript, R, Google Sheets and Excel.",
    "Todas as operações com parâmetros, respostas e exemplos em curl, Python, JavaScript, R, Google Planilhas e Excel.",
);

pub(crate) async fn show_docs(State(settings): State<SharedSettings>, request: PageRequest) -> Response {
    let page = Layout::new(&settings, &request, PageMetadata::new(request.lang(), "/docs", TITLE, DESCRIPTION));
    let operations = ROUTES.iter().filter(|route| is_api_route(route)).map(operation_row).collect();
    let docs = DocsPage { page, bundle_hash: docs_bundle::bundle_hash(), operations };
    html_response(&docs, &docs.page, StylePolicy::AllowInline)
}

/// The operations that serve the OpenAPI description, as YAML and as JSON.
pub(crate) const OPENAPI_OPERATIONS: [(Lang, &str, &str); 2] =
    [(Lang::En, "get_openapi", "get_openapi_json"), (Lang::Pt, "get_openapi_pt", "get_openapi_pt_json")];

pub(crate) async fn get_openapi(State(yaml): State<&'static str>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/yaml; charset=utf-8"),
        (header::CACHE_CONTROL, "public, max-age=60, s-maxage=0"),
    ];
    (headers, yaml).into_response()
}

/// The OpenAPI description in JSON, for tools that cannot read YAML.
pub(crate) async fn get_openapi_json(State(json): State<Arc<str>>) -> Response {
    let headers =
        [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "public, max-age=60, s-maxage=0")];
    (headers, json.to_string()).into_response()
}

/// Panics if the description is not valid YAML, so that a broken build fails at startup.
pub(crate) fn yaml_to_json(yaml: &str) -> Arc<str> {
    let description: serde_json::Value = yaml_serde::from_str(yaml).expect("the description is YAML");
    description.to_string().into()
}

/// The reference leaves out pages and their assets, but includes `/health`.
fn is_api_route(route: &Route) -> bool {
    route.rate_limit == RateLimitKind::Quota || route.operation == "get_health"
}

fn operation_row(route: &Route) -> OperationRow {
    OperationRow { method: route.method.as_str(), path: route.path, plan: route.plan.name() }
}
