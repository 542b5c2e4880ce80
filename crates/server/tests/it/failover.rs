//! The primary is killed and its standby promoted. The replica's URL names both hosts, and nobody changes anything by hand.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, PgConnection};
use tokio::task::JoinHandle;
use vintem_testkit::{
    DedicatedPostgres, DedicatedRedis, QuietClock, ServerProcess, create_key_by_cli, http_client_builder, run_vintem,
    wait_until,
};

use crate::{TestResult, vintem_binary};

/// What needs PostgreSQL may fail for this long.
const MAX_READ_OUTAGE: Duration = Duration::from_secs(2);
const MAX_WRITE_OUTAGE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_standby_is_used_and_nothing_acknowledged_is_lost() -> TestResult {
    let outcome = fail_over(true).await?;
    outcome.print("synchronous");
    assert_eq!(outcome.lost_writes, 0);
    outcome.check();
    Ok(())
}

/// PostgreSQL's default. How much is lost is not ours to say, so it is printed.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_standby_is_used_without_synchronous_commit_too() -> TestResult {
    let outcome = fail_over(false).await?;
    outcome.print("asynchronous");
    outcome.check();
    Ok(())
}

struct FailoverOutcome {
    failed_market_reads: usize,
    /// From the kill to the moment when the standby accepts writes.
    promoted_after: Duration,
    /// From the kill to the last failed read of something that is in PostgreSQL.
    read_outage: Duration,
    /// From the kill to the first write.
    write_outage: Duration,
    acknowledged_writes: usize,
    lost_writes: usize,
}

impl FailoverOutcome {
    fn print(&self, name: &str) {
        println!("{name}_failed_market_reads: {}", self.failed_market_reads);
        println!("{name}_promoted_after_seconds: {:.2}", self.promoted_after.as_secs_f64());
        println!("{name}_read_outage_seconds: {:.2}", self.read_outage.as_secs_f64());
        println!("{name}_write_outage_seconds: {:.2}", self.write_outage.as_secs_f64());
        println!("{name}_acknowledged_writes: {}", self.acknowledged_writes);
        println!("{name}_lost_writes: {}", self.lost_writes);
    }

    fn check(&self) {
        assert_eq!(self.failed_market_reads, 0);
        assert!(self.read_outage <= MAX_READ_OUTAGE, "{:?}", self.read_outage);
        assert!(self.write_outage <= MAX_WRITE_OUTAGE, "{:?}", self.write_outage);
    }
}

/// When a request was sent, and whether it succeeded.
type RequestRecord = (Duration, bool);

/// Sends one request after the other until stopped, and records them all.
struct RequestLoop {
    stop: Arc<AtomicBool>,
    records: JoinHandle<Vec<RequestRecord>>,
}

impl RequestLoop {
    fn start(clock: QuietClock, mut next: impl FnMut(usize) -> reqwest::RequestBuilder + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = stop.clone();
        let records = tokio::spawn(async move {
            let mut records = Vec::new();
            while !is_stopped.load(Ordering::Relaxed) {
                let sent_at = clock.elapsed();
                let response = next(records.len()).send().await;
                records.push((sent_at, response.is_ok_and(|response| response.status().is_success())));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            records
        });
        Self { stop, records }
    }

    async fn stop(self) -> anyhow::Result<Vec<RequestRecord>> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.records.await?)
    }
}

fn email(number: usize) -> String {
    format!("{number}@failover.example")
}

