//! Loading: the only way by which data enters the database, for real and demo data alike.
//!
//! A load is one transaction over one dataset, and a dataset has one load at a time. Rows are staged by COPY; only
//! those that differ from their current version are appended, together with their events. If anything was appended, the
//! commit raises the dataset's generation and notifies replicas. A load without changes leaves no trace.

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Transaction};
use vintem_domain::{Cnpj, Company, Currency, CvmDataset, DataOrigin, Dataset, Decimal, Filing, Series};

use crate::copy_buffer::CopyBuffer;
use crate::{Result, Store, StoreError, disable_timeouts_in_transaction};

/// The fetch that loaded values come from.
#[derive(Debug, Clone)]
pub struct NewFetch {
    pub source_url: String,
    /// Becomes `known_at` of the loaded rows.
    pub fetched_at: DateTime<Utc>,
    /// The hash of the bytes as received.
    pub sha256: [u8; 32],
    pub response: Option<ArchivedResponse>,
}

/// A response of an upstream, as archived.
#[derive(Debug, Clone)]
pub struct ArchivedResponse {
    pub status: u16,
    pub content_type: String,
    pub body: RawBody,
}

/// A body to archive, compressed with zstd.
#[derive(Debug, Clone)]
pub struct RawBody {
    pub sha256: [u8; 32],
    pub size: usize,
    pub compressed: Vec<u8>,
}

impl NewFetch {
    /// For data that no upstream sent.
    pub fn without_response(source_url: String, fetched_at: DateTime<Utc>, sha256: [u8; 32]) -> Self {
        Self { source_url, fetched_at, sha256, response: None }
    }
}

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

/// The stored rows that a full file covers. Rows in this scope that the file lacks count as missing.
#[derive(Debug, Clone, Copy)]
pub enum FullFileScope {
    Registry,
    /// CVM's file for a dataset and year: by delivery date for IPE, by reference date for the others.
    Filings(CvmDataset, i32),
}

/// Counts of rows that a full file no longer has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MissingRowCounts {
    /// Missing for the first time.
    pub newly_missing: u64,
    /// Missing from a second good file, and so marked as absent.
    pub marked_absent: u64,
    /// Missing from a second good file, but not marked, because too many were missing at once.
    pub rejected: u64,
}

/// If a larger share of a file's rows is missing at once, the file must be wrong.
const MAX_MISSING_PERCENT: u64 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    pub date: NaiveDate,
    pub value: Decimal,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBulletin {
    pub currency: Currency,
    pub date: NaiveDate,
    pub kind: BulletinKind,
    /// In Brasília time, as published.
    pub published_at: NaiveDateTime,
    pub quote_currency: String,
    pub buy: Decimal,
    pub sell: Decimal,
}

/// In the order of publication within a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BulletinKind {
    Opening,
    Intermediate,
    /// The day's rate.
    Closing,
    /// A second close, for the interbank market, published until June 2011.
    Interbank,
}

impl BulletinKind {
    pub const ALL: [Self; 4] = [Self::Opening, Self::Intermediate, Self::Closing, Self::Interbank];

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == id)
    }

    pub const fn id(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Intermediate => "intermediate",
            Self::Closing => "closing",
            Self::Interbank => "interbank",
        }
    }
}

/// COPY data is sent in chunks of about this size: large enough to be fast, small enough for memory not to matter.
const COPY_CHUNK_BYTES: usize = 1 << 20;

/// One transaction that appends to one dataset. Dropping it without [`LoadTransaction::commit`] rolls it back.
#[derive(Debug)]
pub struct LoadTransaction {
    transaction: Transaction<'static, Postgres>,
    dataset: Dataset,
    origin: DataOrigin,
    known_at: DateTime<Utc>,
    /// The dataset's generation after this load. Known in advance, because a dataset has one load at a time.
    generation: i64,
    fetch_id: i64,
    sha256: [u8; 32],
    events_since: Option<NaiveDate>,
    appended_rows: u64,
    other_changes: u64,
}

