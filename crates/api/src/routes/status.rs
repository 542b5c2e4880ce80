//! `GET /api/v1/status`: for each source its rows, its freshness, and whether the data is synthetic.

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use http::StatusCode;
use serde::Serialize;
use vintem_domain::{DataOrigin, Dataset, VERSION};
use vintem_store::sources::{FailingPart, SourceAlert};

use crate::api_error::ApiError;
use crate::app::{AppState, Handlers};
use crate::bodies::format_instant;
use crate::caller::Caller;
use crate::health::DegradedReason;
use crate::responses;

#[derive(Serialize)]
struct StatusBody {
    status: &'static str,
    version: &'static str,
    synthetic: bool,
    as_of: String,
    sources: Vec<SourceStatusBody>,
}

#[derive(Serialize)]
struct SourceStatusBody {
    id: &'static str,
    name: &'static str,
    source: &'static str,
    rows: usize,
    newest_date: Option<NaiveDate>,
    generation: i64,
    loaded_at: Option<String>,
    /// When the publisher last answered successfully, with or without new data.
    last_success_at: Option<String>,
    age_seconds: Option<i64>,
    next_expected_on: Option<NaiveDate>,
    next_expected_at: Option<String>,
    quarantined: u64,
    failing_parts: Vec<FailingPartBody>,
    alerts: Vec<SourceAlertBody>,
    synthetic: Option<bool>,
    late: bool,
    stale: bool,
}

/// Without the problem itself, which may name addresses that only the operator knows.
#[derive(Serialize)]
struct FailingPartBody {
    source: String,
    part: String,
    since: String,
    next_attempt_at: String,
}

/// A change in a publisher's format, for example.
#[derive(Serialize)]
struct SourceAlertBody {
    source: String,
    part: String,
    message: String,
}

/// An outage of a publisher, or a change in its format, may concern hundreds of parts.
const MAX_LISTED_PARTS: usize = 10;

pub fn handlers() -> Handlers {
    vec![("get_status", get(get_status))]
}

async fn get_status(caller: Caller, State(app): AppState) -> Result<Response, ApiError> {
    let snapshot = app.current_snapshot()?;
    let now = app.clock.now();
    let sources = Dataset::all().map(|dataset| {
        let freshness = app.live_snapshot.freshness(&snapshot, dataset, now);
        SourceStatusBody {
            id: dataset.id(),
            name: dataset.name().in_lang(caller.lang),
            source: dataset.source_name(),
            rows: freshness.rows,
            newest_date: freshness.newest_date,
            generation: snapshot.generation(dataset),
            loaded_at: freshness.loaded_at.map(format_instant),
            last_success_at: freshness.last_success_at.map(format_instant),
            age_seconds: freshness.last_success_at.map(|at| (now - at).num_seconds().max(0)),
            next_expected_on: freshness.next_expected_on,
            next_expected_at: freshness.next_expected_at.map(format_instant),
            quarantined: freshness.quarantined,
            failing_parts: freshness
                .failing_parts
                .into_iter()
                .take(MAX_LISTED_PARTS)
                .map(to_failing_part_body)
                .collect(),
            alerts: freshness.alerts.into_iter().take(MAX_LISTED_PARTS).map(to_source_alert_body).collect(),
            synthetic: snapshot.state(dataset).map(|state| state.origin == DataOrigin::Synthetic),
            late: freshness.late,
            stale: freshness.stale,
        }
    });

    let body = StatusBody {
        status: overall_status(&app.degraded_reasons()),
        version: VERSION,
        synthetic: snapshot.is_synthetic(),
        as_of: format_instant(now),
        sources: sources.collect(),
    };
    Ok(responses::uncached_json(StatusCode::OK, &body))
}

fn to_failing_part_body(part: FailingPart) -> FailingPartBody {
    FailingPartBody {
        source: part.source,
        part: part.part,
        since: format_instant(part.failure.since),
        next_attempt_at: format_instant(part.failure.next_attempt_at),
    }
}

fn to_source_alert_body(alert: SourceAlert) -> SourceAlertBody {
    SourceAlertBody { source: alert.source, part: alert.part, message: alert.alert }
}

/// `ok`, or `degraded` for any of these reasons.
pub fn overall_status(reasons: &[DegradedReason]) -> &'static str {
    if reasons.is_empty() { "ok" } else { "degraded" }
}
