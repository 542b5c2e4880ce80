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
use vintem_deliver::table::{CellWriter, Column, OutputTable};
use vintem_domain::dates::{SaoPauloMidnight, sao_paulo_date};
use vintem_domain::point_in_time::Certainty;
use vintem_domain::{Dataset, DateRange, Problem};
use vintem_snapshot::{
    FilingFilter, FilingView, Filings, RowPage, SearchOptions, SearchResults, Snapshot, filings_as_of,
};

use super::provenance::{TraceBody, TraceOptions, provenance_bodies};
use super::search_bodies::{HighlightBody, facets_body, highlight_body};
use super::{AppState, HISTORY_POOL, Handlers, require_loaded, run_search, today};
use crate::App;
use crate::api_error::ApiError;
use crate::caller::Caller;
use crate::csv::ListFormat;
use crate::params::{MAX_CSV_FILINGS, MAX_PAGE_ROWS, Pagination, QueryParams};
use crate::per_key_limit::acquire_long_table;
use crate::responses::{EtagResponder, ListPage, page_response};

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
            source: filing.cvm_dataset.source_name(),
            highlight: None,
            trace: TraceBody::default(),
        }
    }
}

/// In the order of the cells below.
const FILING_COLUMNS: [Column; 14] = [
    Column::text("id"),
    Column::text("company_id"),
    Column::text("company_name"),
    Column::text("category"),
    Column::date_as_midnight("date"),
    Column::text("description"),
    Column::text("type"),
    Column::text("kind"),
    Column::date("reference_date"),
    Column::integer("version"),
    Column::boolean("is_latest"),
    Column::text("protocol"),
    Column::text("url"),
    Column::text("source"),
];

impl FilingBody<'_> {
    fn write_cells(&self, cells: &mut dyn CellWriter) {
        cells.write_text(self.id);
        cells.write_code(self.company_id);
        cells.write_text(self.company_name);
        cells.write_text(self.category);
        cells.write_date_as_midnight(self.date.0);
        cells.write_text(&self.description);
        cells.write_text(self.doc_type);
        cells.write_text(self.kind);
        cells.write_date(self.reference_date);
        cells.write_integer(self.version.into());
        cells.write_boolean(self.is_latest);
        cells.write_text(self.protocol);
        cells.write_text(self.url);
        cells.write_text(self.source);
        self.trace.write_cells(cells);
    }
}

/// These rows, made one by one as they are sent.
pub fn filings_table(snapshot: &Arc<Snapshot>, filings: &Filings, found: RowPage, traced: TraceOptions) -> OutputTable {
    let (snapshot, filings, mut rows) = (snapshot.clone(), filings.clone(), found.rows.into_iter());
    OutputTable::new("filings", FILING_COLUMNS.into_iter().chain(traced.columns()).collect(), move |cells| {
        let row = rows.next();
        row.map(|row| traced_filing_body(&traced, &snapshot, &filings, row).write_cells(cells)).is_some()
    })
}

#[derive(Serialize)]
struct RecentFilingsBody<'s> {
    data: Vec<FilingBody<'s>>,
}

/// What filings are counted by.
const FILING_FACETS: [&str; 2] = ["category", "year"];

/// How many the newest are.
const RECENT_FILINGS_COUNT: usize = 20;

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

async fn list_filings(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let (asked, snapshot) = (FilingListParams::from_query(&caller, &query, today(&app))?, app.current_snapshot()?);
    filing_list_response(&caller, &app, snapshot, asked).await
}

async fn list_company_filings(
    caller: Caller,
    State(app): AppState,
    query: QueryParams,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let (mut asked, snapshot) = (FilingListParams::from_query(&caller, &query, today(&app))?, app.current_snapshot()?);
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let Path(id) = id.map_err(|_| Problem::NoSuchCompany)?;
    let row = companies.resolve(&id).ok_or(Problem::NoSuchCompany)?;
    asked.filter.company = Some(companies.get(row).id);
    filing_list_response(&caller, &app, snapshot, asked).await
}

async fn list_recent_filings(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let (form, snapshot) = (ListFormat::from_query(&caller, &query)?, app.current_snapshot()?);
    let filings = require_loaded(snapshot.filings(), Dataset::Filings)?;
    let days = DateRange::ALL.capped_at(today(&app));
    let found = filings.list(&FilingFilter::for_days(days), 0, RECENT_FILINGS_COUNT);
    let tag = EtagResponder::new(&caller, &app, &snapshot, &[Dataset::Filings], found.total);
    let body = |found: RowPage| RecentFilingsBody { data: filing_bodies(filings, &found) };
    Ok(tag.respond_list(form, found, body, |found| {
        filings_table(&snapshot, filings, found, TraceOptions::disabled(today(&app)))
    }))
}

