//! Replicas, Redis and PostgreSQL that are killed, stopped or cut off under load. The client records every request, so that
//! it can be compared with the usage that the service reports.
//!
//! Redis and PostgreSQL fail one at a time or both at once, but a replica is killed only while both are up. That rules out
//! the one possible loss: a replica is killed before it could store the usage that it counted locally while Redis was
//! unavailable.

mod soak;
mod usage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::{Connection, PgConnection};
use vintem_testkit::background_load::{BackgroundLoad, PlannedRequest, RequestRecord};
use vintem_testkit::{
    DedicatedPostgres, DedicatedRedis, ServerProcess, TcpProxy, create_key_by_cli, find_free_port, http_client_builder,
    run_vintem, wait_until,
};

use crate::{TestResult, vintem_binary};

const REPLICA_COUNT: usize = 3;
/// Platinum keys, which never reach their limit.
const UNLIMITED_KEYS: usize = 26;
/// Bronze keys, which are refused now and then.
const LIMITED_KEYS: usize = 4;
const WINDOW_SECONDS: u64 = 5;
const OUTCOME_FIELDS: [&str; 4] = ["successful", "client_errors", "rate_limited", "server_errors"];
const REQUEST_PATHS: [&str; 7] = [
    "/api/v1/market/selic/current",
    "/api/v1/market/overview",
    "/api/v1/companies?limit=2",
    "/api/v1/companies/99999999",
    "/api/v1/market/selic?limit=x",
    "/api/v1/nothing",
    "/api/v1/filings?limit=2",
];

fn outcome_index(status: u16) -> usize {
    match status {
        429 => 2,
        400..500 => 1,
        500.. => 3,
        _ => 0,
    }
}

/// The requests of one key as the client recorded them.
#[derive(Debug, Clone, Default)]
struct KeyTally {
    sent: u64,
    answered_by_outcome: [u64; 4],
}

fn add_to_tallies(tallies: &mut [KeyTally], records: &[RequestRecord]) {
    for record in records {
        let tally = &mut tallies[record.caller];
        tally.sent += 1;
        // A replica that could not look the key up limits the caller's address on Free, and the key's usage does not
        // include that request. No key here is on Free.
        if let Some(response) = record.response.as_ref().filter(|response| response.plan != "free") {
            tally.answered_by_outcome[outcome_index(response.status)] += 1;
        }
    }
}

/// Whether each response is counted under its outcome.
fn matches_every_outcome(usage: &Value, tally: &KeyTally) -> bool {
    let counted = OUTCOME_FIELDS.map(|field| usage[field].as_u64().unwrap_or_default());
    counted == tally.answered_by_outcome && usage["requests"] == tally.sent
}

/// Whether at least as many requests are counted as were answered.
fn covers_all_answered(usage: &Value, tally: &KeyTally) -> bool {
    usage["requests"].as_u64().unwrap_or_default() >= tally.answered_by_outcome.iter().sum()
}

fn total_sent_and_answered(tallies: &[KeyTally]) -> (u64, u64) {
    let answered = |tally: &KeyTally| tally.answered_by_outcome.iter().sum::<u64>();
    (tallies.iter().map(|tally| tally.sent).sum(), tallies.iter().map(answered).sum())
}

/// What makes Redis or PostgreSQL unavailable.
#[derive(Debug, Clone, Copy)]
enum BackendFault {
    RedisKilled,
    RedisStopped,
    RedisCutOff,
    PostgresKilled,
    PostgresCutOff,
}

/// Each as often as it is here.
const REDIS_FAULTS: [BackendFault; 4] =
    [BackendFault::RedisKilled, BackendFault::RedisKilled, BackendFault::RedisStopped, BackendFault::RedisCutOff];
const POSTGRES_FAULTS: [BackendFault; 3] =
    [BackendFault::PostgresKilled, BackendFault::PostgresKilled, BackendFault::PostgresCutOff];

fn random_fault(faults: &[BackendFault]) -> BackendFault {
    faults[rand::random_range(0..faults.len())]
}

impl BackendFault {
    const fn name(self) -> &'static str {
        match self {
            Self::RedisKilled => "redis_killed",
            Self::RedisStopped => "redis_stopped",
            Self::RedisCutOff => "redis_cut_off",
            Self::PostgresKilled => "postgres_killed",
            Self::PostgresCutOff => "postgres_cut_off",
        }
    }

    fn random_downtime(self) -> Duration {
        let seconds = match self {
            Self::RedisKilled | Self::PostgresKilled => 0.05..0.5,
            Self::RedisStopped | Self::RedisCutOff | Self::PostgresCutOff => 1.0..2.0,
        };
        Duration::from_secs_f64(rand::random_range(seconds))
    }
}

