//! Financial statements: rows and tables of a company, the documents that exist, whole documents, share counts, and the
//! accounts that are fixed.

mod company;
mod json_rows;
mod selection;
mod table_layout;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use vintem_domain::statement::{ChartOfAccounts, StatementContent, StatementTable, TableContent, fixed_accounts};
use vintem_domain::{Dataset, DateRange, LocalizedText, Problem, StatementSet};
use vintem_snapshot::{StatementVersion, VersionedDocument};

use crate::api_error::ApiError;
use crate::app::Handlers;
use crate::bodies::require_loaded;
use crate::bodies::statement::{
    DocumentOfRows, DocumentVersionBody, FixedAccountBody, ShareCountsBody, StatementPeriodBody, StatementRowBody,
    fixed_accounts_table, share_counts_table, statement_periods_table, statement_rows_table,
};
use crate::csv::ListFormat;
use crate::load::OwnerPermit;
use crate::params::{MAX_PAGE_ROWS, MAX_STATEMENT_ROWS, Pagination, QueryParams};
use crate::responses::{EtagResponder, ListPage, page_response, with_content_location, with_page_links};
use crate::snapshot_request::SnapshotRequest;
use company::{CompanyStatements, STATEMENT_DATASETS, find_statements};
use json_rows::{CellRows, respond_json_rows};
use selection::{DocumentSelection, FiledPeriod, RowSelection, ScopeSelection, parse_statement, unreadable_document};

/// Any statement of a company over five years has fewer rows. Of longer lists each caller may have only few at once.
const MAX_ROWS_WITHOUT_PERMIT: usize = 1_000;
const ROW_FIELD_COUNT: usize = 20;

pub fn handlers() -> Handlers {
    vec![
        ("list_statements", get(list_statements)),
        ("list_statement_periods", get(list_statement_periods)),
        ("get_filing_statements", get(get_filing_statements)),
        ("list_shares", get(list_shares)),
        ("list_statement_accounts", get(list_statement_accounts)),
    ]
}

/// The rows of a page, and what is missing from the list.
#[derive(Debug, Default)]
struct StatementRows {
    total: usize,
    rows: Vec<StatementRowBody>,
    unavailable: Vec<DocumentVersionBody>,
}

/// The list follows as `data`.
#[derive(Serialize)]
struct StatementRowsHead {
    total: usize,
    limit: usize,
    offset: usize,
    unavailable_versions: Vec<DocumentVersionBody>,
    data: [StatementRowBody; 0],
}

#[derive(Serialize)]
struct ShareCountsListBody {
    data: Vec<ShareCountsBody>,
    total: usize,
    limit: usize,
    offset: usize,
    unavailable_versions: Vec<DocumentVersionBody>,
}

/// How rows are sent.
struct RowFormat {
    format: ListFormat,
    pagination: Pagination,
    as_text: bool,
}

async fn list_statements(
    request: SnapshotRequest,
    query: QueryParams,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let rows = RowSelection::from_query(&query, ScopeSelection::Best)?;
    let set = rows.period.map(FiledPeriod::set);
    let documents = DocumentSelection { set, ..DocumentSelection::from_query(&query, request.today)? };
    let must = LocalizedText::new("must be `rows` or `table`", "deve ser `rows` ou `table`");
    let is_table = query.choice("layout", &["rows", "table"], must)? == Some("table");
    let company = find_statements(&request, id)?;

    let canonical_path = company.canonical_path("statements");
    let response = if is_table {
        table_layout::table_response(&request, &query, company, documents, rows).await?
    } else {
        let format = RowFormat::from_query(&request, &query)?;
        rows_response(&request, company, format, documents, rows).await?
    };
    Ok(with_content_location(response, &canonical_path))
}

