//! One layer of filings: columns in the order in which they are listed, and beside them the orders in which they are
//! looked up. Never changed once it is built.
//!
//! A row is a place in the layer's list by date, then id, both descending. So the newest are first, a range of dates is
//! a range of rows, and a page at any depth of any filter is found by binary search.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use chrono::{Datelike, NaiveDate};
use vintem_domain::text::fold;
use vintem_domain::{CompanyId, FilingSet};
use vintem_store::read::{FilingRow, Known};

use crate::Result;
use crate::analysis::words;
use crate::columns::{Groups, Interner, TextColumn};
use crate::copy::{CopyError, CopyReader, CopyWriter};
use crate::index::{Entry, SearchIndex, build_parts};

/// No reference date: a day that no document names.
const NO_DAY: i32 = i32::MIN;

/// How the names of files begin that hold a layer.
pub const FILE_BEGINNING: &str = "filings-";

/// The columns, in any order.
#[derive(Debug, Default)]
struct Columns {
    ids: TextColumn,
    subjects: TextColumn,
    protocols: TextColumn,
    urls: TextColumn,
    sets: Vec<FilingSet>,
    /// Numbers of `Texts::company_ids`.
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
    /// Since when we know each, and which fetch brought it.
    known_at: Vec<u32>,
    fetches: Vec<u32>,
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
pub struct LayerBuilder {
    columns: Columns,
    texts: Texts,
}

#[derive(Debug)]
pub struct Layer {
    columns: Columns,
    texts: Texts,
    /// The folded category of each category, and its number among the folded ones.
    folded_categories: Interner,
    folded_of: Vec<u32>,
    by_id: Vec<u32>,
    by_category: Groups,
    by_company: Groups,
    /// Sorted by company, folded category, row.
    by_company_and_category: Vec<u32>,
    index: SearchIndex,
    /// The file of the copy on disk that holds it, once there is one.
    file: OnceLock<String>,
}

/// What the rows of a list come after each other by, the largest first.
pub type Key<'s> = (i32, &'s str);

/// Which rows of a layer a filter leaves, whatever their dates, by numbers of this layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    All,
    Category(u32),
    Company(u32),
    Both(u32, u32),
}

/// Rows of a layer in ascending order.
#[derive(Debug, Clone)]
pub enum Rows<'s> {
    Range(Range<u32>),
    Listed(&'s [u32]),
}

/// What the versions of one document have in common. In IPE, which mixes all kinds of documents, that is also what the
/// document is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Document {
    set: FilingSet,
    company: CompanyId,
    category: String,
    reference_date: i32,
    doc_type: String,
    kind: String,
    subject: String,
}

