//! Full-text search by Tantivy. Document number = row number, so that nothing needs to be stored in the index and
//! equal scores fall back on the order of the rows.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tantivy::collector::{Collector, SegmentCollector};
use tantivy::directory::{Directory, RamDirectory};
use tantivy::query::{
    Bm25StatisticsProvider, BooleanQuery, BoostQuery, ConstScoreQuery, Occur, PhraseQuery, Query as Clause, TermQuery,
    TermSetQuery,
};
use tantivy::schema::{Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::tokenizer::{TextAnalyzer, TokenizerManager, WhitespaceTokenizer};
use tantivy::{
    DocId, Index, Score, Searcher, SegmentOrdinal, SegmentReader, SingleSegmentIndexWriter, TantivyDocument, Term,
};

use crate::Result;
use crate::copy::{CopyError, CopyReader, CopyWriter};
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
/// So many words of a part are looked at on the way.
const MOST_LOOKED_AT: usize = 200_000;
/// What the writer sizes its tables by.
const WRITER_BYTES: usize = 64 << 20;
/// Fewer rows are one part, however many threads there are: each part is searched by itself.
const LEAST_PART_ROWS: usize = 1 << 16;
const WORDS: &str = "words";

/// An index over rows 0, 1, 2, …, each with a title and a text, in parts of consecutive rows.
#[derive(Debug, Default)]
pub struct SearchIndex {
    parts: Vec<Part>,
}

struct Part {
    /// Its document 0 is this row.
    first_row: u32,
    searcher: Searcher,
    /// Where its files are.
    directory: RamDirectory,
}

/// What Tantivy keeps beside the files that it manages.
const UNMANAGED_FILES: [&str; 2] = ["meta.json", ".managed.json"];

impl Part {
    fn open(first_row: u32, directory: RamDirectory, index: &Index) -> Result<Self> {
        Ok(Self { first_row, searcher: index.reader()?.searcher(), directory })
    }

    fn write_to(&self, copy: &mut CopyWriter) -> Result<()> {
        let mut files: Vec<PathBuf> = self.searcher.index().directory().list_managed_files().into_iter().collect();
        files.extend(UNMANAGED_FILES.map(PathBuf::from));
        files.sort();
        files.dedup();
        files.retain(|file| Directory::exists(&self.directory, file).unwrap_or(false));
        copy.number(u64::from(self.first_row))?;
        copy.number(files.len() as u64)?;
        for file in files {
            let content = Directory::open_read(&self.directory, &file).map_err(tantivy::TantivyError::from)?;
            copy.bytes(file.as_os_str().as_encoded_bytes())?;
            copy.bytes(&content.read_bytes().map_err(CopyError::from)?)?;
        }
        Ok(())
    }

    fn read_from(copy: &mut CopyReader) -> Result<Self> {
        let first_row = u32::try_from(copy.number()?).map_err(|_| CopyError::Damaged("a row has no number"))?;
        let directory = RamDirectory::create();
        for _ in 0..copy.number()? {
            let (file, content) = (copy.text()?, copy.bytes()?);
            Directory::atomic_write(&directory, Path::new(&file), &content).map_err(CopyError::from)?;
        }
        let index = Index::open(directory.clone())?;
        Self::open(first_row, directory, &index)
    }
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part")
            .field("first_row", &self.first_row)
            .field("rows", &self.searcher.num_docs())
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
struct Fields {
    title: Field,
    text: Field,
    whole: Field,
    former: Field,
    beginning: Field,
}

/// A row as it is searched. Texts are words already, with spaces between.
#[derive(Debug, Default)]
pub struct Entry {
    pub title: String,
    pub text: String,
    pub names: Names,
}

/// What a row is called, each name as one piece.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Names {
    pub whole: Vec<String>,
    pub former: Vec<String>,
    /// With what any of them begins.
    pub beginnings: Vec<String>,
}

/// Takes the rows of a part in order.
pub struct PartWriter {
    writer: SingleSegmentIndexWriter,
    directory: RamDirectory,
    fields: Fields,
}

/// The same for every index, and so is which field has which number.
fn schema() -> (Schema, Fields) {
    // Texts come as words already, so white space is all that separates them.
    let options = |option| {
        let indexing = TextFieldIndexing::default().set_tokenizer(WORDS).set_index_option(option);
        TextOptions::default().set_indexing_options(indexing)
    };
    let words = options(IndexRecordOption::WithFreqsAndPositions);
    let pieces = options(IndexRecordOption::Basic);
    let mut schema = Schema::builder();
    let fields = Fields {
        title: schema.add_text_field("title", words.clone()),
        text: schema.add_text_field("text", words),
        whole: schema.add_text_field("whole", pieces.clone()),
        former: schema.add_text_field("former", pieces.clone()),
        beginning: schema.add_text_field("beginning", pieces),
    };
    (schema.build(), fields)
}

impl PartWriter {
    fn new() -> Result<Self> {
        let (schema, fields) = schema();
        let tokenizers = TokenizerManager::new();
        tokenizers.register(WORDS, TextAnalyzer::from(WhitespaceTokenizer::default()));
        let directory = RamDirectory::create();
        // One segment: that alone makes document numbers row numbers.
        let writer = Index::builder()
            .schema(schema)
            .tokenizers(tokenizers)
            .single_segment_index_writer(directory.clone(), WRITER_BYTES)?;
        Ok(Self { writer, directory, fields })
    }

    pub fn add(&mut self, entry: Entry) -> Result<()> {
        let mut document = TantivyDocument::default();
        document.add_text(self.fields.title, entry.title);
        document.add_text(self.fields.text, entry.text);
        let Names { whole, former, beginnings } = entry.names;
        for (field, names) in
            [(self.fields.whole, whole), (self.fields.former, former), (self.fields.beginning, beginnings)]
        {
            for name in names {
                document.add_text(field, name);
            }
        }
        self.writer.add_document(document)?;
        Ok(())
    }

    fn finish(self, first_row: u32) -> Result<Part> {
        let index = self.writer.finalize()?;
        Part::open(first_row, self.directory, &index)
    }
}

/// An index over so many rows, each added by `add`, in as many parts as threads build it.
pub fn build_parts(
    rows: usize,
    threads: usize,
    add: impl Fn(u32, &mut PartWriter) -> Result<()> + Sync,
) -> Result<SearchIndex> {
    let part_rows = rows.div_ceil(threads.max(1)).max(LEAST_PART_ROWS);
    let build = |rows: Range<usize>| -> Result<Part> {
        let mut writer = PartWriter::new()?;
        for row in rows.clone() {
            add(row as u32, &mut writer)?;
        }
        writer.finish(rows.start as u32)
    };
    let parts = std::thread::scope(|scope| {
        let parts = (0..rows).step_by(part_rows).map(|start| start..(start + part_rows).min(rows));
        let threads: Vec<_> = parts.map(|rows| scope.spawn(|| build(rows))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Part>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<Vec<Part>>>()
    });
    Ok(SearchIndex { parts: parts? })
}

/// What the words of a row come to in the end, given the row and its score.
pub type Adjust = Arc<dyn Fn(u32, Score) -> Score + Send + Sync>;

/// Names as pieces: of the words that tell them apart, and of all letters without a space.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Called {
    pub telling: Vec<String>,
    pub unspaced: Vec<String>,
}

/// What of an index is searched.
#[derive(Clone)]
pub struct Scope<'s> {
    pub index: &'s SearchIndex,
    /// Rows before this one are passed over.
    pub from_row: u32,
    /// Rows that are passed over, sorted.
    pub hidden: Arc<[u32]>,
    /// A few more of them.
    pub without: &'s [u32],
    pub adjust: Adjust,
    /// What a row is counted by, where it is.
    pub facets: Option<FacetsOf>,
}

