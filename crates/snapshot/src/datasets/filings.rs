//! Filings: read once, then updated by the changes of each load.

use std::path::Path;
use std::sync::Arc;

use chrono::NaiveDate;
use vintem_domain::{CvmDataset, Dataset, DateRange};
use vintem_store::reader::{FilingRow, SnapshotReader};

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

    fn is_same(&self, one: &Snapshot, other: &Snapshot) -> bool {
        let has_same_layers = match (&one.filings, &other.filings) {
            (Some(one), Some(other)) => one.has_same_layers_as(other),
            (None, None) => true,
            _ => false,
        };
        has_same_layers && one.state(Dataset::Filings) == other.state(Dataset::Filings)
    }

    fn save(&self, snapshot: &Snapshot, directory: &Path) -> Result<Vec<String>> {
        snapshot.filings().map_or(Ok(Vec::new()), |filings| filings.save(directory))
    }

    fn open(&self, snapshot: &mut Snapshot, files: &[String], directory: &Path) -> Result<()> {
        snapshot.filings = Some(Arc::new(Filings::load(directory, files)?));
        Ok(())
    }
}

async fn build_filings(build: &mut SnapshotBuild<'_>) -> Result<Filings> {
    // If the database has been in the served state, only the changes since need to be read.
    match &build.served.filings {
        Some(served) if build.plan.past_states.contains(&Dataset::Filings) => {
            let generation = build.served.generation(Dataset::Filings);
            update_filings(&mut build.reader, served.clone(), generation, build.plan.pinned_layers).await
        }
        _ => read_filings(&mut build.reader).await,
    }
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
