//! The catalog of series: descriptions, date ranges, coverage gaps and revisions.

use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{Column, OutputTable};
use vintem_domain::series;
use vintem_domain::{Dataset, DateRange};
use vintem_snapshot::SeriesValues;
use vintem_store::history::Revision;

use crate::api_error::ApiError;
use crate::app::{AppState, Handlers};
use crate::bodies::format_instant;
use crate::bodies::market::{RateSource, series_source};
use crate::bodies::series::{SeriesBody, series_body, series_datasets};
use crate::caller::Caller;
use crate::csv::ListFormat;
use crate::json_number::JsonNumber;
use crate::params::{MAX_OBSERVATIONS, QueryParams};
use crate::responses::{EtagResponder, ListPage, page_response};

/// A series in the catalog: its description and date range.
#[derive(Serialize)]
struct CatalogEntryBody {
    #[serde(flatten)]
    series: SeriesBody,
    names: NamesBody,
    is_not: &'static str,
    decimals: u32,
    first_date: Option<NaiveDate>,
    last_date: Option<NaiveDate>,
    next_expected_on: Option<NaiveDate>,
    stale: bool,
    licence: &'static str,
}

/// Follow the columns of [`SeriesBody`].
const CATALOG_COLUMNS: [Column; 9] = [
    Column::text("name_en"),
    Column::text("name_pt"),
    Column::text("is_not"),
    Column::integer("decimals"),
    Column::date("first_date"),
    Column::date("last_date"),
    Column::date("next_expected_on"),
    Column::boolean("stale"),
    Column::text("licence"),
];

#[derive(Serialize)]
struct NamesBody {
    en: &'static str,
    pt: &'static str,
}

#[derive(Serialize)]
struct CatalogBody {
    data: Vec<CatalogEntryBody>,
    total: usize,
}

#[derive(Serialize)]
struct CoverageBody {
    series: SeriesBody,
    from: Option<NaiveDate>,
    to: Option<NaiveDate>,
    expected: usize,
    stored: usize,
    missing: usize,
    /// Values on days that should have none by the calendar.
    unexpected: usize,
    gaps: Vec<GapBody>,
}

/// Consecutive expected days without a value.
#[derive(Serialize)]
struct GapBody {
    from: NaiveDate,
    to: NaiveDate,
    missing: usize,
}

/// A value that was replaced by another, in the same shape as in the `series.revised` event.
#[derive(Serialize)]
struct RevisionBody {
    series: &'static str,
    date: NaiveDate,
    old: JsonNumber,
    new: JsonNumber,
    known_at: String,
}

pub fn handlers() -> Handlers {
    vec![
        ("list_series", get(list_series)),
        ("get_coverage", get(get_coverage)),
        ("list_revisions", get(list_revisions)),
    ]
}

/// Reads from the store, because only it has every version. A computed series has no revisions of its own; callers can
/// request those of its inputs.
async fn list_revisions(
    caller: Caller,
    State(app): AppState,
    Path(id): Path<String>,
    query: QueryParams,
) -> Result<Response, ApiError> {
    let format = ListFormat::from_query(&caller, &query)?;
    let days = query.date_range()?;
    let pagination = query.pagination(MAX_OBSERVATIONS)?;
    let as_text = query.numbers_as_text()?;

    let snapshot = app.current_snapshot()?;
    let series = series_source(&snapshot, &id)?.series;
    let (total, revisions) = app.store.revisions(series, days, pagination.offset, pagination.limit).await?;

    let responder = EtagResponder::new(&caller, &app, &snapshot, &series_datasets(series), total);
    let list_page = ListPage { query: &query, format, pagination, total, facets: None };
    let bodies = |revisions: Vec<Revision>| {
        let number = |value| JsonNumber { value, as_text };
        let body = |revision: &Revision| RevisionBody {
            series: series.id,
            date: revision.date,
            old: number(revision.old),
            new: number(revision.new),
            known_at: format_instant(revision.known_at),
        };
        revisions.iter().map(body).collect()
    };
    let table = |revisions| {
        let columns = vec![
            Column::text("series"),
            Column::date("date"),
            Column::decimal("old", series.decimals),
            Column::decimal("new", series.decimals),
            Column::text("known_at"),
        ];
        OutputTable::from_rows("revisions", columns, revisions, move |row: &Revision, cells| {
            cells.write_text(series.id);
            cells.write_date(Some(row.date));
            cells.write_decimal(Some(row.old));
            cells.write_decimal(Some(row.new));
            cells.write_text(&format_instant(row.known_at));
        })
    };
    Ok(page_response(responder, list_page, revisions, bodies, table))
}

