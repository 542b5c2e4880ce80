//! Companies: list, search, look-up.

use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use http::{HeaderValue, header};
use serde::Serialize;
use vintem_domain::{Company, Dataset, Problem};
use vintem_snapshot::{Companies, CompanyFilter, Found};

use super::{AppState, Handlers, loaded, search_aside};
use crate::answer::{Tag, page_of};
use crate::caller::Caller;
use crate::params::{MOST_ROWS, Query};
use crate::problem::Refusal;

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
            registered: company.registered,
        }
    }
}

pub fn handlers() -> Handlers {
    vec![
        ("list_companies", get(list_companies)),
        ("search_companies", get(search_companies)),
        ("get_company", get(get_company)),
    ]
}

async fn list_companies(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let page = query.page(MOST_ROWS)?;
    let filter = CompanyFilter { status: query.filter("status")?, sector: query.filter("sector")? };
    let snapshot = app.snapshot()?;
    let companies = loaded(snapshot.companies(), Dataset::Companies)?;
    let found = companies.list(&filter, page.offset, page.limit);
    let tag = Tag::new(&caller, &app, &snapshot, &DATASETS, ());
    Ok(page_of(tag, &app.settings.public_url, page, found.total, || bodies(companies, &found)))
}

async fn search_companies(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (q, page) = (query.q()?, query.page(MOST_ROWS)?);
    let snapshot = app.snapshot()?;
    let companies = loaded(snapshot.companies(), Dataset::Companies)?;
    let searched = snapshot.clone();
    let found = search_aside(move || {
        let companies = loaded(searched.companies(), Dataset::Companies)?;
        Ok(companies.search(&q, page.offset, page.limit)?)
    })
    .await?;
    let tag = Tag::new(&caller, &app, &snapshot, &DATASETS, ());
    Ok(page_of(tag, &app.settings.public_url, page, found.total, || bodies(companies, &found)))
}

async fn get_company(
    caller: Caller,
    State(app): AppState,
    id: Result<Path<String>, axum::extract::rejection::PathRejection>,
) -> Result<Response, Refusal> {
    let snapshot = app.snapshot()?;
    let companies = loaded(snapshot.companies(), Dataset::Companies)?;
    // What is no UTF-8 is no company's code.
    let Path(id) = id.map_err(|_| Problem::NoSuchCompany)?;
    let company = companies.resolve(&id).ok_or(Problem::NoSuchCompany)?;
    let canonical = format!("/api/v1/companies/{}", company.id);
    let mut response = Tag::new(&caller, &app, &snapshot, &DATASETS, ()).answer(|| CompanyBody::from(company));
    if let Ok(canonical) = HeaderValue::from_str(&canonical) {
        response.headers_mut().insert(header::CONTENT_LOCATION, canonical);
    }
    Ok(response)
}

/// Filings too: an issuer that only they name is a company.
pub const DATASETS: [Dataset; 2] = [Dataset::Companies, Dataset::Filings];

pub fn bodies<'s>(companies: &'s Companies, found: &Found) -> Vec<CompanyBody<'s>> {
    found.rows.iter().map(|row| CompanyBody::from(companies.get(*row))).collect()
}
