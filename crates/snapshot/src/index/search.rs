//! What a query finds: the rows that hold every word and phrase of it, and which of them come first.
//!
//! Where a word stands is what counts, and how rare it is; not how often it is said, nor how long a text is. So all that
//! a query asks of a row is whether it is in a few sets, and sets of rows are worked through 64 at a time.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tantivy::query::{EnableScoring, FuzzyTermQuery, PhraseQuery, Query as _};
use tantivy::schema::Field;
use tantivy::{InvertedIndexReader, Score, SegmentReader, Term};

use super::bits::{Bits, rows_of};
use super::{Fields, Part, SearchIndex, each_row, schema};
use crate::Result;
use crate::copy::CopyError;
use crate::query::{Query, distance, forgiven};

/// How much more a word counts in what a row is called than in what else is said of it.
const TITLE_BOOST: Score = 3.0;
/// A word that only begins as the last one of a query does, and one that is spelled a little otherwise, count little and
/// all the same, however rare they are.
const BEGUN_SCORE: Score = 1.0;
const MISSPELLED_SCORE: Score = 0.5;
/// More than any words can come to. Each comes on top of the one before: to be called something that begins so, to have
/// been called just so, to be called just so, and that to the letter.
const BEGINNING_SCORE: Score = 800.0;
const FORMER_NAME_SCORE: Score = 150.0;
const WHOLE_NAME_SCORE: Score = 200.0;
const SAME_LETTERS_SCORE: Score = 1_100.0;
/// All of these are whole parts of one by this, as what words count is: so their sums are exact, and the same in any
/// order.
const PARTS: Score = 512.0;

/// How sure it is that a row is meant by a name, by what its words came to.
pub fn certainty(score: Score) -> f32 {
    match score {
        score if score >= SAME_LETTERS_SCORE => 1.0,
        score if score >= BEGINNING_SCORE + WHOLE_NAME_SCORE => 0.95,
        score if score >= BEGINNING_SCORE + FORMER_NAME_SCORE => 0.9,
        score if score >= BEGINNING_SCORE => 0.75,
        _ => 0.5,
    }
}

/// Of the words that begin as the last one does, and of those like a misspelled one, so many are looked for: the most
/// frequent, and the most alike.
const MOST_BEGUN: usize = 50;
const MOST_MISSPELLED: usize = 10;
/// Of more words than these, one that nothing holds and nothing is like ends the search: they are no misspelled name.
const MOST_NAMING: usize = 6;
/// So many words of a part are looked at on the way.
const MOST_LOOKED_AT: usize = 200_000;

/// Names as pieces: of the words that tell them apart, and of all letters without a space.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Called {
    pub telling: Vec<String>,
    pub unspaced: Vec<String>,
}

/// What of an index is searched.
pub struct Scope<'s> {
    pub index: &'s SearchIndex,
    /// Rows before this one are passed over.
    pub from_row: u32,
    /// Rows that are passed over, sorted.
    pub hidden: Arc<[u32]>,
    /// A few more of them.
    pub without: &'s [u32],
    /// What each row counts beside its words; nothing where there is none.
    pub weights: &'s [Score],
    /// What a row is counted by, where it is.
    pub facets: Option<FacetsOf<'s>>,
}

/// The two numbers that a row is counted by.
pub type FacetsOf<'s> = Box<dyn Fn(u32) -> [u32; 2] + 's>;

/// How many rows have each number, for either of the two.
pub type NumberCounts = [HashMap<u32, usize>; 2];

/// What was found: how many in all, and of each scope the best, best first, equal ones in the order of the rows.
#[derive(Debug, Default)]
pub struct Hits {
    pub total: usize,
    pub best: Vec<Hit>,
    /// By scope.
    pub counts: Vec<NumberCounts>,
    /// The words by which rows were found.
    pub words: HashSet<String>,
}

