//! Documents with financial statements, each form of each version.

use chrono::NaiveDate;
use vintem_domain::{CompanyId, StatementSet};

use super::table::ColumnValue::{Bigint, Bytes, Date, Text, TextArray};
use super::table::{DataTable, TableColumn};
use crate::load::RawBody;

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
    has_generation: false,
    event_query: None,
};
