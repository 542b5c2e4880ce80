//! The requests that the fakes received, for tests to read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::{HeaderMap, Method, StatusCode};

use super::upstream_service::UpstreamService;

/// One request as received.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub received_at: Instant,
    pub upstream: Option<UpstreamService>,
    pub method: Method,
    /// As sent, not decoded.
    pub path_and_query: String,
    pub headers: HeaderMap,
    /// Requests to the same upstream in flight at that moment, including this one.
    pub in_flight: usize,
    /// `None` until there is a response.
    pub status: Option<u16>,
}

impl RecordedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The requested host name: `localhost` if the client followed a redirect to another host.
    pub fn host(&self) -> &str {
        let host = self.header("host").unwrap_or_default();
        host.rsplit_once(':').map_or(host, |(name, _)| name)
    }
}

#[derive(Debug, Default)]
pub struct RequestLog {
    inner: Arc<Mutex<RequestLogInner>>,
}

#[derive(Debug, Default)]
struct RequestLogInner {
    requests: Vec<RecordedRequest>,
    /// How many requests were cleared before the first of `requests`.
    cleared_count: usize,
    in_flight: BTreeMap<Option<UpstreamService>, usize>,
}

/// A request in flight; dropping this ends it.
#[derive(Debug)]
pub struct InFlightRequest {
    log: Arc<Mutex<RequestLogInner>>,
    upstream: Option<UpstreamService>,
    sequence_number: usize,
}

impl RequestLog {
    pub fn requests(&self) -> Vec<RecordedRequest> {
        lock_log(&self.inner).requests.clone()
    }

    pub fn clear(&self) {
        let mut log = lock_log(&self.inner);
        log.cleared_count += log.requests.len();
        log.requests.clear();
    }

    pub fn record_start(
        &self,
        upstream: Option<UpstreamService>,
        method: Method,
        target: &str,
        headers: HeaderMap,
    ) -> InFlightRequest {
        let mut log = lock_log(&self.inner);
        let count = log.in_flight.entry(upstream).or_default();
        *count += 1;
        let in_flight = *count;

        let sequence_number = log.cleared_count + log.requests.len();
        log.requests.push(RecordedRequest {
            received_at: Instant::now(),
            upstream,
            method,
            path_and_query: target.to_owned(),
            headers,
            in_flight,
            status: None,
        });
        InFlightRequest { log: self.inner.clone(), upstream, sequence_number }
    }
}

impl InFlightRequest {
    pub fn record_status(&self, status: StatusCode) {
        let mut log = lock_log(&self.log);
        let index = self.sequence_number.checked_sub(log.cleared_count);
        if let Some(request) = index.and_then(|index| log.requests.get_mut(index)) {
            request.status = Some(status.as_u16());
        }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        if let Some(count) = lock_log(&self.log).in_flight.get_mut(&self.upstream) {
            *count -= 1;
        }
    }
}

fn lock_log(log: &Mutex<RequestLogInner>) -> MutexGuard<'_, RequestLogInner> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}
