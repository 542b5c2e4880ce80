//! Styles, scripts and pictures, embedded in the binary. Their addresses carry a fingerprint of all of them, so a browser
//! may keep what it has for ever.

use std::hash::{DefaultHasher, Hasher};
use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::{Uri, header};
use vintem_domain::Problem;

use crate::refuse;

pub(crate) const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml; charset=utf-8";
const PNG: &str = "image/png";

/// What has its own address: it never changes under it.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// Long enough to spare a visit's requests.
const AN_HOUR: &str = "public, max-age=3600";

struct Asset {
    name: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

macro_rules! ours {
    ($name:literal, $content_type:expr) => {
        Asset { name: $name, content_type: $content_type, bytes: include_bytes!(concat!("../assets/", $name)) }
    };
}

/// From npm, fetched when this is built.
macro_rules! fetched {
    ($name:literal, $content_type:expr) => {
        Asset { name: $name, content_type: $content_type, bytes: include_bytes!(concat!(env!("OUT_DIR"), "/", $name)) }
    };
}

static ASSETS: [Asset; 13] = [
    ours!("vintem.css", CSS),
    ours!("site.js", JAVASCRIPT),
    ours!("try.js", JAVASCRIPT),
    ours!("key.js", JAVASCRIPT),
    ours!("pricing.js", JAVASCRIPT),
    ours!("docs.js", JAVASCRIPT),
    ours!("samples.js", JAVASCRIPT),
    ours!("dashboard.js", JAVASCRIPT),
    ours!("series.js", JAVASCRIPT),
    ours!("icon.svg", SVG),
    ours!("card.png", PNG),
    fetched!("uplot.js", JAVASCRIPT),
    fetched!("uplot.css", CSS),
];

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    ASSETS.iter().for_each(|asset| hasher.write(asset.bytes));
    format!("{:016x}", hasher.finish())
});

pub(crate) fn address(name: &str) -> String {
    format!("/assets/{name}?v={}", *VERSION)
}

pub(crate) async fn get_asset(Path(name): Path<String>, uri: Uri) -> Response {
    let is_current = uri.query().and_then(|query| query.strip_prefix("v=")) == Some(VERSION.as_str());
    serve(&name, if is_current { FOR_EVER } else { AN_HOUR })
}

/// Where browsers look for it by themselves.
pub(crate) async fn get_icon() -> Response {
    serve("icon.svg", AN_HOUR)
}

fn serve(name: &str, cache: &'static str) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else { return refuse(Problem::NoSuchPath) };
    ([(header::CONTENT_TYPE, asset.content_type), (header::CACHE_CONTROL, cache)], asset.bytes).into_response()
}
