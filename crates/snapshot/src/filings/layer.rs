//! One layer of filings: columns in list order, plus the sort orders for lookups. A layer never changes once built.
//!
//! A row is a position in the layer's list, which is sorted by date, then id, both descending. So the newest come
//! first, a range of dates is a range of rows, and binary search finds a page at any depth of any filter.

use std::path::Path;
use std::sync::OnceLock;

use chrono::{Datelike, NaiveDate};
use vintem_domain::CompanyId;
use vintem_domain::text::normalize_text;
use vintem_store::reader::FilingRow;

use super::filing_columns::{DocumentKey, FilingColumns, SharedTexts, build_document_key, build_filing_row};
use super::sort_orders::{sorted_by_company_and_category, sorted_by_id};
use super::sorted_rows::SortedRows;
use crate::columns::{Interner, RowGroups};
use crate::disk_cache::{DiskCacheReader, DiskCacheWriter};
use crate::error::Result;
use crate::search_index::{IndexEntry, SearchIndex, build_index};
use crate::tokenizer::tokenize;

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

impl FilingLayer {
    /// Groups and indexes the rows of `columns`, which must be in list order.
    pub fn from_sorted_columns(columns: FilingColumns, texts: SharedTexts, threads: usize) -> Result<Self> {
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

        Ok(Self {
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

        let file_name = writer.finish(|checksum| format!("layer-{}-{checksum:08x}", self.len()))?;
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

    /// The ids of the types of document with this folded name.
    pub fn find_doc_types(&self, folded: &str) -> Vec<u32> {
        let doc_types = (0u32..).zip(self.texts.doc_types.texts());
        doc_types.filter(|(_, doc_type)| normalize_text(doc_type) == folded).map(|(id, _)| id).collect()
    }

    /// The id of a row's type of document.
    pub fn doc_type(&self, row: u32) -> u32 {
        self.columns.doc_types[row as usize]
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
