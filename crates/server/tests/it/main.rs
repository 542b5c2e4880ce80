//! The service from outside: over HTTP, on a real PostgreSQL and a real Redis. A test's name is what it guarantees.

mod bad_input;
mod bad_keys;
mod bad_upstreams;
mod calendar;
mod chaos;
mod contract;
mod csv;
mod data;
mod decisions;
mod deliveries;
mod demo;
mod engines_away;
mod events;
mod exactness;
mod exports;
mod gate;
mod headers;
mod history;
mod house;
mod identity;
mod ingest;
mod kept;
mod keys;
mod killed;
mod limit_headers;
mod limiter_faults;
mod market;
mod pages;
mod retry_after;
mod search;
mod secrets;
mod shedding;
mod slow_clients;
mod snapshot;
mod store;
mod usage;
mod webhooks;

use std::path::Path;

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;

type Outcome = anyhow::Result<()>;

/// A Friday afternoon in São Paulo; demo data reaches up to this day.
fn friday() -> DateTime<Utc> {
    "2026-11-13T18:00:00Z".parse().expect("an instant")
}

/// Writes an event as a load does.
async fn note_event(
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

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_vintem"))
}
