//! A response before it is sent, and the conditional requests that files honor.

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
    /// When a file last changed. Only files have this, and with it `ETag` and `Last-Modified`.
    pub modified_at: Option<DateTime<Utc>>,
}

impl FakeResponse {
    pub fn new(status: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Self {
        let headers = vec![(header::CONTENT_TYPE, content_type.to_owned())];
        Self { status, headers, body: body.into(), modified_at: None }
    }

    pub fn file(content_type: &str, body: impl Into<Bytes>, modified_at: DateTime<Utc>) -> Self {
        Self { modified_at: Some(modified_at.trunc_subsecs(0)), ..Self::new(StatusCode::OK, content_type, body) }
    }

    pub fn with_header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.retain(|(existing, _)| *existing != name);
        self.headers.push((name, value.into()));
        self
    }

    /// Adds the validators if this is a file, and turns it into a 304 if the client already has it.
    pub fn into_conditional_response(self, request: &HeaderMap) -> Self {
        let Some(modified_at) = self.modified_at else { return self };
        let etag = compute_etag(&self.body, modified_at);
        let is_not_modified = is_not_modified(request, &etag, modified_at);

        let response = self.with_header(header::ETAG, etag).with_header(header::LAST_MODIFIED, http_date(modified_at));
        if !is_not_modified || response.status != StatusCode::OK {
            return response.with_header(header::ACCEPT_RANGES, "bytes").into_range_response(request);
        }
        let headers = response.headers.into_iter().filter(|(name, _)| *name != header::CONTENT_TYPE).collect();
        Self { status: StatusCode::NOT_MODIFIED, headers, body: Bytes::new(), modified_at: None }
    }

    /// The part that the client asks for, as Apache sends it.
    fn into_range_response(self, request: &HeaderMap) -> Self {
        let text = |name| request.get(name).and_then(|value| value.to_str().ok());
        let own_header = |name| self.headers.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_str());
        // A range of another version is of no use: the client gets the whole file.
        let is_same_version = text(header::IF_RANGE)
            .is_none_or(|version| [header::ETAG, header::LAST_MODIFIED].map(own_header).contains(&Some(version)));
        let Some(range) = text(header::RANGE).filter(|_| is_same_version && self.status == StatusCode::OK) else {
            return self;
        };

        let length = self.body.len();
        match parse_range(range, length) {
            Some((first, end)) => {
                let content_range = format!("bytes {first}-{}/{length}", end - 1);
                let body = self.body.slice(first..end);
                let response = self.with_header(header::CONTENT_RANGE, content_range);
                Self { status: StatusCode::PARTIAL_CONTENT, body, ..response }
            }
            None => {
                let response = self.with_header(header::CONTENT_RANGE, format!("bytes */{length}"));
                Self { status: StatusCode::RANGE_NOT_SATISFIABLE, body: Bytes::new(), ..response }
            }
        }
    }
}

/// `bytes=0-99`, `bytes=100-` or `bytes=-100`: the first byte, and the one after the last.
fn parse_range(range: &str, length: usize) -> Option<(usize, usize)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (first, end) = match (first, last) {
        ("", last) => (length.saturating_sub(last.parse().ok()?), length),
        (first, "") => (first.parse().ok()?, length),
        (first, last) => (first.parse().ok()?, last.parse::<usize>().ok()?.checked_add(1)?.min(length)),
    };
    (first < end).then_some((first, end))
}

/// Like Apache's, from length and time; the content is hashed too, so that no two contents share a tag.
fn compute_etag(body: &[u8], modified_at: DateTime<Utc>) -> String {
    let digest = Sha256::new().chain_update(body).chain_update(modified_at.timestamp().to_be_bytes()).finalize();
    let digest = digest.iter().take(7).map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("\"{:x}-{digest}\"", body.len())
}

/// `If-None-Match` takes precedence over `If-Modified-Since`.
fn is_not_modified(request: &HeaderMap, etag: &str, modified_at: DateTime<Utc>) -> bool {
    let text = |name| request.get(name).and_then(|value| value.to_str().ok());
    if let Some(tags) = text(header::IF_NONE_MATCH) {
        return tags.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|tag| tag == etag || tag == "*");
    }
    let since = text(header::IF_MODIFIED_SINCE).and_then(|date| DateTime::parse_from_rfc2822(date).ok());
    since.is_some_and(|since| modified_at <= since.to_utc())
}

pub fn http_date(time: DateTime<Utc>) -> String {
    time.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// The decoded parameters of a query; `+` is not decoded to a space.
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
