//! Compares several series in one table, aligned by day or month.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{Column, ColumnType, OutputTable};
use vintem_domain::dates::{month_end, month_start};
use vintem_domain::series;
use vintem_domain::{Currency, Dataset, LocalizedText, Problem};
use vintem_snapshot::Snapshot;
use vintem_store::change_id::ChangeId;

use super::rates::RateListParams;
use crate::api_error::ApiError;
use crate::app::Handlers;
use crate::bodies::catalog_source::CatalogSource;
use crate::bodies::series::SeriesBody;
use crate::csv::ListFormat;
use crate::json_list::json_list_chunks;
use crate::json_number::JsonNumber;
use crate::params::{Pagination, QueryParams, SortOrder, invalid_param};
use crate::responses::{EtagResponder, with_page_links};
use crate::snapshot_request::SnapshotRequest;

/// Maximum series per request. More values than fit into a response are on the next page.
const MAX_SERIES: usize = 100;

static SERIES_IDS_REQUIREMENT: LazyLock<LocalizedText> = LazyLock::new(|| {
    LocalizedText::leak(
        format!("must be 1 to {MAX_SERIES} comma-separated series IDs; see /api/v1/market/series"),
        format!("deve ter de 1 a {MAX_SERIES} ids de séries separados por vírgula; veja /api/v1/market/series"),
    )
});

/// Values in a response, series times rows. More rows are on the next page.
pub const MAX_COMPARED_VALUES: usize = 200_000;

/// More values than this are streamed: 250 kB of JSON.
const MAX_WHOLE_VALUES: usize = 4_000;

/// Values that are written at once.
const VALUES_PER_PART: usize = 1_000;

/// Longer IDs are truncated in the error message.
const MAX_ID_CHARS: usize = 64;

#[derive(Serialize)]
struct CompareBody {
    align: &'static str,
    carry: &'static str,
    series: Vec<SeriesBody>,
    total: usize,
    limit: usize,
    offset: usize,
    /// Always empty here: the rows are written after the rest.
    data: [AlignedRowBody; 0],
}

#[derive(Serialize)]
struct AlignedRowBody {
    date: NaiveDate,
    /// By series ID. A series is absent before its first value.
    values: BTreeMap<&'static str, AlignedValueBody>,
}

#[derive(Serialize)]
struct AlignedValueBody {
    value: JsonNumber,
    /// The day of the value itself.
    date: NaiveDate,
    /// Whether the value is from an earlier day or month than the row.
    carried: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum RowAlignment {
    Day,
    Month,
}

impl RowAlignment {
    fn from_query(query: &QueryParams) -> Result<Self, Problem> {
        match query.single_value("align")? {
            None | Some("day") => Ok(Self::Day),
            Some("month") => Ok(Self::Month),
            Some(_) => {
                invalid_param("align", LocalizedText::new("must be `day` or `month`", "deve ser `day` ou `month`"))
            }
        }
    }

    const fn id(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// The row that a day belongs to.
    fn row_date(self, day: NaiveDate) -> NaiveDate {
        match self {
            Self::Day => day,
            Self::Month => month_start(day),
        }
    }

    /// The last day of a row.
    fn row_end(self, row: NaiveDate) -> NaiveDate {
        match self {
            Self::Day => row,
            Self::Month => month_end(row),
        }
    }
}

pub fn handlers() -> Handlers {
    vec![("compare_series", get(compare_series))]
}

/// One row for every day or month in which any of the series has a value.
async fn compare_series(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let ids = parse_series_ids(&query)?;
    let alignment = RowAlignment::from_query(&query)?;
    let params = RateListParams::from_query(&request, &query)?;
    let pagination =
        Pagination { limit: params.pagination.limit.min(MAX_COMPARED_VALUES / ids.len()), ..params.pagination };
    let snapshot = request.snapshot()?;
    let today = request.today;
    let sources: Vec<CatalogSource<'_>> =
        ids.iter().map(|id| CatalogSource::find(&snapshot, id)).collect::<Result<_, ApiError>>()?;

    let mut dates: Vec<NaiveDate> = sources
        .iter()
        .flat_map(|source| source.dates(params.days.capped_at(today)).map(|date| alignment.row_date(date)))
        .collect();
    dates.sort_unstable();
    dates.dedup();
    let total = dates.len();
    if params.order == SortOrder::Descending {
        dates.reverse();
    }

    let datasets: Vec<Dataset> = sources.iter().flat_map(CatalogSource::datasets).collect();
    let base_load_ids: Vec<Option<ChangeId>> = sources.iter().map(|source| source.base_load_id(&snapshot)).collect();
    let responder = EtagResponder::new(&request, &snapshot, &datasets, (today, base_load_ids));
    let page = dates.iter().skip(pagination.offset).take(pagination.limit);
    let page_dates: Vec<NaiveDate> = page.copied().collect();
    drop(dates);
    let is_long = page_dates.len() * ids.len() > MAX_WHOLE_VALUES && matches!(params.format, ListFormat::Json);
    let permit = if is_long { Some(request.acquire_stream().await?) } else { None };
    let rows = AlignedRows {
        snapshot: snapshot.clone(),
        ids: sources.iter().map(CatalogSource::id).collect(),
        dates: page_dates.into_iter(),
        alignment,
        today,
        as_text: params.as_text,
    };
    let head = || CompareBody {
        align: alignment.id(),
        carry: LocalizedText::new(
            "the last value on or before the row's date or, with `align=month`, the end of its month",
            "o último valor até a data da linha ou, com `align=month`, até o fim do mês da linha",
        )
        .in_lang(request.lang),
        series: sources.iter().map(|source| source.describe(request.lang)).collect(),
        total,
        limit: pagination.limit,
        offset: pagination.offset,
        data: [],
    };
    let response = match params.format {
        ListFormat::Json => responder.respond_json_chunks(permit, || json_list_chunks(&head(), rows)),
        ListFormat::Csv(options) => responder.respond_csv(options, || {
            let columns = sources.iter().map(|source| (source.id(), source.max_decimals())).collect();
            comparison_table(columns, rows.flatten())
        }),
    };
    Ok(with_page_links(response, &request, pagination, total))
}

/// The rows of a comparison, in parts that take a millisecond each.
struct AlignedRows {
    snapshot: Arc<Snapshot>,
    ids: Vec<&'static str>,
    dates: std::vec::IntoIter<NaiveDate>,
    alignment: RowAlignment,
    today: NaiveDate,
    as_text: bool,
}

impl Iterator for AlignedRows {
    type Item = Vec<AlignedRowBody>;

