//! Full-text search over rows 0, 1, 2, …. Tantivy stores which rows hold a word, and where; `search` does the matching
//! and ranking. Document numbers are row numbers, so the index stores nothing else.

mod row_set;
mod search;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tantivy::directory::{Directory, RamDirectory};
use tantivy::schema::{Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::tokenizer::{TextAnalyzer, TokenizerManager, WhitespaceTokenizer};
use tantivy::{Index, InvertedIndexReader, Searcher, SingleSegmentIndexWriter, TantivyDocument, Term};

use crate::Result;
use crate::disk_cache::{DiskCacheError, DiskCacheReader, DiskCacheWriter};

use row_set::RowSet;
pub use search::{FacetIdCounts, FacetLookup, NameTokens, SearchScope, name_match_confidence, search};

/// Memory budget by which the writer sizes its tables.
const WRITER_MEMORY_BYTES: usize = 64 << 20;
/// Fewer rows form one part, whatever the number of threads: each part is searched separately.
const MIN_PART_ROWS: usize = 1 << 16;
const WORD_TOKENIZER_NAME: &str = "words";
/// A word is common if at least this many rows hold it, and at least one row in every `COMMON_WORD_DIVISOR`. At that
/// frequency a bit for each row takes no more memory than a list of row numbers.
const MIN_COMMON_WORD_ROWS: u32 = 1 << 11;
const COMMON_WORD_DIVISOR: u32 = u32::BITS;

/// An index over rows 0, 1, 2, …, each with a title and a text, in parts of consecutive rows.
#[derive(Debug, Default)]
pub struct SearchIndex {
    parts: Vec<IndexPart>,
}

struct IndexPart {
    /// The row of its document 0.
    first_row: u32,
    searcher: Searcher,
    /// Holds its files.
    directory: RamDirectory,
    /// The rows of common words, which are searched most often and take longest to read.
    common_word_rows: HashMap<Term, RowSet>,
}

/// Files that Tantivy keeps besides those that it manages.
const UNMANAGED_INDEX_FILES: [&str; 2] = ["meta.json", ".managed.json"];

impl IndexPart {
    fn open(first_row: u32, directory: RamDirectory, index: &Index) -> Result<Self> {
        let searcher = index.reader()?.searcher();
        let common_word_rows = build_common_word_rows(&searcher)?;
        Ok(Self { first_row, searcher, directory, common_word_rows })
    }

    fn write_to(&self, writer: &mut DiskCacheWriter) -> Result<()> {
        let mut files: Vec<PathBuf> = self.searcher.index().directory().list_managed_files().into_iter().collect();
        files.extend(UNMANAGED_INDEX_FILES.map(PathBuf::from));
        files.sort();
        files.dedup();
        files.retain(|file| Directory::exists(&self.directory, file).unwrap_or(false));

        writer.write_u64(u64::from(self.first_row))?;
        writer.write_u64(files.len() as u64)?;
        for file in files {
            let content = Directory::open_read(&self.directory, &file).map_err(tantivy::TantivyError::from)?;
            writer.write_bytes(file.as_os_str().as_encoded_bytes())?;
            writer.write_bytes(&content.read_bytes().map_err(DiskCacheError::from)?)?;
        }
        Ok(())
    }

    fn read_from(reader: &mut DiskCacheReader) -> Result<Self> {
        let first_row =
            u32::try_from(reader.read_u64()?).map_err(|_| DiskCacheError::Damaged("a row has no number"))?;

        let directory = RamDirectory::create();
        for _ in 0..reader.read_u64()? {
            let file = reader.read_string()?;
            let content = reader.read_bytes()?;
            Directory::atomic_write(&directory, Path::new(&file), &content).map_err(DiskCacheError::from)?;
        }

        let index = Index::open(directory.clone())?;
        Self::open(first_row, directory, &index)
    }
}

impl std::fmt::Debug for IndexPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part")
            .field("first_row", &self.first_row)
            .field("rows", &self.searcher.num_docs())
            .finish_non_exhaustive()
    }
}

fn build_common_word_rows(searcher: &Searcher) -> Result<HashMap<Term, RowSet>> {
    let mut common = HashMap::new();
    let Some(segment) = searcher.segment_readers().first() else { return Ok(common) };

    let min_rows = MIN_COMMON_WORD_ROWS.max(segment.max_doc() / COMMON_WORD_DIVISOR);
    let fields = build_schema().1;
    for field in [fields.title, fields.text] {
        let index = segment.inverted_index(field)?;
        let mut words = index.terms().stream().map_err(DiskCacheError::from)?;
        while words.advance() {
            if words.value().doc_freq >= min_rows {
                let mut term = Term::from_field_text(field, "");
                term.append_bytes(words.key());
                let mut rows = RowSet::empty(segment.max_doc());
                for_each_row_block(&index, &term, |found| rows.insert_all(found))?;
                common.insert(term, rows);
            }
        }
    }
    Ok(common)
}

