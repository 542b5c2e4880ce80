//! Provenance of rows, and the certainty of point-in-time queries, in responses that request them.

use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{CellWriter, Column};
use vintem_domain::Problem;
use vintem_domain::text::hex_encode;
use vintem_snapshot::Snapshot;
use vintem_store::reader::RowProvenance;

use super::format_instant;
use crate::params::QueryParams;

/// The query parameters about provenance and point-in-time queries.
#[derive(Clone, Copy)]
pub struct TraceOptions {
    pub provenance: bool,
    /// Point-in-time query: only what was known on this day, which is never after today.
    pub as_of: Option<NaiveDate>,
    /// Rows with a later date are left out.
    pub last_day: NaiveDate,
}

impl TraceOptions {
    pub fn from_query(query: &QueryParams, today: NaiveDate) -> Result<Self, Problem> {
        let as_of = query.date("as_of")?.map(|day| day.min(today));
        Ok(Self { provenance: query.flag("provenance")?, as_of, last_day: as_of.unwrap_or(today) })
    }

    /// For responses without provenance or point-in-time queries.
    pub fn disabled(today: NaiveDate) -> Self {
        Self { provenance: false, as_of: None, last_day: today }
    }

    pub fn columns(&self) -> Vec<Column> {
        TraceBody::columns(self.provenance, self.as_of.is_some())
    }
}

/// The optional fields of a row; both are absent unless requested.
#[derive(Serialize, Default)]
pub struct TraceBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Vec<ProvenanceBody>>,
    /// How we know that the row was known on the day of `as_of`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<&'static str>,
}

impl TraceBody {
    pub fn columns(provenance: bool, known: bool) -> Vec<Column> {
        const PROVENANCE_COLUMNS: [Column; 5] = [
            Column::text_list("provenance_source"),
            Column::text_list("provenance_address"),
            Column::text_list("provenance_fetched_at"),
            Column::text_list("provenance_known_at"),
            Column::text_list("provenance_sha256"),
        ];

        let mut columns = if provenance { PROVENANCE_COLUMNS.to_vec() } else { Vec::new() };
        columns.extend(known.then_some(Column::text("known")));
        columns
    }

    pub fn write_cells(&self, cells: &mut dyn CellWriter) {
        if let Some(rows) = &self.provenance {
            let fields: [fn(&ProvenanceBody) -> &str; 5] =
                [|row| row.source, |row| &row.address, |row| &row.fetched_at, |row| &row.known_at, |row| &row.sha256];
            for field in fields {
                cells.write_text_list(&mut rows.iter().map(field));
            }
        }
        if let Some(known) = self.known {
            cells.write_text(known);
        }
    }
}

#[derive(Serialize)]
pub struct ProvenanceBody {
    source: &'static str,
    address: String,
    fetched_at: String,
    /// Since when we know this version of the row.
    known_at: String,
    /// SHA-256 of the bytes as fetched.
    sha256: String,
}

/// The provenance of a row. A computed row has one entry per input.
pub fn provenance_bodies(
    snapshot: &Snapshot,
    source: &'static str,
    provenances: &[RowProvenance],
) -> Vec<ProvenanceBody> {
    let body = |provenance: &RowProvenance| {
        let fetch = snapshot.find_fetch(*provenance)?;
        Some(ProvenanceBody {
            source,
            address: fetch.source_url.clone(),
            fetched_at: format_instant(fetch.fetched_at),
            known_at: format_instant(provenance.known_at()),
            sha256: hex_encode(&fetch.sha256),
        })
    };

    provenances.iter().filter_map(body).collect()
}
