//! Financial statements: an index of documents in memory, and their bodies in a local file.

mod bodies;
mod documents;
mod frames;
mod persistence;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::NaiveDate;
use vintem_domain::statement::{StatementTable, StatementTableSet};
use vintem_domain::{CompanyId, StatementSet};
use vintem_store::reader::{RowProvenance, StatementRow};

use bodies::{BodyFile, BodyLocation};
pub use bodies::{is_body_file, remove_other_body_files};
pub use documents::{StatementVersion, VersionedDocument, statement_documents};
use frames::decompress_tables;

use crate::disk_cache::DiskCacheError;
use crate::error::Result;

/// A published form of a document. Most documents have one form; a further one replaces it under the same version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatementForm {
    pub company_id: CompanyId,
    pub set: StatementSet,
    pub reference_date: NaiveDate,
    pub version: u16,
    pub tables: StatementTableSet,
    pub row_count: u32,
    pub provenance: RowProvenance,
    body: BodyLocation,
}

/// The statements of all companies.
#[derive(Debug)]
pub struct Statements {
    /// Ordered by [`StatementForm::key`].
    forms: Vec<StatementForm>,
    bodies: Arc<BodyFile>,
    /// Bytes of the file that are in use; what follows them may be overwritten.
    used_bytes: u64,
    document_count: usize,
}

/// Where the bodies are written.
#[derive(Debug, Clone, Copy)]
pub enum BodyFileLocation<'d> {
    /// In the directory of the disk cache, from which the next process reads them.
    Cache(&'d Path),
    /// In a file that has no name, and is gone with the process, in the first of these directories that can be written.
    Unnamed(&'d [PathBuf]),
}

/// Collects forms, and writes their bodies after those that are there.
pub struct StatementsUpdate {
    served: Option<Arc<Statements>>,
    new_forms: Vec<StatementForm>,
    bodies: Arc<BodyFile>,
    unwritten: Vec<u8>,
    written_bytes: u64,
    /// Why a body could not be written. Later forms are left out.
    error: Option<DiskCacheError>,
}

/// Bodies are written in pieces of about this size.
const WRITE_BUFFER_BYTES: usize = 1 << 20;

impl StatementForm {
    /// The order of the index: the forms of a document follow each other, oldest first.
    fn key(&self) -> (DocumentKey, u32, u32) {
        (self.document_key(), self.provenance.known_at_seconds, self.provenance.fetch_id)
    }

    fn document_key(&self) -> DocumentKey {
        (self.company_id, self.set, self.reference_date, self.version)
    }
}

/// What makes a document.
type DocumentKey = (CompanyId, StatementSet, NaiveDate, u16);

impl Statements {
    fn new(forms: Vec<StatementForm>, bodies: Arc<BodyFile>, used_bytes: u64) -> Self {
        let document_count = forms.chunk_by(|form, next| form.document_key() == next.document_key()).count();
        Self { forms, bodies, used_bytes, document_count }
    }

    /// All forms of a company's documents: annual ones first, each set by its date, version and age.
    pub fn of_company(&self, company_id: CompanyId) -> &[StatementForm] {
        let start = self.forms.partition_point(|form| form.company_id < company_id);
        let end = self.forms.partition_point(|form| form.company_id <= company_id);
        &self.forms[start..end]
    }

    /// Every company with documents.
    pub fn companies(&self) -> impl Iterator<Item = CompanyId> {
        self.forms.chunk_by(|form, next| form.company_id == next.company_id).map(|forms| forms[0].company_id)
    }

    /// Forms of the same version are one document.
    pub fn document_count(&self) -> usize {
        self.document_count
    }

    /// The canonical form of a document, read from the local file.
    pub fn read_body(&self, form: &StatementForm) -> Result<String> {
        self.read_tables(form, |_| true)
    }

    /// The wanted tables of a document in its canonical form. There may be more, if it was archived as a single frame.
    pub fn read_tables(&self, form: &StatementForm, is_wanted: impl Fn(StatementTable) -> bool) -> Result<String> {
        let compressed = self.bodies.read(form.body)?;
        let text = decompress_tables(&compressed, form.tables, is_wanted)?;
        Ok(String::from_utf8(text).map_err(|_| DiskCacheError::Damaged("a statement is no UTF-8"))?)
    }

    /// The name of the file with the bodies.
    pub fn body_file(&self) -> &str {
        self.bodies.name()
    }

    /// These are served now, instead of the earlier ones: the local file stays, and another one that had the same is
    /// removed when nobody reads it any more.
    pub fn replace(&self, earlier: Option<&Self>) {
        self.bodies.keep();
        if let Some(earlier) = earlier.filter(|earlier| earlier.body_file() != self.body_file()) {
            earlier.bodies.supersede();
        }
    }
}

impl StatementsUpdate {
    /// Begins without any, with a new file.
    pub fn start(location: BodyFileLocation<'_>) -> Result<Self> {
        let created = match location {
            BodyFileLocation::Cache(directory) => BodyFile::create(directory),
            BodyFileLocation::Unnamed(directories) => BodyFile::create_unnamed(directories),
        };
        Ok(Self::after(None, Arc::new(created.map_err(DiskCacheError::from)?), 0))
    }

    /// Adds to what is served.
    pub fn of(served: Arc<Statements>) -> Self {
        let (bodies, used_bytes) = (served.bodies.clone(), served.used_bytes);
        Self::after(Some(served), bodies, used_bytes)
    }

    fn after(served: Option<Arc<Statements>>, bodies: Arc<BodyFile>, written_bytes: u64) -> Self {
        Self { served, new_forms: Vec::new(), bodies, unwritten: Vec::new(), written_bytes, error: None }
    }

    pub fn push(&mut self, row: &StatementRow<'_>) {
        if self.error.is_some() {
            return;
        }
        let body = BodyLocation {
            offset: self.written_bytes + self.unwritten.len() as u64,
            length: u32::try_from(row.compressed.len()).unwrap_or(u32::MAX),
            checksum: crc32fast::hash(row.compressed),
        };
        let StatementRow { company_id, set, reference_date, version, tables, row_count, provenance, .. } = *row;
        let form = StatementForm { company_id, set, reference_date, version, tables, row_count, provenance, body };
        self.new_forms.push(form);
        self.unwritten.extend_from_slice(row.compressed);
        if self.unwritten.len() >= WRITE_BUFFER_BYTES {
            self.error = self.write().err();
        }
    }

    fn write(&mut self) -> std::result::Result<(), DiskCacheError> {
        self.bodies.write(self.written_bytes, &self.unwritten)?;
        self.written_bytes += self.unwritten.len() as u64;
        self.unwritten.clear();
        Ok(())
    }

    pub fn finish(mut self) -> Result<Statements> {
        match self.error.take() {
            Some(error) => return Err(error.into()),
            None => self.write()?,
        }
        let mut forms = self.served.as_ref().map_or_else(Vec::new, |served| served.forms.clone());
        forms.append(&mut self.new_forms);
        forms.sort_by_key(StatementForm::key);
        forms.shrink_to_fit();
        Ok(Statements::new(forms, self.bodies, self.written_bytes))
    }
}
