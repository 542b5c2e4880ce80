//! Companies: sorted by name, found by code, CNPJ, filter or words.

use std::collections::HashMap;

use vintem_domain::company::parse_id;
use vintem_domain::text::fold;
use vintem_domain::{Cnpj, Company, CompanyId};

use crate::index::{SearchIndex, SearchIndexWriter};
use crate::{Found, Result};

/// Equality, blind to case and accents.
#[derive(Debug, Clone, Default)]
pub struct CompanyFilter {
    pub status: Option<String>,
    pub sector: Option<String>,
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
}

impl Companies {
    pub(crate) fn build(mut rows: Vec<Company>) -> Result<Self> {
        rows.sort_by_cached_key(|company| (fold(&company.name), company.id));
        let mut writer = SearchIndexWriter::new()?;
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
            let title =
                [&company.name, &company.trade_name, &company.former_names.join(" "), &company.tickers.join(" ")];
            let text = [&company.sector, &company.city, &company.state];
            writer.add(&title.map(String::as_str).join(" "), &text.map(String::as_str).join(" "))?;
        }
        for owned in by_cnpj.values_mut() {
            owned.sort_by_key(|row| {
                let company = &rows[*row as usize];
                (company.cancelled_on.is_some(), std::cmp::Reverse(company.registered_on), company.id)
            });
        }
        Ok(Self { rows, by_id, by_cnpj, by_filter, index: writer.finish()? })
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

    /// By code, with or without zeros, or by CNPJ in any spelling.
    pub fn resolve(&self, identifier: &str) -> Option<&Company> {
        self.identified(identifier).first().map(|row| self.get(*row))
    }

    /// The rows that a filter leaves, and how many there are.
    pub fn list(&self, filter: &CompanyFilter, offset: usize, limit: usize) -> Found {
        let wanted = (filter.status.as_deref().map(fold), filter.sector.as_deref().map(fold));
        let rows = self.by_filter.get(&wanted).map_or(&[][..], Vec::as_slice);
        Found { total: rows.len(), rows: rows.iter().skip(offset).take(limit).copied().collect() }
    }

    /// Exact identifiers first, then by relevance.
    pub fn search(&self, query: &str, offset: usize, limit: usize) -> Result<Found> {
        self.index.search(query, &self.identified(query.trim()), 0, offset, limit)
    }

    fn identified(&self, identifier: &str) -> Vec<u32> {
        let by_code = parse_id(identifier).and_then(|id| self.by_id.get(&id)).copied();
        let by_cnpj = Cnpj::parse(identifier).and_then(|cnpj| self.by_cnpj.get(&cnpj));
        by_code.into_iter().chain(by_cnpj.into_iter().flatten().copied()).collect()
    }
}
