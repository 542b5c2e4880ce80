//! Full-text search by Tantivy. Document number = row number, so that nothing needs to be stored in the index and
//! equal scores fall back on the order of the rows.

use tantivy::collector::{Collector, SegmentCollector};
use tantivy::directory::RamDirectory;
use tantivy::query::{BooleanQuery, BoostQuery, EmptyQuery, Occur, Query, TermQuery};
use tantivy::schema::{Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::tokenizer::{TextAnalyzer, TokenizerManager, WhitespaceTokenizer};
use tantivy::{
    DocId, Index, Score, Searcher, SegmentOrdinal, SegmentReader, SingleSegmentIndexWriter, TantivyDocument, Term,
};

use crate::analysis::words;
use crate::{Found, Result};

/// How much more a word counts in what a row is called than in what else is said of it.
const TITLE_BOOST: Score = 3.0;
/// What the writer sizes its tables by.
const WRITER_BYTES: usize = 64 << 20;
const WORDS: &str = "words";

/// An index over rows 0, 1, 2, …, each with a title and a text.
pub struct SearchIndex {
    searcher: Searcher,
    title: Field,
    text: Field,
}

impl std::fmt::Debug for SearchIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SearchIndex").field("rows", &self.searcher.num_docs()).finish_non_exhaustive()
    }
}

/// Takes the rows in order.
pub struct SearchIndexWriter {
    writer: SingleSegmentIndexWriter,
    title: Field,
    text: Field,
}

impl SearchIndexWriter {
    pub fn new() -> Result<Self> {
        // Texts come as words already, so white space is all that separates them.
        let indexing = TextFieldIndexing::default().set_tokenizer(WORDS).set_index_option(IndexRecordOption::WithFreqs);
        let options = TextOptions::default().set_indexing_options(indexing);
        let mut schema = Schema::builder();
        let title = schema.add_text_field("title", options.clone());
        let text = schema.add_text_field("text", options);
        let tokenizers = TokenizerManager::new();
        tokenizers.register(WORDS, TextAnalyzer::from(WhitespaceTokenizer::default()));
        // One segment: that alone makes document numbers row numbers.
        let writer = Index::builder()
            .schema(schema.build())
            .tokenizers(tokenizers)
            .single_segment_index_writer(RamDirectory::create(), WRITER_BYTES)?;
        Ok(Self { writer, title, text })
    }

    pub fn add(&mut self, title: &str, text: &str) -> Result<()> {
        let mut document = TantivyDocument::default();
        document.add_text(self.title, words(title).join(" "));
        document.add_text(self.text, words(text).join(" "));
        self.writer.add_document(document)?;
        Ok(())
    }

    pub fn finish(self) -> Result<SearchIndex> {
        let index = self.writer.finalize()?;
        Ok(SearchIndex { searcher: index.reader()?.searcher(), title: self.title, text: self.text })
    }
}

impl SearchIndex {
    /// A page of the hits: first the rows that the query identifies, then those from `first_row` on that hold every
    /// word of it, best first, equal ones in the order of the rows.
    pub fn search(
        &self,
        query: &str,
        identified: &[u32],
        first_row: u32,
        offset: usize,
        limit: usize,
    ) -> Result<Found> {
        let mut rows: Vec<u32> = identified.iter().skip(offset).take(limit).copied().collect();
        let (offset, limit) = (offset.saturating_sub(identified.len()), limit - rows.len());
        let top = offset.saturating_add(limit).min(self.searcher.num_docs() as usize);
        let collector = TopRows { top, first_row, without: identified.to_vec() };
        let hits = self.searcher.search(&self.query(query), &collector)?;
        rows.extend(hits.best.iter().skip(offset).take(limit).map(|key| row_of(*key)));
        Ok(Found { total: identified.len() + hits.total, rows })
    }

    fn query(&self, query: &str) -> Box<dyn Query> {
        let mut words = words(query);
        // A word that is said again asks for nothing more.
        words.sort_unstable();
        words.dedup();
        if words.is_empty() {
            return Box::new(EmptyQuery);
        }
        let term = |field: Field, word: &str| -> Box<dyn Query> {
            Box::new(TermQuery::new(Term::from_field_text(field, word), IndexRecordOption::WithFreqs))
        };
        let each_word = words.iter().map(|word| {
            let in_title = Box::new(BoostQuery::new(term(self.title, word), TITLE_BOOST)) as Box<dyn Query>;
            let anywhere = BooleanQuery::new(vec![(Occur::Should, in_title), (Occur::Should, term(self.text, word))]);
            (Occur::Must, Box::new(anywhere) as Box<dyn Query>)
        });
        Box::new(BooleanQuery::new(each_word.collect()))
    }
}

