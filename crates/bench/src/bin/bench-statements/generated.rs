//! Statements of generated companies at the size of the country: as archived documents, and as rows of a table.

use std::fmt::Write;

use chrono::{Datelike, Days, NaiveDate};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use vintem_domain::dates::month_end;
use vintem_domain::statement::{
    CashFlowMethod, ChartOfAccounts, FixedAccount, Statement, StatementScope, StatementTable, TableContent,
    TableLayout, fixed_accounts,
};
use vintem_domain::{CompanyId, StatementSet};
use vintem_ingest::fetch::compress_statement_for_archive;
use vintem_store::copy_buffer::CopyBuffer;
use vintem_store::load::{Filing, StatementDocument};

pub const LAST_YEAR: i32 = 2025;
const YEARS: i32 = 16;

/// In real documents about as many values are zero.
const ZEROS_PER_HUNDRED: i32 = 45;

/// Days until a document is delivered.
const DELIVERY_DAYS: u64 = 60;

/// A document of a company.
pub struct GeneratedDocument {
    pub document: StatementDocument,
    pub filing: Filing,
    rows: Vec<GeneratedRow>,
}

struct GeneratedRow {
    table: StatementTable,
    is_comparative: bool,
    start: Option<NaiveDate>,
    end: NaiveDate,
    account: &'static FixedAccount,
    thousands: i64,
}

/// All documents of a company, oldest first: four a year.
pub fn generate_documents(company: CompanyId) -> impl Iterator<Item = GeneratedDocument> {
    let first_year = LAST_YEAR - YEARS + 1;
    let quarters = (first_year..=LAST_YEAR).flat_map(|year| [3, 6, 9, 12].map(|month| (year, month)));
    quarters.filter_map(move |(year, month)| {
        let end = month_end(NaiveDate::from_ymd_opt(year, month, 1)?);
        let set = if month == 12 { StatementSet::Dfp } else { StatementSet::Itr };
        Some(generate_document(company, set, end))
    })
}

fn generate_document(company: CompanyId, set: StatementSet, end: NaiveDate) -> GeneratedDocument {
    let days = u64::from(end.num_days_from_ce().unsigned_abs());
    let mut random = StdRng::seed_from_u64(u64::from(company) << 32 | days);
    let mut rows = Vec::new();
    let mut body = String::new();
    let mut tables = Vec::new();
    for table in StatementTable::ALL {
        let TableContent::Accounts { statement, method, .. } = table.content else { continue };
        // Columns of equity would add little but rows; nearly all companies use the indirect method.
        if statement == Statement::EquityChanges || method == Some(CashFlowMethod::Direct) {
            continue;
        }
        let first_row = rows.len();
        generate_rows(table, statement, end, &mut random, &mut rows);
        tables.push(table.name.to_owned());
        write_table(&mut body, table, &rows[first_row..]);
    }

    let document = StatementDocument {
        set,
        company_id: company,
        reference_date: end,
        version: 1,
        tables,
        row_count: u32::try_from(rows.len()).expect("some hundred rows"),
        body: compress_statement_for_archive(&body).expect("a document has some tables"),
    };
    let filing = Filing {
        id: format!("{}-9{company:06}{}", set.id(), end.format("%y%m")),
        cvm_dataset: set.cvm_dataset(),
        company_id: company,
        category: set.id().to_uppercase(),
        delivered_on: end + Days::new(DELIVERY_DAYS),
        reference_date: Some(end),
        version: 1,
        ..Filing::default()
    };
    GeneratedDocument { document, filing, rows }
}

fn generate_rows(
    table: StatementTable,
    statement: Statement,
    end: NaiveDate,
    random: &mut StdRng,
    rows: &mut Vec<GeneratedRow>,
) {
    let year_start = NaiveDate::from_ymd_opt(end.year(), 1, 1).unwrap_or(end);
    let year_before = |day: NaiveDate| day.with_year(day.year() - 1).unwrap_or(day);
    for is_comparative in [false, true] {
        let shift = |day: NaiveDate| if is_comparative { year_before(day) } else { day };
        for account in fixed_accounts() {
            if account.chart == ChartOfAccounts::Commercial && account.statement == statement {
                let is_zero = random.random_range(0..100) < ZEROS_PER_HUNDRED;
                let thousands = if is_zero { 0 } else { random.random_range(-900_000..9_000_000) };
                let start = (table.layout() == TableLayout::Flow).then(|| shift(year_start));
                rows.push(GeneratedRow { table, is_comparative, start, end: shift(end), account, thousands });
            }
        }
    }
}

/// In the canonical form of the archive.
fn write_table(body: &mut String, table: StatementTable, rows: &[GeneratedRow]) {
    let scope = if table.scope() == Some(StatementScope::Consolidated) { "Consolidado" } else { "Individual" };
    writeln!(body, "[{}]\n{}", table.name, table.layout().content_columns().join(";")).expect("a String takes it");
    for row in rows {
        let order = if row.is_comparative { "PENÚLTIMO" } else { "ÚLTIMO" };
        let start = row.start.map_or_else(String::new, |start| format!("{start};"));
        let FixedAccount { account, name, .. } = row.account;
        writeln!(
            body,
            "DF {scope} - Demonstração;REAL;MIL;{order};{start}{};{account};{};{}.0000000000;S",
            row.end, name.pt, row.thousands
        )
        .expect("a String takes it");
    }
}

/// The same rows in a table of PostgreSQL, as one would design it for this query.
pub const CREATE_ACCOUNT_TABLE: &str = "
    create unlogged table account_row (
        cvm_code integer not null,
        statement text not null,
        scope text not null,
        filing_set text not null,
        reference_date date not null,
        version integer not null,
        comparative boolean not null,
        account text not null,
        period_start date,
        period_end date not null,
        name text not null,
        fixed boolean not null,
        value numeric not null
    )";
pub const INDEX_ACCOUNT_TABLE: &str = "
    create unique index account_row_key on account_row (
        cvm_code, statement, scope, filing_set, reference_date, version, comparative, account, name
    )";
pub const SELECT_FIVE_YEARS: &str = "
    select account, period_start, period_end, name, fixed, value::text, reference_date, version
    from account_row
    where cvm_code = $1 and statement = $2 and scope = 'consolidated' and filing_set = 'dfp'
      and reference_date between $3 and $4 and not comparative
    order by cvm_code, statement, scope, filing_set, reference_date, version, comparative, account, name";

impl GeneratedDocument {
    pub fn copy_rows(&self, buffer: &mut CopyBuffer) {
        let StatementDocument { set, company_id, reference_date, version, .. } = self.document;
        for row in &self.rows {
            let scope = row.table.scope().map_or("", StatementScope::id);
            buffer
                .integer(company_id)
                .text(row.account.statement.id())
                .text(scope)
                .text(set.id())
                .date(reference_date)
                .integer(version)
                .boolean(row.is_comparative)
                .text(row.account.account)
                .optional_date(row.start)
                .date(row.end)
                .text(row.account.name.pt)
                .boolean(true)
                .integer(row.thousands * 1_000)
                .end_row();
        }
    }
}
