//! PostgreSQL: the migrations and all SQL.
//!
//! This crate never speaks HTTP and never writes a JSON body. If Postgres is unavailable, every call fails within
//! seconds with [`StoreError::Database`] or [`StoreError::Timeout`]. The service keeps serving reads from the snapshot;
//! endpoints that need Postgres return an error.

pub mod copy_buffer;
pub mod events;
pub mod history;
pub mod keys;
pub mod listener;
pub mod load;
pub mod reader;
pub mod sources;
pub mod tables;
pub mod usage;
pub mod webhooks;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, SqlStr};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("asking Postgres: {0}")]
    Database(#[from] sqlx::Error),
    #[error("Postgres did not answer within {0:?}")]
    Timeout(Duration),
    #[error("migrating the database: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    #[error(
        "the database holds {stored} data and takes no {offered} data: use another database, or `vintem demo --remove`"
    )]
    WrongOrigin { stored: &'static str, offered: &'static str },
    #[error("the database holds what this version cannot read: {0}")]
    UnreadableData(String),
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
}

impl Timeouts {
    /// For requests: a caller who waits longer than `budget` is better off with an error and a retry.
    pub fn for_requests(budget: Duration) -> Self {
        Self { connection: budget * 3 / 5, lock: budget * 4 / 5, query: budget, bulk_query: budget * 2 }
    }

    /// For workers and the command line, where a late answer is better than none.
    pub fn for_workers() -> Self {
        let five_seconds = Duration::from_secs(5);
        Self { connection: five_seconds, lock: five_seconds, query: 2 * five_seconds, bulk_query: 2 * five_seconds }
    }
}

/// Timeout of background work, such as following changes or draining usage, which retries anyway.
const BACKGROUND_TIMEOUT: Duration = Duration::from_secs(5);

/// Covers a case that server-side timeouts cannot: a connection that is silent because the other side is gone.
async fn with_timeout<T>(limit: Duration, operation: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(limit, operation).await.unwrap_or(Err(StoreError::Timeout(limit)))
}

/// The handle to the database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    pool: PgPool,
    timeouts: Timeouts,
}

impl Store {
    /// Connects lazily, so that a replica can start and serve the snapshot while Postgres is unavailable.
    pub fn open(url: &str, max_connections: u32, timeouts: Timeouts) -> Result<Self> {
        let options: PgConnectOptions = url.parse()?;

        // No statement logging: the URL contains a password, and statements contain email addresses.
        // The server-side timeouts end statements that wait for a lock. Loads and snapshot builds disable them.
        let options = options
            .disable_statement_logging()
            .application_name("vintem")
            .options([("statement_timeout", "5s"), ("lock_timeout", &format!("{}ms", timeouts.lock.as_millis()))]);

        let pool = PgPoolOptions::new()
            .max_connections(max_connections)
            .acquire_timeout(timeouts.connection)
            .connect_lazy_with(options);

        Ok(Self { pool, timeouts })
    }

    /// How long a query for a row or two may take.
    pub fn query_timeout(&self) -> Duration {
        self.timeouts.query
    }

    /// Applies the migrations that are missing.
    pub async fn migrate(&self) -> Result<()> {
        let mut connection = self.pool.acquire().await?;
        disable_timeouts(&mut connection).await?;
        build_migrator().run(&mut *connection).await?;

        // The timeouts stay disabled on this connection, so it must not serve requests.
        connection.close().await?;
        Ok(())
    }

    /// Checks that Postgres answers.
    pub async fn ping(&self) -> Result<()> {
        with_timeout(self.timeouts.query, async {
            sqlx::query("select 1").execute(&self.pool).await?;
            Ok(())
        })
        .await
    }

    pub async fn close(&self) {
        self.pool.close().await;
    }
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

/// The migrations: number, name and SQL of each file in `migrations`, in order. An applied file never changes.
const MIGRATIONS: &[(i64, &str, &str)] = &include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

fn build_migrator() -> Migrator {
    let migrations = MIGRATIONS.iter().copied().map(|(version, name, sql)| {
        Migration::new(version, name.into(), MigrationType::Simple, SqlStr::from_static(sql), false)
    });
    Migrator::with_migrations(migrations.collect())
}

/// Changes with every change of the schema. Tests name their template database by it.
pub fn schema_fingerprint() -> String {
    let mut hasher = DefaultHasher::new();
    for migration in build_migrator().iter() {
        migration.checksum.hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::MIGRATIONS;

    #[test]
    fn migrations_are_numbered_without_gaps() {
        let numbers: Vec<i64> = MIGRATIONS.iter().map(|(number, _, _)| *number).collect();
        assert_eq!(numbers, (1..=MIGRATIONS.len() as i64).collect::<Vec<_>>());
    }
}
