//! Companies of the registry.

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};
use vintem_domain::{Cnpj, Company};

use super::stored_values::{RowProvenance, parse_company_code};
use super::table::ColumnValue::{Integer, OptionalDate, Text, TextArray};
use super::table::{DataTable, EventQuery, TableColumn};
use crate::Result;
use crate::pool::query;

/// Former names are not stored, because earlier versions have them. Tickers come from the securities.
const COLUMNS: &[TableColumn<Company>] = &[
    TableColumn::key("cvm_code", Integer(|company| company.id)),
    TableColumn::value("name", Text(|company| &company.name)),
    TableColumn::value("cnpj", Text(|company| company.cnpj.as_ref().map_or("", Cnpj::as_str))),
    TableColumn::value("status", Text(|company| &company.status)),
    TableColumn::value("sector", Text(|company| &company.sector)),
    TableColumn::value("trade_name", Text(|company| &company.trade_name)),
    TableColumn::value("markets", TextArray(|company| &company.markets)),
    TableColumn::value("registered_on", OptionalDate(|company| company.registered_on)),
    TableColumn::value("cancelled_on", OptionalDate(|company| company.cancelled_on)),
    TableColumn::value("status_since", OptionalDate(|company| company.status_since)),
    TableColumn::value("category", Text(|company| &company.category)),
    TableColumn::value("situation", Text(|company| &company.situation)),
    TableColumn::value("control", Text(|company| &company.control)),
    TableColumn::value("city", Text(|company| &company.city)),
    TableColumn::value("state", Text(|company| &company.state)),
    TableColumn::value("auditor", Text(|company| &company.auditor)),
];

/// Reads a row of [`registry_query`].
fn read_company(row: &PgRow) -> Result<Company> {
    Ok(Company {
        id: parse_company_code(row.try_get(const { column("cvm_code") })?)?,
        name: row.try_get(const { column("name") })?,
        cnpj: Cnpj::parse(row.try_get(const { column("cnpj") })?),
        status: row.try_get(const { column("status") })?,
        sector: row.try_get(const { column("sector") })?,
        trade_name: row.try_get(const { column("trade_name") })?,
        markets: row.try_get(const { column("markets") })?,
        registered_on: row.try_get(const { column("registered_on") })?,
        cancelled_on: row.try_get(const { column("cancelled_on") })?,
        status_since: row.try_get(const { column("status_since") })?,
        category: row.try_get(const { column("category") })?,
        situation: row.try_get(const { column("situation") })?,
        control: row.try_get(const { column("control") })?,
        city: row.try_get(const { column("city") })?,
        state: row.try_get(const { column("state") })?,
        auditor: row.try_get(const { column("auditor") })?,
        former_names: row.try_get("former_names")?,
        former_trade_names: row.try_get("former_trade_names")?,
        tickers: row.try_get("current_tickers")?,
        is_registered: true,
    })
}

pub const COMPANY_TABLE: DataTable<Company> = DataTable {
    name: "company_version",
    columns: COLUMNS,
    records_absence: true,
    has_generation: false,
    event_query: Some(EventQuery {
        old_columns: &[],
        sql: "select 'company.updated', $1, jsonb_build_object('company', cvm_code)
              from changed
              where $3::date is not null
              order by cvm_code",
    }),
};

const fn column(name: &str) -> usize {
    COMPANY_TABLE.position(name)
}

/// Loads each company in its current version, or in the one that was known before an instant. If the registry was first
/// loaded after that instant, its companies come from that first load, and their flag is true; companies that appeared
/// after the first load are left out.
pub(crate) async fn load_companies(
    connection: &mut PgConnection,
    known_before: Option<DateTime<Utc>>,
) -> Result<Vec<(Company, RowProvenance, bool)>> {
    let rows = query(AssertSqlSafe(registry_query())).bind(known_before).fetch_all(connection).await?;

    let mut companies = Vec::with_capacity(rows.len());
    for row in rows {
        let company = read_company(&row)?;
        let fetch_id = row.try_get(const { column("fetch_id") })?;
        let provenance = RowProvenance::new(row.try_get("last_known_at")?, fetch_id)?;
        companies.push((company, provenance, row.try_get("is_known_later")?));
    }
    Ok(companies)
}

/// Selects the registry. $1 is the instant before which a version must have been known, or null for the current one.
fn registry_query() -> String {
    format!(
        "select {columns},
                array(
                    select former.name
                    from company_version former
                    where former.cvm_code = company.cvm_code
                      and former.known_at <= company.known_at
                      and former.name <> company.name
                    group by former.name
                    order by max(former.known_at) desc
                ) as former_names,
                array(
                    select distinct former.trade_name
                    from company_version former
                    where former.cvm_code = company.cvm_code
                      and former.known_at <= company.known_at
                      and former.trade_name not in ('', company.trade_name)
                ) as former_trade_names,
                coalesce(traded.tickers, '{{}}') as current_tickers,
                greatest(company.known_at, traded.known_at) as last_known_at,
                $1::timestamptz is not null and company.known_at >= $1 as is_known_later
         from (
             select distinct on (cvm_code) *
             from company_version
             where $1::timestamptz is null
                or known_at < $1
                or known_at <= coalesce(
                       (select max(filled_at) from source_part where source = 'companies'),
                       (select min(known_at) from company_version)
                   )
                   and not exists (
                       select 1
                       from company_version earlier
                       where earlier.cvm_code = company_version.cvm_code and earlier.known_at < company_version.known_at
                   )
             order by cvm_code, known_at desc
         ) company
         left join (
             select security.cnpj, array_agg(distinct security.ticker order by security.ticker) as tickers,
                    max(security.known_at) as known_at
             from (
                 select distinct on (document_id, ticker) *
                 from security_version
                 where $1::timestamptz is null or known_at < $1
                 order by document_id, ticker, known_at desc
             ) security
             join (
                 select distinct on (cnpj) cnpj, document_id
                 from security_version
                 where $1::timestamptz is null or known_at < $1
                 order by cnpj, reference_date desc, version desc, document_id desc
             ) newest_form on newest_form.document_id = security.document_id
             where security.traded_until is null
             group by security.cnpj
         ) traded on traded.cnpj = company.cnpj and company.cnpj <> ''
         where not company.absent
         order by company.cvm_code",
        columns = COMPANY_TABLE.select_list("company")
    )
}
