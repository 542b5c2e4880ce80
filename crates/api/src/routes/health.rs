//! `GET /health`: shows that the process serves requests, and whether it is degraded.

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use serde::Serialize;
use vintem_domain::VERSION;

use super::status;
use crate::app::{AppState, Handlers};
use crate::caller::Caller;
use crate::responses;

#[derive(Serialize)]
struct HealthBody {
    status: &'static str,
    version: &'static str,
    synthetic: bool,
}

pub fn handlers() -> Handlers {
    vec![("get_health", get(get_health))]
}

async fn get_health(_: Caller, State(app): AppState) -> Response {
    let snapshot = app.live_snapshot.get();
    let body = HealthBody {
        status: status::overall_status(&app, snapshot.as_deref()),
        version: VERSION,
        synthetic: snapshot.is_some_and(|snapshot| snapshot.is_synthetic()),
    };
    responses::uncached_json(StatusCode::OK, &body)
}
