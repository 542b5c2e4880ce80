//! Load shedding: rejects requests that this process has no capacity for. The response has the same form as any other
//! problem and costs as little as possible: it needs neither Postgres nor Redis and does not count against the quota.
//!
//! Only Redis knows the caller's real quota, so the headers describe the time until `Retry-After` has passed: this
//! replica admits nothing (`Remaining` 0) until then (`Reset`).

use std::time::Instant;

use axum::extract::Request;
use axum::response::Response;
use vintem_domain::Problem;
use vintem_domain::usage::{RequestOutcome, RouteGroup};

use super::admit::{QuotaStatus, micros_to_seconds_ceil};
use super::headers::HeaderWriter;
use super::identify::{CallerIdentity, accepted_language};
use super::request_id::RequestId;
use super::respond::{BrowserRequest, ProblemResponder, is_preflight};
use crate::app::App;
use crate::request_metrics::{RouteMetrics, SHED_OPERATION};

pub fn shed_request(
    app: &App,
    problems: &ProblemResponder,
    headers: &HeaderWriter,
    request: &Request,
    identity: &CallerIdentity,
) -> Response {
    let started = Instant::now();
    let problem = Problem::Overloaded;
    let now_us = u64::try_from(app.clock.now().timestamp_micros()).unwrap_or(0);
    let request_id = RequestId::new(now_us, rand::random());
    let browser = BrowserRequest::from_request(request);
    let lang = accepted_language(request.headers());
    let mut response = problems.render(&problem, browser.as_ref(), lang, &request_id);

    let retry_after = problem.retry_after_seconds().unwrap_or(1);
    let quota = QuotaStatus {
        remaining: 0,
        reset_at_seconds: micros_to_seconds_ceil(now_us) + retry_after,
        reset_after_seconds: retry_after,
    };
    headers.write_common(response.headers_mut(), app.is_synthetic());
    headers.write_caller(response.headers_mut(), identity.plan, &quota, &request_id);

    // A valid key got a response, so it counts as usage. This process counts it without Redis.
    let usage_group = RouteGroup::from_path(request.uri().path());
    if let (Some(key), Some(group)) = (identity.key, usage_group)
        && !is_preflight(request)
    {
        app.meter.record_unmetered_request(key, group, RequestOutcome::from_status(response.status().as_u16()));
    }
    RouteMetrics::for_operation(SHED_OPERATION).record_request(identity.plan, response.status(), started);
    app.load.log_shedding(now_us);
    response
}
