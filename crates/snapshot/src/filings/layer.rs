//! One layer of filings: columns in list order, plus the sort orders for lookups. A layer never changes once built.
//!
//! A row is a position in the layer's list, which is sorted by date, then id, both descending. So the newest come
//! first, a range of dates is a range of rows, and binary search finds a page at any depth of any filter.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use chrono::{Datelike, NaiveDate};
use vintem_domain::text::normalize_text;
use vintem_domain::{CompanyId, CvmDataset};
use vintem_store::reader::{FilingRow, RowProvenance};

use crate::Result;
use crate::columns::{Interner, RowGroups, TextColumn};
use crate::disk_cache::{DiskCacheError, DiskCacheReader, DiskCacheWriter};
use crate::search_index::{IndexEntry, SearchIndex, build_index};
use crate::tokenizer::tokenize;

/// Stands for a missing reference date: no document has this day.
const NO_REFERENCE_DATE: i32 = i32::MIN;

/// File name prefix of layers.
pub const LAYER_FILE_PREFIX: &str = "filings-";

/// The columns, in any row order.
#[derive(Debug, Default)]
struct FilingColumns {
    ids: TextColumn,
    subjects: TextColumn,
    protocols: TextColumn,
    urls: TextColumn,
    sets: Vec<CvmDataset>,
    /// Indexes into `SharedTexts::company_ids`.
    companies: Vec<u32>,
    names: Vec<u32>,
    categories: Vec<u32>,
    doc_types: Vec<u32>,
    kinds: Vec<u32>,
    /// Days since the year 1.
    delivered_on: Vec<i32>,
    reference_dates: Vec<i32>,
    versions: Vec<u16>,
    /// Whether no later version of the document is known.
    latest: Vec<bool>,
    /// Since when we know each row, and which fetch brought it.
    known_at: Vec<u32>,
    fetches: Vec<u32>,
}

/// Values that many filings share, each stored once.
#[derive(Debug, Default)]
struct SharedTexts {
    company_indexes: HashMap<CompanyId, u32>,
    company_ids: Vec<CompanyId>,
    names: Interner,
    categories: Interner,
    doc_types: Interner,
    kinds: Interner,
}

/// Collects filings in any order.
#[derive(Debug, Default)]
pub struct FilingLayerBuilder {
    columns: FilingColumns,
    texts: SharedTexts,
}

#[derive(Debug)]
pub struct FilingLayer {
    columns: FilingColumns,
    texts: SharedTexts,
    /// The distinct folded categories, and for each category the id of its folded form.
    folded_categories: Interner,
    folded_category_ids: Vec<u32>,
    by_id: Vec<u32>,
    by_category: RowGroups,
    by_company: RowGroups,
    /// Sorted by company, folded category, row.
    by_company_and_category: Vec<u32>,
    index: SearchIndex,
    /// Its file in the disk cache, once saved.
    saved_file_name: OnceLock<String>,
}

/// The sort key of lists: date and id, the largest first.
pub type FilingSortKey<'s> = (i32, &'s str);

/// The rows of a layer that match a filter regardless of date, by ids of this layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FilingGroup {
    All,
    Category(u32),
    Company(u32),
    CategoryAndCompany(u32, u32),
}

/// Rows of a layer in ascending order.
#[derive(Debug, Clone)]
pub enum SortedRows<'s> {
    Range(Range<u32>),
    Slice(&'s [u32]),
}

/// The fields that all versions of one document have in common. In IPE, which mixes all kinds of documents, these
/// include the kind and the subject.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DocumentKey {
    set: CvmDataset,
    company: CompanyId,
    category: String,
    reference_date: i32,
    doc_type: String,
    kind: String,
    subject: String,
}

