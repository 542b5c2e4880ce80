//! Styles, scripts and pictures, embedded in the binary. Their URLs contain a hash of all of them, so that browsers may
//! cache them forever.

use std::hash::{DefaultHasher, Hasher};
use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::{Uri, header};
use vintem_domain::Problem;

use crate::problem_response::problem_response;

pub(crate) const JAVASCRIPT_MIME: &str = "text/javascript; charset=utf-8";
const CSS_MIME: &str = "text/css; charset=utf-8";
const SVG_MIME: &str = "image/svg+xml; charset=utf-8";
const PNG_MIME: &str = "image/png";

/// For URLs with the current hash, whose content never changes.
const CACHE_IMMUTABLE: &str = "public, max-age=31536000, immutable";
/// Long enough to avoid repeated requests during a visit.
const CACHE_ONE_HOUR: &str = "public, max-age=3600";

struct Asset {
    name: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

macro_rules! asset {
    ($name:literal, $content_type:expr) => {
        asset!($name, $content_type, $name)
    };
    ($name:literal, $content_type:expr, $file:literal) => {
        Asset { name: $name, content_type: $content_type, bytes: include_bytes!(concat!("../assets/", $file)) }
    };
}

static ASSETS: [Asset; 14] = [
    asset!("vintem.css", CSS_MIME),
    asset!("site.js", JAVASCRIPT_MIME),
    asset!("try.js", JAVASCRIPT_MIME),
    asset!("key.js", JAVASCRIPT_MIME),
    asset!("pricing.js", JAVASCRIPT_MIME),
    asset!("docs.js", JAVASCRIPT_MIME),
    asset!("samples.js", JAVASCRIPT_MIME),
    asset!("dashboard.js", JAVASCRIPT_MIME),
    asset!("series.js", JAVASCRIPT_MIME),
    asset!("statements.js", JAVASCRIPT_MIME),
    asset!("icon.svg", SVG_MIME),
    asset!("card.png", PNG_MIME),
    asset!("uplot.js", JAVASCRIPT_MIME, "uplot/uPlot.iife.min.js"),
    asset!("uplot.css", CSS_MIME, "uplot/uPlot.min.css"),
];

static ASSETS_HASH: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    ASSETS.iter().for_each(|asset| hasher.write(asset.bytes));
    format!("{:016x}", hasher.finish())
});

pub(crate) fn asset_url(name: &str) -> String {
    format!("/assets/{name}?v={}", *ASSETS_HASH)
}

pub(crate) async fn get_asset(Path(name): Path<String>, uri: Uri) -> Response {
    let is_current = uri.query().and_then(|query| query.strip_prefix("v=")) == Some(ASSETS_HASH.as_str());
    asset_response(&name, if is_current { CACHE_IMMUTABLE } else { CACHE_ONE_HOUR })
}

/// `/favicon.ico`, which browsers request by themselves.
pub(crate) async fn get_icon() -> Response {
    asset_response("icon.svg", CACHE_ONE_HOUR)
}

fn asset_response(name: &str, cache_control: &'static str) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return problem_response(Problem::NoSuchPath);
    };
    ([(header::CONTENT_TYPE, asset.content_type), (header::CACHE_CONTROL, cache_control)], asset.bytes).into_response()
}
