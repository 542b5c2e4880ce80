//! A database per test, copied from a template that is migrated (and filled with demo data) once.

use anyhow::Context;
use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use vintem_ingest::demo::{self, DemoSize};
use vintem_store::migrations::schema_fingerprint;
use vintem_store::tables::data_tables;
use vintem_store::{Store, Timeouts};

use crate::test_servers::postgres_url;

/// Size of the demo template: small, but large enough for pagination.
const DEMO_FILINGS: usize = 3_000;
const DEMO_COMPANIES: usize = 300;

#[derive(Debug)]
pub struct TestDatabase {
    name: String,
}

impl TestDatabase {
    /// Neither data nor tables, as `createdb` makes it.
    pub async fn create_without_schema() -> anyhow::Result<Self> {
        Self::from_template("template0").await
    }

    /// The schema without data.
    pub async fn create_empty() -> anyhow::Result<Self> {
        Self::from_template(&ensure_template(None).await?).await
    }

    /// Demo data up to the day of this instant.
    pub async fn create_demo(now: DateTime<Utc>) -> anyhow::Result<Self> {
        Self::from_template(&ensure_template(Some(now)).await?).await
    }

    pub fn url(&self) -> String {
        database_url(&self.name)
    }

    pub fn open_store(&self) -> anyhow::Result<Store> {
        Ok(Store::open(&self.url(), 5, Timeouts::for_workers())?)
    }

    /// Locks a table exclusively until the returned connection is dropped.
    pub async fn lock_table(&self, table: &str) -> anyhow::Result<PgConnection> {
        let mut connection = PgConnection::connect(&self.url()).await?;
        execute_sql(&mut connection, format!("begin; lock table {table} in access exclusive mode")).await?;
        Ok(connection)
    }

    pub async fn connect(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect(&self.url()).await?)
    }

    /// A checksum over all data tables, independent of row order, clock times and generated ids.
    pub async fn checksum(&self) -> anyhow::Result<String> {
        let mut connection = self.connect().await?;
        let mut checksums = Vec::new();
        for (table, columns) in checksum_columns() {
            let query = format!(
                "select count(*) || ' ' || coalesce(md5(string_agg(line, '|' order by line)), '')
                 from (select md5(row({columns})::text) as line from {table}) lines"
            );
            let checksum: String = sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut connection).await?;
            checksums.push(format!("{table} {checksum}"));
        }
        Ok(checksums.join(", "))
    }

    /// Forgets which source files were seen, so that ingestion fetches all of them again in full.
    pub async fn reset_source_parts(&self) -> anyhow::Result<()> {
        execute_sql(&mut self.connect().await?, "delete from source_part".to_owned()).await
    }

    async fn from_template(template: &str) -> anyhow::Result<Self> {
        let name = format!("vintem_test_{}_{:08x}", std::process::id(), rand::random::<u32>());
        let mut admin = connect_admin().await?;
        // PostgreSQL refuses concurrent copies of one template; with the lock they wait for each other instead of failing.
        take_advisory_lock(&mut admin, template).await?;
        execute_sql(&mut admin, format!("create database {name} template {template}")).await?;
        admin.close().await?;
        Ok(Self { name })
    }
}

/// The columns that make up a table's contents: all but clock times and generated ids. A row's origin counts by the
/// hash of the fetched bytes. Not so for securities, which several files may repeat.
fn checksum_columns() -> Vec<(&'static str, String)> {
    let with_origin = |(table, columns): (&'static str, String)| match table {
        "security_version" => (table, columns),
        _ => (table, format!("{columns}, (select sha256 from raw_fetch where raw_fetch.id = fetch_id)")),
    };

    let mut tables: Vec<(&str, String)> = data_tables().map(with_origin).into();
    tables.push(("raw_fetch", "dataset, sha256, status, content_type, body".to_owned()));
    tables.push(("raw_body", "sha256, size, compressed".to_owned()));
    tables.push(("quarantine", "source, part, sha256, line, reason, content".to_owned()));
    tables
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let name = self.name.clone();
        // `drop` must block until the database is gone, and the test's own runtime may be shutting down.
        let dropped = std::thread::spawn(move || -> anyhow::Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut admin = connect_admin().await?;
                execute_sql(&mut admin, format!("drop database if exists {name} with (force)")).await
            })
        });
        if !matches!(dropped.join(), Ok(Ok(()))) {
            eprintln!("the database {} was left behind", self.name);
        }
    }
}

/// Returns the name of the template and creates it if it does not exist.
async fn ensure_template(demo_until: Option<DateTime<Utc>>) -> anyhow::Result<String> {
    let schema = schema_fingerprint();
    let until = demo_until.map(|now| now.date_naive());
    let name = match until {
        None => format!("vintem_template_{schema}"),
        Some(day) => format!("vintem_template_{schema}_demo{}_{}", demo::GENERATOR_VERSION, day.format("%Y%m%d")),
    };

    let mut admin = connect_admin().await?;
    take_advisory_lock(&mut admin, &name).await?;
    let exists: bool = sqlx::query_scalar("select exists (select 1 from pg_database where datname = $1)")
        .bind(&name)
        .fetch_one(&mut admin)
        .await?;

    if !exists {
        // Built under another name and renamed when complete, so that an existing template is always ready.
        let unfinished = format!("{name}_unfinished");
        execute_sql(&mut admin, format!("drop database if exists {unfinished} with (force)")).await?;
        execute_sql(&mut admin, format!("create database {unfinished}")).await?;
        let store = Store::open(&database_url(&unfinished), 2, Timeouts::for_workers())?;
        store.migrate().await?;
        if let (Some(now), Some(until)) = (demo_until, until) {
            let size = DemoSize { filings: DEMO_FILINGS, companies: DEMO_COMPANIES, until };
            demo::load_demo_data(&store, &size, now, &|_, _, _| {}).await?;
        }
        store.close().await;
        execute_sql(&mut admin, format!("alter database {unfinished} rename to {name}")).await?;
    }

    admin.close().await?;
    Ok(name)
}

async fn connect_admin() -> anyhow::Result<PgConnection> {
    let url = database_url("postgres");
    PgConnection::connect(&url).await.with_context(|| format!("tests need a PostgreSQL at {}", postgres_url()))
}

async fn take_advisory_lock(admin: &mut PgConnection, lock_name: &str) -> anyhow::Result<()> {
    sqlx::query("select pg_advisory_lock(hashtext($1))").bind(lock_name).execute(admin).await?;
    Ok(())
}

async fn execute_sql(admin: &mut PgConnection, statement: String) -> anyhow::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(admin).await?;
    Ok(())
}

fn database_url(name: &str) -> String {
    format!("{}/{name}", postgres_url())
}
