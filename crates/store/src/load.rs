//! The append path: the only way by which data enters, for real and for demo data alike.
//!
//! A load is one transaction over one dataset, one at a time. Rows are staged by COPY; of them only what differs
//! from the current version is appended. The commit raises the dataset's generation and notifies, if and only if
//! something was appended.

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use sqlx::{AssertSqlSafe, Postgres, Transaction};
use vintem_domain::{Company, Currency, Dataset, Decimal, Filing, Origin, Series};

use crate::copy::CopyBuffer;
use crate::{Result, Store, StoreError};

/// Where loaded values come from.
#[derive(Debug, Clone)]
pub struct Fetch {
    pub address: String,
    pub fetched_at: DateTime<Utc>,
    pub sha256: [u8; 32],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    pub date: NaiveDate,
    pub value: Decimal,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bulletin {
    pub currency: Currency,
    pub date: NaiveDate,
    pub kind: BulletinKind,
    /// Brasília's time, as published.
    pub published_at: NaiveDateTime,
    pub quote_currency: String,
    pub buy: Decimal,
    pub sell: Decimal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulletinKind {
    Closing,
}

impl BulletinKind {
    const fn id(self) -> &'static str {
        match self {
            Self::Closing => "closing",
        }
    }
}

/// COPY is fed in pieces of about this size: large enough to be fast, small enough to be nothing.
const PIECE_BYTES: usize = 1 << 20;

/// One transaction that appends to one dataset. Dropped without [`Load::commit`], nothing has happened.
#[derive(Debug)]
pub struct Load {
    transaction: Transaction<'static, Postgres>,
    dataset: Dataset,
    origin: Origin,
    known_at: DateTime<Utc>,
    fetch_id: i64,
    appended: u64,
}

impl Store {
    /// Opens a load, alone on its dataset. Refused where the database holds data of the other origin.
    pub async fn begin_load(&self, dataset: Dataset, origin: Origin, fetch: &Fetch) -> Result<Load> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query("set local statement_timeout = 0").execute(&mut *transaction).await?;
        sqlx::query("select pg_advisory_xact_lock(hashtext('vintem_load'), hashtext($1))")
            .bind(dataset.id())
            .execute(&mut *transaction)
            .await?;
        // Real loads run side by side, but never beside a synthetic one: neither would see the other's origin yet.
        sqlx::query(match origin {
            Origin::Real => "select pg_advisory_xact_lock_shared(hashtext('vintem_origin'))",
            Origin::Synthetic => "select pg_advisory_xact_lock(hashtext('vintem_origin'))",
        })
        .execute(&mut *transaction)
        .await?;
        let held: Option<String> = sqlx::query_scalar(
            "select origin
             from dataset
             where origin <> $1
             limit 1",
        )
        .bind(origin.id())
        .fetch_optional(&mut *transaction)
        .await?;
        if let Some(held) = held {
            transaction.rollback().await?;
            let held = Origin::from_id(&held).map_or("foreign", Origin::id);
            return Err(StoreError::WrongOrigin { held, offered: origin.id() });
        }
        let fetch_id = sqlx::query_scalar(
            "insert into raw_fetch (dataset, address, fetched_at, sha256)
             values ($1, $2, $3, $4)
             returning id",
        )
        .bind(dataset.id())
        .bind(&fetch.address)
        .bind(fetch.fetched_at)
        .bind(fetch.sha256.as_slice())
        .fetch_one(&mut *transaction)
        .await?;
        Ok(Load { transaction, dataset, origin, known_at: fetch.fetched_at, fetch_id, appended: 0 })
    }

    /// Takes all synthetic data away, provenance included. Refused where the data is real.
    pub async fn remove_synthetic_data(&self) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query("set local statement_timeout = 0").execute(&mut *transaction).await?;
        sqlx::query("select pg_advisory_xact_lock(hashtext('vintem_origin'))").execute(&mut *transaction).await?;
        let real: i64 = sqlx::query_scalar("select count(*) from dataset where origin = 'real'")
            .fetch_one(&mut *transaction)
            .await?;
        if real > 0 {
            return Err(StoreError::WrongOrigin { held: Origin::Real.id(), offered: Origin::Synthetic.id() });
        }
        // In the order in which a reader locks them, so that the two wait for each other and do not deadlock.
        sqlx::query("truncate observation, fx_bulletin, company_version, filing_version, raw_fetch")
            .execute(&mut *transaction)
            .await?;
        sqlx::query("select pg_notify('vintem_generation', id) from dataset").execute(&mut *transaction).await?;
        sqlx::query("delete from dataset").execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }
}

