//! The global search: companies and filings in one answer. It finds, it does not list.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use vintem_domain::{Dataset, Problem};
use vintem_snapshot::{Found, Snapshot, Wanted};

use super::companies::{self, CompanyBody};
use super::filings::{self, FilingBody};
use super::{AppState, Handlers, loaded, search_aside, today};
use crate::App;
use crate::answer::Tag;
use crate::caller::Caller;
use crate::params::{MOST_FOUND, Query};
use crate::problem::Refusal;

#[derive(Serialize)]
struct SearchBody<'s> {
    companies: Vec<CompanyBody<'s>>,
    filings: Vec<FilingBody<'s>>,
}

pub fn handlers() -> Handlers {
    vec![("search", get(search))]
}

async fn search(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (q, limit) = (query.q()?, query.limit(MOST_FOUND)?);
    let (snapshot, [found_companies, found_filings]) = find(app.clone(), q, limit).await?;
    let all_companies = loaded(snapshot.companies(), Dataset::Companies)?;
    let all_filings = loaded(snapshot.filings(), Dataset::Filings)?;
    let tag = Tag::new(&caller, &app, &snapshot, &companies::DATASETS, found_filings.total);
    Ok(tag.answer(|| SearchBody {
        companies: companies::bodies(all_companies, &found_companies),
        filings: filings::bodies(all_filings, &found_filings),
    }))
}

/// The first rows of companies and of filings for these words, in the snapshot that they are rows of.
pub async fn find(app: Arc<App>, q: String, limit: usize) -> Result<(Arc<Snapshot>, [Found; 2]), Problem> {
    let found = async {
        let (snapshot, today) = (app.snapshot()?, today(&app));
        let (searched, wanted) = (snapshot.clone(), Wanted { offset: 0, limit, facets: false });
        let found = search_aside(move || {
            let companies = loaded(searched.companies(), Dataset::Companies)?.search(&q, wanted)?.found;
            let filings = loaded(searched.filings(), Dataset::Filings)?.search(&q, today, wanted)?.found;
            Ok([companies, filings])
        })
        .await?;
        Ok((snapshot, found))
    };
    found.await.map_err(|refusal: Refusal| refusal.0)
}
