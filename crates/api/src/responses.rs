//! Successful responses: JSON, CSV or another text, with ETags, cache headers and pagination links.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::response::Response;
use chrono::NaiveDate;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use vintem_deliver::table::OutputTable;
use vintem_domain::{Dataset, VERSION};
use vintem_snapshot::Snapshot;

use crate::bodies::format_instant;
use crate::bodies::search::FacetsBody;
use crate::cache_validity::{CacheValidity, UNDATED_DATASETS, UndatedStaleness};
use crate::csv::{CSV_CONTENT_TYPE, CsvOptions, ListFormat, collect_csv, stream_csv};
use crate::load::OwnerPermit;
use crate::params::{Pagination, param_name};
use crate::response_body::{ResponseBody, stream_chunks};
use crate::snapshot_request::SnapshotRequest;

/// Longer responses are not cached.
pub const MAX_CACHED_BODY_BYTES: usize = 1 << 20;

const JSON_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A JSON response that must not be cached, because it belongs to one key.
pub fn uncached_json(status: StatusCode, body: &impl Serialize) -> Response {
    let mut response = Response::new(Body::from(to_json_bytes(body)));
    *response.status_mut() = status;
    // Room for all headers of a response, so that the map does not grow step by step.
    response.headers_mut().reserve(32);
    response.headers_mut().insert(header::CONTENT_TYPE, JSON_CONTENT_TYPE);
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// A CSV response that must not be cached.
pub fn uncached_csv(table: OutputTable, options: CsvOptions, today: NaiveDate) -> Response {
    let disposition = options.content_disposition(&table, today);
    let mut response = Response::new(stream_csv(table, options));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, CSV_CONTENT_TYPE);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    if let Some(disposition) = disposition {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    response
}

/// A JSON response that depends on no dataset.
pub fn cacheable_json(request: &SnapshotRequest, body: &impl Serialize) -> Response {
    let body = ResponseBody::Whole(to_json_bytes(body));
    shared_response(body, JSON_CONTENT_TYPE, request.cache_validity(UndatedStaleness::default()))
}

fn to_json_bytes(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).expect("bodies have text keys only").into()
}

/// Marks a response that is the same for every caller. The front layer compresses and caches it, and writes the headers
/// that differ from one caller to the next.
#[derive(Debug, Clone)]
pub struct SharedResponse {
    /// The whole body, unless it is sent as a stream or not at all.
    pub body: Option<Bytes>,
    /// `None` if the response must not be cached.
    pub validity: Option<CacheValidity>,
    /// What a stream is charged to, if its handler took it.
    pub stream_permit: Option<Arc<OwnerPermit>>,
}

/// Marks a response that must not be compressed, because it already is or because its bytes are counted.
#[derive(Debug, Clone, Copy)]
pub struct SkipCompression;

fn shared_response(body: ResponseBody, content_type: HeaderValue, validity: Option<CacheValidity>) -> Response {
    // The front layer writes a whole body, in the encoding that the caller prefers.
    let (stream, body) = match body {
        ResponseBody::Whole(body) => (Body::empty(), Some(body)),
        ResponseBody::Stream(stream) => (stream, None),
    };
    let mut response = Response::new(stream);
    // Room for all headers of a response, so that the map does not grow step by step.
    response.headers_mut().reserve(32);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response.extensions_mut().insert(SharedResponse { body, validity, stream_permit: None });
    response
}

/// Responds with an `ETag` that changes whenever the response may change.
pub struct EtagResponder<'a> {
    request: &'a SnapshotRequest,
    etag: HeaderValue,
    /// When the data was loaded; for several datasets, the earliest load.
    as_of: Option<HeaderValue>,
    is_stale: bool,
    undated_staleness: UndatedStaleness,
}

impl<'a> EtagResponder<'a> {
    /// Hashes the state of `datasets`, the request, and `extra_state`, which is whatever else the response depends on.
    pub fn new(
        request: &'a SnapshotRequest,
        snapshot: &Snapshot,
        datasets: &[Dataset],
        extra_state: impl Hash,
    ) -> Self {
        let is_stale = datasets.iter().any(|dataset| request.is_stale(snapshot, *dataset));
        let loaded_at = datasets.iter().filter_map(|dataset| snapshot.state(*dataset)).map(|state| state.loaded_at);
        let as_of = loaded_at.min().and_then(|at| HeaderValue::from_str(&format_instant(at)).ok());

        let mut hasher = DefaultHasher::new();
        (VERSION, is_stale, request.lang).hash(&mut hasher);
        for dataset in datasets {
            // Not the generation: after a restore, another load may make a generation of the same number.
            (dataset.id(), snapshot.load_id(*dataset)).hash(&mut hasher);
        }
        (request.path(), request.canonical_query(), request.prefers_csv).hash(&mut hasher);
        extra_state.hash(&mut hasher);
        let etag = HeaderValue::from_str(&format!("W/\"{:016x}\"", hasher.finish())).expect("hexadecimal digits");

        let undated_staleness =
            UNDATED_DATASETS.map(|dataset| datasets.contains(&dataset).then(|| request.is_stale(snapshot, dataset)));
        Self { request, etag, as_of, is_stale, undated_staleness }
    }

