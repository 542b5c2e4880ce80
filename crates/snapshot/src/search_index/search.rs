//! Runs a query: finds the rows that hold every word and phrase, and ranks them.
//!
//! A score depends on the field in which a word occurs and on how rare it is, not on how often it occurs or how long a
//! text is. So a query only asks in which sets a row is, and sets are processed 64 rows at a time.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tantivy::query::{EnableScoring, FuzzyTermQuery, PhraseQuery, Query as _};
use tantivy::schema::Field;
use tantivy::{InvertedIndexReader, Score, SegmentReader, Term};

use super::row_set::{RowSet, rows_in_block};
use super::{IndexFields, IndexPart, SearchIndex, build_schema, for_each_row_block};
use crate::Result;
use crate::disk_cache::DiskCacheError;
use crate::search_query::{SearchQuery, edit_distance, max_typos};

/// How much more a word counts in a title than in a text.
const TITLE_BOOST: Score = 3.0;
/// Scores of words that match only as a prefix or with a typo. They are low and fixed, however rare the word is.
const PREFIX_MATCH_SCORE: Score = 1.0;
const TYPO_MATCH_SCORE: Score = 0.5;
/// Scores of name matches, higher than any sum of word scores. Each adds to the one before: a name begins with the
/// query, a former name equals it, a current name equals it, and a name equals it letter by letter.
const NAME_PREFIX_SCORE: Score = 800.0;
const FORMER_NAME_SCORE: Score = 150.0;
const FULL_NAME_SCORE: Score = 200.0;
const EXACT_NAME_SCORE: Score = 1_100.0;
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

/// How many completions of the last word are searched (the most frequent), and how many corrections of a misspelled one
/// (the most similar).
const MAX_PREFIX_EXPANSIONS: usize = 50;
const MAX_TYPO_CORRECTIONS: usize = 10;
/// A longer query is not a misspelled name: it ends if a word is neither indexed nor similar to an indexed one.
const MAX_NAME_WORDS: usize = 6;
/// Maximum number of indexed words scanned in a part.
const MAX_SCANNED_TERMS: usize = 200_000;

/// Names as tokens: one from the words that distinguish them, one from all letters without spaces.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct NameTokens {
    pub significant: Vec<String>,
    pub unspaced: Vec<String>,
}

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

/// The matches: their total number, and the best of each scope, best first and equal ones in row order.
#[derive(Debug, Default)]
pub struct SearchHits {
    pub total: usize,
    pub best: Vec<SearchHit>,
    /// For each scope.
    pub facet_counts: Vec<FacetIdCounts>,
    /// The words that matched.
    pub matched_words: HashSet<String>,
}

#[derive(Debug, Clone, Copy)]
pub struct SearchHit {
    pub score: Score,
    /// Index of the scope.
    pub scope_index: usize,
    pub row: u32,
}

