//! Filings: list, search, the newest, by company, by id.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_domain::dates::{sao_paulo_day, sao_paulo_offset_seconds};
use vintem_domain::point_in_time::Certainty;
use vintem_domain::{Dataset, DateRange, Problem};
use vintem_snapshot::{FilingFilter, FilingView, Filings, Found, Searched, Snapshot, Wanted, filings_as_of};
use vintem_store::read::FilingRow;

use super::found::{HighlightBody, facets, highlight};
use super::provenance::{TraceBody, Traced, provenance};
use super::{AppState, Handlers, LOOKING_BACK, loaded, search_aside, today};
use crate::App;
use crate::answer::{Tag, page_of, page_with_facets};
use crate::caller::Caller;
use crate::params::{MOST_ROWS, Page, Query};
use crate::problem::Refusal;

#[derive(Serialize)]
pub struct FilingBody<'s> {
    id: &'s str,
    company_id: String,
    company_name: &'s str,
    category: &'s str,
    date: String,
    description: String,
    #[serde(rename = "type")]
    doc_type: &'s str,
    kind: &'s str,
    reference_date: Option<NaiveDate>,
    version: u16,
    is_latest: bool,
    protocol: &'s str,
    url: &'s str,
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    highlight: Option<HighlightBody<'s>>,
    #[serde(flatten)]
    trace: TraceBody,
}

impl<'s> From<FilingView<'s>> for FilingBody<'s> {
    fn from(FilingView { filing, is_latest }: FilingView<'s>) -> Self {
        Self {
            id: filing.id,
            company_id: filing.company_id.to_string(),
            company_name: filing.company_name,
            category: filing.category,
            date: delivery_instant(filing.delivered_on),
            description: description(&filing),
            doc_type: filing.doc_type,
            kind: filing.kind,
            reference_date: filing.reference_date,
            version: filing.version,
            is_latest,
            protocol: filing.protocol,
            url: filing.url,
            source: format!("CVM {}", filing.set.id().to_uppercase()),
            highlight: None,
            trace: TraceBody::default(),
        }
    }
}

#[derive(Serialize)]
struct RecentBody<'s> {
    data: Vec<FilingBody<'s>>,
}

/// What filings are counted by.
const FACETS: [&str; 2] = ["category", "year"];

/// How many the newest are.
const RECENT: usize = 20;

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

async fn list_filings(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (asked, snapshot) = (Asked::read(&query, today(&app))?, app.snapshot()?);
    list(&caller, &app, snapshot, asked).await
}

async fn list_company_filings(
    caller: Caller,
    State(app): AppState,
    query: Query,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let (mut asked, snapshot) = (Asked::read(&query, today(&app))?, app.snapshot()?);
    let companies = loaded(snapshot.companies(), Dataset::Companies)?;
    let Path(id) = id.map_err(|_| Problem::NoSuchCompany)?;
    let row = companies.resolve(&id).ok_or(Problem::NoSuchCompany)?;
    asked.filter.company = Some(companies.get(row).id);
    list(&caller, &app, snapshot, asked).await
}

async fn list_recent_filings(caller: Caller, State(app): AppState) -> Result<Response, Refusal> {
    let snapshot = app.snapshot()?;
    let filings = loaded(snapshot.filings(), Dataset::Filings)?;
    let days = DateRange::ALL.until(today(&app));
    let found = filings.list(&FilingFilter::of_days(days), 0, RECENT);
    let tag = Tag::new(&caller, &app, &snapshot, &[Dataset::Filings], found.total);
    Ok(tag.answer(|| RecentBody { data: bodies(filings, &found) }))
}

async fn count_filings(caller: Caller, State(app): AppState) -> Result<Response, Refusal> {
    let snapshot = app.snapshot()?;
    let filings = loaded(snapshot.filings(), Dataset::Filings)?;
    let counts = filings.facets(today(&app));
    let total: usize = counts[1].iter().map(|(_, count)| count).sum();
    let tag = Tag::new(&caller, &app, &snapshot, &[Dataset::Filings], total);
    Ok(tag.answer(|| facets(FACETS, counts)))
}

async fn search_filings(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (q, page) = (query.q()?, query.page(MOST_ROWS)?);
    let (with_facets, with_highlight) = (query.flag("facets")?, query.flag("highlight")?);
    let wanted = Wanted { offset: page.offset, limit: page.limit, facets: with_facets };
    let (snapshot, today) = (app.snapshot()?, today(&app));
    let filings = loaded(snapshot.filings(), Dataset::Filings)?;
    let searched = snapshot.clone();
    let found = search_aside(move || {
        let filings = loaded(searched.filings(), Dataset::Filings)?;
        Ok(filings.search(&q, today, wanted)?)
    })
    .await?;
    let Searched { found, facets: counts, words } = found;
    let tag = Tag::new(&caller, &app, &snapshot, &[Dataset::Filings], found.total);
    let counts = with_facets.then(|| facets(FACETS, counts));
    Ok(page_with_facets(tag, &app.settings.public_url, page, found.total, counts, || {
        let mut rows = bodies(filings, &found);
        if with_highlight {
            for (body, row) in rows.iter_mut().zip(&found.rows) {
                let filing = filings.get(*row).filing;
                let texts = [
                    ("description", filing.subject),
                    ("company_name", filing.company_name),
                    ("category", filing.category),
                    ("type", filing.doc_type),
                ];
                body.highlight = Some(highlight(&texts, &words));
            }
        }
        rows
    }))
}

