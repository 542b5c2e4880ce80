//! The caller of a request, an extractor that every handler has in its signature.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderValue, Uri};
use vintem_domain::{KeyId, Lang, Plan, Problem};

use crate::api_error::ApiError;
use crate::load::OwnerBudget;

/// A caller that was admitted, whose key (if any) is valid, and whose plan includes the route.
#[derive(Debug)]
pub struct CallerDetails {
    pub plan: Plan,
    pub key: Option<KeyId>,
    /// What the caller's work is charged to.
    pub budget: Arc<OwnerBudget>,
    pub lang: Lang,
    pub address: IpAddr,
    /// Time of admission by Redis' clock, in microseconds.
    pub admitted_at_us: u64,
    pub uri: Uri,
    pub if_none_match: Option<HeaderValue>,
    /// Whether `Accept` ranks CSV above JSON.
    pub prefers_csv: bool,
}

#[derive(Debug, Clone)]
pub struct Caller(pub Arc<CallerDetails>);

impl std::ops::Deref for Caller {
    type Target = CallerDetails;

    fn deref(&self) -> &CallerDetails {
        &self.0
    }
}

impl CallerDetails {
    pub fn path(&self) -> &str {
        self.uri.path()
    }

    pub fn query_string(&self) -> &str {
        self.uri.query().unwrap_or("")
    }
}

impl Caller {
    /// The key's ID, for routes that make no sense without a key.
    pub fn require_key(&self) -> Result<KeyId, ApiError> {
        self.key.ok_or(ApiError(Problem::KeyRequired))
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // Every request passes the front layer, which inserts the caller, so a missing one is a bug.
        parts.extensions.get::<Caller>().cloned().ok_or(ApiError(Problem::Internal))
    }
}