    /// Responds with JSON, or with 304 and without calling `body` if the caller has the current version.
    pub fn respond_json<B: Serialize>(self, body: impl FnOnce() -> B) -> Response {
        self.respond_with(JSON_CONTENT_TYPE, || ResponseBody::Whole(to_json_bytes(&body())))
    }

    /// Like [`Self::respond_json`] for a list in the requested format: calls either `body` or `table` with the rows.
    pub fn respond_list<Rows, B: Serialize>(
        self,
        format: ListFormat,
        rows: Rows,
        body: impl FnOnce(Rows) -> B,
        table: impl FnOnce(Rows) -> OutputTable,
    ) -> Response {
        match format {
            ListFormat::Json => self.respond_json(|| body(rows)),
            ListFormat::Csv(options) => self.respond_csv(options, || table(rows)),
        }
    }

    /// Responds with JSON in chunks: a stream if there is a permit for one, otherwise whole.
    pub fn respond_json_chunks<Chunks>(self, permit: Option<OwnerPermit>, chunks: impl FnOnce() -> Chunks) -> Response
    where
        Chunks: Iterator<Item = Bytes> + Send + 'static,
    {
        let is_stream = permit.is_some();
        let mut response = self.respond_with(JSON_CONTENT_TYPE, || {
            if is_stream {
                ResponseBody::Stream(stream_chunks(chunks()))
            } else {
                ResponseBody::Whole(chunks().collect::<Vec<_>>().concat().into())
            }
        });
        if let Some(shared) = response.extensions_mut().get_mut::<SharedResponse>() {
            shared.stream_permit = permit.map(Arc::new);
        }
        response
    }

    pub fn respond_csv(self, options: CsvOptions, table: impl FnOnce() -> OutputTable) -> Response {
        let today = self.request.today;
        let mut disposition = None;
        let mut response = self.respond_with(CSV_CONTENT_TYPE, || {
            let table = table();
            disposition = options.content_disposition(&table, today);
            collect_csv(table, options, MAX_CACHED_BODY_BYTES)
        });
        if let Some(disposition) = disposition {
            response.headers_mut().insert(header::CONTENT_DISPOSITION, disposition);
        }
        response
    }

    /// Like [`Self::respond_json`] for a text of another content type.
    pub fn respond_text(self, content_type: &'static str, text: impl FnOnce() -> String) -> Response {
        self.respond_with(HeaderValue::from_static(content_type), || ResponseBody::Whole(text().into()))
    }

    /// Whether the caller has the current version, so that the response has no body.
    pub fn is_not_modified(&self) -> bool {
        matches_if_none_match(self.request.if_none_match(), &self.etag)
    }

    fn respond_with(self, content_type: HeaderValue, body: impl FnOnce() -> ResponseBody) -> Response {
        let mut response = if self.is_not_modified() {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response.extensions_mut().insert(SharedResponse { body: None, validity: None, stream_permit: None });
            response
        } else {
            let body = body();
            shared_response(body, content_type, self.request.cache_validity(self.undated_staleness))
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
pub fn matches_if_none_match(if_none_match: Option<&HeaderValue>, etag: &HeaderValue) -> bool {
    let Some(if_none_match) = if_none_match.and_then(|value| value.to_str().ok()) else { return false };

    let opaque_tag = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let current = opaque_tag(etag.to_str().unwrap_or_default());
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
pub struct ListPage {
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
    list_page: ListPage,
    rows: Rows,
    bodies: impl FnOnce(Rows) -> Vec<Row>,
    table: impl FnOnce(Rows) -> OutputTable,
) -> Response {
    let request = responder.request;
    let ListPage { format, pagination, total, facets } = list_page;

    let body =
        |rows: Rows| PageBody { data: bodies(rows), total, limit: pagination.limit, offset: pagination.offset, facets };
    with_page_links(responder.respond_list(format, rows, body, table), request, pagination, total)
}

/// A response to a request with a key is private to the key's owner. Without a key, shared caches may keep the response
/// but must ask us before each use (`s-maxage=0`): every request is counted, and the 304 brings the caller's own limit
/// headers.
pub const fn cache_control(has_key: bool) -> HeaderValue {
    HeaderValue::from_static(if has_key { "private, max-age=60" } else { "public, max-age=60, s-maxage=0" })
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
    response: Response,
    request: &SnapshotRequest,
    pagination: Pagination,
    total: usize,
) -> Response {
    let url = format!("{}{}", request.settings().public_url, request.path());
    with_page_links_to(response, &url, request.canonical_query(), pagination, total)
}

/// Like [`with_page_links`], for a list that does not come from the snapshot.
pub fn with_page_links_to(
    mut response: Response,
    url: &str,
    canonical_query: &str,
    pagination: Pagination,
    total: usize,
) -> Response {
    let is_copied = |pair: &&str| !["limit", "offset"].contains(&param_name(pair).as_str());
    let copied: Vec<&str> = canonical_query.split('&').filter(|pair| !pair.is_empty()).filter(is_copied).collect();
    let page_url = |limit: usize, offset: usize| {
        let page_params = [format!("limit={limit}"), format!("offset={offset}")];
        let params: Vec<&str> = copied.iter().copied().chain(page_params.iter().map(String::as_str)).collect();
        format!("{url}?{}", params.join("&"))
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
