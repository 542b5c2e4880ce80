//! `/docs`: the API reference. Its script draws it from `/docs/openapi.yaml`; who has no scripts gets the route table.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Uri, header};
use vintem_domain::route::{Charge, ROUTES, Route};

use crate::Shared;
use crate::bundle;
use crate::layout::{Layout, Styles, html_response};

#[derive(Template)]
#[template(path = "docs.html")]
struct DocsPage {
    page: Layout,
    bundle_version: &'static str,
    operations: Vec<Operation>,
}

struct Operation {
    method: &'static str,
    path: &'static str,
    /// The plan from which on it can be called.
    plan: &'static str,
}

pub(crate) async fn show_docs(State(settings): State<Shared>, headers: HeaderMap, uri: Uri) -> Response {
    let page = Layout::new(&settings, "/docs", &headers, &uri);
    let lang = page.lang;
    let operations = ROUTES.iter().filter(|route| is_of_the_api(route)).map(operation).collect();
    let docs = DocsPage { page, bundle_version: bundle::version(), operations };
    html_response(&docs, lang, Styles::FileAndInline)
}

pub(crate) async fn get_openapi(State(settings): State<Shared>) -> Response {
    let headers =
        [(header::CONTENT_TYPE, "application/yaml; charset=utf-8"), (header::CACHE_CONTROL, "public, max-age=60")];
    (headers, settings.openapi_yaml).into_response()
}

/// The same in JSON, for tools that read no YAML.
pub(crate) async fn get_openapi_json(State(json): State<Arc<str>>) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "public, max-age=60")];
    (headers, json.to_string()).into_response()
}

/// A file that is no YAML is found at the first start.
pub(crate) fn as_json(yaml: &str) -> Arc<str> {
    let description: serde_json::Value = yaml_serde::from_str(yaml).expect("the description is YAML");
    description.to_string().into()
}

/// Pages and their assets are no part of the reference; `/health` is.
fn is_of_the_api(route: &Route) -> bool {
    route.charge == Charge::Quota || route.operation == "get_health"
}

fn operation(route: &Route) -> Operation {
    Operation { method: route.method.name(), path: route.path, plan: route.plan.name() }
}
