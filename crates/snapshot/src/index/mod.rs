//! Full-text search over rows 0, 1, 2, …. Tantivy keeps which rows hold a word, and where; what follows from that is
//! decided in `search`. Document number = row number, so that nothing needs to be stored in the index.

mod bits;
mod search;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tantivy::directory::{Directory, RamDirectory};
use tantivy::schema::{Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::tokenizer::{TextAnalyzer, TokenizerManager, WhitespaceTokenizer};
use tantivy::{Index, InvertedIndexReader, Searcher, SingleSegmentIndexWriter, TantivyDocument, Term};

use crate::Result;
use crate::copy::{CopyError, CopyReader, CopyWriter};

use bits::Bits;
pub use search::{Called, FacetsOf, NumberCounts, Scope, certainty, search};

/// What the writer sizes its tables by.
const WRITER_BYTES: usize = 64 << 20;
/// Fewer rows are one part, however many threads there are: each part is searched by itself.
const LEAST_PART_ROWS: usize = 1 << 16;
const WORDS: &str = "words";
/// A word is common if it is in so many rows, and in one of so many: as many as that a bit for each row takes no more
/// than the numbers of its own rows would.
const LEAST_COMMON: u32 = 1 << 11;
const COMMON_SHARE: u32 = u32::BITS;

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
    /// The rows of common words, as they are asked for most and would take longest to read.
    common: HashMap<Term, Bits>,
}

/// What Tantivy keeps beside the files that it manages.
const UNMANAGED_FILES: [&str; 2] = ["meta.json", ".managed.json"];

impl Part {
    fn open(first_row: u32, directory: RamDirectory, index: &Index) -> Result<Self> {
        let searcher = index.reader()?.searcher();
        let common = common_words(&searcher)?;
        Ok(Self { first_row, searcher, directory, common })
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

fn common_words(searcher: &Searcher) -> Result<HashMap<Term, Bits>> {
    let mut common = HashMap::new();
    let Some(segment) = searcher.segment_readers().first() else { return Ok(common) };
    let least = LEAST_COMMON.max(segment.max_doc() / COMMON_SHARE);
    let fields = schema().1;
    for field in [fields.title, fields.text] {
        let index = segment.inverted_index(field)?;
        let mut words = index.terms().stream().map_err(CopyError::from)?;
        while words.advance() {
            if words.value().doc_freq >= least {
                let mut term = Term::from_field_text(field, "");
                term.append_bytes(words.key());
                let mut rows = Bits::none(segment.max_doc());
                each_row(&index, &term, |found| rows.insert_all(found))?;
                common.insert(term, rows);
            }
        }
    }
    Ok(common)
}

/// Visits the rows that hold a word, many at a time.
fn each_row(index: &InvertedIndexReader, term: &Term, mut visit: impl FnMut(&[u32])) -> Result<()> {
    let postings = index.read_block_postings(term, IndexRecordOption::Basic).map_err(CopyError::from)?;
    let Some(mut postings) = postings else { return Ok(()) };
    while !postings.docs().is_empty() {
        visit(postings.docs());
        postings.advance();
    }
    Ok(())
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
        // How long a text is, and how often it says a word, changes nothing.
        let indexing = TextFieldIndexing::default().set_tokenizer(WORDS).set_index_option(option).set_fieldnorms(false);
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
