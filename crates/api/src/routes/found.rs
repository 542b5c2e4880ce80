//! What searches give beside the rows: counts by what they are, and which parts of their texts matched.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;
use vintem_snapshot::{Counts, matches};

/// How often a value occurs.
#[derive(Serialize)]
pub struct CountBody {
    value: String,
    count: usize,
}

/// The counts, by what is counted.
pub type FacetsBody = BTreeMap<&'static str, Vec<CountBody>>;

pub fn facets(names: [&'static str; 2], counts: [Counts; 2]) -> FacetsBody {
    let body = |counts: Counts| counts.into_iter().map(|(value, count)| CountBody { value, count }).collect();
    names.into_iter().zip(counts.map(body)).collect()
}

/// A piece of a text, and whether it is one of the words that were sought.
#[derive(Serialize)]
pub struct PieceBody<'s> {
    text: &'s str,
    matched: bool,
}

/// The texts that hold what was sought, in pieces; by the names of their fields.
pub type HighlightBody<'s> = BTreeMap<&'static str, Vec<PieceBody<'s>>>;

pub fn highlight<'s>(texts: &[(&'static str, &'s str)], words: &HashSet<String>) -> HighlightBody<'s> {
    let pieces = |text: &'s str| -> Vec<PieceBody<'s>> {
        matches(text, words).into_iter().map(|(text, matched)| PieceBody { text, matched }).collect()
    };
    let texts = texts.iter().map(|(name, text)| (*name, pieces(text)));
    texts.filter(|(_, pieces)| pieces.iter().any(|piece| piece.matched)).collect()
}
