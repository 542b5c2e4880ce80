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

/// A set of positions in a row, as bits. Later positions than the last bit are not kept.
type PositionSet = u64;
const MAX_POSITION: u8 = 63;
/// The word occurs several times in the row.
const REPEATED: u8 = u8::MAX - 1;
/// One of the positions is too far from the start of the row.
const UNKNOWN_POSITION: u8 = u8::MAX;

/// The rows that hold a word, and where.
#[derive(Debug, Clone)]
pub struct WordRows {
    pub rows: RowSet,
    /// The position of the word in each of its rows, in their order.
    positions: Vec<u8>,
    /// The rows that hold the word several times, in ascending order.
    repeated: Vec<(u32, PositionSet)>,
}

/// Where a phrase of common words occurs.
pub struct PhraseRows {
    pub matching: RowSet,
    /// Rows that hold all words, in ascending order, where the positions are not known.
    pub undecided: Vec<u32>,
}

pub fn build_common_words(searcher: &Searcher) -> Result<HashMap<Term, WordRows>> {
    let mut common = HashMap::new();
    let Some(segment) = searcher.segment_readers().first() else { return Ok(common) };

    let min_rows = MIN_COMMON_WORD_ROWS.max(segment.max_doc() / COMMON_WORD_DIVISOR);
    let fields = build_schema().1;
    for field in [fields.title, fields.text] {
        let index = segment.inverted_index(field)?;
        for term in find_common_terms(&index, field, min_rows)? {
            let word = WordRows::read(&index, &term, segment.max_doc())?;
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

impl WordRows {
    pub fn read(index: &InvertedIndexReader, term: &Term, row_count: u32) -> Result<Self> {
        let mut word = Self { rows: RowSet::empty(row_count), positions: Vec::new(), repeated: Vec::new() };
        let option = IndexRecordOption::WithFreqsAndPositions;
        let Some(mut postings) = index.read_postings(term, option).map_err(DiskCacheError::from)? else {
            return Ok(word);
        };

        let mut positions_in_row = Vec::new();
        while postings.doc() != TERMINATED {
            postings.positions(&mut positions_in_row);
            word.push(postings.doc(), &positions_in_row);
            postings.advance();
        }
        Ok(word)
    }

    /// Adds a row after all others.
    fn push(&mut self, row: u32, positions: &[u32]) {
        self.rows.insert_all(&[row]);
        self.positions.push(match positions {
            [position] if *position <= u32::from(MAX_POSITION) => *position as u8,
            [_, _, ..] if positions.iter().all(|position| *position <= u32::from(MAX_POSITION)) => {
                self.repeated.push((row, positions.iter().fold(0, |set, position| set | 1 << position)));
                REPEATED
            }
            _ => UNKNOWN_POSITION,
        });
    }
}

/// Walks through the positions of a word, in ascending order of rows.
struct PositionCursor<'w> {
    word: &'w WordRows,
    /// How many rows before the current block hold the word: the index of its next position.
    rank: usize,
    next_repeated: usize,
}

impl<'w> PositionCursor<'w> {
    fn new(word: &'w WordRows) -> Self {
        Self { word, rank: 0, next_repeated: 0 }
    }

    /// The positions in a row of the block that holds the word; `None` if they are not known.
    fn positions(&mut self, block_index: usize, row: u32) -> Option<PositionSet> {
        let rows_before = self.word.rows.block_bits(block_index) & RowSet::lower_bits(row);
        match self.word.positions[self.rank + rows_before.count_ones() as usize] {
            UNKNOWN_POSITION => None,
            REPEATED => {
                let rest = &self.word.repeated[self.next_repeated..];
                self.next_repeated += rest.iter().take_while(|(repeated_row, _)| *repeated_row < row).count();
                Some(self.word.repeated[self.next_repeated].1)
            }
            position => Some(1 << position),
        }
    }

    fn leave_block(&mut self, block_index: usize) {
        self.rank += self.word.rows.block_bits(block_index).count_ones() as usize;
    }
}

/// Finds the rows in which the words follow each other, among the candidates if there are any.
pub fn find_phrase(words: &[&WordRows], candidates: Option<&RowSet>) -> PhraseRows {
    let mut matching = words[0].rows.clone();
    words[1..].iter().for_each(|word| matching.intersect_with(&word.rows));
    if let Some(candidates) = candidates {
        matching.intersect_with(candidates);
    }

    let mut cursors: Vec<PositionCursor<'_>> = words.iter().map(|word| PositionCursor::new(word)).collect();
    let mut undecided = Vec::new();
    for block_index in 0..matching.block_count() {
        let mut matching_bits = matching.block_bits(block_index);
        for row in rows_in_block(block_index, matching_bits) {
            // Where the phrase begins, as far as the words so far can tell.
            let mut starts = Some(PositionSet::MAX);
            for (offset, cursor) in cursors.iter_mut().enumerate() {
                let positions = cursor.positions(block_index, row);
                starts =
                    starts.zip(positions).map(|(starts, positions)| starts & positions.unbounded_shr(offset as u32));
            }
            if starts.is_none() {
                undecided.push(row);
            }
            if starts.is_none_or(|starts| starts == 0) {
                matching_bits &= !RowSet::bit(row);
            }
        }
        matching.set_block_bits(block_index, matching_bits);
        cursors.iter_mut().for_each(|cursor| cursor.leave_block(block_index));
    }
    PhraseRows { matching, undecided }
}
