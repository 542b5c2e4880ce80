//! The catalog of series: descriptions, date ranges, coverage gaps and revisions.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{Column, OutputTable};
use vintem_domain::catalog_search::{CatalogSearch, MatchRank};
use vintem_domain::series::{self, FX_SCHEDULE, Publisher, SeriesGroup};
use vintem_domain::{Currency, Dataset, DateRange, LocalizedText, Problem};
use vintem_snapshot::Snapshot;
use vintem_store::history::Revision;

use crate::api_error::ApiError;
use crate::app::Handlers;
use crate::bodies::catalog_source::CatalogSource;
use crate::bodies::fx_series::fx_series_body;
use crate::bodies::market::FX_DECIMALS;
use crate::bodies::series::{SeriesBody, series_body};
use crate::bodies::{NamesBody, format_instant};
use crate::csv::ListFormat;
use crate::json_number::JsonNumber;
use crate::params::{MAX_OBSERVATIONS, Pagination, QueryParams, invalid_param};
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
    group: &'static str,
    publisher: &'static str,
}

/// Follow the columns of [`SeriesBody`].
const CATALOG_COLUMNS: [Column; 11] = [
    Column::text("name_en"),
    Column::text("name_pt"),
    Column::text("is_not"),
    Column::integer("decimals"),
    Column::date("first_date"),
    Column::date("last_date"),
    Column::date("next_expected_on"),
    Column::boolean("stale"),
    Column::text("licence"),
    Column::text("group"),
    Column::text("publisher"),
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

static GROUP_REQUIREMENT: LazyLock<LocalizedText> = LazyLock::new(|| {
    let ids = SeriesGroup::ALL.map(SeriesGroup::id).join(", ");
    LocalizedText::leak(format!("must be one of {ids}"), format!("deve ser um destes: {ids}"))
});

fn search_from_query(query: &QueryParams) -> Result<CatalogSearch, Problem> {
    let text = query.optional_search_text()?.unwrap_or_default();
    let group = match query.single_value("group")? {
        None => None,
        Some(id) => match SeriesGroup::from_id(id) {
            Some(group) => Some(group),
            None => return invalid_param("group", *GROUP_REQUIREMENT),
        },
    };
    Ok(CatalogSearch::new(&text, group))
}

async fn list_series(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let format = ListFormat::from_query(&query, request.prefers_csv)?;
    let search = search_from_query(&query)?;
    let snapshot = request.snapshot()?;
    let today = request.today;
    let lang = request.lang;

    let of_series = series::served_series().filter_map(|series| {
        let rank = search.rank_series(series)?;
        let (first_date, last_date) = first_and_last_date(&snapshot, series.id, today);
        let entry = CatalogEntryBody {
            series: series_body(series, lang),
            names: series.name.into(),
            is_not: series.is_not.in_lang(lang),
            decimals: series.decimals,
            first_date,
            last_date,
            next_expected_on: last_date.map(|last| series.schedule().next_expected_on(last)),
            stale: last_date.is_none_or(|last| series.schedule().is_stale(last, today)),
            licence: series.license.id(),
            group: series.group.id(),
            publisher: series.publisher.name().in_lang(lang),
        };
        Some((rank, entry))
    });
    let of_currencies = Currency::ALL.into_iter().filter_map(|currency| {
        let rank = search.rank_currency(currency)?;
        let (first_date, last_date) = first_and_last_date(&snapshot, currency.series_id(), today);
        let entry = CatalogEntryBody {
            series: fx_series_body(currency, lang),
            names: currency.series_name().into(),
            is_not: FX_IS_NOT.in_lang(lang),
            decimals: FX_DECIMALS,
            first_date,
            last_date,
            next_expected_on: last_date.map(|last| FX_SCHEDULE.next_expected_on(last)),
            stale: last_date.is_none_or(|last| FX_SCHEDULE.is_stale(last, today)),
            licence: Dataset::Fx.license().id(),
            group: SeriesGroup::ExchangeRates.id(),
            publisher: Publisher::Bcb.name().in_lang(lang),
        };
        Some((rank, entry))
    });
    let mut ranked: Vec<(MatchRank, CatalogEntryBody)> = of_series.chain(of_currencies).collect();
    // Stable: the order of the catalog stays among equal matches.
    ranked.sort_by_key(|(rank, _)| *rank);
    let data: Vec<CatalogEntryBody> = ranked.into_iter().map(|(_, entry)| entry).collect();

    let mut datasets: Vec<Dataset> = series::published_series().map(Dataset::Series).collect();
    datasets.push(Dataset::Fx);
    let responder = EtagResponder::new(&request, &snapshot, &datasets, today);
    let body = |data: Vec<CatalogEntryBody>| CatalogBody { position: WholeList::of(data.len()), data };
    Ok(responder.respond_list(format, data, body, catalog_table))
}

/// The first and last dates with a value; `None` if the series was never loaded.
fn first_and_last_date(snapshot: &Snapshot, id: &str, today: NaiveDate) -> (Option<NaiveDate>, Option<NaiveDate>) {
    let dates = CatalogSource::find(snapshot, id).map(|source| source.first_and_last_date(today));
    dates.unwrap_or_default()
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
        cells.write_text(row.group);
        cells.write_text(row.publisher);
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
        let expected = days.map(|days| source.schedule().frequency.expected_dates(days)).unwrap_or_default();
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