impl FilingLayerBuilder {
    pub fn push(&mut self, filing: &FilingRow<'_>, is_latest: bool) {
        let columns = &mut self.columns;
        let texts = &mut self.texts;

        columns.ids.push(filing.id);
        columns.subjects.push(filing.subject);
        columns.protocols.push(filing.protocol);
        columns.urls.push(filing.url);
        columns.sets.push(filing.cvm_dataset);
        columns.companies.push(texts.intern_company(filing.company_id));
        columns.names.push(texts.names.intern(filing.company_name));
        columns.categories.push(texts.categories.intern(filing.category));
        columns.doc_types.push(texts.doc_types.intern(filing.doc_type));
        columns.kinds.push(texts.kinds.intern(filing.kind));
        columns.delivered_on.push(filing.delivered_on.num_days_from_ce());
        columns.reference_dates.push(filing.reference_date.map_or(NO_REFERENCE_DATE, |day| day.num_days_from_ce()));
        columns.versions.push(filing.version);
        columns.latest.push(is_latest);
        columns.known_at.push(filing.provenance.known_at_seconds);
        columns.fetches.push(filing.provenance.fetch_id);
    }

    pub fn len(&self) -> usize {
        self.columns.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn ids(&self) -> impl Iterator<Item = &str> {
        (0..self.len() as u32).map(|row| self.columns.ids.get(row))
    }

    /// The documents that its rows are versions of.
    pub fn document_keys(&self) -> impl Iterator<Item = DocumentKey> {
        (0..self.len() as u32).map(|row| build_document_key(&self.columns, &self.texts, row))
    }

    /// Builds a layer that holds all filings, and determines which versions are the latest.
    pub fn build_and_mark_latest(mut self, threads: usize) -> Result<FilingLayer> {
        self.columns.latest = mark_latest_versions(&self.columns);
        self.build(threads)
    }

    /// Sorts, groups and indexes the rows. Takes seconds for a million rows, so do not call it on a serving thread.
    pub fn build(self, threads: usize) -> Result<FilingLayer> {
        let Self { columns, texts } = self;
        let columns = columns.reordered(&sorted_by_date_and_id(&columns));
        let row_count = columns.len();

        let mut folded_categories = Interner::default();
        let folded_category_ids: Vec<u32> = texts
            .categories
            .texts()
            .iter()
            .map(|category| folded_categories.intern(&normalize_text(category)))
            .collect();
        let category_of = |row: u32| folded_category_ids[columns.categories[row as usize] as usize];
        let company_of = |row: u32| columns.companies[row as usize];

        let by_category = RowGroups::new(folded_categories.texts().len(), category_of, row_count);
        let by_company = RowGroups::new(texts.company_ids.len(), company_of, row_count);
        let by_company_and_category = sorted_by_company_and_category(row_count, company_of, category_of);
        let by_id = sorted_by_id(&columns.ids, row_count);
        let index = build_search_index(&columns, &texts, threads)?;

        Ok(FilingLayer {
            columns,
            texts,
            folded_categories,
            folded_category_ids,
            by_id,
            by_category,
            by_company,
            by_company_and_category,
            index,
            saved_file_name: OnceLock::new(),
        })
    }
}

impl FilingLayer {
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Writes the layer to a directory unless it is already there, and returns its file name.
    pub fn save(&self, directory: &Path) -> Result<String> {
        if let Some(file) = self.saved_file_name.get() {
            return Ok(file.clone());
        }

        let mut writer = DiskCacheWriter::create(directory)?;
        self.columns.write_to(&mut writer)?;
        self.texts.write_to(&mut writer)?;
        writer.write_strings(self.folded_categories.texts())?;
        writer.write_numbers(&self.folded_category_ids)?;
        writer.write_numbers(&self.by_id)?;
        self.by_category.write_to(&mut writer)?;
        self.by_company.write_to(&mut writer)?;
        writer.write_numbers(&self.by_company_and_category)?;
        self.index.write_to(&mut writer)?;

        let file_name = writer.finish(|checksum| format!("{LAYER_FILE_PREFIX}{}-{checksum:08x}", self.len()))?;
        Ok(self.saved_file_name.get_or_init(|| file_name).clone())
    }

    pub fn load(directory: &Path, file_name: &str) -> Result<Self> {
        let mut reader = DiskCacheReader::open(&directory.join(file_name))?;
        Ok(Self {
            columns: FilingColumns::read_from(&mut reader)?,
            texts: SharedTexts::read_from(&mut reader)?,
            folded_categories: Interner::read_from(&mut reader)?,
            folded_category_ids: reader.read_numbers()?,
            by_id: reader.read_numbers()?,
            by_category: RowGroups::read_from(&mut reader)?,
            by_company: RowGroups::read_from(&mut reader)?,
            by_company_and_category: reader.read_numbers()?,
            index: SearchIndex::read_from(&mut reader)?,
            saved_file_name: OnceLock::from(file_name.to_owned()),
        })
    }

