//! Responses that no handler makes: problems, preflights and redirects.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use vintem_domain::{Lang, Problem};

use super::request_id::RequestId;
use crate::api_error::problem_response;

/// Renders a problem as an HTML page for browsers, from the problem, the request's headers and URI, and the request ID.
pub type ProblemPageRenderer = Arc<dyn Fn(&Problem, &HeaderMap, &Uri, &str) -> Response + Send + Sync>;

/// Renders problems: as pages for browsers outside the API, as JSON for everyone else.
pub struct ProblemResponder {
    pub page: ProblemPageRenderer,
    pub public_url: String,
}

impl ProblemResponder {
    pub fn render(
        &self,
        problem: &Problem,
        browser: Option<&BrowserRequest>,
        lang: Lang,
        request_id: &RequestId,
    ) -> Response {
        match browser {
            Some(browser) => (self.page)(problem, &browser.headers, &browser.uri, request_id.as_str()),
            None => problem_response(problem, lang, request_id.as_str(), &self.public_url),
        }
    }
}

/// A browser's request outside `/api/`.
pub struct BrowserRequest {
    headers: HeaderMap,
    uri: Uri,
}

impl BrowserRequest {
    pub fn from_request(request: &Request) -> Option<Self> {
        let accepted = request.headers().get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let is_browser = !request.uri().path().starts_with("/api/")
            && accepted.flat_map(|list| list.split(',')).any(is_html_media_type);

        is_browser.then(|| Self { headers: request.headers().clone(), uri: request.uri().clone() })
    }
}

fn is_html_media_type(range: &str) -> bool {
    range.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/html"))
}

pub fn is_preflight(request: &Request) -> bool {
    *request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ORIGIN)
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

pub fn preflight_response() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, POST, PATCH, DELETE"));
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("X-API-Key, Authorization, Content-Type, If-None-Match"),
    );
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// 308 keeps the method and the body.
pub fn redirect_response(location: &HeaderValue) -> Response {
    let mut response = StatusCode::PERMANENT_REDIRECT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, location.clone());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=60"));
    response
}
