//! Companies: list, counts, search, resolve and lookup.

use std::sync::Arc;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use vintem_domain::{Dataset, LocalizedText, Problem};
use vintem_snapshot::{
    Companies, CompanyFilter, CompanyIdentifierKind, RowPage, SearchOptions, SearchResults, Snapshot, companies_as_of,
};

use crate::api_error::ApiError;
use crate::app::Handlers;
use crate::bodies::company::{COMPANY_DATASETS, CompanyBody, companies_table, company_bodies, traced_company_body};
use crate::bodies::provenance::TraceOptions;
use crate::bodies::require_loaded;
use crate::bodies::search::facets_body;
use crate::csv::ListFormat;
use crate::params::{MAX_CSV_COMPANIES, MAX_PAGE_ROWS, QueryParams, invalid_param};
use crate::responses::{EtagResponder, ListPage, page_response, with_content_location};
use crate::snapshot_request::SnapshotRequest;

/// The fields by which companies are counted.
const COMPANY_FACETS: [&str; 2] = ["status", "sector"];

#[derive(Serialize)]
struct ResolvedCompanyBody<'s> {
    company: CompanyBody<'s>,
    /// Confidence that this is the right company, from 0 to 1.
    score: f32,
    matched_by: &'static str,
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

async fn list_companies(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let format = ListFormat::from_query(&query, request.prefers_csv)?;
    let pagination = query.pagination(format.max_rows(MAX_PAGE_ROWS, MAX_CSV_COMPANIES))?;
    let filter = CompanyFilter {
        status: query.filter_text("status")?,
        sector: query.filter_text("sector")?,
        state: query.filter_text("state")?,
        ticker_prefix: query.filter_text("ticker")?,
        text: query.optional_search_text()?,
        known_since: query.updated_since()?,
    };
    let trace_options = TraceOptions::from_query(&query, request.today)?;

    let snapshot = request.snapshot()?;
    let current = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let historical = load_companies_as_of(&request, &snapshot, &trace_options).await?;
    let companies = historical.as_deref().unwrap_or(current);
    let row_page = if filter.text.is_none() {
        companies.list(&filter, pagination.offset, pagination.limit)?
    } else {
        // Words are looked up in the search index, which takes longer.
        let search_snapshot = snapshot.clone();
        let search_historical = historical.clone();
        let list = move || {
            let current = require_loaded(search_snapshot.companies(), Dataset::Companies)?;
            let companies = search_historical.as_deref().unwrap_or(current);
            Ok(companies.list(&filter, pagination.offset, pagination.limit)?)
        };
        request.run_search(list).await?
    };

    let responder = EtagResponder::new(&request, &snapshot, &COMPANY_DATASETS, row_page.total);
    let list_page = ListPage { format, pagination, total: row_page.total, facets: None };
    let body = |row: &u32| traced_company_body(&trace_options, &snapshot, companies, *row);
    let bodies = |row_page: RowPage| row_page.rows.iter().map(body).collect::<Vec<_>>();
    let table = |row_page| companies_table(&snapshot, historical.clone(), row_page, trace_options);
    Ok(page_response(responder, list_page, row_page, bodies, table))
}

/// The companies as known on the day of `as_of`, if requested. They come from the store, because only it has every
/// version.
async fn load_companies_as_of(
    request: &SnapshotRequest,
    snapshot: &Snapshot,
    trace_options: &TraceOptions,
) -> Result<Option<Arc<Companies>>, ApiError> {
    let Some(day) = trace_options.as_of else { return Ok(None) };
    let app = request.app_without_caching();
    let _slot = app.load.history_pool.acquire(request.owner()).await?;
    Ok(Some(Arc::new(companies_as_of(&app.store, snapshot.shared_filings(), day).await?)))
}

async fn count_companies(request: SnapshotRequest) -> Result<Response, ApiError> {
    let snapshot = request.snapshot()?;
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let responder = EtagResponder::new(&request, &snapshot, &COMPANY_DATASETS, ());
    Ok(responder.respond_json(|| facets_body(COMPANY_FACETS, companies.facet_counts())))
}

