//! Filings, in layers that never change once built. The last layers are small, so the cost of a load depends on its
//! size alone.
//!
//! A row that was changed or removed later is hidden in its layer. Every read goes over all layers, as if they were
//! one.

mod filing_columns;
mod layer;
mod layer_builder;
mod paging;
mod persistence;
mod sort_orders;
mod sorted_rows;
#[cfg(test)]
mod tests;
mod update;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::NaiveDate;
use vintem_domain::text::normalize_text;
use vintem_domain::{CompanyId, DateRange, StatementSet};
use vintem_store::reader::{FilingRow, RowProvenance};

use crate::error::Result;
use crate::results::{RowPage, SearchOptions, SearchResults, ValueCounts, sort_counts_descending};
use crate::search_index::{FacetLookup, NameTokens, SearchScope, find_matching_rows, search};
use crate::search_query::SearchQuery;
use layer::{FilingGroup, FilingLayer, FilingSortKey};
use paging::FilteredLayer;

pub use layer_builder::FilingLayerBuilder;

#[derive(Debug, Clone)]
pub struct FilingFilter {
    /// Compared by equality, ignoring case and accents.
    pub category: Option<String>,
    /// The type of document, compared like the category.
    pub doc_type: Option<String>,
    pub company: Option<CompanyId>,
    pub days: DateRange,
    /// Only rows known since this second or later.
    pub known_since: Option<u32>,
}

impl FilingFilter {
    /// All filings of these days.
    pub fn for_days(days: DateRange) -> Self {
        Self { category: None, doc_type: None, company: None, days, known_since: None }
    }

    /// Whether it has conditions that are checked row by row, over all rows of its days.
    pub fn needs_scan(&self) -> bool {
        self.known_since.is_some() || self.doc_type.is_some()
    }
}

/// One filing, borrowed from the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilingView<'s> {
    pub filing: FilingRow<'s>,
    /// Whether no later version of the document is known.
    pub is_latest: bool,
}

impl<'s> FilingView<'s> {
    /// The subject, or the kind of document if it has none.
    pub fn description(&self) -> Cow<'s, str> {
        let filing = &self.filing;
        if !filing.subject.is_empty() {
            return filing.subject.into();
        }

        let parts: Vec<&str> = [filing.doc_type, filing.kind].into_iter().filter(|text| !text.is_empty()).collect();
        if parts.is_empty() { filing.category.into() } else { parts.join(" - ").into() }
    }
}

/// All filings. Row numbers run through all layers.
#[derive(Debug, Clone, Default)]
pub struct Filings {
    layers: Vec<LayerView>,
}

/// A layer at its position, with the changes to its rows since it was built.
#[derive(Debug, Clone)]
struct LayerView {
    layer: Arc<FilingLayer>,
    /// Number of its first row.
    first_row: u32,
    hidden: Arc<HiddenRows>,
    /// Rows that became, or ceased to be, the latest version of their document.
    latest_overrides: Arc<HashMap<u32, bool>>,
}

/// Rows of a layer that no longer exist, sorted, also by each of their groups.
#[derive(Debug, Default)]
struct HiddenRows {
    all: Arc<[u32]>,
    by_group: HashMap<FilingGroup, Vec<u32>>,
}

impl Filings {
    pub fn len(&self) -> usize {
        self.layers.iter().map(LayerView::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, row: u32) -> FilingView<'_> {
        let (view, row) = self.locate_row(row);
        FilingView { filing: view.layer.get(row), is_latest: view.is_latest(row) }
    }

    pub fn find_by_id(&self, id: &str) -> Option<u32> {
        let find_in_layer = |view: &LayerView| {
            view.layer.find_by_id(id).filter(|row| !view.hidden.contains(*row)).map(|row| view.first_row + row)
        };
        self.layers.iter().rev().find_map(find_in_layer)
    }

