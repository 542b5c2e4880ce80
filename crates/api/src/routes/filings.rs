//! Filings: list, search, counts, the most recent, by company, by ID, and versions of a document.

use std::sync::Arc;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_domain::{CompanyId, Dataset, DateRange, LocalizedText, Problem};
use vintem_snapshot::{FilingFilter, Filings, RowPage, SearchOptions, SearchResults, Snapshot, filings_as_of};

use super::companies::find_company_in_path;
use crate::api_error::ApiError;
use crate::app::Handlers;
use crate::bodies::filing::{FilingBody, filing_bodies, filings_table, traced_filing_body};
use crate::bodies::provenance::TraceOptions;
use crate::bodies::require_loaded;
use crate::bodies::search::facets_body;
use crate::csv::ListFormat;
use crate::params::{MAX_CSV_FILINGS, MAX_PAGE_ROWS, Pagination, QueryParams, invalid_param};
use crate::responses::{EtagResponder, ListPage, page_response, with_content_location};
use crate::snapshot_request::SnapshotRequest;

#[derive(Serialize)]
struct RecentFilingsBody<'s> {
    data: Vec<FilingBody<'s>>,
    total: usize,
    limit: usize,
    offset: usize,
}

/// The fields by which filings are counted.
const FILING_FACETS: [&str; 2] = ["category", "year"];

pub fn handlers() -> Handlers {
    vec![
        ("list_company_filings", get(list_company_filings)),
        ("list_filings", get(list_filings)),
        ("count_filings", get(count_filings)),
        ("search_filings", get(search_filings)),
        ("list_recent_filings", get(list_recent_filings)),
        ("get_filing", get(get_filing)),
        ("list_filing_versions", get(list_filing_versions)),
    ]
}

async fn list_filings(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let mut params = FilingListParams::from_query(&request, &query, request.today)?;
    let snapshot = request.snapshot()?;
    params.filter.company = find_company_of_filter(&snapshot, &query)?;
    filing_list_response(&request, snapshot, params).await
}

async fn list_company_filings(
    request: SnapshotRequest,
    query: QueryParams,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let mut params = FilingListParams::from_query(&request, &query, request.today)?;
    let snapshot = request.snapshot()?;
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;

    let row = find_company_in_path(companies, id)?;
    let company_id = companies.get(row).id;
    params.filter.company = Some(company_id);

    let response = filing_list_response(&request, snapshot, params).await?;
    Ok(with_content_location(response, &format!("/api/v1/companies/{company_id}/filings")))
}

async fn list_recent_filings(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let format = ListFormat::from_query(&query, request.prefers_csv)?;
    let limit = query.limit(MAX_PAGE_ROWS)?;
    let snapshot = request.snapshot()?;
    let filings = require_loaded(snapshot.filings(), Dataset::Filings)?;
    let days = DateRange::ALL.capped_at(request.today);
    let row_page = filings.list(&FilingFilter::for_days(days), 0, limit);

    let responder = EtagResponder::new(&request, &snapshot, &[Dataset::Filings], row_page.total);
    let body = |row_page: RowPage| RecentFilingsBody {
        data: filing_bodies(filings, &row_page),
        total: row_page.total,
        limit,
        offset: 0,
    };
    let table = |row_page| filings_table(&snapshot, filings, row_page, TraceOptions::disabled(request.today));
    Ok(responder.respond_list(format, row_page, body, table))
}

async fn count_filings(request: SnapshotRequest) -> Result<Response, ApiError> {
    let snapshot = request.snapshot()?;
    let filings = require_loaded(snapshot.filings(), Dataset::Filings)?;
    let counts = filings.facet_counts(request.today);
    let total: usize = counts[1].iter().map(|(_, count)| count).sum();

    let responder = EtagResponder::new(&request, &snapshot, &[Dataset::Filings], total);
    Ok(responder.respond_json(|| facets_body(FILING_FACETS, counts)))
}

