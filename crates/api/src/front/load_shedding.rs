//! Room for one more, or the answer that there is none: in the form of every other answer, at the least cost. No engine is
//! asked for anything, and nothing is taken of the caller's quota.
//!
//! How the caller stands with its quota is Redis' to say, and not known here. The headers say what holds until
//! `Retry-After` has passed: this replica admits nothing (`Remaining` 0), and then all may be tried anew (`Reset`).

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::response::Response;
use vintem_domain::usage::{RequestOutcome, RouteGroup};
use vintem_domain::{Plan, Problem};

use super::{
    BrowserRequest, CallerIdentity, FrontLayer, QuotaStatus, RequestId, accepted_language, is_preflight,
    micros_to_seconds_ceil,
};
use crate::identity::{Credential, parse_credential};
use crate::load_limiter::LoadLimiter;
use crate::request_metrics::{RouteMetrics, SHED_OPERATION};

/// Never shed: who asks whether we serve must be told.
const HEALTH_PATH: &str = "/health";
/// What the last of the requests under way waits for its turn, at most.
const MAX_QUEUE_WAIT: Duration = Duration::from_millis(40);
/// Even of large requests so many may be under way: one page in a browser asks for a dozen things at once.
const MIN_IN_FLIGHT: usize = 32;

pub fn build_load_limiter(max_in_flight: usize) -> LoadLimiter {
    LoadLimiter::new(max_in_flight, MIN_IN_FLIGHT, MAX_QUEUE_WAIT)
}

impl FrontLayer {
    pub async fn handle_or_shed(&self, request: Request, peer: IpAddr) -> Response {
        let is_health = request.uri().path() == HEALTH_PATH;
        let place =
            if is_health { Some(self.load_limiter.acquire_unlimited()) } else { self.load_limiter.try_acquire() };
        let Some(mut place) = place else { return self.shed_request(&request) };
        let mut answer = pin!(self.handle_request(request, peer));
        poll_fn(|context| place.poll_timed(|| answer.as_mut().poll(context))).await
    }

    fn shed_request(&self, request: &Request) -> Response {
        let (started, app, headers) = (Instant::now(), &self.app, request.headers());
        let known = match parse_credential(headers) {
            Credential::Key(key) => app.keyring.verify_cached(&key),
            _ => None,
        };
        let plan = known.map_or(Plan::Free, |(_, plan)| plan);
        let identity = CallerIdentity { plan, key: known.map(|(id, _)| id), key_problem: None };
        let now_us = u64::try_from(app.clock.now().timestamp_micros()).unwrap_or(0);
        let (problem, request_id) = (Problem::Overloaded, RequestId::new(now_us, rand::random()));
        let mut response = self.render_problem(
            &problem,
            BrowserRequest::from_request(request).as_ref(),
            accepted_language(headers),
            &request_id,
        );
        let seconds = problem.retry_after_seconds().unwrap_or(1);
        let standing = QuotaStatus {
            remaining: 0,
            reset_at_seconds: micros_to_seconds_ceil(now_us) + seconds,
            reset_after_seconds: seconds,
        };
        self.write_common_headers(response.headers_mut(), &identity, &standing, &request_id);
        // Answered to a valid key, so counted for it; in this process, which no engine is needed for.
        let counted = RouteGroup::from_path(request.uri().path());
        if let (Some(key), Some(group)) = (identity.key, counted)
            && !is_preflight(request.method(), headers)
        {
            app.meter.record_unmetered_request(key, group, RequestOutcome::from_status(response.status().as_u16()));
        }
        RouteMetrics::for_operation(SHED_OPERATION).record_request(plan, response.status(), started);
        log_shedding_once_a_second(now_us);
        response
    }
}

/// A line for each would cost more than the answer.
fn log_shedding_once_a_second(now_us: u64) {
    static LAST_LOGGED_SECOND: AtomicU64 = AtomicU64::new(0);
    let second = now_us / 1_000_000;
    if LAST_LOGGED_SECOND.swap(second, Ordering::Relaxed) != second {
        tracing::warn!("requests are shed: more are under way than would be answered in good time");
    }
}