/// Calls `visit` with the rows that hold a word, many at a time.
fn for_each_row_block(index: &InvertedIndexReader, term: &Term, mut visit: impl FnMut(&[u32])) -> Result<()> {
    let postings = index.read_block_postings(term, IndexRecordOption::Basic).map_err(DiskCacheError::from)?;
    let Some(mut postings) = postings else { return Ok(()) };
    while !postings.docs().is_empty() {
        visit(postings.docs());
        postings.advance();
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct IndexFields {
    title: Field,
    text: Field,
    current_name: Field,
    former_name: Field,
    name_prefix: Field,
}

/// A row as it is indexed. Texts are already words, separated by spaces.
#[derive(Debug, Default)]
pub struct IndexEntry {
    pub title: String,
    pub text: String,
    pub names: IndexedNames,
}

/// The names of a row, each as one token.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct IndexedNames {
    pub current: Vec<String>,
    pub former: Vec<String>,
    /// The beginnings of all names.
    pub prefixes: Vec<String>,
}

/// Takes the rows of a part in order.
pub struct IndexPartWriter {
    writer: SingleSegmentIndexWriter,
    directory: RamDirectory,
    fields: IndexFields,
}

/// Every index has the same schema, so field numbers are the same too.
fn build_schema() -> (Schema, IndexFields) {
    // Texts are already words, so white space separates them.
    let options = |option| {
        // The length of a text and the number of occurrences of a word do not affect the score.
        let indexing = TextFieldIndexing::default()
            .set_tokenizer(WORD_TOKENIZER_NAME)
            .set_index_option(option)
            .set_fieldnorms(false);
        TextOptions::default().set_indexing_options(indexing)
    };
    let words = options(IndexRecordOption::WithFreqsAndPositions);
    let whole_names = options(IndexRecordOption::Basic);

    let mut schema = Schema::builder();
    let fields = IndexFields {
        title: schema.add_text_field("title", words.clone()),
        text: schema.add_text_field("text", words),
        current_name: schema.add_text_field("whole", whole_names.clone()),
        former_name: schema.add_text_field("former", whole_names.clone()),
        name_prefix: schema.add_text_field("beginning", whole_names),
    };
    (schema.build(), fields)
}

impl IndexPartWriter {
    fn new() -> Result<Self> {
        let (schema, fields) = build_schema();
        let tokenizers = TokenizerManager::new();
        tokenizers.register(WORD_TOKENIZER_NAME, TextAnalyzer::from(WhitespaceTokenizer::default()));
        let directory = RamDirectory::create();

        // Only with a single segment are document numbers row numbers.
        let writer = Index::builder()
            .schema(schema)
            .tokenizers(tokenizers)
            .single_segment_index_writer(directory.clone(), WRITER_MEMORY_BYTES)?;
        Ok(Self { writer, directory, fields })
    }

    pub fn add(&mut self, entry: IndexEntry) -> Result<()> {
        let mut document = TantivyDocument::default();
        document.add_text(self.fields.title, entry.title);
        document.add_text(self.fields.text, entry.text);

        let IndexedNames { current, former, prefixes } = entry.names;
        for (field, names) in [
            (self.fields.current_name, current),
            (self.fields.former_name, former),
            (self.fields.name_prefix, prefixes),
        ] {
            for name in names {
                document.add_text(field, name);
            }
        }

        self.writer.add_document(document)?;
        Ok(())
    }

    fn finish(self, first_row: u32) -> Result<IndexPart> {
        let index = self.writer.finalize()?;
        IndexPart::open(first_row, self.directory, &index)
    }
}

/// Builds an index over `row_count` rows, each added by `add_row`, in parallel with one part for each thread.
pub fn build_index(
    row_count: usize,
    thread_count: usize,
    add_row: impl Fn(u32, &mut IndexPartWriter) -> Result<()> + Sync,
) -> Result<SearchIndex> {
    let part_rows = row_count.div_ceil(thread_count.max(1)).max(MIN_PART_ROWS);
    let build = |rows: Range<usize>| -> Result<IndexPart> {
        let mut writer = IndexPartWriter::new()?;
        for row in rows.clone() {
            add_row(row as u32, &mut writer)?;
        }
        writer.finish(rows.start as u32)
    };

    let parts = std::thread::scope(|scope| {
        let parts = (0..row_count).step_by(part_rows).map(|start| start..(start + part_rows).min(row_count));
        let threads: Vec<_> = parts.map(|rows| scope.spawn(|| build(rows))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<IndexPart>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<Vec<IndexPart>>>()
    });
    Ok(SearchIndex { parts: parts? })
}

impl SearchIndex {
    pub fn write_to(&self, writer: &mut DiskCacheWriter) -> Result<()> {
        writer.write_u64(self.parts.len() as u64)?;
        self.parts.iter().try_for_each(|part| part.write_to(writer))
    }

    pub fn read_from(reader: &mut DiskCacheReader) -> Result<Self> {
        let count = reader.read_u64()?;
        Ok(Self { parts: (0..count).map(|_| IndexPart::read_from(reader)).collect::<Result<_>>()? })
    }

    fn row_count(&self) -> usize {
        self.parts.iter().map(|part| part.searcher.num_docs() as usize).sum()
    }
}
