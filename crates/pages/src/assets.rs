//! Styles, scripts and pictures, embedded in the binary. Their addresses carry a fingerprint of all of them, so a browser
//! may keep what it has for ever.

use std::hash::{DefaultHasher, Hasher};
use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::{Uri, header};
use vintem_domain::Problem;

use crate::problem_response;

pub(crate) const JAVASCRIPT_MIME: &str = "text/javascript; charset=utf-8";
const CSS_MIME: &str = "text/css; charset=utf-8";
const SVG_MIME: &str = "image/svg+xml; charset=utf-8";
const PNG_MIME: &str = "image/png";

/// What has its own address: it never changes under it.
const CACHE_IMMUTABLE: &str = "public, max-age=31536000, immutable";
/// Long enough to spare a visit's requests.
const CACHE_ONE_HOUR: &str = "public, max-age=3600";

struct Asset {
    name: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

macro_rules! local_asset {
    ($name:literal, $content_type:expr) => {
        Asset { name: $name, content_type: $content_type, bytes: include_bytes!(concat!("../assets/", $name)) }
    };
}

/// From npm, fetched when this is built.
macro_rules! npm_asset {
    ($name:literal, $content_type:expr) => {
        Asset { name: $name, content_type: $content_type, bytes: include_bytes!(concat!(env!("OUT_DIR"), "/", $name)) }
    };
}

static ASSETS: [Asset; 13] = [
    local_asset!("vintem.css", CSS_MIME),
    local_asset!("site.js", JAVASCRIPT_MIME),
    local_asset!("try.js", JAVASCRIPT_MIME),
    local_asset!("key.js", JAVASCRIPT_MIME),
    local_asset!("pricing.js", JAVASCRIPT_MIME),
    local_asset!("docs.js", JAVASCRIPT_MIME),
    local_asset!("samples.js", JAVASCRIPT_MIME),
    local_asset!("dashboard.js", JAVASCRIPT_MIME),
    local_asset!("series.js", JAVASCRIPT_MIME),
    local_asset!("icon.svg", SVG_MIME),
    local_asset!("card.png", PNG_MIME),
    npm_asset!("uplot.js", JAVASCRIPT_MIME),
    npm_asset!("uplot.css", CSS_MIME),
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

/// Where browsers look for it by themselves.
pub(crate) async fn get_icon() -> Response {
    asset_response("icon.svg", CACHE_ONE_HOUR)
}

fn asset_response(name: &str, cache: &'static str) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return problem_response(Problem::NoSuchPath);
    };
    ([(header::CONTENT_TYPE, asset.content_type), (header::CACHE_CONTROL, cache)], asset.bytes).into_response()
}
