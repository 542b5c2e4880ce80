//! Answers with data: JSON, the tag of what they were made from, links to the neighbouring pages.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::body::{Body, Bytes};
use axum::response::Response;
use chrono::NaiveDate;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use vintem_deliver::table::Table;
use vintem_domain::{Dataset, VERSION};
use vintem_snapshot::Snapshot;

use crate::App;
use crate::caller::Caller;
use crate::csv::{Form, Style, respond};
use crate::front::Lasting;
use crate::params::Page;
use crate::routes::found::FacetsBody;
use crate::routes::{status, today};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A JSON answer that nobody may keep: what concerns one key.
pub fn uncached(status: StatusCode, body: &impl Serialize) -> Response {
    with_cache_control(status, json(body), NO_STORE)
}

/// The same as a table.
pub fn uncached_table(table: Table, style: Style, today: NaiveDate) -> Response {
    let mut response = respond(table, style, today);
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// A JSON answer that is the same for all callers of a language.
pub fn shared(caller: &Caller, body: &impl Serialize) -> Response {
    with_cache_control(StatusCode::OK, json(body), cache_control(caller))
}

fn json(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).expect("bodies have text keys only").into()
}

fn with_cache_control(status: StatusCode, body: Bytes, cache_control: HeaderValue) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    // Room for all that an answer carries: it is not to grow step by step.
    response.headers_mut().reserve(32);
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response.headers_mut().insert(header::CACHE_CONTROL, cache_control);
    response
}

/// On an answer whose bytes are to arrive as they are, uncompressed.
#[derive(Debug, Clone, Copy)]
pub struct AsItIs;

/// The tag of an answer: it changes when the answer may.
pub struct Tag<'a> {
    app: &'a App,
    caller: &'a Caller,
    etag: HeaderValue,
    /// When what is served was loaded; of several datasets the oldest.
    as_of: Option<HeaderValue>,
    stale: bool,
    /// Whether all of it follows from the snapshot and the day.
    is_lasting: bool,
}

impl<'a> Tag<'a> {
    /// From the state of the datasets that are read, the request, and what else the answer depends on.
    pub fn new(caller: &'a Caller, app: &'a App, snapshot: &Snapshot, datasets: &[Dataset], more: impl Hash) -> Self {
        let stale = datasets.iter().any(|dataset| app.snapshot.is_stale(snapshot, *dataset, app.clock.now()));
        let loaded_at = datasets.iter().filter_map(|dataset| snapshot.state(*dataset)).map(|state| state.loaded_at);
        let as_of = loaded_at.min().and_then(|at| HeaderValue::from_str(&status::instant(at)).ok());
        let mut hasher = DefaultHasher::new();
        (VERSION, stale, caller.lang).hash(&mut hasher);
        for dataset in datasets {
            // The time of the load as well: generations begin anew when demo data is taken away.
            let state = snapshot.state(*dataset).map(|state| (state.generation, state.loaded_at));
            (dataset.id(), state).hash(&mut hasher);
        }
        (caller.path(), caller.query(), caller.prefers_csv).hash(&mut hasher);
        more.hash(&mut hasher);
        let etag = HeaderValue::from_str(&format!("W/\"{:016x}\"", hasher.finish())).expect("hexadecimal digits");
        // Whether the registry is stale follows from the hour too.
        let is_lasting = !datasets.contains(&Dataset::Companies);
        Self { app, caller, etag, as_of, stale, is_lasting }
    }

    /// The answer, or 304 if the caller has it already; then `body` is not made.
    pub fn answer<B: Serialize>(self, body: impl FnOnce() -> B) -> Response {
        let is_lasting = self.is_lasting;
        self.answer_with(|cache_control| {
            let body = json(&body());
            let mut response = with_cache_control(StatusCode::OK, body.clone(), cache_control);
            if is_lasting {
                response.extensions_mut().insert(Lasting(body));
            }
            response
        })
    }

    /// The same of a list, in the form that is asked for: of its rows either the body or the table is made.
    pub fn list<Rows, B: Serialize>(
        self,
        form: Form,
        rows: Rows,
        body: impl FnOnce(Rows) -> B,
        table: impl FnOnce(Rows) -> Table,
    ) -> Response {
        let Form::Csv(style) = form else { return self.answer(|| body(rows)) };
        let today = today(self.app);
        self.answer_with(|cache_control| {
            let mut response = respond(table(rows), style, today);
            response.headers_mut().insert(header::CACHE_CONTROL, cache_control);
            response
        })
    }

    fn answer_with(self, make: impl FnOnce(HeaderValue) -> Response) -> Response {
        let cache_control = cache_control(self.caller);
        let mut response = if is_held(self.caller, self.etag.to_str().unwrap_or("")) {
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
        if self.stale {
            headers.insert(HeaderName::from_static("x-data-stale"), HeaderValue::from_static("true"));
        }
        response
    }
}

/// Whether the caller says that it has what has this tag.
pub fn is_held(caller: &Caller, etag: &str) -> bool {
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
pub struct Listed {
    pub form: Form,
    pub page: Page,
    /// How many rows there are in all.
    pub total: usize,
    /// Where they were asked for.
    pub facets: Option<FacetsBody>,
}

/// A page of a list of rows, with links to the pages beside it.
pub fn page_of<Rows, Row: Serialize>(
    tag: Tag<'_>,
    listed: Listed,
    rows: Rows,
    bodies: impl FnOnce(Rows) -> Vec<Row>,
    table: impl FnOnce(Rows) -> Table,
) -> Response {
    let ((app, caller), Listed { form, page, total, facets }) = ((tag.app, tag.caller), listed);
    let body = |rows: Rows| PageBody { data: bodies(rows), total, limit: page.limit, offset: page.offset, facets };
    with_links(tag.list(form, rows, body, table), caller, app, page, total)
}

/// With a key the answer is its owner's alone.
pub fn cache_control(caller: &Caller) -> HeaderValue {
    HeaderValue::from_static(if caller.key.is_some() { "private, max-age=60" } else { "public, max-age=60" })
}

/// What a link to a neighbouring page repeats of the request; never what we do not know, such as a key put there.
const KEPT_IN_LINKS: [&str; 20] = [
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
pub fn with_links(mut response: Response, caller: &Caller, app: &App, page: Page, total: usize) -> Response {
    let mut links = Vec::new();
    let address = |limit: usize, offset: usize| {
        let kept = caller.query().split('&').filter(|pair| {
            let name = pair.split('=').next().unwrap_or("");
            KEPT_IN_LINKS.contains(&name)
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
