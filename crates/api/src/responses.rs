//! Successful responses: JSON, CSV or another text, with ETags, cache headers and pagination links.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::body::{Body, Bytes};
use axum::response::Response;
use chrono::NaiveDate;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use vintem_deliver::table::OutputTable;
use vintem_domain::{Dataset, VERSION};
use vintem_snapshot::Snapshot;

use crate::app::App;
use crate::bodies::format_instant;
use crate::bodies::search::FacetsBody;
use crate::caller::Caller;
use crate::csv::{CsvOptions, ListFormat, csv_response};
use crate::params::{Pagination, QueryParams};

const JSON_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A JSON response that must not be cached, because it belongs to one key.
pub fn uncached_json(status: StatusCode, body: &impl Serialize) -> Response {
    json_response(status, to_json_bytes(body), NO_STORE)
}

/// A CSV response that must not be cached.
pub fn uncached_csv(table: OutputTable, options: CsvOptions, today: NaiveDate) -> Response {
    let mut response = csv_response(table, options, today);
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// A JSON response that is the same for all callers of one language.
pub fn cacheable_json(caller: &Caller, body: &impl Serialize) -> Response {
    json_response(StatusCode::OK, to_json_bytes(body), cache_control(caller))
}

fn to_json_bytes(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).expect("bodies have text keys only").into()
}

fn json_response(status: StatusCode, body: Bytes, cache_control: HeaderValue) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    // Room for all headers of a response, so that the map does not grow step by step.
    response.headers_mut().reserve(32);
    response.headers_mut().insert(header::CONTENT_TYPE, JSON_CONTENT_TYPE);
    response.headers_mut().insert(header::CACHE_CONTROL, cache_control);
    response
}

/// Marks a response that depends only on the snapshot and the day, and carries its body.
#[derive(Debug, Clone)]
pub struct CacheableResponse(pub Bytes);

/// Marks a response that must not be compressed.
#[derive(Debug, Clone, Copy)]
pub struct SkipCompression;

/// Responds with an `ETag` that changes whenever the response may change.
pub struct EtagResponder<'a> {
    app: &'a App,
    caller: &'a Caller,
    etag: HeaderValue,
    /// When the data was loaded; for several datasets, the earliest load.
    as_of: Option<HeaderValue>,
    is_stale: bool,
    /// Whether the response depends only on the snapshot and the day.
    is_cacheable: bool,
}

impl<'a> EtagResponder<'a> {
    /// Hashes the state of `datasets`, the request, and `extra_state`, which is whatever else the response depends on.
    pub fn new(
        caller: &'a Caller,
        app: &'a App,
        snapshot: &Snapshot,
        datasets: &[Dataset],
        extra_state: impl Hash,
    ) -> Self {
        let is_stale = datasets.iter().any(|dataset| app.live_snapshot.is_stale(snapshot, *dataset, app.clock.now()));
        let loaded_at = datasets.iter().filter_map(|dataset| snapshot.state(*dataset)).map(|state| state.loaded_at);
        let as_of = loaded_at.min().and_then(|at| HeaderValue::from_str(&format_instant(at)).ok());

        let mut hasher = DefaultHasher::new();
        (VERSION, is_stale, caller.lang).hash(&mut hasher);
        for dataset in datasets {
            // Includes the load time, because generations start over when demo data is removed.
            let state = snapshot.state(*dataset).map(|state| (state.generation, state.loaded_at));
            (dataset.id(), state).hash(&mut hasher);
        }
        (caller.path(), caller.query_string(), caller.prefers_csv).hash(&mut hasher);
        extra_state.hash(&mut hasher);
        let etag = HeaderValue::from_str(&format!("W/\"{:016x}\"", hasher.finish())).expect("hexadecimal digits");

        // Whether the company registry is stale depends on the hour too.
        let is_cacheable = !datasets.contains(&Dataset::Companies);
        Self { app, caller, etag, as_of, is_stale, is_cacheable }
    }

    /// Responds with JSON, or with 304 and without calling `body` if the caller has the current version.
    pub fn respond_json<B: Serialize>(self, body: impl FnOnce() -> B) -> Response {
        let is_cacheable = self.is_cacheable;
        self.respond_with(|cache_control| {
            let body = to_json_bytes(&body());
            let mut response = json_response(StatusCode::OK, body.clone(), cache_control);
            if is_cacheable {
                response.extensions_mut().insert(CacheableResponse(body));
            }
            response
        })
    }

    /// Like [`Self::respond_json`] for a list in the requested format: calls either `body` or `table` with the rows.
    pub fn respond_list<Rows, B: Serialize>(
        self,
        format: ListFormat,
        rows: Rows,
        body: impl FnOnce(Rows) -> B,
        table: impl FnOnce(Rows) -> OutputTable,
    ) -> Response {
        let ListFormat::Csv(options) = format else { return self.respond_json(|| body(rows)) };
        let today = self.app.today();
        self.respond_with(|cache_control| {
            let mut response = csv_response(table(rows), options, today);
            response.headers_mut().insert(header::CACHE_CONTROL, cache_control);
            response
        })
    }

