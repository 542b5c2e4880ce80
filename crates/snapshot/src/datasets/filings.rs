//! Filings: read once, then updated by the changes of each load. The only kind that is kept on disk.

use std::path::Path;
use std::sync::Arc;

use chrono::NaiveDate;
use vintem_domain::{CvmDataset, Dataset, DateRange};
use vintem_store::reader::{DatasetState, FilingRow, SnapshotReader};

use crate::error::Result;
use crate::filings::{FilingFilter, FilingLayerBuilder, Filings};
use crate::snapshot::Snapshot;
use crate::snapshot_dataset::{BuildFuture, SnapshotBuild, SnapshotDataset};

pub struct FilingsData;

impl SnapshotDataset for FilingsData {
    fn datasets(&self) -> Vec<Dataset> {
        vec![Dataset::Filings]
    }

    fn build<'b>(&'b self, build: &'b mut SnapshotBuild<'_>) -> BuildFuture<'b> {
        Box::pin(async {
            if build.is_unchanged(Dataset::Filings) {
                build.next.filings.clone_from(&build.served.filings);
            } else if build.is_loaded(Dataset::Filings) {
                build.next.filings = Some(Arc::new(build_filings(build).await?));
            }
            Ok(())
        })
    }

    fn row_count_and_newest_date(
        &self,
        snapshot: &Snapshot,
        _: Dataset,
        today: NaiveDate,
    ) -> (usize, Option<NaiveDate>) {
        let Some(filings) = snapshot.filings() else { return (0, None) };
        let days = DateRange::ALL.capped_at(today);
        let served = filings.list(&FilingFilter::for_days(days), 0, 1);
        (served.total, served.rows.first().map(|row| filings.get(*row).filing.delivered_on))
    }

    /// Each of the regulator's datasets is a source of its own.
    fn is_filled_by(&self, dataset: Dataset, source_id: &str) -> bool {
        source_id == dataset.id() || CvmDataset::from_id(source_id).is_some()
    }

    fn save(&self, served: &Snapshot, last_saved: &mut Snapshot, directory: &Path) -> Result<bool> {
        let Some(state) = served.state(Dataset::Filings) else { return Ok(false) };
        let Some(filings) = &served.filings else { return Ok(false) };
        let has_saved_layers = last_saved.filings.as_ref().is_some_and(|saved| saved.has_same_layers_as(filings));
        if has_saved_layers && last_saved.state(Dataset::Filings) == Some(state) {
            return Ok(false);
        }

        filings.save(state, directory)?;
        last_saved.states.insert(Dataset::Filings, state.clone());
        last_saved.filings = Some(filings.clone());
        Ok(true)
    }

    fn open(&self, snapshot: &mut Snapshot, directory: &Path) -> Result<()> {
        let (state, filings) = Filings::load(directory)?;
        snapshot.states.insert(Dataset::Filings, state);
        snapshot.filings = Some(Arc::new(filings));
        Ok(())
    }
}

async fn build_filings(build: &mut SnapshotBuild<'_>) -> Result<Filings> {
    let generation = incremental_base_generation(build.served, &build.next.states[&Dataset::Filings]);
    match (&build.served.filings, generation) {
        (Some(served), Some(generation)) => {
            update_filings(&mut build.reader, served.clone(), generation, build.pinned_layers).await
        }
        _ => read_filings(&mut build.reader).await,
    }
}

/// The generation of filings after which only the changes need to be read; `None` if all must be read again.
fn incremental_base_generation(served: &Snapshot, state: &DatasetState) -> Option<i64> {
    let served = served.states.get(&Dataset::Filings)?;
    (served.lineage == state.lineage && served.generation < state.generation).then_some(served.generation)
}

async fn read_filings(reader: &mut SnapshotReader) -> Result<Filings> {
    let mut rows = FilingLayerBuilder::default();
    reader.for_each_filing(|filing| rows.push(&filing, false)).await?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::task::spawn_blocking(move || Filings::build_single_layer(rows, threads)).await?
}

/// The served filings with the changes of later generations.
async fn update_filings(
    reader: &mut SnapshotReader,
    served: Arc<Filings>,
    generation: i64,
    pinned_layers: usize,
) -> Result<Filings> {
    let mut changed = FilingLayerBuilder::default();
    let mut removed_ids = Vec::new();
    let collect_change = |filing: FilingRow<'_>, is_absent| {
        if is_absent {
            removed_ids.push(filing.id.to_owned());
        } else {
            changed.push(&filing, false);
        }
    };
    reader.for_each_filing_since(generation, collect_change).await?;

    tokio::task::spawn_blocking(move || served.with_changes(changed, &removed_ids, pinned_layers)).await?
}
