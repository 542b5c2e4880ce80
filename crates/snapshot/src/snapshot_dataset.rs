//! What the read model asks of each kind of data.

use std::collections::HashSet;
use std::path::Path;
use std::pin::Pin;

use chrono::NaiveDate;
use vintem_domain::Dataset;
use vintem_store::reader::SnapshotReader;

use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::statements::BodyFileLocation;

/// One kind of data of the read model. The snapshot is built, saved, opened and checked for freshness by looping over
/// all kinds (`datasets/`), so a new kind is one implementation of this trait.
pub trait SnapshotDataset: Sync {
    /// The datasets of the store that it serves.
    fn datasets(&self) -> Vec<Dataset>;

    /// Fills its part of `build.next`, from the reader or from what is served now.
    fn build<'b>(&'b self, build: &'b mut SnapshotBuild<'_>) -> BuildFuture<'b>;

    /// The number of rows of a dataset that are served today, and the newest of their dates. There is no such date if
    /// the rows carry none that advances.
    fn row_count_and_newest_date(
        &self,
        snapshot: &Snapshot,
        dataset: Dataset,
        today: NaiveDate,
    ) -> (usize, Option<NaiveDate>);

    /// Whether this source of the ingestion fills the dataset.
    fn is_filled_by(&self, dataset: Dataset, source_id: &str) -> bool {
        source_id == dataset.id()
    }

    /// Whether both snapshots have the same part, so that the files of one serve for the other.
    fn is_same(&self, one: &Snapshot, other: &Snapshot) -> bool {
        self.datasets().into_iter().all(|dataset| one.state(dataset) == other.state(dataset))
    }

    /// Writes its part into files of the disk cache, and returns their names. None if it was never loaded.
    fn save(&self, snapshot: &Snapshot, directory: &Path) -> Result<Vec<String>>;

    /// Opens its part from the files that `save` wrote. What is computed from other data is computed again, because the
    /// computation may have changed since.
    fn open(&self, snapshot: &mut Snapshot, files: &[String], directory: &Path) -> Result<()>;
}

pub type BuildFuture<'b> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'b>>;

/// The next snapshot while it is being built.
pub struct SnapshotBuild<'s> {
    /// All reads share one view of the database: generations and rows must belong together.
    pub reader: SnapshotReader,
    pub served: &'s Snapshot,
    pub plan: BuildPlan<'s>,
    /// Has the states of all datasets; its parts follow one by one.
    pub next: Snapshot,
}

/// How the next snapshot is built.
pub struct BuildPlan<'s> {
    /// The served datasets whose state the database has been in. Of others nothing may be reused.
    pub past_states: HashSet<Dataset>,
    /// Where the bodies of statements are written.
    pub bodies: BodyFileLocation<'s>,
    /// Whether statements stay as they are, because they could not be written a moment ago.
    pub postpones_statements: bool,
    /// The number of filing layers that must not change, because they are being compacted.
    pub pinned_layers: usize,
}

impl SnapshotBuild<'_> {
    pub fn is_loaded(&self, dataset: Dataset) -> bool {
        self.next.states.contains_key(&dataset)
    }

    pub fn is_unchanged(&self, dataset: Dataset) -> bool {
        self.next.states.get(&dataset) == self.served.states.get(&dataset)
    }
}
