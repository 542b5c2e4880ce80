//! PostgreSQL: the migrations and every line of SQL.
//!
//! It never speaks HTTP and never writes a JSON body. When Postgres is away every call fails within seconds with
//! [`StoreError::Database`]; reads of the service go on from the snapshot, and what needs Postgres says so.

pub mod copy;
pub mod keys;
pub mod listen;
pub mod load;
pub mod read;
pub mod usage;

use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, SqlStr};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("asking Postgres: {0}")]
    Database(#[from] sqlx::Error),
    #[error("migrating the database: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    #[error(
        "the database holds {held} data and takes no {offered} data: use another database, or `vintem demo --remove`"
    )]
    WrongOrigin { held: &'static str, offered: &'static str },
    #[error("the database holds what this version cannot read: {0}")]
    Foreign(String),
}

pub type Result<T> = std::result::Result<T, StoreError>;

/// Everything that is stored, in one handle. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    pool: PgPool,
}

impl Store {
    /// Connects lazily: a replica may start and serve what it can while Postgres is away.
    pub fn open(url: &str, max_connections: u32) -> Result<Self> {
        let options: PgConnectOptions = url.parse()?;
        // The URL carries a password, statements carry addresses: neither belongs into the log.
        let options = options.disable_statement_logging().application_name("vintem");
        let pool = PgPoolOptions::new()
            .max_connections(max_connections)
            // A caller that waits longer is better told to come again.
            .acquire_timeout(Duration::from_millis(500))
            .connect_lazy_with(options);
        Ok(Self { pool })
    }

    /// Brings the schema up to this version; a second run does nothing.
    pub async fn migrate(&self) -> Result<()> {
        migrator().run(&self.pool).await?;
        Ok(())
    }

    /// Whether Postgres answers.
    pub async fn ping(&self) -> Result<()> {
        sqlx::query("select 1").execute(&self.pool).await?;
        Ok(())
    }

    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// The migrations in the order in which they are applied. Append only: an applied file never changes.
const MIGRATIONS: [(i64, &str, &str); 2] = [
    (1, "data", include_str!("../migrations/0001_data.sql")),
    (2, "keys and usage", include_str!("../migrations/0002_keys_and_usage.sql")),
];

fn migrator() -> Migrator {
    let migrations = MIGRATIONS.map(|(version, name, sql)| {
        Migration::new(version, name.into(), MigrationType::Simple, SqlStr::from_static(sql), false)
    });
    Migrator::with_migrations(migrations.to_vec())
}

/// Changes with every change of the schema: names the template that tests copy.
pub fn schema_fingerprint() -> String {
    let mut fingerprint = String::new();
    for migration in migrator().iter() {
        for byte in migration.checksum.iter().take(4) {
            fingerprint.push_str(&format!("{byte:02x}"));
        }
    }
    fingerprint
}
