//! Load shedding: rejects requests that this process has no capacity for. The response has the same form as any other
//! problem and costs as little as possible: it needs neither Postgres nor Redis and does not count against the quota.
//!
//! Only Redis knows the caller's real quota, so the headers describe the time until `Retry-After` has passed: this
//! replica admits nothing (`Remaining` 0) until then (`Reset`).

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

/// Never shed: health checks must always get an answer.
const HEALTH_PATH: &str = "/health";
/// The longest time that the last admitted request should wait for a core.
const TARGET_CPU_WAIT: Duration = Duration::from_millis(40);
/// Admitted concurrently however expensive requests are: a browser sends a dozen requests at once for one page.
const MIN_IN_FLIGHT: usize = 32;

pub fn build_load_limiter(max_in_flight: usize) -> LoadLimiter {
    LoadLimiter::new(max_in_flight, MIN_IN_FLIGHT, TARGET_CPU_WAIT)
}

impl FrontLayer {
    pub async fn handle_or_shed(&self, request: Request, peer: IpAddr) -> Response {
        let is_health = request.uri().path() == HEALTH_PATH;
        let permit =
            if is_health { Some(self.load_limiter.acquire_unlimited()) } else { self.load_limiter.try_acquire() };
        let Some(mut permit) = permit else { return self.shed_request(&request) };

        let mut response = pin!(self.handle_request(request, peer));
        poll_fn(|context| permit.poll_timed(|| response.as_mut().poll(context))).await
    }

    fn shed_request(&self, request: &Request) -> Response {
        let started = Instant::now();
        let app = &self.app;
        let headers = request.headers();

        let cached_key = match parse_credential(headers) {
            Credential::Key(key) => app.keyring.verify_cached(&key),
            _ => None,
        };
        let plan = cached_key.map_or(Plan::Free, |(_, plan)| plan);
        let identity = CallerIdentity { plan, key: cached_key.map(|(id, _)| id), key_problem: None };

        let problem = Problem::Overloaded;
        let now_us = u64::try_from(app.clock.now().timestamp_micros()).unwrap_or(0);
        let request_id = RequestId::new(now_us, rand::random());
        let mut response = self.render_problem(
            &problem,
            BrowserRequest::from_request(request).as_ref(),
            accepted_language(headers),
            &request_id,
        );

        let retry_after = problem.retry_after_seconds().unwrap_or(1);
        let quota = QuotaStatus {
            remaining: 0,
            reset_at_seconds: micros_to_seconds_ceil(now_us) + retry_after,
            reset_after_seconds: retry_after,
        };
        self.write_common_headers(response.headers_mut(), &identity, &quota, &request_id);

        // A valid key got a response, so it counts as usage. This process counts it without Redis.
        let usage_group = RouteGroup::from_path(request.uri().path());
        if let (Some(key), Some(group)) = (identity.key, usage_group)
            && !is_preflight(request.method(), headers)
        {
            app.meter.record_unmetered_request(key, group, RequestOutcome::from_status(response.status().as_u16()));
        }
        RouteMetrics::for_operation(SHED_OPERATION).record_request(plan, response.status(), started);
        log_shedding_once_a_second(now_us);
        response
    }
}

/// A log line per shed request would cost more than the response itself.
fn log_shedding_once_a_second(now_us: u64) {
    static LAST_LOGGED_SECOND: AtomicU64 = AtomicU64::new(0);
    let second = now_us / 1_000_000;
    if LAST_LOGGED_SECOND.swap(second, Ordering::Relaxed) != second {
        tracing::warn!("requests are shed: more are under way than would be answered in good time");
    }
}