/// The two numbers that a row is counted by.
pub type FacetsOf = Arc<dyn Fn(u32) -> [u32; 2] + Send + Sync>;

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
    let mut words: Vec<Word> = query.words.iter().map(|word| Word::new(word)).collect();
    if query.is_open
        && let Some(last) = words.last_mut()
    {
        last.others = begun(scopes, &last.typed)?;
    }
    let hits = search_for(scopes, &words, &query.phrases, &called(&query.words), top)?;
    if hits.total > 0 || query.words.is_empty() {
        return Ok(hits);
    }
    let mut meant = query.words.clone();
    for (word, meant) in words.iter_mut().zip(&mut meant) {
        let alike = misspelled(scopes, &word.typed)?;
        if let Some(nearest) = alike.first() {
            meant.clone_from(nearest);
        }
        word.others.extend(alike);
        word.score = MISSPELLED_SCORE;
    }
    let (mut either_called, meant_called) = (called(&query.words), called(&meant));
    either_called.telling.extend(meant_called.telling);
    either_called.unspaced.extend(meant_called.unspaced);
    search_for(scopes, &words, &query.phrases, &either_called, top)
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
    words: &[Word],
    phrases: &[Vec<String>],
    called: &Called,
    top: usize,
) -> Result<Hits> {
    let query = clause(words, phrases, called);
    // Words are as rare as they are in all scopes together.
    let everywhere = Statistics { scopes, frequencies: Mutex::default() };
    let mut hits = Hits::default();
    for (place, scope) in scopes.iter().enumerate() {
        let (mut best, mut counts): (Vec<u64>, NumberCounts) = Default::default();
        for part in &scope.index.parts {
            let collector = TopRows { top: top.min(scope.index.rows()), part, scope };
            let found = part.searcher.search_with_statistics_provider(&*query, &collector, &everywhere)?;
            hits.total += found.total;
            best.extend(found.best);
            add_counts(&mut counts, found.counts);
        }
        hits.counts.push(counts);
        if scope.index.parts.len() > 1 {
            best.sort_unstable_by(|one, other| other.cmp(one));
            best.truncate(top);
        }
        hits.best.extend(best.into_iter().map(|key| Hit { score: score_of(key), scope: place, row: row_of(key) }));
    }
    let of_words = words.iter().flat_map(|word| std::iter::once(&word.typed).chain(&word.others));
    hits.words = of_words.chain(phrases.iter().flatten()).cloned().collect();
    Ok(hits)
}