#[derive(Debug, Clone, Copy)]
pub struct Hit {
    pub score: Score,
    /// The place of the scope.
    pub scope: usize,
    pub row: u32,
}

/// The rows that hold every word and phrase of a query: the best `top` of every scope, and the exact number of all. Where
/// there are none, words that are spelled a little otherwise do as well.
///
/// `called` is what such words are as a name.
pub fn search(scopes: &[Scope<'_>], query: &Query, called: impl Fn(&[String]) -> Called, top: usize) -> Result<Hits> {
    if query.is_empty() {
        return Ok(Hits::default());
    }
    let fields = schema().1;
    let mut words: Vec<Word> = query.words.iter().map(|word| Word::new(word)).collect();
    if query.is_open
        && let Some(last) = words.last_mut()
    {
        last.others = begun(scopes, fields, &last.typed)?;
    }
    let hits = search_for(scopes, fields, &words, &query.phrases, &called(&query.words), top)?;
    if hits.total > 0 || query.words.is_empty() {
        return Ok(hits);
    }
    let may_be_name = query.words.len() <= MOST_NAMING && called(&query.words) != Called::default();
    let mut meant = query.words.clone();
    for (word, meant) in words.iter_mut().zip(&mut meant) {
        let alike = misspelled(scopes, fields, &word.typed)?;
        if let Some(nearest) = alike.first() {
            meant.clone_from(nearest);
        } else if !may_be_name && word.others.is_empty() && !is_held(scopes, fields, &word.typed)? {
            return Ok(hits);
        }
        word.others.extend(alike);
        word.score = MISSPELLED_SCORE;
    }
    let (mut either_called, meant_called) = (called(&query.words), called(&meant));
    either_called.telling.extend(meant_called.telling);
    either_called.unspaced.extend(meant_called.unspaced);
    search_for(scopes, fields, &words, &query.phrases, &either_called, top)
}

/// A word of a query, with others that do as well.
struct Word {
    typed: String,
    others: Vec<String>,
    /// What each of the others counts.
    score: Score,
}

impl Word {
    fn new(typed: &str) -> Self {
        Self { typed: typed.to_owned(), others: Vec::new(), score: BEGUN_SCORE }
    }
}

fn search_for(
    scopes: &[Scope<'_>],
    fields: Fields,
    words: &[Word],
    phrases: &[Vec<String>],
    called: &Called,
    top: usize,
) -> Result<Hits> {
    let asked = Asked::new(scopes, fields, words, phrases, called)?;
    let mut hits = Hits::default();
    for (place, scope) in scopes.iter().enumerate() {
        let mut best = Best::new(top.min(scope.index.rows()));
        let mut counts = NumberCounts::default();
        for part in &scope.index.parts {
            let Some(found) = asked.find(part, scope)? else { continue };
            hits.total += found.rows.count();
            found.rank(part, scope, &mut best);
            if let Some(facets) = &scope.facets {
                found.count_by(part, facets.as_ref(), &mut counts);
            }
        }
        hits.counts.push(counts);
        hits.best.extend(best.finish().map(|(score, row)| Hit { score, scope: place, row }));
    }
    let of_words = words.iter().flat_map(|word| std::iter::once(&word.typed).chain(&word.others));
    hits.words = of_words.chain(phrases.iter().flatten()).cloned().collect();
    Ok(hits)
}

/// Everything that is asked of a row, with what each counts.
struct Asked {
    /// Of each one at least one must hold.
    required: Vec<Vec<(Score, Holds)>>,
    /// These count where they hold.
    welcome: Vec<(Score, Holds)>,
    /// One of these is enough, whatever is required.
    enough: Vec<(Score, Holds)>,
}

/// What a row may hold in a field.
enum Holds {
    OneOf(Field, Vec<Term>),
    InOrder(Vec<Term>),
}

impl Asked {
    fn new(
        scopes: &[Scope<'_>],
        fields: Fields,
        words: &[Word],
        phrases: &[Vec<String>],
        called: &Called,
    ) -> Result<Self> {
        let boosts = [(fields.title, TITLE_BOOST), (fields.text, 1.0)];
        let terms = |field: Field, words: &[String]| -> Vec<Term> {
            words.iter().map(|word| Term::from_field_text(field, word)).collect()
        };
        let mut required = Vec::new();
        for word in words {
            let mut places = Vec::new();
            for (field, boost) in boosts {
                let typed = Term::from_field_text(field, &word.typed);
                places.push((boost * rarity(scopes, &typed)?, Holds::OneOf(field, vec![typed])));
                if !word.others.is_empty() {
                    places.push((boost * word.score, Holds::OneOf(field, terms(field, &word.others))));
                }
            }
            required.push(places);
        }
        for phrase in phrases {
            let mut places = Vec::new();
            for (field, boost) in boosts {
                let terms = terms(field, phrase);
                let mut rarest: Score = 0.0;
                for term in &terms {
                    rarest = rarest.max(rarity(scopes, term)?);
                }
                let holds = if terms.len() == 1 { Holds::OneOf(field, terms) } else { Holds::InOrder(terms) };
                places.push((boost * rarest, holds));
            }
            required.push(places);
        }
        let named = |field: Field, names: &[String], score: Score| (score, Holds::OneOf(field, terms(field, names)));
        let mut welcome = Vec::new();
        if !called.telling.is_empty() {
            welcome.push(named(fields.beginning, &called.telling, BEGINNING_SCORE));
            welcome.push(named(fields.former, &called.telling, FORMER_NAME_SCORE));
            welcome.push(named(fields.whole, &called.telling, WHOLE_NAME_SCORE));
        }
        let mut enough = Vec::new();
        if !called.unspaced.is_empty() {
            enough.push(named(fields.whole, &called.unspaced, SAME_LETTERS_SCORE));
            enough.push(named(fields.former, &called.unspaced, SAME_LETTERS_SCORE));
        }
        Ok(Self { required, welcome, enough })
    }

    /// The rows of a part that hold what is asked, and where they do; nothing where no row does.
    fn find<'p>(&self, part: &'p Part, scope: &Scope<'_>) -> Result<Option<Found<'p>>> {
        let Some(segment) = part.searcher.segment_readers().first() else { return Ok(None) };
        let mut places: Vec<(Score, Cow<'p, Bits>)> = Vec::new();
        let mut all: Option<Bits> = None;
        for required in &self.required {
            let mut either = Bits::none(segment.max_doc());
            let mut is_held = false;
            for (score, holds) in required {
                if let Some(rows) = holds.rows(part, segment)? {
                    either.add(&rows);
                    places.push((*score, rows));
                    is_held = true;
                }
            }
            match &mut all {
                Some(all) => all.keep(&either),
                None => all = Some(either),
            }
            if !is_held && self.enough.is_empty() {
                return Ok(None);
            }
        }
        let mut all = all.unwrap_or_else(|| Bits::none(segment.max_doc()));
        let of_words = places.len();
        for (score, holds) in &self.welcome {
            places.extend(holds.rows(part, segment)?.map(|rows| (*score, rows)));
        }
        if !self.enough.is_empty() {
            // What counts beside the words counts only where all of them are.
            places[of_words..].iter_mut().for_each(|(_, rows)| rows.to_mut().keep(&all));
        }
        for (score, holds) in &self.enough {
            if let Some(rows) = holds.rows(part, segment)? {
                all.add(&rows);
                places.push((*score, rows));
            }
        }
        all.remove_before(scope.from_row.saturating_sub(part.first_row));
        for row in scope.hidden.iter().chain(scope.without) {
            if let Some(row) = row.checked_sub(part.first_row) {
                all.remove(row);
            }
        }
        Ok(Some(Found::new(all, places)))
    }
}

impl Holds {
    /// Nothing where no row does.
    fn rows<'p>(&self, part: &'p Part, segment: &SegmentReader) -> Result<Option<Cow<'p, Bits>>> {
        let mut rows: Option<Cow<'p, Bits>> = None;
        let insert = |rows: &mut Option<Cow<'p, Bits>>, found: &[u32]| {
            if !found.is_empty() {
                let rows = rows.get_or_insert_with(|| Cow::Owned(Bits::none(segment.max_doc())));
                rows.to_mut().insert_all(found);
            }
        };
        match self {
            Self::OneOf(field, terms) => {
                let index = segment.inverted_index(*field)?;
                for term in terms {
                    match part.common.get(term) {
                        Some(common) => match &mut rows {
                            Some(rows) => rows.to_mut().add(common),
                            None => rows = Some(Cow::Borrowed(common)),
                        },
                        None => each_row(&index, term, |found| insert(&mut rows, found))?,
                    }
                }
            }
            Self::InOrder(terms) => {
                let phrase = PhraseQuery::new(terms.clone());
                let weight = phrase.weight(EnableScoring::disabled_from_searcher(&part.searcher))?;
                weight.for_each_no_score(segment, &mut |found| insert(&mut rows, found))?;
            }
        }
        Ok(rows)
    }
}

/// The more, the fewer rows hold it, in all scopes together.
fn rarity(scopes: &[Scope<'_>], term: &Term) -> Result<Score> {
    let rows = scopes.iter().map(|scope| scope.index.rows()).sum::<usize>() as Score;
    let held = holding(scopes, term)? as Score;
    let rarity = (1.0 + (rows - held + 0.5) / (held + 0.5)).ln();
    Ok((rarity * PARTS).round() / PARTS)
}

fn is_held(scopes: &[Scope<'_>], fields: Fields, word: &str) -> Result<bool> {
    let rows = |field| holding(scopes, &Term::from_field_text(field, word));
    Ok(rows(fields.title)? > 0 || rows(fields.text)? > 0)
}

/// How many rows hold it, in all scopes together.
fn holding(scopes: &[Scope<'_>], term: &Term) -> Result<u64> {
    let mut rows = 0;
    for part in scopes.iter().flat_map(|scope| &scope.index.parts) {
        rows += part.searcher.doc_freq(term)?;
    }
    Ok(rows)
}

/// What was found in a part.
struct Found<'p> {
    rows: Bits,
    /// What a row counts for being in each of these sets, most first.
    places: Vec<(Score, Cow<'p, Bits>)>,
    /// What it counts at most for being in those from each on; last, where none is left, nothing.
    most_from: Vec<Score>,
}

impl<'p> Found<'p> {
    fn new(rows: Bits, mut places: Vec<(Score, Cow<'p, Bits>)>) -> Self {
        places.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let mut most_from: Vec<Score> = std::iter::once(0.0)
            .chain(places.iter().rev().scan(0.0, |most, (score, _)| {
                *most += score;
                Some(*most)
            }))
            .collect();
        most_from.reverse();
        Self { rows, places, most_from }
    }

    fn rank(&self, part: &Part, scope: &Scope<'_>, best: &mut Best) {
        if best.top == 0 {
            return;
        }
        let may_be_best = |best: &Best, score: Score, row: u32| !scope.weights.is_empty() || best.admits(score, row);
        // Rows of a block that are in the same sets so far, what they come to by these, and which set is next.
        let mut alike: Vec<(u64, Score, usize)> = Vec::new();
        for (at, rows) in self.rows.blocks() {
            let first_row = part.first_row + at as u32 * u64::BITS;
            alike.push((rows, 0.0, 0));
            'alike: while let Some((mut rows, mut score, next)) = alike.pop() {
                for (place, most) in (next..).zip(&self.most_from[next..]) {
                    // What can come to no more than the best have is not looked at any further.
                    if !may_be_best(best, score + most, first_row + rows.trailing_zeros()) {
                        continue 'alike;
                    }
                    let Some((more, held)) = self.places.get(place) else { break };
                    let (within, without) = (rows & held.block(at), rows & !held.block(at));
                    if within != 0 {
                        if without != 0 {
                            alike.push((without, score, place + 1));
                        }
                        (rows, score) = (within, score + more);
                    }
                }
                for row in rows_of(at, rows).map(|row| part.first_row + row) {
                    best.offer(score + scope.weights.get(row as usize).copied().unwrap_or_default(), row);
                }
            }
        }
    }

    fn count_by(&self, part: &Part, facets: &dyn Fn(u32) -> [u32; 2], counts: &mut NumberCounts) {
        for row in self.rows.blocks().flat_map(|(at, rows)| rows_of(at, rows)) {
            for (counts, number) in counts.iter_mut().zip(facets(part.first_row + row)) {
                *counts.entry(number).or_default() += 1;
            }
        }
    }
}

/// The best so many rows, in memory that grows with their number alone.
struct Best {
    top: usize,
    held: Vec<u64>,
    /// What is not above this is not among them.
    least: u64,
}

impl Best {
    fn new(top: usize) -> Self {
        Self { top, held: Vec::new(), least: 0 }
    }

    fn admits(&self, score: Score, row: u32) -> bool {
        key(score, row) > self.least
    }

    fn offer(&mut self, score: Score, row: u32) {
        if self.admits(score, row) {
            self.held.push(key(score, row));
            // Cutting at twice the size keeps the cost of a row constant, however deep the page.
            if self.held.len() >= self.top.max(64) * 2 {
                self.cut();
            }
        }
    }

    fn cut(&mut self) {
        if self.held.len() > self.top && self.top > 0 {
            self.held.select_nth_unstable_by(self.top - 1, |one, other| other.cmp(one));
            self.least = self.held[self.top - 1];
        }
        self.held.truncate(self.top);
    }

    /// Best first.
    fn finish(mut self) -> impl Iterator<Item = (Score, u32)> {
        self.cut();
        self.held.sort_unstable_by(|one, other| other.cmp(one));
        self.held.into_iter().map(|key| (Score::from_bits((key >> 32) as u32), u32::MAX - key as u32))
    }
}

/// A row as one number: the larger the better, no two alike. Scores are never negative, so their bits are in order.
fn key(score: Score, row: u32) -> u64 {
    u64::from(score.to_bits()) << 32 | u64::from(u32::MAX - row)
}

/// The most frequent words that begin so and go on.
fn begun(scopes: &[Scope<'_>], fields: Fields, beginning: &str) -> Result<Vec<String>> {
    let mut frequencies: HashMap<String, u64> = HashMap::new();
    for index in word_indexes(scopes, fields)? {
        let mut words = index.terms().range().ge(beginning).into_stream().map_err(CopyError::from)?;
        for _ in 0..MOST_LOOKED_AT {
            if !words.advance() || !words.key().starts_with(beginning.as_bytes()) {
                break;
            }
            let Ok(word) = std::str::from_utf8(words.key()) else { continue };
            let rows = u64::from(words.value().doc_freq);
            match frequencies.get_mut(word) {
                Some(frequency) => *frequency += rows,
                None if word == beginning => (),
                None => _ = frequencies.insert(word.to_owned(), rows),
            }
        }
    }
    let mut words: Vec<(String, u64)> = frequencies.into_iter().collect();
    words.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    words.truncate(MOST_BEGUN);
    Ok(words.into_iter().map(|(word, _)| word).collect())
}

/// The words that are nearest to a misspelled one, of equally near ones the most frequent first.
fn misspelled(scopes: &[Scope<'_>], fields: Fields, typed: &str) -> Result<Vec<String>> {
    let most = forgiven(typed);
    if most == 0 {
        return Ok(Vec::new());
    }
    let letters: Vec<char> = typed.chars().collect();
    let alike = FuzzyTermQuery::new(Term::from_field_text(fields.title, typed), most, true).automaton()?;
    let mut found: HashMap<String, (usize, u64)> = HashMap::new();
    for index in word_indexes(scopes, fields)? {
        let mut words = index.terms().search(&alike).into_stream().map_err(CopyError::from)?;
        for _ in 0..MOST_LOOKED_AT {
            if !words.advance() {
                break;
            }
            let Ok(word) = std::str::from_utf8(words.key()) else { continue };
            let other: Vec<char> = word.chars().collect();
            let Some(distance) = distance(&letters, &other, most.into()).filter(|distance| *distance > 0) else {
                continue;
            };
            found.entry(word.to_owned()).or_insert((distance, 0)).1 += u64::from(words.value().doc_freq);
        }
    }
    let mut words: Vec<(String, (usize, u64))> = found.into_iter().collect();
    words.sort_unstable_by(|(one, (near, often)), (other, (far, seldom))| {
        near.cmp(far).then(seldom.cmp(often)).then_with(|| one.cmp(other))
    });
    words.truncate(MOST_MISSPELLED);
    Ok(words.into_iter().map(|(word, _)| word).collect())
}

/// Where the words of titles and texts are, part by part.
fn word_indexes(scopes: &[Scope<'_>], fields: Fields) -> Result<Vec<Arc<InvertedIndexReader>>> {
    let parts = scopes.iter().flat_map(|scope| &scope.index.parts);
    let segments = parts.flat_map(|part| part.searcher.segment_readers());
    let indexes = segments.flat_map(|segment| [fields.title, fields.text].map(|field| segment.inverted_index(field)));
    Ok(indexes.collect::<tantivy::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::words;
    use crate::index::{Entry, build_parts};

    const ROWS: [(&str, &str); 2] = [("Cerâmica Serra S.A.", "cerâmica"), ("Banco Vale", "serra e bancos")];

    fn index() -> SearchIndex {
        build_parts(502, 1, |row, writer| {
            let (title, text) = ROWS.get(row as usize).copied().unwrap_or(("Aviso", "comunicado ao mercado"));
            writer.add(Entry { title: words(title).join(" "), text: words(text).join(" "), ..Entry::default() })
        })
        .unwrap()
    }

    fn whole(index: &SearchIndex) -> Scope<'_> {
        Scope { index, from_row: 0, hidden: Arc::default(), without: &[], weights: &[], facets: None }
    }

    fn find(scopes: &[Scope<'_>], query: &str, top: usize) -> Hits {
        search(scopes, &Query::parse(query), |_| Called::default(), top).unwrap()
    }

    fn rows(hits: &Hits) -> Vec<u32> {
        hits.best.iter().map(|hit| hit.row).collect()
    }

    #[test]
    fn a_title_counts_more_than_a_text() {
        let index = index();
        let found = |query| find(&[whole(&index)], query, 10);
        assert_eq!((found("SERRA").total, rows(&found("SERRA"))), (2, vec![0, 1]));
        assert_eq!(rows(&found("ceramica s/a")), [0]);
        assert_eq!(found("serra ausente").total, 0);
    }

    #[test]
    fn the_last_word_may_be_a_beginning_and_a_phrase_is_in_order() {
        let index = index();
        let found = |query| rows(&find(&[whole(&index)], query, 3));
        assert_eq!(found("cera"), [0]);
        assert_eq!(found("cera "), [0u32; 0]);
        assert_eq!(found("\"serra e bancos\""), [1]);
        assert_eq!(found("\"bancos e serra\""), [0u32; 0]);
        assert_eq!(found("\"comunicado ao\" mercado"), [2, 3, 4]);
    }

    #[test]
    fn a_misspelled_word_is_found_where_nothing_else_is() {
        let index = index();
        let found = |query| rows(&find(&[whole(&index)], query, 3));
        assert_eq!(found("ceramcia"), [0]);
        assert_eq!(found("serar ceramica"), [0]);
        // Too short to be forgiven.
        assert_eq!(found("vlae"), [0u32; 0]);
    }

    #[test]
    fn the_best_are_the_first_of_all_at_any_depth() {
        let index = index();
        for top in [0, 1, 70, 499, 500, 600] {
            let found = find(&[whole(&index)], "comunicado", top);
            assert_eq!(found.total, 500);
            assert_eq!(rows(&found), (2..502).take(top).collect::<Vec<u32>>());
        }
    }

    #[test]
    fn rows_that_are_passed_over_do_not_count() {
        let index = index();
        let scope = Scope { from_row: 10, hidden: [5, 11, 13].into(), without: &[20], ..whole(&index) };
        let found = find(&[scope], "comunicado", 4);
        assert_eq!((found.total, rows(&found)), (489, vec![10, 12, 14, 15]));
    }

    const MANY: u32 = 20_000;
    /// Each word is in every so many titles, and in every so many texts.
    const SAYINGS: [(&str, u32, u32); 4] =
        [("aviso", 11, 1), ("aos", 9, 2), ("avisar", 7, MANY), ("avisados", 5_000, MANY)];

    fn index_of_many() -> SearchIndex {
        let said = |holds: &dyn Fn(&(&'static str, u32, u32)) -> bool| {
            SAYINGS.iter().filter(|saying| holds(saying)).map(|(word, ..)| *word).collect::<Vec<_>>().join(" ")
        };
        build_parts(MANY as usize, 1, |row, writer| {
            let title = said(&|(_, every, _)| row.is_multiple_of(*every));
            let text = said(&|(_, _, every)| row.is_multiple_of(*every));
            writer.add(Entry { title, text, ..Entry::default() })
        })
        .unwrap()
    }

    #[test]
    fn common_words_are_found_as_rare_ones_are() {
        let index = index_of_many();
        assert_eq!(index.parts[0].common.len(), 4);
        let rows_where = |holds: fn(u32) -> bool| (0..MANY).filter(|row| holds(*row)).collect::<Vec<u32>>();
        let found = |query| {
            let mut rows = rows(&find(&[whole(&index)], query, MANY as usize));
            rows.sort_unstable();
            rows
        };
        assert_eq!(found("aviso "), rows_where(|_| true));
        assert_eq!(found("aviso aos "), rows_where(|row| row % 2 == 0 || row % 9 == 0));
        assert_eq!(found("aos avisar "), rows_where(|row| row % 7 == 0 && (row % 2 == 0 || row % 9 == 0)));
        assert_eq!(found("avisados aos aviso "), rows_where(|row| row % 5_000 == 0));
        assert_eq!(found("\"aos avisar\" aviso "), rows_where(|row| row % 63 == 0));
        // Two words begin so, the one common and the other rare.
        assert_eq!(found("avisa"), rows_where(|row| row % 7 == 0 || row % 5_000 == 0));
    }

    #[test]
    fn the_best_of_very_many_are_the_first_of_all() {
        let index = index_of_many();
        for query in ["aviso", "avi", "aviso aos", "aos avi", "aviso aos avisar"] {
            let best = |top| rows(&find(&[whole(&index)], query, top));
            // Nothing is passed over where all of them are asked for.
            let all = best(MANY as usize);
            for top in [1, 10, 100, 1_000] {
                assert_eq!(best(top), all[..top], "{query}");
            }
        }
    }

    #[test]
    fn a_word_is_as_rare_as_in_all_scopes_together() {
        let (one, other) = (index(), index());
        let found = find(&[whole(&one), whole(&other)], "serra", 10);
        let scores: Vec<(u32, u32)> = found.best.iter().map(|hit| (hit.row, hit.score.to_bits())).collect();
        assert_eq!((found.total, scores.len()), (4, 4));
        assert_eq!(scores[0], scores[2]);
    }
}
