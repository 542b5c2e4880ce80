//! What can go wrong when a snapshot is built or searched.

use crate::disk_cache::DiskCacheError;

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("reading data for the snapshot: {0}")]
    Store(#[from] vintem_store::StoreError),
    #[error("building the search index: {0}")]
    Index(#[from] tantivy::TantivyError),
    #[error("snapshot copy on disk: {0}")]
    DiskCache(#[from] DiskCacheError),
    #[error("building the snapshot was interrupted: {0}")]
    TaskFailed(#[from] tokio::task::JoinError),
}

pub type Result<T> = std::result::Result<T, SnapshotError>;
