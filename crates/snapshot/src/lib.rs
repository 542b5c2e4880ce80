//! The read model: everything that is served, as columns in memory and a Tantivy index, built from the store beside
//! the served one and swapped whole.
//!
//! No request sees half of a generation, asks Postgres, scans a list, or pays more for a deep page. It never speaks
//! HTTP. When Postgres is away the last snapshot is served on, byte for byte.

mod analysis;
mod columns;
mod companies;
mod copy;
mod filings;
mod freshness;
mod history;
mod index;
mod live;
mod market;
mod names;
mod query;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use vintem_domain::{Dataset, Origin, Series};
use vintem_store::read::{DatasetState, FetchRow, Known};

pub use analysis::{matches, words};
pub use companies::{Clue, Companies, CompanyFilter};
pub use filings::{FilingFilter, FilingView, Filings};
pub use freshness::Freshness;
pub use history::{companies_as_of, filings_as_of, fx_as_of, series_as_of};
pub use live::LiveSnapshot;
pub use market::{Bulletin, FxRates, PairRates, SeriesValues};
pub use query::Query;

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("reading what the snapshot is built from: {0}")]
    Store(#[from] vintem_store::StoreError),
    #[error("building the search index: {0}")]
    Index(#[from] tantivy::TantivyError),
    #[error("the copy on disk: {0}")]
    Copy(#[from] copy::CopyError),
    #[error("building the snapshot was cut off: {0}")]
    Cut(#[from] tokio::task::JoinError),
}

pub type Result<T> = std::result::Result<T, SnapshotError>;

/// What a list or a search found: how many in all, and the rows of the page asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    pub total: usize,
    pub rows: Vec<u32>,
}

/// What is asked of a search beside its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub offset: usize,
    pub limit: usize,
    /// Whether all that was found is counted by what it is.
    pub facets: bool,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Searched {
    pub found: Found,
    /// Of companies by status and by sector, of filings by category and by year. Empty where nobody asked.
    pub facets: [Counts; 2],
    /// The words by which it was found.
    pub words: HashSet<String>,
}

/// How often each value occurs, the most frequent first.
pub type Counts = Vec<(String, usize)>;

fn sorted_counts(counts: HashMap<String, usize>) -> Counts {
    let mut counts: Counts = counts.into_iter().filter(|(_, count)| *count > 0).collect();
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
        self.states.values().any(|state| state.origin == Origin::Synthetic)
    }

    /// The fetch that brought a row.
    pub fn fetch(&self, known: Known) -> Option<&FetchRow> {
        self.fetches.get(&known.fetch)
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