/// Finds the rows that hold every word and phrase of a query: the best `limit` of every scope, and the exact total. If
/// there are none, searches again with similarly spelled words.
///
/// `build_name_tokens` turns words into the tokens of a name.
pub fn search(
    scopes: &[SearchScope<'_>],
    query: &SearchQuery,
    build_name_tokens: impl Fn(&[String]) -> NameTokens,
    limit: usize,
) -> Result<SearchHits> {
    if query.is_empty() {
        return Ok(SearchHits::default());
    }

    let fields = build_schema().1;
    let mut words: Vec<QueryWord> = query.words.iter().map(|word| QueryWord::new(word)).collect();
    if query.is_last_word_prefix
        && let Some(last) = words.last_mut()
    {
        last.alternatives = expand_prefix(scopes, fields, &last.typed)?;
    }

    let hits = run_search(scopes, fields, &words, &query.phrases, &build_name_tokens(&query.words), limit)?;
    if hits.total > 0 || query.words.is_empty() {
        return Ok(hits);
    }

    let may_be_name = query.words.len() <= MAX_NAME_WORDS && build_name_tokens(&query.words) != NameTokens::default();
    let mut corrected_words = query.words.clone();
    for (word, corrected_word) in words.iter_mut().zip(&mut corrected_words) {
        let corrections = find_similar_words(scopes, fields, &word.typed)?;
        if let Some(nearest) = corrections.first() {
            corrected_word.clone_from(nearest);
        } else if !may_be_name && word.alternatives.is_empty() && !is_word_indexed(scopes, fields, &word.typed)? {
            return Ok(hits);
        }
        word.alternatives.extend(corrections);
        word.alternative_score = TYPO_MATCH_SCORE;
    }

    let mut name_tokens = build_name_tokens(&query.words);
    let corrected_tokens = build_name_tokens(&corrected_words);
    name_tokens.significant.extend(corrected_tokens.significant);
    name_tokens.unspaced.extend(corrected_tokens.unspaced);
    run_search(scopes, fields, &words, &query.phrases, &name_tokens, limit)
}

/// A word of a query, with alternatives that match as well.
struct QueryWord {
    typed: String,
    alternatives: Vec<String>,
    /// Score of each alternative.
    alternative_score: Score,
}

impl QueryWord {
    fn new(typed: &str) -> Self {
        Self { typed: typed.to_owned(), alternatives: Vec::new(), alternative_score: PREFIX_MATCH_SCORE }
    }
}

fn run_search(
    scopes: &[SearchScope<'_>],
    fields: IndexFields,
    words: &[QueryWord],
    phrases: &[Vec<String>],
    name_tokens: &NameTokens,
    limit: usize,
) -> Result<SearchHits> {
    let plan = RowConditions::new(scopes, fields, words, phrases, name_tokens)?;
    let mut hits = SearchHits::default();

    for (scope_index, scope) in scopes.iter().enumerate() {
        let mut top_rows = TopRows::new(limit.min(scope.index.row_count()));
        let mut counts = FacetIdCounts::default();
        for part in &scope.index.parts {
            let Some(part_matches) = plan.find_matches(part, scope)? else { continue };
            hits.total += part_matches.rows.count();
            part_matches.rank_rows(part, scope, &mut top_rows);
            if let Some(facet_lookup) = &scope.facet_lookup {
                part_matches.count_facets(part, facet_lookup.as_ref(), &mut counts);
            }
        }
        hits.facet_counts.push(counts);
        hits.best.extend(top_rows.into_sorted().map(|(score, row)| SearchHit { score, scope_index, row }));
    }

    let searched_words = words.iter().flat_map(|word| std::iter::once(&word.typed).chain(&word.alternatives));
    hits.matched_words = searched_words.chain(phrases.iter().flatten()).cloned().collect();
    Ok(hits)
}

/// All conditions on a row, with their scores.
struct RowConditions {
    /// Each group needs at least one condition that holds.
    required: Vec<Vec<(Score, TermCondition)>>,
    /// These add their score if they hold.
    optional: Vec<(Score, TermCondition)>,
    /// One of these is enough, even if the required groups do not hold.
    sufficient: Vec<(Score, TermCondition)>,
}

/// A condition on one field of a row.
enum TermCondition {
    AnyTerm(Field, Vec<Term>),
    Phrase(Vec<Term>),
}

impl RowConditions {
    fn new(
        scopes: &[SearchScope<'_>],
        fields: IndexFields,
        words: &[QueryWord],
        phrases: &[Vec<String>],
        name_tokens: &NameTokens,
    ) -> Result<Self> {
        let boosts = [(fields.title, TITLE_BOOST), (fields.text, 1.0)];
        let terms = |field: Field, words: &[String]| -> Vec<Term> {
            words.iter().map(|word| Term::from_field_text(field, word)).collect()
        };

        let mut required = Vec::new();
        for word in words {
            let mut conditions = Vec::new();
            for (field, boost) in boosts {
                let typed = Term::from_field_text(field, &word.typed);
                conditions.push((
                    boost * inverse_document_frequency(scopes, &typed)?,
                    TermCondition::AnyTerm(field, vec![typed]),
                ));
                if !word.alternatives.is_empty() {
                    conditions.push((
                        boost * word.alternative_score,
                        TermCondition::AnyTerm(field, terms(field, &word.alternatives)),
                    ));
                }
            }
            required.push(conditions);
        }
        for phrase in phrases {
            let mut conditions = Vec::new();
            for (field, boost) in boosts {
                let terms = terms(field, phrase);
                let mut rarest: Score = 0.0;
                for term in &terms {
                    rarest = rarest.max(inverse_document_frequency(scopes, term)?);
                }
                let condition =
                    if terms.len() == 1 { TermCondition::AnyTerm(field, terms) } else { TermCondition::Phrase(terms) };
                conditions.push((boost * rarest, condition));
            }
            required.push(conditions);
        }

        let name_condition =
            |field: Field, names: &[String], score: Score| (score, TermCondition::AnyTerm(field, terms(field, names)));
        let mut optional = Vec::new();
        if !name_tokens.significant.is_empty() {
            optional.push(name_condition(fields.name_prefix, &name_tokens.significant, NAME_PREFIX_SCORE));
            optional.push(name_condition(fields.former_name, &name_tokens.significant, FORMER_NAME_SCORE));
            optional.push(name_condition(fields.current_name, &name_tokens.significant, FULL_NAME_SCORE));
        }
        let mut sufficient = Vec::new();
        if !name_tokens.unspaced.is_empty() {
            sufficient.push(name_condition(fields.current_name, &name_tokens.unspaced, EXACT_NAME_SCORE));
            sufficient.push(name_condition(fields.former_name, &name_tokens.unspaced, EXACT_NAME_SCORE));
        }

        Ok(Self { required, optional, sufficient })
    }

    /// The matching rows of a part with the sets that score them; `None` if no row can match.
    fn find_matches<'p>(&self, part: &'p IndexPart, scope: &SearchScope<'_>) -> Result<Option<IndexPartMatches<'p>>> {
        let Some(segment) = part.searcher.segment_readers().first() else { return Ok(None) };
        let mut scored_sets: Vec<(Score, Cow<'p, RowSet>)> = Vec::new();

        let mut matches: Option<RowSet> = None;
        for conditions in &self.required {
            let mut group_rows = RowSet::empty(segment.max_doc());
            let mut any_holds = false;
            for (score, condition) in conditions {
                if let Some(rows) = condition.matching_rows(part, segment)? {
                    group_rows.union_with(&rows);
                    scored_sets.push((*score, rows));
                    any_holds = true;
                }
            }
            match &mut matches {
                Some(matches) => matches.intersect_with(&group_rows),
                None => matches = Some(group_rows),
            }
            if !any_holds && self.sufficient.is_empty() {
                return Ok(None);
            }
        }
        let mut matches = matches.unwrap_or_else(|| RowSet::empty(segment.max_doc()));

        let word_set_count = scored_sets.len();
        for (score, condition) in &self.optional {
            scored_sets.extend(condition.matching_rows(part, segment)?.map(|rows| (*score, rows)));
        }
        if !self.sufficient.is_empty() {
            // Optional conditions count only in rows that hold all words.
            scored_sets[word_set_count..].iter_mut().for_each(|(_, rows)| rows.to_mut().intersect_with(&matches));
        }
        for (score, condition) in &self.sufficient {
            if let Some(rows) = condition.matching_rows(part, segment)? {
                matches.union_with(&rows);
                scored_sets.push((*score, rows));
            }
        }

        matches.remove_before(scope.from_row.saturating_sub(part.first_row));
        for row in scope.hidden_rows.iter().chain(scope.excluded_rows) {
            if let Some(row) = row.checked_sub(part.first_row) {
                matches.remove(row);
            }
        }

        Ok(Some(IndexPartMatches::new(matches, scored_sets)))
    }
}

impl TermCondition {
    /// `None` if no row matches.
    fn matching_rows<'p>(&self, part: &'p IndexPart, segment: &SegmentReader) -> Result<Option<Cow<'p, RowSet>>> {
        let mut rows: Option<Cow<'p, RowSet>> = None;
        let insert = |rows: &mut Option<Cow<'p, RowSet>>, found: &[u32]| {
            if !found.is_empty() {
                let rows = rows.get_or_insert_with(|| Cow::Owned(RowSet::empty(segment.max_doc())));
                rows.to_mut().insert_all(found);
            }
        };

        match self {
            Self::AnyTerm(field, terms) => {
                let index = segment.inverted_index(*field)?;
                for term in terms {
                    match part.common_word_rows.get(term) {
                        Some(common) => match &mut rows {
                            Some(rows) => rows.to_mut().union_with(common),
                            None => rows = Some(Cow::Borrowed(common)),
                        },
                        None => for_each_row_block(&index, term, |found| insert(&mut rows, found))?,
                    }
                }
            }
            Self::Phrase(terms) => {
                let phrase = PhraseQuery::new(terms.clone());
                let weight = phrase.weight(EnableScoring::disabled_from_searcher(&part.searcher))?;
                weight.for_each_no_score(segment, &mut |found| insert(&mut rows, found))?;
            }
        }

        Ok(rows)
    }
}

/// The rarer a term in all scopes together, the higher its score.
fn inverse_document_frequency(scopes: &[SearchScope<'_>], term: &Term) -> Result<Score> {
    let row_count = scopes.iter().map(|scope| scope.index.row_count()).sum::<usize>() as Score;
    let frequency = document_frequency(scopes, term)? as Score;
    let rarity = (1.0 + (row_count - frequency + 0.5) / (frequency + 0.5)).ln();
    Ok((rarity * SCORE_STEPS_PER_UNIT).round() / SCORE_STEPS_PER_UNIT)
}

fn is_word_indexed(scopes: &[SearchScope<'_>], fields: IndexFields, word: &str) -> Result<bool> {
    let frequency = |field| document_frequency(scopes, &Term::from_field_text(field, word));
    Ok(frequency(fields.title)? > 0 || frequency(fields.text)? > 0)
}

/// Number of rows that hold a term, in all scopes together.
fn document_frequency(scopes: &[SearchScope<'_>], term: &Term) -> Result<u64> {
    let mut rows = 0;
    for part in scopes.iter().flat_map(|scope| &scope.index.parts) {
        rows += part.searcher.doc_freq(term)?;
    }
    Ok(rows)
}

/// The matches in a part.
struct IndexPartMatches<'p> {
    rows: RowSet,
    /// Sets of rows, each with the score for being in it, the highest first.
    scored_sets: Vec<(Score, Cow<'p, RowSet>)>,
    /// At each index, the highest score that the sets from there on can add. The last entry, after all sets, is zero.
    max_remaining_scores: Vec<Score>,
}

impl<'p> IndexPartMatches<'p> {
    fn new(rows: RowSet, mut scored_sets: Vec<(Score, Cow<'p, RowSet>)>) -> Self {
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

    fn rank_rows(&self, part: &IndexPart, scope: &SearchScope<'_>, top_rows: &mut TopRows) {
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

    fn count_facets(&self, part: &IndexPart, facet_lookup: &dyn Fn(u32) -> [u32; 2], counts: &mut FacetIdCounts) {
        let blocks = self.rows.non_empty_blocks();
        for row in blocks.flat_map(|(block_index, bits)| rows_in_block(block_index, bits)) {
            for (counts, id) in counts.iter_mut().zip(facet_lookup(part.first_row + row)) {
                *counts.entry(id).or_default() += 1;
            }
        }
    }
}

/// The best `limit` rows, in memory proportional to the limit.
struct TopRows {
    limit: usize,
    keys: Vec<u64>,
    /// Rows whose key is not above this one are not among the best.
    min_key: u64,
}

impl TopRows {
    fn new(limit: usize) -> Self {
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
    fn into_sorted(mut self) -> impl Iterator<Item = (Score, u32)> {
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

/// The most frequent longer words that begin with a prefix.
fn expand_prefix(scopes: &[SearchScope<'_>], fields: IndexFields, prefix: &str) -> Result<Vec<String>> {
    let mut frequencies: HashMap<String, u64> = HashMap::new();
    for index in word_inverted_indexes(scopes, fields)? {
        let mut words = index.terms().range().ge(prefix).into_stream().map_err(DiskCacheError::from)?;
        for _ in 0..MAX_SCANNED_TERMS {
            if !words.advance() || !words.key().starts_with(prefix.as_bytes()) {
                break;
            }
            let Ok(word) = std::str::from_utf8(words.key()) else { continue };
            let rows = u64::from(words.value().doc_freq);
            match frequencies.get_mut(word) {
                Some(frequency) => *frequency += rows,
                None if word == prefix => (),
                None => _ = frequencies.insert(word.to_owned(), rows),
            }
        }
    }

    let mut words: Vec<(String, u64)> = frequencies.into_iter().collect();
    words.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    words.truncate(MAX_PREFIX_EXPANSIONS);
    Ok(words.into_iter().map(|(word, _)| word).collect())
}

/// The words nearest to a misspelled one; of equally near ones the most frequent first.
fn find_similar_words(scopes: &[SearchScope<'_>], fields: IndexFields, typed: &str) -> Result<Vec<String>> {
    let max_distance = max_typos(typed);
    if max_distance == 0 {
        return Ok(Vec::new());
    }

    let automaton = FuzzyTermQuery::new(Term::from_field_text(fields.title, typed), max_distance, true).automaton()?;
    let mut candidates: HashMap<String, (usize, u64)> = HashMap::new();
    for index in word_inverted_indexes(scopes, fields)? {
        let mut words = index.terms().search(&automaton).into_stream().map_err(DiskCacheError::from)?;
        for _ in 0..MAX_SCANNED_TERMS {
            if !words.advance() {
                break;
            }
            let Ok(word) = std::str::from_utf8(words.key()) else { continue };
            let distance = edit_distance(typed, word, max_distance.into()).filter(|distance| *distance > 0);
            let Some(distance) = distance else { continue };
            candidates.entry(word.to_owned()).or_insert((distance, 0)).1 += u64::from(words.value().doc_freq);
        }
    }

    let mut words: Vec<(String, (usize, u64))> = candidates.into_iter().collect();
    words.sort_unstable_by(|(one, (one_distance, one_rows)), (other, (other_distance, other_rows))| {
        one_distance.cmp(other_distance).then(other_rows.cmp(one_rows)).then_with(|| one.cmp(other))
    });
    words.truncate(MAX_TYPO_CORRECTIONS);
    Ok(words.into_iter().map(|(word, _)| word).collect())
}

/// The inverted indexes of titles and texts in all parts.
fn word_inverted_indexes(scopes: &[SearchScope<'_>], fields: IndexFields) -> Result<Vec<Arc<InvertedIndexReader>>> {
    let parts = scopes.iter().flat_map(|scope| &scope.index.parts);
    let segments = parts.flat_map(|part| part.searcher.segment_readers());
    let indexes = segments.flat_map(|segment| [fields.title, fields.text].map(|field| segment.inverted_index(field)));
    Ok(indexes.collect::<tantivy::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search_index::{IndexEntry, build_index};
    use crate::tokenizer::tokenize;

    const SMALL_INDEX_ROWS: [(&str, &str); 2] = [("Cerâmica Serra S.A.", "cerâmica"), ("Banco Vale", "serra e bancos")];

    fn build_small_index() -> SearchIndex {
        build_index(502, 1, |row, writer| {
            let (title, text) =
                SMALL_INDEX_ROWS.get(row as usize).copied().unwrap_or(("Aviso", "comunicado ao mercado"));
            writer.add(IndexEntry {
                title: tokenize(title).join(" "),
                text: tokenize(text).join(" "),
                ..IndexEntry::default()
            })
        })
        .unwrap()
    }

    fn full_scope(index: &SearchIndex) -> SearchScope<'_> {
        SearchScope {
            index,
            from_row: 0,
            hidden_rows: Arc::default(),
            excluded_rows: &[],
            row_weights: &[],
            facet_lookup: None,
        }
    }

    fn run_query(scopes: &[SearchScope<'_>], query: &str, limit: usize) -> SearchHits {
        search(scopes, &SearchQuery::parse(query), |_| NameTokens::default(), limit).unwrap()
    }

    fn hit_rows(hits: &SearchHits) -> Vec<u32> {
        hits.best.iter().map(|hit| hit.row).collect()
    }

    #[test]
    fn title_matches_rank_above_text_matches() {
        let index = build_small_index();
        let found = |query| run_query(&[full_scope(&index)], query, 10);
        assert_eq!((found("SERRA").total, hit_rows(&found("SERRA"))), (2, vec![0, 1]));
        assert_eq!(hit_rows(&found("ceramica s/a")), [0]);
        assert_eq!(found("serra ausente").total, 0);
    }

    #[test]
    fn the_last_word_matches_as_a_prefix_and_phrases_match_in_order() {
        let index = build_small_index();
        let found = |query| hit_rows(&run_query(&[full_scope(&index)], query, 3));
        assert_eq!(found("cera"), [0]);
        assert_eq!(found("cera "), [0u32; 0]);
        assert_eq!(found("\"serra e bancos\""), [1]);
        assert_eq!(found("\"bancos e serra\""), [0u32; 0]);
        assert_eq!(found("\"comunicado ao\" mercado"), [2, 3, 4]);
    }

    #[test]
    fn typos_are_corrected_when_nothing_matches_exactly() {
        let index = build_small_index();
        let found = |query| hit_rows(&run_query(&[full_scope(&index)], query, 3));
        assert_eq!(found("ceramcia"), [0]);
        assert_eq!(found("serar ceramica"), [0]);
        // Too short to be corrected.
        assert_eq!(found("vlae"), [0u32; 0]);
    }

    #[test]
    fn limited_results_are_the_start_of_the_full_ranking() {
        let index = build_small_index();
        for limit in [0, 1, 70, 499, 500, 600] {
            let found = run_query(&[full_scope(&index)], "comunicado", limit);
            assert_eq!(found.total, 500);
            assert_eq!(hit_rows(&found), (2..502).take(limit).collect::<Vec<u32>>());
        }
    }

    #[test]
    fn hidden_and_excluded_rows_are_neither_found_nor_counted() {
        let index = build_small_index();
        let scope =
            SearchScope { from_row: 10, hidden_rows: [5, 11, 13].into(), excluded_rows: &[20], ..full_scope(&index) };
        let found = run_query(&[scope], "comunicado", 4);
        assert_eq!((found.total, hit_rows(&found)), (489, vec![10, 12, 14, 15]));
    }

    const LARGE_INDEX_ROWS: u32 = 20_000;
    /// Each word with the interval of the titles, and of the texts, that hold it.
    const WORD_INTERVALS: [(&str, u32, u32); 4] =
        [("aviso", 11, 1), ("aos", 9, 2), ("avisar", 7, LARGE_INDEX_ROWS), ("avisados", 5_000, LARGE_INDEX_ROWS)];

    fn build_large_index() -> SearchIndex {
        let words_where = |predicate: &dyn Fn(&(&'static str, u32, u32)) -> bool| {
            WORD_INTERVALS.iter().filter(|entry| predicate(entry)).map(|(word, ..)| *word).collect::<Vec<_>>().join(" ")
        };
        build_index(LARGE_INDEX_ROWS as usize, 1, |row, writer| {
            let title = words_where(&|(_, interval, _)| row.is_multiple_of(*interval));
            let text = words_where(&|(_, _, interval)| row.is_multiple_of(*interval));
            writer.add(IndexEntry { title, text, ..IndexEntry::default() })
        })
        .unwrap()
    }

    #[test]
    fn queries_with_common_words_find_exactly_the_matching_rows() {
        let index = build_large_index();
        assert_eq!(index.parts[0].common_word_rows.len(), 4);
        let rows_where =
            |predicate: fn(u32) -> bool| (0..LARGE_INDEX_ROWS).filter(|row| predicate(*row)).collect::<Vec<u32>>();
        let found = |query| {
            let mut rows = hit_rows(&run_query(&[full_scope(&index)], query, LARGE_INDEX_ROWS as usize));
            rows.sort_unstable();
            rows
        };

        assert_eq!(found("aviso "), rows_where(|_| true));
        assert_eq!(found("aviso aos "), rows_where(|row| row % 2 == 0 || row % 9 == 0));
        assert_eq!(found("aos avisar "), rows_where(|row| row % 7 == 0 && (row % 2 == 0 || row % 9 == 0)));
        assert_eq!(found("avisados aos aviso "), rows_where(|row| row % 5_000 == 0));
        assert_eq!(found("\"aos avisar\" aviso "), rows_where(|row| row % 63 == 0));
        // Two words begin like this, a common one and a rare one.
        assert_eq!(found("avisa"), rows_where(|row| row % 7 == 0 || row % 5_000 == 0));
    }

    #[test]
    fn limited_results_of_a_large_index_are_the_start_of_the_full_ranking() {
        let index = build_large_index();
        for query in ["aviso", "avi", "aviso aos", "aos avi", "aviso aos avisar"] {
            let best = |limit| hit_rows(&run_query(&[full_scope(&index)], query, limit));
            // No row is skipped if all are requested.
            let all = best(LARGE_INDEX_ROWS as usize);
            for limit in [1, 10, 100, 1_000] {
                assert_eq!(best(limit), all[..limit], "{query}");
            }
        }
    }

    #[test]
    fn word_rarity_is_computed_over_all_scopes() {
        let one = build_small_index();
        let other = build_small_index();
        let found = run_query(&[full_scope(&one), full_scope(&other)], "serra", 10);
        let scores: Vec<(u32, u32)> = found.best.iter().map(|hit| (hit.row, hit.score.to_bits())).collect();
        assert_eq!((found.total, scores.len()), (4, 4));
        assert_eq!(scores[0], scores[2]);
    }
}
