//! Answers with data: JSON, the tag of what they were made from, links to the neighbouring pages.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::body::{Body, Bytes};
use axum::response::Response;
use chrono::NaiveDate;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use vintem_deliver::table::OutputTable;
use vintem_domain::{Dataset, VERSION};
use vintem_snapshot::Snapshot;

use crate::App;
use crate::caller::Caller;
use crate::csv::{CsvOptions, ListFormat, csv_response};
use crate::front::Cacheable;
use crate::params::Pagination;
use crate::routes::search_bodies::FacetsBody;
use crate::routes::{status, today};

const JSON_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A JSON answer that nobody may keep: what concerns one key.
pub fn uncached_json(status: StatusCode, body: &impl Serialize) -> Response {
    json_response(status, to_json_bytes(body), NO_STORE)
}

/// The same as a table.
pub fn uncached_csv(table: OutputTable, style: CsvOptions, today: NaiveDate) -> Response {
    let mut response = csv_response(table, style, today);
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// A JSON answer that is the same for all callers of a language.
pub fn cacheable_json(caller: &Caller, body: &impl Serialize) -> Response {
    json_response(StatusCode::OK, to_json_bytes(body), cache_control(caller))
}

fn to_json_bytes(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).expect("bodies have text keys only").into()
}

fn json_response(status: StatusCode, body: Bytes, cache_control: HeaderValue) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    // Room for all that an answer carries: it is not to grow step by step.
    response.headers_mut().reserve(32);
    response.headers_mut().insert(header::CONTENT_TYPE, JSON_CONTENT_TYPE);
    response.headers_mut().insert(header::CACHE_CONTROL, cache_control);
    response
}

/// On an answer whose bytes are to arrive as they are, uncompressed.
#[derive(Debug, Clone, Copy)]
pub struct SkipCompression;

/// The tag of an answer: it changes when the answer may.
pub struct EtagResponder<'a> {
    app: &'a App,
    caller: &'a Caller,
    etag: HeaderValue,
    /// When what is served was loaded; of several datasets the oldest.
    as_of: Option<HeaderValue>,
    is_stale: bool,
    /// Whether all of it follows from the snapshot and the day.
    is_cacheable: bool,
}

impl<'a> EtagResponder<'a> {
    /// From the state of the datasets that are read, the request, and what else the answer depends on.
    pub fn new(
        caller: &'a Caller,
        app: &'a App,
        snapshot: &Snapshot,
        datasets: &[Dataset],
        extra_state: impl Hash,
    ) -> Self {
        let is_stale = datasets.iter().any(|dataset| app.live_snapshot.is_stale(snapshot, *dataset, app.clock.now()));
        let loaded_at = datasets.iter().filter_map(|dataset| snapshot.state(*dataset)).map(|state| state.loaded_at);
        let as_of = loaded_at.min().and_then(|at| HeaderValue::from_str(&status::format_instant(at)).ok());
        let mut hasher = DefaultHasher::new();
        (VERSION, is_stale, caller.lang).hash(&mut hasher);
        for dataset in datasets {
            // The time of the load as well: generations begin anew when demo data is taken away.
            let state = snapshot.state(*dataset).map(|state| (state.generation, state.loaded_at));
            (dataset.id(), state).hash(&mut hasher);
        }
        (caller.path(), caller.query_string(), caller.prefers_csv).hash(&mut hasher);
        extra_state.hash(&mut hasher);
        let etag = HeaderValue::from_str(&format!("W/\"{:016x}\"", hasher.finish())).expect("hexadecimal digits");
        // Whether the registry is stale follows from the hour too.
        let is_cacheable = !datasets.contains(&Dataset::Companies);
        Self { app, caller, etag, as_of, is_stale, is_cacheable }
    }

    /// The answer, or 304 if the caller has it already; then `body` is not made.
    pub fn respond_json<B: Serialize>(self, body: impl FnOnce() -> B) -> Response {
        let is_cacheable = self.is_cacheable;
        self.respond_with(|cache_control| {
            let body = to_json_bytes(&body());
            let mut response = json_response(StatusCode::OK, body.clone(), cache_control);
            if is_cacheable {
                response.extensions_mut().insert(Cacheable(body));
            }
            response
        })
    }

