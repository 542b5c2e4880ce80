//! Answers that are asked for over and over, made once and sent as they are.
//!
//! What a route without parameters answers to a request without a query follows from the snapshot, the day, the language
//! and the plan. As long as the first two are the same, so is the answer, all but the caller's standing and the id of the
//! request. The route table bounds how many there are.

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

use super::CallerIdentity;
use crate::csv::prefers_csv;

/// On an answer that follows from the snapshot and the day alone: its body.
#[derive(Debug, Clone)]
pub struct Cacheable(pub Bytes);

/// Longer ones are made anew.
const MAX_CACHED_BODY_BYTES: usize = 64 * 1024;
/// Each plan, and who has no key.
const CALLER_CLASSES: usize = Plan::ALL.len() + 1;

/// The answers of one route: by language and caller.
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

/// What an answer was made of; weak, so that it keeps no snapshot in memory.
#[derive(Debug)]
pub struct CacheValidity {
    snapshot: Weak<Snapshot>,
    /// The instants of the day.
    day_bounds: Range<DateTime<Utc>>,
}

impl ResponseCache {
    /// The place of the answer to a request, if it is one that may be kept.
    pub fn slot_for(
        &self,
        route: &Route,
        request: &Request,
        identity: &CallerIdentity,
        lang: Lang,
    ) -> Option<&CacheSlot> {
        let headers = request.headers();
        let may_be_kept = *request.method() == Method::GET
            && request.uri().query().is_none()
            && !route.path.contains('{')
            && !headers.contains_key(header::ACCEPT_ENCODING)
            && !headers.contains_key(header::IF_NONE_MATCH)
            && !prefers_csv(headers);
        let caller = identity.key.map_or(CALLER_CLASSES - 1, |_| identity.plan.rank());
        let places = match lang {
            Lang::En => &self.english,
            Lang::Pt => &self.portuguese,
        };
        may_be_kept.then(|| &places[caller])
    }
}

impl CacheSlot {
    /// The answer as it was kept, if it is still the right one.
    pub fn get(&self, live: &LiveSnapshot, now: DateTime<Utc>) -> Option<Response> {
        let kept = self.0.load();
        let kept = kept.as_ref().filter(|kept| kept.validity.is_valid(live, now))?;
        let mut response = Response::new(Body::from(kept.body.clone()));
        *response.headers_mut() = kept.headers.clone();
        Some(response)
    }

    /// Keeps an answer, with all its headers, if it is lasting and was made of what is served now.
    pub fn store_if_cacheable(
        &self,
        validity: CacheValidity,
        live: &LiveSnapshot,
        now: DateTime<Utc>,
        response: &mut Response,
    ) {
        let Some(Cacheable(body)) = response.extensions_mut().remove() else { return };
        // What it was made of was noted before it was made: if that still holds, nothing changed in between.
        if response.status() == StatusCode::OK && body.len() <= MAX_CACHED_BODY_BYTES && validity.is_valid(live, now) {
            self.0.store(Some(Arc::new(CachedResponse { validity, headers: response.headers().clone(), body })));
        }
    }
}

impl CacheValidity {
    /// What an answer will be made of that begins to be made now.
    pub fn current(live: &LiveSnapshot, now: DateTime<Utc>) -> Option<Self> {
        let (snapshot, day) = (live.get()?, sao_paulo_date(now));
        let begins = sao_paulo_day_end(day.pred_opt()?);
        Some(Self { snapshot: Arc::downgrade(&snapshot), day_bounds: begins..sao_paulo_day_end(day) })
    }

    fn is_valid(&self, live: &LiveSnapshot, now: DateTime<Utc>) -> bool {
        self.day_bounds.contains(&now) && live.is_current(&self.snapshot)
    }
}
