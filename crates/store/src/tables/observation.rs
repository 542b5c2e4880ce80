//! Observations: the values of series.

use chrono::NaiveDate;
use sqlx::Row;
use sqlx::postgres::PgRow;
use vintem_domain::Decimal;

use super::stored_values::{RowProvenance, parse_stored_decimal};
use super::table::ColumnValue::{Date, Numeric, Text};
use super::table::{DataTable, EventQuery, TableColumn};
use crate::Result;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    pub date: NaiveDate,
    pub value: Decimal,
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
];

impl Observation {
    /// Reads a row of `OBSERVATION_TABLE.select_list`.
    pub(crate) fn read(row: &PgRow) -> Result<(Self, RowProvenance)> {
        let observation = Self {
            date: row.try_get(const { column("ref_date") })?,
            value: parse_stored_decimal(row.try_get(const { column("value") })?)?,
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
    event_query: Some(EventQuery {
        old_columns: &["value"],
        sql: "select case when is_new then 'rate.published' else 'series.revised' end, $1,
                     case when is_new
                          then jsonb_build_object('series', series, 'date', ref_date)
                          else jsonb_build_object('series', series, 'date', ref_date, 'old', old_value::text,
                                                  'new', value::text)
                     end
              from changed
              where not is_new or ref_date >= $3
              order by ref_date",
    }),
};

const fn column(name: &str) -> usize {
    OBSERVATION_TABLE.position(name)
}
