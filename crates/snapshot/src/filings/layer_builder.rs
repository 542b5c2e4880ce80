//! Collects filings and builds a layer of them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use vintem_domain::CvmDataset;
use vintem_store::reader::FilingRow;

use super::filing_columns::{DocumentKey, FilingColumns, SharedTexts, build_document_key};
use super::layer::FilingLayer;
use super::sort_orders::sorted_by_date_and_id;
use crate::error::Result;

/// Collects filings in any order.
#[derive(Debug, Default)]
pub struct FilingLayerBuilder {
    columns: FilingColumns,
    texts: SharedTexts,
}

impl FilingLayerBuilder {
    pub fn push(&mut self, filing: &FilingRow<'_>, is_latest: bool) {
        self.columns.push(filing, is_latest, &mut self.texts);
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
        let sorted_columns = columns.reordered(&sorted_by_date_and_id(&columns));

        FilingLayer::from_sorted_columns(sorted_columns, texts, threads)
    }
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
