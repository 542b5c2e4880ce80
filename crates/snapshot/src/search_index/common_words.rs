//! Common words: they are searched most often, and their lists of rows take longest to read. Their rows are kept as bits,
//! with the position of the word in each row, so that phrases of common words need no lists either.

use std::collections::HashMap;

use tantivy::postings::Postings;
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocSet, InvertedIndexReader, Searcher, TERMINATED, Term};

use super::row_set::{RowSet, rows_in_block};
use super::schema::build_schema;
use crate::disk_cache::DiskCacheError;
use crate::error::Result;

/// A word is common if at least this many rows hold it, and at least one row in every `COMMON_WORD_DIVISOR`. At that
/// frequency a bit for each row takes no more memory than a list of row numbers.
const MIN_COMMON_WORD_ROWS: u32 = 1 << 11;
const COMMON_WORD_DIVISOR: u32 = u32::BITS;

/// The word occurs several times in the row, or too far from its start.
const UNKNOWN_POSITION: u8 = u8::MAX;

#[derive(Debug)]
pub struct CommonWord {
    pub rows: RowSet,
    /// The position of the word in each of its rows, in their order.
    positions: Vec<u8>,
}

/// Where a phrase of common words occurs.
pub struct PhraseRows {
    pub matching: RowSet,
    /// Rows that hold all words, in ascending order, where the positions are not known.
    pub undecided: Vec<u32>,
}

pub fn build_common_words(searcher: &Searcher) -> Result<HashMap<Term, CommonWord>> {
    let mut common = HashMap::new();
    let Some(segment) = searcher.segment_readers().first() else { return Ok(common) };

    let min_rows = MIN_COMMON_WORD_ROWS.max(segment.max_doc() / COMMON_WORD_DIVISOR);
    let fields = build_schema().1;
    for field in [fields.title, fields.text] {
        let index = segment.inverted_index(field)?;
        for term in find_common_terms(&index, field, min_rows)? {
            let word = CommonWord::read(&index, &term, segment.max_doc())?;
            common.insert(term, word);
        }
    }
    Ok(common)
}

fn find_common_terms(index: &InvertedIndexReader, field: Field, min_rows: u32) -> Result<Vec<Term>> {
    let mut terms = Vec::new();
    let mut words = index.terms().stream().map_err(DiskCacheError::from)?;
    while words.advance() {
        if words.value().doc_freq >= min_rows {
            let mut term = Term::from_field_text(field, "");
            term.append_bytes(words.key());
            terms.push(term);
        }
    }
    Ok(terms)
}

impl CommonWord {
    fn read(index: &InvertedIndexReader, term: &Term, row_count: u32) -> Result<Self> {
        let mut rows = RowSet::empty(row_count);
        let mut positions = Vec::new();
        let option = IndexRecordOption::WithFreqsAndPositions;
        let Some(mut postings) = index.read_postings(term, option).map_err(DiskCacheError::from)? else {
            return Ok(Self { rows, positions });
        };

        let mut positions_in_row = Vec::new();
        while postings.doc() != TERMINATED {
            rows.insert_all(&[postings.doc()]);
            postings.positions(&mut positions_in_row);
            positions.push(match positions_in_row[..] {
                [position] => u8::try_from(position).unwrap_or(UNKNOWN_POSITION),
                _ => UNKNOWN_POSITION,
            });
            postings.advance();
        }
        Ok(Self { rows, positions })
    }
}

/// Finds the rows in which the words follow each other, among the candidates if there are any.
pub fn find_phrase(words: &[&CommonWord], candidates: Option<&RowSet>) -> PhraseRows {
    let mut matching = words[0].rows.clone();
    words[1..].iter().for_each(|word| matching.intersect_with(&word.rows));
    if let Some(candidates) = candidates {
        matching.intersect_with(candidates);
    }

    // How many rows before the block hold each word: the index of its next position.
    let mut ranks = vec![0; words.len()];
    let mut undecided = Vec::new();
    for block_index in 0..matching.block_count() {
        let mut matching_bits = matching.block_bits(block_index);
        for row in rows_in_block(block_index, matching_bits) {
            let lower_bits = RowSet::lower_bits(row);
            let position = |word_index: usize| {
                let word = words[word_index];
                let rank = ranks[word_index] + (word.rows.block_bits(block_index) & lower_bits).count_ones() as usize;
                word.positions[rank]
            };
            match is_phrase(words.len(), position) {
                Some(true) => {}
                Some(false) => matching_bits &= !RowSet::bit(row),
                None => {
                    matching_bits &= !RowSet::bit(row);
                    undecided.push(row);
                }
            }
        }
        matching.set_block_bits(block_index, matching_bits);
        for (rank, word) in ranks.iter_mut().zip(words) {
            *rank += word.rows.block_bits(block_index).count_ones() as usize;
        }
    }
    PhraseRows { matching, undecided }
}

/// Whether the positions of the words follow each other; `None` if one of them is not known.
fn is_phrase(word_count: usize, position: impl Fn(usize) -> u8) -> Option<bool> {
    let first = position(0);
    let mut is_phrase = true;
    let mut is_known = first != UNKNOWN_POSITION;
    for word_index in 1..word_count {
        let next = position(word_index);
        is_known &= next != UNKNOWN_POSITION;
        is_phrase &= usize::from(next) == usize::from(first) + word_index;
    }
    is_known.then_some(is_phrase)
}