impl Load {
    pub async fn append_observations(&mut self, series: &Series, rows: &[Observation]) -> Result<()> {
        self.stage("ref_date date, value numeric").await?;
        self.copy(rows, |line, row| line.date(row.date).decimal(row.value).end()).await?;
        // Scales are compared too: 15.0 that becomes 15.00 is another text, and the text is what we serve.
        let appended = sqlx::query(
            "insert into observation (series, ref_date, known_at, value, fetch_id)
             select $1, staged.ref_date, $2, staged.value, $3
             from staged
             left join lateral (
                 select value
                 from observation
                 where series = $1 and ref_date = staged.ref_date
                 order by known_at desc
                 limit 1
             ) current on true
             where current.value is null
                or (current.value, scale(current.value)) <> (staged.value, scale(staged.value))",
        )
        .bind(series.id)
        .bind(self.known_at)
        .bind(self.fetch_id)
        .execute(&mut *self.transaction)
        .await?;
        self.finish_stage(appended.rows_affected()).await
    }

    pub async fn append_bulletins(&mut self, rows: &[Bulletin]) -> Result<()> {
        self.stage(
            "currency text, ref_date date, bulletin text, published_at timestamp, quote_currency text, buy numeric, sell numeric",
        )
        .await?;
        self.copy(rows, |line, row| {
            line.text(row.currency.code())
                .date(row.date)
                .text(row.kind.id())
                .date_time(row.published_at)
                .text(&row.quote_currency)
                .decimal(row.buy)
                .decimal(row.sell)
                .end();
        })
        .await?;
        let appended = sqlx::query(
            "insert into fx_bulletin (currency, ref_date, bulletin, published_at, known_at, quote_currency, buy, sell, fetch_id)
             select staged.currency, staged.ref_date, staged.bulletin, staged.published_at, $1,
                    staged.quote_currency, staged.buy, staged.sell, $2
             from staged
             left join lateral (
                 select quote_currency, buy, sell
                 from fx_bulletin
                 where currency = staged.currency
                   and ref_date = staged.ref_date
                   and bulletin = staged.bulletin
                   and published_at = staged.published_at
                 order by known_at desc
                 limit 1
             ) current on true
             where current.buy is null
                or (current.quote_currency, current.buy, scale(current.buy), current.sell, scale(current.sell))
                   <> (staged.quote_currency, staged.buy, scale(staged.buy), staged.sell, scale(staged.sell))",
        )
        .bind(self.known_at)
        .bind(self.fetch_id)
        .execute(&mut *self.transaction)
        .await?;
        self.finish_stage(appended.rows_affected()).await
    }

    /// Companies by their code, each once. Former names are not stored: they are the names of earlier versions.
    pub async fn append_companies(&mut self, rows: &[Company]) -> Result<()> {
        self.stage(
            "cvm_code integer, name text, cnpj text, status text, sector text, trade_name text, tickers text[],
             markets text[], registered_on date, cancelled_on date, status_since date, category text, situation text,
             control text, city text, state text, auditor text",
        )
        .await?;
        self.copy(rows, |line, row| {
            line.integer(row.id)
                .text(&row.name)
                .text(row.cnpj.as_ref().map_or("", |cnpj| cnpj.as_str()))
                .text(&row.status)
                .text(&row.sector)
                .text(&row.trade_name)
                .texts(&row.tickers)
                .texts(&row.markets)
                .optional_date(row.registered_on)
                .optional_date(row.cancelled_on)
                .optional_date(row.status_since)
                .text(&row.category)
                .text(&row.situation)
                .text(&row.control)
                .text(&row.city)
                .text(&row.state)
                .text(&row.auditor)
                .end();
        })
        .await?;
        let appended = self
            .append_versions(
                "company_version",
                "cvm_code",
                "name, cnpj, status, sector, trade_name, tickers, markets, registered_on, cancelled_on, status_since,
                 category, situation, control, city, state, auditor",
            )
            .await?;
        self.finish_stage(appended).await
    }

