//! What searches give beside the rows: counts by what they are, and which parts of their texts matched.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;
use vintem_snapshot::{ValueCounts, highlight_matches};

/// How often a value occurs.
#[derive(Serialize)]
pub struct FacetCountBody {
    value: String,
    count: usize,
}

/// The counts, by what is counted.
pub type FacetsBody = BTreeMap<&'static str, Vec<FacetCountBody>>;

pub fn facets_body(names: [&'static str; 2], counts: [ValueCounts; 2]) -> FacetsBody {
    let body = |counts: ValueCounts| counts.into_iter().map(|(value, count)| FacetCountBody { value, count }).collect();
    names.into_iter().zip(counts.map(body)).collect()
}

/// A piece of a text, and whether it is one of the words that were sought.
#[derive(Serialize)]
pub struct HighlightPieceBody<'s> {
    text: &'s str,
    matched: bool,
}

/// The texts that hold what was sought, in pieces; by the names of their fields.
pub type HighlightBody<'s> = BTreeMap<&'static str, Vec<HighlightPieceBody<'s>>>;

pub fn highlight_body<'s>(texts: &[(&'static str, &'s str)], words: &HashSet<String>) -> HighlightBody<'s> {
    let pieces = |text: &'s str| -> Vec<HighlightPieceBody<'s>> {
        highlight_matches(text, words).into_iter().map(|(text, matched)| HighlightPieceBody { text, matched }).collect()
    };
    let texts = texts.iter().map(|(name, text)| (*name, pieces(text)));
    texts.filter(|(_, pieces)| pieces.iter().any(|piece| piece.matched)).collect()
}
