//! Companies: list, search, look-up.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use http::{HeaderValue, header};
use serde::Serialize;
use vintem_deliver::table::{CellWriter, Column, OutputTable};
use vintem_domain::{Company, Dataset, LocalizedText, Problem};
use vintem_snapshot::{
    Companies, CompanyFilter, CompanyIdentifierKind, RowPage, SearchOptions, SearchResults, Snapshot, companies_as_of,
    highlight_matches,
};

use super::provenance::{TraceBody, TraceOptions, provenance_bodies};
use super::search_bodies::{HighlightBody, facets_body, highlight_body};
use super::{AppState, HISTORY_POOL, Handlers, require_loaded, run_search, today};
use crate::App;
use crate::api_error::ApiError;
use crate::caller::Caller;
use crate::csv::ListFormat;
use crate::params::{MAX_CSV_COMPANIES, MAX_PAGE_ROWS, QueryParams, invalid_param};
use crate::responses::{EtagResponder, ListPage, page_response};

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

/// In the order of the cells below.
const COMPANY_COLUMNS: [Column; 19] = [
    Column::text("id"),
    Column::text("name"),
    Column::text("cnpj"),
    Column::text("status"),
    Column::text("sector"),
    Column::text("trade_name"),
    Column::text_list("former_names"),
    Column::text_list("tickers"),
    Column::text_list("markets"),
    Column::date("registered_on"),
    Column::date("cancelled_on"),
    Column::date("status_since"),
    Column::text("category"),
    Column::text("situation"),
    Column::text("control"),
    Column::text("city"),
    Column::text("state"),
    Column::text("auditor"),
    Column::boolean("registered"),
];

impl CompanyBody<'_> {
    fn write_cells(&self, cells: &mut dyn CellWriter) {
        cells.write_text(&self.id);
        cells.write_text(self.name);
        cells.write_text(&self.cnpj);
        cells.write_text(self.status);
        cells.write_text(self.sector);
        cells.write_text(self.trade_name);
        for texts in [self.former_names, self.tickers, self.markets] {
            cells.write_text_list(&mut texts.iter().map(String::as_str));
        }
        cells.write_date(self.registered_on);
        cells.write_date(self.cancelled_on);
        cells.write_date(self.status_since);
        cells.write_text(self.category);
        cells.write_text(self.situation);
        cells.write_text(self.control);
        cells.write_text(self.city);
        cells.write_text(self.state);
        cells.write_text(self.auditor);
        cells.write_boolean(self.registered);
        self.trace.write_cells(cells);
    }
}

/// These rows of what could be known, or else of what is served, made one by one as they are sent.
pub fn companies_table(
    snapshot: &Arc<Snapshot>,
    known: Option<Arc<Companies>>,
    found: RowPage,
    traced: TraceOptions,
) -> OutputTable {
    let (snapshot, mut rows) = (snapshot.clone(), found.rows.into_iter());
    OutputTable::new("companies", COMPANY_COLUMNS.into_iter().chain(traced.columns()).collect(), move |cells| {
        let row = rows.next().zip(known.as_deref().or(snapshot.companies()));
        row.map(|(row, companies)| traced_company_body(&traced, &snapshot, companies, row).write_cells(cells)).is_some()
    })
}

/// What companies are counted by.
const COMPANY_FACETS: [&str; 2] = ["status", "sector"];

#[derive(Serialize)]
struct ResolvedCompanyBody<'s> {
    company: CompanyBody<'s>,
    /// From 0 to 1: how sure it is that this one was meant.
    score: f32,
    matched_by: &'static str,
}

impl CompanyBody<'_> {
    fn add_highlight(&mut self, words: &HashSet<String>) {
        let mut texts = vec![("name", self.name), ("trade_name", self.trade_name), ("sector", self.sector)];
        // The newest of those that matched.
        let matched = |name: &&String| highlight_matches(name, words).iter().any(|(_, matched)| *matched);
        texts.extend(self.former_names.iter().find(matched).map(|name| ("former_names", name.as_str())));
        self.highlight = Some(highlight_body(&texts, words));
    }
}

pub fn handlers() -> Handlers {
    vec![
        ("list_companies", get(list_companies)),
        ("count_companies", get(count_companies)),
        ("resolve_company", get(resolve_company)),
        ("search_companies", get(search_companies)),
        ("get_company", get(get_company)),
    ]
}

async fn list_companies(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let form = ListFormat::from_query(&caller, &query)?;
    let page = query.pagination(form.max_rows(MAX_PAGE_ROWS, MAX_CSV_COMPANIES))?;
    let filter = CompanyFilter {
        status: query.filter_text("status")?,
        sector: query.filter_text("sector")?,
        known_since: query.updated_since()?,
    };
    let traced = TraceOptions::from_query(&query, today(&app))?;
    let snapshot = app.current_snapshot()?;
    let served = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let known = load_companies_as_of(&app, &snapshot, &traced).await?;
    let companies = known.as_deref().unwrap_or(served);
    let found = companies.list(&filter, page.offset, page.limit);
    let tag = EtagResponder::new(&caller, &app, &snapshot, &COMPANY_DATASETS, found.total);
    let body = |row: &u32| traced_company_body(&traced, &snapshot, companies, *row);
    let bodies = |found: RowPage| found.rows.iter().map(body).collect::<Vec<_>>();
    let table = |found| companies_table(&snapshot, known.clone(), found, traced);
    Ok(page_response(tag, ListPage { form, page, total: found.total, facets: None }, found, bodies, table))
}

