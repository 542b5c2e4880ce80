//! A statement as a table: an account in each row and a period in each column, as in a spreadsheet.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use axum::response::Response;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{Column, ColumnType, OutputTable};
use vintem_domain::statement::{AccountRow, CashFlowMethod, VALUE_DECIMALS};
use vintem_domain::text::normalize_text;
use vintem_domain::{Decimal, LocalizedText};

use super::company::{CompanyStatements, STATEMENT_DATASETS};
use super::json_rows::{CellRows, MAX_WHOLE_CELLS, respond_json_rows};
use super::selection::{DocumentSelection, RowSelection};
use crate::api_error::ApiError;
use crate::bodies::statement::{DocumentOfRows, DocumentVersionBody, StatementRowBody};
use crate::csv::ListFormat;
use crate::json_number::JsonNumber;
use crate::params::{QueryParams, invalid_param};
use crate::responses::EtagResponder;
use crate::snapshot_request::SnapshotRequest;

struct PivotedTable {
    periods: Vec<PeriodBody>,
    rows: Vec<TableRowBody>,
    unavailable_versions: Vec<DocumentVersionBody>,
}

/// The rows follow as `data`.
#[derive(Serialize)]
struct StatementTableHead {
    periods: Vec<PeriodBody>,
    unavailable_versions: Vec<DocumentVersionBody>,
    data: [TableRowBody; 0],
}

/// A column: a period of a document.
#[derive(Debug, Clone, Serialize)]
struct PeriodBody {
    label: String,
    period_start: Option<NaiveDate>,
    period_end: NaiveDate,
    comparative: bool,
    #[serde(flatten)]
    document: DocumentVersionBody,
}

/// An account with its values, one for each period.
#[derive(Serialize)]
struct TableRowBody {
    statement: &'static str,
    method: Option<&'static str>,
    scope: &'static str,
    column: Option<String>,
    account: String,
    name: String,
    name_en: Option<&'static str>,
    fixed: bool,
    unit: &'static str,
    values: Vec<Option<JsonNumber>>,
}

