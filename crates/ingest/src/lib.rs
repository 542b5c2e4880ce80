//! Where data comes from: foreign formats, read and handed to the store's append path.
//!
//! For now there is one source, the synthetic one of [`demo`]. It never serves anything, and it never writes by
//! another way than a load of the store. When Postgres is away a load fails with [`IngestError::Store`]; the dataset
//! under way is left as it was, those already loaded stay.
#![deny(clippy::float_arithmetic)]

pub mod demo;

use vintem_store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    #[error("loading into the store: {0}")]
    Store(#[from] StoreError),
    #[error("the database already holds demo data: take it away with `vintem demo --remove`, then load again")]
    DemoAlreadyLoaded,
    #[error("demo data of this size cannot be made: {0}")]
    DemoSize(&'static str),
}
