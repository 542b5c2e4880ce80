//! Financial statements as JSON and as table rows.

use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{CellWriter, Column, OutputTable};
use vintem_domain::point_in_time::Certainty;
use vintem_domain::statement::{
    AccountRow, CashFlowMethod, FixedAccount, ShareCounts, Statement, StatementScope, VALUE_DECIMALS,
    english_account_name,
};
use vintem_domain::{CompanyId, StatementSet};
use vintem_snapshot::StatementVersion;

use crate::json_date::{serialize_date, serialize_optional_date};
use crate::json_number::JsonNumber;

/// The document that rows are from.
#[derive(Debug, Clone, Copy)]
pub struct DocumentOfRows<'s> {
    pub set: StatementSet,
    pub reference_date: NaiveDate,
    pub version: StatementVersion<'s>,
    /// In point-in-time queries, how we know that it was public.
    pub certainty: Option<Certainty>,
}

/// An account with its value in one period.
#[derive(Debug, Clone, Serialize)]
pub struct StatementRowBody {
    pub statement: &'static str,
    pub method: Option<&'static str>,
    pub scope: &'static str,
    pub column: Option<String>,
    pub account: String,
    pub name: String,
    pub name_en: Option<&'static str>,
    pub fixed: bool,
    pub value: JsonNumber,
    pub unit: &'static str,
    pub raw_value: JsonNumber,
    pub scale: &'static str,
    #[serde(serialize_with = "serialize_optional_date")]
    pub period_start: Option<NaiveDate>,
    #[serde(serialize_with = "serialize_date")]
    pub period_end: NaiveDate,
    #[serde(serialize_with = "serialize_date")]
    pub reference_date: NaiveDate,
    #[serde(serialize_with = "serialize_optional_date")]
    pub filed_on: Option<NaiveDate>,
    pub version: u16,
    pub comparative: bool,
    pub filing_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<&'static str>,
}

/// A column of a table, and how its cell is written.
type Field<Body> = (Column, fn(&Body, &mut dyn CellWriter));

static ROW_FIELDS: [Field<StatementRowBody>; 19] = [
    (Column::text("statement"), |row, cells| cells.write_text(row.statement)),
    (Column::text("method"), |row, cells| cells.write_text(row.method.unwrap_or_default())),
    (Column::text("scope"), |row, cells| cells.write_text(row.scope)),
    (Column::text("column"), |row, cells| cells.write_text(row.column.as_deref().unwrap_or_default())),
    (Column::text("account"), |row, cells| cells.write_text(&row.account)),
    (Column::text("name"), |row, cells| cells.write_text(&row.name)),
    (Column::text("name_en"), |row, cells| cells.write_text(row.name_en.unwrap_or_default())),
    (Column::boolean("fixed"), |row, cells| cells.write_boolean(row.fixed)),
    (Column::wide_decimal("value", VALUE_DECIMALS), |row, cells| cells.write_decimal(Some(row.value.value))),
    (Column::text("unit"), |row, cells| cells.write_text(row.unit)),
    (Column::wide_decimal("raw_value", VALUE_DECIMALS), |row, cells| cells.write_decimal(Some(row.raw_value.value))),
    (Column::text("scale"), |row, cells| cells.write_text(row.scale)),
    (Column::date("period_start"), |row, cells| cells.write_date(row.period_start)),
    (Column::date("period_end"), |row, cells| cells.write_date(Some(row.period_end))),
    (Column::date("reference_date"), |row, cells| cells.write_date(Some(row.reference_date))),
    (Column::date("filed_on"), |row, cells| cells.write_date(row.filed_on)),
    (Column::integer("version"), |row, cells| cells.write_integer(row.version.into())),
    (Column::boolean("comparative"), |row, cells| cells.write_boolean(row.comparative)),
    (Column::text("filing_id"), |row, cells| cells.write_text(row.filing_id.as_deref().unwrap_or_default())),
];

impl StatementRowBody {
    pub fn new(row: &AccountRow<'_>, document: &DocumentOfRows<'_>, as_text: bool) -> Self {
        let filing = document.version.filing;
        Self {
            statement: row.key.statement.id(),
            method: row.key.method.map(CashFlowMethod::id),
            scope: row.key.scope.id(),
            column: row.key.column.map(str::to_owned),
            account: row.key.account.to_owned(),
            name: row.name.to_owned(),
            name_en: row.is_fixed.then(|| english_account_name(row.name)).flatten(),
            fixed: row.is_fixed,
            value: JsonNumber { value: row.value, as_text },
            unit: row.unit.id(),
            raw_value: JsonNumber { value: row.raw_value, as_text },
            scale: row.scale.id(),
            period_start: row.key.period_start,
            period_end: row.key.period_end,
            reference_date: document.reference_date,
            filed_on: filing.map(|filing| filing.delivered_on),
            version: document.version.version,
            comparative: row.key.is_comparative,
            filing_id: filing.map(|filing| filing.id.to_owned()),
            known: document.certainty.map(Certainty::id),
        }
    }
}

