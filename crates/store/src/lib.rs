//! PostgreSQL: the migrations and all SQL.
//!
//! This crate never speaks HTTP and never writes a JSON body. If Postgres is unavailable, every call fails within
//! seconds with [`StoreError::Database`] or [`StoreError::Timeout`]. The service keeps serving reads from the snapshot;
//! endpoints that need Postgres return an error.

pub mod change_id;
pub mod copy_buffer;
pub mod diagnosis;
pub mod events;
pub mod history;
mod hosts;
pub mod keys;
pub mod listener;
pub mod load;
pub mod migrations;
pub mod partitions;
mod pool;
pub mod reader;
pub mod sources;
pub mod statements;
pub mod tables;
pub mod usage;
pub mod webhooks;
pub mod work_backlog;

use std::sync::Arc;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use tracing::Instrument;
use vintem_domain::spans::step_span;

use crate::hosts::{MoveTime, PrimaryFollower, split_hosts};
pub use crate::pool::ConnectionCounts;
use crate::pool::StatementPool;
use crate::pool::{query, query_scalar};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("PostgreSQL: {0}")]
    Database(#[from] sqlx::Error),
    #[error("PostgreSQL did not answer within {0:?}")]
    Timeout(Duration),
    #[error("migration failed: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    #[error(
        "The database contains {stored} data, which cannot be mixed with {offered} data. Use another database, or \
         remove demo data with: vintem demo --remove"
    )]
    WrongOrigin { stored: &'static str, offered: &'static str },
    #[error(
        "VINTEM_KEY_PEPPER is not the pepper that the keys in the database were created with. Set the original one."
    )]
    WrongPepper,
    #[error("the database contains a value that this version cannot read: {0}")]
    UnreadableData(String),
}

impl StoreError {
    /// Whether a row has a date for which its table has no partition.
    fn is_missing_partition(&self) -> bool {
        let Self::Database(sqlx::Error::Database(error)) = self else { return false };
        error.code().as_deref() == Some("23514") && error.message().starts_with("no partition of relation")
    }
}

pub type Result<T> = std::result::Result<T, StoreError>;

/// How long calls wait for Postgres.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    connection: Duration,
    /// For a lock. The server enforces it, so that the connection is free again at once.
    lock: Duration,
    /// Total time for a query of a few rows.
    query: Duration,
    /// Total time for a query of many rows.
    bulk_query: Duration,
    /// After which Postgres itself ends a statement, such as one whose client is gone.
    statement: Duration,
}

impl Timeouts {
    /// For requests: a caller who waits longer than `budget` is better off with an error and a retry.
    pub fn for_requests(budget: Duration) -> Self {
        Self {
            connection: budget * 3 / 5,
            lock: budget * 4 / 5,
            query: budget,
            bulk_query: budget * 2,
            statement: BACKGROUND_TIMEOUT.max(budget * 2),
        }
    }

    /// For workers and the command line, where a late answer is better than none.
    pub fn for_workers() -> Self {
        let five_seconds = Duration::from_secs(5);
        let half_a_minute = Duration::from_secs(30);
        Self {
            connection: five_seconds,
            lock: five_seconds,
            query: half_a_minute,
            bulk_query: half_a_minute,
            statement: half_a_minute,
        }
    }
}

/// Timeout of background work, such as following changes or draining usage, which retries anyway.
const BACKGROUND_TIMEOUT: Duration = Duration::from_secs(5);

/// Covers a case that server-side timeouts cannot: a connection that is silent because the other side is gone.
async fn with_timeout<T>(limit: Duration, operation: impl Future<Output = Result<T>>) -> Result<T> {
    let operation = operation.instrument(step_span("postgresql"));
    tokio::time::timeout(limit, operation).await.unwrap_or(Err(StoreError::Timeout(limit)))
}

/// The handle to the database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    pool: StatementPool,
    /// Direct connections, for what belongs to a session.
    sessions: PgPool,
    timeouts: Timeouts,
    /// Where a URL names several hosts.
    primaries: Vec<Arc<PrimaryFollower>>,
}