fn traced_company_body<'s>(
    traced: &TraceOptions,
    snapshot: &Snapshot,
    companies: &'s Companies,
    row: u32,
) -> CompanyBody<'s> {
    // Of an issuer that only filings name, that of a filing.
    let known = [companies.provenance(row)];
    let trace = TraceBody {
        provenance: traced.provenance.then(|| provenance_bodies(snapshot, Dataset::Companies.source_name(), &known)),
        known: traced.as_of.map(|_| companies.certainty(row).id()),
    };
    CompanyBody { trace, ..CompanyBody::from(companies.get(row)) }
}

/// What could be known on a day, where one is asked for: from the store, which alone has every version.
async fn load_companies_as_of(
    app: &App,
    snapshot: &Snapshot,
    traced: &TraceOptions,
) -> Result<Option<Arc<Companies>>, ApiError> {
    let Some(day) = traced.as_of else { return Ok(None) };
    let _turn = HISTORY_POOL.acquire().await?;
    Ok(Some(Arc::new(companies_as_of(&app.store, snapshot.shared_filings(), day).await?)))
}

async fn count_companies(caller: Caller, State(app): AppState) -> Result<Response, ApiError> {
    let snapshot = app.current_snapshot()?;
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let tag = EtagResponder::new(&caller, &app, &snapshot, &COMPANY_DATASETS, ());
    Ok(tag.respond_json(|| facets_body(COMPANY_FACETS, companies.facet_counts())))
}

async fn resolve_company(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let (clue, text) = parse_company_identifier(&query)?;
    let snapshot = app.current_snapshot()?;
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let searched = snapshot.clone();
    let resolved = run_search(move || {
        let companies = require_loaded(searched.companies(), Dataset::Companies)?;
        Ok(companies.resolve_with_confidence(clue, &text)?)
    })
    .await?;
    let (row, score) = resolved.ok_or(Problem::NoSuchCompany)?;
    let tag = EtagResponder::new(&caller, &app, &snapshot, &COMPANY_DATASETS, ());
    Ok(tag.respond_json(|| ResolvedCompanyBody { company: companies.get(row).into(), score, matched_by: clue.id() }))
}

/// By what a company is to be found: exactly one of the ways.
fn parse_company_identifier(query: &QueryParams) -> Result<(CompanyIdentifierKind, String), Problem> {
    let mut given = Vec::new();
    for clue in CompanyIdentifierKind::ALL {
        if let Some(text) = query.filter_text(clue.id())? {
            given.push((clue, text));
        }
    }
    let must = LocalizedText::new(
        "be given, or one of `code`, `ticker` and `name`, and no two of them",
        "ser informado, ou um de `code`, `ticker` e `name`, e nunca dois deles",
    );
    match given.pop() {
        Some((clue, text)) if given.is_empty() && !text.trim().is_empty() => Ok((clue, text)),
        _ => invalid_param("cnpj", must),
    }
}

async fn search_companies(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let (q, form) = (query.search_text()?, ListFormat::from_query(&caller, &query)?);
    let page = query.pagination(form.max_rows(MAX_PAGE_ROWS, MAX_CSV_COMPANIES))?;
    let (with_facets, with_highlight) = (query.flag("facets")?, query.flag("highlight")?);
    let wanted = SearchOptions { offset: page.offset, limit: page.limit, count_facets: with_facets };
    let snapshot = app.current_snapshot()?;
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let searched = snapshot.clone();
    let found = run_search(move || {
        let companies = require_loaded(searched.companies(), Dataset::Companies)?;
        Ok(companies.search(&q, wanted)?)
    })
    .await?;
    let SearchResults { page: found, facet_counts: counts, matched_words: words } = found;
    let tag = EtagResponder::new(&caller, &app, &snapshot, &COMPANY_DATASETS, ());
    let facets = with_facets.then(|| facets_body(COMPANY_FACETS, counts));
    let bodies = |found: RowPage| {
        let mut rows = company_bodies(companies, &found);
        if with_highlight {
            rows.iter_mut().for_each(|row| row.add_highlight(&words));
        }
        rows
    };
    let table = |found| companies_table(&snapshot, None, found, TraceOptions::disabled(today(&app)));
    Ok(page_response(tag, ListPage { form, page, total: found.total, facets }, found, bodies, table))
}

async fn get_company(
    caller: Caller,
    State(app): AppState,
    query: QueryParams,
    id: Result<Path<String>, axum::extract::rejection::PathRejection>,
) -> Result<Response, ApiError> {
    let traced = TraceOptions::from_query(&query, today(&app))?;
    let snapshot = app.current_snapshot()?;
    let served = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let known = load_companies_as_of(&app, &snapshot, &traced).await?;
    let companies = known.as_deref().unwrap_or(served);
    // What is no UTF-8 is no company's code.
    let Path(id) = id.map_err(|_| Problem::NoSuchCompany)?;
    let row = companies.resolve(&id).ok_or(Problem::NoSuchCompany)?;
    let canonical = format!("/api/v1/companies/{}", companies.get(row).id);
    let tag = EtagResponder::new(&caller, &app, &snapshot, &COMPANY_DATASETS, ());
    let mut response = tag.respond_json(|| traced_company_body(&traced, &snapshot, companies, row));
    if let Ok(canonical) = HeaderValue::from_str(&canonical) {
        response.headers_mut().insert(header::CONTENT_LOCATION, canonical);
    }
    Ok(response)
}

/// Filings too: an issuer that only they name is a company.
pub const COMPANY_DATASETS: [Dataset; 2] = [Dataset::Companies, Dataset::Filings];

pub fn company_bodies<'s>(companies: &'s Companies, found: &RowPage) -> Vec<CompanyBody<'s>> {
    found.rows.iter().map(|row| CompanyBody::from(companies.get(*row))).collect()
}
