//! Filings: columns in the order in which they are listed, and beside them the orders in which they are looked up.
//!
//! A row is a place in the list of all filings by date, then id, both descending. So the newest are first, a range of
//! dates is a range of rows, and a page at any depth of any filter is found by binary search.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use chrono::{Datelike, NaiveDate};
use vintem_domain::text::fold;
use vintem_domain::{CompanyId, DateRange, FilingSet};
use vintem_store::read::FilingRow;

use crate::columns::{Groups, Interner, TextColumn};
use crate::index::{SearchIndex, SearchIndexWriter};
use crate::{Found, Result};

#[derive(Debug, Clone)]
pub struct FilingFilter {
    /// Equality, blind to case and accents.
    pub category: Option<String>,
    pub company: Option<CompanyId>,
    pub days: DateRange,
}

/// One filing, borrowed from the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilingView<'s> {
    pub filing: FilingRow<'s>,
    /// Whether no later version of the document is known.
    pub is_latest: bool,
}

/// No reference date: a day that no document names.
const NO_DAY: i32 = i32::MIN;

/// The columns, in any order.
#[derive(Debug, Default)]
struct Columns {
    ids: TextColumn,
    subjects: TextColumn,
    protocols: TextColumn,
    urls: TextColumn,
    sets: Vec<FilingSet>,
    /// Numbers of `Texts::companies`.
    companies: Vec<u32>,
    names: Vec<u32>,
    categories: Vec<u32>,
    doc_types: Vec<u32>,
    kinds: Vec<u32>,
    /// Days since the year 1.
    delivered_on: Vec<i32>,
    reference_dates: Vec<i32>,
    versions: Vec<u16>,
}

/// What many filings share, each once.
#[derive(Debug, Default)]
struct Texts {
    company_numbers: HashMap<CompanyId, u32>,
    company_ids: Vec<CompanyId>,
    names: Interner,
    categories: Interner,
    doc_types: Interner,
    kinds: Interner,
}

/// Takes filings in any order.
#[derive(Debug, Default)]
pub struct FilingsBuilder {
    columns: Columns,
    texts: Texts,
}

#[derive(Debug)]
pub struct Filings {
    columns: Columns,
    texts: Texts,
    latest: Vec<bool>,
    /// The folded category of each category, and its number among the folded ones.
    folded_categories: Interner,
    folded_of: Vec<u32>,
    by_id: Vec<u32>,
    by_category: Groups,
    by_company: Groups,
    /// Sorted by company, folded category, row.
    by_company_and_category: Vec<u32>,
    index: SearchIndex,
}

impl FilingsBuilder {
    pub fn push(&mut self, filing: &FilingRow<'_>) {
        let (columns, texts) = (&mut self.columns, &mut self.texts);
        columns.ids.push(filing.id);
        columns.subjects.push(filing.subject);
        columns.protocols.push(filing.protocol);
        columns.urls.push(filing.url);
        columns.sets.push(filing.set);
        columns.companies.push(texts.company_number(filing.company_id));
        columns.names.push(texts.names.number(filing.company_name));
        columns.categories.push(texts.categories.number(filing.category));
        columns.doc_types.push(texts.doc_types.number(filing.doc_type));
        columns.kinds.push(texts.kinds.number(filing.kind));
        columns.delivered_on.push(filing.delivered_on.num_days_from_ce());
        columns.reference_dates.push(filing.reference_date.map_or(NO_DAY, |day| day.num_days_from_ce()));
        columns.versions.push(filing.version);
    }

