//! Reads the current version of all data for the snapshot, in one repeatable-read transaction.

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use futures_util::TryStreamExt;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Postgres, Row, Transaction};
use vintem_domain::decimal::parse_exact_decimal;
use vintem_domain::{Cnpj, Company, Currency, CvmDataset, DataOrigin, Dataset, Decimal, Quote, Series};

use crate::load::{BulletinKind, Observation};
use crate::{BACKGROUND_TIMEOUT, Result, Store, StoreError, disable_timeouts_in_transaction, with_timeout};

/// The state of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetState {
    /// Stays the same as long as each generation builds on the one before.
    pub lineage: String,
    pub generation: i64,
    pub loaded_at: DateTime<Utc>,
    pub origin: DataOrigin,
}

/// When we learned of a row, and which fetch brought it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowProvenance {
    /// Seconds since 1970.
    pub known_at_seconds: u32,
    pub fetch_id: u32,
}

impl RowProvenance {
    pub(crate) fn new(known_at: DateTime<Utc>, fetch_id: i64) -> Result<Self> {
        let fetch_id =
            u32::try_from(fetch_id).map_err(|_| StoreError::UnreadableData(format!("the fetch {fetch_id}")))?;
        Ok(Self { known_at_seconds: Self::to_unix_seconds(known_at), fetch_id })
    }

    /// An instant in the unit of `known_at_seconds`.
    pub fn to_unix_seconds(instant: DateTime<Utc>) -> u32 {
        u32::try_from(instant.timestamp().max(0)).unwrap_or(u32::MAX)
    }

    pub fn known_at(self) -> DateTime<Utc> {
        DateTime::from_timestamp(self.known_at_seconds.into(), 0).unwrap_or_default()
    }
}

/// One fetch: what was fetched, when and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRow {
    pub source_url: String,
    pub fetched_at: DateTime<Utc>,
    pub sha256: [u8; 32],
}

/// One filing, borrowed from the database row, so that millions of them need no allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilingRow<'r> {
    pub id: &'r str,
    pub cvm_dataset: CvmDataset,
    pub company_id: u32,
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

/// One bulletin of exchange rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulletinRow<'r> {
    pub date: NaiveDate,
    /// In Brasília time, as published.
    pub published_at: NaiveDateTime,
    pub kind: BulletinKind,
    pub quote_currency: &'r str,
    pub quote: Quote,
    pub provenance: RowProvenance,
}

/// A consistent view of the database at one moment.
#[derive(Debug)]
pub struct SnapshotReader {
    transaction: Transaction<'static, Postgres>,
}

impl Store {
    pub async fn open_reader(&self) -> Result<SnapshotReader> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query("set transaction isolation level repeatable read, read only").execute(&mut *transaction).await?;
        disable_timeouts_in_transaction(&mut transaction).await?;

        // Locked before the view is taken: `truncate` is not MVCC-safe, so it must not run in between.
        sqlx::query("lock table observation, fx_bulletin, company_version, security_version, filing_version in access share mode")
            .execute(&mut *transaction)
            .await?;

        Ok(SnapshotReader { transaction })
    }

    /// The states of all datasets that were ever loaded.
    pub async fn dataset_states(&self) -> Result<HashMap<Dataset, DatasetState>> {
        with_timeout(BACKGROUND_TIMEOUT, async { load_dataset_states(&mut *self.pool.acquire().await?).await }).await
    }
}

impl SnapshotReader {
    pub async fn dataset_states(&mut self) -> Result<HashMap<Dataset, DatasetState>> {
        load_dataset_states(&mut self.transaction).await
    }

    /// The fetches with a greater id than `after_id`, by id.
    pub async fn fetches(&mut self, after_id: u32) -> Result<HashMap<u32, FetchRow>> {
        let rows: Vec<(i64, String, DateTime<Utc>, Vec<u8>)> = sqlx::query_as(
            "select id, address, fetched_at, sha256
             from raw_fetch
             where id > $1",
        )
        .bind(i64::from(after_id))
        .fetch_all(&mut *self.transaction)
        .await?;

        let parse_row = |(id, address, fetched_at, sha256): (i64, String, DateTime<Utc>, Vec<u8>)| {
            let provenance = RowProvenance::new(fetched_at, id)?;
            let sha256 =
                sha256.try_into().map_err(|_| StoreError::UnreadableData(format!("the checksum of the fetch {id}")))?;
            Ok((provenance.fetch_id, FetchRow { source_url: address, fetched_at, sha256 }))
        };
        rows.into_iter().map(parse_row).collect()
    }

