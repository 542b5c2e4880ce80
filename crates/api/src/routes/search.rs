//! Global search: the best matches among companies and filings in one response, without pagination.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use vintem_domain::{Dataset, Problem};
use vintem_snapshot::{RowPage, SearchOptions, Snapshot};

use crate::api_error::ApiError;
use crate::app::{App, AppState, Handlers};
use crate::bodies::company::{COMPANY_DATASETS, CompanyBody, company_bodies};
use crate::bodies::filing::{FilingBody, filing_bodies};
use crate::bodies::require_loaded;
use crate::caller::Caller;
use crate::params::{MAX_SEARCH_HITS, QueryParams};
use crate::responses::EtagResponder;

#[derive(Serialize)]
struct SearchBody<'s> {
    companies: Vec<CompanyBody<'s>>,
    filings: Vec<FilingBody<'s>>,
}

pub fn handlers() -> Handlers {
    vec![("search", get(search))]
}

async fn search(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let q = query.search_text()?;
    let limit = query.limit(MAX_SEARCH_HITS)?;
    let (snapshot, [company_hits, filing_hits]) = search_all(app.clone(), q, limit).await?;
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let filings = require_loaded(snapshot.filings(), Dataset::Filings)?;

    let responder = EtagResponder::new(&caller, &app, &snapshot, &COMPANY_DATASETS, filing_hits.total);
    Ok(responder.respond_json(|| SearchBody {
        companies: company_bodies(companies, &company_hits),
        filings: filing_bodies(filings, &filing_hits),
    }))
}

/// The best matches among companies and among filings, with the snapshot that their row numbers refer to.
pub async fn search_all(app: Arc<App>, q: String, limit: usize) -> Result<(Arc<Snapshot>, [RowPage; 2]), Problem> {
    let search = async {
        let snapshot = app.current_snapshot()?;
        let today = app.today();
        let options = SearchOptions { offset: 0, limit, count_facets: false };

        let search_snapshot = snapshot.clone();
        let search = move || {
            let companies = require_loaded(search_snapshot.companies(), Dataset::Companies)?;
            let company_hits = companies.search(&q, options)?.page;
            let filings = require_loaded(search_snapshot.filings(), Dataset::Filings)?;
            let filing_hits = filings.search(&q, today, options)?.page;
            Ok([company_hits, filing_hits])
        };
        let hits = app.load.search_pool.run(search).await?;
        Ok((snapshot, hits))
    };
    search.await.map_err(|error: ApiError| error.0)
}
