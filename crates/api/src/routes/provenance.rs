//! Where a row comes from, for whoever asks.

use serde::Serialize;
use vintem_snapshot::Snapshot;
use vintem_store::read::Known;

use super::status::instant;

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
