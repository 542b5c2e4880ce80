//! The rows that a search covers.

use std::collections::HashMap;
use std::sync::Arc;

use tantivy::{Score, Term};

use super::index::SearchIndex;
use crate::error::Result;

/// The rows of an index to search.
pub struct SearchScope<'s> {
    pub index: &'s SearchIndex,
    /// Rows before this one are skipped.
    pub from_row: u32,
    /// Rows to skip, sorted.
    pub hidden_rows: Arc<[u32]>,
    /// A few more rows to skip.
    pub excluded_rows: &'s [u32],
    /// What each row adds to the score of its words; empty for nothing.
    pub row_weights: &'s [Score],
    /// The facets of a row, if facets are counted.
    pub facet_lookup: Option<FacetLookup<'s>>,
}

/// Gives the two facet ids of a row.
pub type FacetLookup<'s> = Box<dyn Fn(u32) -> [u32; 2] + 's>;

/// Number of rows by id, for each of the two facets.
pub type FacetIdCounts = [HashMap<u32, usize>; 2];

/// Number of rows that hold a term, in all scopes together.
pub fn document_frequency(scopes: &[SearchScope<'_>], term: &Term) -> Result<u64> {
    let mut rows = 0;
    for part in scopes.iter().flat_map(|scope| &scope.index.parts) {
        rows += part.searcher.doc_freq(term)?;
    }
    Ok(rows)
}
