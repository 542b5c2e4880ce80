//! Integration tests: they speak HTTP to real replicas, on a real PostgreSQL and a real Redis. Each test is named after
//! the guarantee it protects.

mod api_decisions;
mod architecture;
mod backend_outages;
mod bad_input;
mod bad_keys;
mod bad_upstreams;
mod calendar;
mod caller_identity;
mod chaos;
mod command_line;
mod contract;
mod corrections;
mod csv;
mod delivery_faults;
mod description;
mod discovery;
mod documents;
mod drift;
mod events;
mod exports;
mod failover;
mod fairness;
mod first_fill;
mod first_run;
mod freshness;
mod health;
mod ingest;
mod ingest_kills;
mod ingest_schedule;
mod keys;
mod limit_exactness;
mod limit_headers;
mod limiter_faults;
mod load_shedding;
mod market;
mod pages;
mod parities;
mod pgbouncer;
mod plan_access;
mod point_in_time;
mod response_cache;
mod response_headers;
mod restores;
mod retry_after;
mod rolling_restarts;
mod search;
mod secret_leaks;
mod series_shapes;
mod served_data;
mod signals;
mod slow_clients;
mod snapshot;
mod statement_archive;
mod statement_snapshot;
mod statements;
mod store;
mod stored_columns;
mod survey;
mod tasks;
mod tls;
mod traces;
mod usage;
mod usage_storage;
mod webhooks;

use std::path::Path;

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;

type TestResult = anyhow::Result<()>;

/// A Friday afternoon in São Paulo; the demo data ends on this day.
fn friday() -> DateTime<Utc> {
    "2026-11-13T18:00:00Z".parse().expect("an instant")
}

/// Inserts an event the way a load does.
async fn insert_event(
    connection: &mut PgConnection,
    kind: &str,
    subject: &Value,
    occurred_at: DateTime<Utc>,
) -> anyhow::Result<()> {
    sqlx::query("insert into event (type, occurred_at, subject) values ($1, $2, $3::jsonb)")
        .bind(kind)
        .bind(occurred_at)
        .bind(subject.to_string())
        .execute(connection)
        .await?;
    Ok(())
}

fn vintem_binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_vintem"))
}
