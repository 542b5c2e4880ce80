//! Filings: the documents that companies deliver to the regulator, CVM. A new column is a field of [`Filing`] and of
//! [`FilingRow`], a line in `COLUMNS` that writes it, and a line in [`FilingRow::read`].

use chrono::NaiveDate;
use sqlx::Row;
use sqlx::postgres::PgRow;
use vintem_domain::{CompanyId, CvmDataset};

use super::stored_values::{RowProvenance, parse_company_code};
use super::table::ColumnValue::{Date, Integer, OptionalDate, Smallint, Text};
use super::table::{DataTable, EventQuery, TableColumn};
use crate::{Result, StoreError};

/// A filing as the regulator publishes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filing {
    pub id: String,
    pub cvm_dataset: CvmDataset,
    pub company_id: CompanyId,
    /// As the filing states it.
    pub company_name: String,
    pub category: String,
    /// CVM's `Tipo`, `type` on the wire.
    pub doc_type: String,
    /// CVM's `Especie`.
    pub kind: String,
    /// Empty if CVM gives none.
    pub subject: String,
    pub delivered_on: NaiveDate,
    /// May be absurd (year 3026), so we never sort or filter by it.
    pub reference_date: Option<NaiveDate>,
    /// 0 if CVM gives none, as for the filings before 2015.
    pub version: u16,
    pub protocol: String,
    pub url: String,
}

impl Filing {
    /// Whether two filings with the same id are the same document. Only numbers of the IPE index have been used twice.
    pub fn is_same_document(&self, other: &Self) -> bool {
        self.cvm_dataset != CvmDataset::Ipe || self.identity() == other.identity()
    }

    fn identity(&self) -> (CompanyId, &str, &str, &str, NaiveDate) {
        (self.company_id, &self.category, &self.doc_type, &self.kind, self.delivered_on)
    }
}

/// A stored filing, borrowed from the database row, so that millions of them need no allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilingRow<'r> {
    pub id: &'r str,
    pub cvm_dataset: CvmDataset,
    pub company_id: CompanyId,
    pub company_name: &'r str,
    pub category: &'r str,
    pub doc_type: &'r str,
    pub kind: &'r str,
    pub subject: &'r str,
    pub delivered_on: NaiveDate,
    pub reference_date: Option<NaiveDate>,
    pub version: u16,
    pub protocol: &'r str,
    pub url: &'r str,
    pub provenance: RowProvenance,
}

const COLUMNS: &[TableColumn<Filing>] = &[
    TableColumn::key("id", Text(|filing| &filing.id)),
    TableColumn::value("filing_set", Text(|filing| filing.cvm_dataset.id())),
    TableColumn::value("cvm_code", Integer(|filing| filing.company_id)),
    TableColumn::value("company_name", Text(|filing| &filing.company_name)),
    TableColumn::value("category", Text(|filing| &filing.category)),
    TableColumn::value("doc_type", Text(|filing| &filing.doc_type)),
    TableColumn::value("kind", Text(|filing| &filing.kind)),
    TableColumn::value("subject", Text(|filing| &filing.subject)),
    TableColumn::value("delivered_on", Date(|filing| filing.delivered_on)),
    TableColumn::value("reference_date", OptionalDate(|filing| filing.reference_date)),
    TableColumn::value("version", Smallint(|filing| filing.version)),
    TableColumn::value("protocol", Text(|filing| &filing.protocol)),
    TableColumn::value("url", Text(|filing| &filing.url)),
];

impl<'r> FilingRow<'r> {
    /// Reads a row of `FILING_TABLE.select_list`.
    pub(crate) fn read(row: &'r PgRow) -> Result<Self> {
        let set: &str = row.try_get(const { column("filing_set") })?;
        let version: i16 = row.try_get(const { column("version") })?;

        Ok(Self {
            id: row.try_get(const { column("id") })?,
            cvm_dataset: CvmDataset::from_id(set)
                .ok_or_else(|| StoreError::UnreadableData(format!("filing set {set}")))?,
            company_id: parse_company_code(row.try_get(const { column("cvm_code") })?)?,
            company_name: row.try_get(const { column("company_name") })?,
            category: row.try_get(const { column("category") })?,
            doc_type: row.try_get(const { column("doc_type") })?,
            kind: row.try_get(const { column("kind") })?,
            subject: row.try_get(const { column("subject") })?,
            delivered_on: row.try_get(const { column("delivered_on") })?,
            reference_date: row.try_get(const { column("reference_date") })?,
            version: u16::try_from(version).unwrap_or(0),
            protocol: row.try_get(const { column("protocol") })?,
            url: row.try_get(const { column("url") })?,
            provenance: RowProvenance::new(
                row.try_get(const { column("known_at") })?,
                row.try_get(const { column("fetch_id") })?,
            )?,
        })
    }
}

pub const FILING_TABLE: DataTable<Filing> = DataTable {
    name: "filing_version",
    columns: COLUMNS,
    records_absence: true,
    has_generation: true,
    event_query: Some(EventQuery {
        old_columns: &[],
        sql: "select 'filing.published', $1, jsonb_build_object('filing', id)
              from changed
              where is_new and delivered_on >= $3
              order by delivered_on, id",
    }),
};

const fn column(name: &str) -> usize {
    FILING_TABLE.position(name)
}
