//! What is logged and traced of a request. At high rates a line for each request would cost more than the responses, so
//! only some of them have one.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::Request;
use http::{Method, StatusCode};
use tracing::Span;
use vintem_domain::{KeyId, Plan, ip_address};

use super::request_id::RequestId;
use super::routing::RouteTable;
use crate::app::{ApiSettings, TraceStart};
use crate::identity::is_trusted_proxy;

/// Begins the span of a request, if it is traced.
pub fn begin_span(settings: &ApiSettings, routes: &RouteTable, request: &Request, peer: IpAddr) -> Span {
    let Some(tracer) = &settings.request_tracer else { return Span::none() };
    let entry = routes.find(request.uri().path()).for_method(request.method());
    tracer(&TraceStart {
        headers: request.headers(),
        method: request.method(),
        route: entry.map_or("none", |entry| entry.route.path),
        is_from_trusted_proxy: is_trusted_proxy(peer, &settings.trusted_proxies),
    })
}

/// A request with its response.
pub struct FinishedRequest<'r> {
    pub request_id: &'r RequestId,
    pub method: &'r Method,
    /// The path of the route, without the values of its parameters.
    pub route: &'static str,
    pub status: StatusCode,
    pub plan: Plan,
    pub key: Option<KeyId>,
    pub client: IpAddr,
    pub started: Instant,
}

impl FinishedRequest<'_> {
    /// `skipped` is the number of requests before this one that were not logged.
    pub fn log(&self, skipped: u64) {
        tracing::info!(
            request_id = self.request_id.as_str(),
            method = self.method.as_str(),
            route = self.route,
            status = self.status.as_u16(),
            plan = self.plan.id(),
            key = self.key,
            address = ip_address::anonymize_for_log(self.client),
            micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX),
            skipped = (skipped > 0).then_some(skipped),
            "request"
        );
    }

    /// Completes the span of a request that is traced.
    pub fn record_span(&self) {
        let span = Span::current();
        span.record("http.response.status_code", self.status.as_u16());
        span.record("vintem.request_id", self.request_id.as_str());
        span.record("vintem.plan", self.plan.id());
    }
}

/// Lets a number of lines per second through, and all server errors.
#[derive(Debug)]
pub struct RequestLogSampler {
    max_per_second: u32,
    created: Instant,
    /// The second that `logged` counts, since `created`.
    second: AtomicU64,
    logged: AtomicU32,
    /// Requests since the last line that have none.
    skipped: AtomicU64,
}

impl RequestLogSampler {
    pub fn new(max_per_second: u32) -> Self {
        Self {
            max_per_second,
            created: Instant::now(),
            second: AtomicU64::new(0),
            logged: AtomicU32::new(0),
            skipped: AtomicU64::new(0),
        }
    }

    /// `None` if this request is not logged, else how many before it were not. At the turn of a second a line more or
    /// less does no harm.
    pub fn sample(&self, status: StatusCode) -> Option<u64> {
        let second = self.created.elapsed().as_secs();
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.logged.store(0, Ordering::Relaxed);
        }
        let is_logged = status.is_server_error() || self.logged.fetch_add(1, Ordering::Relaxed) < self.max_per_second;
        if is_logged {
            Some(self.skipped.swap(0, Ordering::Relaxed))
        } else {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_the_rate_only_server_errors_are_logged_and_the_rest_is_counted() {
        let sampler = RequestLogSampler::new(2);
        // A second that never ends.
        let sample = |status| {
            sampler.second.store(sampler.created.elapsed().as_secs(), Ordering::Relaxed);
            sampler.sample(status)
        };
        let lines: Vec<_> = (0..5).map(|_| sample(StatusCode::OK)).collect();
        assert_eq!(lines, [Some(0), Some(0), None, None, None]);
        assert_eq!(sample(StatusCode::SERVICE_UNAVAILABLE), Some(3));
        assert_eq!(sample(StatusCode::TOO_MANY_REQUESTS), None);

        sampler.second.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(sampler.sample(StatusCode::OK), Some(1), "another second");
    }
}
