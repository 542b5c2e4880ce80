//! Companies: sorted by name, found by code, CNPJ, filter or words.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::Datelike;
use vintem_domain::company::parse_id;
use vintem_domain::point_in_time::Certainty;
use vintem_domain::text::fold;
use vintem_domain::{Cnpj, Company, CompanyId};
use vintem_store::read::Known;

use crate::analysis::words;
use crate::index::{Entry, FacetsOf, NumberCounts, Scope, SearchIndex, build_parts, certainty, search};
use crate::names::{called, of_company};
use crate::query::Query;
use crate::{Counts, Found, Result, Searched, Wanted, sorted_counts};

/// Shorter pieces of a CNPJ are in too many of them.
const LEAST_FRAGMENT: usize = 5;

/// Of companies whose names match alike first those that are registered still, then those that are traded, then those
/// that were registered later.
const ACTIVE_WEIGHT: f32 = 300.0;
const TRADED_WEIGHT: f32 = 40.0;
const REGISTERED_WEIGHT: f32 = 5.0;
const YEAR_WEIGHT: f32 = 0.05;
/// The status of a registration that is no more, folded.
const CANCELLED: &str = "cancelada";

/// By what a company may be meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clue {
    Cnpj,
    Code,
    Ticker,
    Name,
}

impl Clue {
    pub const ALL: [Self; 4] = [Self::Cnpj, Self::Code, Self::Ticker, Self::Name];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Cnpj => "cnpj",
            Self::Code => "code",
            Self::Ticker => "ticker",
            Self::Name => "name",
        }
    }
}

/// Equality, blind to case and accents.
#[derive(Debug, Clone, Default)]
pub struct CompanyFilter {
    pub status: Option<String>,
    pub sector: Option<String>,
    /// Only what we know since this second or later.
    pub known_since: Option<u32>,
}

#[derive(Debug)]
pub struct Companies {
    /// By folded name, then code.
    rows: Vec<Company>,
    by_id: HashMap<CompanyId, u32>,
    /// A CNPJ may own several registrations; the one that counts first.
    by_cnpj: HashMap<Cnpj, Vec<u32>>,
    /// The rows of every combination that exists, `None` standing for "any".
    by_filter: HashMap<(Option<String>, Option<String>), Vec<u32>>,
    index: SearchIndex,
    /// What each counts beside what was asked for.
    weights: Vec<f32>,
    /// What each is counted by: numbers of `statuses` and `sectors`.
    facet_numbers: Vec<[u32; 2]>,
    statuses: Vec<String>,
    sectors: Vec<String>,
    /// Those that only filings name, by code.
    unregistered: Vec<Company>,
    /// Since when we know each, and which fetch brought it; of one that only filings name, of the newest when this was
    /// built.
    known: Vec<Known>,
    /// Of what could be known on a day: those of which that is only estimated.
    estimated: HashSet<CompanyId>,
}

impl Companies {
    /// `unregistered` are those that only filings name, by code.
    pub(crate) fn build(registered: Vec<(Company, Known)>, unregistered: Vec<(Company, Known)>) -> Result<Self> {
        let mut rows = registered;
        rows.extend(unregistered.iter().cloned());
        rows.sort_by_cached_key(|(company, _)| (fold(&company.name), company.id));
        let (rows, known): (Vec<Company>, Vec<Known>) = rows.into_iter().unzip();
        let unregistered = unregistered.into_iter().map(|(company, _)| company).collect();
        let mut by_id = HashMap::with_capacity(rows.len());
        let mut by_cnpj: HashMap<Cnpj, Vec<u32>> = HashMap::with_capacity(rows.len());
        let mut by_filter: HashMap<(Option<String>, Option<String>), Vec<u32>> = HashMap::new();
        for (row, company) in (0u32..).zip(&rows) {
            by_id.insert(company.id, row);
            if let Some(cnpj) = company.cnpj {
                by_cnpj.entry(cnpj).or_default().push(row);
            }
            let (status, sector) = (fold(&company.status), fold(&company.sector));
            for status in [None, Some(&status)] {
                for sector in [None, Some(&sector)] {
                    by_filter.entry((status.cloned(), sector.cloned())).or_default().push(row);
                }
            }
        }
        for owned in by_cnpj.values_mut() {
            owned.sort_by_key(|row| {
                let company = &rows[*row as usize];
                (company.cancelled_on.is_some(), std::cmp::Reverse(company.registered_on), company.id)
            });
        }
        let index = build_parts(rows.len(), 1, |row, writer| {
            let company = &rows[row as usize];
            let title: Vec<&str> = [&company.name, &company.trade_name]
                .into_iter()
                .chain(&company.former_names)
                .chain(&company.former_trade_names)
                .chain(&company.tickers)
                .map(String::as_str)
                .collect();
            let text = [&company.sector, &company.city, &company.state];
            let analysed = |texts: &[&str]| words(&texts.join(" ")).join(" ");
            writer.add(Entry {
                title: analysed(&title),
                text: analysed(&text.map(String::as_str)),
                names: of_company(company),
            })
        })?;
        let weights = rows.iter().map(weight).collect();
        let (mut statuses, mut sectors) = (Spellings::default(), Spellings::default());
        let facet_numbers =
            rows.iter().map(|company| [statuses.number(&company.status), sectors.number(&company.sector)]).collect();
        Ok(Self {
            rows,
            by_id,
            by_cnpj,
            by_filter,
            index,
            weights,
            facet_numbers,
            statuses: statuses.texts,
            sectors: sectors.texts,
            unregistered,
            known,
            estimated: HashSet::new(),
        })
    }