impl Store {
    /// Connects lazily, so that a replica can start and serve the snapshot while Postgres is unavailable.
    pub fn open(url: &str, max_connections: u32, timeouts: Timeouts) -> Result<Self> {
        let (sessions, primary) =
            open_pool(url, max_connections, timeouts, |options| with_session_timeouts(options, timeouts))?;
        let pool = StatementPool::direct(sessions.clone());
        Ok(Self { pool, sessions, timeouts, primaries: primary.into_iter().collect() })
    }

    /// Like [`Self::open`], with statements and transactions through a pooler such as PgBouncer in transaction mode.
    pub fn open_behind_pooler(
        pooler_url: &str,
        direct_url: &str,
        max_connections: u32,
        timeouts: Timeouts,
    ) -> Result<Self> {
        let direct = Self::open(direct_url, max_connections, timeouts)?;
        // A pooler refuses parameters that it does not know.
        let (pool, primary) =
            open_pool(pooler_url, max_connections, timeouts, |options| options.extra_float_digits(None))?;
        let primaries = direct.primaries.into_iter().chain(primary).collect();
        Ok(Self {
            pool: StatementPool::behind_pooler(pool, timeouts.statement, timeouts.lock),
            sessions: direct.sessions,
            timeouts,
            primaries,
        })
    }

    /// Whether PostgreSQL refuses to write: a standby, or a server that was set to read only.
    pub async fn is_read_only(&self) -> Result<bool> {
        with_timeout(self.timeouts.query, async {
            Ok(query_scalar("select current_setting('transaction_read_only') = 'on'").fetch_one(&self.pool).await?)
        })
        .await
    }

    /// How long a query for a row or two may take.
    pub fn query_timeout(&self) -> Duration {
        self.timeouts.query
    }

    /// Checks that Postgres answers.
    pub async fn ping(&self) -> Result<()> {
        with_timeout(self.timeouts.query, async {
            query("select 1").execute(&self.pool).await?;
            Ok(())
        })
        .await
    }

    pub async fn close(&self) {
        self.pool.close().await;
        self.sessions.close().await;
    }
}

fn open_pool(
    url: &str,
    max_connections: u32,
    timeouts: Timeouts,
    configure: impl Fn(PgConnectOptions) -> PgConnectOptions,
) -> Result<(PgPool, Option<Arc<PrimaryFollower>>)> {
    // sqlx would take a URL of any other database for one of Postgres.
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(sqlx::Error::Configuration("not a PostgreSQL URL".into()).into());
    }
    let urls = split_hosts(url).map_err(|problem| sqlx::Error::Configuration(problem.into()))?;
    let mut hosts = Vec::new();
    for url in urls {
        let options: PgConnectOptions = url.parse()?;
        // No statement logging: the URL contains a password, and statements contain email addresses.
        hosts.push(configure(options.disable_statement_logging().application_name("vintem")));
    }

    let moved_at = MoveTime::default();
    let pool = moved_at
        .guard_pool(PgPoolOptions::new())
        .max_connections(max_connections)
        .acquire_timeout(timeouts.connection)
        .connect_lazy_with(hosts[0].clone());
    let primary = (hosts.len() > 1).then(|| Arc::new(PrimaryFollower::start(pool.clone(), hosts, moved_at)));
    Ok((pool, primary))
}

/// The server-side timeouts end statements that wait for a lock. Loads and snapshot builds disable them.
fn with_session_timeouts(options: PgConnectOptions, timeouts: Timeouts) -> PgConnectOptions {
    options.options([
        ("statement_timeout", format!("{}ms", timeouts.statement.as_millis())),
        ("lock_timeout", format!("{}ms", timeouts.lock.as_millis())),
    ])
}

/// For work without a waiting caller. Lasts as long as the connection is open.
async fn disable_timeouts(connection: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql("set statement_timeout = 0; set lock_timeout = 0").execute(connection).await?;
    Ok(())
}

/// The same for one transaction.
async fn disable_timeouts_in_transaction(transaction: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql("set local statement_timeout = 0; set local lock_timeout = 0").execute(transaction).await?;
    Ok(())
}