/// A row that was rejected, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantinedRow {
    /// 0 for the whole file.
    pub line: u64,
    pub reason: String,
    pub content: String,
}

impl Store {
    /// Begins a load, the only one on its dataset. Fails if the database holds data of the other origin.
    pub async fn begin_load(&self, dataset: Dataset, origin: DataOrigin, fetch: &NewFetch) -> Result<LoadTransaction> {
        let mut transaction = self.pool.begin().await?;
        disable_timeouts_in_transaction(&mut transaction).await?;
        sqlx::query("select pg_advisory_xact_lock(hashtext('vintem_load'), hashtext($1))")
            .bind(dataset.id())
            .execute(&mut *transaction)
            .await?;

        // Real loads may run concurrently, but not with a synthetic one: neither would see the other's origin yet.
        sqlx::query(match origin {
            DataOrigin::Real => "select pg_advisory_xact_lock_shared(hashtext('vintem_origin'))",
            DataOrigin::Synthetic => "select pg_advisory_xact_lock(hashtext('vintem_origin'))",
        })
        .execute(&mut *transaction)
        .await?;

        let other_origin: Option<String> = sqlx::query_scalar(
            "select origin
             from dataset
             where origin <> $1
             limit 1",
        )
        .bind(origin.id())
        .fetch_optional(&mut *transaction)
        .await?;
        if let Some(other_origin) = other_origin {
            transaction.rollback().await?;
            let stored = DataOrigin::from_id(&other_origin).map_or("foreign", DataOrigin::id);
            return Err(StoreError::WrongOrigin { stored, offered: origin.id() });
        }

        // Changed rows are materialized before they are appended, which needs more memory than the default.
        sqlx::query("set local work_mem = '64MB'").execute(&mut *transaction).await?;
        let generation: i64 =
            sqlx::query_scalar("select coalesce((select generation from dataset where id = $1), 0) + 1")
                .bind(dataset.id())
                .fetch_one(&mut *transaction)
                .await?;

        let fetch_id = insert_fetch(&mut transaction, dataset, fetch).await?;
        Ok(LoadTransaction {
            transaction,
            dataset,
            origin,
            known_at: fetch.fetched_at,
            generation,
            fetch_id,
            sha256: fetch.sha256,
            events_since: None,
            appended_rows: 0,
            other_changes: 0,
        })
    }

    /// Deletes all synthetic data, provenance included. Fails if the data is real.
    pub async fn remove_synthetic_data(&self) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        disable_timeouts_in_transaction(&mut transaction).await?;
        sqlx::query("select pg_advisory_xact_lock(hashtext('vintem_origin'))").execute(&mut *transaction).await?;
        let real_datasets: i64 = sqlx::query_scalar("select count(*) from dataset where origin = 'real'")
            .fetch_one(&mut *transaction)
            .await?;
        if real_datasets > 0 {
            return Err(StoreError::WrongOrigin { stored: DataOrigin::Real.id(), offered: DataOrigin::Synthetic.id() });
        }

        // In the order in which a reader locks them, so that the two wait for each other instead of deadlocking.
        sqlx::query("truncate observation, fx_bulletin, company_version, security_version, filing_version, raw_fetch")
            .execute(&mut *transaction)
            .await?;

        sqlx::query("select pg_notify('vintem_generation', id) from dataset").execute(&mut *transaction).await?;
        sqlx::query("delete from dataset").execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }
}

impl LoadTransaction {
    /// Makes later appends emit events: for new rows of this day or later, and for every changed value.
    pub fn emit_events_since(&mut self, day: NaiveDate) {
        self.events_since = Some(day);
    }

