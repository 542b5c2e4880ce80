//! PostgreSQL: the migrations and all SQL.
//!
//! This crate never speaks HTTP and never writes a JSON body. If Postgres is unavailable, every call fails within
//! seconds with [`StoreError::Database`] or [`StoreError::Timeout`]. The service keeps serving reads from the snapshot;
//! endpoints that need Postgres return an error.

pub mod copy_buffer;
pub mod diagnosis;
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
    #[error("the database contains a value that this version cannot read: {0}")]
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
        // sqlx would take a URL of any other database for one of Postgres.
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(sqlx::Error::Configuration("not a PostgreSQL URL".into()).into());
        }
        let options: PgConnectOptions = url.parse()?;

        // No statement logging: the URL contains a password, and statements contain email addresses.
        // The server-side timeouts end statements that wait for a lock. Loads and snapshot builds disable them.
        let options = options.disable_statement_logging().application_name("vintem").options([
            ("statement_timeout", format!("{}ms", timeouts.statement.as_millis())),
            ("lock_timeout", format!("{}ms", timeouts.lock.as_millis())),
        ]);

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

    /// Applies the missing migrations.
    pub async fn migrate(&self) -> Result<SchemaChange> {
        let mut connection = self.pool.acquire().await?;
        disable_timeouts(&mut connection).await?;
        let before = schema_version(&mut connection).await?;
        build_migrator().run(&mut *connection).await?;

        // The timeouts stay disabled on this connection, so it must not serve requests.
        connection.close().await?;
        Ok(SchemaChange { before, after: SCHEMA_VERSION })
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

/// The schema that this version of the service uses.
const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// Versions of the schema; 0 stands for a database without tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaChange {
    pub before: i64,
    pub after: i64,
}

async fn schema_version(connection: &mut PgConnection) -> std::result::Result<i64, sqlx::Error> {
    let has_migrations: bool =
        sqlx::query_scalar("select to_regclass('_sqlx_migrations') is not null").fetch_one(&mut *connection).await?;
    if !has_migrations {
        return Ok(0);
    }
    sqlx::query_scalar("select coalesce(max(version), 0) from _sqlx_migrations where success")
        .fetch_one(connection)
        .await
}

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