    /// Sorts, groups and indexes: takes seconds for a million, so not on a thread that serves.
    pub fn build(self) -> Result<Filings> {
        let Self { columns, texts } = self;
        let mut order: Vec<u32> = (0..columns.len() as u32).collect();
        order.sort_unstable_by(|a, b| {
            let dates = columns.delivered_on[*b as usize].cmp(&columns.delivered_on[*a as usize]);
            dates.then_with(|| columns.ids.get(*b).cmp(columns.ids.get(*a)))
        });
        let columns = columns.reordered(&order);
        let rows = columns.len();

        let mut by_id: Vec<u32> = (0..rows as u32).collect();
        by_id.sort_unstable_by(|a, b| columns.ids.get(*a).cmp(columns.ids.get(*b)));

        let mut folded_categories = Interner::default();
        let folded_of: Vec<u32> =
            texts.categories.texts().iter().map(|category| folded_categories.number(&fold(category))).collect();
        let folded = |row: u32| folded_of[columns.categories[row as usize] as usize];
        let company = |row: u32| columns.companies[row as usize];
        let by_category = Groups::new(folded_categories.texts().len(), folded, rows);
        let by_company = Groups::new(texts.company_ids.len(), company, rows);
        let mut by_company_and_category: Vec<u32> = (0..rows as u32).collect();
        by_company_and_category.sort_unstable_by_key(|row| (company(*row), folded(*row), *row));

        let latest = latest_versions(&columns);
        let index = index(&columns, &texts)?;
        Ok(Filings {
            columns,
            texts,
            latest,
            folded_categories,
            folded_of,
            by_id,
            by_category,
            by_company,
            by_company_and_category,
            index,
        })
    }
}

impl Filings {
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, row: u32) -> FilingView<'_> {
        let (columns, texts, at) = (&self.columns, &self.texts, row as usize);
        let day = |number: i32| NaiveDate::from_num_days_from_ce_opt(number);
        let filing = FilingRow {
            id: columns.ids.get(row),
            set: columns.sets[at],
            company_id: texts.company_ids[columns.companies[at] as usize],
            company_name: texts.names.get(columns.names[at]),
            category: texts.categories.get(columns.categories[at]),
            doc_type: texts.doc_types.get(columns.doc_types[at]),
            kind: texts.kinds.get(columns.kinds[at]),
            subject: columns.subjects.get(row),
            delivered_on: day(columns.delivered_on[at]).unwrap_or_default(),
            reference_date: Some(columns.reference_dates[at]).filter(|number| *number != NO_DAY).and_then(day),
            version: columns.versions[at],
            protocol: columns.protocols.get(row),
            url: columns.urls.get(row),
        };
        FilingView { filing, is_latest: self.latest[at] }
    }

    pub fn by_id(&self, id: &str) -> Option<u32> {
        let at = self.by_id.binary_search_by(|row| self.columns.ids.get(*row).cmp(id)).ok()?;
        Some(self.by_id[at])
    }

    /// The first row that is not after this day.
    pub fn first_row_until(&self, today: NaiveDate) -> u32 {
        let today = today.num_days_from_ce();
        self.columns.delivered_on.partition_point(|day| *day > today) as u32
    }

    /// A page of what a filter leaves, newest first, and how many there are.
    pub fn list(&self, filter: &FilingFilter, offset: usize, limit: usize) -> Found {
        let category = match &filter.category {
            None => None,
            Some(category) => match self.folded_categories.find(&fold(category)) {
                Some(number) => Some(number),
                None => return Found::default(),
            },
        };
        let company = match filter.company {
            None => None,
            Some(id) => match self.texts.company_numbers.get(&id) {
                Some(number) => Some(*number),
                None => return Found::default(),
            },
        };
        let group = match (company, category) {
            (None, None) => return self.list_all(filter.days, offset, limit),
            (None, Some(category)) => self.by_category.get(category),
            (Some(company), None) => self.by_company.get(company),
            (Some(company), Some(category)) => self.of_company_and_category(company, category),
        };
        let (from, to) = (filter.days.from.num_days_from_ce(), filter.days.to.num_days_from_ce());
        let day = |row: &u32| self.columns.delivered_on[*row as usize];
        let start = group.partition_point(|row| day(row) > to);
        let end = group.partition_point(|row| day(row) >= from).max(start);
        let rows = &group[start..end];
        Found { total: rows.len(), rows: rows.iter().skip(offset).take(limit).copied().collect() }
    }

    /// An exact id first, then by relevance, then the newest.
    pub fn search(&self, query: &str, today: NaiveDate, offset: usize, limit: usize) -> Result<Found> {
        let first_row = self.first_row_until(today);
        let identified: Vec<u32> = self.by_id(query.trim()).into_iter().filter(|row| *row >= first_row).collect();
        self.index.search(query, &identified, first_row, offset, limit)
    }

    /// Every issuer with the name that its newest filing gives it.
    pub fn issuers(&self) -> impl Iterator<Item = (CompanyId, &str)> {
        (0u32..).zip(&self.texts.company_ids).filter_map(|(number, id)| {
            let newest = *self.by_company.get(number).first()?;
            Some((*id, self.texts.names.get(self.columns.names[newest as usize])))
        })
    }

    fn list_all(&self, days: DateRange, offset: usize, limit: usize) -> Found {
        let (from, to) = (days.from.num_days_from_ce(), days.to.num_days_from_ce());
        let start = self.columns.delivered_on.partition_point(|day| *day > to);
        let end = self.columns.delivered_on.partition_point(|day| *day >= from).max(start);
        Found { total: end - start, rows: (start as u32..end as u32).skip(offset).take(limit).collect() }
    }

    fn of_company_and_category(&self, company: u32, category: u32) -> &[u32] {
        let key = |row: &u32| {
            let at = *row as usize;
            (self.columns.companies[at], self.folded_of[self.columns.categories[at] as usize])
        };
        let rows = &self.by_company_and_category;
        let start = rows.partition_point(|row| key(row) < (company, category));
        let end = rows.partition_point(|row| key(row) <= (company, category));
        &rows[start..end]
    }
}

