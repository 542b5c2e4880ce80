//! Indexed words to search for besides a typed one: its completions, and its corrections if it is misspelled.

use std::collections::HashMap;
use std::sync::Arc;

use tantivy::query::FuzzyTermQuery;
use tantivy::{InvertedIndexReader, Term};

use super::schema::IndexFields;
use super::scope::{SearchScope, document_frequency};
use crate::disk_cache::DiskCacheError;
use crate::error::Result;
use crate::search_query::{edit_distance, max_typos};

/// How many completions of the last word are searched (the most frequent), and how many corrections of a misspelled one
/// (the most similar).
const MAX_PREFIX_EXPANSIONS: usize = 50;
const MAX_TYPO_CORRECTIONS: usize = 10;
/// Maximum number of indexed words scanned in a part.
const MAX_SCANNED_TERMS: usize = 200_000;

/// The most frequent longer words that begin with a prefix.
pub fn expand_prefix(scopes: &[SearchScope<'_>], fields: IndexFields, prefix: &str) -> Result<Vec<String>> {
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
pub fn find_similar_words(scopes: &[SearchScope<'_>], fields: IndexFields, typed: &str) -> Result<Vec<String>> {
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

pub fn is_word_indexed(scopes: &[SearchScope<'_>], fields: IndexFields, word: &str) -> Result<bool> {
    let frequency = |field| document_frequency(scopes, &Term::from_field_text(field, word));
    Ok(frequency(fields.title)? > 0 || frequency(fields.text)? > 0)
}

/// The inverted indexes of titles and texts in all parts.
fn word_inverted_indexes(scopes: &[SearchScope<'_>], fields: IndexFields) -> Result<Vec<Arc<InvertedIndexReader>>> {
    let parts = scopes.iter().flat_map(|scope| &scope.index.parts);
    let segments = parts.flat_map(|part| part.searcher.segment_readers());
    let indexes = segments.flat_map(|segment| [fields.title, fields.text].map(|field| segment.inverted_index(field)));
    Ok(indexes.collect::<tantivy::Result<_>>()?)
}