/// A row of the bulk export.
pub struct ExportedRow {
    pub company_id: CompanyId,
    pub row: StatementRowBody,
    /// Whether the document has no later version that we have.
    pub is_latest: bool,
}

impl ExportedRow {
    pub fn columns() -> Vec<Column> {
        let of_row = ROW_FIELDS.iter().map(|(column, _)| column.clone());
        [Column::text("company_id")].into_iter().chain(of_row).chain([Column::boolean("is_latest")]).collect()
    }

    pub fn write_cells(&self, cells: &mut dyn CellWriter) {
        cells.write_code(self.company_id);
        for (_, write) in &ROW_FIELDS {
            write(&self.row, cells);
        }
        cells.write_boolean(self.is_latest);
    }
}

pub fn statement_rows_table(rows: Vec<StatementRowBody>, with_certainty: bool) -> OutputTable {
    table_with_certainty("statements", &ROW_FIELDS, rows, with_certainty.then_some(|row| row.known))
}

/// A version of a document.
#[derive(Debug, Clone, Serialize)]
pub struct DocumentVersionBody {
    set: &'static str,
    reference_date: NaiveDate,
    version: u16,
    filed_on: Option<NaiveDate>,
    filing_id: Option<String>,
}

impl DocumentVersionBody {
    pub fn new(set: StatementSet, reference_date: NaiveDate, version: &StatementVersion<'_>) -> Self {
        Self {
            set: set.id(),
            reference_date,
            version: version.version,
            filed_on: version.filing.map(|filing| filing.delivered_on),
            filing_id: version.filing.map(|filing| filing.id.to_owned()),
        }
    }

    pub fn of(document: &DocumentOfRows<'_>) -> Self {
        Self::new(document.set, document.reference_date, &document.version)
    }

    fn filing_id(&self) -> &str {
        self.filing_id.as_deref().unwrap_or_default()
    }
}

/// A version of a document, and what it contains.
#[derive(Debug, Serialize)]
pub struct StatementPeriodBody {
    #[serde(flatten)]
    document: DocumentVersionBody,
    is_latest: bool,
    available: bool,
    scopes: Vec<&'static str>,
    statements: Vec<&'static str>,
    rows: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<&'static str>,
}

static PERIOD_FIELDS: [Field<StatementPeriodBody>; 10] = [
    (Column::text("set"), |row, cells| cells.write_text(row.document.set)),
    (Column::date("reference_date"), |row, cells| cells.write_date(Some(row.document.reference_date))),
    (Column::integer("version"), |row, cells| cells.write_integer(row.document.version.into())),
    (Column::date("filed_on"), |row, cells| cells.write_date(row.document.filed_on)),
    (Column::text("filing_id"), |row, cells| cells.write_text(row.document.filing_id())),
    (Column::boolean("is_latest"), |row, cells| cells.write_boolean(row.is_latest)),
    (Column::boolean("available"), |row, cells| cells.write_boolean(row.available)),
    (Column::text_list("scopes"), |row, cells| cells.write_text_list(&mut row.scopes.iter().copied())),
    (Column::text_list("statements"), |row, cells| cells.write_text_list(&mut row.statements.iter().copied())),
    (Column::decimal("rows", 0), |row, cells| cells.write_decimal(row.rows.map(Into::into))),
];

impl StatementPeriodBody {
    pub fn new(document: &DocumentOfRows<'_>, is_latest: bool) -> Self {
        let form = document.version.form;
        let tables = form.map(|form| form.tables).unwrap_or_default();
        let has_statement = |statement: &Statement| tables.iter().any(|table| table.statement() == Some(*statement));
        Self {
            document: DocumentVersionBody::of(document),
            is_latest,
            available: form.is_some(),
            scopes: tables.scopes().map(StatementScope::id).collect(),
            statements: Statement::ALL.into_iter().filter(has_statement).map(Statement::id).collect(),
            rows: form.map(|form| form.row_count),
            known: document.certainty.map(Certainty::id),
        }
    }
}

pub fn statement_periods_table(rows: Vec<StatementPeriodBody>, with_certainty: bool) -> OutputTable {
    table_with_certainty("statement-periods", &PERIOD_FIELDS, rows, with_certainty.then_some(|row| row.known))
}

