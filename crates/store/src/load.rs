//! The append path: the only way by which data enters, for real and for demo data alike.
//!
//! A load is one transaction over one dataset, one at a time. Rows are staged by COPY; of them only what differs
//! from the current version is appended, with the events that tell of it. The commit raises the dataset's generation
//! and notifies, if and only if something was appended; a load that brings nothing leaves no trace.

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Transaction};
use vintem_domain::{Cnpj, Company, Currency, Dataset, Decimal, Filing, FilingSet, Origin, Series};

use crate::copy::CopyBuffer;
use crate::{Result, Store, StoreError, take_all_time_here};

/// Where loaded values come from.
#[derive(Debug, Clone)]
pub struct Fetch {
    pub address: String,
    /// Also when we knew what it brings.
    pub fetched_at: DateTime<Utc>,
    /// Of the bytes as they came.
    pub sha256: [u8; 32],
    pub received: Option<Received>,
}

/// An answer of an upstream, and what is kept of it.
#[derive(Debug, Clone)]
pub struct Received {
    pub status: u16,
    pub content_type: String,
    pub body: RawBody,
}

/// Bytes to be kept, compressed by zstd.
#[derive(Debug, Clone)]
pub struct RawBody {
    pub sha256: [u8; 32],
    pub size: usize,
    pub compressed: Vec<u8>,
}

impl Fetch {
    /// Of something that no upstream sent.
    pub fn made_here(address: String, fetched_at: DateTime<Utc>, sha256: [u8; 32]) -> Self {
        Self { address, fetched_at, sha256, received: None }
    }
}

/// A security by which a company is traded, as its registration form states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    pub document_id: u64,
    pub cnpj: Cnpj,
    pub ticker: String,
    pub reference_date: NaiveDate,
    pub version: u16,
    pub market: String,
    pub segment: String,
    /// The days on which it was first and last traded under this ticker.
    pub traded_from: Option<NaiveDate>,
    pub traded_until: Option<NaiveDate>,
}

/// The rows of which a whole file tells: what it no longer has is missing.
#[derive(Debug, Clone, Copy)]
pub enum Whole {
    Registry,
    /// The regulator's file of a set and year: by day of delivery for IPE, by reference date for the others.
    Filings(FilingSet, i32),
}

/// What became of rows that a whole file no longer had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Vanished {
    /// Missing for the first time.
    pub missing: u64,
    /// Missing from a second good file: marked as absent.
    pub absent: u64,
    /// Missing from a second good file, but too many at once to be believed.
    pub disbelieved: u64,
}

/// More than this share of a file's rows never vanishes at once: then it is the file that is wrong.
const MOST_VANISHING_PERCENT: u64 = 5;

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

/// In the order in which a day has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BulletinKind {
    Opening,
    Intermediate,
    /// The day's rate.
    Closing,
    /// A further close, of the market among banks, published until June 2011.
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

/// COPY is fed in pieces of about this size: large enough to be fast, small enough to be nothing.
const PIECE_BYTES: usize = 1 << 20;

/// One transaction that appends to one dataset. Dropped without [`Load::commit`], nothing has happened.
#[derive(Debug)]
pub struct Load {
    transaction: Transaction<'static, Postgres>,
    dataset: Dataset,
    origin: Origin,
    known_at: DateTime<Utc>,
    /// Which the dataset will have with this load: no other is under way.
    generation: i64,
    fetch_id: i64,
    sha256: [u8; 32],
    announce_since: Option<NaiveDate>,
    appended: u64,
    set_aside: u64,
}

/// A row that did not fit, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// 0 for the whole file.
    pub line: u64,
    pub reason: String,
    pub content: String,
}

