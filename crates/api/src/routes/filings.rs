//! Filings: list, search, the newest, by company, by id.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::{Serialize, Serializer};
use vintem_deliver::table::{Cells, Column, Table};
use vintem_domain::dates::{SaoPauloMidnight, sao_paulo_day};
use vintem_domain::point_in_time::Certainty;
use vintem_domain::{Dataset, DateRange, Problem};
use vintem_snapshot::{FilingFilter, FilingView, Filings, Found, Searched, Snapshot, Wanted, filings_as_of};

use super::found::{HighlightBody, facets, highlight};
use super::provenance::{TraceBody, Traced, provenance};
use super::{AppState, Handlers, LOOKING_BACK, loaded, search_aside, today};
use crate::App;
use crate::answer::{Listed, Tag, page_of};
use crate::caller::Caller;
use crate::csv::Form;
use crate::few::long_table;
use crate::params::{MOST_FILINGS_AS_CSV, MOST_ROWS, Page, Query};
use crate::problem::Refusal;

#[derive(Serialize)]
pub struct FilingBody<'s> {
    id: &'s str,
    #[serde(serialize_with = "as_text")]
    company_id: u32,
    company_name: &'s str,
    category: &'s str,
    #[serde(serialize_with = "as_text")]
    date: SaoPauloMidnight,
    description: Cow<'s, str>,
    #[serde(rename = "type")]
    doc_type: &'s str,
    kind: &'s str,
    reference_date: Option<NaiveDate>,
    version: u16,
    is_latest: bool,
    protocol: &'s str,
    url: &'s str,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    highlight: Option<HighlightBody<'s>>,
    #[serde(flatten)]
    trace: TraceBody,
}

impl<'s> From<FilingView<'s>> for FilingBody<'s> {
    fn from(view: FilingView<'s>) -> Self {
        let FilingView { filing, is_latest } = view;
        Self {
            id: filing.id,
            company_id: filing.company_id,
            company_name: filing.company_name,
            category: filing.category,
            date: SaoPauloMidnight(filing.delivered_on),
            description: view.description(),
            doc_type: filing.doc_type,
            kind: filing.kind,
            reference_date: filing.reference_date,
            version: filing.version,
            is_latest,
            protocol: filing.protocol,
            url: filing.url,
            source: filing.set.source(),
            highlight: None,
            trace: TraceBody::default(),
        }
    }
}

/// In the order of the cells below.
const COLUMNS: [Column; 14] = [
    Column::text("id"),
    Column::text("company_id"),
    Column::text("company_name"),
    Column::text("category"),
    Column::midnight("date"),
    Column::text("description"),
    Column::text("type"),
    Column::text("kind"),
    Column::day("reference_date"),
    Column::whole("version"),
    Column::flag("is_latest"),
    Column::text("protocol"),
    Column::text("url"),
    Column::text("source"),
];

impl FilingBody<'_> {
    fn write(&self, cells: &mut dyn Cells) {
        cells.text(self.id);
        cells.code(self.company_id);
        cells.text(self.company_name);
        cells.text(self.category);
        cells.midnight(self.date.0);
        cells.text(&self.description);
        cells.text(self.doc_type);
        cells.text(self.kind);
        cells.day(self.reference_date);
        cells.whole(self.version.into());
        cells.flag(self.is_latest);
        cells.text(self.protocol);
        cells.text(self.url);
        cells.text(self.source);
        self.trace.write(cells);
    }
}

/// These rows, made one by one as they are sent.
pub fn table(snapshot: &Arc<Snapshot>, filings: &Filings, found: Found, traced: Traced) -> Table {
    let (snapshot, filings, mut rows) = (snapshot.clone(), filings.clone(), found.rows.into_iter());
    Table::new("filings", COLUMNS.into_iter().chain(traced.columns()).collect(), move |cells| {
        let row = rows.next();
        row.map(|row| traced_body(&traced, &snapshot, &filings, row).write(cells)).is_some()
    })
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
    let (asked, snapshot) = (Asked::read(&caller, &query, today(&app))?, app.snapshot()?);
    list(&caller, &app, snapshot, asked).await
}

async fn list_company_filings(
    caller: Caller,
    State(app): AppState,
    query: Query,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let (mut asked, snapshot) = (Asked::read(&caller, &query, today(&app))?, app.snapshot()?);
    let companies = loaded(snapshot.companies(), Dataset::Companies)?;
    let Path(id) = id.map_err(|_| Problem::NoSuchCompany)?;
    let row = companies.resolve(&id).ok_or(Problem::NoSuchCompany)?;
    asked.filter.company = Some(companies.get(row).id);
    list(&caller, &app, snapshot, asked).await
}