    pub fn index(&self) -> &SearchIndex {
        &self.index
    }

    pub fn get(&self, row: u32) -> FilingRow<'_> {
        build_filing_row(&self.columns, &self.texts, row)
    }

    /// Whether the row was the latest version when the layer was built.
    pub fn is_latest(&self, row: u32) -> bool {
        self.columns.latest[row as usize]
    }

    pub fn sort_key(&self, row: u32) -> FilingSortKey<'_> {
        (self.columns.delivered_on[row as usize], self.columns.ids.get(row))
    }

    /// The second since which we know a row.
    pub fn known_at(&self, row: u32) -> u32 {
        self.columns.known_at[row as usize]
    }

    pub fn version(&self, row: u32) -> u16 {
        self.columns.versions[row as usize]
    }

    pub fn find_by_id(&self, id: &str) -> Option<u32> {
        let index = self.by_id.binary_search_by(|row| self.columns.ids.get(*row).cmp(id)).ok()?;
        Some(self.by_id[index])
    }

    /// The first row delivered on this day or before.
    pub fn first_row_on_or_before(&self, day: NaiveDate) -> u32 {
        let day = day.num_days_from_ce();
        self.columns.delivered_on.partition_point(|delivered_on| *delivered_on > day) as u32
    }

    /// The first row delivered before this day.
    pub fn first_row_before(&self, day: NaiveDate) -> u32 {
        let day = day.num_days_from_ce();
        self.columns.delivered_on.partition_point(|delivered_on| *delivered_on >= day) as u32
    }

    /// `None` if no row has this category or company. `category` must be folded.
    pub fn find_group(&self, category: Option<&str>, company: Option<CompanyId>) -> Option<FilingGroup> {
        let category = match category {
            Some(category) => Some(self.folded_categories.find_id(category)?),
            None => None,
        };
        let company = match company {
            Some(id) => Some(*self.texts.company_indexes.get(&id)?),
            None => None,
        };

        Some(match (category, company) {
            (None, None) => FilingGroup::All,
            (Some(category), None) => FilingGroup::Category(category),
            (None, Some(company)) => FilingGroup::Company(company),
            (Some(category), Some(company)) => FilingGroup::CategoryAndCompany(category, company),
        })
    }

    /// The facets of a row: its folded category and its year of delivery.
    pub fn facet_ids(&self, row: u32) -> [u32; 2] {
        let day = NaiveDate::from_num_days_from_ce_opt(self.columns.delivered_on[row as usize]).unwrap_or_default();
        [self.folded_category_id(row), day.year().unsigned_abs()]
    }

    /// The folded categories, by id.
    pub fn folded_categories(&self) -> &[String] {
        self.folded_categories.texts()
    }

    /// The groups that a row is in, besides `All`.
    pub fn groups_of_row(&self, row: u32) -> [FilingGroup; 3] {
        let category = self.folded_category_id(row);
        let company = self.columns.companies[row as usize];
        [
            FilingGroup::Category(category),
            FilingGroup::Company(company),
            FilingGroup::CategoryAndCompany(category, company),
        ]
    }

    pub fn rows_in_group(&self, group: FilingGroup) -> SortedRows<'_> {
        match group {
            FilingGroup::All => SortedRows::Range(0..self.len() as u32),
            FilingGroup::Category(category) => SortedRows::Slice(self.by_category.get(category)),
            FilingGroup::Company(company) => SortedRows::Slice(self.by_company.get(company)),
            FilingGroup::CategoryAndCompany(category, company) => {
                SortedRows::Slice(self.rows_of_company_and_category(company, category))
            }
        }
    }

    /// Every issuer with its rows, the newest first.
    pub fn rows_by_issuer(&self) -> impl Iterator<Item = (CompanyId, &[u32])> {
        (0u32..).zip(&self.texts.company_ids).map(|(index, id)| (*id, self.by_company.get(index)))
    }

    pub fn document_key(&self, row: u32) -> DocumentKey {
        build_document_key(&self.columns, &self.texts, row)
    }

    /// The rows that are versions of a document.
    pub fn rows_of_document<'s>(&'s self, document: &'s DocumentKey) -> impl Iterator<Item = u32> + 's {
        let group = self.find_group(Some(&normalize_text(&document.category)), Some(document.company));
        let rows = match group.map(|group| self.rows_in_group(group)) {
            Some(SortedRows::Slice(rows)) => rows,
            _ => &[],
        };

        let is_version = |row: &u32| {
            self.columns.reference_dates[*row as usize] == document.reference_date
                && self.document_key(*row) == *document
        };
        rows.iter().copied().filter(is_version)
    }

    fn folded_category_id(&self, row: u32) -> u32 {
        self.folded_category_ids[self.columns.categories[row as usize] as usize]
    }

    fn rows_of_company_and_category(&self, company: u32, category: u32) -> &[u32] {
        let key = |row: &u32| (self.columns.companies[*row as usize], self.folded_category_id(*row));
        let rows = &self.by_company_and_category;

        let start = rows.partition_point(|row| key(row) < (company, category));
        let end = rows.partition_point(|row| key(row) <= (company, category));
        &rows[start..end]
    }
}

