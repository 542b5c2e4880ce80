//! Filings: the documents that companies deliver to the regulator, CVM.

use chrono::NaiveDate;

use crate::CompanyId;

/// The CVM dataset that a filing comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CvmDataset {
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filing {
    pub id: String,
    pub cvm_dataset: CvmDataset,
    pub company_id: CompanyId,
    /// As the filing states it.
    pub company_name: String,
    pub category: String,
    /// CVM's `Tipo`, `type` on the wire.
    pub doc_type: String,
    /// CVM's `Especie`.
    pub kind: String,
    /// Empty if CVM gives none.
    pub subject: String,
    pub delivered_on: NaiveDate,
    /// May be absurd (year 3026), so we never sort or filter by it.
    pub reference_date: Option<NaiveDate>,
    pub version: u16,
    pub protocol: String,
    pub url: String,
}
