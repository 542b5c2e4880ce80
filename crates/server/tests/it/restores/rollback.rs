//! How a database goes back to an earlier state.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use chrono::{DateTime, Utc};
use sqlx::{Connection, PgConnection};
use vintem_testkit::{DedicatedPostgres, QuietClock, TcpProxy};

use super::{MAX_START, RestoreTrials, Rollback, database_url, path_text};
use crate::TestResult;

const MAX_ARCHIVING: Duration = Duration::from_secs(60);

/// Tables that only the trials write to.
const COMPARED_TABLES: [&str; 15] = [
    "dataset",
    "dataset_load",
    "filing_version",
    "observation",
    "fx_bulletin",
    "company_version",
    "security_version",
    "raw_fetch",
    "api_key",
    "key_former_secret",
    "key_revision",
    "key_change",
    "event",
    "delivery",
    "webhook",
];

/// The state that a database goes back to.
pub enum Backup {
    Files(PathBuf),
    Dump(PathBuf),
    FilesAndTime(PathBuf, Option<DateTime<Utc>>),
    Standby { server: Box<DedicatedPostgres>, link: TcpProxy },
}

impl RestoreTrials {
    pub async fn back_up(&self, rollback: Rollback<'_>) -> anyhow::Result<Backup> {
        Ok(match rollback {
            Rollback::RestoreInPlace if rand::random() => {
                let dump = self.postgres.work_dir().join("dump");
                let url = database_url(&self.postgres);
                self.postgres.run_program("pg_dump", &["-f", path_text(&dump)?, &url])?;
                Backup::Dump(dump)
            }
            Rollback::RestoreInPlace => Backup::Files(self.postgres.take_base_backup()?),
            Rollback::PointInTimeRecovery { .. } => Backup::FilesAndTime(self.postgres.take_base_backup()?, None),
            Rollback::LaggingPromotion => {
                let link = TcpProxy::start(self.postgres.port()).await?;
                let server = Box::new(DedicatedPostgres::start_standby(link.port())?);
                Backup::Standby { server, link }
            }
        })
    }

    /// Puts the database back. Returns when it accepts connections.
    pub async fn roll_back(&mut self, backup: Backup, rollback: Rollback<'_>) -> TestResult {
        match backup {
            Backup::Dump(dump) => {
                let url = database_url(&self.postgres);
                // As `docs/operations.md` says.
                let empty = "drop schema public cascade; create schema public";
                let options = ["--single-transaction", "-v", "ON_ERROR_STOP=1", "-qd", &url];
                self.postgres.run_program("psql", &[&options[..], &["-c", empty, "-f", path_text(&dump)?]].concat())?;
            }
            Backup::Files(files) => {
                self.postgres.kill()?;
                self.postgres.restore_base_backup(&files)?;
                self.postgres.launch()?;
            }
            Backup::FilesAndTime(files, time) => {
                let Rollback::PointInTimeRecovery { archive } = rollback else { anyhow::bail!("no archive") };
                let time = time.context("a time was chosen")?;
                self.archive_everything(archive).await?;
                self.postgres.stop()?;
                let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/point-in-time-recovery");
                let time = time.to_rfc3339();
                let data = self.postgres.data_dir();
                self.postgres.run_script(&script, &[&files, archive, &data, Path::new(&time)])?;
                self.postgres.launch()?;
                self.wait_for_promotion().await?;
                self.postgres.remove_former_data()?;
                std::fs::remove_dir_all(files)?;
            }
            Backup::Standby { server, .. } => {
                self.postgres.kill()?;
                let server = *server;
                server.promote()?;
                // Clients find it under the former address.
                let former = std::mem::replace(&mut self.postgres, server);
                self.postgres.move_to_port(former.port())?;
            }
        }
        Ok(())
    }

    /// Waits until all WAL so far is in the archive.
    async fn archive_everything(&self, archive: &Path) -> TestResult {
        let mut connection = self.connect().await?;
        let last: String =
            sqlx::query_scalar("select pg_walfile_name(pg_switch_wal())").fetch_one(&mut connection).await?;
        let clock = QuietClock::start();
        while !archive.join(&last).exists() {
            anyhow::ensure!(clock.elapsed() < MAX_ARCHIVING, "{last} is not archived");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Waits until a standby has everything that the primary has now.
    pub async fn wait_for_standby(&self, standby: &DedicatedPostgres) -> TestResult {
        let position: String =
            sqlx::query_scalar("select pg_current_wal_lsn()::text").fetch_one(&mut self.connect().await?).await?;
        let mut connection = PgConnection::connect(&database_url(standby)).await?;
        let clock = QuietClock::start();
        while !sqlx::query_scalar("select coalesce(pg_last_wal_replay_lsn() >= $1::pg_lsn, false)")
            .bind(&position)
            .fetch_one(&mut connection)
            .await?
        {
            anyhow::ensure!(clock.elapsed() < MAX_START, "the standby does not catch up");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// The number of rows of each table, and the sum of their hashes.
    pub async fn describe_rows(&self) -> anyhow::Result<Vec<String>> {
        let mut connection = self.connect().await?;
        let mut tables = Vec::new();
        for table in COMPARED_TABLES {
            let rows = format!(
                "select '{table}: ' || count(*) || ' ' || coalesce(sum(hashtextextended(rows::text, 0)::numeric), 0)
                 from {table} rows"
            );
            tables.push(sqlx::query_scalar(sqlx::AssertSqlSafe(rows)).fetch_one(&mut connection).await?);
        }
        Ok(tables)
    }

    /// Until then, the server accepts connections but no writes.
    async fn wait_for_promotion(&self) -> TestResult {
        let clock = QuietClock::start();
        let mut connection = self.connect().await?;
        while sqlx::query_scalar("select pg_is_in_recovery()").fetch_one(&mut connection).await? {
            anyhow::ensure!(clock.elapsed() < MAX_START, "still in recovery");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// A time between two transactions, by the server's clock.
    pub async fn pass_a_moment(&self) -> anyhow::Result<DateTime<Utc>> {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let time = sqlx::query_scalar("select clock_timestamp()").fetch_one(&mut self.connect().await?).await?;
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok(time)
    }
}