impl LayerBuilder {
    pub fn push(&mut self, filing: &FilingRow<'_>, is_latest: bool) {
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
        columns.latest.push(is_latest);
        columns.known_at.push(filing.known.at);
        columns.fetches.push(filing.known.fetch);
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

    /// What its rows are versions of.
    pub fn documents(&self) -> impl Iterator<Item = Document> {
        (0..self.len() as u32).map(|row| document(&self.columns, &self.texts, row))
    }

    /// The layer of all filings that there are: which versions are the latest is found out.
    pub fn build_first(mut self, threads: usize) -> Result<Layer> {
        self.columns.latest = latest_versions(&self.columns);
        self.build(threads)
    }

    /// Sorts, groups and indexes: takes seconds for a million, so not on a thread that serves.
    pub fn build(self, threads: usize) -> Result<Layer> {
        let Self { columns, texts } = self;
        let columns = columns.reordered(&list_order(&columns));
        let rows = columns.len();
        let mut folded_categories = Interner::default();
        let folded_of: Vec<u32> =
            texts.categories.texts().iter().map(|category| folded_categories.number(&fold(category))).collect();
        let folded = |row: u32| folded_of[columns.categories[row as usize] as usize];
        let company = |row: u32| columns.companies[row as usize];
        let by_category = Groups::new(folded_categories.texts().len(), folded, rows);
        let by_company = Groups::new(texts.company_ids.len(), company, rows);
        let by_company_and_category = sorted_by_company_and_category(rows, company, folded);
        let by_id = sorted_by_id(&columns.ids, rows);
        let index = index(&columns, &texts, threads)?;
        Ok(Layer {
            columns,
            texts,
            folded_categories,
            folded_of,
            by_id,
            by_category,
            by_company,
            by_company_and_category,
            index,
            file: OnceLock::new(),
        })
    }
}

impl Layer {
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// The name of its file in a directory, which is written where there is none yet.
    pub fn save(&self, directory: &Path) -> Result<String> {
        if let Some(file) = self.file.get() {
            return Ok(file.clone());
        }
        let mut copy = CopyWriter::create(directory)?;
        self.columns.write_to(&mut copy)?;
        self.texts.write_to(&mut copy)?;
        copy.texts(self.folded_categories.texts())?;
        copy.numbers(&self.folded_of)?;
        copy.numbers(&self.by_id)?;
        self.by_category.write_to(&mut copy)?;
        self.by_company.write_to(&mut copy)?;
        copy.numbers(&self.by_company_and_category)?;
        self.index.write_to(&mut copy)?;
        let file = copy.finish(|checksum| format!("{FILE_BEGINNING}{}-{checksum:08x}", self.len()))?;
        Ok(self.file.get_or_init(|| file).clone())
    }

    pub fn load(directory: &Path, file: &str) -> Result<Self> {
        let mut copy = CopyReader::open(&directory.join(file))?;
        let layer = Self {
            columns: Columns::read_from(&mut copy)?,
            texts: Texts::read_from(&mut copy)?,
            folded_categories: Interner::read_from(&mut copy)?,
            folded_of: copy.numbers()?,
            by_id: copy.numbers()?,
            by_category: Groups::read_from(&mut copy)?,
            by_company: Groups::read_from(&mut copy)?,
            by_company_and_category: copy.numbers()?,
            index: SearchIndex::read_from(&mut copy)?,
            file: OnceLock::from(file.to_owned()),
        };
        Ok(layer)
    }

    pub fn index(&self) -> &SearchIndex {
        &self.index
    }

    pub fn get(&self, row: u32) -> FilingRow<'_> {
        filing(&self.columns, &self.texts, row)
    }

    /// As it was when the layer was built.
    pub fn is_latest(&self, row: u32) -> bool {
        self.columns.latest[row as usize]
    }

