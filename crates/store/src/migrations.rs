//! The schema: applies the migrations that a database lacks, and tells which version it has.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use chrono::Utc;
use sqlx::error::DatabaseError;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{PgConnection, SqlStr};
use tracing::warn;

use crate::partitions::add_next_partitions;
use crate::pool::query_scalar;
use crate::{Result, Store, disable_timeouts};

/// The migrations: number, name and SQL of each file in `migrations`, in order. An applied file never changes.
const MIGRATIONS: &[(i64, &str, &str)] = &include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// The schema that this version of the service uses.
pub const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// A migration waits 200 ms for a lock, so that requests behind it still succeed, and is then repeated, for some minutes.
const MAX_LOCK_ATTEMPTS: u32 = 150;
const LOCK_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Error codes of PostgreSQL (its manual, appendix A).
const LOCK_NOT_AVAILABLE: &str = "55P03";
const DEADLOCK_DETECTED: &str = "40P01";

/// Versions of the schema; 0 stands for a database without tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaChange {
    pub before: i64,
    pub after: i64,
}

impl Store {
    /// Applies the missing migrations. A newer schema stays as it is; [`Store::check_schema`] tells whether it is supported.
    pub async fn migrate(&self) -> Result<SchemaChange> {
        let mut connection = self.sessions.acquire().await?;
        let result = update_schema(&mut connection).await;

        // The timeouts stay disabled on this connection, so it must not serve requests. After a failure, it may also
        // hold the lock that keeps other migrations waiting.
        connection.close().await?;
        result
    }
}

async fn update_schema(connection: &mut PgConnection) -> Result<SchemaChange> {
    disable_timeouts(connection).await?;
    let before = schema_version(connection).await?;
    apply_migrations(connection).await?;
    add_next_partitions(connection, Utc::now().date_naive()).await?;
    Ok(SchemaChange { before, after: before.max(SCHEMA_VERSION) })
}

async fn apply_migrations(connection: &mut PgConnection) -> Result<()> {
    let migrator = build_migrator();
    for attempt in 1..MAX_LOCK_ATTEMPTS {
        match migrator.run(&mut *connection).await {
            Err(MigrateError::ExecuteMigration(error, migration)) if is_lock_conflict(&error) => {
                warn!(migration, attempt, "a table is locked; retrying the migration");
                tokio::time::sleep(LOCK_RETRY_PAUSE).await;
            }
            result => return Ok(result?),
        }
    }
    Ok(migrator.run(connection).await?)
}

fn is_lock_conflict(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(DatabaseError::code);
    matches!(code.as_deref(), Some(LOCK_NOT_AVAILABLE | DEADLOCK_DETECTED))
}

pub async fn schema_version(connection: &mut PgConnection) -> std::result::Result<i64, sqlx::Error> {
    let has_migrations: bool =
        query_scalar("select to_regclass('_sqlx_migrations') is not null").fetch_one(&mut *connection).await?;
    if !has_migrations {
        return Ok(0);
    }
    query_scalar("select coalesce(max(version), 0) from _sqlx_migrations where success").fetch_one(connection).await
}

/// The oldest version whose programs may use the schema that the database has.
pub async fn oldest_supported_version(connection: &mut PgConnection) -> std::result::Result<i64, sqlx::Error> {
    query_scalar("select oldest_supported from schema_support").fetch_one(connection).await
}

fn build_migrator() -> Migrator {
    let migrations = MIGRATIONS.iter().copied().map(|(version, name, sql)| {
        Migration::new(version, name.into(), MigrationType::Simple, SqlStr::from_static(sql), false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    migrator.set_ignore_missing(true);
    migrator
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
