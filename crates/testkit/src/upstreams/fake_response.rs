//! An answer before it is sent, and the conditional requests that files honour.

use bytes::Bytes;
use chrono::{DateTime, SubsecRound, Utc};
use http::{HeaderMap, HeaderName, StatusCode, header};
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};

pub const JSON_CONTENT_TYPE: &str = "application/json; charset=utf-8";
pub const HTML_CONTENT_TYPE: &str = "text/html; charset=utf-8";

#[derive(Debug, Clone)]
pub struct FakeResponse {
    pub status: StatusCode,
    pub headers: Vec<(HeaderName, String)>,
    pub body: Bytes,
    /// Since when a file is what it is. Files alone have this, and with it `ETag` and `Last-Modified`.
    pub modified_at: Option<DateTime<Utc>>,
}

impl FakeResponse {
    pub fn new(status: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Self {
        let headers = vec![(header::CONTENT_TYPE, content_type.to_owned())];
        Self { status, headers, body: body.into(), modified_at: None }
    }

    pub fn file(content_type: &str, body: impl Into<Bytes>, modified: DateTime<Utc>) -> Self {
        Self { modified_at: Some(modified.trunc_subsecs(0)), ..Self::new(StatusCode::OK, content_type, body) }
    }

    pub fn with_header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.retain(|(existing, _)| *existing != name);
        self.headers.push((name, value.into()));
        self
    }

    /// With its marks, if it is a file; and without its body if the client has it already.
    pub fn into_conditional_response(self, request: &HeaderMap) -> Self {
        let Some(modified) = self.modified_at else { return self };
        let etag = compute_etag(&self.body, modified);
        let is_known = is_not_modified(request, &etag, modified);
        let marked = self.with_header(header::ETAG, etag).with_header(header::LAST_MODIFIED, http_date(modified));
        if !is_known || marked.status != StatusCode::OK {
            return marked.with_header(header::ACCEPT_RANGES, "bytes");
        }
        let headers = marked.headers.into_iter().filter(|(name, _)| *name != header::CONTENT_TYPE).collect();
        Self { status: StatusCode::NOT_MODIFIED, headers, body: Bytes::new(), modified_at: None }
    }
}

/// As Apache makes it, of length and time; and of the content, so that no two contents share one.
fn compute_etag(body: &[u8], modified: DateTime<Utc>) -> String {
    let digest = Sha256::new().chain_update(body).chain_update(modified.timestamp().to_be_bytes()).finalize();
    let digest = digest.iter().take(7).map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("\"{:x}-{digest}\"", body.len())
}

/// The tag counts alone where one is sent, and the time where none is.
fn is_not_modified(request: &HeaderMap, etag: &str, modified: DateTime<Utc>) -> bool {
    let text = |name| request.get(name).and_then(|value| value.to_str().ok());
    if let Some(tags) = text(header::IF_NONE_MATCH) {
        return tags.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|tag| tag == etag || tag == "*");
    }
    let since = text(header::IF_MODIFIED_SINCE).and_then(|date| DateTime::parse_from_rfc2822(date).ok());
    since.is_some_and(|since| modified <= since.to_utc())
}

pub fn http_date(time: DateTime<Utc>) -> String {
    time.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// The parameters of a query, decoded; `+` stays what it is.
pub fn parse_query(query: &str) -> Vec<(String, String)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(name, value)| (percent_decode(name), percent_decode(value)))
        .collect()
}

pub fn percent_decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
