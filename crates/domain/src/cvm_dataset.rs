//! The datasets of the regulator, CVM, that filings come from.

/// The dataset that a filing comes from. Most are in IPE, the index of all kinds of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum CvmDataset {
    #[default]
    Ipe,
    Dfp,
    Itr,
    Fre,
    Fca,
}

impl CvmDataset {
    pub const ALL: [Self; 5] = [Self::Ipe, Self::Dfp, Self::Itr, Self::Fre, Self::Fca];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Ipe => "ipe",
            Self::Dfp => "dfp",
            Self::Itr => "itr",
            Self::Fre => "fre",
            Self::Fca => "fca",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dataset| dataset.id() == id)
    }

    /// The publisher and its dataset.
    pub const fn source_name(self) -> &'static str {
        match self {
            Self::Ipe => "CVM IPE",
            Self::Dfp => "CVM DFP",
            Self::Itr => "CVM ITR",
            Self::Fre => "CVM FRE",
            Self::Fca => "CVM FCA",
        }
    }
}
