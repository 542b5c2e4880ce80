//! The read model: all served data as columns in memory plus a Tantivy index. A new snapshot is built from the store
//! beside the served one and swapped in as a whole.
//!
//! No request sees a half-built generation, queries Postgres, scans a list, or pays more for a deep page. This crate
//! never speaks HTTP. While Postgres is unavailable, the last snapshot continues to be served, byte for byte.

mod cached_snapshot;
mod columns;
mod companies;
mod company_names;
mod datasets;
mod disk_cache;
mod error;
mod filings;
mod freshness;
mod fx_rates;
mod live_snapshot;
mod parities;
mod point_in_time;
mod results;
mod search_index;
mod search_query;
mod series_values;
mod snapshot;
mod snapshot_dataset;
mod statements;
#[cfg(test)]
mod test_directory;
mod tokenizer;

pub use companies::{Companies, CompanyFilter, CompanyIdentifierKind};
pub use error::{Result, SnapshotError};
pub use filings::{FilingFilter, FilingView, Filings};
pub use freshness::DatasetFreshness;
pub use fx_rates::{FxBulletin, FxRates, PairRates};
pub use live_snapshot::LiveSnapshot;
pub use point_in_time::{companies_as_of, filings_as_of, fx_as_of, series_as_of};
pub use results::{RowPage, SearchOptions, SearchResults, ValueCounts};
pub use search_query::SearchQuery;
pub use series_values::SeriesValues;
pub use snapshot::Snapshot;
pub use statements::{StatementForm, StatementVersion, Statements, VersionedDocument, statement_documents};
pub use tokenizer::{highlight_matches, tokenize};
