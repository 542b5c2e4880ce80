//! Documents with financial statements, each form of each version.

use chrono::NaiveDate;
use sqlx::Row;
use sqlx::postgres::PgRow;
use vintem_domain::statement::StatementTableSet;
use vintem_domain::{CompanyId, StatementSet};

use super::stored_values::RowProvenance;
use super::table::ColumnValue::{Bigint, Bytes, Date, Text, TextArray};
use super::table::{DataTable, EventQuery, TableColumn};
use crate::load::RawBody;
use crate::{Result, StoreError};

/// The statements that a company filed for a reference date, in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementDocument {
    pub set: StatementSet,
    pub company_id: CompanyId,
    pub reference_date: NaiveDate,
    pub version: u16,
    /// The tables of the archive that it appears in, such as `BPA_con`.
    pub tables: Vec<String>,
    pub row_count: u32,
    /// The canonical form: equal for equal content, however the archive orders or repeats rows.
    pub body: RawBody,
}

/// A stored form of a document, borrowed from the database row.
#[derive(Debug, Clone, Copy)]
pub struct StatementRow<'r> {
    pub set: StatementSet,
    pub company_id: CompanyId,
    pub reference_date: NaiveDate,
    pub version: u16,
    pub tables: StatementTableSet,
    pub row_count: u32,
    /// The canonical form, compressed with zstd: one frame for each table, or a single one.
    pub compressed: &'r [u8],
    pub provenance: RowProvenance,
}

const COLUMNS: &[TableColumn<StatementDocument>] = &[
    TableColumn::key("filing_set", Text(|document| document.set.id())),
    TableColumn::key("cvm_code", Bigint(|document| document.company_id.into())),
    TableColumn::key("reference_date", Date(|document| document.reference_date)),
    TableColumn::key("version", Bigint(|document| document.version.into())),
    TableColumn::value("tables", TextArray(|document| &document.tables)),
    TableColumn::value("row_count", Bigint(|document| document.row_count.into())),
    TableColumn::value("body", Bytes(|document| &document.body.sha256)),
];

pub const STATEMENT_TABLE: DataTable<StatementDocument> = DataTable {
    name: "statement_document",
    columns: COLUMNS,
    records_absence: false,
    has_generation: true,
    // The index of filings knows the day of delivery. It has over a million rows and is read once, whatever the planner
    // expects of the tables of a load.
    event_query: Some(EventQuery {
        old_columns: &[],
        sql: "with delivered_before as materialized (
                  select filing_set, cvm_code, reference_date, version
                  from filing_version
                  where filing_set in ('dfp', 'itr') and delivered_on < $3
              )
              select 'statement.published', $1,
                     jsonb_build_object(
                         'set', filing_set, 'company', cvm_code, 'reference_date', reference_date, 'version', version
                     )
              from changed
              where is_new
                and not exists (
                    select 1
                    from delivered_before
                    where delivered_before.filing_set = changed.filing_set
                      and delivered_before.cvm_code = changed.cvm_code
                      and delivered_before.reference_date = changed.reference_date
                      and delivered_before.version = changed.version
                )
              order by reference_date, cvm_code, version",
    }),
};

impl<'r> StatementRow<'r> {
    /// Reads a row of `STATEMENT_TABLE.select_list`, followed by the compressed body.
    pub(crate) fn read(row: &'r PgRow) -> Result<Self> {
        let company: i64 = row.try_get(const { column("cvm_code") })?;
        let unreadable = || StoreError::UnreadableData(format!("a statement of the company {company}"));
        let set = StatementSet::from_id(row.try_get(const { column("filing_set") })?);
        let tables: Vec<String> = row.try_get(const { column("tables") })?;

        Ok(Self {
            set: set.ok_or_else(unreadable)?,
            company_id: CompanyId::try_from(company).map_err(|_| unreadable())?,
            reference_date: row.try_get(const { column("reference_date") })?,
            version: u16::try_from(row.try_get::<i64, _>(const { column("version") })?).map_err(|_| unreadable())?,
            tables: StatementTableSet::from_names(tables.iter().map(String::as_str)),
            row_count: u32::try_from(row.try_get::<i64, _>(const { column("row_count") })?)
                .map_err(|_| unreadable())?,
            compressed: row.try_get("compressed")?,
            provenance: RowProvenance::new(
                row.try_get(const { column("known_at") })?,
                row.try_get(const { column("fetch_id") })?,
            )?,
        })
    }
}

const fn column(name: &str) -> usize {
    STATEMENT_TABLE.position(name)
}
