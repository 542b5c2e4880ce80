//! The catalog of series: descriptions, date ranges, coverage gaps and revisions.

use axum::extract::Path;
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{Column, OutputTable};
use vintem_domain::series;
use vintem_domain::{Currency, Dataset, DateRange, LocalizedText};
use vintem_store::history::Revision;

use crate::api_error::ApiError;
use crate::app::Handlers;
use crate::bodies::catalog_source::CatalogSource;
use crate::bodies::fx_series::fx_series_body;
use crate::bodies::market::{FX_DECIMALS, FX_FREQUENCY};
use crate::bodies::series::{SeriesBody, series_body};
use crate::bodies::{NamesBody, format_instant};
use crate::csv::ListFormat;
use crate::json_number::JsonNumber;
use crate::params::{MAX_OBSERVATIONS, Pagination, QueryParams};
use crate::responses::{EtagResponder, ListPage, WholeList, page_response};
use crate::snapshot_request::SnapshotRequest;

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

/// Says what an exchange rate is not, to prevent common mix-ups.
const FX_IS_NOT: LocalizedText = LocalizedText::new(
    "not a live trading rate: it is the average that the central bank publishes for the day",
    "não é uma cotação em tempo real: é a média do dia publicada pelo Banco Central",
);

#[derive(Serialize)]
struct CatalogBody {
    data: Vec<CatalogEntryBody>,
    #[serde(flatten)]
    position: WholeList,
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
    request: SnapshotRequest,
    Path(id): Path<String>,
    query: QueryParams,
) -> Result<Response, ApiError> {
    let format = ListFormat::from_query(&query, request.prefers_csv)?;
    let days = query.date_range()?;
    let pagination = query.pagination(MAX_OBSERVATIONS)?;
    let as_text = query.numbers_as_text()?;

    let snapshot = request.snapshot()?;
    let source = CatalogSource::find(&snapshot, &id)?;
    let Pagination { limit, offset } = pagination;
    let store = &request.app_without_caching().store;
    let (total, revisions) = match &source {
        CatalogSource::Series(source) => store.revisions(source.series, days, offset, limit).await?,
        CatalogSource::Fx(source) => store.closing_rate_revisions(source.currency, days, offset, limit).await?,
    };
    let id = source.id();
    let decimals = source.max_decimals();

    let responder = EtagResponder::new(&request, &snapshot, &source.datasets(), total);
    let list_page = ListPage { format, pagination, total, facets: None };
    let bodies = |revisions: Vec<Revision>| {
        let number = |value| JsonNumber { value, as_text };
        let body = |revision: &Revision| RevisionBody {
            series: id,
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
            Column::decimal("old", decimals),
            Column::decimal("new", decimals),
            Column::text("known_at"),
        ];
        OutputTable::from_rows("revisions", columns, revisions, move |row: &Revision, cells| {
            cells.write_text(id);
            cells.write_date(Some(row.date));
            cells.write_decimal(Some(row.old));
            cells.write_decimal(Some(row.new));
            cells.write_text(&format_instant(row.known_at));
        })
    };
    Ok(page_response(responder, list_page, revisions, bodies, table))
}

async fn list_series(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let format = ListFormat::from_query(&query, request.prefers_csv)?;
    let snapshot = request.snapshot()?;
    let today = request.today;

    let of_series = series::served_series().map(|series| {
        let dates = CatalogSource::find(&snapshot, series.id).map(|source| source.first_and_last_date(today));
        let (first_date, last_date) = dates.unwrap_or_default();
        CatalogEntryBody {
            series: series_body(series, request.lang),
            names: series.name.into(),
            is_not: series.is_not.in_lang(request.lang),
            decimals: series.decimals,
            first_date,
            last_date,
            next_expected_on: last_date.map(|last| series.frequency.next_expected_on(last)),
            stale: last_date.is_none_or(|last| series.frequency.is_stale(last, today)),
            licence: Dataset::Series(series).license(),
        }
    });
    let of_currencies = Currency::ALL.into_iter().map(|currency| {
        let dates =
            CatalogSource::find(&snapshot, currency.series_id()).map(|source| source.first_and_last_date(today));
        let (first_date, last_date) = dates.unwrap_or_default();
        CatalogEntryBody {
            series: fx_series_body(currency, request.lang),
            names: currency.series_name().into(),
            is_not: FX_IS_NOT.in_lang(request.lang),
            decimals: FX_DECIMALS,
            first_date,
            last_date,
            next_expected_on: last_date.map(|last| FX_FREQUENCY.next_expected_on(last)),
            stale: last_date.is_none_or(|last| FX_FREQUENCY.is_stale(last, today)),
            licence: Dataset::Fx.license(),
        }
    });
    let data: Vec<CatalogEntryBody> = of_series.chain(of_currencies).collect();

    let mut datasets: Vec<Dataset> = series::PUBLISHED_SERIES.iter().map(Dataset::Series).collect();
    datasets.push(Dataset::Fx);
    let responder = EtagResponder::new(&request, &snapshot, &datasets, today);
    let body = |data: Vec<CatalogEntryBody>| CatalogBody { position: WholeList::of(data.len()), data };
    Ok(responder.respond_list(format, data, body, catalog_table))
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

/// Compares the days that have a value with the days that should, between the first and the last value or in the
/// requested part of that range.
async fn get_coverage(
    request: SnapshotRequest,
    Path(id): Path<String>,
    query: QueryParams,
) -> Result<Response, ApiError> {
    let requested = query.date_range()?;
    let snapshot = request.snapshot()?;
    let today = request.today;
    let source = CatalogSource::find(&snapshot, &id)?;

    let (first, last) = source.first_and_last_date(today);
    let from = first.map(|first| first.max(requested.from));
    let to = last.map(|last| last.min(requested.to));
    let days = from.zip(to).filter(|(from, to)| from <= to).map(|(from, to)| DateRange { from, to });

    let responder =
        EtagResponder::new(&request, &snapshot, &source.datasets(), (from, to, source.base_load_id(&snapshot)));
    Ok(responder.respond_json(|| {
        let expected = days.map(|days| source.frequency().expected_dates(days)).unwrap_or_default();
        let stored: Vec<NaiveDate> = days.map(|days| source.dates(days).collect()).unwrap_or_default();
        let is_stored = |day: &NaiveDate| stored.binary_search(day).is_ok();
        let missing = expected.iter().filter(|day| !is_stored(day)).count();

        CoverageBody {
            series: source.describe(request.lang),
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