async fn count_filings(caller: Caller, State(app): AppState) -> Result<Response, ApiError> {
    let snapshot = app.current_snapshot()?;
    let filings = require_loaded(snapshot.filings(), Dataset::Filings)?;
    let counts = filings.facet_counts(today(&app));
    let total: usize = counts[1].iter().map(|(_, count)| count).sum();
    let tag = EtagResponder::new(&caller, &app, &snapshot, &[Dataset::Filings], total);
    Ok(tag.respond_json(|| facets_body(FILING_FACETS, counts)))
}

async fn search_filings(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let (q, form) = (query.search_text()?, ListFormat::from_query(&caller, &query)?);
    let page = query.pagination(form.max_rows(MAX_PAGE_ROWS, MAX_CSV_FILINGS))?;
    let place = (page.limit > MAX_PAGE_ROWS).then(|| acquire_long_table(caller.key)).transpose()?;
    let (with_facets, with_highlight) = (query.flag("facets")?, query.flag("highlight")?);
    let wanted = SearchOptions { offset: page.offset, limit: page.limit, count_facets: with_facets };
    let (snapshot, today) = (app.current_snapshot()?, today(&app));
    let filings = require_loaded(snapshot.filings(), Dataset::Filings)?;
    let searched = snapshot.clone();
    let found = run_search(move || {
        let filings = require_loaded(searched.filings(), Dataset::Filings)?;
        Ok(filings.search(&q, today, wanted)?)
    })
    .await?;
    let SearchResults { page: found, facet_counts: counts, matched_words: words } = found;
    let tag = EtagResponder::new(&caller, &app, &snapshot, &[Dataset::Filings], found.total);
    let facets = with_facets.then(|| facets_body(FILING_FACETS, counts));
    let bodies = |found: RowPage| {
        let mut rows = filing_bodies(filings, &found);
        if with_highlight {
            for (body, row) in rows.iter_mut().zip(&found.rows) {
                let filing = filings.get(*row).filing;
                let texts = [
                    ("description", filing.subject),
                    ("company_name", filing.company_name),
                    ("category", filing.category),
                    ("type", filing.doc_type),
                ];
                body.highlight = Some(highlight_body(&texts, &words));
            }
        }
        rows
    };
    let table = |found| filings_table(&snapshot, filings, found, TraceOptions::disabled(today)).with_guard(place);
    Ok(page_response(tag, ListPage { form, page, total: found.total, facets }, found, bodies, table))
}

async fn get_filing(
    caller: Caller,
    State(app): AppState,
    query: QueryParams,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let traced = TraceOptions::from_query(&query, today(&app))?;
    let snapshot = app.current_snapshot()?;
    let served = require_loaded(snapshot.filings(), Dataset::Filings)?;
    let known = load_filings_as_of(&app, &snapshot, &traced).await?;
    let filings = known.as_ref().unwrap_or(served);
    let Path(id) = id.map_err(|_| Problem::NoSuchFiling)?;
    let is_delivered = |row: &u32| filings.get(*row).filing.delivered_on <= traced.last_day;
    let row = filings.find_by_id(&id).filter(is_delivered).ok_or(Problem::NoSuchFiling)?;
    let tag = EtagResponder::new(&caller, &app, &snapshot, &[Dataset::Filings], ());
    Ok(tag.respond_json(|| traced_filing_body(&traced, &snapshot, filings, row)))
}

/// Every version of the document that a filing is one of, the newest first.
async fn list_filing_versions(
    caller: Caller,
    State(app): AppState,
    query: QueryParams,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let (page, form) = (query.pagination(MAX_PAGE_ROWS)?, ListFormat::from_query(&caller, &query)?);
    let (snapshot, today) = (app.current_snapshot()?, today(&app));
    let filings = require_loaded(snapshot.filings(), Dataset::Filings)?;
    let Path(id) = id.map_err(|_| Problem::NoSuchFiling)?;
    let is_delivered = |row: &u32| filings.get(*row).filing.delivered_on <= today;
    let row = filings.find_by_id(&id).filter(is_delivered).ok_or(Problem::NoSuchFiling)?;
    let versions: Vec<u32> = filings.document_versions(row).into_iter().filter(is_delivered).collect();
    let total = versions.len();
    let tag = EtagResponder::new(&caller, &app, &snapshot, &[Dataset::Filings], total);
    let found = RowPage { total, rows: versions.into_iter().skip(page.offset).take(page.limit).collect() };
    let table = |found| filings_table(&snapshot, filings, found, TraceOptions::disabled(today));
    Ok(page_response(
        tag,
        ListPage { form, page, total, facets: None },
        found,
        |found| filing_bodies(filings, &found),
        table,
    ))
}