impl Columns {
    fn len(&self) -> usize {
        self.sets.len()
    }

    fn reordered(&self, order: &[u32]) -> Self {
        fn pick<T: Copy>(column: &[T], order: &[u32]) -> Vec<T> {
            order.iter().map(|at| column[*at as usize]).collect()
        }
        Self {
            ids: self.ids.reordered(order),
            subjects: self.subjects.reordered(order),
            protocols: self.protocols.reordered(order),
            urls: self.urls.reordered(order),
            sets: pick(&self.sets, order),
            companies: pick(&self.companies, order),
            names: pick(&self.names, order),
            categories: pick(&self.categories, order),
            doc_types: pick(&self.doc_types, order),
            kinds: pick(&self.kinds, order),
            delivered_on: pick(&self.delivered_on, order),
            reference_dates: pick(&self.reference_dates, order),
            versions: pick(&self.versions, order),
        }
    }
}

impl Texts {
    fn company_number(&mut self, id: CompanyId) -> u32 {
        *self.company_numbers.entry(id).or_insert_with(|| {
            self.company_ids.push(id);
            self.company_ids.len() as u32 - 1
        })
    }
}

/// Of the versions of one document the highest, the newest of equals. Versions belong together by set, company and
/// reference date; in IPE, which mixes all kinds of documents, also by what the document is.
fn latest_versions(columns: &Columns) -> Vec<bool> {
    let document = |row: u32| {
        let at = row as usize;
        let mut hasher = DefaultHasher::new();
        (columns.sets[at], columns.companies[at], columns.reference_dates[at]).hash(&mut hasher);
        if columns.sets[at] == FilingSet::Ipe {
            (columns.categories[at], columns.doc_types[at], columns.kinds[at]).hash(&mut hasher);
            columns.subjects.get(row).hash(&mut hasher);
        }
        hasher.finish()
    };
    let mut best: HashMap<u64, u32> = HashMap::with_capacity(columns.len());
    for row in 0..columns.len() as u32 {
        let leader = best.entry(document(row)).or_insert(row);
        if columns.versions[row as usize] > columns.versions[*leader as usize] {
            *leader = row;
        }
    }
    let mut latest = vec![false; columns.len()];
    for row in best.into_values() {
        latest[row as usize] = true;
    }
    latest
}