async fn list_series(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let format = ListFormat::from_query(&caller, &query)?;
    let snapshot = app.current_snapshot()?;
    let today = app.today();

    let data: Vec<CatalogEntryBody> = series::served_series()
        .map(|series| {
            let (first_date, last_date) =
                snapshot.series(series).map_or((None, None), |values| first_and_last_date(values, today));
            CatalogEntryBody {
                series: series_body(series, caller.lang),
                names: NamesBody { en: series.name.en, pt: series.name.pt },
                is_not: series.is_not.in_lang(caller.lang),
                decimals: series.decimals,
                first_date,
                last_date,
                next_expected_on: last_date.map(|last| series.frequency.next_expected_on(last)),
                stale: last_date.is_none_or(|last| series.frequency.is_stale(last, today)),
                licence: Dataset::Series(series).license(),
            }
        })
        .collect();

    let datasets: Vec<Dataset> = series::PUBLISHED_SERIES.iter().map(Dataset::Series).collect();
    let responder = EtagResponder::new(&caller, &app, &snapshot, &datasets, today);
    Ok(responder.respond_list(format, data, |data| CatalogBody { total: data.len(), data }, catalog_table))
}

fn catalog_table(rows: Vec<CatalogEntryBody>) -> OutputTable {
    let columns = SeriesBody::COLUMNS.into_iter().chain(CATALOG_COLUMNS).collect();

    OutputTable::from_rows("series", columns, rows, |row: &CatalogEntryBody, cells| {
        row.series.write_cells(cells);
        cells.write_text(row.names.en);
        cells.write_text(row.names.pt);
        cells.write_text(row.is_not);
        cells.write_integer(row.decimals.into());
        cells.write_date(row.first_date);
        cells.write_date(row.last_date);
        cells.write_date(row.next_expected_on);
        cells.write_boolean(row.stale);
        cells.write_text(row.licence);
    })
}

/// The first and last dates with a value, up to today.
fn first_and_last_date(values: &SeriesValues, today: NaiveDate) -> (Option<NaiveDate>, Option<NaiveDate>) {
    let rows = values.range(DateRange::ALL.capped_at(today));
    let date = |at: Option<usize>| at.map(|at| values.get(at).0);
    (date(rows.clone().next()), date(rows.last()))
}

/// Compares the days that have a value with the days that should, between the first and the last value or in the
/// requested part of that range.
async fn get_coverage(
    caller: Caller,
    State(app): AppState,
    Path(id): Path<String>,
    query: QueryParams,
) -> Result<Response, ApiError> {
    let requested = query.date_range()?;
    let snapshot = app.current_snapshot()?;
    let today = app.today();
    let source = series_source(&snapshot, &id)?;

    let (first, last) = first_and_last_date(source.values, today);
    let from = first.map(|first| first.max(requested.from));
    let to = last.map(|last| last.min(requested.to));
    let days = from.zip(to).filter(|(from, to)| from <= to).map(|(from, to)| DateRange { from, to });

    let responder = EtagResponder::new(
        &caller,
        &app,
        &snapshot,
        &series_datasets(source.series),
        (from, to, source.base_generation(&snapshot)),
    );
    Ok(responder.respond_json(|| {
        let expected = days.map(|days| source.frequency().expected_dates(days)).unwrap_or_default();
        let rows = days.map_or(0..0, |days| source.row_range(days));
        let stored: Vec<NaiveDate> = rows.map(|at| source.values.get(at).0).collect();
        let is_stored = |day: &NaiveDate| stored.binary_search(day).is_ok();
        let missing = expected.iter().filter(|day| !is_stored(day)).count();

        CoverageBody {
            series: source.describe(caller.lang),
            from: days.map(|days| days.from),
            to: days.map(|days| days.to),
            expected: expected.len(),
            stored: stored.len(),
            missing,
            unexpected: stored.len() + missing - expected.len(),
            gaps: find_gaps(&expected, is_stored),
        }
    }))
}

fn find_gaps(expected: &[NaiveDate], is_stored: impl Fn(&NaiveDate) -> bool) -> Vec<GapBody> {
    let runs = expected.chunk_by(|one, other| is_stored(one) == is_stored(other));
    runs.filter(|run| !is_stored(&run[0]))
        .map(|run| GapBody { from: run[0], to: run[run.len() - 1], missing: run.len() })
        .collect()
}
