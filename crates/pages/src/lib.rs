//! The HTML pages: home, pricing and the API reference, with the scripts, style and icon that they load.
//!
//! What the pages say of plans and routes is drawn from the tables of `vintem_domain`, never written twice.
//! Everything is embedded in the binary: a page asks no other host for anything, has no inline script, and
//! declares both in its Content-Security-Policy.
//!
//! Never here: SQL, Redis keys, the bodies of the API. The one call to the API is made by the reader's browser.
//!
//! Nothing here waits for a dependency: with Postgres and Redis away every page is served as always, and only
//! the registration form then shows the error with which the API answers.

mod assets;
mod bundle;
mod docs;
mod home;
mod layout;
mod pricing;

use std::sync::Arc;

use axum::routing::{MethodRouter, get};
use vintem_domain::plan::Limits;

/// What the pages show beyond their own tables.
#[derive(Clone)]
pub struct PageSettings {
    pub limits: Limits,
    /// Where callers reach the service, such as `https://api.example.com`, without a slash at the end.
    pub public_url: String,
    /// Served as it is at `/docs/openapi.yaml`.
    pub openapi_yaml: &'static str,
    /// Asked at every rendering: whether the data served is synthetic.
    pub synthetic: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// What each handler is given.
type Shared = Arc<PageSettings>;

/// Operation name of the route table → its handler. The caller joins each with its path.
pub fn handlers(settings: PageSettings) -> Vec<(&'static str, MethodRouter)> {
    let shared: Shared = Arc::new(settings);
    vec![
        ("show_home", get(home::show_home).with_state(shared.clone())),
        ("show_pricing", get(pricing::show_pricing).with_state(shared.clone())),
        ("show_docs", get(docs::show_docs).with_state(shared.clone())),
        ("get_openapi", get(docs::get_openapi).with_state(shared.clone())),
        ("get_openapi_json", get(docs::get_openapi_json).with_state(docs::as_json(shared.openapi_yaml))),
        ("get_docs_script", get(assets::get_docs_script)),
        ("get_docs_bundle", get(bundle::get_docs_bundle)),
        ("get_style", get(assets::get_style)),
        ("get_pricing_script", get(assets::get_pricing_script)),
        ("get_icon", get(assets::get_icon)),
    ]
}

#[cfg(test)]
mod tests;
