//! The global search: companies and filings in one answer. It finds, it does not list.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use vintem_domain::{Dataset, Problem};
use vintem_snapshot::{RowPage, SearchOptions, Snapshot};

use super::companies::{self, CompanyBody};
use super::filings::{self, FilingBody};
use super::{AppState, Handlers, require_loaded, run_search, today};
use crate::App;
use crate::api_error::ApiError;
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
    let (q, limit) = (query.search_text()?, query.limit(MAX_SEARCH_HITS)?);
    let (snapshot, [found_companies, found_filings]) = search_all(app.clone(), q, limit).await?;
    let all_companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let all_filings = require_loaded(snapshot.filings(), Dataset::Filings)?;
    let tag = EtagResponder::new(&caller, &app, &snapshot, &companies::COMPANY_DATASETS, found_filings.total);
    Ok(tag.respond_json(|| SearchBody {
        companies: companies::company_bodies(all_companies, &found_companies),
        filings: filings::filing_bodies(all_filings, &found_filings),
    }))
}

/// The first rows of companies and of filings for these words, in the snapshot that they are rows of.
pub async fn search_all(app: Arc<App>, q: String, limit: usize) -> Result<(Arc<Snapshot>, [RowPage; 2]), Problem> {
    let found = async {
        let (snapshot, today) = (app.current_snapshot()?, today(&app));
        let (searched, wanted) = (snapshot.clone(), SearchOptions { offset: 0, limit, count_facets: false });
        let found = run_search(move || {
            let companies = require_loaded(searched.companies(), Dataset::Companies)?.search(&q, wanted)?.page;
            let filings = require_loaded(searched.filings(), Dataset::Filings)?.search(&q, today, wanted)?.page;
            Ok([companies, filings])
        })
        .await?;
        Ok((snapshot, found))
    };
    found.await.map_err(|refusal: ApiError| refusal.0)
}