    /// All versions of a row's document, the highest first.
    pub fn document_versions(&self, row: u32) -> Vec<u32> {
        let (view, row) = self.locate_row(row);
        let document = view.layer.document_key(row);

        let mut versions: Vec<(u16, FilingSortKey<'_>, u32)> = Vec::new();
        for view in &self.layers {
            let rows = view.layer.rows_of_document(&document).filter(|row| !view.hidden.contains(*row));
            versions.extend(rows.map(|row| (view.layer.version(row), view.layer.sort_key(row), view.first_row + row)));
        }

        versions.sort_unstable_by(|one, other| other.cmp(one));
        versions.into_iter().map(|(_, _, row)| row).collect()
    }

    /// The filings of a company's financial statements, the last delivered first.
    pub fn statement_filings(&self, company: CompanyId) -> Vec<FilingRow<'_>> {
        let filter = FilingFilter { company: Some(company), ..FilingFilter::for_days(DateRange::ALL) };
        let layers = self.layers.iter().filter_map(|view| view.filter_rows(None, &filter));
        let rows = layers.flat_map(|rows| rows.visible_rows().map(|row| rows.layer.get(row)).collect::<Vec<_>>());
        let mut filings: Vec<FilingRow<'_>> =
            rows.filter(|filing| StatementSet::from_cvm_dataset(filing.cvm_dataset).is_some()).collect();
        filings.sort_by_key(|filing| Reverse(filing.delivered_on));
        filings
    }

    /// Whether a row is the latest version of its document among those delivered until a day.
    pub fn is_latest_as_of(&self, row: u32, until: NaiveDate) -> bool {
        let is_delivered = |row: &u32| self.get(*row).filing.delivered_on <= until;
        self.document_versions(row).into_iter().find(is_delivered) == Some(row)
    }

    /// A page of the filings that match a filter, newest first, and their total number.
    pub fn list(&self, filter: &FilingFilter, offset: usize, limit: usize) -> RowPage {
        let category = filter.category.as_deref().map(normalize_text);
        let layers = self.layers.iter().filter_map(|view| view.filter_rows(category.as_deref(), filter));
        if !filter.needs_scan() {
            return paging::merge_page(&layers.collect::<Vec<_>>(), offset, limit);
        }

        let scanned = layers.map(|layer| {
            let conditions = RowConditions::new(layer.layer, filter);
            let rows = layer.visible_rows().filter(|row| conditions.hold(layer.layer, *row)).collect();
            (layer, rows)
        });
        paging::page_of_rows(scanned.collect(), offset, limit)
    }

    /// Like [`Self::list`], only for filings that contain the words of `text`, or have it as their id.
    pub fn list_containing(&self, text: &str, filter: &FilingFilter, offset: usize, limit: usize) -> Result<RowPage> {
        let scopes: Vec<SearchScope<'_>> = self
            .layers
            .iter()
            .map(|view| SearchScope {
                index: view.layer.index(),
                from_row: view.layer.first_row_on_or_before(filter.days.to),
                hidden_rows: view.hidden.all.clone(),
                excluded_rows: &[],
                row_weights: &[],
                facet_lookup: None,
            })
            .collect();
        let mut found = find_matching_rows(&scopes, &SearchQuery::parse(text), |_| NameTokens::default())?;
        let identified: Vec<u32> = self.find_by_id(text.trim()).into_iter().collect();
        for (view, rows) in self.layers.iter().zip(&mut found) {
            for row in view.rows_in_layer(&identified) {
                if let Err(position) = rows.binary_search(&row) {
                    rows.insert(position, row);
                }
            }
        }

        let category = filter.category.as_deref().map(normalize_text);
        let filtered = self.layers.iter().zip(found).filter_map(|(view, mut rows)| {
            let layer = view.filter_rows(category.as_deref(), filter)?;
            let conditions = RowConditions::new(layer.layer, filter);
            rows.retain(|row| layer.contains(*row) && conditions.hold(layer.layer, *row));
            Some((layer, rows))
        });
        Ok(paging::page_of_rows(filtered.collect(), offset, limit))
    }

    /// Number of filings delivered until today, by category and by year of delivery.
    pub fn facet_counts(&self, today: NaiveDate) -> [ValueCounts; 2] {
        let mut counts = FacetCounter::default();
        for view in &self.layers {
            let delivered = view.layer.first_row_on_or_before(today)..view.layer.len() as u32;
            let count_rows = |group, days| {
                let rows = view.layer.rows_in_group(group).within(days);
                FilteredLayer::new(&view.layer, view.first_row, rows, view.hidden.in_group(group)).len()
            };

            for (id, folded) in (0u32..).zip(view.layer.folded_categories()) {
                counts.add_category(view, id, folded, count_rows(FilingGroup::Category(id), delivered.clone()));
            }

            // Rows are sorted by date, so each year is a range.
            let mut start = delivered.start;
            while start < delivered.end {
                let [_, year] = view.layer.facet_ids(start);
                let first_day = NaiveDate::from_ymd_opt(year.cast_signed(), 1, 1).unwrap_or_default();
                let end = view.layer.first_row_before(first_day).max(start + 1);
                counts.add_year(year, count_rows(FilingGroup::All, start..end));
                start = end;
            }
        }
        counts.into_sorted_counts()
    }

