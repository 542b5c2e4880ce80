//! Companies as JSON and as table rows.

use std::collections::HashSet;
use std::sync::Arc;

use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{CellWriter, Column, OutputTable};
use vintem_domain::{Company, Dataset};
use vintem_snapshot::{Companies, RowPage, Snapshot, highlight_matches};

use super::provenance::{TraceBody, TraceOptions, provenance_bodies};
use super::search::{HighlightBody, highlight_body};

/// Includes filings, because an issuer that appears only in filings is a company too.
pub const COMPANY_DATASETS: [Dataset; 2] = [Dataset::Companies, Dataset::Filings];

#[derive(Serialize)]
pub struct CompanyBody<'s> {
    id: String,
    name: &'s str,
    cnpj: String,
    status: &'s str,
    sector: &'s str,
    trade_name: &'s str,
    former_names: &'s [String],
    tickers: &'s [String],
    markets: &'s [String],
    registered_on: Option<NaiveDate>,
    cancelled_on: Option<NaiveDate>,
    status_since: Option<NaiveDate>,
    category: &'s str,
    situation: &'s str,
    control: &'s str,
    city: &'s str,
    state: &'s str,
    auditor: &'s str,
    registered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    highlight: Option<HighlightBody<'s>>,
    #[serde(flatten)]
    trace: TraceBody,
}

impl<'s> From<&'s Company> for CompanyBody<'s> {
    fn from(company: &'s Company) -> Self {
        Self {
            id: company.id.to_string(),
            name: &company.name,
            cnpj: company.cnpj.map(|cnpj| cnpj.to_string()).unwrap_or_default(),
            status: &company.status,
            sector: &company.sector,
            trade_name: &company.trade_name,
            former_names: &company.former_names,
            tickers: &company.tickers,
            markets: &company.markets,
            registered_on: company.registered_on,
            cancelled_on: company.cancelled_on,
            status_since: company.status_since,
            category: &company.category,
            situation: &company.situation,
            control: &company.control,
            city: &company.city,
            state: &company.state,
            auditor: &company.auditor,
            registered: company.is_registered,
            highlight: None,
            trace: TraceBody::default(),
        }
    }
}

/// A column of a table, and how its cell is written.
type CompanyField = (Column, fn(&CompanyBody<'_>, &mut dyn CellWriter));

const COMPANY_FIELDS: [CompanyField; 19] = [
    (Column::text("id"), |row, cells| cells.write_text(&row.id)),
    (Column::text("name"), |row, cells| cells.write_text(row.name)),
    (Column::text("cnpj"), |row, cells| cells.write_text(&row.cnpj)),
    (Column::text("status"), |row, cells| cells.write_text(row.status)),
    (Column::text("sector"), |row, cells| cells.write_text(row.sector)),
    (Column::text("trade_name"), |row, cells| cells.write_text(row.trade_name)),
    (Column::text_list("former_names"), |row, cells| write_texts(cells, row.former_names)),
    (Column::text_list("tickers"), |row, cells| write_texts(cells, row.tickers)),
    (Column::text_list("markets"), |row, cells| write_texts(cells, row.markets)),
    (Column::date("registered_on"), |row, cells| cells.write_date(row.registered_on)),
    (Column::date("cancelled_on"), |row, cells| cells.write_date(row.cancelled_on)),
    (Column::date("status_since"), |row, cells| cells.write_date(row.status_since)),
    (Column::text("category"), |row, cells| cells.write_text(row.category)),
    (Column::text("situation"), |row, cells| cells.write_text(row.situation)),
    (Column::text("control"), |row, cells| cells.write_text(row.control)),
    (Column::text("city"), |row, cells| cells.write_text(row.city)),
    (Column::text("state"), |row, cells| cells.write_text(row.state)),
    (Column::text("auditor"), |row, cells| cells.write_text(row.auditor)),
    (Column::boolean("registered"), |row, cells| cells.write_boolean(row.registered)),
];

fn write_texts(cells: &mut dyn CellWriter, texts: &[String]) {
    cells.write_text_list(&mut texts.iter().map(String::as_str));
}

impl CompanyBody<'_> {
    fn write_cells(&self, cells: &mut dyn CellWriter) {
        for (_, write) in &COMPANY_FIELDS {
            write(self, cells);
        }
        self.trace.write_cells(cells);
    }
}

/// A table of these rows, from `historical` or else from the snapshot. Each row is built when it is sent.
pub fn companies_table(
    snapshot: &Arc<Snapshot>,
    historical: Option<Arc<Companies>>,
    row_page: RowPage,
    trace_options: TraceOptions,
) -> OutputTable {
    let snapshot = snapshot.clone();
    let columns = COMPANY_FIELDS.into_iter().map(|(column, _)| column).chain(trace_options.columns()).collect();
    let mut rows = row_page.rows.into_iter();

    OutputTable::new("companies", columns, move |cells| {
        let row = rows.next().zip(historical.as_deref().or(snapshot.companies()));
        row.map(|(row, companies)| {
            traced_company_body(&trace_options, &snapshot, companies, row).write_cells(cells);
        })
        .is_some()
    })
}

impl CompanyBody<'_> {
    pub fn add_highlight(&mut self, words: &HashSet<String>) {
        let mut texts = vec![("name", self.name), ("trade_name", self.trade_name), ("sector", self.sector)];
        // The most recent former name that matched.
        let has_match = |name: &&String| highlight_matches(name, words).iter().any(|(_, matched)| *matched);
        texts.extend(self.former_names.iter().find(has_match).map(|name| ("former_names", name.as_str())));
        self.highlight = Some(highlight_body(&texts, words));
    }
}

/// A company with its provenance and certainty, if requested.
pub fn traced_company_body<'s>(
    trace_options: &TraceOptions,
    snapshot: &Snapshot,
    companies: &'s Companies,
    row: u32,
) -> CompanyBody<'s> {
    // An issuer that appears only in filings has the provenance of a filing.
    let provenances = [companies.provenance(row)];
    let trace = TraceBody {
        provenance: trace_options
            .provenance
            .then(|| provenance_bodies(snapshot, Dataset::Companies.source_name(), &provenances)),
        known: trace_options.as_of.map(|_| companies.certainty(row).id()),
    };
    CompanyBody { trace, ..CompanyBody::from(companies.get(row)) }
}

pub fn company_bodies<'s>(companies: &'s Companies, row_page: &RowPage) -> Vec<CompanyBody<'s>> {
    row_page.rows.iter().map(|row| CompanyBody::from(companies.get(*row))).collect()
}