/// What a list of filings can be asked for.
struct FilingListParams {
    form: ListFormat,
    page: Pagination,
    filter: FilingFilter,
    trace_options: TraceOptions,
}

impl FilingListParams {
    fn from_query(caller: &Caller, query: &QueryParams, today: NaiveDate) -> Result<Self, Problem> {
        let form = ListFormat::from_query(caller, query)?;
        let page = query.pagination(form.max_rows(MAX_PAGE_ROWS, MAX_CSV_FILINGS))?;
        let filter = FilingFilter {
            category: query.filter_text("category")?,
            known_since: query.updated_since()?,
            ..FilingFilter::for_days(query.date_range()?)
        };
        Ok(Self { form, page, filter, trace_options: TraceOptions::from_query(query, today)? })
    }
}

fn traced_filing_body<'s>(
    traced: &TraceOptions,
    snapshot: &Snapshot,
    filings: &'s Filings,
    row: u32,
) -> FilingBody<'s> {
    let mut view = filings.get(row);
    let known = traced.as_of.map(|day| {
        view.is_latest = filings.is_latest_as_of(row, day);
        // Known from its delivery on; since then we may have seen it.
        let is_seen = sao_paulo_date(view.filing.provenance.known_at()) <= day;
        if is_seen { Certainty::Observed } else { Certainty::Estimated }
    });
    let source = Dataset::Filings.source_name();
    let trace = TraceBody {
        provenance: traced.provenance.then(|| provenance_bodies(snapshot, source, &[view.filing.provenance])),
        known: known.map(Certainty::id),
    };
    FilingBody { trace, ..FilingBody::from(view) }
}

/// What could be known on a day, where one is asked for: with the store, which alone has every version.
async fn load_filings_as_of(
    app: &App,
    snapshot: &Snapshot,
    traced: &TraceOptions,
) -> Result<Option<Filings>, ApiError> {
    let (Some(day), Some(served)) = (traced.as_of, snapshot.shared_filings()) else { return Ok(None) };
    let _turn = HISTORY_POOL.acquire().await?;
    Ok(Some(filings_as_of(&app.store, served, day).await?))
}

async fn filing_list_response(
    caller: &Caller,
    app: &App,
    snapshot: Arc<Snapshot>,
    asked: FilingListParams,
) -> Result<Response, ApiError> {
    let FilingListParams { form, page, mut filter, trace_options: traced } = asked;
    let is_long = page.limit > MAX_PAGE_ROWS;
    let place = is_long.then(|| acquire_long_table(caller.key)).transpose()?;
    filter.days = filter.days.capped_at(traced.last_day);
    let served = require_loaded(snapshot.filings(), Dataset::Filings)?;
    let known = load_filings_as_of(app, &snapshot, &traced).await?;
    let filings = known.as_ref().unwrap_or(served);
    // By when we learned of it every filing is looked at, and of a long list every row is found: milliseconds.
    let found = match filter.known_since {
        None if !is_long => filings.list(&filter, page.offset, page.limit),
        _ => {
            let filings = filings.clone();
            run_search(move || Ok(filings.list(&filter, page.offset, page.limit))).await?
        }
    };
    let tag = EtagResponder::new(caller, app, &snapshot, &[Dataset::Filings, Dataset::Companies], found.total);
    let body = |row: &u32| traced_filing_body(&traced, &snapshot, filings, *row);
    let bodies = |found: RowPage| found.rows.iter().map(body).collect::<Vec<_>>();
    let table = |found| filings_table(&snapshot, filings, found, traced).with_guard(place);
    Ok(page_response(tag, ListPage { form, page, total: found.total, facets: None }, found, bodies, table))
}

pub fn filing_bodies<'s>(filings: &'s Filings, found: &RowPage) -> Vec<FilingBody<'s>> {
    found.rows.iter().map(|row| FilingBody::from(filings.get(*row))).collect()
}

fn as_text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}
