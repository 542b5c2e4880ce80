//! The style, the two small scripts and the icon, embedded in the binary.

use axum::response::{IntoResponse, Response};
use http::header;

const STYLE: &str = include_str!("../assets/vintem.css");
const PRICING_SCRIPT: &str = include_str!("../assets/pricing.js");
const DOCS_SCRIPT: &str = include_str!("../assets/docs.js");
const ICON: &str = include_str!("../assets/icon.svg");

pub(crate) const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

pub(crate) async fn get_style() -> Response {
    asset("text/css; charset=utf-8", STYLE)
}

pub(crate) async fn get_pricing_script() -> Response {
    asset(JAVASCRIPT, PRICING_SCRIPT)
}

pub(crate) async fn get_docs_script() -> Response {
    asset(JAVASCRIPT, DOCS_SCRIPT)
}

pub(crate) async fn get_icon() -> Response {
    asset("image/svg+xml; charset=utf-8", ICON)
}

/// An hour: long enough to spare a visit's requests; pages name a version in the address anyway.
fn asset(content_type: &'static str, text: &'static str) -> Response {
    let headers = [(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "public, max-age=3600")];
    (headers, text).into_response()
}
