//! The read model: all served data as columns in memory plus a Tantivy index. A new snapshot is built from the store
//! beside the served one and swapped in as a whole.
//!
//! No request sees a half-built generation, queries Postgres, scans a list, or pays more for a deep page. This crate
//! never speaks HTTP. While Postgres is unavailable, the last snapshot continues to be served, byte for byte.

mod columns;
mod companies;
mod company_names;
mod disk_cache;
mod filings;
mod freshness;
mod live_snapshot;
mod market;
mod point_in_time;
mod search_index;
mod search_query;
mod tokenizer;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use vintem_domain::{DataOrigin, Dataset, Series};
use vintem_store::reader::{DatasetState, FetchRow, RowProvenance};

pub use companies::{Companies, CompanyFilter, CompanyIdentifierKind};
pub use filings::{FilingFilter, FilingView, Filings};
pub use freshness::DatasetFreshness;
pub use live_snapshot::LiveSnapshot;
pub use market::{FxBulletin, FxRates, PairRates, SeriesValues};
pub use point_in_time::{companies_as_of, filings_as_of, fx_as_of, series_as_of};
pub use search_query::SearchQuery;
pub use tokenizer::{highlight_matches, tokenize};

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("reading what the snapshot is built from: {0}")]
    Store(#[from] vintem_store::StoreError),
    #[error("building the search index: {0}")]
    Index(#[from] tantivy::TantivyError),
    #[error("the copy on disk: {0}")]
    DiskCache(#[from] disk_cache::DiskCacheError),
    #[error("building the snapshot was cut off: {0}")]
    TaskFailed(#[from] tokio::task::JoinError),
}

pub type Result<T> = std::result::Result<T, SnapshotError>;

/// A page of a list or a search: the total number of matches, and the rows of the requested page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowPage {
    pub total: usize,
    pub rows: Vec<u32>,
}

/// Options of a search besides its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchOptions {
    pub offset: usize,
    pub limit: usize,
    /// Whether to count all matches by their facets.
    pub count_facets: bool,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchResults {
    pub page: RowPage,
    /// Companies by status and by sector; filings by category and by year. Empty unless `count_facets` was set.
    pub facet_counts: [ValueCounts; 2],
    /// The words that matched.
    pub matched_words: HashSet<String>,
}

/// How often each value occurs, the most frequent first.
pub type ValueCounts = Vec<(String, usize)>;

fn sort_counts_descending(counts: HashMap<String, usize>) -> ValueCounts {
    let mut counts: ValueCounts = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    counts.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    counts
}

/// All data served at one moment. A part is `None` until its dataset has been loaded once.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    states: HashMap<Dataset, DatasetState>,
    series: HashMap<&'static str, Arc<SeriesValues>>,
    fx: Option<Arc<FxRates>>,
    companies: Option<Arc<Companies>>,
    filings: Option<Arc<Filings>>,
    /// Fetches by id.
    fetches: Arc<HashMap<u32, FetchRow>>,
}

impl Snapshot {
    pub fn state(&self, dataset: Dataset) -> Option<&DatasetState> {
        self.states.get(&dataset)
    }

    pub fn states(&self) -> &HashMap<Dataset, DatasetState> {
        &self.states
    }

    /// Zero for a dataset that was never loaded.
    pub fn generation(&self, dataset: Dataset) -> i64 {
        self.state(dataset).map_or(0, |state| state.generation)
    }

    /// Whether any served data was made up for a demonstration.
    pub fn is_synthetic(&self) -> bool {
        self.states.values().any(|state| state.origin == DataOrigin::Synthetic)
    }

    /// The fetch that a row came from.
    pub fn find_fetch(&self, provenance: RowProvenance) -> Option<&FetchRow> {
        self.fetches.get(&provenance.fetch_id)
    }

    pub fn series(&self, series: &Series) -> Option<&SeriesValues> {
        self.series.get(series.id).map(Arc::as_ref)
    }

    pub fn fx(&self) -> Option<&FxRates> {
        self.fx.as_deref()
    }

    pub fn companies(&self) -> Option<&Companies> {
        self.companies.as_deref()
    }

    pub fn filings(&self) -> Option<&Filings> {
        self.filings.as_deref()
    }

    /// The filings as a handle that may outlive the snapshot.
    pub fn shared_filings(&self) -> Option<Arc<Filings>> {
        self.filings.clone()
    }
}
