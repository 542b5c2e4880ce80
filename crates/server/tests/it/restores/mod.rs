//! Databases that go back in time: a restore in place, a point-in-time recovery, the promotion of a standby that lagged.
//!
//! Each trial changes a database at random, puts it back to an earlier state, changes it again, and compares what two
//! replicas serve with the database. In half of the trials the replicas run all the time. In the others they are stopped
//! before, and start from their copies on disk afterwards.

mod changes;
mod rollback;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use chrono::Utc;
use sqlx::{Connection, PgConnection};
use vintem_api::Pepper;
use vintem_domain::{DateRange, SystemClock};
use vintem_server::replica::{Replica, start_replica};
use vintem_snapshot::{FilingFilter, LiveSnapshot, Snapshot};
use vintem_store::{Store, Timeouts};
use vintem_testkit::{
    DedicatedPostgres, DedicatedRedis, HIGH_LIMIT_FLAGS, QuietClock, TEST_PEPPER, TempDirectory, http_client_builder,
    parse_env_var, parse_serve_settings, run_vintem,
};

use crate::{TestResult, vintem_binary};
use changes::STATEMENT_COMPANY;
use rollback::Backup;

/// Filings, unless `VINTEM_RESTORE_FILINGS` says otherwise. The bound on the time holds for this number.
const FILINGS: u32 = 50_000;
/// A key that lost access is refused this soon after the database accepts connections again.
const MAX_KEY_DELAY: Duration = Duration::from_secs(2);
/// Nothing that the database has lost is served any more.
const MAX_DATA_DELAY: Duration = Duration::from_secs(5);
const MAX_START: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn replicas_notice_a_restore_in_place() -> TestResult {
    let mut trials = RestoreTrials::start("").await?;
    for trial in 1..=trial_count() {
        trials.run(Rollback::RestoreInPlace).await.with_context(|| format!("trial {trial}"))?;
    }
    trials.report("restores_in_place");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_notice_a_point_in_time_recovery() -> TestResult {
    let archive = TempDirectory::create()?;
    std::fs::set_permissions(archive.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let command = format!("test ! -f {0}/%f && cp %p {0}/%f.part && mv {0}/%f.part {0}/%f", archive.path().display());
    let mut trials = RestoreTrials::start(&format!("-c archive_mode=on -c archive_command='{command}'")).await?;
    for trial in 1..=trial_count() {
        trials
            .run(Rollback::PointInTimeRecovery { archive: archive.path() })
            .await
            .with_context(|| format!("trial {trial}"))?;
    }
    trials.report("point_in_time_recoveries");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_notice_the_promotion_of_a_standby_that_lagged() -> TestResult {
    let mut trials = RestoreTrials::start("").await?;
    for trial in 1..=trial_count() {
        trials.run(Rollback::LaggingPromotion).await.with_context(|| format!("trial {trial}"))?;
    }
    trials.report("lagging_promotions");
    Ok(())
}

fn trial_count() -> u32 {
    parse_env_var("VINTEM_RESTORE_TRIALS").unwrap_or(5)
}

fn filing_count() -> u32 {
    parse_env_var("VINTEM_RESTORE_FILINGS").unwrap_or(FILINGS)
}

/// How a database goes back in time.
#[derive(Clone, Copy)]
enum Rollback<'a> {
    RestoreInPlace,
    PointInTimeRecovery { archive: &'a Path },
    LaggingPromotion,
}

/// A key that was created in some history of the database.
struct IssuedKey {
    hmac: [u8; 32],
    text: String,
}

struct RestoreTrials {
    postgres: DedicatedPostgres,
    redis: DedicatedRedis,
    store: Store,
    directories: [TempDirectory; 2],
    replicas: Vec<Replica>,
    http: reqwest::Client,
    pepper: Pepper,
    keys: Vec<IssuedKey>,
    /// Ids of keys, events and deliveries, and positions of events, in any history.
    issued_ids: HashSet<(&'static str, i64)>,
    next_filing: u32,
    slowest_keys: Duration,
    slowest_data: Duration,
}

impl RestoreTrials {
    async fn start(server_options: &str) -> anyhow::Result<Self> {
        let postgres = DedicatedPostgres::start_with_options(server_options)?;
        for command in [&["migrate"][..], &["demo", "--filings", &filing_count().to_string()]] {
            let (status, _, error) = run_vintem(vintem_binary(), &database_url(&postgres), command).await?;
            anyhow::ensure!(status.success(), "{command:?}: {error}");
        }

        let store = open_store(&postgres)?;
        let mut trials = Self {
            postgres,
            redis: DedicatedRedis::start()?,
            store,
            directories: [TempDirectory::create()?, TempDirectory::create()?],
            replicas: Vec::new(),
            http: http_client_builder().build()?,
            pepper: Pepper::new(TEST_PEPPER).context("long enough")?,
            keys: Vec::new(),
            issued_ids: HashSet::new(),
            next_filing: 0,
            slowest_keys: Duration::ZERO,
            slowest_data: Duration::ZERO,
        };
        for _ in 0..3 {
            trials.create_key().await?;
        }
        trials.start_replicas().await?;
        Ok(trials)
    }

    fn report(&self, name: &str) {
        println!("{name}: {}", trial_count());
        println!("{name}_keys_current_after_seconds: {:.1}", self.slowest_keys.as_secs_f64());
        println!("{name}_data_current_after_seconds: {:.1}", self.slowest_data.as_secs_f64());
    }

    async fn run(&mut self, rollback: Rollback<'_>) -> TestResult {
        self.change_often(0..4).await?;
        let mut backup = self.back_up(rollback).await?;
        let mut expected_rows = self.describe_rows().await?;
        match &mut backup {
            Backup::FilesAndTime(_, time) => {
                self.change_often(0..4).await?;
                expected_rows = self.describe_rows().await?;
                *time = Some(self.pass_a_moment().await?);
            }
            Backup::Standby { server, link } => {
                self.change_often(0..4).await?;
                expected_rows = self.describe_rows().await?;
                self.wait_for_standby(server).await?;
                link.cut();
            }
            Backup::Files(_) | Backup::Dump(_) => {}
        }
        self.change_often(1..6).await?;
        self.wait_for_current(QuietClock::start()).await?;

        let is_running: bool = rand::random();
        if !is_running {
            self.stop_replicas().await?;
        }
        self.roll_back(backup, rollback).await?;
        let mut clock = QuietClock::start();
        assert_eq!(self.describe_rows().await?, expected_rows, "the rows of that time");
        if !is_running || rand::random() {
            // The same numbers are counted again, for other loads and other keys, before the replicas look.
            self.change_often(0..6).await?;
            clock = QuietClock::start();
        }
        if !is_running {
            self.start_replicas().await?;
            clock = QuietClock::start();
        }
        let (keys, data) = self.wait_for_current(clock).await?;
        if is_running {
            self.slowest_keys = self.slowest_keys.max(keys);
            self.slowest_data = self.slowest_data.max(data);
        }
        self.change_often(0..3).await?;
        self.wait_for_current(QuietClock::start()).await?;
        Ok(())
    }

    /// A server that has just started resets a connection now and then.
    async fn connect(&self) -> anyhow::Result<PgConnection> {
        let clock = QuietClock::start();
        loop {
            match PgConnection::connect(&database_url(&self.postgres)).await {
                Err(sqlx::Error::Io(_)) if clock.elapsed() < MAX_START => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                connected => return Ok(connected?),
            }
        }
    }

    async fn start_replicas(&mut self) -> TestResult {
        for directory in &self.directories {
            let flags = [&HIGH_LIMIT_FLAGS[..], &["--data-dir", path_text(directory.path())?]].concat();
            let settings = parse_serve_settings(&database_url(&self.postgres), &self.redis.url(), &flags)?;
            self.replicas.push(start_replica(&settings, "test:", Arc::new(SystemClock)).await?);
        }
        let clock = QuietClock::start();
        while !self.replicas.iter().all(Replica::is_ready) {
            anyhow::ensure!(clock.elapsed() < MAX_START, "a replica does not start");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Stops the replicas when they have saved everything.
    async fn stop_replicas(&mut self) -> TestResult {
        for mut replica in self.replicas.drain(..) {
            replica.snapshot().save_disk_cache().await?;
            replica.stop().await;
        }
        Ok(())
    }

    /// Waits until both replicas judge every key as the database does, and serve what it has. Returns the time of both.
    async fn wait_for_current(&self, clock: QuietClock) -> anyhow::Result<(Duration, Duration)> {
        while let Some(mistake) = self.find_key_mistake().await? {
            anyhow::ensure!(clock.elapsed() < MAX_KEY_DELAY, "a replica judges a key wrongly: {mistake}");
        }
        let keys_after = clock.elapsed();

        let expected = self.store.dataset_states().await?;
        while !self.replicas.iter().all(|replica| replica.served_dataset_states() == expected) {
            let is_in_time = clock.elapsed() < MAX_DATA_DELAY || filing_count() > FILINGS;
            anyhow::ensure!(is_in_time, "a replica serves something else than the database has");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let data_after = clock.elapsed();

        let directory = TempDirectory::create()?;
        let database = LiveSnapshot::with_disk_cache(directory.path().to_owned());
        database.refresh(&self.store).await?;
        for replica in &self.replicas {
            assert_eq!(find_difference(&replica.snapshot(), &database), None);
        }
        Ok((keys_after, data_after))
    }

    async fn find_key_mistake(&self) -> anyhow::Result<Option<String>> {
        for (number, key) in self.keys.iter().enumerate() {
            let now = Utc::now();
            let stored = self.store.find_key_by_hmac(&key.hmac).await?;
            let is_valid = stored.is_some_and(|row| !row.is_revoked && row.valid_until.is_none_or(|until| until > now));
            for replica in &self.replicas {
                // Not a page: those have a limit per address that cannot be raised.
                let url = format!("http://{}/api/v1/market/selic/current", replica.address);
                let status = self.http.get(url).header("X-API-Key", &key.text).send().await?.status().as_u16();
                if status != if is_valid { 200 } else { 401 } {
                    return Ok(Some(format!("status {status} for key {number}, which is valid: {is_valid}")));
                }
            }
        }
        Ok(None)
    }
}

/// The first statement or filing of two snapshots that is not the same, with all that is known of it.
fn find_difference(served: &LiveSnapshot, stored: &LiveSnapshot) -> Option<String> {
    let (Some(served), Some(stored)) = (served.get(), stored.get()) else { return Some("no snapshot".to_owned()) };
    let (served_statements, stored_statements) = (statement_bodies(&served), statement_bodies(&stored));
    if served_statements != stored_statements {
        return Some(format!("{served_statements:?} for {stored_statements:?}"));
    }
    let (Some(served_filings), Some(stored_filings)) = (served.filings(), stored.filings()) else {
        return (served.filings().is_some() != stored.filings().is_some()).then(|| "filings".to_owned());
    };

    let all = FilingFilter::for_days(DateRange::ALL);
    let served_rows = served_filings.list(&all, 0, usize::MAX).rows;
    let stored_rows = stored_filings.list(&all, 0, usize::MAX).rows;
    if served_rows.len() != stored_rows.len() {
        return Some(format!("{} filings for {}", served_rows.len(), stored_rows.len()));
    }
    served_rows.into_iter().zip(stored_rows).find_map(|(served_row, stored_row)| {
        let served_filing = served_filings.get(served_row);
        let stored_filing = stored_filings.get(stored_row);
        let served_source = served.find_fetch(served_filing.filing.provenance).map(|fetch| &fetch.source_url);
        let stored_source = stored.find_fetch(stored_filing.filing.provenance).map(|fetch| &fetch.source_url);
        let is_same = served_filing == stored_filing && served_source == stored_source;
        (!is_same).then(|| format!("{served_filing:?} {served_source:?} for {stored_filing:?} {stored_source:?}"))
    })
}

fn statement_bodies(snapshot: &Snapshot) -> Option<Vec<String>> {
    let statements = snapshot.statements()?;
    let forms = statements.of_company(STATEMENT_COMPANY).iter();
    Some(forms.map(|form| statements.read_body(form).unwrap_or_else(|error| error.to_string())).collect())
}

fn open_store(postgres: &DedicatedPostgres) -> anyhow::Result<Store> {
    Ok(Store::open(&database_url(postgres), 5, Timeouts::for_workers())?)
}

fn database_url(postgres: &DedicatedPostgres) -> String {
    format!("{}/postgres", postgres.url())
}

fn path_text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path of plain characters")
}