    pub fn key(&self, row: u32) -> Key<'_> {
        (self.columns.delivered_on[row as usize], self.columns.ids.get(row))
    }

    /// The second since which we know a row.
    pub fn known_at(&self, row: u32) -> u32 {
        self.columns.known_at[row as usize]
    }

    pub fn version(&self, row: u32) -> u16 {
        self.columns.versions[row as usize]
    }

    pub fn by_id(&self, id: &str) -> Option<u32> {
        let at = self.by_id.binary_search_by(|row| self.columns.ids.get(*row).cmp(id)).ok()?;
        Some(self.by_id[at])
    }

    /// The first row that is not after this day.
    pub fn first_row_until(&self, day: NaiveDate) -> u32 {
        let day = day.num_days_from_ce();
        self.columns.delivered_on.partition_point(|delivered_on| *delivered_on > day) as u32
    }

    /// The first row that is before this day.
    pub fn first_row_before(&self, day: NaiveDate) -> u32 {
        let day = day.num_days_from_ce();
        self.columns.delivered_on.partition_point(|delivered_on| *delivered_on >= day) as u32
    }

    /// `None` where no row has this category or company. The category is folded.
    pub fn group(&self, category: Option<&str>, company: Option<CompanyId>) -> Option<Group> {
        let category = match category {
            Some(category) => Some(self.folded_categories.find(category)?),
            None => None,
        };
        let company = match company {
            Some(id) => Some(*self.texts.company_numbers.get(&id)?),
            None => None,
        };
        Some(match (category, company) {
            (None, None) => Group::All,
            (Some(category), None) => Group::Category(category),
            (None, Some(company)) => Group::Company(company),
            (Some(category), Some(company)) => Group::Both(category, company),
        })
    }

    /// What a row is counted by: its folded category and the year of its delivery.
    pub fn facets(&self, row: u32) -> [u32; 2] {
        let day = NaiveDate::from_num_days_from_ce_opt(self.columns.delivered_on[row as usize]).unwrap_or_default();
        [self.folded(row), day.year().unsigned_abs()]
    }

    /// The folded categories, by number.
    pub fn folded_categories(&self) -> &[String] {
        self.folded_categories.texts()
    }

    /// The groups that a row is in, beside all.
    pub fn groups_of(&self, row: u32) -> [Group; 3] {
        let (category, company) = (self.folded(row), self.columns.companies[row as usize]);
        [Group::Category(category), Group::Company(company), Group::Both(category, company)]
    }

    pub fn rows(&self, group: Group) -> Rows<'_> {
        match group {
            Group::All => Rows::Range(0..self.len() as u32),
            Group::Category(category) => Rows::Listed(self.by_category.get(category)),
            Group::Company(company) => Rows::Listed(self.by_company.get(company)),
            Group::Both(category, company) => Rows::Listed(self.of_company_and_category(company, category)),
        }
    }

    /// Every issuer with its rows, the newest first.
    pub fn issuers(&self) -> impl Iterator<Item = (CompanyId, &[u32])> {
        (0u32..).zip(&self.texts.company_ids).map(|(number, id)| (*id, self.by_company.get(number)))
    }

    pub fn document(&self, row: u32) -> Document {
        document(&self.columns, &self.texts, row)
    }

    /// The rows that are versions of a document.
    pub fn versions<'s>(&'s self, document: &'s Document) -> impl Iterator<Item = u32> + 's {
        let group = self.group(Some(&fold(&document.category)), Some(document.company));
        let rows = match group.map(|group| self.rows(group)) {
            Some(Rows::Listed(rows)) => rows,
            _ => &[],
        };
        let is_version = |row: &u32| {
            self.columns.reference_dates[*row as usize] == document.reference_date && self.document(*row) == *document
        };
        rows.iter().copied().filter(is_version)
    }

    fn folded(&self, row: u32) -> u32 {
        self.folded_of[self.columns.categories[row as usize] as usize]
    }

    fn of_company_and_category(&self, company: u32, category: u32) -> &[u32] {
        let key = |row: &u32| (self.columns.companies[*row as usize], self.folded(*row));
        let rows = &self.by_company_and_category;
        let start = rows.partition_point(|row| key(row) < (company, category));
        let end = rows.partition_point(|row| key(row) <= (company, category));
        &rows[start..end]
    }
}

impl<'s> Rows<'s> {
    pub fn len(&self) -> usize {
        match self {
            Self::Range(range) => range.len(),
            Self::Listed(rows) => rows.len(),
        }
    }

    pub fn get(&self, at: usize) -> u32 {
        match self {
            Self::Range(range) => range.start + at as u32,
            Self::Listed(rows) => rows[at],
        }
    }

    /// How many come before this row.
    pub fn before(&self, row: u32) -> usize {
        match self {
            Self::Range(range) => row.clamp(range.start, range.end) as usize - range.start as usize,
            Self::Listed(rows) => rows.partition_point(|listed| *listed < row),
        }
    }

    /// Those within a range of rows.
    pub fn within(&self, range: Range<u32>) -> Self {
        let (start, end) = (self.before(range.start), self.before(range.end.max(range.start)));
        match self {
            Self::Range(rows) => Self::Range(rows.start + start as u32..rows.start + end as u32),
            Self::Listed(rows) => Self::Listed(&rows[start..end]),
        }
    }
}

impl Columns {
    fn len(&self) -> usize {
        self.sets.len()
    }

