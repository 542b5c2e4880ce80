//! The service from outside: over HTTP, on a real PostgreSQL and a real Redis. A test's name is what it guarantees.

mod contract;
mod data;
mod demo;
mod engines_away;
mod exactness;
mod gate;
mod headers;
mod house;
mod keys;
mod market;
mod pages;
mod slow_clients;
mod store;
mod usage;

use std::path::Path;

use chrono::{DateTime, Utc};

type Outcome = anyhow::Result<()>;

/// A Friday afternoon in São Paulo; demo data reaches up to this day.
fn friday() -> DateTime<Utc> {
    "2026-11-13T18:00:00Z".parse().expect("an instant")
}

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_vintem"))
}
