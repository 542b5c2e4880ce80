//! The metrics of a process: what each of them means, and the values that are read when somebody asks.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use vintem_domain::VERSION;

use super::process_usage::ProcessUsage;

/// Up to a few hundred thousand histogram values accumulate in between and take a millisecond to process.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(2);

/// Upper bounds of all histograms, in seconds.
const BUCKETS: [f64; 10] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    pub const fn id(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What a metric means, as `/metrics` and the documentation say it.
#[derive(Debug)]
pub struct MetricDescription {
    pub name: &'static str,
    pub kind: MetricKind,
    pub help: &'static str,
}

const fn counter(name: &'static str, help: &'static str) -> MetricDescription {
    MetricDescription { name, kind: MetricKind::Counter, help }
}

const fn gauge(name: &'static str, help: &'static str) -> MetricDescription {
    MetricDescription { name, kind: MetricKind::Gauge, help }
}

const fn histogram(name: &'static str, help: &'static str) -> MetricDescription {
    MetricDescription { name, kind: MetricKind::Histogram, help }
}

/// Every metric of every role.
pub const METRICS: &[MetricDescription] = &[
    // Requests
    counter(
        "vintem_requests_total",
        "requests by `route`, `plan` and `status`; `route` is an operation ID, `none` (no route matched) or `shed`",
    ),
    histogram("vintem_request_seconds", "duration of requests by `route`"),
    counter(
        "vintem_requests_shed_total",
        "requests refused for lack of capacity, by `reason`: `in_flight`, `caller_budget`, `shared_capacity`, `cores`, `queue` or `key_lookups`",
    ),
    gauge("vintem_requests_in_flight", "requests that are being answered"),
    gauge("vintem_requests_in_flight_limit", "how many there may be; the limit drops while requests are expensive"),
    counter(
        "vintem_response_cache_total",
        "responses that the cache had (`result=\"hit\"`) or could have had (`result=\"miss\"`), by `route`",
    ),
    gauge("vintem_connections", "open connections by `port`: `public` or `admin`"),
    counter(
        "vintem_connections_refused_total",
        "connections closed at once, by `port` and `reason`: `peer` (its address has too many) or `full`",
    ),
    // Health
    gauge("vintem_degraded", "1 while `/health` reports this `reason`, else 0"),
    counter("vintem_task_panics_total", "panics of background tasks by `task`; each task was started again"),
    // Data
    gauge("vintem_data_late", "1 while a value of this `dataset` is expected by now and missing, else 0"),
    gauge("vintem_data_stale", "1 while newer data of this `dataset` is overdue, else 0"),
    gauge("vintem_snapshot_age_seconds", "seconds since the last load of each `dataset`"),
    gauge("vintem_snapshot_generation", "number of changes of each `dataset` so far"),
    gauge("vintem_snapshot_check_age_seconds", "seconds since the served data was last known to be current"),
    counter("vintem_snapshots_total", "new snapshots since startup"),
    counter(
        "vintem_database_replaced_total",
        "times that the database no longer had what was read from it; `what` is `keys`, `data` or `events`",
    ),
    // Keys
    gauge("vintem_keys_in_memory", "key secrets in memory"),
    gauge("vintem_keys_age_seconds", "seconds since the keys in memory were last known to be current"),
    // Redis and usage
    gauge(
        "vintem_meter_shared",
        "1 while limits and usage are shared through this Redis `server`, 0 while the replica enforces limits and counts usage by itself; `server` is its position in `VINTEM_REDIS_URL`, starting at 0",
    ),
    histogram("vintem_redis_call_seconds", "duration of calls to each Redis `server`; one call serves many requests"),
    counter("vintem_redis_call_failures_total", "calls to each Redis `server` that failed or took too long"),
    gauge("vintem_usage_kept", "usage counts that exist only in this process and are not stored yet"),
    gauge(
        "vintem_usage_waiting",
        "usage counts in each Redis `server` that are not stored yet; an estimate if there are many",
    ),
    gauge("vintem_usage_waiting_seconds", "age of the oldest of them"),
    counter(
        "vintem_usage_conflicts_total",
        "chunks of usage counts that were not stored, because other counts were stored under their id; somebody put Redis back to an earlier state",
    ),
    counter("vintem_usage_calls_lost_total", "calls with usage counts that a Redis server has lost"),
    // PostgreSQL
    gauge("vintem_postgres_up", "1 if PostgreSQL answered when this process last asked, else 0"),
    gauge("vintem_postgres_connections", "connections to PostgreSQL by `state`: `used` or `idle`"),
    histogram(
        "vintem_postgres_wait_seconds",
        "how long a statement waited for a connection, or a transaction to begin",
    ),
    gauge("vintem_schema_version", "version of the database's schema"),
    // Work
    gauge("vintem_event_backlog_seconds", "age of the oldest event that is not published, else 0"),
    gauge(
        "vintem_delivery_backlog_seconds",
        "how long the oldest webhook delivery has been due, else 0; receivers that fail don't count",
    ),
    gauge(
        "vintem_export_complete_timestamp_seconds",
        "when the bulk export was last known to have all changes, or else when the worker started, in seconds since 1970; files are rebuilt at most once an hour",
    ),
    counter(
        "vintem_webhook_attempts_total",
        "delivery attempts by `verdict`: `delivered`, `again` (failed, will be retried), `dead` (failed, no retries left) or `gone` (the receiver returned 410)",
    ),
    // Ingestion
    gauge("vintem_upstream_up", "1 if this `upstream` answers, else 0"),
    counter(
        "vintem_ingest_parts_total",
        "parts fetched of each `source`, by `result`: `succeeded`, `failed` or `skipped`",
    ),
    counter("vintem_ingest_rows_total", "new or changed rows of each `source`"),
    counter(
        "vintem_ingest_bad_rows_total",
        "rows of each `source` that cannot be served, by `reason`: `unreadable`, `contradiction`, `shared_id`, `unknown_label`, `unknown_document`, `unreadable_account` or `contradictory_account`",
    ),
    counter("vintem_ingest_bytes_total", "bytes received from each `upstream`"),
    gauge("vintem_source_check_age_seconds", "seconds since all current parts of this `source` were last fetched"),
    gauge("vintem_source_failing_parts", "parts of this `source` whose last attempt failed"),
    gauge("vintem_source_alerts", "unusual changes in the last responses of this `source`, which were loaded"),
    gauge("vintem_source_quarantined_rows", "rejected rows and files of this `source`"),
    gauge(
        "vintem_part_check_age_seconds",
        "seconds since this `part` of a `source` was last fetched; only parts that may still change",
    ),
    gauge("vintem_part_rows", "rows that this `part` of a `source` had when it was last read"),
    gauge("vintem_part_bad_rows", "rejected rows in the last response of this `part` of a `source`"),
    gauge("vintem_part_received_bytes", "bytes received for the last load of this `part` of a `source`"),
    gauge("vintem_part_load_seconds", "duration of the last load of this `part` of a `source`, with its download"),
    gauge("vintem_cross_check_compared", "values that this `check` compared with others that should agree"),
    gauge("vintem_cross_check_differing", "values that this `check` found to differ"),
    // Process
    gauge("vintem_build_info", "always 1; `version` and `role` of this process"),
    counter("process_cpu_seconds_total", "CPU time of this process in seconds"),
    gauge("process_resident_memory_bytes", "memory of this process"),
    gauge("process_open_fds", "open file descriptors of this process"),
    gauge("process_max_fds", "how many there may be"),
    gauge("process_start_time_seconds", "start of this process, in seconds since 1970"),
];

/// The metrics of the whole process. A second replica in the same process, as in tests, shares them.
pub fn metrics_handle() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    let install = || {
        let builder = PrometheusBuilder::new().set_buckets(&BUCKETS).expect("the list of buckets is not empty");
        let handle = builder.install_recorder().expect("nothing else in this process records metrics");
        started_at();
        for metric in METRICS {
            match metric.kind {
                MetricKind::Counter => describe_counter!(metric.name, metric.help),
                MetricKind::Gauge => describe_gauge!(metric.name, metric.help),
                MetricKind::Histogram => describe_histogram!(metric.name, metric.help),
            }
        }
        register_counters();
        handle
    };
    HANDLE.get_or_init(install).clone()
}