impl<'s> SortedRows<'s> {
    pub fn len(&self) -> usize {
        match self {
            Self::Range(range) => range.len(),
            Self::Slice(rows) => rows.len(),
        }
    }

    pub fn get(&self, index: usize) -> u32 {
        match self {
            Self::Range(range) => range.start + index as u32,
            Self::Slice(rows) => rows[index],
        }
    }

    /// Number of rows before this one.
    pub fn count_before(&self, row: u32) -> usize {
        match self {
            Self::Range(range) => row.clamp(range.start, range.end) as usize - range.start as usize,
            Self::Slice(rows) => rows.partition_point(|listed| *listed < row),
        }
    }

    /// The rows within a range.
    pub fn within(&self, range: Range<u32>) -> Self {
        let start = self.count_before(range.start);
        let end = self.count_before(range.end.max(range.start));
        match self {
            Self::Range(rows) => Self::Range(rows.start + start as u32..rows.start + end as u32),
            Self::Slice(rows) => Self::Slice(&rows[start..end]),
        }
    }
}

impl FilingColumns {
    fn len(&self) -> usize {
        self.sets.len()
    }

    fn write_to(&self, writer: &mut DiskCacheWriter) -> std::result::Result<(), DiskCacheError> {
        for texts in [&self.ids, &self.subjects, &self.protocols, &self.urls] {
            texts.write_to(writer)?;
        }
        // The index of the dataset in `CvmDataset::ALL`.
        writer.write_numbers(&self.sets.iter().map(|set| *set as u8).collect::<Vec<_>>())?;
        for numbers in [&self.companies, &self.names, &self.categories, &self.doc_types, &self.kinds] {
            writer.write_numbers(numbers)?;
        }
        writer.write_numbers(&self.delivered_on)?;
        writer.write_numbers(&self.reference_dates)?;
        writer.write_numbers(&self.versions)?;
        writer.write_numbers(&self.latest.iter().map(|is_latest| u8::from(*is_latest)).collect::<Vec<_>>())?;
        writer.write_numbers(&self.known_at)?;
        writer.write_numbers(&self.fetches)
    }

    fn read_from(reader: &mut DiskCacheReader) -> std::result::Result<Self, DiskCacheError> {
        let set = |index: u8| {
            CvmDataset::ALL.get(usize::from(index)).copied().ok_or(DiskCacheError::Damaged("a set is unknown"))
        };

        Ok(Self {
            ids: TextColumn::read_from(reader)?,
            subjects: TextColumn::read_from(reader)?,
            protocols: TextColumn::read_from(reader)?,
            urls: TextColumn::read_from(reader)?,
            sets: reader.read_numbers()?.into_iter().map(set).collect::<std::result::Result<_, _>>()?,
            companies: reader.read_numbers()?,
            names: reader.read_numbers()?,
            categories: reader.read_numbers()?,
            doc_types: reader.read_numbers()?,
            kinds: reader.read_numbers()?,
            delivered_on: reader.read_numbers()?,
            reference_dates: reader.read_numbers()?,
            versions: reader.read_numbers()?,
            latest: reader.read_numbers::<u8>()?.into_iter().map(|is_latest| is_latest != 0).collect(),
            known_at: reader.read_numbers()?,
            fetches: reader.read_numbers()?,
        })
    }