fn index(columns: &Columns, texts: &Texts) -> Result<SearchIndex> {
    let mut writer = SearchIndexWriter::new()?;
    let mut text = String::new();
    for row in 0..columns.len() as u32 {
        let at = row as usize;
        text.clear();
        let said = [
            texts.categories.get(columns.categories[at]),
            texts.doc_types.get(columns.doc_types[at]),
            texts.kinds.get(columns.kinds[at]),
            texts.names.get(columns.names[at]),
        ];
        for part in said {
            text.push_str(part);
            text.push(' ');
        }
        writer.add(columns.subjects.get(row), &text)?;
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    fn filing<'a>(id: &'a str, company_id: u32, category: &'a str, on: &str, version: u16) -> FilingRow<'a> {
        FilingRow {
            id,
            set: FilingSet::Ipe,
            company_id,
            company_name: "CERÂMICA SERRA S.A.",
            category,
            doc_type: "",
            kind: "",
            subject: "Pagamento de dividendos",
            delivered_on: day(on),
            reference_date: Some(day("2026-01-01")),
            version,
            protocol: "",
            url: "",
        }
    }

    fn filings() -> Filings {
        let mut builder = FilingsBuilder::default();
        let rows = [
            ("10", 1, "Fato Relevante", "2026-01-05", 1),
            ("12", 1, "FATO RELEVANTE", "2026-01-07", 2),
            ("11", 2, "Assembleia", "2026-01-05", 1),
            ("13", 2, "Fato Relevante", "2026-02-01", 1),
        ];
        for (id, company, category, on, version) in rows {
            builder.push(&filing(id, company, category, on, version));
        }
        builder.build().unwrap()
    }

    fn ids(filings: &Filings, found: &Found) -> Vec<String> {
        found.rows.iter().map(|row| filings.get(*row).filing.id.to_owned()).collect()
    }

    #[test]
    fn every_filter_has_its_exact_total_and_order() {
        let filings = filings();
        let list = |category: Option<&str>, company, from: &str, to: &str| {
            let days = DateRange { from: day(from), to: day(to) };
            let found = filings.list(&FilingFilter { category: category.map(str::to_owned), company, days }, 0, 10);
            assert_eq!(found.total, found.rows.len());
            ids(&filings, &found)
        };
        assert_eq!(list(None, None, "2000-01-01", "2100-01-01"), ["13", "12", "11", "10"]);
        assert_eq!(list(Some("fato relevante"), None, "2000-01-01", "2026-01-31"), ["12", "10"]);
        assert_eq!(list(None, Some(2), "2000-01-01", "2100-01-01"), ["13", "11"]);
        assert_eq!(list(Some("Fato Relevante"), Some(2), "2026-02-01", "2026-02-01"), ["13"]);
        assert_eq!(list(Some("Assembléia"), Some(1), "2000-01-01", "2100-01-01"), [""; 0]);
        assert_eq!(list(Some("nenhuma"), None, "2000-01-01", "2100-01-01"), [""; 0]);
        assert_eq!(list(None, Some(99), "2000-01-01", "2100-01-01"), [""; 0]);
    }

    #[test]
    fn a_filing_is_found_by_its_id_and_by_its_words() {
        let filings = filings();
        assert_eq!(filings.by_id("11").map(|row| filings.get(row).filing.id), Some("11"));
        assert_eq!(filings.by_id("99"), None);
        let found = filings.search("dividendos", day("2026-01-31"), 0, 10).unwrap();
        assert_eq!(ids(&filings, &found), ["12", "11", "10"]);
        let found = filings.search("10", day("2026-12-31"), 0, 10).unwrap();
        assert_eq!(ids(&filings, &found), ["10"]);
    }

    #[test]
    fn only_the_highest_version_is_the_latest() {
        let mut builder = FilingsBuilder::default();
        for (id, version) in [("1", 1), ("3", 3), ("2", 2)] {
            builder.push(&filing(id, 1, "Assembleia", "2026-01-05", version));
        }
        builder.push(&filing("4", 2, "Assembleia", "2026-01-05", 1));
        let filings = builder.build().unwrap();
        let latest: Vec<&str> =
            (0..4).map(|row| filings.get(row)).filter(|view| view.is_latest).map(|view| view.filing.id).collect();
        assert_eq!(latest, ["4", "3"]);
    }
}
