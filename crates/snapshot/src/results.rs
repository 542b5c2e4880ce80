//! The results of lists and searches: pages of rows, and counts by facet.

use std::collections::{HashMap, HashSet};

/// A page of a list or a search: the total number of matches, and the rows of the requested page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowPage {
    pub total: usize,
    pub rows: Vec<u32>,
}

/// Options of a search besides its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchOptions {
    pub offset: usize,
    pub limit: usize,
    /// Whether to count all matches by their facets.
    pub count_facets: bool,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchResults {
    pub page: RowPage,
    /// Companies by status and by sector; filings by category and by year. Empty unless `count_facets` was set.
    pub facet_counts: [ValueCounts; 2],
    /// The words that matched.
    pub matched_words: HashSet<String>,
}

/// How often each value occurs, the most frequent first.
pub type ValueCounts = Vec<(String, usize)>;

pub(crate) fn sort_counts_descending(counts: HashMap<String, usize>) -> ValueCounts {
    let mut counts: ValueCounts = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    counts.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    counts
}