/// Newest periods first.
type PeriodKey = (Reverse<NaiveDate>, Reverse<Option<NaiveDate>>, bool, Reverse<NaiveDate>, &'static str);

/// Accounts are the same if their names are, too: companies reuse the codes of accounts of their own.
type AccountKey = (&'static str, Option<&'static str>, Option<String>, String, String);

/// The cells of a table while its rows are read.
#[derive(Default)]
struct TableCells {
    periods: BTreeMap<PeriodKey, PeriodBody>,
    accounts: BTreeMap<AccountKey, (StatementRowBody, BTreeMap<PeriodKey, Decimal>)>,
}

pub async fn table_response(
    request: &SnapshotRequest,
    query: &QueryParams,
    company: CompanyStatements,
    documents: DocumentSelection,
    rows: RowSelection,
) -> Result<Response, ApiError> {
    if rows.statement.is_none() {
        let must = LocalizedText::new("is required with `layout=table`", "é obrigatório com `layout=table`");
        return Ok(invalid_param("statement", must)?);
    }
    for name in ["limit", "offset"] {
        if query.single_value(name)?.is_some() {
            let must = LocalizedText::new(
                "must not be combined with `layout=table`, which is always whole",
                "não pode ser usado junto com `layout=table`, que vem sempre inteiro",
            );
            return Ok(invalid_param(name, must)?);
        }
    }
    let format = ListFormat::from_query(query, request.prefers_csv)?;
    let as_text = query.numbers_as_text()?;

    let reading = company.clone();
    let read = move || {
        let selected = documents.select(&reading.documents(documents.day));
        let mut cells = TableCells::default();
        for document in &selected.documents {
            rows.for_each_row(reading.statements()?, document, |row| cells.add(row, document))?;
        }
        Ok(cells.into_table(selected.unavailable, as_text))
    };
    let PivotedTable { rows, periods, unavailable_versions } = request.run_search(read).await?;
    let responder = EtagResponder::new(request, &company.snapshot, &STATEMENT_DATASETS, rows.len());
    let is_long = rows.len() * periods.len() > MAX_WHOLE_CELLS && !responder.is_not_modified();
    let permit = is_long.then(|| request.acquire_long_table()).transpose()?;
    match format {
        ListFormat::Csv(options) => {
            Ok(responder.respond_csv(options, || output_table(periods, rows).with_guard(permit)))
        }
        ListFormat::Json => {
            let cell_rows = CellRows { width: periods.len(), rows, permit };
            let head = StatementTableHead { periods, unavailable_versions, data: [] };
            respond_json_rows(request, responder, head, cell_rows).await
        }
    }
}

impl TableCells {
    fn add(&mut self, row: &AccountRow<'_>, document: &DocumentOfRows<'_>) {
        let (start, end) = (row.key.period_start, row.key.period_end);
        let period: PeriodKey =
            (Reverse(end), Reverse(start), row.key.is_comparative, Reverse(document.reference_date), document.set.id());
        self.periods.entry(period).or_insert_with(|| PeriodBody {
            label: period_label(row, document.reference_date),
            period_start: start,
            period_end: end,
            comparative: row.key.is_comparative,
            document: DocumentVersionBody::new(document.set, document.reference_date, &document.version),
        });

        let account: AccountKey = (
            row.key.scope.id(),
            row.key.method.map(CashFlowMethod::id),
            row.key.column.map(str::to_owned),
            row.key.account.to_owned(),
            normalize_text(row.name),
        );
        let new_account = || (StatementRowBody::new(row, document, false), BTreeMap::new());
        let (_, values) = self.accounts.entry(account).or_insert_with(new_account);
        values.insert(period, row.value);
    }

    fn into_table(self, unavailable_versions: Vec<DocumentVersionBody>, as_text: bool) -> PivotedTable {
        let keys: Vec<PeriodKey> = self.periods.keys().copied().collect();
        let row = |(account, values): (StatementRowBody, BTreeMap<PeriodKey, Decimal>)| TableRowBody {
            statement: account.statement,
            method: account.method,
            scope: account.scope,
            column: account.column,
            account: account.account,
            name: account.name,
            name_en: account.name_en,
            fixed: account.fixed,
            unit: account.unit,
            values: keys.iter().map(|key| values.get(key).map(|value| JsonNumber { value: *value, as_text })).collect(),
        };
        PivotedTable {
            rows: self.accounts.into_values().map(row).collect(),
            periods: self.periods.into_values().collect(),
            unavailable_versions,
        }
    }
}

/// The heading of a column: a day, or a period as ISO 8601 writes it.
fn period_label(row: &AccountRow<'_>, reference_date: NaiveDate) -> String {
    let end = row.key.period_end;
    let period = row.key.period_start.map_or_else(|| end.to_string(), |start| format!("{start}/{end}"));
    if row.key.is_comparative { format!("{period} in {reference_date}") } else { period }
}

fn output_table(periods: Vec<PeriodBody>, rows: Vec<TableRowBody>) -> OutputTable {
    let names = ["statement", "method", "scope", "column", "account", "name", "name_en"];
    let mut columns: Vec<Column> = names.map(Column::text).to_vec();
    columns.extend([Column::boolean("fixed"), Column::text("unit")]);
    let period_column = |period: PeriodBody| Column {
        name: Cow::Owned(period.label),
        column_type: ColumnType::WideDecimal(VALUE_DECIMALS),
    };
    columns.extend(periods.into_iter().map(period_column));

    OutputTable::from_rows("statement-table", columns, rows, |row, cells| {
        for text in [
            row.statement,
            row.method.unwrap_or_default(),
            row.scope,
            row.column.as_deref().unwrap_or_default(),
            &row.account,
            &row.name,
            row.name_en.unwrap_or_default(),
        ] {
            cells.write_text(text);
        }
        cells.write_boolean(row.fixed);
        cells.write_text(row.unit);
        for value in &row.values {
            cells.write_decimal(value.map(|value| value.value));
        }
    })
}