async fn list_recent_filings(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (form, snapshot) = (Form::read(&caller, &query)?, app.snapshot()?);
    let filings = loaded(snapshot.filings(), Dataset::Filings)?;
    let days = DateRange::ALL.until(today(&app));
    let found = filings.list(&FilingFilter::of_days(days), 0, RECENT);
    let tag = Tag::new(&caller, &app, &snapshot, &[Dataset::Filings], found.total);
    let body = |found: Found| RecentBody { data: bodies(filings, &found) };
    Ok(tag.list(form, found, body, |found| table(&snapshot, filings, found, Traced::nothing(today(&app)))))
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
    let (q, form) = (query.q()?, Form::read(&caller, &query)?);
    let page = query.page(form.most(MOST_ROWS, MOST_FILINGS_AS_CSV))?;
    let place = (page.limit > MOST_ROWS).then(|| long_table(caller.key)).transpose()?;
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
    let facets = with_facets.then(|| facets(FACETS, counts));
    let bodies = |found: Found| {
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
    };
    let table = |found| table(&snapshot, filings, found, Traced::nothing(today)).holding(place);
    Ok(page_of(tag, Listed { form, page, total: found.total, facets }, found, bodies, table))
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
    let (page, form) = (query.page(MOST_ROWS)?, Form::read(&caller, &query)?);
    let (snapshot, today) = (app.snapshot()?, today(&app));
    let filings = loaded(snapshot.filings(), Dataset::Filings)?;
    let Path(id) = id.map_err(|_| Problem::NoSuchFiling)?;
    let is_delivered = |row: &u32| filings.get(*row).filing.delivered_on <= today;
    let row = filings.by_id(&id).filter(is_delivered).ok_or(Problem::NoSuchFiling)?;
    let versions: Vec<u32> = filings.versions(row).into_iter().filter(is_delivered).collect();
    let total = versions.len();
    let tag = Tag::new(&caller, &app, &snapshot, &[Dataset::Filings], total);
    let found = Found { total, rows: versions.into_iter().skip(page.offset).take(page.limit).collect() };
    let table = |found| table(&snapshot, filings, found, Traced::nothing(today));
    Ok(page_of(tag, Listed { form, page, total, facets: None }, found, |found| bodies(filings, &found), table))
}

/// What a list of filings can be asked for.
struct Asked {
    form: Form,
    page: Page,
    filter: FilingFilter,
    traced: Traced,
}

impl Asked {
    fn read(caller: &Caller, query: &Query, today: NaiveDate) -> Result<Self, Problem> {
        let form = Form::read(caller, query)?;
        let page = query.page(form.most(MOST_ROWS, MOST_FILINGS_AS_CSV))?;
        let filter = FilingFilter {
            category: query.filter("category")?,
            known_since: query.updated_since()?,
            ..FilingFilter::of_days(query.days()?)
        };
        Ok(Self { form, page, filter, traced: Traced::read(query, today)? })
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
    let Asked { form, page, mut filter, traced } = asked;
    let is_long = page.limit > MOST_ROWS;
    let place = is_long.then(|| long_table(caller.key)).transpose()?;
    filter.days = filter.days.until(traced.last_day);
    let served = loaded(snapshot.filings(), Dataset::Filings)?;
    let known = known_on(app, &snapshot, &traced).await?;
    let filings = known.as_ref().unwrap_or(served);
    // By when we learned of it every filing is looked at, and of a long list every row is found: milliseconds.
    let found = match filter.known_since {
        None if !is_long => filings.list(&filter, page.offset, page.limit),
        _ => {
            let filings = filings.clone();
            search_aside(move || Ok(filings.list(&filter, page.offset, page.limit))).await?
        }
    };
    let tag = Tag::new(caller, app, &snapshot, &[Dataset::Filings, Dataset::Companies], found.total);
    let body = |row: &u32| traced_body(&traced, &snapshot, filings, *row);
    let bodies = |found: Found| found.rows.iter().map(body).collect::<Vec<_>>();
    let table = |found| table(&snapshot, filings, found, traced).holding(place);
    Ok(page_of(tag, Listed { form, page, total: found.total, facets: None }, found, bodies, table))
}

pub fn bodies<'s>(filings: &'s Filings, found: &Found) -> Vec<FilingBody<'s>> {
    found.rows.iter().map(|row| FilingBody::from(filings.get(*row))).collect()
}

fn as_text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}