/// Every version of every document that was known, with what it contains.
async fn list_statement_periods(
    request: SnapshotRequest,
    query: QueryParams,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let selection = DocumentSelection::from_query(&query, request.today)?;
    let format = ListFormat::from_query(&query, request.prefers_csv)?;
    let pagination = query.pagination(MAX_PAGE_ROWS)?;
    let company = find_statements(&request, id)?;

    let documents = company.documents(selection.day);
    let in_range = documents.iter().filter(|document| selection.dates.contains(document.reference_date));
    let bodies: Vec<StatementPeriodBody> = in_range.flat_map(|document| period_bodies(document, &selection)).collect();
    let total = bodies.len();
    let rows: Vec<StatementPeriodBody> = bodies.into_iter().skip(pagination.offset).take(pagination.limit).collect();

    let responder = EtagResponder::new(&request, &company.snapshot, &STATEMENT_DATASETS, total);
    let list_page = ListPage { format, pagination, total, facets: None };
    let table = |rows| statement_periods_table(rows, selection.is_point_in_time);
    let response = page_response(responder, list_page, rows, |rows| rows, table);
    Ok(with_content_location(response, &company.canonical_path("statements/periods")))
}

fn period_bodies(document: &VersionedDocument<'_>, selection: &DocumentSelection) -> Vec<StatementPeriodBody> {
    let VersionedDocument { set, reference_date, ref versions } = *document;
    let body = |(index, version): (usize, &StatementVersion<'_>)| {
        let certainty = selection.is_point_in_time.then(|| version.certainty_on(selection.day));
        let rows_of = DocumentOfRows { set, reference_date, version: *version, certainty };
        StatementPeriodBody::new(&rows_of, index == 0)
    };
    versions.iter().enumerate().map(body).collect()
}

/// A whole document, with the comparatives and both scopes.
async fn get_filing_statements(
    request: SnapshotRequest,
    query: QueryParams,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let with_comparatives = query.optional_flag("comparatives")?.unwrap_or(true);
    let rows = RowSelection { with_comparatives, ..RowSelection::from_query(&query, ScopeSelection::All)? };
    let format = RowFormat::from_query(&request, &query)?;
    let snapshot = request.snapshot()?;
    require_loaded(snapshot.statements(), Dataset::Statements)?;
    let filings = require_loaded(snapshot.filings(), Dataset::Filings)?;

    let Path(id) = id.map_err(|_| Problem::NoSuchFiling)?;
    let today = request.today;
    let is_delivered = |row: &u32| filings.get(*row).filing.delivered_on <= today;
    let row = filings.find_by_id(&id).filter(is_delivered).ok_or(Problem::NoSuchFiling)?;
    let filing = filings.get(row).filing;
    let set = StatementSet::from_cvm_dataset(filing.cvm_dataset);
    let (Some(set), Some(reference_date)) = (set, filing.reference_date) else {
        return Err(Problem::NoStatements.into());
    };

    let (company_id, version) = (filing.company_id, filing.version);
    let company = CompanyStatements { snapshot, company_id };
    let document = DocumentSelection {
        dates: DateRange { from: reference_date, to: reference_date },
        set: Some(set),
        version: Some(version),
        day: today,
        is_point_in_time: false,
    };
    rows_response(&request, company, format, document, rows).await
}

/// The numbers of shares in every document that states them.
async fn list_shares(
    request: SnapshotRequest,
    query: QueryParams,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let selection = DocumentSelection::from_query(&query, request.today)?;
    let format = ListFormat::from_query(&query, request.prefers_csv)?;
    let pagination = query.pagination(MAX_PAGE_ROWS)?;
    let as_text = query.numbers_as_text()?;
    let company = find_statements(&request, id)?;
    let canonical_path = company.canonical_path("shares");
    let is_point_in_time = selection.is_point_in_time;

    let reading = company.clone();
    let read = move || {
        let statements = reading.statements()?;
        let selected = selection.select(&reading.documents(selection.day));
        let has_shares = |table: StatementTable| table.content == TableContent::Shares;
        let mut bodies = Vec::new();
        for document in selected.documents {
            let Some(form) = document.version.form.filter(|form| form.tables.iter().any(has_shares)) else { continue };
            let text = statements.read_tables(form, has_shares)?;
            let content = StatementContent::parse_tables(&text, has_shares).map_err(unreadable_document)?;
            bodies.extend(content.shares.map(|shares| ShareCountsBody::new(shares, &document, as_text)));
        }
        Ok((bodies, selected.unavailable))
    };
    let (bodies, unavailable_versions) = request.run_search(read).await?;
    let total = bodies.len();
    let Pagination { limit, offset } = pagination;
    let rows: Vec<ShareCountsBody> = bodies.into_iter().skip(offset).take(limit).collect();

    let responder = EtagResponder::new(&request, &company.snapshot, &STATEMENT_DATASETS, total);
    let body = |data| ShareCountsListBody { data, total, limit, offset, unavailable_versions };
    let response = responder.respond_list(format, rows, body, |rows| share_counts_table(rows, is_point_in_time));
    let response = with_page_links(response, &request, pagination, total);
    Ok(with_content_location(response, &canonical_path))
}