    /// Like [`Self::respond_json`] for a text of another content type.
    pub fn respond_text(self, content_type: &'static str, text: impl FnOnce() -> String) -> Response {
        self.respond_with(|cache_control| {
            let mut response = Response::new(Body::from(text()));
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            headers.insert(header::CACHE_CONTROL, cache_control);
            response
        })
    }

    fn respond_with(self, build: impl FnOnce(HeaderValue) -> Response) -> Response {
        let cache_control = cache_control(self.caller);
        let mut response = if matches_if_none_match(self.caller, self.etag.to_str().unwrap_or("")) {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response.headers_mut().insert(header::CACHE_CONTROL, cache_control);
            response
        } else {
            build(cache_control)
        };

        let headers = response.headers_mut();
        headers.insert(header::ETAG, self.etag);
        if let Some(as_of) = self.as_of {
            headers.insert(HeaderName::from_static("x-data-as-of"), as_of);
        }
        if self.is_stale {
            headers.insert(HeaderName::from_static("x-data-stale"), HeaderValue::from_static("true"));
        }
        response
    }
}

/// Whether `If-None-Match` contains this tag, by weak comparison.
pub fn matches_if_none_match(caller: &Caller, etag: &str) -> bool {
    let if_none_match = caller.if_none_match.as_ref().and_then(|value| value.to_str().ok());
    let Some(if_none_match) = if_none_match else { return false };

    let opaque_tag = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let current = opaque_tag(etag);
    if_none_match.trim() == "*" || if_none_match.split(',').any(|tag| opaque_tag(tag) == current)
}

#[derive(Serialize)]
struct PageBody<Row> {
    data: Vec<Row>,
    total: usize,
    limit: usize,
    offset: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    facets: Option<FacetsBody>,
}

/// The position of a list that is always sent whole.
#[derive(Serialize)]
pub struct WholeList {
    total: usize,
    limit: usize,
    offset: usize,
}

impl WholeList {
    pub fn of(total: usize) -> Self {
        Self { total, limit: total, offset: 0 }
    }
}

/// The format, position and totals of one page of a list.
pub struct ListPage<'q> {
    pub query: &'q QueryParams,
    pub format: ListFormat,
    pub pagination: Pagination,
    /// Rows on all pages.
    pub total: usize,
    /// Only if requested.
    pub facets: Option<FacetsBody>,
}

/// One page of a list, with links to the next and previous pages.
pub fn page_response<Rows, Row: Serialize>(
    responder: EtagResponder<'_>,
    list_page: ListPage<'_>,
    rows: Rows,
    bodies: impl FnOnce(Rows) -> Vec<Row>,
    table: impl FnOnce(Rows) -> OutputTable,
) -> Response {
    let app = responder.app;
    let caller = responder.caller;
    let ListPage { query, format, pagination, total, facets } = list_page;

    let body =
        |rows: Rows| PageBody { data: bodies(rows), total, limit: pagination.limit, offset: pagination.offset, facets };
    with_page_links(responder.respond_list(format, rows, body, table), caller, app, query, pagination, total)
}

/// A response to a request with a key is private to the key's owner.
pub fn cache_control(caller: &Caller) -> HeaderValue {
    HeaderValue::from_static(if caller.key.is_some() { "private, max-age=60" } else { "public, max-age=60" })
}

/// Adds the canonical path of a resource that can be named in several ways.
pub fn with_content_location(mut response: Response, canonical_path: &str) -> Response {
    if let Ok(canonical_path) = HeaderValue::from_str(canonical_path) {
        response.headers_mut().insert(header::CONTENT_LOCATION, canonical_path);
    }
    response
}

/// Adds a `Link` header with the next and the previous page, with the parameters that were given.
pub fn with_page_links(
    mut response: Response,
    caller: &Caller,
    app: &App,
    query: &QueryParams,
    pagination: Pagination,
    total: usize,
) -> Response {
    let given = query.raw_pairs(caller.query_string());
    let copied: Vec<&str> =
        given.filter(|(name, _)| !["limit", "offset"].contains(name)).map(|(_, pair)| pair).collect();
    let page_url = |limit: usize, offset: usize| {
        let page_params = [format!("limit={limit}"), format!("offset={offset}")];
        let params: Vec<&str> = copied.iter().copied().chain(page_params.iter().map(String::as_str)).collect();
        format!("{}{}?{}", app.settings.public_url, caller.path(), params.join("&"))
    };

    let mut links = Vec::new();
    let next = pagination.offset.saturating_add(pagination.limit);
    if next < total {
        links.push(format!("<{}>; rel=\"next\"", page_url(pagination.limit, next)));
    }
    if pagination.offset > 0 && total > 0 {
        let end = pagination.offset.min(total);
        let start = end.saturating_sub(pagination.limit);
        links.push(format!("<{}>; rel=\"prev\"", page_url(end - start, start)));
    }

    if let Ok(value) = HeaderValue::from_str(&links.join(", "))
        && !links.is_empty()
    {
        response.headers_mut().insert(header::LINK, value);
    }
    response
}
