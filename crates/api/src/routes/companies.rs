//! Companies: list, search, look-up.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use http::{HeaderValue, header};
use serde::Serialize;
use vintem_deliver::table::{Cells, Column, Table};
use vintem_domain::{Company, Dataset, Problem, Text};
use vintem_snapshot::{Clue, Companies, CompanyFilter, Found, Searched, Snapshot, Wanted, companies_as_of, matches};

use super::found::{HighlightBody, facets, highlight};
use super::provenance::{TraceBody, Traced, provenance};
use super::{AppState, Handlers, LOOKING_BACK, loaded, search_aside, today};
use crate::App;
use crate::answer::{Listed, Tag, page_of};
use crate::caller::Caller;
use crate::csv::Form;
use crate::params::{MOST_COMPANIES_AS_CSV, MOST_ROWS, Query, refuse};
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
            registered: company.registered,
            highlight: None,
            trace: TraceBody::default(),
        }
    }
}

/// In the order of the cells below.
const COLUMNS: [Column; 19] = [
    Column::text("id"),
    Column::text("name"),
    Column::text("cnpj"),
    Column::text("status"),
    Column::text("sector"),
    Column::text("trade_name"),
    Column::texts("former_names"),
    Column::texts("tickers"),
    Column::texts("markets"),
    Column::day("registered_on"),
    Column::day("cancelled_on"),
    Column::day("status_since"),
    Column::text("category"),
    Column::text("situation"),
    Column::text("control"),
    Column::text("city"),
    Column::text("state"),
    Column::text("auditor"),
    Column::flag("registered"),
];

impl CompanyBody<'_> {
    fn write(&self, cells: &mut dyn Cells) {
        cells.text(&self.id);
        cells.text(self.name);
        cells.text(&self.cnpj);
        cells.text(self.status);
        cells.text(self.sector);
        cells.text(self.trade_name);
        for texts in [self.former_names, self.tickers, self.markets] {
            cells.texts(&mut texts.iter().map(String::as_str));
        }
        cells.day(self.registered_on);
        cells.day(self.cancelled_on);
        cells.day(self.status_since);
        cells.text(self.category);
        cells.text(self.situation);
        cells.text(self.control);
        cells.text(self.city);
        cells.text(self.state);
        cells.text(self.auditor);
        cells.flag(self.registered);
        self.trace.write(cells);
    }
}

/// These rows of what could be known, or else of what is served, made one by one as they are sent.
pub fn table(snapshot: &Arc<Snapshot>, known: Option<Arc<Companies>>, found: Found, traced: Traced) -> Table {
    let (snapshot, mut rows) = (snapshot.clone(), found.rows.into_iter());
    Table::new("companies", COLUMNS.into_iter().chain(traced.columns()).collect(), move |cells| {
        let row = rows.next().zip(known.as_deref().or(snapshot.companies()));
        row.map(|(row, companies)| traced_body(&traced, &snapshot, companies, row).write(cells)).is_some()
    })
}

/// What companies are counted by.
const FACETS: [&str; 2] = ["status", "sector"];

#[derive(Serialize)]
struct ResolvedBody<'s> {
    company: CompanyBody<'s>,
    /// From 0 to 1: how sure it is that this one was meant.
    score: f32,
    matched_by: &'static str,
}

impl CompanyBody<'_> {
    fn highlight(&mut self, words: &HashSet<String>) {
        let mut texts = vec![("name", self.name), ("trade_name", self.trade_name), ("sector", self.sector)];
        // The newest of those that matched.
        let matched = |name: &&String| matches(name, words).iter().any(|(_, matched)| *matched);
        texts.extend(self.former_names.iter().find(matched).map(|name| ("former_names", name.as_str())));
        self.highlight = Some(highlight(&texts, words));
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

async fn list_companies(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let form = Form::read(&caller, &query)?;
    let page = query.page(form.most(MOST_ROWS, MOST_COMPANIES_AS_CSV))?;
    let filter = CompanyFilter {
        status: query.filter("status")?,
        sector: query.filter("sector")?,
        known_since: query.updated_since()?,
    };
    let traced = Traced::read(&query, today(&app))?;
    let snapshot = app.snapshot()?;
    let served = loaded(snapshot.companies(), Dataset::Companies)?;
    let known = known_on(&app, &snapshot, &traced).await?;
    let companies = known.as_deref().unwrap_or(served);
    let found = companies.list(&filter, page.offset, page.limit);
    let tag = Tag::new(&caller, &app, &snapshot, &DATASETS, found.total);
    let body = |row: &u32| traced_body(&traced, &snapshot, companies, *row);
    let bodies = |found: Found| found.rows.iter().map(body).collect::<Vec<_>>();
    let table = |found| table(&snapshot, known.clone(), found, traced);
    Ok(page_of(tag, Listed { form, page, total: found.total, facets: None }, found, bodies, table))
}

fn traced_body<'s>(traced: &Traced, snapshot: &Snapshot, companies: &'s Companies, row: u32) -> CompanyBody<'s> {
    // Of an issuer that only filings name, that of a filing.
    let known = [companies.known(row)];
    let trace = TraceBody {
        provenance: traced.provenance.then(|| provenance(snapshot, Dataset::Companies.source(), &known)),
        known: traced.as_of.map(|_| companies.certainty(row).id()),
    };
    CompanyBody { trace, ..CompanyBody::from(companies.get(row)) }
}