/// Numbers of shares at a date, as filed.
#[derive(Debug, Serialize)]
pub struct ShareCountsBody {
    #[serde(flatten)]
    document: DocumentVersionBody,
    common: JsonNumber,
    preferred: JsonNumber,
    total: JsonNumber,
    treasury_common: JsonNumber,
    treasury_preferred: JsonNumber,
    treasury_total: JsonNumber,
    /// Some companies count shares, others thousands of them, and no document says which.
    scale: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<&'static str>,
}

static SHARE_FIELDS: [Field<ShareCountsBody>; 12] = [
    (Column::text("set"), |row, cells| cells.write_text(row.document.set)),
    (Column::date("reference_date"), |row, cells| cells.write_date(Some(row.document.reference_date))),
    (Column::integer("version"), |row, cells| cells.write_integer(row.document.version.into())),
    (Column::date("filed_on"), |row, cells| cells.write_date(row.document.filed_on)),
    (Column::text("filing_id"), |row, cells| cells.write_text(row.document.filing_id())),
    (Column::decimal("common", 0), |row, cells| cells.write_decimal(Some(row.common.value))),
    (Column::decimal("preferred", 0), |row, cells| cells.write_decimal(Some(row.preferred.value))),
    (Column::decimal("total", 0), |row, cells| cells.write_decimal(Some(row.total.value))),
    (Column::decimal("treasury_common", 0), |row, cells| cells.write_decimal(Some(row.treasury_common.value))),
    (Column::decimal("treasury_preferred", 0), |row, cells| cells.write_decimal(Some(row.treasury_preferred.value))),
    (Column::decimal("treasury_total", 0), |row, cells| cells.write_decimal(Some(row.treasury_total.value))),
    (Column::text("scale"), |row, cells| cells.write_text(row.scale)),
];

impl ShareCountsBody {
    pub fn new(shares: ShareCounts, document: &DocumentOfRows<'_>, as_text: bool) -> Self {
        let number = |value| JsonNumber { value, as_text };
        Self {
            document: DocumentVersionBody::of(document),
            common: number(shares.common),
            preferred: number(shares.preferred),
            total: number(shares.total),
            treasury_common: number(shares.treasury_common),
            treasury_preferred: number(shares.treasury_preferred),
            treasury_total: number(shares.treasury_total),
            scale: "unknown",
            known: document.certainty.map(Certainty::id),
        }
    }
}

pub fn share_counts_table(rows: Vec<ShareCountsBody>, with_certainty: bool) -> OutputTable {
    table_with_certainty("shares", &SHARE_FIELDS, rows, with_certainty.then_some(|row| row.known))
}

/// An account that a chart of accounts fixes.
#[derive(Debug, Clone, Serialize)]
pub struct FixedAccountBody {
    chart: &'static str,
    statement: &'static str,
    account: &'static str,
    name: &'static str,
    name_en: &'static str,
}

static ACCOUNT_FIELDS: [Field<FixedAccountBody>; 5] = [
    (Column::text("chart"), |row, cells| cells.write_text(row.chart)),
    (Column::text("statement"), |row, cells| cells.write_text(row.statement)),
    (Column::text("account"), |row, cells| cells.write_text(row.account)),
    (Column::text("name"), |row, cells| cells.write_text(row.name)),
    (Column::text("name_en"), |row, cells| cells.write_text(row.name_en)),
];

impl From<&FixedAccount> for FixedAccountBody {
    fn from(account: &FixedAccount) -> Self {
        Self {
            chart: account.chart.id(),
            statement: account.statement.id(),
            account: account.account,
            name: account.name.pt,
            name_en: account.name.en,
        }
    }
}

pub fn fixed_accounts_table(rows: Vec<FixedAccountBody>) -> OutputTable {
    table_with_certainty("statement-accounts", &ACCOUNT_FIELDS, rows, None)
}

/// `certainty` adds the column of point-in-time queries.
fn table_with_certainty<Body: Send + 'static>(
    name: &'static str,
    fields: &'static [Field<Body>],
    rows: Vec<Body>,
    certainty: Option<fn(&Body) -> Option<&'static str>>,
) -> OutputTable {
    let mut columns: Vec<Column> = fields.iter().map(|(column, _)| column.clone()).collect();
    columns.extend(certainty.map(|_| Column::text("known")));
    OutputTable::from_rows(name, columns, rows, move |row, cells| {
        for (_, write) in fields {
            write(row, cells);
        }
        if let Some(certainty) = certainty {
            cells.write_text(certainty(row).unwrap_or_default());
        }
    })
}