    /// An exact id first, then by relevance, then the newest.
    pub fn search(&self, query: &str, today: NaiveDate, options: SearchOptions) -> Result<SearchResults> {
        let SearchOptions { offset, limit, .. } = options;
        let is_delivered = |row: &u32| self.get(*row).filing.delivered_on <= today;
        let identified: Vec<u32> = self.find_by_id(query.trim()).into_iter().filter(is_delivered).collect();

        let excluded_rows: Vec<Vec<u32>> = self.layers.iter().map(|view| view.rows_in_layer(&identified)).collect();
        let scopes: Vec<SearchScope<'_>> = self
            .layers
            .iter()
            .zip(&excluded_rows)
            .map(|(view, excluded)| SearchScope {
                index: view.layer.index(),
                from_row: view.layer.first_row_on_or_before(today),
                hidden_rows: view.hidden.all.clone(),
                excluded_rows: excluded,
                row_weights: &[],
                facet_lookup: options
                    .count_facets
                    .then(|| -> FacetLookup<'_> { Box::new(|row| view.layer.facet_ids(row)) }),
            })
            .collect();

        let mut rows: Vec<u32> = identified.iter().skip(offset).take(limit).copied().collect();
        let offset = offset.saturating_sub(identified.len());
        let limit = limit - rows.len();

        // Filings have no name.
        let mut hits =
            search(&scopes, &SearchQuery::parse(query), |_| NameTokens::default(), offset.saturating_add(limit))?;
        if self.layers.len() > 1 {
            // Scores are never negative, so their bits sort like the scores.
            let sort_key = |scope: usize, row: u32| -> FilingSortKey<'_> { self.layers[scope].layer.sort_key(row) };
            hits.best.sort_by_key(|hit| Reverse((hit.score.to_bits(), sort_key(hit.scope_index, hit.row))));
        }
        rows.extend(
            hits.best.iter().skip(offset).take(limit).map(|hit| self.layers[hit.scope_index].first_row + hit.row),
        );

        let mut counts = FacetCounter::default();
        for (view, [categories, years]) in self.layers.iter().zip(&hits.facet_counts) {
            for (id, count) in categories {
                counts.add_category(view, *id, &view.layer.folded_categories()[*id as usize], *count);
            }
            years.iter().for_each(|(year, count)| counts.add_year(*year, *count));
        }
        for row in identified.iter().filter(|_| options.count_facets) {
            let (view, row) = self.locate_row(*row);
            let [category, year] = view.layer.facet_ids(row);
            counts.add_category(view, category, &view.layer.folded_categories()[category as usize], 1);
            counts.add_year(year, 1);
        }

        let page = RowPage { total: identified.len() + hits.total, rows };
        Ok(SearchResults { page, facet_counts: counts.into_sorted_counts(), matched_words: hits.matched_words })
    }

    /// Every issuer with the name in its newest filing until a day, and since when we know that filing.
    pub fn issuer_names(&self, until: NaiveDate) -> BTreeMap<CompanyId, (&str, RowProvenance)> {
        let mut newest: BTreeMap<CompanyId, (FilingSortKey<'_>, FilingRow<'_>)> = BTreeMap::new();
        for view in &self.layers {
            for (id, rows) in view.layer.rows_by_issuer() {
                let first = view.layer.first_row_on_or_before(until);
                let is_visible = |row: &&u32| **row >= first && !view.hidden.contains(**row);
                let Some(row) = rows.iter().find(is_visible) else { continue };

                let key = view.layer.sort_key(*row);
                let filing = view.layer.get(*row);
                let entry = newest.entry(id).or_insert((key, filing));
                if key > entry.0 {
                    *entry = (key, filing);
                }
            }
        }
        newest.into_iter().map(|(id, (_, filing))| (id, (filing.company_name, filing.provenance))).collect()
    }

    fn locate_row(&self, row: u32) -> (&LayerView, u32) {
        let index = self.layers.partition_point(|view| view.first_row <= row) - 1;
        let view = &self.layers[index];
        (view, row - view.first_row)
    }
}

/// The conditions of a filter that are checked row by row, by ids of one layer.
struct RowConditions {
    doc_types: Option<Vec<u32>>,
    known_since: Option<u32>,
}

impl RowConditions {
    fn new(layer: &FilingLayer, filter: &FilingFilter) -> Self {
        let doc_types = filter.doc_type.as_deref().map(|doc_type| layer.find_doc_types(&normalize_text(doc_type)));
        Self { doc_types, known_since: filter.known_since }
    }

