//! Compares several series in one table, aligned by day or month.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{Column, ColumnType, OutputTable};
use vintem_domain::dates::{month_end, month_start};
use vintem_domain::series::{self, DERIVED_SERIES, PUBLISHED_SERIES};
use vintem_domain::{Currency, Dataset, LocalizedText, Problem};

use super::rates::RateListParams;
use crate::api_error::ApiError;
use crate::app::Handlers;
use crate::bodies::catalog_source::CatalogSource;
use crate::bodies::series::SeriesBody;
use crate::json_number::JsonNumber;
use crate::params::{QueryParams, SortOrder, invalid_param};
use crate::responses::{EtagResponder, with_page_links};
use crate::snapshot_request::SnapshotRequest;

/// Maximum series per request: all of them.
const MAX_SERIES: usize = PUBLISHED_SERIES.len() + DERIVED_SERIES.len() + Currency::ALL.len();

static SERIES_IDS_REQUIREMENT: LazyLock<LocalizedText> = LazyLock::new(|| {
    LocalizedText::leak(
        format!("must be 1 to {MAX_SERIES} comma-separated series IDs; see /api/v1/market/series"),
        format!("deve ter de 1 a {MAX_SERIES} ids de séries separados por vírgula; veja /api/v1/market/series"),
    )
});

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
    data: Vec<AlignedRowBody>,
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
    let RateListParams { format, days, pagination, order, as_text, .. } = RateListParams::from_query(&request, &query)?;
    let snapshot = request.snapshot()?;
    let today = request.today;
    let sources: Vec<CatalogSource<'_>> =
        ids.iter().map(|id| CatalogSource::find(&snapshot, id)).collect::<Result<_, ApiError>>()?;

    let mut dates: Vec<NaiveDate> = sources
        .iter()
        .flat_map(|source| source.dates(days.capped_at(today)).map(|date| alignment.row_date(date)))
        .collect();
    dates.sort_unstable();
    dates.dedup();
    let total = dates.len();
    if order == SortOrder::Descending {
        dates.reverse();
    }

    let datasets: Vec<Dataset> = sources.iter().flat_map(CatalogSource::datasets).collect();
    let base_generations: Vec<i64> = sources.iter().map(|source| source.base_generation(&snapshot)).collect();
    let responder = EtagResponder::new(&request, &snapshot, &datasets, (today, base_generations));
    let rows = || -> Vec<AlignedRowBody> {
        let page_dates = dates.iter().skip(pagination.offset).take(pagination.limit);
        page_dates.map(|date| build_aligned_row(&sources, alignment, *date, today, as_text)).collect()
    };
    let body = |()| CompareBody {
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
        data: rows(),
    };
    let table = |()| {
        let columns = sources.iter().map(|source| (source.id(), source.max_decimals())).collect();
        comparison_table(columns, rows())
    };
    Ok(with_page_links(responder.respond_list(format, (), body, table), &request, pagination, total))
}

/// Two columns per series: the value and its date. `series` has the ID and the number of decimals of each.
fn comparison_table(series: Vec<(&'static str, u32)>, rows: Vec<AlignedRowBody>) -> OutputTable {
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
