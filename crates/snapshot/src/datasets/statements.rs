//! Financial statements: their index and the file with their bodies, updated by the forms that each load brings.

use std::path::Path;
use std::sync::Arc;

use chrono::NaiveDate;
use vintem_domain::{Dataset, StatementSet};

use crate::disk_cache::DiskCacheError;
use crate::error::{Result, SnapshotError};
use crate::snapshot::Snapshot;
use crate::snapshot_dataset::{BuildFuture, SnapshotBuild, SnapshotDataset};
use crate::statements::{Statements, StatementsUpdate};

/// All generations are newer.
const BEFORE_ALL_GENERATIONS: i64 = -1;

pub struct StatementsData;

impl SnapshotDataset for StatementsData {
    fn datasets(&self) -> Vec<Dataset> {
        vec![Dataset::Statements]
    }

    fn build<'b>(&'b self, build: &'b mut SnapshotBuild<'_>) -> BuildFuture<'b> {
        Box::pin(async {
            if build.is_unchanged(Dataset::Statements) {
                build.next.statements.clone_from(&build.served.statements);
            } else if build.plan.postpones_statements {
                keep_served(build);
            } else if build.is_loaded(Dataset::Statements) {
                match build_statements(build).await {
                    Ok(statements) => build.next.statements = Some(Arc::new(statements)),
                    Err(SnapshotError::DiskCache(error)) => {
                        tracing::error!(%error, "statements cannot be written to the local file; others are served");
                        keep_served(build);
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
    }

    /// A company may have any date as the end of its fiscal year, so no date advances for all.
    fn row_count_and_newest_date(&self, snapshot: &Snapshot, _: Dataset, _: NaiveDate) -> (usize, Option<NaiveDate>) {
        (snapshot.statements().map_or(0, Statements::document_count), None)
    }

    fn is_filled_by(&self, dataset: Dataset, source_id: &str) -> bool {
        let sources = StatementSet::ALL.map(|set| format!("{}-{}", set.id(), dataset.id()));
        sources.iter().any(|source| source == source_id)
    }

    fn save(&self, snapshot: &Snapshot, directory: &Path) -> Result<Vec<String>> {
        snapshot.statements().map_or(Ok(Vec::new()), |statements| statements.save(directory))
    }

    fn open(&self, snapshot: &mut Snapshot, files: &[String], directory: &Path) -> Result<()> {
        let [index, body_file] = files else {
            return Err(DiskCacheError::Damaged("it lacks a file of the statements").into());
        };
        snapshot.statements = Some(Arc::new(Statements::load(directory, index, body_file)?));
        Ok(())
    }
}

async fn build_statements(build: &mut SnapshotBuild<'_>) -> Result<Statements> {
    // If the database has been in the served state, only what came since needs to be read.
    let served = build.served.statements.clone();
    let (mut update, generation) = match &served {
        Some(served) if build.plan.past_states.contains(&Dataset::Statements) => {
            (StatementsUpdate::of(served.clone()), build.served.generation(Dataset::Statements))
        }
        _ => (StatementsUpdate::start(build.plan.bodies)?, BEFORE_ALL_GENERATIONS),
    };
    build.reader.for_each_statement_since(generation, |row| update.push(&row)).await?;
    update.finish()
}

/// A full disk must not keep other data from being updated: the statements stay as they were, and the write is
/// retried.
fn keep_served(build: &mut SnapshotBuild<'_>) {
    build.next.statements.clone_from(&build.served.statements);
    build.served.copy_state(Dataset::Statements, &mut build.next.states);
}
