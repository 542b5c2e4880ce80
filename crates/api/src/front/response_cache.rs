//! Caches responses that are the same for every caller, by representation: path, canonical query, language, format and
//! content encoding.
//!
//! A response is cached with its compressed body and without any header that belongs to one caller. It is used while
//! what it was made from holds (`cache_validity.rs`). Entries are limited by their bytes. Of those that do not fit, the
//! rarely used ones go first, so that one caller with many different requests cannot push out what others use.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use moka::sync::Cache;
use vintem_domain::{Lang, LocalizedText};
use vintem_snapshot::LiveSnapshot;

use super::shared_body::hold_until_sent;
use crate::cache_validity::CacheValidity;
use crate::content_encoding::ContentEncoding;
use crate::csv::prefers_csv;
use crate::load::OwnerPermit;
use crate::params::canonical_query;
use crate::responses::matches_if_none_match;

/// In keys.
const LANGUAGE_IDS: LocalizedText = LocalizedText::new("en", "pt");

/// What an entry takes besides its key and body: headers, and the cache's own bookkeeping.
const ENTRY_OVERHEAD_BYTES: usize = 2048;

pub struct ResponseCache {
    /// `None` if the cache is disabled.
    entries: Option<Cache<Arc<str>, Arc<CachedResponse>>>,
}

/// Names a representation of a response.
pub struct CacheKey {
    text: String,
    pub encoding: ContentEncoding,
}

#[derive(Debug)]
pub struct CachedResponse {
    validity: CacheValidity,
    headers: HeaderMap,
    body: Bytes,
}

impl ResponseCache {
    /// A budget of 0 disables the cache.
    pub fn new(budget_bytes: u64) -> Self {
        let entry_bytes = |key: &Arc<str>, entry: &Arc<CachedResponse>| {
            u32::try_from(key.len() + entry.body.len() + ENTRY_OVERHEAD_BYTES).unwrap_or(u32::MAX)
        };
        let build = || Cache::builder().max_capacity(budget_bytes).weigher(entry_bytes).build();
        Self { entries: (budget_bytes > 0).then(build) }
    }

    /// The cached response, if the same one would be made now.
    pub fn get(&self, key: &CacheKey, live: &LiveSnapshot, now: DateTime<Utc>) -> Option<Arc<CachedResponse>> {
        self.entries.as_ref()?.get(key.text.as_str()).filter(|entry| entry.validity.holds(live, now))
    }

    /// Stores the headers and body of a response in the encoding of the key.
    pub fn insert(
        &self,
        key: CacheKey,
        validity: CacheValidity,
        headers: HeaderMap,
        body: Bytes,
    ) -> Arc<CachedResponse> {
        let response = Arc::new(CachedResponse { validity, headers, body });
        if let Some(entries) = &self.entries {
            entries.insert(key.text.into(), response.clone());
        }
        response
    }
}

impl CacheKey {
    /// `None` for methods that change something.
    pub fn for_request(request: &Request, lang: Lang) -> Option<Self> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return None;
        }

        let headers = request.headers();
        let encoding = ContentEncoding::preferred(headers);
        let format = if prefers_csv(headers) { "csv" } else { "json" };
        let path = request.uri().path();
        let query = request.uri().query().map_or(String::new(), canonical_query);
        let text = [encoding.id(), LANGUAGE_IDS.in_lang(lang), format, path, &query].join(" ");
        Some(Self { text, encoding })
    }
}

impl CachedResponse {
    pub fn body_length(&self) -> usize {
        self.body.len()
    }

    /// The response to a request with these headers: whole, without its body, or 304. The permit is held until a body is
    /// sent.
    pub fn to_response(
        &self,
        method: &Method,
        if_none_match: Option<&HeaderValue>,
        permit: Option<OwnerPermit>,
    ) -> Response {
        let mut headers = self.headers.clone();
        let is_unchanged = headers.get(header::ETAG).is_some_and(|etag| matches_if_none_match(if_none_match, etag));
        if is_unchanged {
            return not_modified(headers);
        }

        let mut response = Response::new(if *method == Method::HEAD {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(self.body.len()));
            Body::empty()
        } else {
            Body::from(hold_until_sent(self.body.clone(), permit))
        });
        *response.headers_mut() = headers;
        response
    }
}

fn not_modified(mut headers: HeaderMap) -> Response {
    for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::CONTENT_DISPOSITION] {
        headers.remove(name);
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    *response.headers_mut() = headers;
    response
}
