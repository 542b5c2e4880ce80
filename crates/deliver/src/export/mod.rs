//! The bulk export: files of whole datasets, made once for all callers.
//!
//! Files are named by what they hold and never change. Which of them are the current ones says the manifest, which is
//! replaced as a whole after they are all there: nobody ever reads half of a file, or the bytes of one with the tag of
//! another. What is no longer current stays for a while for those who are still reading.

mod build;
mod directory;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use vintem_domain::Dataset;

pub use build::{BuildReport, build_export_files};
pub use directory::ExportDirectory;

use crate::table::OutputTable;

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("writing the files of the export: {0}")]
    Io(#[from] std::io::Error),
    #[error("the manifest of the export: {0}")]
    Manifest(#[from] serde_json::Error),
    #[error("writing Parquet: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    #[error("{0} has other rows each time that it is read")]
    InconsistentRows(String),
}

pub type Result<T> = std::result::Result<T, ExportError>;

/// A dataset, or a part of one, of which files are made.
pub struct ExportDataset {
    /// What its files are called: `selic`, `filings-2025`.
    pub name: String,
    pub dataset: Dataset,
    /// The same as long as each generation follows from the one before.
    pub lineage: String,
    /// That of the dataset.
    pub generation: i64,
    /// What its rows follow from: files are made anew when it changes.
    pub state_fingerprint: String,
    /// When what it holds was loaded.
    pub as_of: DateTime<Utc>,
    pub is_synthetic: bool,
    /// Where its rows come from, each once.
    pub list_sources: Box<dyn Fn() -> Vec<SourceFetch> + Send + Sync>,
    pub build_table: Box<dyn Fn() -> OutputTable + Send + Sync>,
}

/// What a publisher sent that rows come from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourceFetch {
    pub fetched_at: DateTime<Utc>,
    pub address: String,
    /// Of the bytes as they came.
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
    /// What the files of a dataset are: not data.
    #[serde(rename = "json")]
    Sidecar,
}

impl ExportFormat {
    pub const DATA_FORMATS: [Self; 3] = [Self::Csv, Self::Ndjson, Self::Parquet];

    /// How the names of its files end.
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

/// What is current.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub datasets: Vec<ManifestEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEntry {
    pub name: String,
    pub dataset: String,
    /// What the files were made of: see [`Exported`].
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
    /// As it is asked for: `selic.csv.gz`.
    pub name: String,
    pub format: ExportFormat,
    pub bytes: u64,
    pub sha256: String,
}

impl ManifestFile {
    /// Its name in the directory.
    fn stored_name(&self) -> String {
        format!("{}.{}", self.sha256, self.format.file_extension())
    }
}

impl Manifest {
    /// The dataset and the file of this name.
    pub fn find_file(&self, name: &str) -> Option<(&ManifestEntry, &ManifestFile)> {
        self.datasets.iter().find_map(|entry| {
            let file = entry.files.iter().chain([&entry.sidecar]).find(|file| file.name == name)?;
            Some((entry, file))
        })
    }
}