    fn hold(&self, layer: &FilingLayer, row: u32) -> bool {
        self.known_since.is_none_or(|second| layer.known_at(row) >= second)
            && self.doc_types.as_ref().is_none_or(|ids| ids.contains(&layer.doc_type(row)))
    }
}

/// Adds up counts over layers. Categories that differ only in case and accents count as one, as in the filter.
#[derive(Default)]
struct FacetCounter {
    /// By folded category: its spelling and its count.
    categories: HashMap<String, (String, usize)>,
    years: HashMap<String, usize>,
}

impl FacetCounter {
    fn add_category(&mut self, view: &LayerView, category: u32, folded: &str, count: usize) {
        if count == 0 {
            return;
        }

        // Spelled as in its newest filing.
        let spelling = || {
            let rows = view.layer.rows_in_group(FilingGroup::Category(category));
            view.layer.get(rows.get(0)).category.to_owned()
        };
        self.categories.entry(folded.to_owned()).or_insert_with(|| (spelling(), 0)).1 += count;
    }

    fn add_year(&mut self, year: u32, count: usize) {
        *self.years.entry(year.to_string()).or_default() += count;
    }

    fn into_sorted_counts(self) -> [ValueCounts; 2] {
        [sort_counts_descending(self.categories.into_values().collect()), sort_counts_descending(self.years)]
    }
}

impl LayerView {
    /// Number of visible rows.
    fn len(&self) -> usize {
        self.layer.len() - self.hidden.all.len()
    }

    /// The rows in the group and the days of a filter; `None` if the layer has no such group. `category` must be folded.
    fn filter_rows(&self, category: Option<&str>, filter: &FilingFilter) -> Option<FilteredLayer<'_>> {
        let group = self.layer.find_group(category, filter.company)?;
        let days = self.layer.first_row_on_or_before(filter.days.to)..self.layer.first_row_before(filter.days.from);
        let rows = self.layer.rows_in_group(group).within(days);
        Some(FilteredLayer::new(&self.layer, self.first_row, rows, self.hidden.in_group(group)))
    }

    fn is_latest(&self, row: u32) -> bool {
        self.latest_overrides.get(&row).copied().unwrap_or_else(|| self.layer.is_latest(row))
    }

    fn visible_rows(&self) -> impl Iterator<Item = u32> {
        (0..self.layer.len() as u32).filter(|row| !self.hidden.contains(*row))
    }

    /// Those of the given rows that lie in this layer, by their number within it.
    fn rows_in_layer(&self, rows: &[u32]) -> Vec<u32> {
        let relative_rows = rows.iter().filter_map(|row| row.checked_sub(self.first_row));
        relative_rows.filter(|row| (*row as usize) < self.layer.len()).collect()
    }
}

impl HiddenRows {
    fn new(layer: &FilingLayer, mut rows: Vec<u32>) -> Self {
        rows.sort_unstable();
        rows.dedup();

        let mut by_group: HashMap<FilingGroup, Vec<u32>> = HashMap::new();
        for row in &rows {
            for group in layer.groups_of_row(*row) {
                by_group.entry(group).or_default().push(*row);
            }
        }
        Self { all: rows.into(), by_group }
    }

    fn in_group(&self, group: FilingGroup) -> &[u32] {
        match group {
            FilingGroup::All => &self.all,
            _ => self.by_group.get(&group).map_or(&[], Vec::as_slice),
        }
    }

    fn contains(&self, row: u32) -> bool {
        self.all.binary_search(&row).is_ok()
    }
}
