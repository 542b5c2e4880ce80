//! Ranks the matches of a query. Rows are in sets that each add a score, and sets are processed 64 rows at a time.

use std::borrow::Cow;

use tantivy::Score;

use super::index::IndexPart;
use super::row_set::{RowSet, rows_in_block};
use super::scope::{FacetIdCounts, SearchScope};

/// The matches in a part.
pub struct IndexPartMatches<'p> {
    pub rows: RowSet,
    /// Sets of rows, each with the score for being in it, the highest first.
    scored_sets: Vec<(Score, Cow<'p, RowSet>)>,
    /// At each index, the highest score that the sets from there on can add. The last entry, after all sets, is zero.
    max_remaining_scores: Vec<Score>,
}

impl<'p> IndexPartMatches<'p> {
    pub fn new(rows: RowSet, mut scored_sets: Vec<(Score, Cow<'p, RowSet>)>) -> Self {
        scored_sets.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let mut max_remaining_scores: Vec<Score> = std::iter::once(0.0)
            .chain(scored_sets.iter().rev().scan(0.0, |sum, (score, _)| {
                *sum += score;
                Some(*sum)
            }))
            .collect();
        max_remaining_scores.reverse();
        Self { rows, scored_sets, max_remaining_scores }
    }

    pub fn rank_rows(&self, part: &IndexPart, scope: &SearchScope<'_>, top_rows: &mut TopRows) {
        if top_rows.limit == 0 {
            return;
        }

        let may_be_best =
            |top_rows: &TopRows, score: Score, row: u32| !scope.row_weights.is_empty() || top_rows.admits(score, row);

        // Groups of rows of a block that are in the same sets so far: their bits, their score so far, and the next set.
        let mut groups: Vec<(u64, Score, usize)> = Vec::new();
        for (block_index, block_bits) in self.rows.non_empty_blocks() {
            let first_row = part.first_row + block_index as u32 * u64::BITS;
            groups.push((block_bits, 0.0, 0));
            'groups: while let Some((mut bits, mut score, next_set)) = groups.pop() {
                for (set_index, max_remaining) in (next_set..).zip(&self.max_remaining_scores[next_set..]) {
                    // Skip rows that cannot score higher than the best so far.
                    if !may_be_best(top_rows, score + max_remaining, first_row + bits.trailing_zeros()) {
                        continue 'groups;
                    }
                    let Some((set_score, set)) = self.scored_sets.get(set_index) else { break };
                    let inside = bits & set.block_bits(block_index);
                    let outside = bits & !set.block_bits(block_index);
                    if inside != 0 {
                        if outside != 0 {
                            groups.push((outside, score, set_index + 1));
                        }
                        bits = inside;
                        score += set_score;
                    }
                }

                for row in rows_in_block(block_index, bits).map(|row| part.first_row + row) {
                    let row_weight = scope.row_weights.get(row as usize).copied().unwrap_or_default();
                    top_rows.push_if_better(score + row_weight, row);
                }
            }
        }
    }

    pub fn count_facets(&self, part: &IndexPart, facet_lookup: &dyn Fn(u32) -> [u32; 2], counts: &mut FacetIdCounts) {
        let blocks = self.rows.non_empty_blocks();
        for row in blocks.flat_map(|(block_index, bits)| rows_in_block(block_index, bits)) {
            for (counts, id) in counts.iter_mut().zip(facet_lookup(part.first_row + row)) {
                *counts.entry(id).or_default() += 1;
            }
        }
    }
}

/// The best `limit` rows, in memory proportional to the limit.
pub struct TopRows {
    limit: usize,
    keys: Vec<u64>,
    /// Rows whose key is not above this one are not among the best.
    min_key: u64,
}

impl TopRows {
    pub fn new(limit: usize) -> Self {
        Self { limit, keys: Vec::new(), min_key: 0 }
    }

    fn admits(&self, score: Score, row: u32) -> bool {
        rank_key(score, row) > self.min_key
    }

    fn push_if_better(&mut self, score: Score, row: u32) {
        if self.admits(score, row) {
            self.keys.push(rank_key(score, row));
            // Truncating only at twice the limit keeps the cost per row constant, however deep the page.
            if self.keys.len() >= self.limit.max(64) * 2 {
                self.truncate_to_limit();
            }
        }
    }

    fn truncate_to_limit(&mut self) {
        if self.keys.len() > self.limit && self.limit > 0 {
            self.keys.select_nth_unstable_by(self.limit - 1, |one, other| other.cmp(one));
            self.min_key = self.keys[self.limit - 1];
        }
        self.keys.truncate(self.limit);
    }

    /// Best first.
    pub fn into_sorted(mut self) -> impl Iterator<Item = (Score, u32)> {
        self.truncate_to_limit();
        self.keys.sort_unstable_by(|one, other| other.cmp(one));
        self.keys.into_iter().map(|key| (Score::from_bits((key >> 32) as u32), u32::MAX - key as u32))
    }
}

/// A row as one number: the larger the better, no two equal. Scores are never negative, so their bits sort like the
/// scores.
fn rank_key(score: Score, row: u32) -> u64 {
    u64::from(score.to_bits()) << 32 | u64::from(u32::MAX - row)
}
