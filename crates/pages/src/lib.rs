//! The HTML pages, with the scripts, styles and pictures that they load.
//!
//! What the pages say of plans and routes is drawn from the tables of `vintem_domain`, never written twice; what they say
//! of the data is read from the snapshot, as the API reads it. Everything is embedded in the binary: a page asks no other
//! host for anything, has no inline script, and declares both in its Content-Security-Policy.
//!
//! Never here: SQL, Redis keys, the bodies of the API. The calls to the API are made by the reader's browser. A page shows
//! at most ten filings: pages are no way round the plans.
//!
//! Nothing here waits for a dependency: with Postgres and Redis away every page is served as always, and only what
//! scripts ask of the API then shows the error with which the API answers.

mod assets;
mod chart;
mod companies;
mod dashboard;
mod docs;
mod docs_bundle;
mod formatting;
mod guides;
mod home;
mod layout;
mod markdown;
mod market;
mod pricing;
mod problems;
mod search;
mod series;
mod status;
mod well_known;

use std::pin::Pin;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use http::{HeaderMap, StatusCode, Uri};
use vintem_domain::plan::PlanConfig;
use vintem_domain::{Clock, Problem};
use vintem_snapshot::{LiveSnapshot, RowPage, Snapshot};

/// What a page shows of filings, of companies, or of a search, at most.
const MAX_PAGE_ROWS: usize = 10;

/// What was found, in the snapshot that it was found in: companies, then filings.
pub type SearchFuture = Pin<Box<dyn Future<Output = Result<(Arc<Snapshot>, [RowPage; 2]), Problem>> + Send>>;

/// What the pages show beyond their own tables.
#[derive(Clone)]
pub struct PageSettings {
    pub offer: PlanConfig,
    /// Where callers reach the service, such as `https://api.example.com`, without a slash at the end.
    pub public_url: String,
    /// Where the operator is reached: an e-mail, or the address of a page.
    pub contact: Option<String>,
    /// Served as it is at `/docs/openapi.yaml`.
    pub openapi_yaml: &'static str,
    pub snapshot: Arc<LiveSnapshot>,
    pub clock: Arc<dyn Clock>,
    /// Whether the engines behind the API answered when they were last asked.
    pub backends_healthy: Arc<dyn Fn() -> bool + Send + Sync>,
    /// The API's own search for so many rows of each kind, with its bounds on how many run at once.
    pub search: Arc<dyn Fn(String, usize) -> SearchFuture + Send + Sync>,
}

/// What each handler is given.
type SharedSettings = Arc<PageSettings>;

/// Tells a person what the API would tell a program: the problem, the request, and its number.
pub type ProblemRenderer = Arc<dyn Fn(&Problem, &HeaderMap, &Uri, &str) -> Response + Send + Sync>;

/// Operation name of the route table → its handler. The caller joins each with its path.
pub fn handlers(settings: PageSettings) -> Vec<(&'static str, MethodRouter)> {
    let shared: SharedSettings = Arc::new(settings);
    let pages: Vec<(&'static str, MethodRouter<SharedSettings>)> = vec![
        ("show_home", get(home::show_home)),
        ("show_pricing", get(pricing::show_pricing)),
        ("show_docs", get(docs::show_docs)),
        ("show_guides", get(guides::show_guides)),
        ("show_guide", get(guides::show_guide)),
        ("show_dashboard", get(dashboard::show_dashboard)),
        ("show_status", get(status::show_status)),
        ("get_status_feed", get(status::get_status_feed)),
        ("show_series", get(series::show_series)),
        ("show_company", get(companies::show_company)),
        ("show_search", get(search::show_search)),
        ("show_terms", get(guides::show_terms)),
        ("show_privacy", get(guides::show_privacy)),
        ("show_data", get(guides::show_data)),
        ("get_robots", get(well_known::get_robots)),
        ("get_sitemap", get(well_known::get_sitemap)),
        ("get_security_contact", get(well_known::get_security_contact)),
        ("get_llms", get(well_known::get_llms)),
        ("get_openapi", get(docs::get_openapi)),
        ("get_docs_bundle", get(docs_bundle::get_docs_bundle)),
        ("get_asset", get(assets::get_asset)),
        ("get_icon", get(assets::get_icon)),
    ];
    let mut handlers: Vec<_> =
        pages.into_iter().map(|(operation, handler)| (operation, handler.with_state(shared.clone()))).collect();
    let json = docs::yaml_to_json(shared.openapi_yaml);
    handlers.push(("get_openapi_json", get(docs::get_openapi_json).with_state(json)));
    handlers
}

/// For whoever asks as a browser does and cannot be given what was asked for.
pub fn problem_renderer(settings: PageSettings) -> ProblemRenderer {
    Arc::new(move |problem, headers, uri, request_id| {
        problems::render_problem_page(&settings, problem, headers, uri, request_id)
    })
}

/// What a page answers when it cannot answer what was asked: the service turns it into a page or a body.
fn problem_response(problem: Problem) -> Response {
    let status = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = status.into_response();
    response.extensions_mut().insert(problem);
    response
}

#[cfg(test)]
mod tests;