async fn search_filings(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let q = query.search_text()?;
    let format = ListFormat::from_query(&query, request.prefers_csv)?;
    let pagination = query.pagination(format.max_rows(MAX_PAGE_ROWS, MAX_CSV_FILINGS))?;
    let permit = (pagination.limit > MAX_PAGE_ROWS).then(|| request.acquire_long_table()).transpose()?;
    let with_facets = query.flag("facets")?;
    let with_highlight = query.flag("highlight")?;

    let options = SearchOptions { offset: pagination.offset, limit: pagination.limit, count_facets: with_facets };
    let snapshot = request.snapshot()?;
    let today = request.today;
    let filings = require_loaded(snapshot.filings(), Dataset::Filings)?;
    let search_snapshot = snapshot.clone();
    let search = move || {
        let filings = require_loaded(search_snapshot.filings(), Dataset::Filings)?;
        Ok(filings.search(&q, today, options)?)
    };
    let results = request.run_search(search).await?;
    let SearchResults { page: row_page, facet_counts, matched_words } = results;

    let responder = EtagResponder::new(&request, &snapshot, &[Dataset::Filings], row_page.total);
    let facets = with_facets.then(|| facets_body(FILING_FACETS, facet_counts));
    let list_page = ListPage { format, pagination, total: row_page.total, facets };
    let bodies = |row_page: RowPage| {
        let mut bodies = filing_bodies(filings, &row_page);
        if with_highlight {
            for (body, row) in bodies.iter_mut().zip(&row_page.rows) {
                body.add_highlight(&filings.get(*row), &matched_words);
            }
        }
        bodies
    };
    let table =
        |row_page| filings_table(&snapshot, filings, row_page, TraceOptions::disabled(today)).with_guard(permit);
    Ok(page_response(responder, list_page, row_page, bodies, table))
}

async fn get_filing(
    request: SnapshotRequest,
    query: QueryParams,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let trace_options = TraceOptions::from_query(&query, request.today)?;
    let snapshot = request.snapshot()?;
    let current = require_loaded(snapshot.filings(), Dataset::Filings)?;
    let historical = load_filings_as_of(&request, &snapshot, &trace_options).await?;
    let filings = historical.as_ref().unwrap_or(current);

    let Path(id) = id.map_err(|_| Problem::NoSuchFiling)?;
    let is_delivered = |row: &u32| filings.get(*row).filing.delivered_on <= trace_options.last_day;
    let row = filings.find_by_id(&id).filter(is_delivered).ok_or(Problem::NoSuchFiling)?;

    let responder = EtagResponder::new(&request, &snapshot, &[Dataset::Filings], ());
    Ok(responder.respond_json(|| traced_filing_body(&trace_options, &snapshot, filings, row)))
}

/// Every version of the document that a filing belongs to, newest first.
async fn list_filing_versions(
    request: SnapshotRequest,
    query: QueryParams,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let pagination = query.pagination(MAX_PAGE_ROWS)?;
    let format = ListFormat::from_query(&query, request.prefers_csv)?;
    let snapshot = request.snapshot()?;
    let today = request.today;
    let filings = require_loaded(snapshot.filings(), Dataset::Filings)?;

    let Path(id) = id.map_err(|_| Problem::NoSuchFiling)?;
    let is_delivered = |row: &u32| filings.get(*row).filing.delivered_on <= today;
    let row = filings.find_by_id(&id).filter(is_delivered).ok_or(Problem::NoSuchFiling)?;
    let versions: Vec<u32> = filings.document_versions(row).into_iter().filter(is_delivered).collect();
    let total = versions.len();
    let rows = versions.into_iter().skip(pagination.offset).take(pagination.limit).collect();
    let row_page = RowPage { total, rows };

    let responder = EtagResponder::new(&request, &snapshot, &[Dataset::Filings], total);
    let list_page = ListPage { format, pagination, total, facets: None };
    let bodies = |row_page: RowPage| filing_bodies(filings, &row_page);
    let table = |row_page| filings_table(&snapshot, filings, row_page, TraceOptions::disabled(today));
    Ok(page_response(responder, list_page, row_page, bodies, table))
}

/// The query parameters of lists of filings.
struct FilingListParams {
    format: ListFormat,
    pagination: Pagination,
    filter: FilingFilter,
    /// Words that the filings must contain.
    text: Option<String>,
    trace_options: TraceOptions,
}

impl FilingListParams {
    fn from_query(request: &SnapshotRequest, query: &QueryParams, today: NaiveDate) -> Result<Self, Problem> {
        let format = ListFormat::from_query(query, request.prefers_csv)?;
        let pagination = query.pagination(format.max_rows(MAX_PAGE_ROWS, MAX_CSV_FILINGS))?;
        let filter = FilingFilter {
            category: query.filter_text("category")?,
            doc_type: query.filter_text("type")?,
            known_since: query.updated_since()?,
            ..FilingFilter::for_days(query.date_range_or_year()?)
        };
        let text = query.optional_search_text()?;
        let trace_options = TraceOptions::from_query(query, today)?;
        Ok(Self { format, pagination, filter, text, trace_options })
    }
}