fn add_counts(sums: &mut NumberCounts, counts: NumberCounts) {
    for (sums, counts) in sums.iter_mut().zip(counts) {
        for (number, count) in counts {
            *sums.entry(number).or_default() += count;
        }
    }
}

fn clause(words: &[Word], phrases: &[Vec<String>], called: &Called) -> Box<dyn Clause> {
    let (_, fields) = schema();
    let of_words = words.iter().map(|word| either(fields, |field| one_of(field, word)));
    let of_phrases = phrases.iter().map(|phrase| either(fields, |field| vec![in_order(field, phrase)]));
    let mut clauses: Vec<(Occur, Box<dyn Clause>)> =
        of_words.chain(of_phrases).map(|clause| (Occur::Must, clause)).collect();
    let named = |field: Field, names: &[String], score: Score| -> (Occur, Box<dyn Clause>) {
        let names = TermSetQuery::new(names.iter().map(|name| Term::from_field_text(field, name)));
        (Occur::Should, Box::new(ConstScoreQuery::new(Box::new(names), score)))
    };
    if !called.telling.is_empty() {
        clauses.push(named(fields.beginning, &called.telling, BEGINNING_SCORE));
        clauses.push(named(fields.former, &called.telling, FORMER_NAME_SCORE));
        clauses.push(named(fields.whole, &called.telling, WHOLE_NAME_SCORE));
    }
    let every_word = Box::new(BooleanQuery::new(clauses));
    if called.unspaced.is_empty() {
        return every_word;
    }
    // The same letters in a row are enough, whatever the words are.
    Box::new(BooleanQuery::new(vec![
        (Occur::Should, every_word),
        named(fields.whole, &called.unspaced, SAME_LETTERS_SCORE),
        named(fields.former, &called.unspaced, SAME_LETTERS_SCORE),
    ]))
}

/// In the title, where it counts more, or in the text.
fn either(fields: Fields, of_field: impl Fn(Field) -> Vec<Box<dyn Clause>>) -> Box<dyn Clause> {
    let boosted = |clause| -> Box<dyn Clause> { Box::new(BoostQuery::new(clause, TITLE_BOOST)) };
    let in_title = of_field(fields.title).into_iter().map(boosted);
    let all = in_title.chain(of_field(fields.text)).map(|clause| (Occur::Should, clause));
    Box::new(BooleanQuery::new(all.collect()))
}

fn term(field: Field, word: &str) -> Box<dyn Clause> {
    Box::new(TermQuery::new(Term::from_field_text(field, word), IndexRecordOption::WithFreqs))
}

fn one_of(field: Field, word: &Word) -> Vec<Box<dyn Clause>> {
    let mut clauses = vec![term(field, &word.typed)];
    if !word.others.is_empty() {
        let others = TermSetQuery::new(word.others.iter().map(|other| Term::from_field_text(field, other)));
        clauses.push(Box::new(ConstScoreQuery::new(Box::new(others), word.score)));
    }
    clauses
}

fn in_order(field: Field, phrase: &[String]) -> Box<dyn Clause> {
    match phrase {
        [word] => term(field, word),
        words => Box::new(PhraseQuery::new(words.iter().map(|word| Term::from_field_text(field, word)).collect())),
    }
}

