//! The columns of a layer, and how they become rows again.

use std::collections::HashMap;

use chrono::{Datelike, NaiveDate};
use vintem_domain::{CompanyId, CvmDataset};
use vintem_store::reader::{FilingRow, RowProvenance};

use crate::columns::{Interner, TextColumn};
use crate::disk_cache::{DiskCacheError, DiskCacheReader, DiskCacheWriter};

/// Stands for a missing reference date: no document has this day.
const NO_REFERENCE_DATE: i32 = i32::MIN;

/// The columns, in any row order.
#[derive(Debug, Default)]
pub struct FilingColumns {
    pub ids: TextColumn,
    pub subjects: TextColumn,
    pub protocols: TextColumn,
    pub urls: TextColumn,
    pub sets: Vec<CvmDataset>,
    /// Indexes into `SharedTexts::company_ids`.
    pub companies: Vec<u32>,
    pub names: Vec<u32>,
    pub categories: Vec<u32>,
    pub doc_types: Vec<u32>,
    pub kinds: Vec<u32>,
    /// Days since the year 1.
    pub delivered_on: Vec<i32>,
    pub reference_dates: Vec<i32>,
    pub versions: Vec<u16>,
    /// Whether no later version of the document is known.
    pub latest: Vec<bool>,
    /// Since when we know each row, and which fetch brought it.
    pub known_at: Vec<u32>,
    pub fetches: Vec<u32>,
}

/// Values that many filings share, each stored once.
#[derive(Debug, Default)]
pub struct SharedTexts {
    pub company_indexes: HashMap<CompanyId, u32>,
    pub company_ids: Vec<CompanyId>,
    pub names: Interner,
    pub categories: Interner,
    pub doc_types: Interner,
    pub kinds: Interner,
}

/// The fields that all versions of one document have in common. In IPE, which mixes all kinds of documents, these
/// include the kind and the subject.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DocumentKey {
    set: CvmDataset,
    pub company: CompanyId,
    pub category: String,
    pub reference_date: i32,
    doc_type: String,
    kind: String,
    subject: String,
}

impl FilingColumns {
    /// Appends a filing, and its shared texts to `texts`.
    pub fn push(&mut self, filing: &FilingRow<'_>, is_latest: bool, texts: &mut SharedTexts) {
        self.ids.push(filing.id);
        self.subjects.push(filing.subject);
        self.protocols.push(filing.protocol);
        self.urls.push(filing.url);
        self.sets.push(filing.cvm_dataset);
        self.companies.push(texts.intern_company(filing.company_id));
        self.names.push(texts.names.intern(filing.company_name));
        self.categories.push(texts.categories.intern(filing.category));
        self.doc_types.push(texts.doc_types.intern(filing.doc_type));
        self.kinds.push(texts.kinds.intern(filing.kind));
        self.delivered_on.push(filing.delivered_on.num_days_from_ce());
        self.reference_dates.push(filing.reference_date.map_or(NO_REFERENCE_DATE, |day| day.num_days_from_ce()));
        self.versions.push(filing.version);
        self.latest.push(is_latest);
        self.known_at.push(filing.provenance.known_at_seconds);
        self.fetches.push(filing.provenance.fetch_id);
    }

    pub fn len(&self) -> usize {
        self.sets.len()
    }

    pub fn write_to(&self, writer: &mut DiskCacheWriter) -> Result<(), DiskCacheError> {
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

    pub fn read_from(reader: &mut DiskCacheReader) -> Result<Self, DiskCacheError> {
        let set = |index: u8| {
            CvmDataset::ALL.get(usize::from(index)).copied().ok_or(DiskCacheError::Damaged("a set is unknown"))
        };

        Ok(Self {
            ids: TextColumn::read_from(reader)?,
            subjects: TextColumn::read_from(reader)?,
            protocols: TextColumn::read_from(reader)?,
            urls: TextColumn::read_from(reader)?,
            sets: reader.read_numbers()?.into_iter().map(set).collect::<Result<_, _>>()?,
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

    pub fn reordered(&self, order: &[u32]) -> Self {
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
    pub fn write_to(&self, writer: &mut DiskCacheWriter) -> Result<(), DiskCacheError> {
        writer.write_numbers(&self.company_ids)?;
        [&self.names, &self.categories, &self.doc_types, &self.kinds]
            .into_iter()
            .try_for_each(|texts| writer.write_strings(texts.texts()))
    }

    pub fn read_from(reader: &mut DiskCacheReader) -> Result<Self, DiskCacheError> {
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

pub fn build_filing_row<'s>(columns: &'s FilingColumns, texts: &'s SharedTexts, row: u32) -> FilingRow<'s> {
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

pub fn build_document_key(columns: &FilingColumns, texts: &SharedTexts, row: u32) -> DocumentKey {
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
