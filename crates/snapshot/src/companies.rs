//! Companies, sorted by name and found by code, CNPJ, ticker, filter or words.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::Datelike;
use vintem_domain::company::parse_company_id;
use vintem_domain::point_in_time::Certainty;
use vintem_domain::text::normalize_text;
use vintem_domain::{Cnpj, Company, CompanyId};
use vintem_store::reader::RowProvenance;

use crate::company_names::{build_indexed_names, build_name_tokens};
use crate::error::Result;
use crate::results::{RowPage, SearchOptions, SearchResults, ValueCounts, sort_counts_descending};
use crate::search_index::{
    FacetIdCounts, FacetLookup, IndexEntry, SearchIndex, SearchScope, build_index, find_matching_rows,
    name_match_confidence, search,
};
use crate::search_query::SearchQuery;
use crate::tokenizer::tokenize;

/// Shorter fragments of a CNPJ match too many companies.
const MIN_CNPJ_FRAGMENT_DIGITS: usize = 5;

/// Rank of companies whose names match equally well: first those still registered, then those traded, then those
/// registered later.
const ACTIVE_RANK_WEIGHT: f32 = 300.0;
const TRADED_RANK_WEIGHT: f32 = 40.0;
const REGISTERED_RANK_WEIGHT: f32 = 5.0;
const REGISTRATION_YEAR_RANK_WEIGHT: f32 = 0.05;
/// The status of a canceled registration, normalized.
const CANCELED_STATUS: &str = "cancelada";

/// The kinds of identifier that a company can be resolved by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompanyIdentifierKind {
    Cnpj,
    Code,
    Ticker,
    Name,
}

impl CompanyIdentifierKind {
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

/// Filters by equality, ignoring case and accents, unless it says otherwise.
#[derive(Debug, Clone, Default)]
pub struct CompanyFilter {
    pub status: Option<String>,
    pub sector: Option<String>,
    /// The state of the head office.
    pub state: Option<String>,
    /// The beginning of a ticker.
    pub ticker_prefix: Option<String>,
    /// What [`Companies::search`] must find.
    pub text: Option<String>,
    /// Only rows known since this second or later.
    pub known_since: Option<u32>,
}

impl CompanyFilter {
    /// Whether it has conditions that are checked row by row.
    fn needs_scan(&self) -> bool {
        self.state.is_some() || self.ticker_prefix.is_some() || self.text.is_some() || self.known_since.is_some()
    }
}

#[derive(Debug)]
pub struct Companies {
    /// Sorted by normalized name, then code.
    rows: Vec<Company>,
    by_id: HashMap<CompanyId, u32>,
    /// A CNPJ may have several registrations; the most relevant one comes first.
    by_cnpj: HashMap<Cnpj, Vec<u32>>,
    /// The rows of every existing combination of status and sector; `None` means "any".
    by_filter: HashMap<(Option<String>, Option<String>), Vec<u32>>,
    index: SearchIndex,
    /// What each company adds to the score of its matched words.
    rank_weights: Vec<f32>,
    /// The facets of each company: indexes into `statuses` and `sectors`.
    facet_ids: Vec<[u32; 2]>,
    statuses: Vec<String>,
    sectors: Vec<String>,
    /// Companies that appear only in filings, by code.
    unregistered: Vec<Company>,
    /// Since when we know each company, and which fetch brought it. For a company that appears only in filings: those
    /// of its newest filing when this was built.
    provenance: Vec<RowProvenance>,
    /// In a point-in-time view: the companies whose availability is only estimated.
    estimated_ids: HashSet<CompanyId>,
}

impl Companies {
    /// `unregistered` are the companies that appear only in filings, by code.
    pub(crate) fn build(
        registered: Vec<(Company, RowProvenance)>,
        unregistered: Vec<(Company, RowProvenance)>,
    ) -> Result<Self> {
        let mut rows = registered;
        rows.extend(unregistered.iter().cloned());
        rows.sort_by_cached_key(|(company, _)| (normalize_text(&company.name), company.id));
        let (rows, provenance): (Vec<Company>, Vec<RowProvenance>) = rows.into_iter().unzip();
        let unregistered = unregistered.into_iter().map(|(company, _)| company).collect();

        let mut by_id = HashMap::with_capacity(rows.len());
        let mut by_cnpj: HashMap<Cnpj, Vec<u32>> = HashMap::with_capacity(rows.len());
        let mut by_filter: HashMap<(Option<String>, Option<String>), Vec<u32>> = HashMap::new();
        for (row, company) in (0u32..).zip(&rows) {
            by_id.insert(company.id, row);
            if let Some(cnpj) = company.cnpj {
                by_cnpj.entry(cnpj).or_default().push(row);
            }
            let status = normalize_text(&company.status);
            let sector = normalize_text(&company.sector);
            for status in [None, Some(&status)] {
                for sector in [None, Some(&sector)] {
                    by_filter.entry((status.cloned(), sector.cloned())).or_default().push(row);
                }
            }
        }
        for registrations in by_cnpj.values_mut() {
            registrations.sort_by_key(|row| {
                let company = &rows[*row as usize];
                (company.cancelled_on.is_some(), std::cmp::Reverse(company.registered_on), company.id)
            });
        }

        let index = build_index(rows.len(), 1, |row, writer| writer.add(index_entry(&rows[row as usize])))?;
        let rank_weights = rows.iter().map(rank_weight).collect();
        let mut statuses = FoldedInterner::default();
        let mut sectors = FoldedInterner::default();
        let facet_ids =
            rows.iter().map(|company| [statuses.intern(&company.status), sectors.intern(&company.sector)]).collect();

        Ok(Self {
            rows,
            by_id,
            by_cnpj,
            by_filter,
            index,
            rank_weights,
            facet_ids,
            statuses: statuses.texts,
            sectors: sectors.texts,
            unregistered,
            provenance,
            estimated_ids: HashSet::new(),
        })
    }