    pub async fn append_observations(&mut self, series: &Series, rows: &[Observation]) -> Result<()> {
        self.create_staging_table("ref_date date, value numeric").await?;
        self.copy_rows(rows, |line, row| line.date(row.date).decimal(row.value).end_row()).await?;

        // Scales are compared too, because we serve the text: 15.0 and 15.00 are different values.
        let appended = sqlx::query(
            "with changed as materialized (
                 select staged.ref_date, staged.value, current.value as old_value
                 from staged
                 left join lateral (
                     select value
                     from observation
                     where series = $1 and ref_date = staged.ref_date and known_at <= $2
                     order by known_at desc
                     limit 1
                 ) current on true
                 where current.value is null
                    or (current.value, scale(current.value)) <> (staged.value, scale(staged.value))
             ), announced as (
                 insert into event (type, occurred_at, subject)
                 select case when old_value is null then 'rate.published' else 'series.revised' end, $2,
                        case when old_value is null
                             then jsonb_build_object('series', $1, 'date', ref_date)
                             else jsonb_build_object('series', $1, 'date', ref_date, 'old', old_value::text,
                                                     'new', value::text)
                        end
                 from changed
                 where $4::date is not null and (old_value is not null or ref_date >= $4)
                 order by ref_date
             )
             insert into observation (series, ref_date, known_at, value, fetch_id)
             select $1, ref_date, $2, value, $3
             from changed",
        )
        .bind(series.id)
        .bind(self.known_at)
        .bind(self.fetch_id)
        .bind(self.events_since)
        .execute(&mut *self.transaction)
        .await?;