struct ChaosHarness {
    requests_per_second: u32,
    replicas: Vec<ServerProcess>,
    is_up: Arc<[AtomicBool; REPLICA_COUNT]>,
    flags_by_replica: Vec<Vec<String>>,
    keys: Vec<String>,
    /// Its usage is not compared.
    peak_key: String,
    http: reqwest::Client,
    fault_counts: BTreeMap<&'static str, u32>,
    redis_proxy: TcpProxy,
    postgres_proxy: TcpProxy,
    redis: DedicatedRedis,
    postgres: DedicatedPostgres,
}

impl ChaosHarness {
    async fn start_cluster(requests_per_second: u32) -> anyhow::Result<Self> {
        let redis = DedicatedRedis::start_persistent()?;
        let postgres = DedicatedPostgres::start()?;
        let redis_proxy = TcpProxy::start(redis.port()).await?;
        let postgres_proxy = TcpProxy::start(postgres.port()).await?;

        let database = format!("{}/postgres", postgres.url());
        for command in [&["migrate"][..], &["demo", "--filings", "1000"]] {
            let (status, _, error) = run_vintem(vintem_binary(), &database, command).await?;
            anyhow::ensure!(status.success(), "{command:?}: {error}");
        }
        let mut keys = Vec::new();
        for plan in [["platinum"; UNLIMITED_KEYS].as_slice(), &["bronze"; LIMITED_KEYS]].concat() {
            keys.push(create_key_by_cli(vintem_binary(), &database, plan).await?.1);
        }
        let peak_key = create_key_by_cli(vintem_binary(), &database, "platinum").await?.1;

        let mut flags_by_replica = Vec::new();
        for _ in 0..REPLICA_COUNT {
            flags_by_replica.push(vec![
                "--limit-platinum=10000000".to_owned(),
                "--limit-bronze=20".to_owned(),
                format!("--limit-window-seconds={WINDOW_SECONDS}"),
                // Fixed, so that a restarted replica has the same port.
                format!("--listen=127.0.0.1:{}", find_free_port()?),
            ]);
        }

        let is_up = Arc::new([const { AtomicBool::new(true) }; REPLICA_COUNT]);
        let http = http_client_builder().timeout(Duration::from_secs(20)).build()?;
        let mut harness = Self {
            requests_per_second,
            replicas: Vec::new(),
            is_up,
            flags_by_replica,
            keys,
            peak_key,
            http,
            fault_counts: BTreeMap::new(),
            redis_proxy,
            postgres_proxy,
            redis,
            postgres,
        };
        for replica in 0..REPLICA_COUNT {
            harness.replicas.push(harness.start_replica(replica)?);
        }
        Ok(harness)
    }

    fn start_replica(&self, replica: usize) -> anyhow::Result<ServerProcess> {
        let database = format!("postgres://postgres@127.0.0.1:{}/postgres", self.postgres_proxy.port());
        let redis = format!("redis://127.0.0.1:{}", self.redis_proxy.port());
        let flags: Vec<&str> = self.flags_by_replica[replica].iter().map(String::as_str).collect();
        let budgets = [("VINTEM_REDIS_BUDGET_MS", redis_budget_ms()), ("VINTEM_POSTGRES_BUDGET_MS", "500")];
        ServerProcess::start_with_env(vintem_binary(), &database, &redis, &flags, &budgets)
    }

    fn start_load(&self) -> BackgroundLoad {
        let addresses: Vec<String> = self.replicas.iter().map(|replica| replica.url("")).collect();
        let http = self.http.clone();
        let keys = self.keys.clone();
        let is_up = self.is_up.clone();

        BackgroundLoad::start(self.requests_per_second, move || {
            let caller = rand::random_range(0..keys.len());
            let replica = rand::random_range(0..REPLICA_COUNT);
            let path = REQUEST_PATHS[rand::random_range(0..REQUEST_PATHS.len())];
            let request = http.get(format!("{}{path}", addresses[replica])).header("X-API-Key", &keys[caller]);
            is_up[replica].load(Ordering::Acquire).then_some(PlannedRequest { caller, replica, request })
        })
    }

