//! The schema: applies the migrations that a database lacks, and tells which version it has.

use std::hash::{DefaultHasher, Hash, Hasher};

use chrono::Utc;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{PgConnection, SqlStr};

use crate::partitions::add_next_partitions;
use crate::pool::query_scalar;
use crate::{Result, Store, disable_timeouts};

/// The migrations: number, name and SQL of each file in `migrations`, in order. An applied file never changes.
const MIGRATIONS: &[(i64, &str, &str)] = &include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// The schema that this version of the service uses.
pub const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// Versions of the schema; 0 stands for a database without tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaChange {
    pub before: i64,
    pub after: i64,
}

impl Store {
    /// Applies the missing migrations.
    pub async fn migrate(&self) -> Result<SchemaChange> {
        let mut connection = self.sessions.acquire().await?;
        disable_timeouts(&mut connection).await?;
        let before = schema_version(&mut connection).await?;
        build_migrator().run(&mut *connection).await?;
        add_next_partitions(&mut connection, Utc::now().date_naive()).await?;

        // The timeouts stay disabled on this connection, so it must not serve requests.
        connection.close().await?;
        Ok(SchemaChange { before, after: SCHEMA_VERSION })
    }
}

pub async fn schema_version(connection: &mut PgConnection) -> std::result::Result<i64, sqlx::Error> {
    let has_migrations: bool =
        query_scalar("select to_regclass('_sqlx_migrations') is not null").fetch_one(&mut *connection).await?;
    if !has_migrations {
        return Ok(0);
    }
    query_scalar("select coalesce(max(version), 0) from _sqlx_migrations where success").fetch_one(connection).await
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
