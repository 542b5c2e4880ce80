//! The two sets of financial statements that the regulator publishes.

use crate::CvmDataset;

/// Annual (DFP) or quarterly (ITR) statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StatementSet {
    Dfp,
    Itr,
}

impl StatementSet {
    pub const ALL: [Self; 2] = [Self::Dfp, Self::Itr];

    pub const fn id(self) -> &'static str {
        self.cvm_dataset().id()
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.id() == id)
    }

    pub fn from_cvm_dataset(dataset: CvmDataset) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.cvm_dataset() == dataset)
    }

    /// The dataset whose archives hold the statements beside the index of their filings.
    pub const fn cvm_dataset(self) -> CvmDataset {
        match self {
            Self::Dfp => CvmDataset::Dfp,
            Self::Itr => CvmDataset::Itr,
        }
    }
}