    /// Makes Redis or PostgreSQL unavailable for a moment, or both at overlapping times, then waits a moment.
    async fn inject_backend_fault(&mut self) -> TestResult {
        let faults = match rand::random_range(0..3) {
            0 => vec![random_fault(&REDIS_FAULTS)],
            1 => vec![random_fault(&POSTGRES_FAULTS)],
            _ => vec![random_fault(&REDIS_FAULTS), random_fault(&POSTGRES_FAULTS)],
        };
        if faults.len() > 1 {
            *self.fault_counts.entry("at_the_same_time").or_default() += 1;
        }
        for fault in &faults {
            *self.fault_counts.entry(fault.name()).or_default() += 1;
        }

        let harness = &*self;
        let disturb = async |fault: BackendFault| {
            tokio::time::sleep(Duration::from_secs_f64(rand::random_range(0.0..0.3))).await;
            harness.begin_fault(fault)?;
            tokio::time::sleep(fault.random_downtime()).await;
            harness.end_fault(fault)
        };
        for result in futures_util::future::join_all(faults.into_iter().map(disturb)).await {
            result?;
        }
        tokio::time::sleep(Duration::from_secs_f64(rand::random_range(0.2..0.8))).await;
        Ok(())
    }

    fn begin_fault(&self, fault: BackendFault) -> TestResult {
        match fault {
            BackendFault::RedisKilled => self.redis.kill()?,
            BackendFault::RedisStopped => self.redis.pause()?,
            BackendFault::RedisCutOff => self.redis_proxy.cut(),
            BackendFault::PostgresKilled => self.postgres.kill()?,
            BackendFault::PostgresCutOff => self.postgres_proxy.cut(),
        }
        Ok(())
    }

    fn end_fault(&self, fault: BackendFault) -> TestResult {
        match fault {
            BackendFault::RedisKilled => self.redis.launch()?,
            BackendFault::RedisStopped => self.redis.resume()?,
            BackendFault::RedisCutOff => self.redis_proxy.restore(),
            BackendFault::PostgresKilled => self.postgres.launch()?,
            BackendFault::PostgresCutOff => self.postgres_proxy.restore(),
        }
        Ok(())
    }

    /// Kills a replica at a random point of its work, which includes draining usage, and restarts it.
    async fn kill_and_restart_replica(&mut self) -> TestResult {
        self.kill_and_restart(rand::random_range(0..REPLICA_COUNT)).await
    }

    async fn kill_and_restart(&mut self, replica: usize) -> TestResult {
        *self.fault_counts.entry("replica_killed").or_default() += 1;

        // A CPU stall looks like a Redis outage, so the replica may have local counts that a kill would lose. It is asked
        // last, because others take a while to answer on a busy machine.
        loop {
            self.wait_until_counts_shared().await;
            let kept = self.replicas[replica].fetch_metric(&self.http, "vintem_usage_kept").await;
            if matches!(kept, Ok(Some(0.0))) {
                break;
            }
        }

        // The load avoids this replica only after the kill: requests in flight by then may or may not be counted.
        self.replicas[replica].kill()?;
        self.is_up[replica].store(false, Ordering::Release);
        self.replicas[replica] = self.start_replica(replica)?;
        self.is_up[replica].store(true, Ordering::Release);

        tokio::time::sleep(Duration::from_secs_f64(rand::random_range(0.2..0.8))).await;
        Ok(())
    }

    /// Waits until the replicas have stored their local counts and share counts again.
    async fn wait_until_counts_shared(&self) {
        wait_until("all count together and keep nothing", Duration::from_secs(30), || async {
            self.all_metrics_equal("vintem_meter_shared{server=\"0\"}", 1.0).await
                && self.all_metrics_equal("vintem_usage_kept", 0.0).await
        })
        .await;
    }

    async fn all_metrics_equal(&self, metric: &str, value: f64) -> bool {
        for replica in &self.replicas {
            if !matches!(replica.fetch_metric(&self.http, metric).await, Ok(Some(reported)) if reported == value) {
                return false;
            }
        }
        true
    }

    /// Waits until all counts are stored and nothing is left to drain. Returns the deadline by which the reported usage
    /// must be right.
    async fn wait_until_drained(&self) -> Instant {
        self.wait_until_counts_shared().await;
        let is_drained = || async { self.pending_counts_in_redis().is_ok_and(|left| left == 0) };
        wait_until("nothing is left in Redis", Duration::from_secs(20), is_drained).await;
        Instant::now() + Duration::from_secs(20)
    }