async fn get_filing(
    caller: Caller,
    State(app): AppState,
    query: Query,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let traced = Traced::read(&query, today(&app))?;
    let snapshot = app.snapshot()?;
    let served = loaded(snapshot.filings(), Dataset::Filings)?;
    let known = known_on(&app, &snapshot, &traced).await?;
    let filings = known.as_ref().unwrap_or(served);
    let Path(id) = id.map_err(|_| Problem::NoSuchFiling)?;
    let is_delivered = |row: &u32| filings.get(*row).filing.delivered_on <= traced.last_day;
    let row = filings.by_id(&id).filter(is_delivered).ok_or(Problem::NoSuchFiling)?;
    let tag = Tag::new(&caller, &app, &snapshot, &[Dataset::Filings], ());
    Ok(tag.answer(|| traced_body(&traced, &snapshot, filings, row)))
}

/// Every version of the document that a filing is one of, the newest first.
async fn list_filing_versions(
    caller: Caller,
    State(app): AppState,
    query: Query,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let page = query.page(MOST_ROWS)?;
    let (snapshot, today) = (app.snapshot()?, today(&app));
    let filings = loaded(snapshot.filings(), Dataset::Filings)?;
    let Path(id) = id.map_err(|_| Problem::NoSuchFiling)?;
    let is_delivered = |row: &u32| filings.get(*row).filing.delivered_on <= today;
    let row = filings.by_id(&id).filter(is_delivered).ok_or(Problem::NoSuchFiling)?;
    let versions: Vec<u32> = filings.versions(row).into_iter().filter(is_delivered).collect();
    let total = versions.len();
    let tag = Tag::new(&caller, &app, &snapshot, &[Dataset::Filings], total);
    Ok(page_of(tag, &app.settings.public_url, page, total, || {
        let rows = versions.into_iter().skip(page.offset).take(page.limit).collect();
        bodies(filings, &Found { total, rows })
    }))
}

/// What a list of filings can be asked for.
struct Asked {
    page: Page,
    filter: FilingFilter,
    traced: Traced,
}

impl Asked {
    fn read(query: &Query, today: NaiveDate) -> Result<Self, Problem> {
        let filter = FilingFilter {
            category: query.filter("category")?,
            known_since: query.updated_since()?,
            ..FilingFilter::of_days(query.days()?)
        };
        Ok(Self { page: query.page(MOST_ROWS)?, filter, traced: Traced::read(query, today)? })
    }
}

fn traced_body<'s>(traced: &Traced, snapshot: &Snapshot, filings: &'s Filings, row: u32) -> FilingBody<'s> {
    let mut view = filings.get(row);
    let known = traced.as_of.map(|day| {
        view.is_latest = filings.is_latest_until(row, day);
        // Known from its delivery on; since then we may have seen it.
        let is_seen = sao_paulo_day(view.filing.known.instant()) <= day;
        if is_seen { Certainty::Observed } else { Certainty::Estimated }
    });
    let source = Dataset::Filings.source();
    let trace = TraceBody {
        provenance: traced.provenance.then(|| provenance(snapshot, source, &[view.filing.known])),
        known: known.map(Certainty::id),
    };
    FilingBody { trace, ..FilingBody::from(view) }
}

/// What could be known on a day, where one is asked for: with the store, which alone has every version.
async fn known_on(app: &App, snapshot: &Snapshot, traced: &Traced) -> Result<Option<Filings>, Refusal> {
    let (Some(day), Some(served)) = (traced.as_of, snapshot.shared_filings()) else { return Ok(None) };
    let _turn = LOOKING_BACK.turn().await?;
    Ok(Some(filings_as_of(&app.store, served, day).await?))
}

async fn list(caller: &Caller, app: &App, snapshot: Arc<Snapshot>, asked: Asked) -> Result<Response, Refusal> {
    let Asked { page, mut filter, traced } = asked;
    filter.days = filter.days.until(traced.last_day);
    let served = loaded(snapshot.filings(), Dataset::Filings)?;
    let known = known_on(app, &snapshot, &traced).await?;
    let filings = known.as_ref().unwrap_or(served);
    // By when we learned of it every filing is looked at: milliseconds.
    let found = match filter.known_since {
        None => filings.list(&filter, page.offset, page.limit),
        Some(_) => {
            let filings = filings.clone();
            search_aside(move || Ok(filings.list(&filter, page.offset, page.limit))).await?
        }
    };
    let tag = Tag::new(caller, app, &snapshot, &[Dataset::Filings, Dataset::Companies], found.total);
    Ok(page_of(tag, &app.settings.public_url, page, found.total, || {
        found.rows.iter().map(|row| traced_body(&traced, &snapshot, filings, *row)).collect()
    }))
}

pub fn bodies<'s>(filings: &'s Filings, found: &Found) -> Vec<FilingBody<'s>> {
    found.rows.iter().map(|row| FilingBody::from(filings.get(*row))).collect()
}

/// The subject; where there is none, what kind of document it is.
fn description(filing: &FilingRow<'_>) -> String {
    if !filing.subject.is_empty() {
        return filing.subject.to_owned();
    }
    let said: Vec<&str> = [filing.doc_type, filing.kind].into_iter().filter(|text| !text.is_empty()).collect();
    if said.is_empty() { filing.category.to_owned() } else { said.join(" - ") }
}

/// The delivery day with São Paulo's offset: `2026-02-11T00:00:00-03:00`.
fn delivery_instant(day: NaiveDate) -> String {
    let hours = sao_paulo_offset_seconds(day) / -3600;
    format!("{day}T00:00:00-{hours:02}:00")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filing_is_dated_with_sao_paulos_offset() {
        assert_eq!(delivery_instant("2026-02-11".parse().unwrap()), "2026-02-11T00:00:00-03:00");
        assert_eq!(delivery_instant("2018-12-11".parse().unwrap()), "2018-12-11T00:00:00-02:00");
    }
}
