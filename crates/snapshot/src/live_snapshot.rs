//! The served snapshot, and how it follows the store.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use vintem_domain::{Dataset, LastTime};
use vintem_store::Store;
use vintem_store::reader::SnapshotReader;
use vintem_store::sources::SourceState;

use crate::cached_snapshot::CachedSnapshot;
use crate::datasets::SNAPSHOT_DATASETS;
use crate::disk_cache::DiskCacheError;
use crate::error::{Result, SnapshotError};
use crate::filings::Filings;
use crate::snapshot::Snapshot;
use crate::snapshot_dataset::{BuildPlan, SnapshotBuild};
use crate::statements::{BodyFileLocation, Statements, remove_other_body_files};

/// A full disk seldom has room again within a second, and each attempt reads all statements.
const STATEMENTS_RETRY: Duration = Duration::from_secs(60);

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
    serves_lost_data: AtomicBool,
    /// When the snapshot was last known to have everything that the database has.
    current_at: LastTime,
    /// Where the snapshot is cached on disk.
    cache_directory: Option<PathBuf>,
    /// Where statements are kept if the snapshot is not cached and there is no directory for temporary files.
    scratch_directory: Option<PathBuf>,
    lacks_statements: AtomicBool,
    /// When statements are tried again that could not be written to the local file.
    statements_retry_at: Mutex<Option<Instant>>,
    /// Instead of [`STATEMENTS_RETRY`].
    statements_retry: Option<Duration>,
    /// What is on disk; `None` until it has been looked at.
    cached: tokio::sync::Mutex<Option<CachedSnapshot>>,
}

impl LiveSnapshot {
    /// Starts from the cache in this directory, and saves to it.
    pub fn with_disk_cache(directory: PathBuf) -> Self {
        Self { cache_directory: Some(directory), ..Self::default() }
    }

    /// Caches nothing. Statements, which don't fit into memory, are kept in a file without a name: in the directory for
    /// temporary files or, if that cannot be written, in this one.
    pub fn with_scratch_directory(directory: PathBuf) -> Self {
        Self { scratch_directory: Some(directory), ..Self::default() }
    }

    /// After this time, statements that could not be written are tried again.
    pub fn retrying_statements_after(self, wait: Duration) -> Self {
        Self { statements_retry: Some(wait), ..self }
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
        let started = Instant::now();
        let pinned_layers = self.pinned_layers.lock().await;
        let served = self.get();
        let mut states = match store.dataset_states().await {
            Ok(states) => states,
            Err(error) => {
                self.serve_cached_snapshot().await;
                return Err(error.into());
            }
        };
        let postpones_statements = self.postpones_statements(started);
        if let Some(served) = served.as_ref().filter(|_| postpones_statements) {
            served.copy_state(Dataset::Statements, &mut states);
        }
        if served.as_ref().is_some_and(|served| served.states == states) {
            self.current_at.set(started);
            return Ok(false);
        }

        let is_serving = served.is_some();
        let served = match served {
            Some(served) => served,
            None => Arc::new(self.open_cached_snapshot().await),
        };

        let mut reader = store.open_reader().await?;
        let past_states = reader.past_states(&served.states).await?;
        let lost: Vec<&str> =
            served.states.keys().filter(|dataset| !past_states.contains(dataset)).map(|dataset| dataset.id()).collect();
        if !lost.is_empty() && is_serving {
            self.serves_lost_data.store(true, Ordering::Relaxed);
            metrics::counter!("vintem_database_replaced_total", "what" => "data").increment(1);
        }
        if !lost.is_empty() {
            tracing::warn!(
                datasets = lost.join(", "),
                "the database no longer has what was read from it: it was restored, replaced or cleared; reading it again"
            );
        }

        let scratch_directories: Vec<PathBuf> =
            [Some(std::env::temp_dir()), self.scratch_directory.clone()].into_iter().flatten().collect();
        let bodies = match &self.cache_directory {
            Some(directory) => BodyFileLocation::Cache(directory),
            None => BodyFileLocation::Unnamed(&scratch_directories),
        };
        let has_lost_statements = lost.contains(&Dataset::Statements.id());
        let plan = BuildPlan { past_states, bodies, postpones_statements, pinned_layers: *pinned_layers };
        let (next, has_all) = build_next_snapshot(reader, &served, plan).await?;
        if let Some(statements) = next.statements() {
            statements.replace(served.statements());
        }
        self.current.store(Some(Arc::new(next)));
        self.serves_lost_data.store(has_lost_statements && !has_all, Ordering::Relaxed);
        self.lacks_statements.store(!has_all, Ordering::Relaxed);
        self.current_at.set(started);
        if !has_all && !postpones_statements {
            let retry_at = started + self.statements_retry.unwrap_or(STATEMENTS_RETRY);
            *self.statements_retry_at.lock().expect("no panic while it is held") = Some(retry_at);
        }
        Ok(true)
    }