/// The best `top` rows and the exact number of all, in memory that grows with `top` alone.
struct TopRows {
    top: usize,
    first_row: u32,
    without: Vec<u32>,
}

#[derive(Default)]
struct Hits {
    total: usize,
    best: Vec<u64>,
}

struct TopRowsOfSegment {
    top: usize,
    first_row: u32,
    without: Vec<u32>,
    hits: Hits,
    least: u64,
}

/// A hit as one number: the larger the better, no two alike. Scores are never negative, so their bits are in order.
fn key(score: Score, row: u32) -> u64 {
    u64::from(score.to_bits()) << 32 | u64::from(u32::MAX - row)
}

fn row_of(key: u64) -> u32 {
    u32::MAX - (key & u64::from(u32::MAX)) as u32
}

impl Collector for TopRows {
    type Fruit = Hits;
    type Child = TopRowsOfSegment;

    fn for_segment(&self, _: SegmentOrdinal, _: &SegmentReader) -> tantivy::Result<TopRowsOfSegment> {
        Ok(TopRowsOfSegment {
            top: self.top,
            first_row: self.first_row,
            without: self.without.clone(),
            hits: Hits::default(),
            least: 0,
        })
    }

    fn requires_scoring(&self) -> bool {
        true
    }

    fn merge_fruits(&self, segments: Vec<Hits>) -> tantivy::Result<Hits> {
        let mut merged = Hits::default();
        for segment in segments {
            merged.total += segment.total;
            merged.best.extend(segment.best);
        }
        merged.best.sort_unstable_by(|a, b| b.cmp(a));
        merged.best.truncate(self.top);
        Ok(merged)
    }
}

impl TopRowsOfSegment {
    /// Keeps the best `top`.
    fn cut(&mut self) {
        if self.hits.best.len() > self.top && self.top > 0 {
            self.hits.best.select_nth_unstable_by(self.top - 1, |a, b| b.cmp(a));
            self.least = self.hits.best[self.top - 1];
        }
        self.hits.best.truncate(self.top);
    }
}

impl SegmentCollector for TopRowsOfSegment {
    type Fruit = Hits;

    fn collect(&mut self, row: DocId, score: Score) {
        if row < self.first_row || self.without.contains(&row) {
            return;
        }
        self.hits.total += 1;
        let key = key(score, row);
        if key > self.least && self.top > 0 {
            self.hits.best.push(key);
            // Cutting at twice the size keeps the cost of a hit constant, however deep the page.
            if self.hits.best.len() >= self.top.max(64) * 2 {
                self.cut();
            }
        }
    }

    fn harvest(mut self) -> Hits {
        self.cut();
        self.hits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> SearchIndex {
        let mut writer = SearchIndexWriter::new().unwrap();
        writer.add("Cerâmica Serra S.A.", "cerâmica").unwrap();
        writer.add("Banco Vale", "serra e bancos").unwrap();
        for _ in 0..500 {
            writer.add("Aviso", "comunicado").unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn a_title_counts_more_than_a_text() {
        assert_eq!(index().search("SERRA", &[], 0, 0, 10).unwrap(), Found { total: 2, rows: vec![0, 1] });
        assert_eq!(index().search("ceramica s/a", &[], 0, 0, 10).unwrap().rows, [0]);
        assert_eq!(index().search("serra ausente", &[], 0, 0, 10).unwrap().total, 0);
    }

    #[test]
    fn pages_join_at_any_depth() {
        let index = index();
        let mut rows = Vec::new();
        for offset in (0..600).step_by(70) {
            let found = index.search("comunicado", &[], 0, offset, 70).unwrap();
            assert_eq!(found.total, 500);
            rows.extend(found.rows);
        }
        assert_eq!(rows, (2..502).collect::<Vec<u32>>());
    }

    #[test]
    fn identified_rows_come_first_and_once_and_rows_before_the_first_never() {
        let index = index();
        let found = index.search("comunicado", &[20, 11], 10, 0, 4).unwrap();
        assert_eq!(found, Found { total: 492, rows: vec![20, 11, 10, 12] });
        let next = index.search("comunicado", &[20, 11], 10, 1, 2).unwrap();
        assert_eq!(next.rows, [11, 10]);
    }
}
