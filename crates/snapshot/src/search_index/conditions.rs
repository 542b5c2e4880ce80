//! Turns a query into conditions on rows, and finds the rows of a part that meet them.

use std::borrow::Cow;

use tantivy::query::{EnableScoring, PhraseQuery, Query as _, Scorer};
use tantivy::schema::Field;
use tantivy::{Score, SegmentReader, Term};

use super::common_words::{PhraseRows, WordRows, find_phrase};
use super::index::{IndexPart, for_each_row_block};
use super::names::NameTokens;
use super::ranking::IndexPartMatches;
use super::row_set::RowSet;
use super::schema::IndexFields;
use super::scope::SearchScope;
use super::score::{
    EXACT_NAME_SCORE, FORMER_NAME_SCORE, FULL_NAME_SCORE, NAME_PREFIX_SCORE, PREFIX_MATCH_SCORE, TITLE_BOOST,
    inverse_document_frequency,
};
use crate::error::Result;

/// All conditions on a row, with their scores.
pub struct RowConditions {
    /// Each group needs at least one condition that holds.
    required: Vec<Vec<(Score, TermCondition)>>,
    /// These add their score if they hold.
    optional: Vec<(Score, TermCondition)>,
    /// One of these is enough, even if the required groups do not hold.
    sufficient: Vec<(Score, TermCondition)>,
}

/// A word of a query, with alternatives that match as well.
pub struct QueryWord {
    pub typed: String,
    pub alternatives: Vec<String>,
    /// Score of each alternative.
    pub alternative_score: Score,
}

impl QueryWord {
    pub fn new(typed: &str) -> Self {
        Self { typed: typed.to_owned(), alternatives: Vec::new(), alternative_score: PREFIX_MATCH_SCORE }
    }
}

/// A condition on one field of a row.
enum TermCondition {
    AnyTerm(Field, Vec<Term>),
    Phrase(Vec<Term>),
}

impl RowConditions {
    pub fn new(
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
    pub fn find_matches<'p>(
        &self,
        part: &'p IndexPart,
        scope: &SearchScope<'_>,
    ) -> Result<Option<IndexPartMatches<'p>>> {
        let Some(segment) = part.searcher.segment_readers().first() else { return Ok(None) };
        let mut scored_sets: Vec<(Score, Cow<'p, RowSet>)> = Vec::new();

        let mut matches: Option<RowSet> = None;
        for conditions in &self.required {
            // Words come before phrases, which then need to be looked for only in rows that hold the words. Rows that
            // need not hold them are scored by all sets.
            let candidates = matches.as_ref().filter(|_| self.sufficient.is_empty());
            let mut group_rows = RowSet::empty(segment.max_doc());
            let mut any_holds = false;
            for (score, condition) in conditions {
                if let Some(rows) = condition.matching_rows(part, segment, candidates)? {
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
            scored_sets.extend(condition.matching_rows(part, segment, None)?.map(|rows| (*score, rows)));
        }
        if !self.sufficient.is_empty() {
            // Optional conditions count only in rows that hold all words.
            scored_sets[word_set_count..].iter_mut().for_each(|(_, rows)| rows.to_mut().intersect_with(&matches));
        }
        for (score, condition) in &self.sufficient {
            if let Some(rows) = condition.matching_rows(part, segment, None)? {
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
    /// `None` if no row matches. A phrase is looked for only in the candidates, if there are any.
    fn matching_rows<'p>(
        &self,
        part: &'p IndexPart,
        segment: &SegmentReader,
        candidates: Option<&RowSet>,
    ) -> Result<Option<Cow<'p, RowSet>>> {
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
                    match part.common_words.get(term) {
                        Some(common) => match &mut rows {
                            Some(rows) => rows.to_mut().union_with(&common.rows),
                            None => rows = Some(Cow::Borrowed(&common.rows)),
                        },
                        None => for_each_row_block(&index, term, |found| insert(&mut rows, found))?,
                    }
                }
            }
            Self::Phrase(terms) => {
                let found = find_phrase_rows(part, segment, terms, candidates)?;
                rows = (!found.is_empty()).then_some(Cow::Owned(found));
            }
        }

        Ok(rows)
    }
}

/// The rows in which the terms follow each other.
fn find_phrase_rows(
    part: &IndexPart,
    segment: &SegmentReader,
    terms: &[Term],
    candidates: Option<&RowSet>,
) -> Result<RowSet> {
    let phrase = PhraseQuery::new(terms.to_vec());
    let weight = phrase.weight(EnableScoring::disabled_from_searcher(&part.searcher))?;
    let is_common = |term: &Term| part.common_words.contains_key(term);
    if let Some(candidates) = candidates.filter(|_| !terms.iter().all(is_common)) {
        let mut rows = RowSet::empty(segment.max_doc());
        let mut scorer = weight.scorer(segment, 1.0)?;
        rows.insert_all(&rows_of_scorer(scorer.as_mut(), candidates.iter()));
        return Ok(rows);
    }

    let mut words: Vec<Cow<'_, WordRows>> = Vec::new();
    for term in terms {
        words.push(match part.common_words.get(term) {
            Some(word) => Cow::Borrowed(word),
            // Its list is short.
            None => {
                let index = segment.inverted_index(term.field())?;
                Cow::Owned(WordRows::read(&index, term, segment.max_doc())?)
            }
        });
    }
    let words: Vec<&WordRows> = words.iter().map(AsRef::as_ref).collect();
    let PhraseRows { matching: mut rows, undecided } = find_phrase(&words, candidates);
    if !undecided.is_empty() {
        let mut scorer = weight.scorer(segment, 1.0)?;
        rows.insert_all(&rows_of_scorer(scorer.as_mut(), undecided.into_iter()));
    }
    Ok(rows)
}

/// Those of some rows, in ascending order, that match.
fn rows_of_scorer(scorer: &mut dyn Scorer, rows: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut matching = Vec::new();
    for row in rows {
        // A scorer only moves forward.
        let next = if scorer.doc() < row { scorer.seek(row) } else { scorer.doc() };
        if next == row {
            matching.push(row);
        }
    }
    matching
}