    fn write_to(&self, copy: &mut CopyWriter) -> std::result::Result<(), CopyError> {
        for texts in [&self.ids, &self.subjects, &self.protocols, &self.urls] {
            texts.write_to(copy)?;
        }
        // The place of the set among all sets.
        copy.numbers(&self.sets.iter().map(|set| *set as u8).collect::<Vec<_>>())?;
        for numbers in [&self.companies, &self.names, &self.categories, &self.doc_types, &self.kinds] {
            copy.numbers(numbers)?;
        }
        copy.numbers(&self.delivered_on)?;
        copy.numbers(&self.reference_dates)?;
        copy.numbers(&self.versions)?;
        copy.numbers(&self.latest.iter().map(|is_latest| u8::from(*is_latest)).collect::<Vec<_>>())?;
        copy.numbers(&self.known_at)?;
        copy.numbers(&self.fetches)
    }

    fn read_from(copy: &mut CopyReader) -> std::result::Result<Self, CopyError> {
        let set =
            |place: u8| FilingSet::ALL.get(usize::from(place)).copied().ok_or(CopyError::Damaged("a set is unknown"));
        Ok(Self {
            ids: TextColumn::read_from(copy)?,
            subjects: TextColumn::read_from(copy)?,
            protocols: TextColumn::read_from(copy)?,
            urls: TextColumn::read_from(copy)?,
            sets: copy.numbers()?.into_iter().map(set).collect::<std::result::Result<_, _>>()?,
            companies: copy.numbers()?,
            names: copy.numbers()?,
            categories: copy.numbers()?,
            doc_types: copy.numbers()?,
            kinds: copy.numbers()?,
            delivered_on: copy.numbers()?,
            reference_dates: copy.numbers()?,
            versions: copy.numbers()?,
            latest: copy.numbers::<u8>()?.into_iter().map(|is_latest| is_latest != 0).collect(),
            known_at: copy.numbers()?,
            fetches: copy.numbers()?,
        })
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
            latest: pick(&self.latest, order),
            known_at: pick(&self.known_at, order),
            fetches: pick(&self.fetches, order),
        }
    }
}

impl Texts {
    fn write_to(&self, copy: &mut CopyWriter) -> std::result::Result<(), CopyError> {
        copy.numbers(&self.company_ids)?;
        [&self.names, &self.categories, &self.doc_types, &self.kinds]
            .into_iter()
            .try_for_each(|texts| copy.texts(texts.texts()))
    }

    fn read_from(copy: &mut CopyReader) -> std::result::Result<Self, CopyError> {
        let company_ids: Vec<CompanyId> = copy.numbers()?;
        Ok(Self {
            company_numbers: company_ids.iter().copied().zip(0..).collect(),
            company_ids,
            names: Interner::read_from(copy)?,
            categories: Interner::read_from(copy)?,
            doc_types: Interner::read_from(copy)?,
            kinds: Interner::read_from(copy)?,
        })
    }

    fn company_number(&mut self, id: CompanyId) -> u32 {
        *self.company_numbers.entry(id).or_insert_with(|| {
            self.company_ids.push(id);
            self.company_ids.len() as u32 - 1
        })
    }
}

fn filing<'s>(columns: &'s Columns, texts: &'s Texts, row: u32) -> FilingRow<'s> {
    let at = row as usize;
    let day = |number: i32| NaiveDate::from_num_days_from_ce_opt(number);
    FilingRow {
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
        known: Known { at: columns.known_at[at], fetch: columns.fetches[at] },
    }
}

fn document(columns: &Columns, texts: &Texts, row: u32) -> Document {
    let filing = filing(columns, texts, row);
    let of_ipe = |text: &str| if filing.set == FilingSet::Ipe { text.to_owned() } else { String::new() };
    Document {
        set: filing.set,
        company: filing.company_id,
        category: filing.category.to_owned(),
        reference_date: columns.reference_dates[row as usize],
        doc_type: of_ipe(filing.doc_type),
        kind: of_ipe(filing.kind),
        subject: of_ipe(filing.subject),
    }
}