    /// Whether the database has statements that could not be written to the local file. Everything else is current.
    pub fn lacks_statements(&self) -> bool {
        self.lacks_statements.load(Ordering::Relaxed)
    }

    fn postpones_statements(&self, now: Instant) -> bool {
        self.statements_retry_at.lock().expect("no panic while it is held").is_some_and(|retry_at| now < retry_at)
    }

    /// When the snapshot was last known to have everything that the database has.
    pub fn current_at(&self) -> &LastTime {
        &self.current_at
    }

    /// Whether the served data includes something that the database has lost, because it was restored or replaced. Lasts
    /// until everything has been read again.
    pub fn serves_lost_data(&self) -> bool {
        self.serves_lost_data.load(Ordering::Relaxed)
    }

    /// Serves the snapshot from the disk cache, if there is one and nothing is served yet.
    async fn serve_cached_snapshot(&self) {
        let is_unknown = self.cached.lock().await.is_none();
        if is_unknown && self.get().is_none() {
            let cached = self.open_cached_snapshot().await;
            if !cached.states.is_empty() {
                tracing::warn!("postgres is unavailable; serving the snapshot copy");
                self.current.store(Some(Arc::new(cached)));
            }
        }
    }

    /// The snapshot in the disk cache; empty if there is none.
    async fn open_cached_snapshot(&self) -> Snapshot {
        let Some(directory) = self.cache_directory.clone() else { return Snapshot::default() };

        let mut cached = self.cached.lock().await;
        if cached.is_none() {
            let started = Instant::now();
            let open = move || {
                let opened = CachedSnapshot::open(&directory);
                let statements = opened.as_ref().ok().and_then(|opened| opened.snapshot.statements());
                // There is no directory before the first start.
                let _ = remove_other_body_files(&directory, statements.map(Statements::body_file));
                opened
            };
            let opened = tokio::task::spawn_blocking(open).await;
            match opened.map_err(SnapshotError::from).flatten() {
                Ok(opened) => {
                    let filings = opened.snapshot.filings().map_or(0, Filings::len);
                    let milliseconds = started.elapsed().as_millis() as u64;
                    tracing::info!(filings, milliseconds, "snapshot loaded from disk");
                    *cached = Some(opened);
                }
                Err(error) => {
                    tracing::info!(%error, "no snapshot copy on disk");
                    *cached = Some(CachedSnapshot::default());
                }
            }
        }
        cached.as_ref().map(|cached| cached.snapshot.clone()).unwrap_or_default()
    }

    /// Updates the disk cache to the served snapshot. Returns true if there was something to write.
    pub async fn save_disk_cache(&self) -> Result<bool> {
        let Some(directory) = self.cache_directory.clone() else { return Ok(false) };
        let Some(served) = self.get() else { return Ok(false) };

        let mut cached = self.cached.lock().await;
        // Moved out and back: if writing fails, what is on disk is unknown, and everything is written again.
        let last = cached.take().unwrap_or_default();
        let save = move || -> Result<(bool, CachedSnapshot)> {
            fs::create_dir_all(&directory).map_err(DiskCacheError::from)?;
            let saved = last.save(&served, &directory)?;
            Ok((saved.is_some(), saved.unwrap_or(last)))
        };
        let saved = tokio::task::spawn_blocking(save).await.map_err(SnapshotError::from).flatten();
        let (has_written, saved) = match saved {
            Ok(saved) => saved,
            Err(error) => {
                *cached = Some(CachedSnapshot::default());
                return Err(error);
            }
        };
        *cached = Some(saved);
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

/// Builds the next snapshot. Parts whose generation did not change are shared with the served one, provided that the
/// database still has that generation.
///
/// Also says whether it has everything that the database has: statements that cannot be written stay as they were.
async fn build_next_snapshot(
    mut reader: SnapshotReader,
    served: &Snapshot,
    plan: BuildPlan<'_>,
) -> Result<(Snapshot, bool)> {
    let states = reader.dataset_states().await?;
    let has_same_fetches = served.states.keys().all(|dataset| plan.past_states.contains(dataset));
    let mut fetches = if has_same_fetches { served.fetches.clone() } else { Arc::default() };

    let next = Snapshot { states: states.clone(), ..Snapshot::default() };
    let mut build = SnapshotBuild { reader, served, plan, next };
    for part in SNAPSHOT_DATASETS {
        part.build(&mut build).await?;
    }

    let others = build.reader.fetches_except(&fetches).await?;
    if !others.is_empty() {
        Arc::make_mut(&mut fetches).extend(others);
    }
    build.next.fetches = fetches;
    let has_all = build.next.states == states;
    Ok((build.next, has_all))
}
