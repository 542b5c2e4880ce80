//! What all datasets of the bulk export have in common.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use vintem_deliver::export::{ExportDataset, SourceFetch};
use vintem_deliver::table::OutputTable;
use vintem_domain::Dataset;
use vintem_domain::text::hex_encode;
use vintem_snapshot::Snapshot;
use vintem_store::reader::RowProvenance;

/// Builds an export from these datasets. The first one gives the export its identity; `extra_state` is hashed into the
/// fingerprint and holds whatever else the rows depend on.
pub fn build_export_dataset(
    snapshot: &Snapshot,
    name: String,
    datasets: &[Dataset],
    extra_state: impl Hash,
    list_sources: impl Fn() -> Vec<SourceFetch> + Send + Sync + 'static,
    build_table: impl Fn() -> OutputTable + Send + Sync + 'static,
) -> Option<ExportDataset> {
    let dataset = *datasets.first()?;
    let state = snapshot.state(dataset)?;
    let mut hasher = DefaultHasher::new();
    extra_state.hash(&mut hasher);

    Some(ExportDataset {
        name,
        dataset,
        subject: dataset,
        lineage: state.lineage.clone(),
        generation: state.generation,
        state_fingerprint: format!("{:016x}", hasher.finish()),
        as_of: state.loaded_at,
        is_synthetic: snapshot.is_synthetic(),
        list_sources: Box::new(list_sources),
        build_table: Box::new(build_table),
    })
}

/// The fetches that these rows come from, without duplicates, oldest first.
pub fn collect_source_fetches(
    snapshot: &Snapshot,
    provenances: impl Iterator<Item = RowProvenance>,
) -> Vec<SourceFetch> {
    let fetch_ids: HashSet<u32> = provenances.map(|provenance| provenance.fetch_id).collect();
    let source_fetch = |fetch_id: u32| {
        let row = snapshot.find_fetch(RowProvenance { known_at_seconds: 0, fetch_id })?;
        Some(SourceFetch {
            fetched_at: row.fetched_at,
            address: row.source_url.clone(),
            sha256: hex_encode(&row.sha256),
        })
    };

    let sorted: BTreeSet<SourceFetch> = fetch_ids.into_iter().filter_map(source_fetch).collect();
    sorted.into_iter().collect()
}
