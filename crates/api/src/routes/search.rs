//! The global search: companies and filings in one answer. It finds, it does not list.

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use vintem_domain::Dataset;
use vintem_snapshot::Wanted;

use super::companies::{self, CompanyBody};
use super::filings::{self, FilingBody};
use super::{AppState, Handlers, loaded, search_aside, today};
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
    let (snapshot, today) = (app.snapshot()?, today(&app));
    let all_companies = loaded(snapshot.companies(), Dataset::Companies)?;
    let all_filings = loaded(snapshot.filings(), Dataset::Filings)?;
    let searched = snapshot.clone();
    let wanted = Wanted { offset: 0, limit, facets: false };
    let (found_companies, found_filings) = search_aside(move || {
        let companies = loaded(searched.companies(), Dataset::Companies)?.search(&q, wanted)?.found;
        let filings = loaded(searched.filings(), Dataset::Filings)?.search(&q, today, wanted)?.found;
        Ok((companies, filings))
    })
    .await?;
    let tag = Tag::new(&caller, &app, &snapshot, &companies::DATASETS, found_filings.total);
    Ok(tag.answer(|| SearchBody {
        companies: companies::bodies(all_companies, &found_companies),
        filings: filings::bodies(all_filings, &found_filings),
    }))
}
