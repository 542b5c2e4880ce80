//! The served snapshot, and how it follows the store.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use vintem_domain::Dataset;
use vintem_store::Store;
use vintem_store::reader::{DatasetState, FetchRow, SnapshotReader};
use vintem_store::sources::SourceState;

use crate::datasets::SNAPSHOT_DATASETS;
use crate::disk_cache::DiskCacheError;
use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::snapshot_dataset::SnapshotBuild;

/// The snapshot that all requests read. Empty until the first one is built; a snapshot of an empty database counts.
#[derive(Debug, Default)]
pub struct LiveSnapshot {
    current: ArcSwapOption<Snapshot>,
    /// State of the sources at the last check. Kept beside the snapshot, because a check without news changes no served
    /// data.
    sources: ArcSwapOption<Vec<SourceState>>,
    /// Allows one build at a time. Holds the number of filing layers that must not change because they are being
    /// compacted.
    pinned_layers: tokio::sync::Mutex<usize>,
    /// Where parts of the snapshot are cached on disk, and the parts that were last saved.
    cache_directory: Option<PathBuf>,
    last_saved: tokio::sync::Mutex<Snapshot>,
}

impl LiveSnapshot {
    /// Starts from the cache in this directory, and saves to it.
    pub fn with_disk_cache(directory: PathBuf) -> Self {
        Self { cache_directory: Some(directory), ..Self::default() }
    }

    pub fn get(&self) -> Option<Arc<Snapshot>> {
        self.current.load_full()
    }

    /// Whether this snapshot is the served one, without acquiring a reference to it.
    pub fn is_current(&self, snapshot: &Weak<Snapshot>) -> bool {
        self.current.load().as_ref().is_some_and(|current| std::ptr::eq(Arc::as_ptr(current), snapshot.as_ptr()))
    }

    /// Empty if no source was ever queried, as in a demonstration.
    pub fn sources(&self) -> Arc<Vec<SourceState>> {
        self.sources.load_full().unwrap_or_default()
    }

    pub async fn refresh_sources(&self, store: &Store) -> Result<()> {
        let states = store.source_states().await?;
        self.sources.store(Some(Arc::new(states)));
        Ok(())
    }

    /// Rebuilds the datasets that have a newer generation, beside the served snapshot, and swaps the result in as a
    /// whole. Returns true if it did.
    pub async fn refresh(&self, store: &Store) -> Result<bool> {
        let pinned_layers = self.pinned_layers.lock().await;
        let served = self.get();
        let states = store.dataset_states().await?;
        if served.as_ref().is_some_and(|served| served.states == states) {
            return Ok(false);
        }

        let served = match served {
            Some(served) => served,
            None => Arc::new(self.load_cached_snapshot().await),
        };

        let next = build_next_snapshot(store, &served, *pinned_layers).await?;
        self.current.store(Some(Arc::new(next)));
        Ok(true)
    }

    /// The parts of the snapshot that the disk cache has. A part is left out if its cache is missing, damaged, or of
    /// another version.
    async fn load_cached_snapshot(&self) -> Snapshot {
        let Some(directory) = self.cache_directory.clone() else { return Snapshot::default() };

        let started = Instant::now();
        let open_parts = move || {
            let mut snapshot = Snapshot::default();
            for part in SNAPSHOT_DATASETS {
                if let Err(error) = part.open(&mut snapshot, &directory) {
                    tracing::info!(%error, "no snapshot copy on disk");
                }
            }
            snapshot
        };
        let cached = tokio::task::spawn_blocking(open_parts).await.unwrap_or_default();

        if let Some(filings) = cached.filings() {
            let milliseconds = started.elapsed().as_millis() as u64;
            tracing::info!(filings = filings.len(), milliseconds, "snapshot loaded from disk");
        }
        *self.last_saved.lock().await = cached.clone();
        cached
    }

    /// Updates the disk cache to the served snapshot. Returns true if there was something to write.
    pub async fn save_disk_cache(&self) -> Result<bool> {
        let Some(directory) = self.cache_directory.clone() else { return Ok(false) };
        let Some(served) = self.get() else { return Ok(false) };

        let mut last_saved = self.last_saved.lock().await;
        let mut saved = last_saved.clone();
        let save_parts = move || -> Result<(bool, Snapshot)> {
            std::fs::create_dir_all(&directory).map_err(DiskCacheError::from)?;
            let mut has_written = false;
            for part in SNAPSHOT_DATASETS {
                has_written |= part.save(&served, &mut saved, &directory)?;
            }
            Ok((has_written, saved))
        };

        let (has_written, saved) = tokio::task::spawn_blocking(save_parts).await??;
        *last_saved = saved;
        Ok(has_written)
    }

    /// Compacts several layers of filings into one if it is time, and returns true if it did. The served data does not
    /// change.
    pub async fn compact_filings(&self) -> Result<bool> {
        let compaction = {
            let mut pinned_layers = self.pinned_layers.lock().await;
            let Some(compaction) = self.get().and_then(|served| served.filings.as_ref()?.plan_compaction()) else {
                return Ok(false);
            };
            *pinned_layers = compaction.pinned_layer_count();
            compaction
        };

        let compacted = tokio::task::spawn_blocking(move || compaction.run()).await;

        let mut pinned_layers = self.pinned_layers.lock().await;
        *pinned_layers = 0;
        let compacted = compacted??;

        let Some(served) = self.get() else { return Ok(false) };
        let Some(filings) = served.filings.as_ref().filter(|filings| filings.has_source_layers_of(&compacted)) else {
            return Ok(false);
        };

        let next =
            Snapshot { filings: Some(Arc::new(filings.with_compacted_layer(&compacted))), ..Snapshot::clone(&served) };
        self.current.store(Some(Arc::new(next)));
        Ok(true)
    }
}

/// Builds the next snapshot. Parts whose generation did not change are shared with the served one.
async fn build_next_snapshot(store: &Store, served: &Snapshot, pinned_layers: usize) -> Result<Snapshot> {
    let mut reader = store.open_reader().await?;
    let states = reader.dataset_states().await?;
    let mut next = Snapshot { states, ..Snapshot::default() };
    next.fetches = read_fetches(&mut reader, served, &next).await?;

    let mut build = SnapshotBuild { reader, served, next, pinned_layers };
    for part in SNAPSHOT_DATASETS {
        part.build(&mut build).await?;
    }
    Ok(build.next)
}

/// The served fetches plus those since. Reads all of them again if a dataset has another lineage than before.
async fn read_fetches(
    reader: &mut SnapshotReader,
    served: &Snapshot,
    next: &Snapshot,
) -> Result<Arc<HashMap<u32, FetchRow>>> {
    let has_same_lineage = |(dataset, state): (&Dataset, &DatasetState)| {
        next.states.get(dataset).is_some_and(|next| next.lineage == state.lineage)
    };
    let mut fetches = if served.states.iter().all(has_same_lineage) { served.fetches.clone() } else { Arc::default() };

    let newer = reader.fetches(fetches.keys().max().copied().unwrap_or(0)).await?;
    if !newer.is_empty() {
        Arc::make_mut(&mut fetches).extend(newer);
    }
    Ok(fetches)
}