async fn fail_over(is_synchronous: bool) -> anyhow::Result<FailoverOutcome> {
    let primary = DedicatedPostgres::start()?;
    let primary_database = format!("{}/postgres", primary.url());
    for command in [&["migrate"][..], &["demo", "--filings", "1000"]] {
        let (status, _, error) = run_vintem(vintem_binary(), &primary_database, command).await?;
        anyhow::ensure!(status.success(), "{command:?}: {error}");
    }
    let (_, key) = create_key_by_cli(vintem_binary(), &primary_database, "platinum").await?;
    let standby = DedicatedPostgres::start_standby(primary.port())?;
    if is_synchronous {
        commit_synchronously(&primary_database).await?;
    }

    let database = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
        primary.port(),
        standby.port()
    );
    let flags = ["--register-per-day=100000", "--limit-free=10000000", "--limit-platinum=10000000"];
    let redis = DedicatedRedis::start()?;
    let replica = ServerProcess::start(vintem_binary(), &database, &redis.url(), &flags)?;
    let http = http_client_builder().timeout(Duration::from_secs(5)).build()?;
    let clock = QuietClock::start();
    let get = |path: &str| {
        let request = http.get(replica.url(path)).header("X-API-Key", &key);
        RequestLoop::start(clock, move |_| request.try_clone().expect("a request without a body"))
    };
    let market = get("/api/v1/market/selic/current");
    let usage = get("/api/v1/plans/usage");
    let register = http.post(replica.url("/api/v1/plans/register"));
    let writes = RequestLoop::start(clock, move |number| {
        let body = json!({"name": "Failover", "email": email(number)});
        register.try_clone().expect("no body yet").json(&body)
    });

    // Each has worked for a while.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let killed_at = clock.elapsed();
    primary.kill()?;
    standby.promote()?;
    wait_until("the standby to accept writes", Duration::from_secs(20), || async {
        let Ok(mut connection) = PgConnection::connect(&format!("{}/postgres", standby.url())).await else {
            return false;
        };
        let read_only = sqlx::query_scalar("select pg_is_in_recovery()").fetch_one(&mut connection).await;
        read_only.is_ok_and(|read_only: bool| !read_only)
    })
    .await;
    let promoted_after = clock.elapsed() - killed_at;
    tokio::time::sleep(MAX_WRITE_OUTAGE).await;

    let market = market.stop().await?;
    let usage = usage.stop().await?;
    let writes = writes.stop().await?;
    let after_kill = |at: Duration| at.saturating_sub(killed_at);
    let first_write = writes.iter().find(|(sent_at, is_ok)| *sent_at > killed_at && *is_ok);
    let mut connection = PgConnection::connect(&format!("{}/postgres", standby.url())).await?;
    let stored: Vec<String> = sqlx::query_scalar("select email from api_key where email like '%@failover.example'")
        .fetch_all(&mut connection)
        .await?;
    let stored: HashSet<String> = stored.into_iter().collect();
    let acknowledged = || writes.iter().enumerate().filter(|(_, (_, is_ok))| *is_ok).map(|(number, _)| number);
    Ok(FailoverOutcome {
        failed_market_reads: market.iter().filter(|(_, is_ok)| !is_ok).count(),
        promoted_after,
        read_outage: usage.iter().filter(|(_, is_ok)| !is_ok).map(|(at, _)| after_kill(*at)).max().unwrap_or_default(),
        write_outage: first_write.map_or(Duration::MAX, |(at, _)| after_kill(*at)),
        acknowledged_writes: acknowledged().count(),
        lost_writes: acknowledged().filter(|number| !stored.contains(&email(*number))).count(),
    })
}

/// From now on a commit is acknowledged only when the standby has applied it.
async fn commit_synchronously(primary_database: &str) -> TestResult {
    let mut connection = PgConnection::connect(primary_database).await?;
    for statement in [
        "alter system set synchronous_standby_names = '*'",
        "alter system set synchronous_commit = 'remote_apply'",
        "select pg_reload_conf()",
    ] {
        sqlx::raw_sql(statement).execute(&mut connection).await?;
    }
    wait_until("a synchronous standby", Duration::from_secs(20), || async {
        let Ok(mut connection) = PgConnection::connect(primary_database).await else { return false };
        let count = sqlx::query_scalar("select count(*) from pg_stat_replication where sync_state = 'sync'")
            .fetch_one(&mut connection)
            .await;
        count.is_ok_and(|count: i64| count == 1)
    })
    .await;
    Ok(())
}
