//! Several series side by side, on the same days.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{Column, ColumnType, OutputTable};
use vintem_domain::dates::{month_end, month_start};
use vintem_domain::{Dataset, LocalizedText, Problem, Series, series};

use super::source::{RateSource, SeriesBody, SeriesSource, series_source};
use super::{AppState, Handlers, RateListParams, today};
use crate::api_error::ApiError;
use crate::caller::Caller;
use crate::json_number::JsonNumber;
use crate::params::{QueryParams, SortOrder, invalid_param};
use crate::responses::{EtagResponder, with_page_links};

/// So many series at once: all that there are.
const MAX_SERIES: usize = 9;

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
    /// By the id of the series, from its first value on.
    values: BTreeMap<&'static str, AlignedValueBody>,
}

#[derive(Serialize)]
struct AlignedValueBody {
    value: JsonNumber,
    /// The day of the value itself.
    date: NaiveDate,
    /// Whether it is of an earlier day, or month, than the row.
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
            Some(_) => invalid_param("align", LocalizedText::new("be `day` or `month`", "ser `day` ou `month`")),
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

/// A row for every day, or month, on which any of the series has a value.
async fn compare_series(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let (ids, align) = (parse_series_ids(&query)?, RowAlignment::from_query(&query)?);
    let RateListParams { form, days, page, order, as_text } = RateListParams::from_query(&caller, &query)?;
    let (snapshot, today) = (app.current_snapshot()?, today(&app));
    let sources: Vec<SeriesSource<'_>> =
        ids.iter().map(|id| series_source(&snapshot, id)).collect::<Result<_, ApiError>>()?;
    let mut rows: Vec<NaiveDate> = sources
        .iter()
        .flat_map(|source| source.row_range(days.capped_at(today)).map(|at| align.row_date(source.values.get(at).0)))
        .collect();
    rows.sort_unstable();
    rows.dedup();
    let total = rows.len();
    if order == SortOrder::Descending {
        rows.reverse();
    }
    let datasets: Vec<Dataset> = sources.iter().flat_map(RateSource::datasets).collect();
    let further: Vec<i64> = sources.iter().map(|source| source.base_generation(&snapshot)).collect();
    let tag = EtagResponder::new(&caller, &app, &snapshot, &datasets, (today, further));
    let shown = || -> Vec<AlignedRowBody> {
        let shown = rows.iter().skip(page.offset).take(page.limit);
        shown.map(|date| build_aligned_row(&sources, align, *date, today, as_text)).collect()
    };
    let body = |()| CompareBody {
        align: align.id(),
        carry: LocalizedText::new(
            "the last value on or before the row's last day",
            "o último valor até o último dia da linha",
        )
        .in_lang(caller.lang),
        series: sources.iter().map(|source| source.describe(caller.lang)).collect(),
        total,
        limit: page.limit,
        offset: page.offset,
        data: shown(),
    };
    let table = |()| comparison_table(sources.iter().map(|source| source.series).collect(), shown());
    Ok(with_page_links(tag.respond_list(form, (), body, table), &caller, &app, page, total))
}

/// Two columns a series: the value, and the day that it is of.
fn comparison_table(series: Vec<&'static Series>, rows: Vec<AlignedRowBody>) -> OutputTable {
    let of_series = |series: &&'static Series| {
        let date = Column { name: format!("{}_date", series.id).into(), column_type: ColumnType::Date };
        [Column::decimal(series.id, series.decimals), date]
    };
    let columns = std::iter::once(Column::date("date")).chain(series.iter().flat_map(of_series)).collect();
    OutputTable::from_rows("compare", columns, rows, move |row, cells| {
        cells.write_date(Some(row.date));
        for cell in series.iter().map(|series| row.values.get(series.id)) {
            cells.write_decimal(cell.map(|cell| cell.value.value));
            cells.write_date(cell.map(|cell| cell.date));
        }
    })
}

fn build_aligned_row(
    sources: &[SeriesSource<'_>],
    align: RowAlignment,
    date: NaiveDate,
    today: NaiveDate,
    as_text: bool,
) -> AlignedRowBody {
    let cell = |source: &SeriesSource<'_>| {
        let at = source.latest_row_until(align.row_end(date).min(today))?;
        let (day, value) = source.values.get(at);
        let cell =
            AlignedValueBody { value: JsonNumber { value, as_text }, date: day, carried: align.row_date(day) < date };
        Some((source.series.id, cell))
    };
    AlignedRowBody { date, values: sources.iter().filter_map(cell).collect() }
}

fn parse_series_ids(query: &QueryParams) -> Result<Vec<&str>, Problem> {
    let must = LocalizedText::new(
        "be given: one to nine ids of /api/v1/market/series, separated by commas",
        "ser informado: de um a nove ids de /api/v1/market/series, separados por vírgulas",
    );
    let ids: Vec<&str> = query.single_value("ids")?.unwrap_or("").split(',').map(str::trim).collect();
    let is_known = |id: &&str| series::find_series(id).is_some();
    if ids.len() > MAX_SERIES || !ids.iter().all(is_known) {
        return invalid_param("ids", must);
    }
    Ok(ids)
}