/// The most frequent words that begin so and go on.
fn begun(scopes: &[Scope<'_>], beginning: &str) -> Result<Vec<String>> {
    let mut frequencies: HashMap<String, u64> = HashMap::new();
    each_word(scopes, beginning, |word, frequency| {
        if word != beginning {
            *frequencies.entry(word.to_owned()).or_default() += frequency;
        }
    })?;
    let mut words: Vec<(String, u64)> = frequencies.into_iter().collect();
    words.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    words.truncate(MOST_BEGUN);
    Ok(words.into_iter().map(|(word, _)| word).collect())
}

/// The words that are nearest to a misspelled one, of equally near ones the most frequent first.
fn misspelled(scopes: &[Scope<'_>], typed: &str) -> Result<Vec<String>> {
    let most = forgiven(typed);
    if most == 0 {
        return Ok(Vec::new());
    }
    let letters: Vec<char> = typed.chars().collect();
    let mut found: HashMap<String, (usize, u64)> = HashMap::new();
    let mut other: Vec<char> = Vec::new();
    each_word(scopes, "", |word, frequency| {
        // In bytes, which are never fewer than letters by more than what accents leave: there are none.
        if word.len().abs_diff(typed.len()) > most {
            return;
        }
        other.clear();
        other.extend(word.chars());
        if let Some(distance) = distance(&letters, &other, most).filter(|distance| *distance > 0) {
            found.entry(word.to_owned()).or_insert((distance, 0)).1 += frequency;
        }
    })?;
    let mut words: Vec<(String, (usize, u64))> = found.into_iter().collect();
    words.sort_unstable_by(|(one, (near, often)), (other, (far, seldom))| {
        near.cmp(far).then(seldom.cmp(often)).then_with(|| one.cmp(other))
    });
    words.truncate(MOST_MISSPELLED);
    Ok(words.into_iter().map(|(word, _)| word).collect())
}

/// Every word of title or text that begins so, part by part, with the number of rows that have it.
fn each_word(scopes: &[Scope<'_>], beginning: &str, mut visit: impl FnMut(&str, u64)) -> Result<()> {
    let (_, fields) = schema();
    for part in scopes.iter().flat_map(|scope| &scope.index.parts) {
        for segment in part.searcher.segment_readers() {
            for field in [fields.title, fields.text] {
                let index = segment.inverted_index(field)?;
                let mut words = index.terms().range().ge(beginning).into_stream().map_err(CopyError::from)?;
                for _ in 0..MOST_LOOKED_AT {
                    if !words.advance() || !words.key().starts_with(beginning.as_bytes()) {
                        break;
                    }
                    if let Ok(word) = std::str::from_utf8(words.key()) {
                        visit(word, u64::from(words.value().doc_freq));
                    }
                }
            }
        }
    }
    Ok(())
}

impl SearchIndex {
    pub fn write_to(&self, copy: &mut CopyWriter) -> Result<()> {
        copy.number(self.parts.len() as u64)?;
        self.parts.iter().try_for_each(|part| part.write_to(copy))
    }

    pub fn read_from(copy: &mut CopyReader) -> Result<Self> {
        let count = copy.number()?;
        Ok(Self { parts: (0..count).map(|_| Part::read_from(copy)).collect::<Result<_>>()? })
    }

    fn rows(&self) -> usize {
        self.parts.iter().map(|part| part.searcher.num_docs() as usize).sum()
    }
}

struct Statistics<'s> {
    scopes: &'s [Scope<'s>],
    /// Every part asks for the same ones.
    frequencies: Mutex<HashMap<Term, u64>>,
}

impl Statistics<'_> {
    fn sum(&self, count: impl Fn(&Searcher) -> tantivy::Result<u64>) -> tantivy::Result<u64> {
        self.scopes.iter().flat_map(|scope| &scope.index.parts).map(|part| count(&part.searcher)).sum()
    }
}

impl Bm25StatisticsProvider for Statistics<'_> {
    fn total_num_tokens(&self, field: Field) -> tantivy::Result<u64> {
        self.sum(|searcher| searcher.total_num_tokens(field))
    }

    fn total_num_docs(&self) -> tantivy::Result<u64> {
        self.sum(Bm25StatisticsProvider::total_num_docs)
    }

    fn doc_freq(&self, term: &Term) -> tantivy::Result<u64> {
        let mut frequencies = self.frequencies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(frequency) = frequencies.get(term) {
            return Ok(*frequency);
        }
        let frequency = self.sum(|searcher| searcher.doc_freq(term))?;
        frequencies.insert(term.clone(), frequency);
        Ok(frequency)
    }
}

/// The best `top` rows of a part and the exact number of all, in memory that grows with `top` alone.
struct TopRows<'s> {
    top: usize,
    part: &'s Part,
    scope: &'s Scope<'s>,
}

