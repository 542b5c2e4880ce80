//! Companies: list, counts, search, resolve and lookup.

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

/// In the order of [`CompanyBody::write_cells`].
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

/// A table of these rows, from `historical` or else from the snapshot. Each row is built when it is sent.
pub fn companies_table(
    snapshot: &Arc<Snapshot>,
    historical: Option<Arc<Companies>>,
    row_page: RowPage,
    trace_options: TraceOptions,
) -> OutputTable {
    let snapshot = snapshot.clone();
    let columns = COMPANY_COLUMNS.into_iter().chain(trace_options.columns()).collect();
    let mut rows = row_page.rows.into_iter();

    OutputTable::new("companies", columns, move |cells| {
        let row = rows.next().zip(historical.as_deref().or(snapshot.companies()));
        row.map(|(row, companies)| {
            traced_company_body(&trace_options, &snapshot, companies, row).write_cells(cells);
        })
        .is_some()
    })
}

/// The fields by which companies are counted.
const COMPANY_FACETS: [&str; 2] = ["status", "sector"];

#[derive(Serialize)]
struct ResolvedCompanyBody<'s> {
    company: CompanyBody<'s>,
    /// Confidence that this is the right company, from 0 to 1.
    score: f32,
    matched_by: &'static str,
}

impl CompanyBody<'_> {
    fn add_highlight(&mut self, words: &HashSet<String>) {
        let mut texts = vec![("name", self.name), ("trade_name", self.trade_name), ("sector", self.sector)];
        // The most recent former name that matched.
        let has_match = |name: &&String| highlight_matches(name, words).iter().any(|(_, matched)| *matched);
        texts.extend(self.former_names.iter().find(has_match).map(|name| ("former_names", name.as_str())));
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
    let format = ListFormat::from_query(&caller, &query)?;
    let pagination = query.pagination(format.max_rows(MAX_PAGE_ROWS, MAX_CSV_COMPANIES))?;
    let filter = CompanyFilter {
        status: query.filter_text("status")?,
        sector: query.filter_text("sector")?,
        known_since: query.updated_since()?,
    };
    let trace_options = TraceOptions::from_query(&query, today(&app))?;

    let snapshot = app.current_snapshot()?;
    let current = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let historical = load_companies_as_of(&app, &snapshot, &trace_options).await?;
    let companies = historical.as_deref().unwrap_or(current);
    let row_page = companies.list(&filter, pagination.offset, pagination.limit);

    let responder = EtagResponder::new(&caller, &app, &snapshot, &COMPANY_DATASETS, row_page.total);
    let list_page = ListPage { format, pagination, total: row_page.total, facets: None };
    let body = |row: &u32| traced_company_body(&trace_options, &snapshot, companies, *row);
    let bodies = |row_page: RowPage| row_page.rows.iter().map(body).collect::<Vec<_>>();
    let table = |row_page| companies_table(&snapshot, historical.clone(), row_page, trace_options);
    Ok(page_response(responder, list_page, row_page, bodies, table))
}

fn traced_company_body<'s>(
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

/// The companies as known on the day of `as_of`, if requested. They come from the store, because only it has every
/// version.
async fn load_companies_as_of(
    app: &App,
    snapshot: &Snapshot,
    trace_options: &TraceOptions,
) -> Result<Option<Arc<Companies>>, ApiError> {
    let Some(day) = trace_options.as_of else { return Ok(None) };
    let _slot = HISTORY_POOL.acquire().await?;
    Ok(Some(Arc::new(companies_as_of(&app.store, snapshot.shared_filings(), day).await?)))
}

async fn count_companies(caller: Caller, State(app): AppState) -> Result<Response, ApiError> {
    let snapshot = app.current_snapshot()?;
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let responder = EtagResponder::new(&caller, &app, &snapshot, &COMPANY_DATASETS, ());
    Ok(responder.respond_json(|| facets_body(COMPANY_FACETS, companies.facet_counts())))
}

