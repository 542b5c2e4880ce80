//! The read model: everything that is served, as columns in memory and a Tantivy index, built from the store beside
//! the served one and swapped whole.
//!
//! No request sees half of a generation, asks Postgres, scans a list, or pays more for a deep page. It never speaks
//! HTTP. When Postgres is away the last snapshot is served on, byte for byte.

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

/// What a list or a search found: how many in all, and the rows of the page asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowPage {
    pub total: usize,
    pub rows: Vec<u32>,
}

/// What is asked of a search beside its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchOptions {
    pub offset: usize,
    pub limit: usize,
    /// Whether all that was found is counted by what it is.
    pub count_facets: bool,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchResults {
    pub page: RowPage,
    /// Of companies by status and by sector, of filings by category and by year. Empty where nobody asked.
    pub facet_counts: [ValueCounts; 2],
    /// The words by which it was found.
    pub matched_words: HashSet<String>,
}

/// How often each value occurs, the most frequent first.
pub type ValueCounts = Vec<(String, usize)>;

fn sort_counts_descending(counts: HashMap<String, usize>) -> ValueCounts {
    let mut counts: ValueCounts = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    counts.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    counts
}

/// Everything that is served at one moment. A part is `None` until its dataset was loaded once.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    states: HashMap<Dataset, DatasetState>,
    series: HashMap<&'static str, Arc<SeriesValues>>,
    fx: Option<Arc<FxRates>>,
    companies: Option<Arc<Companies>>,
    filings: Option<Arc<Filings>>,
    /// What was fetched, by number.
    fetches: Arc<HashMap<u32, FetchRow>>,
}

impl Snapshot {
    pub fn state(&self, dataset: Dataset) -> Option<&DatasetState> {
        self.states.get(&dataset)
    }

    pub fn states(&self) -> &HashMap<Dataset, DatasetState> {
        &self.states
    }

    /// Zero for what was never loaded.
    pub fn generation(&self, dataset: Dataset) -> i64 {
        self.state(dataset).map_or(0, |state| state.generation)
    }

    /// Whether anything that is served was made up for a demonstration.
    pub fn is_synthetic(&self) -> bool {
        self.states.values().any(|state| state.origin == DataOrigin::Synthetic)
    }

    /// The fetch that brought a row.
    pub fn find_fetch(&self, known: RowProvenance) -> Option<&FetchRow> {
        self.fetches.get(&known.fetch_id)
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

    /// The same, to be held longer than the snapshot.
    pub fn shared_filings(&self) -> Option<Arc<Filings>> {
        self.filings.clone()
    }
}
