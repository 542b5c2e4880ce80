//! The admin port, for the operator alone: `/livez`, `/readyz`, `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use http::StatusCode;
use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::sync::watch;
use vintem_api::App;
use vintem_domain::Dataset;
use vintem_meter::UsageSource;

use crate::http_server::ServerPhase;

/// Up to a few hundred thousand histogram values accumulate in between and take a millisecond to process.
const METRICS_UPKEEP_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct OperatorState {
    app: Arc<App>,
    phase: watch::Receiver<ServerPhase>,
    metrics: PrometheusHandle,
}

pub fn operator_router(app: Arc<App>, phase: watch::Receiver<ServerPhase>, metrics: PrometheusHandle) -> Router {
    Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(render_metrics))
        .with_state(OperatorState { app, phase, metrics })
}

/// The metrics of the whole process. A second replica in the same process, as in tests, shares them.
pub fn metrics_handle() -> PrometheusHandle {
    static HANDLE: std::sync::OnceLock<PrometheusHandle> = std::sync::OnceLock::new();
    let install = || {
        let buckets = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];
        let builder = PrometheusBuilder::new().set_buckets(&buckets).expect("the list of buckets is not empty");
        let handle = builder.install_recorder().expect("nothing else in this process records metrics");
        describe_metrics();
        handle
    };
    HANDLE.get_or_init(install).clone()
}

/// The help texts in `/metrics`.
fn describe_metrics() {
    describe_counter!("vintem_requests_total", "Requests by route, plan and status");
    describe_counter!("vintem_response_cache_total", "Cacheable responses by route, and whether the cache had them");
    describe_histogram!("vintem_request_seconds", Unit::Seconds, "Duration of requests by route");
    describe_gauge!("vintem_snapshot_age_seconds", Unit::Seconds, "Seconds since the last load of a dataset");
    describe_gauge!("vintem_snapshot_generation", "Generation of a dataset; increases with every load that changes it");
    describe_counter!("vintem_snapshots_total", "New snapshots since startup");
    describe_gauge!("vintem_meter_shared", "1 while limits and usage are shared through this Redis server, else 0");
    describe_gauge!("vintem_usage_kept", "Usage counts in this process that are not stored yet");
    describe_gauge!("vintem_usage_waiting", "Usage counts in this Redis server that are not stored yet");
    describe_gauge!("vintem_usage_waiting_seconds", Unit::Seconds, "Age of the oldest of them");
    describe_counter!("vintem_usage_conflicts_total", "Chunks of usage that were stored with other counts");
    describe_counter!("vintem_usage_calls_lost_total", "Calls with counts that a Redis server has lost");
    describe_counter!("vintem_webhook_attempts_total", "Attempts to deliver an event to a webhook, by verdict");
    describe_gauge!("vintem_keys_in_memory", "Key secrets in memory");
    describe_counter!("vintem_task_panics_total", "Panics of background tasks; each task was started again");
    describe_counter!("vintem_database_replaced_total", "Times that the database had lost what was read from it");
}

/// Moves histogram values into their buckets. Until then each value stays in memory, so without this task memory would
/// grow with every request if nobody reads `/metrics`.
pub async fn run_metrics_upkeep(metrics: PrometheusHandle) {
    loop {
        tokio::time::sleep(METRICS_UPKEEP_INTERVAL).await;
        metrics.run_upkeep();
    }
}

/// Ready from the first snapshot until SIGTERM, even while Redis or Postgres is unavailable.
async fn readyz(State(operator): State<OperatorState>) -> (StatusCode, &'static str) {
    let phase = *operator.phase.borrow();
    if phase != ServerPhase::Serving {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping\n")
    } else if operator.app.live_snapshot.get().is_none() {
        (StatusCode::SERVICE_UNAVAILABLE, "no snapshot yet\n")
    } else {
        (StatusCode::OK, "ready\n")
    }
}

async fn render_metrics(State(operator): State<OperatorState>) -> String {
    let now = operator.app.clock.now();
    if let Some(snapshot) = operator.app.live_snapshot.get() {
        for dataset in Dataset::all() {
            if let Some(state) = snapshot.state(dataset) {
                let age = (now - state.loaded_at).as_seconds_f64();
                metrics::gauge!("vintem_snapshot_age_seconds", "dataset" => dataset.id()).set(age);
                metrics::gauge!("vintem_snapshot_generation", "dataset" => dataset.id()).set(state.generation as f64);
            }
        }
    }

    for (server, is_shared) in operator.app.meter.redis_availability().enumerate() {
        metrics::gauge!("vintem_meter_shared", "server" => server.to_string()).set(if is_shared { 1.0 } else { 0.0 });
    }
    for (source, backlog) in operator.app.usage_backlogs() {
        if let UsageSource::RedisServer(server) = source {
            let server = server.to_string();
            metrics::gauge!("vintem_usage_waiting", "server" => server.clone()).set(backlog.fields as f64);
            metrics::gauge!("vintem_usage_waiting_seconds", "server" => server).set(backlog.oldest_age.as_secs_f64());
        }
    }
    metrics::gauge!("vintem_usage_kept").set(operator.app.meter.local_usage_count() as f64);

    operator.metrics.run_upkeep();
    operator.metrics.render()
}
