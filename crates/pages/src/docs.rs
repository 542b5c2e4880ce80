//! `/docs`: the API reference. A script draws it from `/docs/openapi.yaml`; without scripts the page shows the route table.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;
use vintem_domain::lang::LocalizedText;
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
    "Every operation with its parameters, answers and snippets in six languages, to be tried on the page.",
    "Cada operação com parâmetros, respostas e exemplos em seis linguagens, para testar na própria página.",
);

pub(crate) async fn show_docs(State(settings): State<SharedSettings>, request: PageRequest) -> Response {
    let page = Layout::new(&settings, &request, PageMetadata::new(request.lang(), "/docs", TITLE, DESCRIPTION));
    let operations = ROUTES.iter().filter(|route| is_api_route(route)).map(operation_row).collect();
    let docs = DocsPage { page, bundle_hash: docs_bundle::bundle_hash(), operations };
    html_response(&docs, &docs.page, StylePolicy::AllowInline)
}

pub(crate) async fn get_openapi(State(settings): State<SharedSettings>) -> Response {
    let headers =
        [(header::CONTENT_TYPE, "application/yaml; charset=utf-8"), (header::CACHE_CONTROL, "public, max-age=60")];
    (headers, settings.openapi_yaml).into_response()
}

/// The same in JSON, for tools that read no YAML.
pub(crate) async fn get_openapi_json(State(json): State<Arc<str>>) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "public, max-age=60")];
    (headers, json.to_string()).into_response()
}

/// Panics if the description is not YAML, so the first start of a build shows the mistake.
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