async fn list_statement_accounts(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let must =
        LocalizedText::new("must be `commercial`, `bank` or `insurer`", "deve ser `commercial`, `bank` ou `insurer`");
    let chart = query.choice("chart", &ChartOfAccounts::ALL.map(ChartOfAccounts::id), must)?;
    let statement = parse_statement(&query)?;
    let format = ListFormat::from_query(&query, request.prefers_csv)?;
    let pagination = query.pagination(MAX_STATEMENT_ROWS)?;
    let snapshot = request.snapshot()?;

    let accounts: Vec<FixedAccountBody> = fixed_accounts()
        .iter()
        .filter(|account| chart.is_none_or(|id| id == account.chart.id()))
        .filter(|account| statement.is_none_or(|statement| statement == account.statement))
        .map(FixedAccountBody::from)
        .collect();
    let total = accounts.len();
    let rows: Vec<FixedAccountBody> = accounts.into_iter().skip(pagination.offset).take(pagination.limit).collect();

    let responder = EtagResponder::new(&request, &snapshot, &[], total);
    let list_page = ListPage { format, pagination, total, facets: None };
    Ok(page_response(responder, list_page, rows, |rows| rows, fixed_accounts_table))
}

impl RowFormat {
    fn from_query(request: &SnapshotRequest, query: &QueryParams) -> Result<Self, Problem> {
        Ok(Self {
            format: ListFormat::from_query(query, request.prefers_csv)?,
            pagination: query.pagination(MAX_STATEMENT_ROWS)?,
            as_text: query.numbers_as_text()?,
        })
    }

    /// Many rows are in memory until they are sent.
    fn permit(&self, request: &SnapshotRequest) -> Result<Option<OwnerPermit>, Problem> {
        (self.pagination.limit > MAX_ROWS_WITHOUT_PERMIT).then(|| request.acquire_long_table()).transpose()
    }
}

async fn rows_response(
    request: &SnapshotRequest,
    company: CompanyStatements,
    row_format: RowFormat,
    documents: DocumentSelection,
    rows: RowSelection,
) -> Result<Response, ApiError> {
    let is_point_in_time = documents.is_point_in_time;
    let permit = row_format.permit(request)?;
    let RowFormat { format, pagination, as_text } = row_format;
    let reading = company.clone();
    let read = move || {
        let selected = documents.select(&reading.documents(documents.day));
        let mut page = StatementRows { unavailable: selected.unavailable, ..StatementRows::default() };
        for document in &selected.documents {
            rows.for_each_row(reading.statements()?, document, |row| {
                let is_on_page = page.total >= pagination.offset && page.rows.len() < pagination.limit;
                page.rows.extend(is_on_page.then(|| StatementRowBody::new(row, document, as_text)));
                page.total += 1;
            })?;
        }
        Ok(page)
    };
    let page = request.run_search(read).await?;
    let total = page.total;

    let responder = EtagResponder::new(request, &company.snapshot, &STATEMENT_DATASETS, total);
    let Pagination { limit, offset } = pagination;
    let response = match format {
        ListFormat::Csv(options) => {
            responder.respond_csv(options, || statement_rows_table(page.rows, is_point_in_time).with_guard(permit))
        }
        ListFormat::Json => {
            let unavailable_versions = page.unavailable;
            let head = StatementRowsHead { total, limit, offset, unavailable_versions, data: [] };
            respond_json_rows(request, responder, head, CellRows { rows: page.rows, width: ROW_FIELD_COUNT, permit })
                .await?
        }
    };
    Ok(with_page_links(response, request, pagination, total))
}
