//! Request metrics: counts by route, plan and status, durations by route, and how often the cache had the response.
//!
//! Looking up a counter by its labels costs more than all the checks of a request, so each counter is looked up once.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};
use std::time::Instant;

use http::StatusCode;
use metrics::{Counter, Histogram};
use vintem_domain::Plan;
use vintem_domain::route::ROUTES;

/// The label for requests that match no route.
pub const UNMATCHED_OPERATION: &str = "none";
/// The label for requests that were shed before routing.
pub const SHED_OPERATION: &str = "shed";

/// Every status that the API returns. Other statuses are counted too, only more slowly.
const KNOWN_STATUSES: [u16; 16] = [200, 201, 204, 206, 304, 308, 400, 401, 403, 404, 405, 410, 416, 429, 500, 503];

/// The metrics of one route. They are created at the first request, when the metrics recorder is installed.
pub struct RouteMetrics {
    operation: &'static str,
    duration_seconds: OnceLock<Histogram>,
    requests: [[OnceLock<Counter>; KNOWN_STATUSES.len()]; Plan::ALL.len()],
    cache_hits: OnceLock<Counter>,
    cache_misses: OnceLock<Counter>,
}

static METRICS_BY_OPERATION: LazyLock<HashMap<&'static str, RouteMetrics>> = LazyLock::new(|| {
    let operations = ROUTES.iter().map(|route| route.operation).chain([UNMATCHED_OPERATION, SHED_OPERATION]);
    let metrics = |operation| RouteMetrics {
        operation,
        duration_seconds: OnceLock::new(),
        requests: Default::default(),
        cache_hits: OnceLock::new(),
        cache_misses: OnceLock::new(),
    };
    operations.map(|operation| (operation, metrics(operation))).collect()
});

impl RouteMetrics {
    pub fn for_operation(operation: &'static str) -> &'static Self {
        &METRICS_BY_OPERATION[operation]
    }

    pub fn record_request(&self, plan: Plan, status: StatusCode, started: Instant) {
        let operation = self.operation;
        let duration =
            self.duration_seconds.get_or_init(|| metrics::histogram!("vintem_request_seconds", "route" => operation));
        duration.record(started.elapsed().as_secs_f64());

        match KNOWN_STATUSES.iter().position(|known| *known == status.as_u16()) {
            Some(index) => {
                self.requests[plan.rank()][index].get_or_init(|| request_counter(operation, plan, status)).increment(1);
            }
            None => request_counter(operation, plan, status).increment(1),
        }
    }

    pub fn record_cache_hit(&self) {
        self.cache_hits.get_or_init(|| cache_counter(self.operation, "hit")).increment(1);
    }

    /// Counts a response that the cache could have had.
    pub fn record_cache_miss(&self) {
        self.cache_misses.get_or_init(|| cache_counter(self.operation, "miss")).increment(1);
    }
}

fn cache_counter(operation: &'static str, result: &'static str) -> Counter {
    metrics::counter!("vintem_response_cache_total", "route" => operation, "result" => result)
}

fn request_counter(operation: &'static str, plan: Plan, status: StatusCode) -> Counter {
    let status = status.as_str().to_owned();
    metrics::counter!("vintem_requests_total", "route" => operation, "plan" => plan.id(), "status" => status)
}