    /// Filings by their id, each once in a call.
    pub async fn append_filings(&mut self, rows: &[Filing]) -> Result<()> {
        self.stage(
            "id text, filing_set text, cvm_code integer, company_name text, category text, doc_type text, kind text,
             subject text, delivered_on date, reference_date date, version smallint, protocol text, url text",
        )
        .await?;
        self.copy(rows, |line, row| {
            line.text(&row.id)
                .text(row.set.id())
                .integer(row.company_id)
                .text(&row.company_name)
                .text(&row.category)
                .text(&row.doc_type)
                .text(&row.kind)
                .text(&row.subject)
                .date(row.delivered_on)
                .optional_date(row.reference_date)
                .integer(row.version)
                .text(&row.protocol)
                .text(&row.url)
                .end();
        })
        .await?;
        let appended = self
            .append_versions(
                "filing_version",
                "id",
                "filing_set, cvm_code, company_name, category, doc_type, kind, subject, delivered_on, reference_date,
                 version, protocol, url",
            )
            .await?;
        self.finish_stage(appended).await
    }

    /// Commits, and where something was appended raises the generation and notifies. Returns the rows appended.
    pub async fn commit(mut self) -> Result<u64> {
        if self.appended > 0 {
            sqlx::query(
                "insert into dataset (id, generation, loaded_at, origin)
                 values ($1, 1, $2, $3)
                 on conflict (id) do update
                 set generation = dataset.generation + 1, loaded_at = excluded.loaded_at",
            )
            .bind(self.dataset.id())
            .bind(self.known_at)
            .bind(self.origin.id())
            .execute(&mut *self.transaction)
            .await?;
            sqlx::query("select pg_notify('vintem_generation', $1)")
                .bind(self.dataset.id())
                .execute(&mut *self.transaction)
                .await?;
        }
        self.transaction.commit().await?;
        Ok(self.appended)
    }

    async fn stage(&mut self, columns: &'static str) -> Result<()> {
        let create = format!("create temporary table staged ({columns}) on commit drop");
        sqlx::query(AssertSqlSafe(create)).execute(&mut *self.transaction).await?;
        Ok(())
    }

    async fn copy<T>(&mut self, rows: &[T], write: impl Fn(&mut CopyBuffer, &T)) -> Result<()> {
        let mut sink = self.transaction.copy_in_raw("copy staged from stdin").await?;
        let mut buffer = CopyBuffer::default();
        for row in rows {
            write(&mut buffer, row);
            if buffer.len() >= PIECE_BYTES {
                sink.send(buffer.take()).await?;
            }
        }
        sink.send(buffer.take()).await?;
        sink.finish().await?;
        Ok(())
    }

    /// Appends the staged rows whose newest stored version differs in one of `columns`.
    async fn append_versions(&mut self, table: &'static str, key: &'static str, columns: &'static str) -> Result<u64> {
        let prefixed = |prefix: &str| {
            let names: Vec<String> = columns.split(',').map(|name| format!("{prefix}.{}", name.trim())).collect();
            names.join(", ")
        };
        let (staged, current) = (prefixed("staged"), prefixed("current"));
        let insert = format!(
            "insert into {table} ({key}, known_at, {columns}, fetch_id)
             select staged.{key}, $1, {staged}, $2
             from staged
             left join lateral (
                 select {key}, {columns}
                 from {table}
                 where {table}.{key} = staged.{key}
                 order by known_at desc
                 limit 1
             ) current on true
             where current.{key} is null
                or ({current}) is distinct from ({staged})"
        );
        let appended = sqlx::query(AssertSqlSafe(insert))
            .bind(self.known_at)
            .bind(self.fetch_id)
            .execute(&mut *self.transaction)
            .await?;
        Ok(appended.rows_affected())
    }

    async fn finish_stage(&mut self, appended: u64) -> Result<()> {
        self.appended += appended;
        sqlx::query("drop table staged").execute(&mut *self.transaction).await?;
        Ok(())
    }
}