        self.drop_staging_table(appended.rows_affected()).await
    }

    pub async fn append_bulletins(&mut self, rows: &[NewBulletin]) -> Result<()> {
        self.create_staging_table(
            "currency text, ref_date date, bulletin text, published_at timestamp, quote_currency text, buy numeric, sell numeric",
        )
        .await?;

        self.copy_rows(rows, |line, row| {
            line.text(row.currency.code())
                .date(row.date)
                .text(row.kind.id())
                .date_time(row.published_at)
                .text(&row.quote_currency)
                .decimal(row.buy)
                .decimal(row.sell)
                .end_row();
        })
        .await?;

        let appended = sqlx::query(
            "with changed as materialized (
                 select staged.*, current.buy as old_buy, current.sell as old_sell
                 from staged
                 left join lateral (
                     select quote_currency, buy, sell
                     from fx_bulletin
                     where currency = staged.currency
                       and ref_date = staged.ref_date
                       and bulletin = staged.bulletin
                       and published_at = staged.published_at
                       and known_at <= $1
                     order by known_at desc
                     limit 1
                 ) current on true
                 where current.buy is null
                    or (current.quote_currency, current.buy, scale(current.buy), current.sell, scale(current.sell))
                       <> (staged.quote_currency, staged.buy, scale(staged.buy), staged.sell, scale(staged.sell))
             ), announced as (
                 insert into event (type, occurred_at, subject)
                 select case when old_buy is null then 'fx.published' else 'series.revised' end, $1,
                        case when old_buy is null
                             then jsonb_build_object('pair', currency || '/BRL', 'date', ref_date)
                             else jsonb_build_object('series', 'fx', 'pair', currency || '/BRL', 'date', ref_date,
                                      'old', jsonb_build_object('buy', old_buy::text, 'sell', old_sell::text),
                                      'new', jsonb_build_object('buy', buy::text, 'sell', sell::text))
                        end
                 from changed
                 where $3::date is not null and bulletin = 'closing' and quote_currency = 'BRL'
                   and (old_buy is not null or ref_date >= $3)
                 order by ref_date, currency
             )
             insert into fx_bulletin (currency, ref_date, bulletin, published_at, known_at, quote_currency, buy, sell, fetch_id)
             select currency, ref_date, bulletin, published_at, $1, quote_currency, buy, sell, $2
             from changed",
        )
        .bind(self.known_at)
        .bind(self.fetch_id)
        .bind(self.events_since)
        .execute(&mut *self.transaction)
        .await?;

        self.drop_staging_table(appended.rows_affected()).await
    }

    /// Appends companies, each code once. Former names are not stored, because earlier versions have them.
    pub async fn append_companies(&mut self, rows: &[Company]) -> Result<MissingRowCounts> {
        self.append_company_rows(rows, None).await
    }

    /// Appends the full registry. Stored companies that it lacks count as missing.
    pub async fn append_full_registry(&mut self, rows: &[Company]) -> Result<MissingRowCounts> {
        self.append_company_rows(rows, Some(FullFileScope::Registry)).await
    }

    async fn append_company_rows(
        &mut self,
        rows: &[Company],
        full_file: Option<FullFileScope>,
    ) -> Result<MissingRowCounts> {
        self.create_staging_table(
            "cvm_code integer, name text, cnpj text, status text, sector text, trade_name text, markets text[],
             registered_on date, cancelled_on date, status_since date, category text, situation text, control text,
             city text, state text, auditor text, absent boolean default false",
        )
        .await?;

        self.copy_rows_to_columns(
            "cvm_code, name, cnpj, status, sector, trade_name, markets, registered_on, cancelled_on, status_since,
             category, situation, control, city, state, auditor",
            rows,
            |line, row| {
                line.integer(row.id)
                    .text(&row.name)
                    .text(row.cnpj.as_ref().map_or("", |cnpj| cnpj.as_str()))
                    .text(&row.status)
                    .text(&row.sector)
                    .text(&row.trade_name)
                    .text_array(&row.markets)
                    .optional_date(row.registered_on)
                    .optional_date(row.cancelled_on)
                    .optional_date(row.status_since)
                    .text(&row.category)
                    .text(&row.situation)
                    .text(&row.control)
                    .text(&row.city)
                    .text(&row.state)
                    .text(&row.auditor)
                    .end_row();
            },
        )
        .await?;

        let appended = self.append_changed_versions(&COMPANY_TABLE).await?;
        let missing = match full_file {
            Some(scope) => self.mark_missing_rows(&COMPANY_TABLE, scope).await?,
            None => MissingRowCounts::default(),
        };

        self.drop_staging_table(appended + missing.marked_absent).await?;
        Ok(missing)
    }

    /// Appends filings, each id once per call.
    pub async fn append_filings(&mut self, rows: &[Filing]) -> Result<MissingRowCounts> {
        self.append_filing_rows(rows, None).await
    }

    /// Appends the full file of a dataset and year. Stored filings that it lacks count as missing.
    pub async fn append_full_filings(
        &mut self,
        rows: &[Filing],
        cvm_dataset: CvmDataset,
        year: i32,
    ) -> Result<MissingRowCounts> {
        self.append_filing_rows(rows, Some(FullFileScope::Filings(cvm_dataset, year))).await
    }

    async fn append_filing_rows(
        &mut self,
        rows: &[Filing],
        full_file: Option<FullFileScope>,
    ) -> Result<MissingRowCounts> {
        self.create_staging_table(
            "id text, filing_set text, cvm_code integer, company_name text, category text, doc_type text, kind text,
             subject text, delivered_on date, reference_date date, version smallint, protocol text, url text,
             absent boolean default false",
        )
        .await?;

        self.copy_rows_to_columns(
            "id, filing_set, cvm_code, company_name, category, doc_type, kind, subject, delivered_on, reference_date,
             version, protocol, url",
            rows,
            |line, row| {
                line.text(&row.id)
                    .text(row.cvm_dataset.id())
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
                    .end_row();
            },
        )
        .await?;

        let appended = self.append_changed_versions(&FILING_TABLE).await?;
        let missing = match full_file {
            Some(scope) => self.mark_missing_rows(&FILING_TABLE, scope).await?,
            None => MissingRowCounts::default(),
        };

        self.drop_staging_table(appended + missing.marked_absent).await?;
        Ok(missing)
    }

    /// Appends securities, each document and ticker once per call.
    pub async fn append_securities(&mut self, rows: &[ListedSecurity]) -> Result<()> {
        self.create_staging_table(
            "document_id bigint, ticker text, cnpj text, reference_date date, version smallint, market text,
             segment text, traded_from date, traded_until date",
        )
        .await?;

        self.copy_rows(rows, |line, row| {
            line.integer(i64::try_from(row.document_id).unwrap_or(i64::MAX))
                .text(&row.ticker)
                .text(row.cnpj.as_str())
                .date(row.reference_date)
                .integer(row.version)
                .text(&row.market)
                .text(&row.segment)
                .optional_date(row.traded_from)
                .optional_date(row.traded_until)
                .end_row();
        })
        .await?;

        let appended = self.append_changed_versions(&SECURITY_TABLE).await?;
        self.drop_staging_table(appended).await
    }

    /// Quarantines rejected rows of this load. The same row of the same file is kept once.
    pub async fn quarantine_rows(&mut self, source: &str, part: &str, rows: &[QuarantinedRow]) -> Result<()> {
        for row in rows {
            self.other_changes +=
                insert_quarantined_row(&mut self.transaction, source, part, &self.sha256, self.known_at, row).await?;
        }
        Ok(())
    }

    /// Commits the load. If rows were appended, raises the generation and notifies. Returns the number of appended
    /// rows.
    pub async fn commit(mut self) -> Result<u64> {
        if self.appended_rows == 0 && self.other_changes == 0 {
            self.transaction.rollback().await?;
            return Ok(0);
        }

        if self.appended_rows > 0 {
            sqlx::query(
                "insert into dataset (id, generation, loaded_at, origin)
                 values ($1, $4, $2, $3)
                 on conflict (id) do update
                 set generation = excluded.generation, loaded_at = greatest(dataset.loaded_at, excluded.loaded_at)",
            )
            .bind(self.dataset.id())
            .bind(self.known_at)
            .bind(self.origin.id())
            .bind(self.generation)
            .execute(&mut *self.transaction)
            .await?;
            sqlx::query("select pg_notify('vintem_generation', $1)")
                .bind(self.dataset.id())
                .execute(&mut *self.transaction)
                .await?;
        }

        self.transaction.commit().await?;
        Ok(self.appended_rows)
    }

    async fn create_staging_table(&mut self, columns: &'static str) -> Result<()> {
        let create = format!("create temporary table staged ({columns}) on commit drop");
        sqlx::query(AssertSqlSafe(create)).execute(&mut *self.transaction).await?;
        Ok(())
    }

    async fn copy_rows<T>(&mut self, rows: &[T], write_row: impl Fn(&mut CopyBuffer, &T)) -> Result<()> {
        self.run_copy("copy staged from stdin", rows, write_row).await
    }

    async fn copy_rows_to_columns<T>(
        &mut self,
        columns: &'static str,
        rows: &[T],
        write_row: impl Fn(&mut CopyBuffer, &T),
    ) -> Result<()> {
        self.run_copy(&format!("copy staged ({columns}) from stdin"), rows, write_row).await
    }

    async fn run_copy<T>(
        &mut self,
        statement: &str,
        rows: &[T],
        write_row: impl Fn(&mut CopyBuffer, &T),
    ) -> Result<()> {
        let mut sink = self.transaction.copy_in_raw(statement).await?;
        let mut buffer = CopyBuffer::default();
        for row in rows {
            write_row(&mut buffer, row);
            if buffer.len() >= COPY_CHUNK_BYTES {
                sink.send(buffer.take_bytes()).await?;
            }
        }

        sink.send(buffer.take_bytes()).await?;
        sink.finish().await?;
        Ok(())
    }

    /// Appends the staged rows that differ from their newest stored version, and emits their events if enabled.
    async fn append_changed_versions(&mut self, table: &VersionedTable) -> Result<u64> {
        let VersionedTable { name, key_columns: keys, value_columns: columns, .. } = *table;
        let qualify = |names: &str, table: &str| {
            let names: Vec<String> = names.split(',').map(|name| format!("{table}.{}", name.trim())).collect();
            names.join(", ")
        };

        let same_key: Vec<String> =
            keys.split(',').map(|key| format!("{name}.{} = staged.{}", key.trim(), key.trim())).collect();
        let staged = qualify(columns, "staged");
        let current = qualify(columns, "current");
        let first_key = keys.split(',').next().unwrap_or(keys);

        let changed = format!(
            "select staged.*, current.{first_key} is null as is_new
             from staged
             left join lateral (
                 select {keys}, {columns}
                 from {name}
                 where {same_key} and known_at <= $1
                 order by known_at desc
                 limit 1
             ) current on true
             where current.{first_key} is null
                or ({current}) is distinct from ({staged})",
            same_key = same_key.join(" and ")
        );

        let (generation_column, generation) = self.generation_columns(table, "not is_new");
        let insert = format!(
            "insert into {name} ({keys}, known_at, {columns}{generation_column}, fetch_id)
             select {keys}, $1, {columns}{generation}, $2"
        );

        let statement = match (self.events_since, table.event_query) {
            (Some(_), Some(event)) => format!(
                "with changed as materialized ({changed}), announced as (
                     insert into event (type, occurred_at, subject)
                     {event}
                 )
                 {insert} from changed"
            ),
            _ => format!("{insert} from ({changed}) changed"),
        };

        let mut query = sqlx::query(AssertSqlSafe(statement)).bind(self.known_at).bind(self.fetch_id);
        if table.event_query.is_some()
            && let Some(since) = self.events_since
        {
            query = query.bind(since);
        }

        let appended = query.execute(&mut *self.transaction).await?.rows_affected();
        if table.has_generation && self.is_older_than_stored_data().await? {
            let supersede = format!(
                "update {name}
                 set supersedes = true
                 where not supersedes and known_at > $1 and {keys} in (select {keys} from staged)"
            );
            sqlx::query(AssertSqlSafe(supersede)).bind(self.known_at).execute(&mut *self.transaction).await?;
        }

        Ok(appended)
    }

    /// Whether this load is more than a day older than the stored data; then rows that were the first version may not be
    /// the first any more. Concurrent loads also overtake each other, but by minutes and never with the same rows.
    async fn is_older_than_stored_data(&mut self) -> Result<bool> {
        Ok(sqlx::query_scalar(
            "select exists (select 1 from dataset where id = $1 and loaded_at > $2 + interval '1 day')",
        )
        .bind(self.dataset.id())
        .bind(self.known_at)
        .fetch_one(&mut *self.transaction)
        .await?)
    }

    /// Remembers current rows that a full file lacks. Rows missing from a second such file are marked as absent.
    async fn mark_missing_rows(
        &mut self,
        table: &VersionedTable,
        full_file: FullFileScope,
    ) -> Result<MissingRowCounts> {
        let VersionedTable { name, key_columns: key, value_columns: columns, .. } = *table;
        let scope = full_file.sql_condition();

        // The planner has no statistics for either side yet; with an index every plan is acceptable.
        sqlx::query(AssertSqlSafe(format!("create index on staged ({key})"))).execute(&mut *self.transaction).await?;

        let gone = format!(
            "create temporary table gone on commit drop as
             select current.{key}::text as key, missing_row.key is not null as again
             from (
                 select distinct on ({key}) {key}, absent
                 from {name}
                 where {scope}
                 order by {key}, known_at desc
             ) current
             left join missing_row
                 on missing_row.dataset = $1
                and missing_row.key = current.{key}::text
                and missing_row.first_missed_in <> $2
             where not current.absent
               and not exists (select 1 from staged where staged.{key} = current.{key})"
        );
        sqlx::query(AssertSqlSafe(gone))
            .bind(self.dataset.id())
            .bind(self.sha256.as_slice())
            .execute(&mut *self.transaction)
            .await?;

        // Rows that came back are no longer missing.
        let back = format!(
            "delete from missing_row
             where dataset = $1 and key in (select {key}::text from staged)"
        );
        sqlx::query(AssertSqlSafe(back)).bind(self.dataset.id()).execute(&mut *self.transaction).await?;

        let (missing_again, newly_missing, staged): (i64, i64, i64) = sqlx::query_as(
            "select count(*) filter (where again), count(*) filter (where not again), (select count(*) from staged)
             from gone",
        )
        .fetch_one(&mut *self.transaction)
        .await?;

        sqlx::query(
            "insert into missing_row (dataset, key, first_missed_in)
             select $1, key, $2
             from gone
             on conflict do nothing",
        )
        .bind(self.dataset.id())
        .bind(self.sha256.as_slice())
        .execute(&mut *self.transaction)
        .await?;

        let missing_again = u64::try_from(missing_again).unwrap_or(0);
        let newly_missing = u64::try_from(newly_missing).unwrap_or(0);
        let staged = u64::try_from(staged).unwrap_or(0);

        let mut missing = MissingRowCounts { newly_missing, marked_absent: 0, rejected: 0 };
        if missing_again * 100 > (staged + missing_again) * MAX_MISSING_PERCENT {
            missing.rejected = missing_again;
        } else if missing_again > 0 {
            let others: Vec<&str> = columns.split(',').map(str::trim).filter(|column| *column != "absent").collect();
            let others = others.join(", ");
            let (generation_column, generation) = self.generation_columns(table, "true");
            let insert = format!(
                "insert into {name} ({key}, known_at, {others}{generation_column}, absent, fetch_id)
                 select distinct on ({key}) {key}, $1, {others}{generation}, true, $2
                 from {name}
                 where {key}::text in (select key from gone where again)
                 order by {key}, known_at desc"
            );
            let marked = sqlx::query(AssertSqlSafe(insert))
                .bind(self.known_at)
                .bind(self.fetch_id)
                .execute(&mut *self.transaction)
                .await?;

            missing.marked_absent = marked.rows_affected();
            sqlx::query("delete from missing_row where dataset = $1 and key in (select key from gone where again)")
                .bind(self.dataset.id())
                .execute(&mut *self.transaction)
                .await?;
        }

        // Newly missing rows must be committed, although nothing is appended.
        self.other_changes += newly_missing;
        sqlx::query("drop table gone").execute(&mut *self.transaction).await?;
        Ok(missing)
    }

    /// The generation columns of a table that has them, and their values, each with a leading comma. `supersedes` is an
    /// SQL expression.
    fn generation_columns(&self, table: &VersionedTable, supersedes: &str) -> (&'static str, String) {
        if table.has_generation {
            (", generation, supersedes", format!(", {}, {supersedes}", self.generation))
        } else {
            ("", String::new())
        }
    }

    async fn drop_staging_table(&mut self, appended: u64) -> Result<()> {
        self.appended_rows += appended;
        sqlx::query("drop table staged").execute(&mut *self.transaction).await?;
        Ok(())
    }
}

