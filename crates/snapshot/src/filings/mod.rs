//! Filings: layers, of which each was built once and the last ones are small, so that a load costs what it brings.
//!
//! A row that was changed or taken away later is hidden in the layer that has it. All that is read goes over the layers
//! at once: what comes out is as if there were one.

mod layer;
mod next;
mod run;
mod saved;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::NaiveDate;
use vintem_domain::text::fold;
use vintem_domain::{CompanyId, DateRange};
use vintem_store::read::{FilingRow, Known};

use crate::index::{Called, FacetsOf, Scope, search};
use crate::query::Query;
use crate::{Counts, Found, Result, Searched, Wanted, sorted_counts};
use layer::{Group, Key, Layer};
use run::Run;

pub use layer::LayerBuilder;

#[derive(Debug, Clone)]
pub struct FilingFilter {
    /// Equality, blind to case and accents.
    pub category: Option<String>,
    pub company: Option<CompanyId>,
    pub days: DateRange,
    /// Only what we know since this second or later.
    pub known_since: Option<u32>,
}

impl FilingFilter {
    /// All of these days.
    pub fn of_days(days: DateRange) -> Self {
        Self { category: None, company: None, days, known_since: None }
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
    /// The subject; where there is none, what kind of document it is.
    pub fn description(&self) -> Cow<'s, str> {
        let filing = &self.filing;
        if !filing.subject.is_empty() {
            return filing.subject.into();
        }
        let said: Vec<&str> = [filing.doc_type, filing.kind].into_iter().filter(|text| !text.is_empty()).collect();
        if said.is_empty() { filing.category.into() } else { said.join(" - ").into() }
    }
}

/// Rows are numbered through all layers.
#[derive(Debug, Clone, Default)]
pub struct Filings {
    layers: Vec<Laid>,
}

/// A layer in its place, with what happened to its rows since it was built.
#[derive(Debug, Clone)]
struct Laid {
    layer: Arc<Layer>,
    /// The number of its first row.
    first: u32,
    hidden: Arc<Hidden>,
    /// Rows that became the latest version of their document, or ceased to be.
    latest: Arc<HashMap<u32, bool>>,
}

/// Rows of a layer that are no more, sorted, also by each group that they were in.
#[derive(Debug, Default)]
struct Hidden {
    all: Arc<[u32]>,
    by_group: HashMap<Group, Vec<u32>>,
}

impl Filings {
    pub fn len(&self) -> usize {
        self.layers.iter().map(Laid::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, row: u32) -> FilingView<'_> {
        let (laid, row) = self.place(row);
        FilingView { filing: laid.layer.get(row), is_latest: laid.is_latest(row) }
    }

    pub fn by_id(&self, id: &str) -> Option<u32> {
        let found =
            |laid: &Laid| laid.layer.by_id(id).filter(|row| !laid.hidden.holds(*row)).map(|row| laid.first + row);
        self.layers.iter().rev().find_map(found)
    }

