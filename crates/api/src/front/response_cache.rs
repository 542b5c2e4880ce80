//! Caches whole responses to frequent requests.
//!
//! For a route without path parameters and a request without a query, the response depends only on the snapshot, the
//! day, the language and the plan. While the first two are unchanged, so is the response, except for the quota headers
//! and the request ID. The route table bounds the number of cached responses.

use std::ops::Range;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use chrono::{DateTime, Utc};
use http::{HeaderMap, Method, StatusCode, header};
use vintem_domain::dates::{sao_paulo_date, sao_paulo_day_end};
use vintem_domain::route::Route;
use vintem_domain::{Lang, Plan};
use vintem_snapshot::{LiveSnapshot, Snapshot};

use super::identify::CallerIdentity;
use crate::csv::prefers_csv;
use crate::responses::CacheableResponse;

/// Longer responses are not cached.
const MAX_CACHED_BODY_BYTES: usize = 64 * 1024;
/// One for each plan, and one for callers without a key.
const CALLER_CLASSES: usize = Plan::ALL.len() + 1;

/// The cached responses of one route, by language and caller class.
#[derive(Debug, Default)]
pub struct ResponseCache {
    english: [CacheSlot; CALLER_CLASSES],
    portuguese: [CacheSlot; CALLER_CLASSES],
}

#[derive(Debug, Default)]
pub struct CacheSlot(ArcSwapOption<CachedResponse>);

#[derive(Debug)]
struct CachedResponse {
    validity: CacheValidity,
    headers: HeaderMap,
    body: Bytes,
}

/// The snapshot and day that a response was made from. The reference is weak, so that it keeps no snapshot in memory.
#[derive(Debug)]
pub struct CacheValidity {
    snapshot: Weak<Snapshot>,
    /// The start and end of the day.
    day_bounds: Range<DateTime<Utc>>,
}

impl ResponseCache {
    /// The slot for the response to this request, if it may be cached.
    pub fn slot_for(
        &self,
        route: &Route,
        request: &Request,
        identity: &CallerIdentity,
        lang: Lang,
    ) -> Option<&CacheSlot> {
        let headers = request.headers();
        let is_cacheable = *request.method() == Method::GET
            && request.uri().query().is_none()
            && !route.path.contains('{')
            && !headers.contains_key(header::ACCEPT_ENCODING)
            && !headers.contains_key(header::IF_NONE_MATCH)
            && !prefers_csv(headers);

        let caller_class = identity.key.map_or(CALLER_CLASSES - 1, |_| identity.plan.rank());
        let slots = match lang {
            Lang::En => &self.english,
            Lang::Pt => &self.portuguese,
        };
        is_cacheable.then(|| &slots[caller_class])
    }
}

impl CacheSlot {
    /// The cached response, if it is still valid.
    pub fn get(&self, live: &LiveSnapshot, now: DateTime<Utc>) -> Option<Response> {
        let slot = self.0.load();
        let cached = slot.as_ref().filter(|cached| cached.validity.is_valid(live, now))?;

        let mut response = Response::new(Body::from(cached.body.clone()));
        *response.headers_mut() = cached.headers.clone();
        Some(response)
    }

    /// Stores a response with all its headers, if it is cacheable and `validity` still holds.
    pub fn store_if_cacheable(
        &self,
        validity: CacheValidity,
        live: &LiveSnapshot,
        now: DateTime<Utc>,
        response: &mut Response,
    ) {
        let Some(CacheableResponse(body)) = response.extensions_mut().remove() else { return };
        // `validity` was taken before the response was made: if it still holds, nothing changed in between.
        if response.status() == StatusCode::OK && body.len() <= MAX_CACHED_BODY_BYTES && validity.is_valid(live, now) {
            self.0.store(Some(Arc::new(CachedResponse { validity, headers: response.headers().clone(), body })));
        }
    }
}

impl CacheValidity {
    /// The validity of a response whose handler starts now.
    pub fn current(live: &LiveSnapshot, now: DateTime<Utc>) -> Option<Self> {
        let snapshot = live.get()?;
        let day = sao_paulo_date(now);
        let day_start = sao_paulo_day_end(day.pred_opt()?);
        Some(Self { snapshot: Arc::downgrade(&snapshot), day_bounds: day_start..sao_paulo_day_end(day) })
    }

    fn is_valid(&self, live: &LiveSnapshot, now: DateTime<Utc>) -> bool {
        self.day_bounds.contains(&now) && live.is_current(&self.snapshot)
    }
}