/// A table of versions. The newest row of a key is its current version.
struct VersionedTable {
    name: &'static str,
    key_columns: &'static str,
    value_columns: &'static str,
    /// Whether rows store the generation that appended them.
    has_generation: bool,
    /// Selects the events of changed rows: reads from `changed`, returns the columns of `event`.
    event_query: Option<&'static str>,
}

const COMPANY_TABLE: VersionedTable = VersionedTable {
    name: "company_version",
    key_columns: "cvm_code",
    value_columns:
        "name, cnpj, status, sector, trade_name, markets, registered_on, cancelled_on, status_since, category,
              situation, control, city, state, auditor, absent",
    has_generation: false,
    event_query: Some(
        "select 'company.updated', $1, jsonb_build_object('company', cvm_code)
         from changed
         where $3::date is not null
         order by cvm_code",
    ),
};

const FILING_TABLE: VersionedTable = VersionedTable {
    name: "filing_version",
    key_columns: "id",
    value_columns:
        "filing_set, cvm_code, company_name, category, doc_type, kind, subject, delivered_on, reference_date,
              version, protocol, url, absent",
    has_generation: true,
    event_query: Some(
        "select 'filing.published', $1, jsonb_build_object('filing', id)
         from changed
         where is_new and delivered_on >= $3
         order by delivered_on, id",
    ),
};