impl Store {
    /// Opens a load, alone on its dataset. Refused where the database holds data of the other origin.
    pub async fn begin_load(&self, dataset: Dataset, origin: Origin, fetch: &Fetch) -> Result<Load> {
        let mut transaction = self.pool.begin().await?;
        take_all_time_here(&mut transaction).await?;
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
        // Versions are compared row by row; what differs is held in memory before it is appended.
        sqlx::query("set local work_mem = '64MB'").execute(&mut *transaction).await?;
        let generation: i64 =
            sqlx::query_scalar("select coalesce((select generation from dataset where id = $1), 0) + 1")
                .bind(dataset.id())
                .fetch_one(&mut *transaction)
                .await?;
        let fetch_id = insert_fetch(&mut transaction, dataset, fetch).await?;
        Ok(Load {
            transaction,
            dataset,
            origin,
            known_at: fetch.fetched_at,
            generation,
            fetch_id,
            sha256: fetch.sha256,
            announce_since: None,
            appended: 0,
            set_aside: 0,
        })
    }

    /// Takes all synthetic data away, provenance included. Refused where the data is real.
    pub async fn remove_synthetic_data(&self) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        take_all_time_here(&mut transaction).await?;
        sqlx::query("select pg_advisory_xact_lock(hashtext('vintem_origin'))").execute(&mut *transaction).await?;
        let real: i64 = sqlx::query_scalar("select count(*) from dataset where origin = 'real'")
            .fetch_one(&mut *transaction)
            .await?;
        if real > 0 {
            return Err(StoreError::WrongOrigin { held: Origin::Real.id(), offered: Origin::Synthetic.id() });
        }
        // In the order in which a reader locks them, so that the two wait for each other and do not deadlock.
        sqlx::query("truncate observation, fx_bulletin, company_version, security_version, filing_version, raw_fetch")
            .execute(&mut *transaction)
            .await?;
        sqlx::query("select pg_notify('vintem_generation', id) from dataset").execute(&mut *transaction).await?;
        sqlx::query("delete from dataset").execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }
}

impl Load {
    /// From now on what is appended is news: new rows of this day or later, and every changed value, become events.
    pub fn announce_since(&mut self, day: NaiveDate) {
        self.announce_since = Some(day);
    }

    pub async fn append_observations(&mut self, series: &Series, rows: &[Observation]) -> Result<()> {
        self.stage("ref_date date, value numeric").await?;
        self.copy(rows, |line, row| line.date(row.date).decimal(row.value).end()).await?;
        // Scales are compared too: 15.0 that becomes 15.00 is another text, and the text is what we serve.
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
        .bind(self.announce_since)
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
        .bind(self.announce_since)
        .execute(&mut *self.transaction)
        .await?;
        self.finish_stage(appended.rows_affected()).await
    }

    /// Companies by their code, each once. Former names are not stored: they are the names of earlier versions.
    pub async fn append_companies(&mut self, rows: &[Company]) -> Result<Vanished> {
        self.append_registry(rows, None).await
    }

    /// The same of a whole registry: what it no longer has is missing.
    pub async fn append_whole_registry(&mut self, rows: &[Company]) -> Result<Vanished> {
        self.append_registry(rows, Some(Whole::Registry)).await
    }

