//! The catalogue: what each series is and is not, how far it reaches, and what it lacks.

use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{Column, Table};
use vintem_domain::series;
use vintem_domain::{Dataset, DateRange};
use vintem_snapshot::SeriesValues;
use vintem_store::history::Revision;

use super::source::{SeriesBody, Source, datasets_of, describe, series_source};
use super::{AppState, Handlers, today};
use crate::answer::{Listed, Tag, page_of};
use crate::caller::Caller;
use crate::csv::Form;
use crate::number::Number;
use crate::params::{MOST_OBSERVATIONS, Query};
use crate::problem::Refusal;
use crate::routes::status::instant;

/// A series in the catalogue: what it is, and from when to when it reaches.
#[derive(Serialize)]
struct CatalogueBody {
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

/// After those of the series.
const CATALOGUE_COLUMNS: [Column; 9] = [
    Column::text("name_en"),
    Column::text("name_pt"),
    Column::text("is_not"),
    Column::whole("decimals"),
    Column::day("first_date"),
    Column::day("last_date"),
    Column::day("next_expected_on"),
    Column::flag("stale"),
    Column::text("licence"),
];

#[derive(Serialize)]
struct NamesBody {
    en: &'static str,
    pt: &'static str,
}

#[derive(Serialize)]
struct CataloguePageBody {
    data: Vec<CatalogueBody>,
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
    /// Values of days that have none by the calendar.
    unexpected: usize,
    gaps: Vec<GapBody>,
}

/// Expected days one after the other that have no value.
#[derive(Serialize)]
struct GapBody {
    from: NaiveDate,
    to: NaiveDate,
    missing: usize,
}

/// A value that was replaced by another, as the event of it says.
#[derive(Serialize)]
struct RevisionBody {
    series: &'static str,
    date: NaiveDate,
    old: Number,
    new: Number,
    known_at: String,
}

pub fn handlers() -> Handlers {
    vec![
        ("list_series", get(list_series)),
        ("get_coverage", get(get_coverage)),
        ("list_revisions", get(list_revisions)),
    ]
}

/// From the store, which alone has every version. A computed series has none of its own: those of its inputs are asked
/// for by their ids.
async fn list_revisions(
    caller: Caller,
    State(app): AppState,
    Path(id): Path<String>,
    query: Query,
) -> Result<Response, Refusal> {
    let (form, days) = (Form::read(&caller, &query)?, query.days()?);
    let (page, as_text) = (query.page(MOST_OBSERVATIONS)?, query.numbers_as_text()?);
    let snapshot = app.snapshot()?;
    let series = series_source(&snapshot, &id)?.series;
    let (total, revisions) = app.store.revisions(series, days, page.offset, page.limit).await?;
    let tag = Tag::new(&caller, &app, &snapshot, &datasets_of(series), total);
    let bodies = |revisions: Vec<Revision>| {
        let number = |value| Number { value, as_text };
        let body = |revision: &Revision| RevisionBody {
            series: series.id,
            date: revision.date,
            old: number(revision.old),
            new: number(revision.new),
            known_at: instant(revision.known_at),
        };
        revisions.iter().map(body).collect()
    };
    let table = |revisions| {
        let columns = vec![
            Column::text("series"),
            Column::day("date"),
            Column::decimal("old", series.decimals),
            Column::decimal("new", series.decimals),
            Column::text("known_at"),
        ];
        Table::of("revisions", columns, revisions, move |row: &Revision, cells| {
            cells.text(series.id);
            cells.day(Some(row.date));
            cells.decimal(Some(row.old));
            cells.decimal(Some(row.new));
            cells.text(&instant(row.known_at));
        })
    };
    Ok(page_of(tag, Listed { form, page, total, facets: None }, revisions, bodies, table))
}

async fn list_series(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let form = Form::read(&caller, &query)?;
    let (snapshot, today) = (app.snapshot()?, today(&app));
    let data: Vec<CatalogueBody> = series::served()
        .map(|series| {
            let (first_date, last_date) = snapshot.series(series).map_or((None, None), |values| ends(values, today));
            CatalogueBody {
                series: describe(series, caller.lang),
                names: NamesBody { en: series.name.en, pt: series.name.pt },
                is_not: series.is_not.in_lang(caller.lang),
                decimals: series.decimals,
                first_date,
                last_date,
                next_expected_on: last_date.map(|last| series.frequency.next_expected_on(last)),
                stale: last_date.is_none_or(|last| series.frequency.is_stale(last, today)),
                licence: Dataset::Series(series).licence(),
            }
        })
        .collect();
    let datasets: Vec<Dataset> = series::SERIES.iter().map(Dataset::Series).collect();
    let tag = Tag::new(&caller, &app, &snapshot, &datasets, today);
    Ok(tag.list(form, data, |data| CataloguePageBody { total: data.len(), data }, table))
}

fn table(rows: Vec<CatalogueBody>) -> Table {
    let columns = SeriesBody::COLUMNS.into_iter().chain(CATALOGUE_COLUMNS).collect();
    Table::of("series", columns, rows, |row: &CatalogueBody, cells| {
        row.series.write(cells);
        cells.text(row.names.en);
        cells.text(row.names.pt);
        cells.text(row.is_not);
        cells.whole(row.decimals.into());
        cells.day(row.first_date);
        cells.day(row.last_date);
        cells.day(row.next_expected_on);
        cells.flag(row.stale);
        cells.text(row.licence);
    })
}

/// The first and the last day that is served.
fn ends(values: &SeriesValues, today: NaiveDate) -> (Option<NaiveDate>, Option<NaiveDate>) {
    let served = values.range(DateRange::ALL.until(today));
    let date = |at: Option<usize>| at.map(|at| values.get(at).0);
    (date(served.clone().next()), date(served.last()))
}

/// From the first value to the last, or what of that is asked for: the days that have a value against those that should.
async fn get_coverage(
    caller: Caller,
    State(app): AppState,
    Path(id): Path<String>,
    query: Query,
) -> Result<Response, Refusal> {
    let asked = query.days()?;
    let (snapshot, today) = (app.snapshot()?, today(&app));
    let source = series_source(&snapshot, &id)?;
    let (first, last) = ends(source.values, today);
    let (from, to) = (first.map(|first| first.max(asked.from)), last.map(|last| last.min(asked.to)));
    let days = from.zip(to).filter(|(from, to)| from <= to).map(|(from, to)| DateRange { from, to });
    let tag = Tag::new(
        &caller,
        &app,
        &snapshot,
        &datasets_of(source.series),
        (from, to, source.further_generation(&snapshot)),
    );
    Ok(tag.answer(|| {
        let expected = days.map(|days| source.frequency().expected_days(days)).unwrap_or_default();
        let rows = days.map_or(0..0, |days| source.range(days));
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
            gaps: gaps(&expected, is_stored),
        }
    }))
}

fn gaps(expected: &[NaiveDate], is_stored: impl Fn(&NaiveDate) -> bool) -> Vec<GapBody> {
    let runs = expected.chunk_by(|one, other| is_stored(one) == is_stored(other));
    runs.filter(|run| !is_stored(&run[0]))
        .map(|run| GapBody { from: run[0], to: run[run.len() - 1], missing: run.len() })
        .collect()
}