const SECURITY_TABLE: VersionedTable = VersionedTable {
    name: "security_version",
    key_columns: "document_id, ticker",
    value_columns: "cnpj, reference_date, version, market, segment, traded_from, traded_until",
    has_generation: false,
    event_query: None,
};

impl FullFileScope {
    /// Selects the stored rows that the file covers.
    fn sql_condition(self) -> String {
        match self {
            Self::Registry => "true".to_owned(),
            Self::Filings(set, year) => {
                let day = if set == CvmDataset::Ipe { "delivered_on" } else { "reference_date" };
                let set = set.id();
                format!("filing_set = '{set}' and {day} between make_date({year}, 1, 1) and make_date({year}, 12, 31)")
            }
        }
    }
}

/// Returns the id of the fetch with these bytes from this URL, inserting it if necessary.
async fn insert_fetch(
    transaction: &mut Transaction<'static, Postgres>,
    dataset: Dataset,
    fetch: &NewFetch,
) -> Result<i64> {
    let response = fetch.response.as_ref();
    if let Some(response) = response {
        insert_raw_body(transaction, &response.body).await?;
    }

    let id = sqlx::query_scalar(
        "insert into raw_fetch (dataset, address, fetched_at, sha256, status, content_type, body)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (dataset, address, sha256) do update
         set dataset = excluded.dataset
         returning id",
    )
    .bind(dataset.id())
    .bind(&fetch.source_url)
    .bind(fetch.fetched_at)
    .bind(fetch.sha256.as_slice())
    .bind(response.map(|response| i16::try_from(response.status).unwrap_or(0)))
    .bind(response.map(|response| response.content_type.as_str()))
    .bind(response.map(|response| response.body.sha256.as_slice()))
    .fetch_one(&mut **transaction)
    .await?;

    Ok(id)
}

