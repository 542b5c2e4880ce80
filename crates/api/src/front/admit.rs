//! Step 4: checks whether the caller's rate limit admits the request. The meter limits and counts in one call.

use std::net::IpAddr;

use vintem_domain::route::{RateLimitKind, Route};
use vintem_domain::usage::RouteGroup;
use vintem_domain::{AddressBucket, Problem};
use vintem_meter::{AdmissionCharge, AdmissionDecision, AdmissionRequest, QuotaOwner};

use super::identify::CallerIdentity;
use crate::app::App;

/// Pages, documents and preflights that one address may request per window.
const PAGE_LIMIT_PER_WINDOW: u32 = 600;

/// Page searches per address and window. A search costs more than a page; the API's search counts against its own
/// quota.
const PAGE_SEARCH_LIMIT_PER_WINDOW: u32 = 60;

/// The state of the caller's quota.
pub struct QuotaStatus {
    pub remaining: u32,
    pub reset_at_seconds: u64,
    /// `t` of the `RateLimit` header: seconds until the reset, or on 429 until the next request is admitted.
    pub reset_after_seconds: u64,
}

impl QuotaStatus {
    pub fn from_decision(decision: &AdmissionDecision) -> Self {
        Self {
            remaining: decision.remaining,
            reset_at_seconds: micros_to_seconds_ceil(decision.reset_at_us),
            reset_after_seconds: micros_to_seconds_ceil(decision.reset_at_us.saturating_sub(decision.now_us)),
        }
    }
}

pub fn build_admission_request(
    app: &App,
    identity: &CallerIdentity,
    client: IpAddr,
    is_preflight: bool,
    route: Option<&Route>,
    path: &str,
) -> AdmissionRequest {
    let address = AddressBucket::from_ip(client);
    let charge =
        if is_preflight { RateLimitKind::Page } else { route.map_or(RateLimitKind::Quota, |route| route.rate_limit) };

    AdmissionRequest {
        quota_owner: identity.key.map_or(QuotaOwner::Address(address), QuotaOwner::Key),
        limit: app.settings.offer.limits.for_plan(identity.plan),
        charge: match charge {
            RateLimitKind::Quota => AdmissionCharge::OwnQuota,
            RateLimitKind::Page => AdmissionCharge::PageView { address, limit: PAGE_LIMIT_PER_WINDOW },
            RateLimitKind::Search => AdmissionCharge::PageSearch { address, limit: PAGE_SEARCH_LIMIT_PER_WINDOW },
        },
        usage_group: RouteGroup::from_path(path).filter(|_| charge == RateLimitKind::Quota && identity.key.is_some()),
    }
}

pub fn rate_limit_problem(decision: &AdmissionDecision, is_page: bool) -> Problem {
    let retry_after_seconds = micros_to_seconds_ceil(decision.wait_us);
    if is_page {
        Problem::TooManyPageViews { retry_after_seconds }
    } else {
        Problem::RateLimited { retry_after_seconds }
    }
}

pub fn micros_to_seconds_ceil(micros: u64) -> u64 {
    micros.div_ceil(1_000_000)
}