    async fn append_registry(&mut self, rows: &[Company], whole: Option<Whole>) -> Result<Vanished> {
        self.stage(
            "cvm_code integer, name text, cnpj text, status text, sector text, trade_name text, markets text[],
             registered_on date, cancelled_on date, status_since date, category text, situation text, control text,
             city text, state text, auditor text, absent boolean default false",
        )
        .await?;
        self.copy_columns(
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
            },
        )
        .await?;
        let appended = self.append_versions(&COMPANIES).await?;
        let vanished = match whole {
            Some(whole) => self.mark_vanished(&COMPANIES, whole).await?,
            None => Vanished::default(),
        };
        self.finish_stage(appended + vanished.absent).await?;
        Ok(vanished)
    }

    /// Filings by their id, each once in a call.
    pub async fn append_filings(&mut self, rows: &[Filing]) -> Result<Vanished> {
        self.append_filings_of(rows, None).await
    }

    /// The same of the whole file of a set and year: what it no longer has is missing.
    pub async fn append_whole_filings(&mut self, rows: &[Filing], set: FilingSet, year: i32) -> Result<Vanished> {
        self.append_filings_of(rows, Some(Whole::Filings(set, year))).await
    }

    async fn append_filings_of(&mut self, rows: &[Filing], whole: Option<Whole>) -> Result<Vanished> {
        self.stage(
            "id text, filing_set text, cvm_code integer, company_name text, category text, doc_type text, kind text,
             subject text, delivered_on date, reference_date date, version smallint, protocol text, url text,
             absent boolean default false",
        )
        .await?;
        self.copy_columns(
            "id, filing_set, cvm_code, company_name, category, doc_type, kind, subject, delivered_on, reference_date,
             version, protocol, url",
            rows,
            |line, row| {
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
            },
        )
        .await?;
        let appended = self.append_versions(&FILINGS).await?;
        let vanished = match whole {
            Some(whole) => self.mark_vanished(&FILINGS, whole).await?,
            None => Vanished::default(),
        };
        self.finish_stage(appended + vanished.absent).await?;
        Ok(vanished)
    }

    /// Securities by document and ticker, each once in a call.
    pub async fn append_securities(&mut self, rows: &[Security]) -> Result<()> {
        self.stage(
            "document_id bigint, ticker text, cnpj text, reference_date date, version smallint, market text,
             segment text, traded_from date, traded_until date",
        )
        .await?;
        self.copy(rows, |line, row| {
            line.integer(i64::try_from(row.document_id).unwrap_or(i64::MAX))
                .text(&row.ticker)
                .text(row.cnpj.as_str())
                .date(row.reference_date)
                .integer(row.version)
                .text(&row.market)
                .text(&row.segment)
                .optional_date(row.traded_from)
                .optional_date(row.traded_until)
                .end();
        })
        .await?;
        let appended = self.append_versions(&SECURITIES).await?;
        self.finish_stage(appended).await
    }

    /// Rows of this load that did not fit. The same row of the same bytes is kept once.
    pub async fn set_aside(&mut self, source: &str, part: &str, misfits: &[Misfit]) -> Result<()> {
        for misfit in misfits {
            self.set_aside +=
                insert_misfit(&mut self.transaction, source, part, &self.sha256, self.known_at, misfit).await?;
        }
        Ok(())
    }

    /// Commits, and where something was appended raises the generation and notifies. Returns the rows appended.
    pub async fn commit(mut self) -> Result<u64> {
        if self.appended == 0 && self.set_aside == 0 {
            self.transaction.rollback().await?;
            return Ok(0);
        }
        if self.appended > 0 {
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
        Ok(self.appended)
    }

    async fn stage(&mut self, columns: &'static str) -> Result<()> {
        let create = format!("create temporary table staged ({columns}) on commit drop");
        sqlx::query(AssertSqlSafe(create)).execute(&mut *self.transaction).await?;
        Ok(())
    }

    async fn copy<T>(&mut self, rows: &[T], write: impl Fn(&mut CopyBuffer, &T)) -> Result<()> {
        self.copy_by("copy staged from stdin", rows, write).await
    }

    async fn copy_columns<T>(
        &mut self,
        columns: &'static str,
        rows: &[T],
        write: impl Fn(&mut CopyBuffer, &T),
    ) -> Result<()> {
        self.copy_by(&format!("copy staged ({columns}) from stdin"), rows, write).await
    }

    async fn copy_by<T>(&mut self, statement: &str, rows: &[T], write: impl Fn(&mut CopyBuffer, &T)) -> Result<()> {
        let mut sink = self.transaction.copy_in_raw(statement).await?;
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

    /// Appends the staged rows whose newest stored version differs, and where they are news the events of them.
    async fn append_versions(&mut self, table: &Versions) -> Result<u64> {
        let Versions { name, keys, columns, .. } = *table;
        let each = |names: &str, of: &str| {
            let names: Vec<String> = names.split(',').map(|name| format!("{of}.{}", name.trim())).collect();
            names.join(", ")
        };
        let same_key: Vec<String> =
            keys.split(',').map(|key| format!("{name}.{} = staged.{}", key.trim(), key.trim())).collect();
        let (staged, current, first_key) =
            (each(columns, "staged"), each(columns, "current"), keys.split(',').next().unwrap_or(keys));
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
        let (generation_column, generation) = self.generation_of(table, "not is_new");
        let insert = format!(
            "insert into {name} ({keys}, known_at, {columns}{generation_column}, fetch_id)
             select {keys}, $1, {columns}{generation}, $2"
        );
        let statement = match (self.announce_since, table.event) {
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
        if table.event.is_some()
            && let Some(since) = self.announce_since
        {
            query = query.bind(since);
        }
        let appended = query.execute(&mut *self.transaction).await?.rows_affected();
        if table.has_generation && self.is_older_than_what_is_held().await? {
            let supersede = format!(
                "update {name}
                 set supersedes = true
                 where not supersedes and known_at > $1 and {keys} in (select {keys} from staged)"
            );
            sqlx::query(AssertSqlSafe(supersede)).bind(self.known_at).execute(&mut *self.transaction).await?;
        }
        Ok(appended)
    }

    /// Whether this is a copy from an earlier day than what is held: then what was first may be first no more. Loads side
    /// by side overtake each other too, but by minutes, and never with the same rows.
    async fn is_older_than_what_is_held(&mut self) -> Result<bool> {
        Ok(sqlx::query_scalar(
            "select exists (select 1 from dataset where id = $1 and loaded_at > $2 + interval '1 day')",
        )
        .bind(self.dataset.id())
        .bind(self.known_at)
        .fetch_one(&mut *self.transaction)
        .await?)
    }

    /// Of a whole file: what is current and not in it is remembered, and from the second such file on absent.
    async fn mark_vanished(&mut self, table: &Versions, whole: Whole) -> Result<Vanished> {
        let Versions { name, keys: key, columns, .. } = *table;
        let scope = whole.scope();
        // Nothing is known yet of how large either side is: with an index no plan is a bad one.
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
        // What came back is missing no more.
        let back = format!(
            "delete from missing_row
             where dataset = $1 and key in (select {key}::text from staged)"
        );
        sqlx::query(AssertSqlSafe(back)).bind(self.dataset.id()).execute(&mut *self.transaction).await?;
        let (again, first, staged): (i64, i64, i64) = sqlx::query_as(
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
        let [again, first, staged] = [again, first, staged].map(|count| u64::try_from(count).unwrap_or(0));
        let mut vanished = Vanished { missing: first, absent: 0, disbelieved: 0 };
        if again * 100 > (staged + again) * MOST_VANISHING_PERCENT {
            vanished.disbelieved = again;
        } else if again > 0 {
            let others: Vec<&str> = columns.split(',').map(str::trim).filter(|column| *column != "absent").collect();
            let others = others.join(", ");
            let (generation_column, generation) = self.generation_of(table, "true");
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
            vanished.absent = marked.rows_affected();
            sqlx::query("delete from missing_row where dataset = $1 and key in (select key from gone where again)")
                .bind(self.dataset.id())
                .execute(&mut *self.transaction)
                .await?;
        }
        // That a row is missing for the first time is something to keep, although nothing is appended.
        self.set_aside += first;
        sqlx::query("drop table gone").execute(&mut *self.transaction).await?;
        Ok(vanished)
    }

    /// The column of the generation and what stands in it, each behind a comma.
    /// Columns of a table that is followed by what changes, and what they are; `supersedes` is an expression.
    fn generation_of(&self, table: &Versions, supersedes: &str) -> (&'static str, String) {
        if table.has_generation {
            (", generation, supersedes", format!(", {}, {supersedes}", self.generation))
        } else {
            ("", String::new())
        }
    }

    async fn finish_stage(&mut self, appended: u64) -> Result<()> {
        self.appended += appended;
        sqlx::query("drop table staged").execute(&mut *self.transaction).await?;
        Ok(())
    }
}

/// A table of versions: a row counts until a newer one of the same keys does.
struct Versions {
    name: &'static str,
    keys: &'static str,
    columns: &'static str,
    /// Whether rows say which generation brought them.
    has_generation: bool,
    /// What is told of changed rows that are news, from `changed` to the columns of `event`.
    event: Option<&'static str>,
}

const COMPANIES: Versions = Versions {
    name: "company_version",
    keys: "cvm_code",
    columns: "name, cnpj, status, sector, trade_name, markets, registered_on, cancelled_on, status_since, category,
              situation, control, city, state, auditor, absent",
    has_generation: false,
    event: Some(
        "select 'company.updated', $1, jsonb_build_object('company', cvm_code)
         from changed
         where $3::date is not null
         order by cvm_code",
    ),
};

const FILINGS: Versions = Versions {
    name: "filing_version",
    keys: "id",
    columns: "filing_set, cvm_code, company_name, category, doc_type, kind, subject, delivered_on, reference_date,
              version, protocol, url, absent",
    has_generation: true,
    event: Some(
        "select 'filing.published', $1, jsonb_build_object('filing', id)
         from changed
         where is_new and delivered_on >= $3
         order by delivered_on, id",
    ),
};

const SECURITIES: Versions = Versions {
    name: "security_version",
    keys: "document_id, ticker",
    columns: "cnpj, reference_date, version, market, segment, traded_from, traded_until",
    has_generation: false,
    event: None,
};

impl Whole {
    /// Which stored rows the file tells of.
    fn scope(self) -> String {
        match self {
            Self::Registry => "true".to_owned(),
            Self::Filings(set, year) => {
                let day = if set == FilingSet::Ipe { "delivered_on" } else { "reference_date" };
                let set = set.id();
                format!("filing_set = '{set}' and {day} between make_date({year}, 1, 1) and make_date({year}, 12, 31)")
            }
        }
    }
}

/// The row of these bytes from this address, made if it is not there yet.
async fn insert_fetch(
    transaction: &mut Transaction<'static, Postgres>,
    dataset: Dataset,
    fetch: &Fetch,
) -> Result<i64> {
    if let Some(received) = &fetch.received {
        insert_body(transaction, &received.body).await?;
    }
    let received = fetch.received.as_ref();
    let id = sqlx::query_scalar(
        "insert into raw_fetch (dataset, address, fetched_at, sha256, status, content_type, body)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (dataset, address, sha256) do update
         set dataset = excluded.dataset
         returning id",
    )
    .bind(dataset.id())
    .bind(&fetch.address)
    .bind(fetch.fetched_at)
    .bind(fetch.sha256.as_slice())
    .bind(received.map(|received| i16::try_from(received.status).unwrap_or(0)))
    .bind(received.map(|received| received.content_type.as_str()))
    .bind(received.map(|received| received.body.sha256.as_slice()))
    .fetch_one(&mut **transaction)
    .await?;
    Ok(id)
}

pub(crate) async fn insert_body(connection: &mut PgConnection, body: &RawBody) -> Result<()> {
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

/// Returns whether it was not there yet, as a count.
pub(crate) async fn insert_misfit(
    connection: &mut PgConnection,
    source: &str,
    part: &str,
    sha256: &[u8; 32],
    at: DateTime<Utc>,
    misfit: &Misfit,
) -> Result<u64> {
    // Postgres' text has no NUL.
    let content = misfit.content.replace('\0', "");
    let inserted = sqlx::query(
        "insert into quarantine (source, part, sha256, line, reason, content, quarantined_at)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict do nothing",
    )
    .bind(source)
    .bind(part)
    .bind(sha256.as_slice())
    .bind(i64::try_from(misfit.line).unwrap_or(i64::MAX))
    .bind(&misfit.reason)
    .bind(content)
    .bind(at)
    .execute(connection)
    .await?;
    Ok(inserted.rows_affected())
}
