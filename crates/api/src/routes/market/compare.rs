//! Several series side by side, on the same days.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{Column, Kind, Table};
use vintem_domain::dates::{month_end, month_start};
use vintem_domain::{Dataset, Problem, Series, Text, series};

use super::source::{SeriesBody, SeriesSource, Source, series_source};
use super::{AppState, Handlers, ListParams, today};
use crate::answer::{Tag, with_links};
use crate::caller::Caller;
use crate::number::Number;
use crate::params::{Order, Query, refuse};
use crate::problem::Refusal;

/// So many series at once: all that there are.
const MOST_SERIES: usize = 9;

#[derive(Serialize)]
struct CompareBody {
    align: &'static str,
    carry: &'static str,
    series: Vec<SeriesBody>,
    total: usize,
    limit: usize,
    offset: usize,
    data: Vec<AlignedBody>,
}

#[derive(Serialize)]
struct AlignedBody {
    date: NaiveDate,
    /// By the id of the series, from its first value on.
    values: BTreeMap<&'static str, CellBody>,
}

#[derive(Serialize)]
struct CellBody {
    value: Number,
    /// The day of the value itself.
    date: NaiveDate,
    /// Whether it is of an earlier day, or month, than the row.
    carried: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Align {
    Day,
    Month,
}

impl Align {
    fn read(query: &Query) -> Result<Self, Problem> {
        match query.value("align")? {
            None | Some("day") => Ok(Self::Day),
            Some("month") => Ok(Self::Month),
            Some(_) => refuse("align", Text::new("be `day` or `month`", "ser `day` ou `month`")),
        }
    }

    const fn id(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// The row that a day belongs to.
    fn row(self, day: NaiveDate) -> NaiveDate {
        match self {
            Self::Day => day,
            Self::Month => month_start(day),
        }
    }

    /// The last day of a row.
    fn end(self, row: NaiveDate) -> NaiveDate {
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
async fn compare_series(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (ids, align) = (ids(&query)?, Align::read(&query)?);
    let ListParams { form, days, page, order, as_text } = ListParams::read(&caller, &query)?;
    let (snapshot, today) = (app.snapshot()?, today(&app));
    let sources: Vec<SeriesSource<'_>> =
        ids.iter().map(|id| series_source(&snapshot, id)).collect::<Result<_, Refusal>>()?;
    let mut rows: Vec<NaiveDate> = sources
        .iter()
        .flat_map(|source| source.range(days.until(today)).map(|at| align.row(source.values.get(at).0)))
        .collect();
    rows.sort_unstable();
    rows.dedup();
    let total = rows.len();
    if order == Order::Descending {
        rows.reverse();
    }
    let datasets: Vec<Dataset> = sources.iter().flat_map(Source::datasets).collect();
    let further: Vec<i64> = sources.iter().map(|source| source.further_generation(&snapshot)).collect();
    let tag = Tag::new(&caller, &app, &snapshot, &datasets, (today, further));
    let shown = || -> Vec<AlignedBody> {
        let shown = rows.iter().skip(page.offset).take(page.limit);
        shown.map(|date| aligned(&sources, align, *date, today, as_text)).collect()
    };
    let body = |()| CompareBody {
        align: align.id(),
        carry: Text::new("the last value on or before the row's last day", "o último valor até o último dia da linha")
            .in_lang(caller.lang),
        series: sources.iter().map(|source| source.describe(caller.lang)).collect(),
        total,
        limit: page.limit,
        offset: page.offset,
        data: shown(),
    };
    let table = |()| table(sources.iter().map(|source| source.series).collect(), shown());
    Ok(with_links(tag.list(form, (), body, table), &caller, &app, page, total))
}

/// Two columns a series: the value, and the day that it is of.
fn table(series: Vec<&'static Series>, rows: Vec<AlignedBody>) -> Table {
    let of_series = |series: &&'static Series| {
        let date = Column { name: format!("{}_date", series.id).into(), kind: Kind::Day };
        [Column::decimal(series.id, series.decimals), date]
    };
    let columns = std::iter::once(Column::day("date")).chain(series.iter().flat_map(of_series)).collect();
    Table::of("compare", columns, rows, move |row, cells| {
        cells.day(Some(row.date));
        for cell in series.iter().map(|series| row.values.get(series.id)) {
            cells.decimal(cell.map(|cell| cell.value.value));
            cells.day(cell.map(|cell| cell.date));
        }
    })
}

fn aligned(
    sources: &[SeriesSource<'_>],
    align: Align,
    date: NaiveDate,
    today: NaiveDate,
    as_text: bool,
) -> AlignedBody {
    let cell = |source: &SeriesSource<'_>| {
        let at = source.newest(align.end(date).min(today))?;
        let (day, value) = source.values.get(at);
        let cell = CellBody { value: Number { value, as_text }, date: day, carried: align.row(day) < date };
        Some((source.series.id, cell))
    };
    AlignedBody { date, values: sources.iter().filter_map(cell).collect() }
}

fn ids(query: &Query) -> Result<Vec<&str>, Problem> {
    let must = Text::new(
        "be given: one to nine ids of /api/v1/market/series, separated by commas",
        "ser informado: de um a nove ids de /api/v1/market/series, separados por vírgulas",
    );
    let ids: Vec<&str> = query.value("ids")?.unwrap_or("").split(',').map(str::trim).collect();
    let is_known = |id: &&str| series::by_id(id).is_some();
    if ids.len() > MOST_SERIES || !ids.iter().all(is_known) {
        return refuse("ids", must);
    }
    Ok(ids)
}
