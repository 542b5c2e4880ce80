//! The HTML pages, with the scripts, styles and pictures that they load.
//!
//! Plans and routes come from the tables of `vintem_domain` and are never repeated here. Data comes from the snapshot,
//! as in the API. Everything is embedded in the binary: a page loads nothing from other hosts and has no inline script.
//! Its Content-Security-Policy enforces both.
//!
//! This crate has no SQL, no Redis keys and no API response bodies: the reader's browser calls the API. A page shows at
//! most ten filings and two years of statements, so that pages cannot be used to bypass the plans.
//!
//! No page waits for a dependency. Without Postgres and Redis every page is served as usual; only scripts that call the
//! API show its errors.

mod assets;
mod catalog;
mod chart;
mod companies;
mod context;
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
mod problem_response;
mod problems;
mod search;
mod series;
mod statements;
mod status;
mod well_known;

use std::sync::Arc;

use axum::response::Response;
use axum::routing::{MethodRouter, get};
use http::{HeaderMap, Uri};
use vintem_domain::Problem;

use context::SharedSettings;

pub use context::{PageContext, SearchFuture};

/// Renders a problem as an HTML page, from the problem, the headers and URI of the request, and the request ID.
pub type ProblemRenderer = Arc<dyn Fn(&Problem, &HeaderMap, &Uri, &str) -> Response + Send + Sync>;

/// The handlers by operation name. The caller adds the path of each from the route table.
pub fn handlers(settings: PageContext) -> Vec<(&'static str, MethodRouter)> {
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
        ("show_catalog", get(catalog::show_catalog)),
        ("show_series_group", get(catalog::show_series_group)),
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
        ("get_docs_bundle", get(docs_bundle::get_docs_bundle)),
        ("get_asset", get(assets::get_asset)),
        ("get_icon", get(assets::get_icon)),
    ];
    let mut handlers: Vec<_> =
        pages.into_iter().map(|(operation, handler)| (operation, handler.with_state(shared.clone()))).collect();

    for (lang, yaml_operation, json_operation) in docs::OPENAPI_OPERATIONS {
        let yaml = shared.openapi_yaml.in_lang(lang);
        handlers.push((yaml_operation, get(docs::get_openapi).with_state(yaml)));
        handlers.push((json_operation, get(docs::get_openapi_json).with_state(docs::yaml_to_json(yaml))));
    }
    handlers
}

/// Renders problems for requests that come from a browser.
pub fn problem_renderer(settings: PageContext) -> ProblemRenderer {
    Arc::new(move |problem, headers, uri, request_id| {
        problems::render_problem_page(&settings, problem, headers, uri, request_id)
    })
}

#[cfg(test)]
mod tests;
