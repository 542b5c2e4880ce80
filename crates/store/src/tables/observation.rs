//! Observations: the values of series.

use chrono::NaiveDate;
use sqlx::Row;
use sqlx::postgres::PgRow;
use vintem_domain::series::Shape;
use vintem_domain::{Decimal, Series};

use super::stored_values::{RowProvenance, parse_stored_decimal};
use super::table::ColumnValue::{Boolean, Date, Numeric, OptionalDate, Text};
use super::table::{DataTable, EventQuery, TableColumn};
use crate::Result;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    pub date: NaiveDate,
    pub value: Decimal,
    /// The day until which the rate counts, if it is that of a period.
    pub period_end: Option<NaiveDate>,
    /// Whether the value may still grow, because its month is not over.
    pub is_provisional: bool,
}

impl Observation {
    /// The final value of a date.
    pub const fn new(date: NaiveDate, value: Decimal) -> Self {
        Self { date, value, period_end: None, is_provisional: false }
    }
}

/// An observation with the id of its series.
#[derive(Debug)]
pub struct SeriesObservation {
    pub series: &'static str,
    pub observation: Observation,
}

const COLUMNS: &[TableColumn<SeriesObservation>] = &[
    TableColumn::key("series", Text(|row| row.series)),
    TableColumn::key("ref_date", Date(|row| row.observation.date)),
    TableColumn::value("value", Numeric(|row| row.observation.value)),
    TableColumn::value("period_end", OptionalDate(|row| row.observation.period_end)),
    TableColumn::value("provisional", Boolean(|row| row.observation.is_provisional)),
];

impl Observation {
    /// Reads a row of `OBSERVATION_TABLE.select_list`.
    pub(crate) fn read(row: &PgRow) -> Result<(Self, RowProvenance)> {
        let observation = Self {
            date: row.try_get(const { column("ref_date") })?,
            value: parse_stored_decimal(row.try_get(const { column("value") })?)?,
            period_end: row.try_get(const { column("period_end") })?,
            is_provisional: row.try_get(const { column("provisional") })?,
        };
        let provenance =
            RowProvenance::new(row.try_get(const { column("known_at") })?, row.try_get(const { column("fetch_id") })?)?;
        Ok((observation, provenance))
    }
}

pub const OBSERVATION_TABLE: DataTable<SeriesObservation> = DataTable {
    name: "observation",
    columns: COLUMNS,
    records_absence: false,
    has_generation: false,
    // Provisional values emit no events: the value is news when it is final.
    event_query: Some(EventQuery {
        old_columns: &["value", "provisional"],
        sql: "select case when is_new or old_provisional then 'rate.published' else 'series.revised' end, $1,
                     case when is_new or old_provisional
                          then jsonb_build_object('series', series, 'date', ref_date)
                          else jsonb_build_object('series', series, 'date', ref_date, 'old', old_value::text,
                                                  'new', value::text)
                     end
              from changed
              where not provisional
                and case when is_new or old_provisional
                         then ref_date >= $3
                         -- A row may also change in the end of its period alone.
                         else old_value::text <> value::text
                    end
              order by ref_date",
    }),
};

/// The same table for a series whose whole history is estimated again: one event says how many values a load revised.
/// It names the newest of them.
const REESTIMATED_OBSERVATION_TABLE: DataTable<SeriesObservation> = DataTable {
    event_query: Some(EventQuery {
        old_columns: &["value"],
        sql: "(select 'rate.published', $1, jsonb_build_object('series', series, 'date', ref_date)
               from changed
               where is_new and ref_date >= $3
               order by ref_date)
              union all
              select 'series.revised', $1,
                     jsonb_build_object(
                         'series', series, 'date', max(ref_date),
                         'old', (array_agg(old_value::text order by ref_date desc))[1],
                         'new', (array_agg(value::text order by ref_date desc))[1],
                         'revisions', jsonb_build_object('count', count(*), 'from', min(ref_date), 'to', max(ref_date)))
              from changed
              where not is_new
              group by series",
    }),
    ..OBSERVATION_TABLE
};

/// The table with the events of this series.
pub const fn observation_table(series: &Series) -> &'static DataTable<SeriesObservation> {
    match series.shape {
        Shape::Reestimated => &REESTIMATED_OBSERVATION_TABLE,
        Shape::Value | Shape::Period | Shape::RunningMonth => &OBSERVATION_TABLE,
    }
}

const fn column(name: &str) -> usize {
    OBSERVATION_TABLE.position(name)
}