    /// Every version of the document that a row is one of, the highest first.
    pub fn versions(&self, row: u32) -> Vec<u32> {
        let (laid, row) = self.place(row);
        let document = laid.layer.document(row);
        let mut versions: Vec<(u16, Key<'_>, u32)> = Vec::new();
        for laid in &self.layers {
            let rows = laid.layer.versions(&document).filter(|row| !laid.hidden.holds(*row));
            versions.extend(rows.map(|row| (laid.layer.version(row), laid.layer.key(row), laid.first + row)));
        }
        versions.sort_unstable_by(|one, other| other.cmp(one));
        versions.into_iter().map(|(_, _, row)| row).collect()
    }

    /// Whether a row is the latest version of its document of those delivered until a day.
    pub fn is_latest_until(&self, row: u32, until: NaiveDate) -> bool {
        let delivered = |row: &u32| self.get(*row).filing.delivered_on <= until;
        self.versions(row).into_iter().find(delivered) == Some(row)
    }

    /// A page of what a filter leaves, newest first, and how many there are.
    pub fn list(&self, filter: &FilingFilter, offset: usize, limit: usize) -> Found {
        let category = filter.category.as_deref().map(fold);
        let runs: Vec<Run<'_>> = self
            .layers
            .iter()
            .filter_map(|laid| {
                let group = laid.layer.group(category.as_deref(), filter.company)?;
                let days = laid.layer.first_row_until(filter.days.to)..laid.layer.first_row_before(filter.days.from);
                Some(Run::new(&laid.layer, laid.first, laid.layer.rows(group).within(days), laid.hidden.of(group)))
            })
            .collect();
        match filter.known_since {
            Some(second) => run::page_known_since(&runs, second, offset, limit),
            None => run::page(&runs, offset, limit),
        }
    }

    /// How many filings there are until a day, by category and by year of delivery.
    pub fn facets(&self, today: NaiveDate) -> [Counts; 2] {
        let mut counts = FacetCounts::default();
        for laid in &self.layers {
            let delivered = laid.layer.first_row_until(today)..laid.layer.len() as u32;
            let run = |group, days| {
                let rows = laid.layer.rows(group).within(days);
                Run::new(&laid.layer, laid.first, rows, laid.hidden.of(group)).len()
            };
            for (number, folded) in (0u32..).zip(laid.layer.folded_categories()) {
                counts.add_category(laid, number, folded, run(Group::Category(number), delivered.clone()));
            }
            let mut start = delivered.start;
            while start < delivered.end {
                let [_, year] = laid.layer.facets(start);
                let first_day = NaiveDate::from_ymd_opt(year.cast_signed(), 1, 1).unwrap_or_default();
                let end = laid.layer.first_row_before(first_day).max(start + 1);
                counts.add_year(year, run(Group::All, start..end));
                start = end;
            }
        }
        counts.sorted()
    }

    /// An exact id first, then by relevance, then the newest.
    pub fn search(&self, query: &str, today: NaiveDate, wanted: Wanted) -> Result<Searched> {
        let Wanted { offset, limit, .. } = wanted;
        let is_delivered = |row: &u32| self.get(*row).filing.delivered_on <= today;
        let identified: Vec<u32> = self.by_id(query.trim()).into_iter().filter(is_delivered).collect();
        let without: Vec<Vec<u32>> = self.layers.iter().map(|laid| laid.without(&identified)).collect();
        let scopes: Vec<Scope<'_>> = self
            .layers
            .iter()
            .zip(&without)
            .map(|(laid, without)| Scope {
                index: laid.layer.index(),
                from_row: laid.layer.first_row_until(today),
                hidden: laid.hidden.all.clone(),
                without,
                weights: &[],
                facets: wanted.facets.then(|| -> FacetsOf<'_> { Box::new(|row| laid.layer.facets(row)) }),
            })
            .collect();
        let mut rows: Vec<u32> = identified.iter().skip(offset).take(limit).copied().collect();
        let (offset, limit) = (offset.saturating_sub(identified.len()), limit - rows.len());
        // A filing has no name.
        let mut hits = search(&scopes, &Query::parse(query), |_| Called::default(), offset.saturating_add(limit))?;
        if self.layers.len() > 1 {
            // Scores are never negative, so their bits are in order.
            let order = |scope: usize, row: u32| -> Key<'_> { self.layers[scope].layer.key(row) };
            hits.best.sort_by_key(|hit| Reverse((hit.score.to_bits(), order(hit.scope, hit.row))));
        }
        rows.extend(hits.best.iter().skip(offset).take(limit).map(|hit| self.layers[hit.scope].first + hit.row));
        let mut counts = FacetCounts::default();
        for (laid, [categories, years]) in self.layers.iter().zip(&hits.counts) {
            for (number, count) in categories {
                counts.add_category(laid, *number, &laid.layer.folded_categories()[*number as usize], *count);
            }
            years.iter().for_each(|(year, count)| counts.add_year(*year, *count));
        }
        for row in identified.iter().filter(|_| wanted.facets) {
            let (laid, row) = self.place(*row);
            let [number, year] = laid.layer.facets(row);
            counts.add_category(laid, number, &laid.layer.folded_categories()[number as usize], 1);
            counts.add_year(year, 1);
        }
        let found = Found { total: identified.len() + hits.total, rows };
        Ok(Searched { found, facets: counts.sorted(), words: hits.words })
    }

    /// Every issuer with the name that its newest filing until a day gives it, and since when we know that one.
    pub fn issuers(&self, until: NaiveDate) -> BTreeMap<CompanyId, (&str, Known)> {
        let mut newest: BTreeMap<CompanyId, (Key<'_>, FilingRow<'_>)> = BTreeMap::new();
        for laid in &self.layers {
            for (id, rows) in laid.layer.issuers() {
                let first = laid.layer.first_row_until(until);
                let is_there = |row: &&u32| **row >= first && !laid.hidden.holds(**row);
                let Some(row) = rows.iter().find(is_there) else { continue };
                let (key, filing) = (laid.layer.key(*row), laid.layer.get(*row));
                let held = newest.entry(id).or_insert((key, filing));
                if key > held.0 {
                    *held = (key, filing);
                }
            }
        }
        newest.into_iter().map(|(id, (_, filing))| (id, (filing.company_name, filing.known))).collect()
    }

    fn place(&self, row: u32) -> (&Laid, u32) {
        let at = self.layers.partition_point(|laid| laid.first <= row) - 1;
        let laid = &self.layers[at];
        (laid, row - laid.first)
    }
}

/// Counts that add up over layers. Categories that differ in case and accents alone are one, as in the filter.
#[derive(Default)]
struct FacetCounts {
    /// By folded category: how it is spelled, and how often it occurs.
    categories: HashMap<String, (String, usize)>,
    years: HashMap<String, usize>,
}

impl FacetCounts {
    fn add_category(&mut self, laid: &Laid, number: u32, folded: &str, count: usize) {
        if count == 0 {
            return;
        }
        // As its newest filing spells it.
        let spelled = || {
            let rows = laid.layer.rows(Group::Category(number));
            laid.layer.get(rows.get(0)).category.to_owned()
        };
        self.categories.entry(folded.to_owned()).or_insert_with(|| (spelled(), 0)).1 += count;
    }

    fn add_year(&mut self, year: u32, count: usize) {
        *self.years.entry(year.to_string()).or_default() += count;
    }

    fn sorted(self) -> [Counts; 2] {
        [sorted_counts(self.categories.into_values().collect()), sorted_counts(self.years)]
    }
}

impl Laid {
    /// Those that are not hidden.
    fn len(&self) -> usize {
        self.layer.len() - self.hidden.all.len()
    }

    fn is_latest(&self, row: u32) -> bool {
        self.latest.get(&row).copied().unwrap_or_else(|| self.layer.is_latest(row))
    }

    fn live_rows(&self) -> impl Iterator<Item = u32> {
        (0..self.layer.len() as u32).filter(|row| !self.hidden.holds(*row))
    }

    /// Of rows numbered through all layers those of this one.
    fn without(&self, rows: &[u32]) -> Vec<u32> {
        let of_layer = rows.iter().filter_map(|row| row.checked_sub(self.first));
        of_layer.filter(|row| (*row as usize) < self.layer.len()).collect()
    }
}

impl Hidden {
    fn new(layer: &Layer, mut rows: Vec<u32>) -> Self {
        rows.sort_unstable();
        rows.dedup();
        let mut by_group: HashMap<Group, Vec<u32>> = HashMap::new();
        for row in &rows {
            for group in layer.groups_of(*row) {
                by_group.entry(group).or_default().push(*row);
            }
        }
        Self { all: rows.into(), by_group }
    }

    fn of(&self, group: Group) -> &[u32] {
        match group {
            Group::All => &self.all,
            _ => self.by_group.get(&group).map_or(&[], Vec::as_slice),
        }
    }

    fn holds(&self, row: u32) -> bool {
        self.all.binary_search(&row).is_ok()
    }
}