    /// The current values of a series, oldest first, each date once.
    pub async fn observations(&mut self, series: &Series) -> Result<Vec<(Observation, RowProvenance)>> {
        let rows: Vec<(NaiveDate, String, DateTime<Utc>, i64)> = sqlx::query_as(
            "select distinct on (ref_date) ref_date, value::text, known_at, fetch_id
             from observation
             where series = $1
             order by ref_date, known_at desc",
        )
        .bind(series.id)
        .fetch_all(&mut *self.transaction)
        .await?;

        let parse_row = |(date, value, known_at, fetch_id): (NaiveDate, String, DateTime<Utc>, i64)| {
            Ok((Observation { date, value: parse_stored_decimal(&value)? }, RowProvenance::new(known_at, fetch_id)?))
        };
        rows.into_iter().map(parse_row).collect()
    }

    /// Visits the current version of every bulletin of a currency, in order of publication.
    pub async fn for_each_bulletin(
        &mut self,
        currency: Currency,
        mut on_row: impl FnMut(BulletinRow<'_>),
    ) -> Result<()> {
        let mut rows = sqlx::query(
            "select distinct on (ref_date, published_at, bulletin) ref_date, published_at, bulletin, quote_currency,
                    buy::text, sell::text, known_at, fetch_id
             from fx_bulletin
             where currency = $1
             order by ref_date, published_at, bulletin, known_at desc",
        )
        .bind(currency.code())
        .fetch(&mut *self.transaction);

        while let Some(row) = rows.try_next().await? {
            let kind: &str = row.try_get(2)?;
            on_row(BulletinRow {
                date: row.try_get(0)?,
                published_at: row.try_get(1)?,
                kind: BulletinKind::from_id(kind)
                    .ok_or_else(|| StoreError::UnreadableData(format!("bulletin {kind}")))?,
                quote_currency: row.try_get(3)?,
                quote: Quote {
                    buy: parse_stored_decimal(row.try_get(4)?)?,
                    sell: parse_stored_decimal(row.try_get(5)?)?,
                },
                provenance: RowProvenance::new(row.try_get(6)?, row.try_get(7)?)?,
            });
        }
        Ok(())
    }

    /// The companies of the registry, with the names from earlier versions.
    pub async fn companies(&mut self) -> Result<Vec<(Company, RowProvenance)>> {
        let companies = load_companies(&mut self.transaction, None).await?;
        Ok(companies.into_iter().map(|(company, provenance, _)| (company, provenance)).collect())
    }

    /// Visits the current version of every filing, in no particular order.
    pub async fn for_each_filing(&mut self, mut on_row: impl FnMut(FilingRow<'_>)) -> Result<()> {
        let mut rows = sqlx::query(
            "select id, filing_set, cvm_code, company_name, category, doc_type, kind, subject, delivered_on,
                    reference_date, version, protocol, url, known_at, fetch_id
             from filing_version
             where not absent
               and not exists (
                   select 1
                   from filing_version newer
                   where newer.id = filing_version.id and newer.known_at > filing_version.known_at
               )",
        )
        .fetch(&mut *self.transaction);

        while let Some(row) = rows.try_next().await? {
            on_row(parse_filing_row(&row)?);
        }
        Ok(())
    }

    /// Visits the filings that changed after this generation, each in its current version, with whether it is absent.
    pub async fn for_each_filing_since(
        &mut self,
        generation: i64,
        mut on_row: impl FnMut(FilingRow<'_>, bool),
    ) -> Result<()> {
        // Only a few of millions of rows match. A fresh load has no statistics, so the planner would scan the whole
        // table.
        sqlx::query("set local enable_seqscan = off").execute(&mut *self.transaction).await?;
        let mut rows = sqlx::query(
            "select distinct on (id) id, filing_set, cvm_code, company_name, category, doc_type, kind, subject,
                    delivered_on, reference_date, version, protocol, url, known_at, fetch_id, absent
             from filing_version
             where id = any(array(select id from filing_version where generation > $1))
             order by id, known_at desc",
        )
        .bind(generation)
        .fetch(&mut *self.transaction);

        while let Some(row) = rows.try_next().await? {
            on_row(parse_filing_row(&row)?, row.try_get(15)?);
        }

        drop(rows);
        sqlx::query("set local enable_seqscan = on").execute(&mut *self.transaction).await?;
        Ok(())
    }
}

/// Loads each company in its current version, or in the one that was known before an instant. If the registry was first
/// loaded after that instant, its companies come from that first load, and their flag is true; companies that appeared
/// after the first load are left out.
pub(crate) async fn load_companies(
    connection: &mut PgConnection,
    known_before: Option<DateTime<Utc>>,
) -> Result<Vec<(Company, RowProvenance, bool)>> {
    let rows = sqlx::query(
        "select company.*,
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
                coalesce(traded.tickers, '{}') as current_tickers,
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
    )
    .bind(known_before)
    .fetch_all(connection)
    .await?;

    let mut companies = Vec::with_capacity(rows.len());
    for row in rows {
        let provenance = RowProvenance::new(row.try_get("last_known_at")?, row.try_get("fetch_id")?)?;
        let company = Company {
            id: parse_company_code(row.try_get("cvm_code")?)?,
            name: row.try_get("name")?,
            cnpj: Cnpj::parse(row.try_get("cnpj")?),
            status: row.try_get("status")?,
            sector: row.try_get("sector")?,
            trade_name: row.try_get("trade_name")?,
            former_names: row.try_get("former_names")?,
            former_trade_names: row.try_get("former_trade_names")?,
            tickers: row.try_get("current_tickers")?,
            markets: row.try_get("markets")?,
            registered_on: row.try_get("registered_on")?,
            cancelled_on: row.try_get("cancelled_on")?,
            status_since: row.try_get("status_since")?,
            category: row.try_get("category")?,
            situation: row.try_get("situation")?,
            control: row.try_get("control")?,
            city: row.try_get("city")?,
            state: row.try_get("state")?,
            auditor: row.try_get("auditor")?,
            is_registered: true,
        };
        companies.push((company, provenance, row.try_get("is_known_later")?));
    }
    Ok(companies)
}

pub(crate) fn parse_filing_row(row: &PgRow) -> Result<FilingRow<'_>> {
    let set: &str = row.try_get(1)?;
    Ok(FilingRow {
        id: row.try_get(0)?,
        cvm_dataset: CvmDataset::from_id(set).ok_or_else(|| StoreError::UnreadableData(format!("filing set {set}")))?,
        company_id: parse_company_code(row.try_get(2)?)?,
        company_name: row.try_get(3)?,
        category: row.try_get(4)?,
        doc_type: row.try_get(5)?,
        kind: row.try_get(6)?,
        subject: row.try_get(7)?,
        delivered_on: row.try_get(8)?,
        reference_date: row.try_get(9)?,
        version: u16::try_from(row.try_get::<i16, _>(10)?).unwrap_or(0),
        protocol: row.try_get(11)?,
        url: row.try_get(12)?,
        provenance: RowProvenance::new(row.try_get(13)?, row.try_get(14)?)?,
    })
}

async fn load_dataset_states(connection: &mut PgConnection) -> Result<HashMap<Dataset, DatasetState>> {
    // The database's oid is part of the lineage, because a copy of a database starts with the same rows and then
    // diverges.
    let rows = sqlx::query(
        "select id, lineage || '/' || (select oid from pg_database where datname = current_database()) as lineage,
                generation, loaded_at, origin
         from dataset",
    )
    .fetch_all(connection)
    .await?;

    let mut states = HashMap::new();
    for row in rows {
        let origin: &str = row.try_get("origin")?;
        let origin =
            DataOrigin::from_id(origin).ok_or_else(|| StoreError::UnreadableData(format!("origin {origin}")))?;

        // Datasets of a newer version are unknown to this one.
        let Some(dataset) = Dataset::from_id(row.try_get("id")?) else { continue };
        let state = DatasetState {
            lineage: row.try_get("lineage")?,
            generation: row.try_get("generation")?,
            loaded_at: row.try_get("loaded_at")?,
            origin,
        };
        states.insert(dataset, state);
    }
    Ok(states)
}

/// Numbers are read as text, because zero would lose its decimals as a binary numeric.
pub(crate) fn parse_stored_decimal(text: &str) -> Result<Decimal> {
    parse_exact_decimal(text).ok_or_else(|| StoreError::UnreadableData(format!("the number {text}")))
}

fn parse_company_code(code: i32) -> Result<u32> {
    u32::try_from(code).map_err(|_| StoreError::UnreadableData(format!("company code {code}")))
}
