//! Ingestion: fetches data from the upstreams, parses and validates it, and appends it to the store.
//!
//! [`ingestor`] runs the sources: [`fetch`] sends the requests, [`parsers`] turn responses into rows, [`validation`]
//! accepts or rejects them, and [`upstreams`] combine these steps for each upstream. [`demo`] generates made-up rows.
//! The crate serves nothing and writes only through the store's loads.
//!
//! If an upstream is unavailable, its parts fail and the next run retries them. If PostgreSQL is unavailable, the run
//! ends with [`IngestError::Store`]. Either way the dataset being loaded stays unchanged, and finished loads stay.
#![deny(clippy::float_arithmetic)]

pub mod cross_checks;
pub mod demo;
pub mod fetch;
pub mod ingestor;
pub mod parsers;
pub mod scheduler;
pub mod source;
pub mod upstreams;
pub mod validation;

use vintem_store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    #[error("loading into the store: {0}")]
    Store(#[from] StoreError),
    #[error("the database already holds demo data: take it away with `vintem demo --remove`, then load again")]
    DemoAlreadyLoaded,
    #[error("demo data of this size cannot be made: {0}")]
    InvalidDemoSize(&'static str),
    #[error("there is no source called {0}: `vintem ingest --help` lists them")]
    UnknownSource(String),
    #[error("{name} was not loaded: {reason}")]
    FileNotLoaded { name: String, reason: String },
    #[error("no client could be made: {0}")]
    HttpClient(String),
}
