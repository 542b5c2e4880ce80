//! Ingestion: fetches data from the upstreams, parses and validates it, and appends it to the store.
//!
//! A [`source`] is made of parts, such as a year of filings. [`plan`] says when each part is due, [`scheduler`] runs them
//! on time, and [`ingestor`] runs one: [`fetch`] sends the requests, [`parsers`] turn responses into rows, [`validation`]
//! accepts or rejects them, and [`upstreams`] combine these steps for each upstream. [`demo`] generates made-up rows.
//! The crate serves nothing and writes only through the store's loads.
//!
//! A part that fails is repeated on its own, later and later. An upstream that does not answer is left alone for a while
//! ([`host_breaker`]); the others go on. If PostgreSQL is unavailable, a run ends with [`IngestError::Store`]. Either way
//! the dataset being loaded stays unchanged, and finished loads stay.
#![deny(clippy::float_arithmetic)]

pub mod cross_checks;
pub mod demo;
mod drift;
pub mod fetch;
pub mod host_breaker;
pub mod ingestor;
pub mod parsers;
pub mod plan;
pub mod probe;
pub mod recording;
pub mod scheduler;
pub mod source;
pub mod survey;
pub mod upstreams;
pub mod validation;

use vintem_store::StoreError;

use crate::fetch::FetchError;

#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("The database already contains demo data. Remove it first with: vintem demo --remove")]
    DemoAlreadyLoaded,
    #[error("Demo data cannot be generated: {0}")]
    InvalidDemoSize(&'static str),
    #[error("Unknown source \"{0}\". List the sources with: vintem ingest --help")]
    UnknownSource(String),
    #[error("{name} was not loaded: {reason}")]
    FileNotLoaded { name: String, reason: String },
    #[error("the HTTP client could not be created: {0}")]
    HttpClient(String),
}
