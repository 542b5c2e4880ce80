//! All data served at one moment.

use std::collections::HashMap;
use std::sync::Arc;

use vintem_domain::{DataOrigin, Dataset, Series};
use vintem_store::change_id::ChangeId;
use vintem_store::reader::{DatasetState, FetchRow, RowProvenance};

use crate::companies::Companies;
use crate::filings::Filings;
use crate::fx_rates::FxRates;
use crate::series_values::SeriesValues;
use crate::statements::Statements;

/// All data served at one moment. A part is `None` until its dataset has been loaded once.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub(crate) states: HashMap<Dataset, DatasetState>,
    pub(crate) series: HashMap<&'static str, Arc<SeriesValues>>,
    pub(crate) fx: Option<Arc<FxRates>>,
    pub(crate) companies: Option<Arc<Companies>>,
    pub(crate) filings: Option<Arc<Filings>>,
    pub(crate) statements: Option<Arc<Statements>>,
    /// Fetches by id.
    pub(crate) fetches: Arc<HashMap<u32, FetchRow>>,
}

impl Snapshot {
    pub fn state(&self, dataset: Dataset) -> Option<&DatasetState> {
        self.states.get(&dataset)
    }

    /// Makes another set of states say the same of a dataset as this snapshot.
    pub(crate) fn copy_state(&self, dataset: Dataset, states: &mut HashMap<Dataset, DatasetState>) {
        match self.state(dataset) {
            Some(state) => states.insert(dataset, state.clone()),
            None => states.remove(&dataset),
        };
    }

    pub fn states(&self) -> &HashMap<Dataset, DatasetState> {
        &self.states
    }

    /// Zero for a dataset that was never loaded.
    pub fn generation(&self, dataset: Dataset) -> i64 {
        self.state(dataset).map_or(0, |state| state.generation)
    }

    /// Of the change that made the served state of a dataset. Unlike a generation, no other state has the same.
    pub fn load_id(&self, dataset: Dataset) -> Option<ChangeId> {
        self.state(dataset).map(|state| state.load_id)
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

    pub fn statements(&self) -> Option<&Statements> {
        self.statements.as_deref()
    }

    /// The filings as a handle that may outlive the snapshot.
    pub fn shared_filings(&self) -> Option<Arc<Filings>> {
        self.filings.clone()
    }
}
