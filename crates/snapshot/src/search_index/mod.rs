//! Full-text search over rows 0, 1, 2, …. Tantivy keeps which rows hold a word, and where; what follows from that is
//! decided in `search`. Document number = row number, so that nothing needs to be stored in the index.

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

/// What the writer sizes its tables by.
const WRITER_MEMORY_BYTES: usize = 64 << 20;
/// Fewer rows are one part, however many threads there are: each part is searched by itself.
const MIN_PART_ROWS: usize = 1 << 16;
const WORD_TOKENIZER_NAME: &str = "words";
/// A word is common if it is in so many rows, and in one of so many: as many as that a bit for each row takes no more
/// than the numbers of its own rows would.
const MIN_COMMON_WORD_ROWS: u32 = 1 << 11;
const COMMON_WORD_DIVISOR: u32 = u32::BITS;

/// An index over rows 0, 1, 2, …, each with a title and a text, in parts of consecutive rows.
#[derive(Debug, Default)]
pub struct SearchIndex {
    parts: Vec<IndexPart>,
}

struct IndexPart {
    /// Its document 0 is this row.
    first_row: u32,
    searcher: Searcher,
    /// Where its files are.
    directory: RamDirectory,
    /// The rows of common words, as they are asked for most and would take longest to read.
    common_word_rows: HashMap<Term, RowSet>,
}

/// What Tantivy keeps beside the files that it manages.
const UNMANAGED_INDEX_FILES: [&str; 2] = ["meta.json", ".managed.json"];

impl IndexPart {
    fn open(first_row: u32, directory: RamDirectory, index: &Index) -> Result<Self> {
        let searcher = index.reader()?.searcher();
        let common = build_common_word_rows(&searcher)?;
        Ok(Self { first_row, searcher, directory, common_word_rows: common })
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
            let (file, content) = (reader.read_string()?, reader.read_bytes()?);
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
    let least = MIN_COMMON_WORD_ROWS.max(segment.max_doc() / COMMON_WORD_DIVISOR);
    let fields = build_schema().1;
    for field in [fields.title, fields.text] {
        let index = segment.inverted_index(field)?;
        let mut words = index.terms().stream().map_err(DiskCacheError::from)?;
        while words.advance() {
            if words.value().doc_freq >= least {
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

/// Visits the rows that hold a word, many at a time.
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

/// A row as it is searched. Texts are words already, with spaces between.
#[derive(Debug, Default)]
pub struct IndexEntry {
    pub title: String,
    pub text: String,
    pub names: IndexedNames,
}

/// What a row is called, each name as one piece.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct IndexedNames {
    pub current: Vec<String>,
    pub former: Vec<String>,
    /// With what any of them begins.
    pub prefixes: Vec<String>,
}

/// Takes the rows of a part in order.
pub struct IndexPartWriter {
    writer: SingleSegmentIndexWriter,
    directory: RamDirectory,
    fields: IndexFields,
}

/// The same for every index, and so is which field has which number.
fn build_schema() -> (Schema, IndexFields) {
    // Texts come as words already, so white space is all that separates them.
    let options = |option| {
        // How long a text is, and how often it says a word, changes nothing.
        let indexing = TextFieldIndexing::default()
            .set_tokenizer(WORD_TOKENIZER_NAME)
            .set_index_option(option)
            .set_fieldnorms(false);
        TextOptions::default().set_indexing_options(indexing)
    };
    let words = options(IndexRecordOption::WithFreqsAndPositions);
    let pieces = options(IndexRecordOption::Basic);
    let mut schema = Schema::builder();
    let fields = IndexFields {
        title: schema.add_text_field("title", words.clone()),
        text: schema.add_text_field("text", words),
        current_name: schema.add_text_field("whole", pieces.clone()),
        former_name: schema.add_text_field("former", pieces.clone()),
        name_prefix: schema.add_text_field("beginning", pieces),
    };
    (schema.build(), fields)
}

impl IndexPartWriter {
    fn new() -> Result<Self> {
        let (schema, fields) = build_schema();
        let tokenizers = TokenizerManager::new();
        tokenizers.register(WORD_TOKENIZER_NAME, TextAnalyzer::from(WhitespaceTokenizer::default()));
        let directory = RamDirectory::create();
        // One segment: that alone makes document numbers row numbers.
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
        let IndexedNames { current: whole, former, prefixes: beginnings } = entry.names;
        for (field, names) in [
            (self.fields.current_name, whole),
            (self.fields.former_name, former),
            (self.fields.name_prefix, beginnings),
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

/// An index over so many rows, each added by `add`, in as many parts as threads build it.
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
