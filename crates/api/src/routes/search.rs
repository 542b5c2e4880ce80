//! Global search: the best matches among companies and filings in one response, without pagination.

use std::sync::Arc;

use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_domain::{AddressBucket, Dataset, Problem};
use vintem_snapshot::{RowPage, SearchOptions, Snapshot};

use crate::api_error::ApiError;
use crate::app::{App, Handlers};
use crate::bodies::company::{COMPANY_DATASETS, CompanyBody, company_bodies};
use crate::bodies::filing::{FilingBody, filing_bodies};
use crate::bodies::require_loaded;
use crate::load::WorkOwner;
use crate::params::{MAX_SEARCH_HITS, QueryParams};
use crate::responses::EtagResponder;
use crate::snapshot_request::SnapshotRequest;

#[derive(Serialize)]
struct SearchBody<'s> {
    companies: Vec<CompanyBody<'s>>,
    filings: Vec<FilingBody<'s>>,
}

pub fn handlers() -> Handlers {
    vec![("search", get(search))]
}

async fn search(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let q = query.search_text()?;
    let limit = query.limit(MAX_SEARCH_HITS)?;
    let snapshot = request.snapshot()?;
    let [company_hits, filing_hits] =
        request.run_search(find_best_matches(snapshot.clone(), request.today, q, limit)).await?;
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let filings = require_loaded(snapshot.filings(), Dataset::Filings)?;

    let responder = EtagResponder::new(&request, &snapshot, &COMPANY_DATASETS, filing_hits.total);
    Ok(responder.respond_json(|| SearchBody {
        companies: company_bodies(companies, &company_hits),
        filings: filing_bodies(filings, &filing_hits),
    }))
}

/// The best matches among companies and among filings, with the snapshot that their row numbers refer to.
/// The work is charged to this address.
pub async fn search_all(
    app: Arc<App>,
    address: AddressBucket,
    q: String,
    limit: usize,
) -> Result<(Arc<Snapshot>, [RowPage; 2]), Problem> {
    let snapshot = app.current_snapshot().map_err(|error| error.0)?;
    let search = find_best_matches(snapshot.clone(), app.today(), q, limit);
    let hits = app.load.search_pool.run(WorkOwner::Address(address), search).await.map_err(|error| error.0)?;
    Ok((snapshot, hits))
}

/// Runs the work of a page beside other requests. It is charged to this address.
pub async fn run_page_work(
    app: Arc<App>,
    address: AddressBucket,
    work: Box<dyn FnOnce() + Send>,
) -> Result<(), Problem> {
    let run = move || {
        work();
        Ok(())
    };
    app.load.search_pool.run(WorkOwner::Address(address), run).await.map_err(|error| error.0)
}

fn find_best_matches(
    snapshot: Arc<Snapshot>,
    today: NaiveDate,
    q: String,
    limit: usize,
) -> impl FnOnce() -> Result<[RowPage; 2], ApiError> {
    let options = SearchOptions { offset: 0, limit, count_facets: false };
    move || {
        let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
        let company_hits = companies.search(&q, options)?.page;
        let filings = require_loaded(snapshot.filings(), Dataset::Filings)?;
        let filing_hits = filings.search(&q, today, options)?.page;
        Ok([company_hits, filing_hits])
    }
}
