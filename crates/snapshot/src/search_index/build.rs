//! Builds an index, in parallel.

use std::ops::Range;

use tantivy::directory::RamDirectory;
use tantivy::tokenizer::{TextAnalyzer, TokenizerManager, WhitespaceTokenizer};
use tantivy::{Index, SingleSegmentIndexWriter, TantivyDocument};

use super::index::{IndexPart, SearchIndex};
use super::names::IndexedNames;
use super::schema::{IndexFields, WORD_TOKENIZER_NAME, build_schema};
use crate::error::Result;

/// Memory budget by which the writer sizes its tables.
const WRITER_MEMORY_BYTES: usize = 64 << 20;
/// Fewer rows form one part, whatever the number of threads: each part is searched separately.
const MIN_PART_ROWS: usize = 1 << 16;

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

/// A row as it is indexed. Texts are already words, separated by spaces.
#[derive(Debug, Default)]
pub struct IndexEntry {
    pub title: String,
    pub text: String,
    pub names: IndexedNames,
}

/// Takes the rows of a part in order.
pub struct IndexPartWriter {
    writer: SingleSegmentIndexWriter,
    directory: RamDirectory,
    fields: IndexFields,
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