    fn reordered(&self, order: &[u32]) -> Self {
        fn gather<T: Copy>(column: &[T], order: &[u32]) -> Vec<T> {
            order.iter().map(|row| column[*row as usize]).collect()
        }

        Self {
            ids: self.ids.reordered(order),
            subjects: self.subjects.reordered(order),
            protocols: self.protocols.reordered(order),
            urls: self.urls.reordered(order),
            sets: gather(&self.sets, order),
            companies: gather(&self.companies, order),
            names: gather(&self.names, order),
            categories: gather(&self.categories, order),
            doc_types: gather(&self.doc_types, order),
            kinds: gather(&self.kinds, order),
            delivered_on: gather(&self.delivered_on, order),
            reference_dates: gather(&self.reference_dates, order),
            versions: gather(&self.versions, order),
            latest: gather(&self.latest, order),
            known_at: gather(&self.known_at, order),
            fetches: gather(&self.fetches, order),
        }
    }
}

impl SharedTexts {
    fn write_to(&self, writer: &mut DiskCacheWriter) -> std::result::Result<(), DiskCacheError> {
        writer.write_numbers(&self.company_ids)?;
        [&self.names, &self.categories, &self.doc_types, &self.kinds]
            .into_iter()
            .try_for_each(|texts| writer.write_strings(texts.texts()))
    }

    fn read_from(reader: &mut DiskCacheReader) -> std::result::Result<Self, DiskCacheError> {
        let company_ids: Vec<CompanyId> = reader.read_numbers()?;
        Ok(Self {
            company_indexes: company_ids.iter().copied().zip(0..).collect(),
            company_ids,
            names: Interner::read_from(reader)?,
            categories: Interner::read_from(reader)?,
            doc_types: Interner::read_from(reader)?,
            kinds: Interner::read_from(reader)?,
        })
    }

    fn intern_company(&mut self, id: CompanyId) -> u32 {
        *self.company_indexes.entry(id).or_insert_with(|| {
            self.company_ids.push(id);
            self.company_ids.len() as u32 - 1
        })
    }
}

fn build_filing_row<'s>(columns: &'s FilingColumns, texts: &'s SharedTexts, row: u32) -> FilingRow<'s> {
    let index = row as usize;
    let date = |days: i32| NaiveDate::from_num_days_from_ce_opt(days);

    FilingRow {
        id: columns.ids.get(row),
        cvm_dataset: columns.sets[index],
        company_id: texts.company_ids[columns.companies[index] as usize],
        company_name: texts.names.get(columns.names[index]),
        category: texts.categories.get(columns.categories[index]),
        doc_type: texts.doc_types.get(columns.doc_types[index]),
        kind: texts.kinds.get(columns.kinds[index]),
        subject: columns.subjects.get(row),
        delivered_on: date(columns.delivered_on[index]).unwrap_or_default(),
        reference_date: Some(columns.reference_dates[index]).filter(|days| *days != NO_REFERENCE_DATE).and_then(date),
        version: columns.versions[index],
        protocol: columns.protocols.get(row),
        url: columns.urls.get(row),
        provenance: RowProvenance { known_at_seconds: columns.known_at[index], fetch_id: columns.fetches[index] },
    }
}

fn build_document_key(columns: &FilingColumns, texts: &SharedTexts, row: u32) -> DocumentKey {
    let filing = build_filing_row(columns, texts, row);
    let if_ipe = |text: &str| if filing.cvm_dataset == CvmDataset::Ipe { text.to_owned() } else { String::new() };

    DocumentKey {
        set: filing.cvm_dataset,
        company: filing.company_id,
        category: filing.category.to_owned(),
        reference_date: columns.reference_dates[row as usize],
        doc_type: if_ipe(filing.doc_type),
        kind: if_ipe(filing.kind),
        subject: if_ipe(filing.subject),
    }
}