/// The first eight bytes of a text as a number, in the same order: most comparisons need no more.
fn beginning(text: &str) -> u64 {
    let mut bytes = [0; 8];
    let length = text.len().min(8);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    u64::from_be_bytes(bytes)
}

/// By date, then id, both descending.
fn list_order(columns: &Columns) -> Vec<u32> {
    let mut keys: Vec<(Reverse<i32>, Reverse<u64>, u32)> = (0..columns.len() as u32)
        .map(|row| (Reverse(columns.delivered_on[row as usize]), Reverse(beginning(columns.ids.get(row))), row))
        .collect();
    keys.sort_unstable_by(|one, other| {
        (one.0, one.1).cmp(&(other.0, other.1)).then_with(|| columns.ids.get(other.2).cmp(columns.ids.get(one.2)))
    });
    keys.into_iter().map(|(_, _, row)| row).collect()
}

fn sorted_by_id(ids: &TextColumn, rows: usize) -> Vec<u32> {
    let mut keys: Vec<(u64, u32)> = (0..rows as u32).map(|row| (beginning(ids.get(row)), row)).collect();
    keys.sort_unstable_by(|one, other| one.0.cmp(&other.0).then_with(|| ids.get(one.1).cmp(ids.get(other.1))));
    keys.into_iter().map(|(_, row)| row).collect()
}

fn sorted_by_company_and_category(
    rows: usize,
    company: impl Fn(u32) -> u32,
    category: impl Fn(u32) -> u32,
) -> Vec<u32> {
    let mut keys: Vec<(u64, u32)> =
        (0..rows as u32).map(|row| (u64::from(company(row)) << 32 | u64::from(category(row)), row)).collect();
    keys.sort_unstable();
    keys.into_iter().map(|(_, row)| row).collect()
}

/// Of the versions of one document the highest, the newest of equals.
fn latest_versions(columns: &Columns) -> Vec<bool> {
    let document = |row: u32| {
        let at = row as usize;
        let mut hasher = DefaultHasher::new();
        (columns.sets[at], columns.companies[at], columns.categories[at], columns.reference_dates[at])
            .hash(&mut hasher);
        if columns.sets[at] == FilingSet::Ipe {
            (columns.doc_types[at], columns.kinds[at]).hash(&mut hasher);
            columns.subjects.get(row).hash(&mut hasher);
        }
        hasher.finish()
    };
    let key = |row: u32| (columns.versions[row as usize], columns.delivered_on[row as usize], columns.ids.get(row));
    let mut best: HashMap<u64, u32> = HashMap::with_capacity(columns.len());
    for row in 0..columns.len() as u32 {
        let leader = best.entry(document(row)).or_insert(row);
        if key(row) > key(*leader) {
            *leader = row;
        }
    }
    let mut latest = vec![false; columns.len()];
    for row in best.into_values() {
        latest[row as usize] = true;
    }
    latest
}

fn index(columns: &Columns, texts: &Texts, threads: usize) -> Result<SearchIndex> {
    // What many filings share is analysed once.
    let analysed =
        |texts: &Interner| -> Vec<String> { texts.texts().iter().map(|text| words(text).join(" ")).collect() };
    let (categories, doc_types, kinds, names) =
        (analysed(&texts.categories), analysed(&texts.doc_types), analysed(&texts.kinds), analysed(&texts.names));
    build_parts(columns.len(), threads, |row, writer| {
        let at = row as usize;
        let said = [
            categories[columns.categories[at] as usize].as_str(),
            &doc_types[columns.doc_types[at] as usize],
            &kinds[columns.kinds[at] as usize],
            &names[columns.names[at] as usize],
        ];
        let title = words(columns.subjects.get(row)).join(" ");
        writer.add(Entry { title, text: said.join(" "), ..Entry::default() })
    })
}
