//! Scores: how much each kind of match counts.
//!
//! A score depends on the field in which a word occurs and on how rare it is, not on how often it occurs or how long a
//! text is.

use tantivy::{Score, Term};

use super::scope::{SearchScope, document_frequency};
use crate::error::Result;

/// How much more a word counts in a title than in a text.
pub const TITLE_BOOST: Score = 3.0;
/// Scores of words that match only as a prefix or with a typo. They are low and fixed, however rare the word is.
pub const PREFIX_MATCH_SCORE: Score = 1.0;
pub const TYPO_MATCH_SCORE: Score = 0.5;
/// Scores of name matches, higher than any sum of word scores. Each adds to the one before: a name begins with the
/// query, a former name equals it, a current name equals it, and a name equals it letter by letter.
pub const NAME_PREFIX_SCORE: Score = 800.0;
pub const FORMER_NAME_SCORE: Score = 150.0;
pub const FULL_NAME_SCORE: Score = 200.0;
pub const EXACT_NAME_SCORE: Score = 1_100.0;
/// All scores are multiples of 1 / `SCORE_STEPS_PER_UNIT`, so sums are exact and independent of order.
const SCORE_STEPS_PER_UNIT: Score = 512.0;

/// Confidence that a row is the one meant by a name, given the score of its words.
pub fn name_match_confidence(score: Score) -> f32 {
    match score {
        score if score >= EXACT_NAME_SCORE => 1.0,
        score if score >= NAME_PREFIX_SCORE + FULL_NAME_SCORE => 0.95,
        score if score >= NAME_PREFIX_SCORE + FORMER_NAME_SCORE => 0.9,
        score if score >= NAME_PREFIX_SCORE => 0.75,
        _ => 0.5,
    }
}

/// The rarer a term in all scopes together, the higher its score.
pub fn inverse_document_frequency(scopes: &[SearchScope<'_>], term: &Term) -> Result<Score> {
    let row_count = scopes.iter().map(|scope| scope.index.row_count()).sum::<usize>() as Score;
    let frequency = document_frequency(scopes, term)? as Score;
    let rarity = (1.0 + (row_count - frequency + 0.5) / (frequency + 0.5)).ln();
    Ok((rarity * SCORE_STEPS_PER_UNIT).round() / SCORE_STEPS_PER_UNIT)
}