    /// The same of a list, in the form that is asked for: of its rows either the body or the table is made.
    pub fn respond_list<Rows, B: Serialize>(
        self,
        form: ListFormat,
        rows: Rows,
        body: impl FnOnce(Rows) -> B,
        table: impl FnOnce(Rows) -> OutputTable,
    ) -> Response {
        let ListFormat::Csv(style) = form else { return self.respond_json(|| body(rows)) };
        let today = today(self.app);
        self.respond_with(|cache_control| {
            let mut response = csv_response(table(rows), style, today);
            response.headers_mut().insert(header::CACHE_CONTROL, cache_control);
            response
        })
    }

    fn respond_with(self, make: impl FnOnce(HeaderValue) -> Response) -> Response {
        let cache_control = cache_control(self.caller);
        let mut response = if matches_if_none_match(self.caller, self.etag.to_str().unwrap_or("")) {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response.headers_mut().insert(header::CACHE_CONTROL, cache_control);
            response
        } else {
            make(cache_control)
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

/// Whether the caller says that it has what has this tag.
pub fn matches_if_none_match(caller: &Caller, etag: &str) -> bool {
    let Some(held) = caller.if_none_match.as_ref().and_then(|value| value.to_str().ok()) else { return false };
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let ours = opaque(etag);
    held.trim() == "*" || held.split(',').any(|tag| opaque(tag) == ours)
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

/// Which page of a list it is, and as what.
pub struct ListPage {
    pub form: ListFormat,
    pub page: Pagination,
    /// How many rows there are in all.
    pub total: usize,
    /// Where they were asked for.
    pub facets: Option<FacetsBody>,
}

/// A page of a list of rows, with links to the pages beside it.
pub fn page_response<Rows, Row: Serialize>(
    tag: EtagResponder<'_>,
    listed: ListPage,
    rows: Rows,
    bodies: impl FnOnce(Rows) -> Vec<Row>,
    table: impl FnOnce(Rows) -> OutputTable,
) -> Response {
    let ((app, caller), ListPage { form, page, total, facets }) = ((tag.app, tag.caller), listed);
    let body = |rows: Rows| PageBody { data: bodies(rows), total, limit: page.limit, offset: page.offset, facets };
    with_page_links(tag.respond_list(form, rows, body, table), caller, app, page, total)
}

/// With a key the answer is its owner's alone.
pub fn cache_control(caller: &Caller) -> HeaderValue {
    HeaderValue::from_static(if caller.key.is_some() { "private, max-age=60" } else { "public, max-age=60" })
}

/// What a link to a neighbouring page repeats of the request; never what we do not know, such as a key put there.
const PAGE_LINK_PARAMS: [&str; 20] = [
    "from",
    "to",
    "order",
    "numbers",
    "pair",
    "ids",
    "align",
    "q",
    "status",
    "sector",
    "category",
    "facets",
    "highlight",
    "provenance",
    "updated_since",
    "as_of",
    "state",
    "format",
    "locale",
    "download",
];

/// Adds `Link` with the next and the previous page.
pub fn with_page_links(mut response: Response, caller: &Caller, app: &App, page: Pagination, total: usize) -> Response {
    let mut links = Vec::new();
    let address = |limit: usize, offset: usize| {
        let kept = caller.query_string().split('&').filter(|pair| {
            let name = pair.split('=').next().unwrap_or("");
            PAGE_LINK_PARAMS.contains(&name)
        });
        let mut query: Vec<String> = kept.map(str::to_owned).collect();
        query.extend([format!("limit={limit}"), format!("offset={offset}")]);
        format!("{}{}?{}", app.settings.public_url, caller.path(), query.join("&"))
    };
    let next = page.offset.saturating_add(page.limit);
    if next < total {
        links.push(format!("<{}>; rel=\"next\"", address(page.limit, next)));
    }
    if page.offset > 0 && total > 0 {
        let end = page.offset.min(total);
        let start = end.saturating_sub(page.limit);
        links.push(format!("<{}>; rel=\"prev\"", address(end - start, start)));
    }
    if let Ok(value) = HeaderValue::from_str(&links.join(", "))
        && !links.is_empty()
    {
        response.headers_mut().insert(header::LINK, value);
    }
    response
}