    fn next(&mut self) -> Option<Self::Item> {
        // All of them were found when the request began.
        let sources: Vec<CatalogSource<'_>> =
            self.ids.iter().filter_map(|id| CatalogSource::find(&self.snapshot, id).ok()).collect();
        let row = |date| build_aligned_row(&sources, self.alignment, date, self.today, self.as_text);
        let rows: Vec<AlignedRowBody> =
            self.dates.by_ref().take(VALUES_PER_PART.div_ceil(self.ids.len())).map(row).collect();
        Some(rows).filter(|rows| !rows.is_empty())
    }
}

/// Two columns per series: the value and its date. `series` has the ID and the number of decimals of each.
fn comparison_table(
    series: Vec<(&'static str, u32)>,
    rows: impl Iterator<Item = AlignedRowBody> + Send + 'static,
) -> OutputTable {
    let series_columns = |(id, decimals): &(&'static str, u32)| {
        let date = Column { name: format!("{id}_date").into(), column_type: ColumnType::Date };
        [Column::decimal(id, *decimals), date]
    };
    let columns = std::iter::once(Column::date("date")).chain(series.iter().flat_map(series_columns)).collect();

    OutputTable::from_rows("compare", columns, rows, move |row, cells| {
        cells.write_date(Some(row.date));
        for cell in series.iter().map(|(id, _)| row.values.get(id)) {
            cells.write_decimal(cell.map(|cell| cell.value.value));
            cells.write_date(cell.map(|cell| cell.date));
        }
    })
}

fn build_aligned_row(
    sources: &[CatalogSource<'_>],
    alignment: RowAlignment,
    date: NaiveDate,
    today: NaiveDate,
    as_text: bool,
) -> AlignedRowBody {
    let cell = |source: &CatalogSource<'_>| {
        let (value_date, value) = source.latest_value_until(alignment.row_end(date).min(today))?;
        let cell = AlignedValueBody {
            value: JsonNumber { value, as_text },
            date: value_date,
            carried: alignment.row_date(value_date) < date,
        };
        Some((source.id(), cell))
    };

    AlignedRowBody { date, values: sources.iter().filter_map(cell).collect() }
}

fn parse_series_ids(query: &QueryParams) -> Result<Vec<&str>, Problem> {
    let ids: Vec<&str> = query.single_value("ids")?.unwrap_or("").split(',').map(str::trim).collect();
    if ids.len() > MAX_SERIES || ids.iter().any(|id| id.is_empty()) {
        return invalid_param("ids", *SERIES_IDS_REQUIREMENT);
    }

    let is_known = |id: &&str| series::find_series(id).is_some() || Currency::from_series_id(id).is_some();
    match ids.iter().find(|id| !is_known(id)) {
        Some(unknown) => {
            Err(Problem::UnknownSeriesId { name: "ids", id: unknown.chars().take(MAX_ID_CHARS).collect() })
        }
        None => Ok(ids),
    }
}
