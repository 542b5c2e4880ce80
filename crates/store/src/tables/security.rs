//! Listed securities. Readers need only their tickers, which `company.rs` selects.

use chrono::NaiveDate;
use vintem_domain::Cnpj;

use super::table::ColumnValue::{Bigint, Date, OptionalDate, Smallint, Text};
use super::table::{DataTable, TableColumn};

/// A listed security of a company, as its registration form states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSecurity {
    pub document_id: u64,
    pub cnpj: Cnpj,
    pub ticker: String,
    pub reference_date: NaiveDate,
    pub version: u16,
    pub market: String,
    pub segment: String,
    /// The first and the last day of trading under this ticker.
    pub traded_from: Option<NaiveDate>,
    pub traded_until: Option<NaiveDate>,
}

const COLUMNS: &[TableColumn<ListedSecurity>] = &[
    TableColumn::key("document_id", Bigint(|security| i64::try_from(security.document_id).unwrap_or(i64::MAX))),
    TableColumn::key("ticker", Text(|security| &security.ticker)),
    TableColumn::value("cnpj", Text(|security| security.cnpj.as_str())),
    TableColumn::value("reference_date", Date(|security| security.reference_date)),
    TableColumn::value("version", Smallint(|security| security.version)),
    TableColumn::value("market", Text(|security| &security.market)),
    TableColumn::value("segment", Text(|security| &security.segment)),
    TableColumn::value("traded_from", OptionalDate(|security| security.traded_from)),
    TableColumn::value("traded_until", OptionalDate(|security| security.traded_until)),
];

pub const SECURITY_TABLE: DataTable<ListedSecurity> = DataTable {
    name: "security_version",
    columns: COLUMNS,
    records_absence: false,
    has_generation: false,
    event_query: None,
};