    pub(crate) fn with_estimated_ids(self, estimated_ids: HashSet<CompanyId>) -> Self {
        Self { estimated_ids, ..self }
    }

    /// Whether we observed since when the company could be known, or estimate it.
    pub fn certainty(&self, row: u32) -> Certainty {
        if self.estimated_ids.contains(&self.get(row).id) { Certainty::Estimated } else { Certainty::Observed }
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

    /// The companies of the registry, by name.
    pub(crate) fn registered(&self) -> impl Iterator<Item = (Company, RowProvenance)> {
        let registered = self.rows.iter().zip(&self.provenance).filter(|(company, _)| company.is_registered);
        registered.map(|(company, provenance)| (company.clone(), *provenance))
    }

    /// Since when we know this state of a company, and which fetch brought it.
    pub fn provenance(&self, row: u32) -> RowProvenance {
        self.provenance[row as usize]
    }

    pub(crate) fn unregistered(&self) -> &[Company] {
        &self.unregistered
    }

    /// Finds a company by code, with or without leading zeros, or by CNPJ in any format.
    pub fn resolve(&self, identifier: &str) -> Option<u32> {
        self.find_by_code_or_cnpj(identifier).first().copied()
    }

    /// Finds the company for an identifier, with a confidence from 0 to 1.
    pub fn resolve_with_confidence(&self, kind: CompanyIdentifierKind, text: &str) -> Result<Option<(u32, f32)>> {
        let text = text.trim();
        let certain = |row: Option<u32>| row.map(|row| (row, 1.0));

        Ok(match kind {
            CompanyIdentifierKind::Code => certain(parse_company_id(text).and_then(|id| self.by_id.get(&id)).copied()),
            CompanyIdentifierKind::Cnpj => match Cnpj::parse(text).and_then(|cnpj| self.by_cnpj.get(&cnpj)) {
                Some(rows) => certain(rows.first().copied()),
                // The fewer companies a fragment matches, the higher the confidence.
                None => {
                    let matches = self.find_by_cnpj_fragment(text);
                    matches.first().map(|row| (*row, 1.0 / matches.len() as f32))
                }
            },
            CompanyIdentifierKind::Ticker => certain(self.find_by_ticker(text).first().copied()),
            CompanyIdentifierKind::Name => {
                let hits = search(&[self.search_scope(&[], false)], &SearchQuery::parse(text), build_name_tokens, 1)?;
                hits.best
                    .first()
                    .map(|hit| (hit.row, name_match_confidence(hit.score - self.rank_weights[hit.row as usize])))
            }
        })
    }

    /// A page of the rows that match a filter, and their total number.
    pub fn list(&self, filter: &CompanyFilter, offset: usize, limit: usize) -> Result<RowPage> {
        let status = filter.status.as_deref().map(normalize_text);
        let sector = filter.sector.as_deref().map(normalize_text);
        let rows = self.by_filter.get(&(status, sector)).map_or(&[][..], Vec::as_slice);
        if !filter.needs_scan() {
            return Ok(RowPage { total: rows.len(), rows: rows.iter().skip(offset).take(limit).copied().collect() });
        }

        let state = filter.state.as_deref().map(normalize_text);
        let found = filter.text.as_deref().map(|text| self.find_matching_rows(text)).transpose()?;

        let matches = |row: &&u32| {
            let company = self.get(**row);
            filter.known_since.is_none_or(|second| self.provenance(**row).known_at_seconds >= second)
                && state.as_ref().is_none_or(|state| normalize_text(&company.state) == *state)
                && filter.ticker_prefix.as_ref().is_none_or(|prefix| has_ticker_prefix(company, prefix))
                && found.as_ref().is_none_or(|found| found.contains(*row))
        };
        let rows: Vec<u32> = rows.iter().filter(matches).copied().collect();
        Ok(RowPage { total: rows.len(), rows: rows.into_iter().skip(offset).take(limit).collect() })
    }

    /// All companies, by name.
    pub fn all_rows(&self) -> RowPage {
        RowPage { total: self.len(), rows: (0..self.len() as u32).collect() }
    }

    /// The companies that have a ticker, by name. Several registrations of one CNPJ share its tickers and count as one
    /// company: the most relevant registration.
    pub fn find_by_ticker(&self, ticker: &str) -> Vec<u32> {
        let has_ticker = |company: &Company| company.tickers.iter().any(|own| own.eq_ignore_ascii_case(ticker));
        let holders = (0u32..).zip(&self.rows).filter(|(_, company)| has_ticker(company));
        let main_registration = |row: u32, company: &Company| {
            let registrations = company.cnpj.and_then(|cnpj| self.by_cnpj.get(&cnpj));
            registrations.and_then(|rows| rows.first().copied()).unwrap_or(row)
        };

        let mut rows: Vec<u32> = holders.map(|(row, company)| main_registration(row, company)).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// The company with this code or CNPJ; if there is none, the companies with this ticker.
    pub fn find_by_id_or_ticker(&self, identifier: &str) -> Vec<u32> {
        self.resolve(identifier).map_or_else(|| self.find_by_ticker(identifier), |row| vec![row])
    }

    /// The rows that a search for a text finds.
    fn find_matching_rows(&self, text: &str) -> Result<HashSet<u32>> {
        let mut rows: HashSet<u32> = self.find_by_identifier(text.trim()).into_iter().collect();
        let scopes = [self.search_scope(&[], false)];
        rows.extend(find_matching_rows(&scopes, &SearchQuery::parse(text), build_name_tokens)?.into_iter().flatten());
        Ok(rows)
    }

    /// Number of companies by status and by sector.
    pub fn facet_counts(&self) -> [ValueCounts; 2] {
        let mut counts = FacetIdCounts::default();
        self.facet_ids.iter().for_each(|ids| increment_facet_counts(&mut counts, *ids));
        self.label_facet_counts(counts)
    }

    fn label_facet_counts(&self, counts: FacetIdCounts) -> [ValueCounts; 2] {
        let [statuses, sectors] = counts;
        [(statuses, &self.statuses), (sectors, &self.sectors)].map(|(counts, texts)| {
            sort_counts_descending(counts.into_iter().map(|(id, count)| (texts[id as usize].clone(), count)).collect())
        })
    }

    /// Exact identifiers first, then by relevance.
    pub fn search(&self, query: &str, options: SearchOptions) -> Result<SearchResults> {
        let SearchOptions { offset, limit, .. } = options;
        let identified = self.find_by_identifier(query.trim());

        let mut rows: Vec<u32> = identified.iter().skip(offset).take(limit).copied().collect();
        let offset = offset.saturating_sub(identified.len());
        let limit = limit - rows.len();
        let hits = search(
            &[self.search_scope(&identified, options.count_facets)],
            &SearchQuery::parse(query),
            build_name_tokens,
            offset.saturating_add(limit),
        )?;
        rows.extend(hits.best.iter().skip(offset).take(limit).map(|hit| hit.row));

        let mut counts = hits.facet_counts.into_iter().next().unwrap_or_default();
        for row in identified.iter().filter(|_| options.count_facets) {
            increment_facet_counts(&mut counts, self.facet_ids[*row as usize]);
        }

        Ok(SearchResults {
            page: RowPage { total: identified.len() + hits.total, rows },
            facet_counts: self.label_facet_counts(counts),
            matched_words: hits.matched_words,
        })
    }

    fn search_scope<'s>(&'s self, excluded_rows: &'s [u32], count_facets: bool) -> SearchScope<'s> {
        let facet_lookup = count_facets.then(|| -> FacetLookup<'s> { Box::new(|row| self.facet_ids[row as usize]) });
        SearchScope {
            index: &self.index,
            from_row: 0,
            hidden_rows: Arc::default(),
            excluded_rows,
            row_weights: &self.rank_weights,
            facet_lookup,
        }
    }

    /// Companies with this code, CNPJ, or part of a CNPJ, the best match first.
    fn find_by_identifier(&self, text: &str) -> Vec<u32> {
        let mut rows = self.find_by_code_or_cnpj(text);
        rows.extend(self.find_by_cnpj_fragment(text));
        let mut seen = HashSet::new();
        rows.retain(|row| seen.insert(*row));
        rows
    }

    fn find_by_code_or_cnpj(&self, identifier: &str) -> Vec<u32> {
        let by_code = parse_company_id(identifier).and_then(|id| self.by_id.get(&id)).copied();
        let by_cnpj = Cnpj::parse(identifier).and_then(|cnpj| self.by_cnpj.get(&cnpj));
        by_code.into_iter().chain(by_cnpj.into_iter().flatten().copied()).collect()
    }

    /// Companies with this fragment in their CNPJ: matches at its beginning first, and of equals those not canceled
    /// first.
    fn find_by_cnpj_fragment(&self, query: &str) -> Vec<u32> {
        let is_cnpj_character = |character: char| character.is_ascii_alphanumeric() || ".-/ ".contains(character);
        let fragment: String =
            query.chars().filter(char::is_ascii_alphanumeric).map(|character| character.to_ascii_uppercase()).collect();
        let digits = fragment.bytes().filter(u8::is_ascii_digit).count();
        if !query.chars().all(is_cnpj_character) || digits < MIN_CNPJ_FRAGMENT_DIGITS || digits * 2 < fragment.len() {
            return Vec::new();
        }

        let mut matches: Vec<(usize, u32)> = self
            .by_cnpj
            .iter()
            .filter_map(|(cnpj, rows)| Some((cnpj.as_str().find(&fragment)?, rows)))
            .flat_map(|(position, rows)| rows.iter().map(move |row| (position, *row)))
            .collect();
        matches.sort_unstable_by_key(|(position, row)| {
            let company = self.get(*row);
            (*position, company.cancelled_on.is_some(), *row)
        });

        matches.into_iter().map(|(_, row)| row).collect()
    }
}

/// Treats texts that differ only in case and accents as one, as the filter does, and keeps the first spelling.
#[derive(Default)]
struct FoldedInterner {
    ids: HashMap<String, u32>,
    texts: Vec<String>,
}

impl FoldedInterner {
    fn intern(&mut self, text: &str) -> u32 {
        *self.ids.entry(normalize_text(text)).or_insert_with(|| {
            self.texts.push(text.to_owned());
            self.texts.len() as u32 - 1
        })
    }
}

fn has_ticker_prefix(company: &Company, prefix: &str) -> bool {
    let starts_with =
        |ticker: &String| ticker.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    company.tickers.iter().any(starts_with)
}

fn increment_facet_counts(counts: &mut FacetIdCounts, facet_ids: [u32; 2]) {
    for (counts, id) in counts.iter_mut().zip(facet_ids) {
        *counts.entry(id).or_default() += 1;
    }
}

fn index_entry(company: &Company) -> IndexEntry {
    let title: Vec<&str> = [&company.name, &company.trade_name]
        .into_iter()
        .chain(&company.former_names)
        .chain(&company.former_trade_names)
        .chain(&company.tickers)
        .map(String::as_str)
        .collect();
    let text = [&company.sector, &company.city, &company.state].map(String::as_str);

    let joined_tokens = |texts: &[&str]| tokenize(&texts.join(" ")).join(" ");
    IndexEntry { title: joined_tokens(&title), text: joined_tokens(&text), names: build_indexed_names(company) }
}

fn rank_weight(company: &Company) -> f32 {
    let is_active =
        company.is_registered && company.cancelled_on.is_none() && normalize_text(&company.status) != CANCELED_STATUS;
    let is_traded = !company.tickers.is_empty() || !company.markets.is_empty();
    let years = company.registered_on.map_or(0.0, |day| (day.year() - 1900).max(0) as f32);

    let weight_if = |condition: bool, weight: f32| if condition { weight } else { 0.0 };
    weight_if(is_active, ACTIVE_RANK_WEIGHT)
        + weight_if(is_active && is_traded, TRADED_RANK_WEIGHT)
        + weight_if(company.is_registered, REGISTERED_RANK_WEIGHT)
        + years * REGISTRATION_YEAR_RANK_WEIGHT
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDate;

    use super::*;

    fn company(id: CompanyId, cnpj: &str, tickers: &[&str]) -> (Company, RowProvenance) {
        let company = Company {
            id,
            name: format!("COMPANHIA {id}"),
            cnpj: Cnpj::parse(cnpj),
            tickers: tickers.iter().map(|ticker| (*ticker).to_owned()).collect(),
            is_registered: true,
            ..Company::default()
        };
        (company, RowProvenance { known_at_seconds: 0, fetch_id: 1 })
    }

    #[test]
    fn a_path_names_a_company_by_code_cnpj_or_ticker_in_this_order() {
        let mut canceled = company(101, "33000167000101", &["ABCD3"]);
        canceled.0.cancelled_on = NaiveDate::from_ymd_opt(2020, 1, 2);
        let registered = vec![
            canceled,
            company(102, "33000167000101", &["ABCD3"]),
            company(103, "12ABC34501DE35", &["TWIN3", "102"]),
            company(104, "00000000E08G12", &["TWIN3"]),
        ];
        let companies = Companies::build(registered, Vec::new()).unwrap();

        let table: [(&str, &[CompanyId]); 8] = [
            ("101", &[101]),
            ("000102", &[102]),
            ("102", &[102]),
            ("33.000.167/0001-01", &[102]),
            ("abcd3", &[102]),
            ("TWIN3", &[103, 104]),
            ("TWIN", &[]),
            ("", &[]),
        ];
        for (identifier, ids) in table {
            let rows = companies.find_by_id_or_ticker(identifier);
            let found: Vec<CompanyId> = rows.into_iter().map(|row| companies.get(row).id).collect();
            assert_eq!(found, ids, "{identifier}");
        }
    }
}
