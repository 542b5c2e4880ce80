//! Full-text search over rows 0, 1, 2, …. Tantivy stores which rows hold a word, and where; `search` does the matching
//! and ranking. Document numbers are row numbers, so the index stores nothing else.

mod build;
mod common_words;
mod conditions;
mod index;
mod names;
mod ranking;
mod row_set;
mod schema;
mod scope;
mod score;
mod search;
#[cfg(test)]
mod tests;
mod word_variants;

pub use build::{IndexEntry, build_index};
pub use index::SearchIndex;
pub use names::{IndexedNames, NameTokens};
pub use scope::{FacetIdCounts, FacetLookup, SearchScope};
pub use score::name_match_confidence;
pub use search::{find_matching_rows, search};