    pub(crate) fn with_estimated(self, estimated: HashSet<CompanyId>) -> Self {
        Self { estimated, ..self }
    }

    /// How we know that a company could be known.
    pub fn certainty(&self, row: u32) -> Certainty {
        if self.estimated.contains(&self.get(row).id) { Certainty::Estimated } else { Certainty::Observed }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn get(&self, row: u32) -> &Company {
        &self.rows[row as usize]
    }

    /// Those of the registry, by name.
    pub(crate) fn registered(&self) -> impl Iterator<Item = (Company, Known)> {
        let registered = self.rows.iter().zip(&self.known).filter(|(company, _)| company.registered);
        registered.map(|(company, known)| (company.clone(), *known))
    }

    /// Since when we know a company as it is, and which fetch brought it.
    pub fn known(&self, row: u32) -> Known {
        self.known[row as usize]
    }

    pub(crate) fn unregistered(&self) -> &[Company] {
        &self.unregistered
    }

    /// By code, with or without zeros, or by CNPJ in any spelling.
    pub fn resolve(&self, identifier: &str) -> Option<u32> {
        self.identified(identifier).first().copied()
    }

    /// The company that is meant by a clue, with how sure that is, from 0 to 1.
    pub fn resolve_by(&self, clue: Clue, text: &str) -> Result<Option<(u32, f32)>> {
        let text = text.trim();
        let sure = |row: Option<u32>| row.map(|row| (row, 1.0));
        Ok(match clue {
            Clue::Code => sure(parse_id(text).and_then(|id| self.by_id.get(&id)).copied()),
            Clue::Cnpj => match Cnpj::parse(text).and_then(|cnpj| self.by_cnpj.get(&cnpj)) {
                Some(rows) => sure(rows.first().copied()),
                // A piece is as sure as it leaves few others.
                None => {
                    let found = self.with_fragment(text);
                    found.first().map(|row| (*row, 1.0 / found.len() as f32))
                }
            },
            Clue::Ticker => {
                let has_ticker =
                    |company: &Company| company.tickers.iter().any(|ticker| ticker.eq_ignore_ascii_case(text));
                sure(self.rows.iter().position(has_ticker).map(|row| row as u32))
            }
            Clue::Name => {
                let hits = search(&[self.scope(&[], false)], &Query::parse(text), called, 1)?;
                hits.best.first().map(|hit| (hit.row, certainty(hit.score - self.weights[hit.row as usize])))
            }
        })
    }

    /// The rows that a filter leaves, and how many there are.
    pub fn list(&self, filter: &CompanyFilter, offset: usize, limit: usize) -> Found {
        let wanted = (filter.status.as_deref().map(fold), filter.sector.as_deref().map(fold));
        let rows = self.by_filter.get(&wanted).map_or(&[][..], Vec::as_slice);
        let page =
            |rows: &[u32]| Found { total: rows.len(), rows: rows.iter().skip(offset).take(limit).copied().collect() };
        match filter.known_since {
            None => page(rows),
            Some(second) => {
                let is_known = |row: &u32| self.known(*row).at >= second;
                page(&rows.iter().copied().filter(is_known).collect::<Vec<_>>())
            }
        }
    }

    /// How many companies there are by status and by sector.
    pub fn facets(&self) -> [Counts; 2] {
        let mut counts = NumberCounts::default();
        self.facet_numbers.iter().for_each(|numbers| add(&mut counts, *numbers));
        self.counted(counts)
    }

    fn counted(&self, counts: NumberCounts) -> [Counts; 2] {
        let [statuses, sectors] = counts;
        [(statuses, &self.statuses), (sectors, &self.sectors)].map(|(counts, texts)| {
            sorted_counts(counts.into_iter().map(|(number, count)| (texts[number as usize].clone(), count)).collect())
        })
    }

    /// Exact identifiers first, then by relevance.
    pub fn search(&self, query: &str, wanted: Wanted) -> Result<Searched> {
        let Wanted { offset, limit, .. } = wanted;
        let mut identified = self.identified(query.trim());
        identified.extend(self.with_fragment(query.trim()));
        let mut seen = HashSet::new();
        identified.retain(|row| seen.insert(*row));
        let mut rows: Vec<u32> = identified.iter().skip(offset).take(limit).copied().collect();
        let (offset, limit) = (offset.saturating_sub(identified.len()), limit - rows.len());
        let hits = search(
            &[self.scope(&identified, wanted.facets)],
            &Query::parse(query),
            called,
            offset.saturating_add(limit),
        )?;
        rows.extend(hits.best.iter().skip(offset).take(limit).map(|hit| hit.row));
        let mut counts = hits.counts.into_iter().next().unwrap_or_default();
        for row in identified.iter().filter(|_| wanted.facets) {
            add(&mut counts, self.facet_numbers[*row as usize]);
        }
        let found = Found { total: identified.len() + hits.total, rows };
        Ok(Searched { found, facets: self.counted(counts), words: hits.words })
    }

    fn scope<'s>(&'s self, without: &'s [u32], facets: bool) -> Scope<'s> {
        let facets = facets.then(|| -> FacetsOf<'s> { Box::new(|row| self.facet_numbers[row as usize]) });
        Scope { index: &self.index, from_row: 0, hidden: Arc::default(), without, weights: &self.weights, facets }
    }

    /// By code or CNPJ.
    fn identified(&self, identifier: &str) -> Vec<u32> {
        let by_code = parse_id(identifier).and_then(|id| self.by_id.get(&id)).copied();
        let by_cnpj = Cnpj::parse(identifier).and_then(|cnpj| self.by_cnpj.get(&cnpj));
        by_code.into_iter().chain(by_cnpj.into_iter().flatten().copied()).collect()
    }

    /// Those with this piece in their CNPJ, at its beginning first; of one CNPJ the registration that counts first.
    fn with_fragment(&self, query: &str) -> Vec<u32> {
        let is_written_so = |character: char| character.is_ascii_alphanumeric() || ".-/ ".contains(character);
        let fragment: String =
            query.chars().filter(char::is_ascii_alphanumeric).map(|character| character.to_ascii_uppercase()).collect();
        let digits = fragment.bytes().filter(u8::is_ascii_digit).count();
        if !query.chars().all(is_written_so) || digits < LEAST_FRAGMENT || digits * 2 < fragment.len() {
            return Vec::new();
        }
        let mut found: Vec<(usize, u32)> = self
            .by_cnpj
            .iter()
            .filter_map(|(cnpj, rows)| Some((cnpj.as_str().find(&fragment)?, rows)))
            .flat_map(|(at, rows)| rows.iter().map(move |row| (at, *row)))
            .collect();
        found.sort_unstable_by_key(|(at, row)| {
            let company = self.get(*row);
            (*at, company.cancelled_on.is_some(), *row)
        });
        found.into_iter().map(|(_, row)| row).collect()
    }
}

/// Texts that differ in case and accents alone are one, as in the filter; it is spelled as it first comes.
#[derive(Default)]
struct Spellings {
    numbers: HashMap<String, u32>,
    texts: Vec<String>,
}

impl Spellings {
    fn number(&mut self, text: &str) -> u32 {
        *self.numbers.entry(fold(text)).or_insert_with(|| {
            self.texts.push(text.to_owned());
            self.texts.len() as u32 - 1
        })
    }
}

fn add(counts: &mut NumberCounts, numbers: [u32; 2]) {
    for (counts, number) in counts.iter_mut().zip(numbers) {
        *counts.entry(number).or_default() += 1;
    }
}

fn weight(company: &Company) -> f32 {
    let is_active = company.registered && company.cancelled_on.is_none() && fold(&company.status) != CANCELLED;
    let is_traded = !company.tickers.is_empty() || !company.markets.is_empty();
    let of = |holds: bool, weight: f32| if holds { weight } else { 0.0 };
    let years = company.registered_on.map_or(0.0, |day| (day.year() - 1900).max(0) as f32);
    of(is_active, ACTIVE_WEIGHT)
        + of(is_active && is_traded, TRADED_WEIGHT)
        + of(company.registered, REGISTERED_WEIGHT)
        + years * YEAR_WEIGHT
}
