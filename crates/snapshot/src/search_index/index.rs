//! An index in memory, and its copy in the disk cache.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tantivy::directory::{Directory, RamDirectory};
use tantivy::schema::IndexRecordOption;
use tantivy::{Index, InvertedIndexReader, Searcher, Term};

use super::common_words::{WordRows, build_common_words};
use crate::disk_cache::{DiskCacheError, DiskCacheReader, DiskCacheWriter};
use crate::error::Result;

/// Files that Tantivy keeps besides those that it manages.
const UNMANAGED_INDEX_FILES: [&str; 2] = ["meta.json", ".managed.json"];

/// An index over rows 0, 1, 2, …, each with a title and a text, in parts of consecutive rows.
#[derive(Debug, Default)]
pub struct SearchIndex {
    pub(super) parts: Vec<IndexPart>,
}

pub struct IndexPart {
    /// The row of its document 0.
    pub first_row: u32,
    pub searcher: Searcher,
    /// Holds its files.
    directory: RamDirectory,
    pub common_words: HashMap<Term, WordRows>,
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

    pub fn row_count(&self) -> usize {
        self.parts.iter().map(|part| part.searcher.num_docs() as usize).sum()
    }
}

impl IndexPart {
    pub fn open(first_row: u32, directory: RamDirectory, index: &Index) -> Result<Self> {
        let searcher = index.reader()?.searcher();
        let common_words = build_common_words(&searcher)?;
        Ok(Self { first_row, searcher, directory, common_words })
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

/// Calls `visit` with the rows that hold a word, many at a time.
pub fn for_each_row_block(index: &InvertedIndexReader, term: &Term, mut visit: impl FnMut(&[u32])) -> Result<()> {
    let postings = index.read_block_postings(term, IndexRecordOption::Basic).map_err(DiskCacheError::from)?;
    let Some(mut postings) = postings else { return Ok(()) };
    while !postings.docs().is_empty() {
        visit(postings.docs());
        postings.advance();
    }
    Ok(())
}
