//! The served snapshot, and how it follows the store.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use chrono::NaiveDate;
use vintem_domain::dates::{MAX_DATE, month_end};
use vintem_domain::decimal::annualize_daily_rate;
use vintem_domain::series::{self, DERIVED_SERIES, DatedValue, Formula, PUBLISHED_SERIES};
use vintem_domain::{Company, Currency, Dataset};
use vintem_store::Store;
use vintem_store::load::Observation;
use vintem_store::reader::{DatasetState, FetchRow, FilingRow, RowProvenance, SnapshotReader};
use vintem_store::sources::SourceState;

use crate::companies::Companies;
use crate::disk_cache::DiskCacheError;
use crate::error::{Result, SnapshotError};
use crate::filings::{FilingLayerBuilder, Filings};
use crate::market::{FxBulletin, FxRates, SeriesValues};
use crate::snapshot::Snapshot;

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
    /// Where the filings are cached on disk, and which of them were last saved.
    cache_directory: Option<PathBuf>,
    last_saved: tokio::sync::Mutex<Option<(DatasetState, Arc<Filings>)>>,
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

    /// The snapshot in the disk cache; an empty one if the cache is missing, damaged, or of another version.
    async fn load_cached_snapshot(&self) -> Snapshot {
        let Some(directory) = self.cache_directory.clone() else { return Snapshot::default() };

        let started = Instant::now();
        let result = tokio::task::spawn_blocking(move || Filings::load(&directory)).await;
        match result.map_err(SnapshotError::from).and_then(|loaded| loaded) {
            Ok((state, filings)) => {
                let filings = Arc::new(filings);
                let milliseconds = started.elapsed().as_millis() as u64;
                tracing::info!(filings = filings.len(), milliseconds, "the copy on disk is the start");
                *self.last_saved.lock().await = Some((state.clone(), filings.clone()));
                let states = HashMap::from([(Dataset::Filings, state)]);
                Snapshot { states, filings: Some(filings), ..Snapshot::default() }
            }
            Err(error) => {
                tracing::info!(%error, "there is no copy on disk to start from");
                Snapshot::default()
            }
        }
    }

    /// Updates the disk cache to the served filings. Returns true if there was something to write.
    pub async fn save_disk_cache(&self) -> Result<bool> {
        let Some(directory) = self.cache_directory.clone() else { return Ok(false) };
        let Some(served) = self.get() else { return Ok(false) };
        let Some(state) = served.state(Dataset::Filings).cloned() else { return Ok(false) };
        let Some(filings) = served.filings.clone() else { return Ok(false) };

        let mut last_saved = self.last_saved.lock().await;
        let is_saved = |(saved_state, saved): &(DatasetState, Arc<Filings>)| {
            *saved_state == state && saved.has_same_layers_as(&filings)
        };
        if last_saved.as_ref().is_some_and(is_saved) {
            return Ok(false);
        }

        let state_to_save = state.clone();
        let filings_to_save = filings.clone();
        tokio::task::spawn_blocking(move || -> Result<()> {
            std::fs::create_dir_all(&directory).map_err(DiskCacheError::from)?;
            filings_to_save.save(&state_to_save, &directory)
        })
        .await??;

        *last_saved = Some((state, filings));
        Ok(true)
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
    // All reads share one view of the database: generations and rows must belong together.
    let mut reader = store.open_reader().await?;
    let states = reader.dataset_states().await?;
    let mut next = Snapshot { states, ..Snapshot::default() };
    let is_loaded = |next: &Snapshot, dataset| next.states.contains_key(&dataset);
    let unchanged = |next: &Snapshot, dataset| next.states.get(&dataset) == served.states.get(&dataset);

    next.fetches = read_fetches(&mut reader, served, &next).await?;
    for series in &PUBLISHED_SERIES {
        let dataset = Dataset::Series(series);
        let gap_fill = series.gap_fill_series.and_then(series::find_series);
        let is_gap_fill_unchanged = gap_fill.is_none_or(|gap_fill| unchanged(&next, Dataset::Series(gap_fill)));
        if unchanged(&next, dataset) && is_gap_fill_unchanged {
            next.series.extend(served.series.get_key_value(series.id).map(|(id, values)| (*id, values.clone())));
        } else if is_loaded(&next, dataset) {
            let published = reader.observations(series).await?;
            let derived = match gap_fill {
                Some(gap_fill) => annualize_missing_days(&published, &reader.observations(gap_fill).await?),
                None => Vec::new(),
            };
            let values = SeriesValues::new(published, derived);
            next.series.insert(series.id, Arc::new(values));
        }
    }

    for series in &DERIVED_SERIES {
        let inputs = series.source_series();
        if inputs.iter().all(|input| unchanged(&next, Dataset::Series(input))) {
            next.series.extend(served.series.get_key_value(series.id).map(|(id, values)| (*id, values.clone())));
        } else {
            let inputs: Option<Vec<_>> =
                inputs.iter().map(|input| Some(next.series.get(input.id)?.rows_with_provenance())).collect();
            // There are no values until every input has been loaded once.
            if let Some((formula, inputs)) = series.formula.as_ref().zip(inputs) {
                let values = SeriesValues::new(apply_formula(formula, &inputs), Vec::new());
                next.series.insert(series.id, Arc::new(values));
            }
        }
    }

    if unchanged(&next, Dataset::Fx) {
        next.fx.clone_from(&served.fx);
    } else if is_loaded(&next, Dataset::Fx) {
        next.fx = Some(Arc::new(read_fx_rates(&mut reader).await?));
    }

    if unchanged(&next, Dataset::Filings) {
        next.filings.clone_from(&served.filings);
    } else if is_loaded(&next, Dataset::Filings) {
        let generation = incremental_base_generation(served, &next.states[&Dataset::Filings]);
        let filings = match (&served.filings, generation) {
            (Some(served), Some(generation)) => {
                update_filings(&mut reader, served.clone(), generation, pinned_layers).await?
            }
            _ => read_filings(&mut reader).await?,
        };
        next.filings = Some(Arc::new(filings));
    }

    if is_loaded(&next, Dataset::Companies) {
        // Issuers that appear only in filings are companies too.
        let is_unchanged = unchanged(&next, Dataset::Companies);
        let registered = if is_unchanged { None } else { Some(reader.companies().await?) };
        next.companies = build_companies(served, registered, next.filings.clone()).await?;
    }

    Ok(next)
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

/// The generation of filings after which only the changes need to be read; `None` if all must be read again.
fn incremental_base_generation(served: &Snapshot, state: &DatasetState) -> Option<i64> {
    let served = served.states.get(&Dataset::Filings)?;
    (served.lineage == state.lineage && served.generation < state.generation).then_some(served.generation)
}

/// The companies, shared with the served snapshot if neither the registry nor the unregistered issuers changed.
async fn build_companies(
    served: &Snapshot,
    registered: Option<Vec<(Company, RowProvenance)>>,
    filings: Option<Arc<Filings>>,
) -> Result<Option<Arc<Companies>>> {
    let served = served.companies.clone();
    let build = move || {
        let reusable = served.as_ref().filter(|_| registered.is_none());
        let registered = registered.unwrap_or_else(|| served.iter().flat_map(|served| served.registered()).collect());
        let issuers = unregistered_issuers(&registered, filings.as_deref(), MAX_DATE);

        match reusable {
            // A further filing of the same issuers changes nothing.
            Some(companies) if companies.unregistered().iter().eq(issuers.iter().map(|(company, _)| company)) => {
                Ok(Some(companies.clone()))
            }
            _ => Ok(Some(Arc::new(Companies::build(registered, issuers)?))),
        }
    };

    tokio::task::spawn_blocking(build).await?
}

/// Computes a formula over its inputs. Each value is dated as newly known as the newest input it may depend on: too new
/// is safer than too old.
pub fn apply_formula(
    formula: &Formula,
    inputs: &[Vec<(Observation, RowProvenance)>],
) -> Vec<(Observation, RowProvenance)> {
    let dated = |rows: &Vec<(Observation, RowProvenance)>| rows.iter().map(|(row, _)| (row.date, row.value)).collect();
    let values = (formula.compute)(&inputs.iter().map(dated).collect::<Vec<Vec<DatedValue>>>());

    let provenance = |date: NaiveDate| {
        let until = inputs.iter().flatten().filter(|(row, _)| row.date <= month_end(date));
        until.map(|(_, provenance)| *provenance).max_by_key(|known| known.known_at_seconds).unwrap_or_default()
    };
    values.into_iter().map(|(date, value)| (Observation { date, value }, provenance(date))).collect()
}

/// Computes the days that the annual series lacks from the daily rates.
pub fn annualize_missing_days(
    published: &[(Observation, RowProvenance)],
    daily: &[(Observation, RowProvenance)],
) -> Vec<(Observation, RowProvenance)> {
    let published_days: HashSet<NaiveDate> = published.iter().map(|(row, _)| row.date).collect();
    let missing = daily.iter().filter(|(row, _)| !published_days.contains(&row.date));
    let annualize = |(row, provenance): &(Observation, RowProvenance)| {
        Some((Observation { date: row.date, value: annualize_daily_rate(row.value)? }, *provenance))
    };
    missing.filter_map(annualize).collect()
}

async fn read_fx_rates(reader: &mut SnapshotReader) -> Result<FxRates> {
    let mut bulletins: [Vec<FxBulletin>; Currency::ALL.len()] = Default::default();
    for currency in Currency::ALL {
        let of_currency = &mut bulletins[currency as usize];
        reader.for_each_bulletin(currency, |row| of_currency.push(FxBulletin::from(row))).await?;
    }
    Ok(FxRates::new(bulletins))
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

/// Issuers of filings until a day that are not in the registry, as companies, in ascending order of code.
pub fn unregistered_issuers(
    registered: &[(Company, RowProvenance)],
    filings: Option<&Filings>,
    until: NaiveDate,
) -> Vec<(Company, RowProvenance)> {
    let registered_ids: HashSet<u32> = registered.iter().map(|(company, _)| company.id).collect();
    let issuers = filings.into_iter().flat_map(|filings| filings.issuer_names(until));
    let unregistered = issuers.filter(|(id, _)| !registered_ids.contains(id));

    unregistered
        .map(|(id, (name, provenance))| (Company { id, name: name.to_owned(), ..Company::default() }, provenance))
        .collect()
}