async fn resolve_company(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let (kind, text) = parse_company_identifier(&query)?;
    let snapshot = app.current_snapshot()?;
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;

    let search_snapshot = snapshot.clone();
    let resolved = run_search(move || {
        let companies = require_loaded(search_snapshot.companies(), Dataset::Companies)?;
        Ok(companies.resolve_with_confidence(kind, &text)?)
    })
    .await?;
    let (row, score) = resolved.ok_or(Problem::NoSuchCompany)?;

    let responder = EtagResponder::new(&caller, &app, &snapshot, &COMPANY_DATASETS, ());
    Ok(responder.respond_json(|| ResolvedCompanyBody {
        company: companies.get(row).into(),
        score,
        matched_by: kind.id(),
    }))
}

/// The identifier of the company to resolve. Exactly one kind must be given.
fn parse_company_identifier(query: &QueryParams) -> Result<(CompanyIdentifierKind, String), Problem> {
    let mut identifiers = Vec::new();
    for kind in CompanyIdentifierKind::ALL {
        if let Some(text) = query.filter_text(kind.id())? {
            identifiers.push((kind, text));
        }
    }

    let must = LocalizedText::new(
        "be given, or one of `code`, `ticker` and `name`, and no two of them",
        "ser informado, ou um de `code`, `ticker` e `name`, e nunca dois deles",
    );
    match identifiers.pop() {
        Some((kind, text)) if identifiers.is_empty() && !text.trim().is_empty() => Ok((kind, text)),
        _ => invalid_param("cnpj", must),
    }
}

async fn search_companies(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let q = query.search_text()?;
    let format = ListFormat::from_query(&caller, &query)?;
    let pagination = query.pagination(format.max_rows(MAX_PAGE_ROWS, MAX_CSV_COMPANIES))?;
    let with_facets = query.flag("facets")?;
    let with_highlight = query.flag("highlight")?;

    let options = SearchOptions { offset: pagination.offset, limit: pagination.limit, count_facets: with_facets };
    let snapshot = app.current_snapshot()?;
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let search_snapshot = snapshot.clone();
    let results = run_search(move || {
        let companies = require_loaded(search_snapshot.companies(), Dataset::Companies)?;
        Ok(companies.search(&q, options)?)
    })
    .await?;
    let SearchResults { page: row_page, facet_counts, matched_words } = results;

    let responder = EtagResponder::new(&caller, &app, &snapshot, &COMPANY_DATASETS, ());
    let facets = with_facets.then(|| facets_body(COMPANY_FACETS, facet_counts));
    let list_page = ListPage { format, pagination, total: row_page.total, facets };
    let bodies = |row_page: RowPage| {
        let mut bodies = company_bodies(companies, &row_page);
        if with_highlight {
            bodies.iter_mut().for_each(|body| body.add_highlight(&matched_words));
        }
        bodies
    };
    let table = |row_page| companies_table(&snapshot, None, row_page, TraceOptions::disabled(today(&app)));
    Ok(page_response(responder, list_page, row_page, bodies, table))
}

async fn get_company(
    caller: Caller,
    State(app): AppState,
    query: QueryParams,
    id: Result<Path<String>, axum::extract::rejection::PathRejection>,
) -> Result<Response, ApiError> {
    let trace_options = TraceOptions::from_query(&query, today(&app))?;
    let snapshot = app.current_snapshot()?;
    let current = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let historical = load_companies_as_of(&app, &snapshot, &trace_options).await?;
    let companies = historical.as_deref().unwrap_or(current);

    // The path is rejected if it is not valid UTF-8; no company has such an ID.
    let Path(id) = id.map_err(|_| Problem::NoSuchCompany)?;
    let row = companies.resolve(&id).ok_or(Problem::NoSuchCompany)?;

    let canonical_path = format!("/api/v1/companies/{}", companies.get(row).id);
    let responder = EtagResponder::new(&caller, &app, &snapshot, &COMPANY_DATASETS, ());
    let mut response = responder.respond_json(|| traced_company_body(&trace_options, &snapshot, companies, row));
    if let Ok(canonical_path) = HeaderValue::from_str(&canonical_path) {
        response.headers_mut().insert(header::CONTENT_LOCATION, canonical_path);
    }
    Ok(response)
}

/// Includes filings, because an issuer that appears only in filings is a company too.
pub const COMPANY_DATASETS: [Dataset; 2] = [Dataset::Companies, Dataset::Filings];

pub fn company_bodies<'s>(companies: &'s Companies, row_page: &RowPage) -> Vec<CompanyBody<'s>> {
    row_page.rows.iter().map(|row| CompanyBody::from(companies.get(*row))).collect()
}