    /// Compares the usage of every key with what the client recorded: how many answered requests are missing from it, and
    /// how many more it has than were sent.
    async fn count_lost_and_doubled(&self, tallies: &mut [KeyTally]) -> anyhow::Result<(u64, u64)> {
        let deadline = self.wait_until_drained().await;
        let mut lost = 0;
        let mut doubled = 0;
        for (key, tally) in tallies.iter_mut().enumerate() {
            let usage = self.poll_usage_until(key, tally, covers_all_answered, deadline).await?;
            let counted = usage["requests"].as_u64().unwrap_or_default();
            lost += tally.answered_by_outcome.iter().sum::<u64>().saturating_sub(counted);
            doubled += counted.saturating_sub(tally.sent);
        }
        Ok((lost, doubled))
    }

    /// The number of counts in Redis that are not stored yet, plus the number of closed batches.
    fn pending_counts_in_redis(&self) -> anyhow::Result<u64> {
        let mut left = 0;
        for chunk in self.redis.run_command::<Vec<String>>(&["KEYS", "*usage:chunk:*"])? {
            left += self.redis.run_command::<u64>(&["HLEN", &chunk])?;
        }
        for closed in self.redis.run_command::<Vec<String>>(&["KEYS", "*usage:closed"])? {
            left += self.redis.run_command::<u64>(&["LLEN", &closed])?;
        }
        Ok(left)
    }

    /// Fetches the key's usage until it is right or the deadline has passed: a replica records its last outcomes with a
    /// small delay.
    async fn poll_usage_until(
        &self,
        key: usize,
        tally: &mut KeyTally,
        is_right: fn(&Value, &KeyTally) -> bool,
        deadline: Instant,
    ) -> anyhow::Result<Value> {
        loop {
            let usage = self.fetch_complete_usage(key, tally).await?;
            if is_right(&usage, tally) || Instant::now() > deadline {
                return Ok(usage);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Fetches the key's usage until the response says that it is complete. The usage includes these requests, so they
    /// are added to the tally too.
    async fn fetch_complete_usage(&self, key: usize, tally: &mut KeyTally) -> anyhow::Result<Value> {
        let started = Instant::now();
        loop {
            let request = self.http.get(self.replicas[0].url("/api/v1/plans/usage"));
            let response = request.header("X-API-Key", &self.keys[key]).send().await?;
            let status = response.status().as_u16();
            tally.sent += 1;
            tally.answered_by_outcome[outcome_index(status)] += 1;

            let usage: Value = response.json().await?;
            if status == 200 && usage["complete"] == true {
                return sum_daily_counts(&usage);
            }
            anyhow::ensure!(started.elapsed() < Duration::from_secs(30), "usage is answered by {status}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn stored_chunk_count(&self) -> anyhow::Result<i64> {
        let mut connection = PgConnection::connect(&format!("{}/postgres", self.postgres.url())).await?;
        Ok(sqlx::query_scalar("select count(*) from usage_chunk").fetch_one(&mut connection).await?)
    }

    fn kill_count(&self) -> u32 {
        self.fault_counts.iter().filter(|(name, _)| name.ends_with("killed")).map(|(_, count)| count).sum()
    }
}

/// At length as in production: many requests are then decided both in Redis and locally, and must count once. In its short
/// form the test shares a busy machine, which stops a process for longer than that at any moment. A replica that is killed
/// right then has counted locally, and a kill cannot be taken back.
fn redis_budget_ms() -> &'static str {
    let runs_at_length =
        ["VINTEM_CHAOS_MINUTES", "VINTEM_SOAK_MINUTES"].iter().any(|name| std::env::var_os(name).is_some());
    if runs_at_length { "25" } else { "250" }
}

/// Sums the counts of all days, because a run may go past midnight.
fn sum_daily_counts(body: &Value) -> anyhow::Result<Value> {
    let days = body["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = OUTCOME_FIELDS.iter().copied().chain(["requests", "unfinished"]);
    let sum = |name: &str| days.iter().filter_map(|day| day[name].as_u64()).sum::<u64>();
    Ok(names.map(|name| (name.to_owned(), Value::from(sum(name)))).collect())
}