#[derive(Default)]
struct Top {
    total: usize,
    best: Vec<u64>,
    counts: NumberCounts,
}

struct TopRowsOfSegment {
    top: usize,
    first_row: u32,
    from_row: u32,
    hidden: Arc<[u32]>,
    without: Vec<u32>,
    adjust: Adjust,
    facets: Option<FacetsOf>,
    found: Top,
    least: u64,
}

/// A hit as one number: the larger the better, no two alike. Scores are never negative, so their bits are in order.
fn key(score: Score, row: u32) -> u64 {
    u64::from(score.to_bits()) << 32 | u64::from(u32::MAX - row)
}

fn row_of(key: u64) -> u32 {
    u32::MAX - (key & u64::from(u32::MAX)) as u32
}

fn score_of(key: u64) -> Score {
    Score::from_bits((key >> 32) as u32)
}

impl Collector for TopRows<'_> {
    type Fruit = Top;
    type Child = TopRowsOfSegment;

    fn for_segment(&self, _: SegmentOrdinal, _: &SegmentReader) -> tantivy::Result<TopRowsOfSegment> {
        Ok(TopRowsOfSegment {
            top: self.top,
            first_row: self.part.first_row,
            from_row: self.scope.from_row,
            hidden: self.scope.hidden.clone(),
            without: self.scope.without.to_vec(),
            adjust: self.scope.adjust.clone(),
            facets: self.scope.facets.clone(),
            found: Top::default(),
            least: 0,
        })
    }

    fn requires_scoring(&self) -> bool {
        true
    }

    fn merge_fruits(&self, segments: Vec<Top>) -> tantivy::Result<Top> {
        let mut merged = Top::default();
        for segment in segments {
            merged.total += segment.total;
            merged.best.extend(segment.best);
            add_counts(&mut merged.counts, segment.counts);
        }
        merged.best.sort_unstable_by(|a, b| b.cmp(a));
        merged.best.truncate(self.top);
        Ok(merged)
    }
}

impl TopRowsOfSegment {
    /// Keeps the best `top`.
    fn cut(&mut self) {
        if self.found.best.len() > self.top && self.top > 0 {
            self.found.best.select_nth_unstable_by(self.top - 1, |a, b| b.cmp(a));
            self.least = self.found.best[self.top - 1];
        }
        self.found.best.truncate(self.top);
    }
}

impl SegmentCollector for TopRowsOfSegment {
    type Fruit = Top;

    fn collect(&mut self, document: DocId, score: Score) {
        let row = self.first_row + document;
        let is_hidden = !self.hidden.is_empty() && self.hidden.binary_search(&row).is_ok();
        if row < self.from_row || is_hidden || self.without.contains(&row) {
            return;
        }
        self.found.total += 1;
        if let Some(facets) = &self.facets {
            for (counts, number) in self.found.counts.iter_mut().zip(facets(row)) {
                *counts.entry(number).or_default() += 1;
            }
        }
        let key = key((self.adjust)(row, score), row);
        if key > self.least && self.top > 0 {
            self.found.best.push(key);
            // Cutting at twice the size keeps the cost of a hit constant, however deep the page.
            if self.found.best.len() >= self.top.max(64) * 2 {
                self.cut();
            }
        }
    }

    fn harvest(mut self) -> Top {
        self.cut();
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::words;

    const ROWS: [(&str, &str); 2] = [("Cerâmica Serra S.A.", "cerâmica"), ("Banco Vale", "serra e bancos")];

    fn index() -> SearchIndex {
        build_parts(502, 1, |row, writer| {
            let (title, text) = ROWS.get(row as usize).copied().unwrap_or(("Aviso", "comunicado ao mercado"));
            writer.add(Entry { title: words(title).join(" "), text: words(text).join(" "), ..Entry::default() })
        })
        .unwrap()
    }

    fn whole(index: &SearchIndex) -> Scope<'_> {
        Scope {
            index,
            from_row: 0,
            hidden: Arc::default(),
            without: &[],
            adjust: Arc::new(|_, score| score),
            facets: None,
        }
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

    #[test]
    fn a_word_is_as_rare_as_in_all_scopes_together() {
        let (one, other) = (index(), index());
        let found = find(&[whole(&one), whole(&other)], "serra", 10);
        let scores: Vec<(u32, u32)> = found.best.iter().map(|hit| (hit.row, hit.score.to_bits())).collect();
        assert_eq!((found.total, scores.len()), (4, 4));
        assert_eq!(scores[0], scores[2]);
    }
}
