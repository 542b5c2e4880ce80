//! `GET /health`: shows that the process serves requests, and whether it is degraded.

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use serde::Serialize;
use vintem_domain::VERSION;
use vintem_meter::{UsageBacklog, UsageSource};

use super::status;
use crate::app::{AppState, Handlers};
use crate::caller::Caller;
use crate::health::DegradedReason;
use crate::responses;

#[derive(Serialize)]
struct HealthBody {
    status: &'static str,
    version: &'static str,
    synthetic: bool,
    reasons: Vec<DegradedReason>,
    keys_age_seconds: Option<u64>,
    usage_backlog: Vec<UsageBacklogBody>,
}

/// Counts that are not stored yet.
#[derive(Serialize)]
struct UsageBacklogBody {
    /// Number of the Redis server; `None` for the process itself.
    server: Option<usize>,
    counts: u64,
    age_seconds: u64,
}

pub fn handlers() -> Handlers {
    vec![("get_health", get(get_health))]
}

async fn get_health(_: Caller, State(app): AppState) -> Response {
    let reasons = app.degraded_reasons();
    let body = HealthBody {
        status: status::overall_status(&reasons),
        version: VERSION,
        synthetic: app.is_synthetic(),
        reasons,
        keys_age_seconds: app.keys_age_seconds(),
        usage_backlog: app.usage_backlogs().into_iter().map(usage_backlog_body).collect(),
    };
    responses::uncached_json(StatusCode::OK, &body)
}

fn usage_backlog_body((source, backlog): (UsageSource, UsageBacklog)) -> UsageBacklogBody {
    let server = match source {
        UsageSource::LocalProcess => None,
        UsageSource::RedisServer(server) => Some(server),
    };
    UsageBacklogBody { server, counts: backlog.fields, age_seconds: backlog.oldest_age.as_secs() }
}