/// The company that `company_id` or `ticker` names. An unknown one is refused: an empty list would look like a company
/// without filings.
fn find_company_of_filter(snapshot: &Snapshot, query: &QueryParams) -> Result<Option<CompanyId>, ApiError> {
    let id = query.filter_text("company_id")?;
    let ticker = query.filter_text("ticker")?;
    if id.is_none() && ticker.is_none() {
        return Ok(None);
    }

    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let row = match (id, ticker) {
        (Some(_), Some(_)) => {
            let must = LocalizedText::new(
                "must not be combined with `company_id`",
                "não pode ser usado junto com `company_id`",
            );
            return Ok(invalid_param("ticker", must)?);
        }
        (Some(id), None) => companies.resolve(&id).map_or_else(
            || {
                let must = LocalizedText::new(
                    "must be the CVM code or CNPJ of a known company; find it with /api/v1/companies",
                    "deve ser o código CVM ou o CNPJ de uma companhia cadastrada; busque em /api/v1/companies",
                );
                invalid_param("company_id", must)
            },
            Ok,
        )?,
        (None, ticker) => match companies.find_by_ticker(ticker.as_deref().unwrap_or_default().trim())[..] {
            [row] => row,
            [] => {
                let must = LocalizedText::new(
                    "must be the complete ticker of a company; find it with /api/v1/companies?ticker=",
                    "deve ser o ticker completo de uma companhia; busque em /api/v1/companies?ticker=",
                );
                return Ok(invalid_param("ticker", must)?);
            }
            _ => {
                let must = LocalizedText::new(
                    "is ambiguous: several companies share this ticker. Use `company_id` instead",
                    "é ambíguo: mais de uma companhia usa este ticker. Use `company_id`",
                );
                return Ok(invalid_param("ticker", must)?);
            }
        },
    };
    Ok(Some(companies.get(row).id))
}

/// The filings as known on the day of `as_of`, if requested. They come from the store, because only it has every
/// version.
async fn load_filings_as_of(
    request: &SnapshotRequest,
    snapshot: &Snapshot,
    trace_options: &TraceOptions,
) -> Result<Option<Filings>, ApiError> {
    let (Some(day), Some(current)) = (trace_options.as_of, snapshot.shared_filings()) else { return Ok(None) };
    let app = request.app_without_caching();
    let _slot = app.load.history_pool.acquire(request.owner()).await?;
    Ok(Some(filings_as_of(&app.store, current, day).await?))
}

async fn filing_list_response(
    request: &SnapshotRequest,
    snapshot: Arc<Snapshot>,
    params: FilingListParams,
) -> Result<Response, ApiError> {
    let FilingListParams { format, pagination, mut filter, text, trace_options } = params;
    let is_long = pagination.limit > MAX_PAGE_ROWS;
    let permit = is_long.then(|| request.acquire_long_table()).transpose()?;

    filter.days = filter.days.capped_at(trace_options.last_day);
    let current = require_loaded(snapshot.filings(), Dataset::Filings)?;
    let historical = load_filings_as_of(request, &snapshot, &trace_options).await?;
    let filings = historical.as_ref().unwrap_or(current);

    // Scanning filings, looking up words and collecting the rows of a long list take milliseconds, so these run in the
    // search pool.
    let Pagination { limit, offset } = pagination;
    let row_page = if filter.needs_scan() || text.is_some() || is_long {
        let filings = filings.clone();
        let list = move || match text {
            Some(text) => Ok(filings.list_containing(&text, &filter, offset, limit)?),
            None => Ok(filings.list(&filter, offset, limit)),
        };
        request.run_search(list).await?
    } else {
        filings.list(&filter, offset, limit)
    };

    let datasets = [Dataset::Filings, Dataset::Companies];
    let responder = EtagResponder::new(request, &snapshot, &datasets, row_page.total);
    let list_page = ListPage { format, pagination, total: row_page.total, facets: None };
    let body = |row: &u32| traced_filing_body(&trace_options, &snapshot, filings, *row);
    let bodies = |row_page: RowPage| row_page.rows.iter().map(body).collect::<Vec<_>>();
    let table = |row_page| filings_table(&snapshot, filings, row_page, trace_options).with_guard(permit);
    Ok(page_response(responder, list_page, row_page, bodies, table))
}