/// What could be known on a day, where one is asked for: from the store, which alone has every version.
async fn known_on(app: &App, snapshot: &Snapshot, traced: &Traced) -> Result<Option<Arc<Companies>>, Refusal> {
    let Some(day) = traced.as_of else { return Ok(None) };
    let _turn = LOOKING_BACK.turn().await?;
    Ok(Some(Arc::new(companies_as_of(&app.store, snapshot.shared_filings(), day).await?)))
}

async fn count_companies(caller: Caller, State(app): AppState) -> Result<Response, Refusal> {
    let snapshot = app.snapshot()?;
    let companies = loaded(snapshot.companies(), Dataset::Companies)?;
    let tag = Tag::new(&caller, &app, &snapshot, &DATASETS, ());
    Ok(tag.answer(|| facets(FACETS, companies.facets())))
}

async fn resolve_company(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (clue, text) = clue(&query)?;
    let snapshot = app.snapshot()?;
    let companies = loaded(snapshot.companies(), Dataset::Companies)?;
    let searched = snapshot.clone();
    let resolved = search_aside(move || {
        let companies = loaded(searched.companies(), Dataset::Companies)?;
        Ok(companies.resolve_by(clue, &text)?)
    })
    .await?;
    let (row, score) = resolved.ok_or(Problem::NoSuchCompany)?;
    let tag = Tag::new(&caller, &app, &snapshot, &DATASETS, ());
    Ok(tag.answer(|| ResolvedBody { company: companies.get(row).into(), score, matched_by: clue.id() }))
}

/// By what a company is to be found: exactly one of the ways.
fn clue(query: &Query) -> Result<(Clue, String), Problem> {
    let mut given = Vec::new();
    for clue in Clue::ALL {
        if let Some(text) = query.filter(clue.id())? {
            given.push((clue, text));
        }
    }
    let must = Text::new(
        "be given, or one of `code`, `ticker` and `name`, and no two of them",
        "ser informado, ou um de `code`, `ticker` e `name`, e nunca dois deles",
    );
    match given.pop() {
        Some((clue, text)) if given.is_empty() && !text.trim().is_empty() => Ok((clue, text)),
        _ => refuse("cnpj", must),
    }
}

async fn search_companies(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (q, form) = (query.q()?, Form::read(&caller, &query)?);
    let page = query.page(form.most(MOST_ROWS, MOST_COMPANIES_AS_CSV))?;
    let (with_facets, with_highlight) = (query.flag("facets")?, query.flag("highlight")?);
    let wanted = Wanted { offset: page.offset, limit: page.limit, facets: with_facets };
    let snapshot = app.snapshot()?;
    let companies = loaded(snapshot.companies(), Dataset::Companies)?;
    let searched = snapshot.clone();
    let found = search_aside(move || {
        let companies = loaded(searched.companies(), Dataset::Companies)?;
        Ok(companies.search(&q, wanted)?)
    })
    .await?;
    let Searched { found, facets: counts, words } = found;
    let tag = Tag::new(&caller, &app, &snapshot, &DATASETS, ());
    let facets = with_facets.then(|| facets(FACETS, counts));
    let bodies = |found: Found| {
        let mut rows = bodies(companies, &found);
        if with_highlight {
            rows.iter_mut().for_each(|row| row.highlight(&words));
        }
        rows
    };
    let table = |found| table(&snapshot, None, found, Traced::nothing(today(&app)));
    Ok(page_of(tag, Listed { form, page, total: found.total, facets }, found, bodies, table))
}

async fn get_company(
    caller: Caller,
    State(app): AppState,
    query: Query,
    id: Result<Path<String>, axum::extract::rejection::PathRejection>,
) -> Result<Response, Refusal> {
    let traced = Traced::read(&query, today(&app))?;
    let snapshot = app.snapshot()?;
    let served = loaded(snapshot.companies(), Dataset::Companies)?;
    let known = known_on(&app, &snapshot, &traced).await?;
    let companies = known.as_deref().unwrap_or(served);
    // What is no UTF-8 is no company's code.
    let Path(id) = id.map_err(|_| Problem::NoSuchCompany)?;
    let row = companies.resolve(&id).ok_or(Problem::NoSuchCompany)?;
    let canonical = format!("/api/v1/companies/{}", companies.get(row).id);
    let tag = Tag::new(&caller, &app, &snapshot, &DATASETS, ());
    let mut response = tag.answer(|| traced_body(&traced, &snapshot, companies, row));
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
