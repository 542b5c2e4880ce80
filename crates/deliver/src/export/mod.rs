//! The bulk export: files of whole datasets, made once for all callers.
//!
//! Files are named by the hash of their content and never change. The manifest lists the current ones and is replaced
//! atomically once they are all written, so nobody reads half a file, or the bytes of one file under the ETag of another.
//! Superseded files stay for a while for those who are still reading them.

mod build;
mod directory;
mod sidecar;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use vintem_domain::Dataset;

pub use build::{BuildReport, build_export_files};
pub use directory::ExportDirectory;

use crate::table::OutputTable;

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("writing export files: {0}")]
    Io(#[from] std::io::Error),
    #[error("export manifest: {0}")]
    Manifest(#[from] serde_json::Error),
    #[error("writing Parquet: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    #[error("{0} returns different rows each time it is read")]
    InconsistentRows(String),
    #[error("a row cannot be read: {0}")]
    UnreadableRows(String),
}

pub type Result<T> = std::result::Result<T, ExportError>;

/// A dataset, or a part of one, to export.
pub struct ExportDataset {
    /// The base name of its files: `selic`, `filings-2025`.
    pub name: String,
    /// The dataset that its generation and its rows come from.
    pub dataset: Dataset,
    /// What the rows are: that dataset, or a series that is computed from it and others.
    pub subject: Dataset,
    /// Stays the same as long as each generation follows from the one before.
    pub lineage: String,
    /// The generation of the whole dataset.
    pub generation: i64,
    /// Identifies the state that the rows come from. Files are rebuilt when it changes.
    pub state_fingerprint: String,
    /// When the data was loaded.
    pub as_of: DateTime<Utc>,
    pub is_synthetic: bool,
    /// Lists the downloads that the rows come from, without duplicates.
    pub list_sources: Box<dyn Fn() -> Vec<SourceFetch> + Send + Sync>,
    pub build_table: Box<dyn Fn() -> OutputTable + Send + Sync>,
}

/// A download from a publisher that rows come from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourceFetch {
    pub fetched_at: DateTime<Utc>,
    pub address: String,
    /// The hash of the bytes as received.
    pub sha256: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExportFormat {
    #[serde(rename = "csv.gz")]
    Csv,
    #[serde(rename = "ndjson.gz")]
    Ndjson,
    #[serde(rename = "parquet")]
    Parquet,
    /// Describes the other files of a dataset; holds no data itself.
    #[serde(rename = "json")]
    Sidecar,
}

impl ExportFormat {
    pub const DATA_FORMATS: [Self; 3] = [Self::Csv, Self::Ndjson, Self::Parquet];

    pub const fn file_extension(self) -> &'static str {
        match self {
            Self::Csv => "csv.gz",
            Self::Ndjson => "ndjson.gz",
            Self::Parquet => "parquet",
            Self::Sidecar => "json",
        }
    }

    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Csv | Self::Ndjson => "application/gzip",
            Self::Parquet => "application/vnd.apache.parquet",
            Self::Sidecar => "application/json",
        }
    }
}

/// The current files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub datasets: Vec<ManifestEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEntry {
    pub name: String,
    pub dataset: String,
    /// The state that the files were built from: see [`ExportDataset`].
    pub lineage: String,
    pub state: String,
    pub generation: i64,
    pub generated_at: DateTime<Utc>,
    pub as_of: DateTime<Utc>,
    pub rows: u64,
    pub files: Vec<ManifestFile>,
    pub sidecar: ManifestFile,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// The name that callers request: `selic.csv.gz`.
    pub name: String,
    pub format: ExportFormat,
    pub bytes: u64,
    pub sha256: String,
}

impl ManifestFile {
    /// The name of the file in the export directory.
    fn stored_name(&self) -> String {
        format!("{}.{}", self.sha256, self.format.file_extension())
    }
}

impl Manifest {
    /// The file of this name, with its dataset.
    pub fn find_file(&self, name: &str) -> Option<(&ManifestEntry, &ManifestFile)> {
        self.datasets.iter().find_map(|entry| {
            let file = entry.files.iter().chain([&entry.sidecar]).find(|file| file.name == name)?;
            Some((entry, file))
        })
    }
}
