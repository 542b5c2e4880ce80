//! Where a row comes from, for whoever asks.

use chrono::NaiveDate;
use serde::Serialize;
use vintem_domain::Problem;
use vintem_snapshot::Snapshot;
use vintem_store::read::Known;

use super::status::instant;
use super::today;
use crate::App;
use crate::params::Query;

/// What is told of where rows come from and since when they could be known.
pub struct Traced {
    pub provenance: bool,
    /// As what could be known on this day.
    pub as_of: Option<NaiveDate>,
}

impl Traced {
    pub fn read(query: &Query) -> Result<Self, Problem> {
        Ok(Self { provenance: query.flag("provenance")?, as_of: query.day("as_of")? })
    }

    /// What is of a later day is not told of.
    pub fn last_day(&self, app: &App) -> NaiveDate {
        self.as_of.map_or(today(app), |day| day.min(today(app)))
    }
}

#[derive(Serialize)]
pub struct ProvenanceBody {
    source: &'static str,
    address: String,
    fetched_at: String,
    /// Since when we know the row as it is.
    known_at: String,
    /// Of the bytes as they came.
    sha256: String,
}

/// Of a row that was computed, each that it follows from.
pub fn provenance(snapshot: &Snapshot, source: &'static str, known: &[Known]) -> Vec<ProvenanceBody> {
    let body = |known: &Known| {
        let fetch = snapshot.fetch(*known)?;
        Some(ProvenanceBody {
            source,
            address: fetch.address.clone(),
            fetched_at: instant(fetch.fetched_at),
            known_at: instant(known.instant()),
            sha256: fetch.sha256.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    };
    known.iter().filter_map(body).collect()
}