/// Rare events appear with 0, so that the first of them is an increase.
fn register_counters() {
    for what in ["keys", "data", "events"] {
        let _ = metrics::counter!("vintem_database_replaced_total", "what" => what);
    }
    for verdict in ["delivered", "again", "dead", "gone"] {
        let _ = metrics::counter!("vintem_webhook_attempts_total", "verdict" => verdict);
    }
    for (port, reason) in [("public", "peer"), ("public", "full"), ("admin", "peer"), ("admin", "full")] {
        let _ = metrics::counter!("vintem_connections_refused_total", "port" => port, "reason" => reason);
    }
    let _ = metrics::counter!("vintem_usage_conflicts_total");
    let _ = metrics::counter!("vintem_usage_calls_lost_total");
    let _ = metrics::counter!("vintem_snapshots_total");
}

/// Moves histogram values into their buckets. Until then each value stays in memory, so without this task memory would
/// grow with every request if nobody reads `/metrics`.
pub async fn run_metrics_upkeep(metrics: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP_INTERVAL).await;
        metrics.run_upkeep();
    }
}

/// When the recorder was installed, which is the first thing that a process does.
fn started_at() -> Duration {
    static STARTED_AT: OnceLock<Duration> = OnceLock::new();
    *STARTED_AT.get_or_init(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// What every process has.
pub fn record_process(role: &'static str) {
    metrics::gauge!("vintem_build_info", "version" => VERSION, "role" => role).set(1.0);
    let usage = ProcessUsage::read();
    metrics::counter!("process_cpu_seconds_total").absolute(usage.cpu_time.as_secs());
    metrics::gauge!("process_resident_memory_bytes").set(usage.memory_bytes as f64);
    metrics::gauge!("process_open_fds").set(usage.open_files as f64);
    metrics::gauge!("process_max_fds").set(usage.max_open_files as f64);
    metrics::gauge!("process_start_time_seconds").set(started_at().as_secs_f64());
}
