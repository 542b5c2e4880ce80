//! Where data comes from: foreign formats, read and handed to the store's append path.
//!
//! [`run`] asks the upstreams ([`fetch`]), [`read`] turns what they publish into rows, [`gate`] says what is believed,
//! [`upstreams`] put these together for each of them; [`demo`] makes rows up. The crate never serves anything, and it
//! never writes by another way than a load of the store. When an upstream is away its parts fail and are asked for again
//! by the next run; when Postgres is away a run ends with [`IngestError::Store`]. Either way the dataset under way is
//! left as it was, and those already loaded stay.
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