async fn resolve_company(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let (kind, text) = parse_company_identifier(&query)?;
    let snapshot = request.snapshot()?;
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;

    let search_snapshot = snapshot.clone();
    let resolve = move || {
        let companies = require_loaded(search_snapshot.companies(), Dataset::Companies)?;
        Ok(companies.resolve_with_confidence(kind, &text)?)
    };
    let resolved = request.run_search(resolve).await?;
    let (row, score) = resolved.ok_or(Problem::NoSuchCompany)?;

    let responder = EtagResponder::new(&request, &snapshot, &COMPANY_DATASETS, ());
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
        "must be the only identifier and must not be blank. Send exactly one of `cnpj`, `code`, `ticker` or `name`",
        "deve ser o único identificador e não pode ficar em branco: envie `cnpj`, `code`, `ticker` ou `name`",
    );
    match identifiers.pop() {
        Some((kind, text)) if identifiers.is_empty() && !text.trim().is_empty() => Ok((kind, text)),
        Some((kind, _)) => invalid_param(kind.id(), must),
        None => invalid_param("cnpj", must),
    }
}

async fn search_companies(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let q = query.search_text()?;
    let format = ListFormat::from_query(&query, request.prefers_csv)?;
    let pagination = query.pagination(format.max_rows(MAX_PAGE_ROWS, MAX_CSV_COMPANIES))?;
    let with_facets = query.flag("facets")?;
    let with_highlight = query.flag("highlight")?;

    let options = SearchOptions { offset: pagination.offset, limit: pagination.limit, count_facets: with_facets };
    let snapshot = request.snapshot()?;
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let search_snapshot = snapshot.clone();
    let search = move || {
        let companies = require_loaded(search_snapshot.companies(), Dataset::Companies)?;
        Ok(companies.search(&q, options)?)
    };
    let results = request.run_search(search).await?;
    let SearchResults { page: row_page, facet_counts, matched_words } = results;

    let responder = EtagResponder::new(&request, &snapshot, &COMPANY_DATASETS, ());
    let facets = with_facets.then(|| facets_body(COMPANY_FACETS, facet_counts));
    let list_page = ListPage { format, pagination, total: row_page.total, facets };
    let bodies = |row_page: RowPage| {
        let mut bodies = company_bodies(companies, &row_page);
        if with_highlight {
            bodies.iter_mut().for_each(|body| body.add_highlight(&matched_words));
        }
        bodies
    };
    let table = |row_page| companies_table(&snapshot, None, row_page, TraceOptions::disabled(request.today));
    Ok(page_response(responder, list_page, row_page, bodies, table))
}

async fn get_company(
    request: SnapshotRequest,
    query: QueryParams,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let trace_options = TraceOptions::from_query(&query, request.today)?;
    let snapshot = request.snapshot()?;
    let current = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let historical = load_companies_as_of(&request, &snapshot, &trace_options).await?;
    let companies = historical.as_deref().unwrap_or(current);

    let row = find_company_in_path(companies, id)?;

    let canonical_path = format!("/api/v1/companies/{}", companies.get(row).id);
    let responder = EtagResponder::new(&request, &snapshot, &COMPANY_DATASETS, ());
    let response = responder.respond_json(|| traced_company_body(&trace_options, &snapshot, companies, row));
    Ok(with_content_location(response, &canonical_path))
}

/// The company that a path names by its code, CNPJ or ticker.
pub fn find_company_in_path(companies: &Companies, id: Result<Path<String>, PathRejection>) -> Result<u32, Problem> {
    // The path is rejected if it is not valid UTF-8; no company has such an ID.
    let Path(id) = id.map_err(|_| Problem::NoSuchCompany)?;
    match companies.find_by_id_or_ticker(&id)[..] {
        [row] => Ok(row),
        [] => Err(Problem::NoSuchCompany),
        _ => Err(Problem::AmbiguousTicker),
    }
}
