//! Connections for statements and transactions, either to PostgreSQL itself or to a pooler that gives each transaction
//! any connection of its own, such as PgBouncer in transaction mode.
//!
//! Behind such a pooler two things don't work: named prepared statements, so [`query`] and its siblings use unnamed ones
//! there, and a statement outside a transaction, because it is prepared and executed in two steps that may meet two
//! servers. So each one gets a transaction. Whatever belongs to a session, such as `LISTEN` and advisory locks that outlive
//! a transaction, needs a direct connection: see [`Store::sessions`](crate::Store).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::query::{Query, QueryAs, QueryScalar};
use sqlx::{AssertSqlSafe, Either, Execute, Executor, FromRow, Postgres, SqlSafeStr, SqlStr, Transaction};

/// Whether this process has connections to a pooler. A statement does not know yet which connection it will meet, and
/// unnamed ones work everywhere; named ones are prepared once and save a round trip.
static HAS_POOLER: AtomicBool = AtomicBool::new(false);

fn may_have_name() -> bool {
    !HAS_POOLER.load(Ordering::Relaxed)
}

/// A statement that any connection of this process can execute.
pub fn query<'q>(sql: impl SqlSafeStr) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(sql).persistent(may_have_name())
}

pub fn query_as<'q, O>(sql: impl SqlSafeStr) -> QueryAs<'q, Postgres, O, PgArguments>
where
    O: for<'r> FromRow<'r, PgRow>,
{
    sqlx::query_as(sql).persistent(may_have_name())
}

pub fn query_scalar<'q, O>(sql: impl SqlSafeStr) -> QueryScalar<'q, Postgres, O, PgArguments>
where
    (O,): for<'r> FromRow<'r, PgRow>,
{
    sqlx::query_scalar(sql).persistent(may_have_name())
}

/// Records how long it took to get a connection or, for a transaction, to begin it.
fn record_wait(started: Instant) {
    metrics::histogram!("vintem_postgres_wait_seconds").record(started.elapsed().as_secs_f64());
}

/// Connections of the pool that statements use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionCounts {
    pub used: u32,
    pub idle: u32,
}

/// Executes single statements, and begins transactions.
#[derive(Debug, Clone)]
pub struct StatementPool {
    pool: PgPool,
    /// Behind a pooler: begins a transaction with the timeouts that the session cannot have.
    begin: Option<Arc<str>>,
}

impl StatementPool {
    pub const fn direct(pool: PgPool) -> Self {
        Self { pool, begin: None }
    }

    pub fn behind_pooler(pool: PgPool, statement_timeout: Duration, lock_timeout: Duration) -> Self {
        let begin = format!(
            "begin; set local statement_timeout = {}; set local lock_timeout = {}",
            statement_timeout.as_millis(),
            lock_timeout.as_millis()
        );
        HAS_POOLER.store(true, Ordering::Relaxed);
        Self { pool, begin: Some(begin.into()) }
    }

    pub async fn begin(&self) -> sqlx::Result<Transaction<'static, Postgres>> {
        let started = Instant::now();
        let transaction = match &self.begin {
            Some(begin) => self.pool.begin_with(AssertSqlSafe(begin.to_string())).await,
            None => self.pool.begin().await,
        };
        record_wait(started);
        transaction
    }

    async fn acquire(&self) -> sqlx::Result<PoolConnection<Postgres>> {
        let started = Instant::now();
        let connection = self.pool.acquire().await;
        record_wait(started);
        connection
    }

    pub fn connection_counts(&self) -> ConnectionCounts {
        let idle = u32::try_from(self.pool.num_idle()).unwrap_or(u32::MAX);
        ConnectionCounts { used: self.pool.size().saturating_sub(idle), idle }
    }

    pub fn connect_options(&self) -> Arc<PgConnectOptions> {
        self.pool.connect_options()
    }

    pub async fn close(&self) {
        self.pool.close().await;
    }
}

impl<'p> Executor<'p> for &'p StatementPool {
    type Database = Postgres;

    /// All rows are collected first. Long results should be fetched in a transaction.
    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, sqlx::Result<Either<PgQueryResult, PgRow>>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let steps = async move {
            let steps: Vec<_> = if self.begin.is_some() {
                let mut transaction = self.begin().await?;
                let steps = transaction.fetch_many(query).try_collect().await?;
                transaction.commit().await?;
                steps
            } else {
                self.acquire().await?.fetch_many(query).try_collect().await?
            };
            Ok::<_, sqlx::Error>(stream::iter(steps).map(Ok))
        };
        steps.into_stream().try_flatten().boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, sqlx::Result<Option<PgRow>>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        async move {
            if self.begin.is_none() {
                return self.acquire().await?.fetch_optional(query).await;
            }
            let mut transaction = self.begin().await?;
            let row = transaction.fetch_optional(query).await?;
            transaction.commit().await?;
            Ok(row)
        }
        .boxed()
    }

    fn prepare_with<'e>(self, sql: SqlStr, parameters: &'e [PgTypeInfo]) -> BoxFuture<'e, sqlx::Result<PgStatement>>
    where
        'p: 'e,
    {
        self.pool.prepare_with(sql, parameters)
    }
}
