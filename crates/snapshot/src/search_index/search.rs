//! Runs a query: finds the rows that hold every word and phrase, and ranks them.

use std::collections::HashSet;

use tantivy::Score;

use super::conditions::{QueryWord, RowConditions};
use super::names::NameTokens;
use super::ranking::TopRows;
use super::schema::{IndexFields, build_schema};
use super::scope::{FacetIdCounts, SearchScope};
use super::score::TYPO_MATCH_SCORE;
use super::word_variants::{expand_prefix, find_similar_words, is_word_indexed};
use crate::error::Result;
use crate::search_query::SearchQuery;

/// A longer query is not a misspelled name: it ends if a word is neither indexed nor similar to an indexed one.
const MAX_NAME_WORDS: usize = 6;

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
    let fields = build_schema().1;
    let run = |words: &[QueryWord], name_tokens: &NameTokens| {
        run_search(scopes, fields, words, &query.phrases, name_tokens, limit)
    };
    run_with_corrections(scopes, fields, query, build_name_tokens, run, |hits| hits.total > 0)
}

/// All rows that [`search`] finds, in the order of their numbers, for each scope.
pub fn find_matching_rows(
    scopes: &[SearchScope<'_>],
    query: &SearchQuery,
    build_name_tokens: impl Fn(&[String]) -> NameTokens,
) -> Result<Vec<Vec<u32>>> {
    let fields = build_schema().1;
    let run = |words: &[QueryWord], name_tokens: &NameTokens| {
        let conditions = RowConditions::new(scopes, fields, words, &query.phrases, name_tokens)?;
        let rows_in_scope = |scope: &SearchScope<'_>| -> Result<Vec<u32>> {
            let mut rows = Vec::new();
            for part in &scope.index.parts {
                if let Some(part_matches) = conditions.find_matches(part, scope)? {
                    rows.extend(part_matches.rows.iter().map(|row| part.first_row + row));
                }
            }
            Ok(rows)
        };
        scopes.iter().map(rows_in_scope).collect::<Result<Vec<_>>>()
    };
    let any_found = |rows: &Vec<Vec<u32>>| rows.iter().any(|rows| !rows.is_empty());
    let rows = run_with_corrections(scopes, fields, query, build_name_tokens, run, any_found)?;
    Ok(if rows.is_empty() { vec![Vec::new(); scopes.len()] } else { rows })
}

/// Runs a query as typed and, if nothing is found, again with similarly spelled words. An empty query finds nothing.
fn run_with_corrections<Hits: Default>(
    scopes: &[SearchScope<'_>],
    fields: IndexFields,
    query: &SearchQuery,
    build_name_tokens: impl Fn(&[String]) -> NameTokens,
    run: impl Fn(&[QueryWord], &NameTokens) -> Result<Hits>,
    is_found: impl Fn(&Hits) -> bool,
) -> Result<Hits> {
    if query.is_empty() {
        return Ok(Hits::default());
    }

    let mut words: Vec<QueryWord> = query.words.iter().map(|word| QueryWord::new(word)).collect();
    if query.is_last_word_prefix
        && let Some(last) = words.last_mut()
    {
        last.alternatives = expand_prefix(scopes, fields, &last.typed)?;
    }

    let hits = run(&words, &build_name_tokens(&query.words))?;
    if is_found(&hits) || query.words.is_empty() {
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
    run(&words, &name_tokens)
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
