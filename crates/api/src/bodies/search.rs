//! Extras of search responses: facet counts and highlighted matches.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;
use vintem_snapshot::{ValueCounts, highlight_matches};

/// How often a value occurs.
#[derive(Serialize)]
pub struct FacetCountBody {
    value: String,
    count: usize,
}

/// Counts by facet.
pub type FacetsBody = BTreeMap<&'static str, Vec<FacetCountBody>>;

pub fn facets_body(names: [&'static str; 2], counts: [ValueCounts; 2]) -> FacetsBody {
    let body = |counts: ValueCounts| counts.into_iter().map(|(value, count)| FacetCountBody { value, count }).collect();
    names.into_iter().zip(counts.map(body)).collect()
}

/// A piece of text, and whether it matches a search word.
#[derive(Serialize)]
pub struct HighlightPieceBody<'s> {
    text: &'s str,
    matched: bool,
}

/// The matching texts in pieces, by field name.
pub type HighlightBody<'s> = BTreeMap<&'static str, Vec<HighlightPieceBody<'s>>>;

pub fn highlight_body<'s>(texts: &[(&'static str, &'s str)], words: &HashSet<String>) -> HighlightBody<'s> {
    let pieces = |text: &'s str| -> Vec<HighlightPieceBody<'s>> {
        highlight_matches(text, words).into_iter().map(|(text, matched)| HighlightPieceBody { text, matched }).collect()
    };
    let highlighted = texts.iter().map(|(name, text)| (*name, pieces(text)));
    highlighted.filter(|(_, pieces)| pieces.iter().any(|piece| piece.matched)).collect()
}