pub(crate) async fn insert_raw_body(connection: &mut PgConnection, body: &RawBody) -> Result<()> {
    sqlx::query(
        "insert into raw_body (sha256, size, compressed)
         values ($1, $2, $3)
         on conflict do nothing",
    )
    .bind(body.sha256.as_slice())
    .bind(i64::try_from(body.size).unwrap_or(i64::MAX))
    .bind(&body.compressed)
    .execute(connection)
    .await?;
    Ok(())
}

/// Returns the number of inserted rows: 0 if the row was there already.
pub(crate) async fn insert_quarantined_row(
    connection: &mut PgConnection,
    source: &str,
    part: &str,
    sha256: &[u8; 32],
    quarantined_at: DateTime<Utc>,
    row: &QuarantinedRow,
) -> Result<u64> {
    // Postgres' text type cannot hold NUL.
    let content = row.content.replace('\0', "");
    let inserted = sqlx::query(
        "insert into quarantine (source, part, sha256, line, reason, content, quarantined_at)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict do nothing",
    )
    .bind(source)
    .bind(part)
    .bind(sha256.as_slice())
    .bind(i64::try_from(row.line).unwrap_or(i64::MAX))
    .bind(&row.reason)
    .bind(content)
    .bind(quarantined_at)
    .execute(connection)
    .await?;

    Ok(inserted.rows_affected())
}