/// The first eight bytes of a text as a number that sorts alike: most comparisons need no more.
fn prefix_sort_key(text: &str) -> u64 {
    let mut bytes = [0; 8];
    let length = text.len().min(8);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    u64::from_be_bytes(bytes)
}

/// Rows sorted by date, then id, both descending.
fn sorted_by_date_and_id(columns: &FilingColumns) -> Vec<u32> {
    let mut keys: Vec<(Reverse<i32>, Reverse<u64>, u32)> = (0..columns.len() as u32)
        .map(|row| (Reverse(columns.delivered_on[row as usize]), Reverse(prefix_sort_key(columns.ids.get(row))), row))
        .collect();
    keys.sort_unstable_by(|one, other| {
        (one.0, one.1).cmp(&(other.0, other.1)).then_with(|| columns.ids.get(other.2).cmp(columns.ids.get(one.2)))
    });

    keys.into_iter().map(|(_, _, row)| row).collect()
}

fn sorted_by_id(ids: &TextColumn, row_count: usize) -> Vec<u32> {
    let mut keys: Vec<(u64, u32)> = (0..row_count as u32).map(|row| (prefix_sort_key(ids.get(row)), row)).collect();
    keys.sort_unstable_by(|one, other| one.0.cmp(&other.0).then_with(|| ids.get(one.1).cmp(ids.get(other.1))));
    keys.into_iter().map(|(_, row)| row).collect()
}

fn sorted_by_company_and_category(
    row_count: usize,
    company_of: impl Fn(u32) -> u32,
    category_of: impl Fn(u32) -> u32,
) -> Vec<u32> {
    let mut keys: Vec<(u64, u32)> = (0..row_count as u32)
        .map(|row| (u64::from(company_of(row)) << 32 | u64::from(category_of(row)), row))
        .collect();
    keys.sort_unstable();
    keys.into_iter().map(|(_, row)| row).collect()
}

/// Marks the highest version of each document; of equal versions the newest.
fn mark_latest_versions(columns: &FilingColumns) -> Vec<bool> {
    let document_hash = |row: u32| {
        let index = row as usize;
        let mut hasher = DefaultHasher::new();
        (columns.sets[index], columns.companies[index], columns.categories[index], columns.reference_dates[index])
            .hash(&mut hasher);
        if columns.sets[index] == CvmDataset::Ipe {
            (columns.doc_types[index], columns.kinds[index]).hash(&mut hasher);
            columns.subjects.get(row).hash(&mut hasher);
        }
        hasher.finish()
    };
    let sort_key =
        |row: u32| (columns.versions[row as usize], columns.delivered_on[row as usize], columns.ids.get(row));

    let mut best: HashMap<u64, u32> = HashMap::with_capacity(columns.len());
    for row in 0..columns.len() as u32 {
        let best_row = best.entry(document_hash(row)).or_insert(row);
        if sort_key(row) > sort_key(*best_row) {
            *best_row = row;
        }
    }

    let mut latest = vec![false; columns.len()];
    for row in best.into_values() {
        latest[row as usize] = true;
    }
    latest
}

fn build_search_index(columns: &FilingColumns, texts: &SharedTexts, threads: usize) -> Result<SearchIndex> {
    // Shared texts are tokenized once.
    let tokenize_all =
        |texts: &Interner| -> Vec<String> { texts.texts().iter().map(|text| tokenize(text).join(" ")).collect() };
    let categories = tokenize_all(&texts.categories);
    let doc_types = tokenize_all(&texts.doc_types);
    let kinds = tokenize_all(&texts.kinds);
    let names = tokenize_all(&texts.names);

    build_index(columns.len(), threads, |row, writer| {
        let index = row as usize;
        let shared_texts = [
            categories[columns.categories[index] as usize].as_str(),
            &doc_types[columns.doc_types[index] as usize],
            &kinds[columns.kinds[index] as usize],
            &names[columns.names[index] as usize],
        ];
        let title = tokenize(columns.subjects.get(row)).join(" ");
        writer.add(IndexEntry { title, text: shared_texts.join(" "), ..IndexEntry::default() })
    })
}
