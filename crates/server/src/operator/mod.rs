//! The admin port, for the operator alone: `/livez`, `/readyz`, `/metrics`.

mod database_watch;
pub mod metrics;
mod process_usage;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, StatusCode, header};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use vintem_api::{App, TaskHealth};
use vintem_snapshot::LiveSnapshot;
use vintem_store::Store;

use crate::connections::{ConnectionLimits, Connections};
use crate::http_server::{self, ServerPhase};
use crate::listening::{bind, listen};
use crate::settings::Secret;
use crate::supervision::spawn_supervised;

/// What the admin port shows of a process.
pub struct AdminPort {
    pub role: &'static str,
    pub store: Store,
    /// Must be sent to get the metrics.
    pub token: Option<Secret>,
    /// Until it is no longer `Serving`, the process is ready.
    pub phase: watch::Receiver<ServerPhase>,
    /// A process that serves or works is not ready without data.
    pub live_snapshot: Option<Arc<LiveSnapshot>>,
    /// What a replica serves, and the connections of its public port.
    pub replica: Option<(Arc<App>, Arc<Connections>)>,
}

#[derive(Clone)]
struct OperatorState {
    port: Arc<AdminPort>,
    connections: Arc<Connections>,
    metrics: PrometheusHandle,
}

/// Opens the admin port, and starts what its metrics need.
pub fn open_admin_port(
    address: SocketAddr,
    health: &Arc<TaskHealth>,
    port: AdminPort,
) -> anyhow::Result<(SocketAddr, Vec<JoinHandle<()>>)> {
    let listener = listen(bind(address)?)?;
    let address = listener.local_addr()?;
    let handle = metrics::metrics_handle();
    let connections = Connections::new("admin", ConnectionLimits::OPERATOR, Vec::new());
    let mut tasks = vec![
        spawn_supervised("metrics", health, handle.clone(), metrics::run_metrics_upkeep),
        spawn_supervised("database_watch", health, port.store.clone(), database_watch::watch_database),
    ];

    let state = OperatorState { port: Arc::new(port), connections: connections.clone(), metrics: handle };
    let router = Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(render_metrics))
        .with_state(state);
    // It stays open until the end, so that probes can see that the process is no longer ready.
    let (_, never) = watch::channel(ServerPhase::Serving);
    tasks.push(tokio::spawn(http_server::serve(listener, connections, router, never)));
    Ok((address, tasks))
}

/// Ready from the first snapshot until SIGTERM, even while Redis or Postgres is unavailable.
async fn readyz(State(OperatorState { port, .. }): State<OperatorState>) -> (StatusCode, &'static str) {
    let phase = *port.phase.borrow();
    if phase != ServerPhase::Serving {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping\n")
    } else if port.live_snapshot.as_ref().is_some_and(|snapshot| snapshot.get().is_none()) {
        (StatusCode::SERVICE_UNAVAILABLE, "no snapshot yet\n")
    } else {
        (StatusCode::OK, "ready\n")
    }
}

async fn render_metrics(State(operator): State<OperatorState>, headers: HeaderMap) -> Response {
    let OperatorState { port, connections, metrics } = operator;
    if !port.token.as_ref().is_none_or(|token| has_token(&headers, token)) {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, challenge, "the token is missing or wrong\n").into_response();
    }

    metrics::record_process(port.role);
    connections.record_gauges();
    if let Some((app, public)) = &port.replica {
        app.record_gauges();
        public.record_gauges();
    }
    let counts = port.store.connection_counts();
    ::metrics::gauge!("vintem_postgres_connections", "state" => "used").set(f64::from(counts.used));
    ::metrics::gauge!("vintem_postgres_connections", "state" => "idle").set(f64::from(counts.idle));

    metrics.run_upkeep();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics.render()).into_response()
}

/// Compares in constant time, so that the time says nothing about the token.
fn has_token(headers: &HeaderMap, token: &Secret) -> bool {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    let expected = token.reveal().as_bytes();
    given.is_some_and(|given| {
        given.len() == expected.len() && given.iter().zip(expected).fold(0, |diff, (a, b)| diff | (a ^ b)) == 0
    })
}
