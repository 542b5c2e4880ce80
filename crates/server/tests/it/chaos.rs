//! Usage is neither lost nor counted twice, whatever is killed, stopped or cut off. `just chaos` goes on for ten minutes.
//!
//! A client's journal says what was answered and what was sent. What was answered must be counted; what was sent but not
//! answered, as its replica was killed, may be. One fault ends before the next begins: the one loss that is possible is
//! what a replica has counted by itself while Redis was away, when it is killed before it could store that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::{Connection, PgConnection};
use vintem_testkit::background_load::{BackgroundLoad, PlannedRequest, RequestRecord};
use vintem_testkit::{
    DedicatedPostgres, DedicatedRedis, ServerProcess, TcpProxy, create_key_by_cli, find_free_port, http_client_builder,
    parse_env_var, run_vintem, wait_until,
};

use crate::{TestResult, vintem_binary};

const REPLICA_COUNT: usize = 3;
/// Keys that no limit holds back, and some that are refused now and then.
const UNLIMITED_KEYS: usize = 26;
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

/// What the journal knows of a key.
#[derive(Debug, Clone, Default)]
struct KeyTally {
    sent: u64,
    answered_by_outcome: [u64; 4],
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_replicas_redis_and_postgres_neither_loses_nor_doubles_usage() -> TestResult {
    let minutes: Option<u64> = parse_env_var("VINTEM_CHAOS_MINUTES");
    let time = minutes.map_or(Duration::from_secs(56), |minutes| Duration::from_secs(60 * minutes));
    let rate = if minutes.is_some() { 1_500 } else { 200 };
    let mut stage = ChaosHarness::start_cluster(rate).await?;
    let mut accounts = vec![KeyTally::default(); UNLIMITED_KEYS + LIMITED_KEYS];

    // While no replica is killed every request is answered, and counted as what it was answered with.
    let load = stage.start_load();
    let until = Instant::now() + time / 4;
    while Instant::now() < until {
        stage.inject_backend_fault().await?;
    }
    record_entries(&mut accounts, &load.stop().await?);
    let (sent, answered) = total_sent_and_answered(&accounts);
    println!("sent_while_replicas_live: {sent}");
    assert_eq!(sent, answered, "some were not answered although no replica was killed");
    let right_until = stage.wait_until_drained().await;
    for (key, account) in accounts.iter_mut().enumerate() {
        let told = stage.poll_usage_until(key, account, matches_every_outcome, right_until).await?;
        let classes = OUTCOME_FIELDS.map(|class| told[class].as_u64().unwrap_or_default());
        assert_eq!(classes, account.answered_by_outcome, "key {key}: {OUTCOME_FIELDS:?}, {told}");
        assert_eq!(
            (&told["requests"], &told["unfinished"]),
            (&Value::from(account.sent), &Value::from(0)),
            "key {key}"
        );
    }

    let load = stage.start_load();
    let until = Instant::now() + time * 3 / 4;
    while Instant::now() < until {
        for _ in 0..3 {
            stage.inject_backend_fault().await?;
        }
        stage.wait_until_counts_shared().await;
        for _ in 0..3 {
            stage.kill_and_restart_replica().await?;
        }
    }
    record_entries(&mut accounts, &load.stop().await?);
    let right_until = stage.wait_until_drained().await;
    let (mut lost, mut doubled) = (0, 0);
    for (key, account) in accounts.iter_mut().enumerate() {
        let told = stage.poll_usage_until(key, account, covers_all_answered, right_until).await?;
        let counted = told["requests"].as_u64().unwrap_or_default();
        lost += account.answered_by_outcome.iter().sum::<u64>().saturating_sub(counted);
        doubled += counted.saturating_sub(account.sent);
    }
    let (sent, answered) = total_sent_and_answered(&accounts);
    let by_class = |class: usize| accounts.iter().map(|account| account.answered_by_outcome[class]).sum::<u64>();
    println!("sent: {sent}");
    println!("answered: {answered}");
    println!("not_answered: {}", sent - answered);
    for (class, name) in OUTCOME_FIELDS.iter().enumerate() {
        println!("answered_{name}: {}", by_class(class));
    }
    println!("batches_in_the_ledger: {}", stage.ledger_batch_count().await?);
    println!("faults: {:?}", stage.fault_counts);
    println!("kills: {}", stage.kill_count());
    println!("lost: {lost}");
    println!("doubled: {doubled}");
    assert_eq!((lost, doubled), (0, 0));
    let least = minutes.map_or(10, |minutes| 20 * minutes as u32);
    assert!(stage.kill_count() >= least, "only {} kills", stage.kill_count());
    Ok(())
}

fn record_entries(accounts: &mut [KeyTally], entries: &[RequestRecord]) {
    for entry in entries {
        let account = &mut accounts[entry.caller];
        account.sent += 1;
        // What a replica could not lay to a key, as it did not know it yet, is not its usage; no key here is a free one.
        if let Some(answer) = entry.response.as_ref().filter(|answer| answer.plan != "free") {
            account.answered_by_outcome[outcome_index(answer.status)] += 1;
        }
    }
}

/// Whether each answer is counted as what it was.
fn matches_every_outcome(told: &Value, account: &KeyTally) -> bool {
    let classes = OUTCOME_FIELDS.map(|class| told[class].as_u64().unwrap_or_default());
    classes == account.answered_by_outcome && told["requests"] == account.sent
}

/// Whether as much is counted as was answered.
fn covers_all_answered(told: &Value, account: &KeyTally) -> bool {
    told["requests"].as_u64().unwrap_or_default() >= account.answered_by_outcome.iter().sum()
}

fn total_sent_and_answered(accounts: &[KeyTally]) -> (u64, u64) {
    let answered = |account: &KeyTally| account.answered_by_outcome.iter().sum::<u64>();
    (accounts.iter().map(|account| account.sent).sum(), accounts.iter().map(answered).sum())
}

struct ChaosHarness {
    requests_per_second: u32,
    replicas: Vec<ServerProcess>,
    is_up: Arc<[AtomicBool; REPLICA_COUNT]>,
    flags_by_replica: Vec<Vec<String>>,
    keys: Vec<String>,
    http: reqwest::Client,
    fault_counts: BTreeMap<&'static str, u32>,
    redis_proxy: TcpProxy,
    postgres_proxy: TcpProxy,
    redis: DedicatedRedis,
    postgres: DedicatedPostgres,
}

impl ChaosHarness {
    async fn start_cluster(rate: u32) -> anyhow::Result<Self> {
        let (redis, postgres) = (DedicatedRedis::start_persistent()?, DedicatedPostgres::start()?);
        let (redis_wire, postgres_wire) =
            (TcpProxy::start(redis.port()).await?, TcpProxy::start(postgres.port()).await?);
        let database = format!("{}/postgres", postgres.url());
        for command in [&["migrate"][..], &["demo", "--filings", "1000"]] {
            let (status, _, error) = run_vintem(vintem_binary(), &database, command).await?;
            anyhow::ensure!(status.success(), "{command:?}: {error}");
        }
        let mut keys = Vec::new();
        for plan in [["platinum"; UNLIMITED_KEYS].as_slice(), &["bronze"; LIMITED_KEYS]].concat() {
            keys.push(create_key_by_cli(vintem_binary(), &database, plan).await?.1);
        }
        let mut flags = Vec::new();
        for _ in 0..REPLICA_COUNT {
            flags.push(vec![
                "--limit-platinum=10000000".to_owned(),
                "--limit-bronze=20".to_owned(),
                format!("--limit-window-seconds={WINDOW_SECONDS}"),
                // The same port again after a kill.
                format!("--listen=127.0.0.1:{}", find_free_port()?),
            ]);
        }
        let is_up = Arc::new([const { AtomicBool::new(true) }; REPLICA_COUNT]);
        let http = http_client_builder().timeout(Duration::from_secs(20)).build()?;
        let mut stage = Self {
            requests_per_second: rate,
            replicas: Vec::new(),
            is_up,
            flags_by_replica: flags,
            keys,
            http,
            fault_counts: BTreeMap::new(),
            redis_proxy: redis_wire,
            postgres_proxy: postgres_wire,
            redis,
            postgres,
        };
        for replica in 0..REPLICA_COUNT {
            stage.replicas.push(stage.start_replica(replica)?);
        }
        Ok(stage)
    }

    fn start_replica(&self, replica: usize) -> anyhow::Result<ServerProcess> {
        let database = format!("postgres://postgres@127.0.0.1:{}/postgres", self.postgres_proxy.port());
        let redis = format!("redis://127.0.0.1:{}", self.redis_proxy.port());
        let flags: Vec<&str> = self.flags_by_replica[replica].iter().map(String::as_str).collect();
        // As impatient as it is where it is in earnest: much is then decided and counted twice, and must count once.
        let budgets = [("VINTEM_REDIS_BUDGET_MS", "25"), ("VINTEM_POSTGRES_BUDGET_MS", "500")];
        ServerProcess::start_with_env(vintem_binary(), &database, &redis, &flags, &budgets)
    }

    fn start_load(&self) -> BackgroundLoad {
        let addresses: Vec<String> = self.replicas.iter().map(|replica| replica.url("")).collect();
        let (http, keys, is_up) = (self.http.clone(), self.keys.clone(), self.is_up.clone());
        BackgroundLoad::start(self.requests_per_second, move || {
            let (caller, replica) = (rand::random_range(0..keys.len()), rand::random_range(0..REPLICA_COUNT));
            let path = REQUEST_PATHS[rand::random_range(0..REQUEST_PATHS.len())];
            let request = http.get(format!("{}{path}", addresses[replica])).header("X-API-Key", &keys[caller]);
            is_up[replica].load(Ordering::Acquire).then_some(PlannedRequest { caller, replica, request })
        })
    }

    /// Takes Redis or PostgreSQL away and brings it back.
    async fn inject_backend_fault(&mut self) -> TestResult {
        let kinds = [
            "redis_killed",
            "redis_killed",
            "postgres_killed",
            "postgres_killed",
            "redis_stopped",
            "redis_cut_off",
            "postgres_cut_off",
        ];
        let kind = kinds[rand::random_range(0..kinds.len())];
        *self.fault_counts.entry(kind).or_default() += 1;
        let away = Duration::from_secs_f64(rand::random_range(0.05..0.5));
        let long_away = Duration::from_secs_f64(rand::random_range(1.0..2.0));
        match kind {
            "redis_killed" => {
                self.redis.kill()?;
                tokio::time::sleep(away).await;
                self.redis.launch()?;
            }
            "redis_stopped" => {
                self.redis.pause()?;
                tokio::time::sleep(long_away).await;
                self.redis.resume()?;
            }
            "redis_cut_off" => {
                self.redis_proxy.cut();
                tokio::time::sleep(long_away).await;
                self.redis_proxy.restore();
            }
            "postgres_killed" => {
                self.postgres.kill()?;
                tokio::time::sleep(away).await;
                self.postgres.launch()?;
            }
            _ => {
                self.postgres_proxy.cut();
                tokio::time::sleep(long_away).await;
                self.postgres_proxy.restore();
            }
        }
        tokio::time::sleep(Duration::from_secs_f64(rand::random_range(0.2..0.8))).await;
        Ok(())
    }

    /// Kills a replica, and so one of those that drain usage, wherever in it all it just is; and starts it anew.
    async fn kill_and_restart_replica(&mut self) -> TestResult {
        let replica = rand::random_range(0..REPLICA_COUNT);
        *self.fault_counts.entry("replica_killed").or_default() += 1;
        // A machine that stands still for a moment is a Redis that is away for it.
        self.wait_until_counts_shared().await;
        // Only then is it asked no more: what it is killed with in its hands is what may or may not be counted.
        self.replicas[replica].kill()?;
        self.is_up[replica].store(false, Ordering::Release);
        self.replicas[replica] = self.start_replica(replica)?;
        self.is_up[replica].store(true, Ordering::Release);
        tokio::time::sleep(Duration::from_secs_f64(rand::random_range(0.2..0.8))).await;
        Ok(())
    }

    /// Waits until what replicas counted by themselves is stored, and they count together again.
    async fn wait_until_counts_shared(&self) {
        wait_until("all count together and keep nothing", Duration::from_secs(30), || async {
            self.all_metrics_equal("vintem_meter_shared{server=\"0\"}", 1.0).await
                && self.all_metrics_equal("vintem_usage_kept", 0.0).await
        })
        .await;
    }

    async fn all_metrics_equal(&self, metric: &str, value: f64) -> bool {
        for replica in &self.replicas {
            if !matches!(replica.fetch_metric(&self.http, metric).await, Ok(Some(told)) if told == value) {
                return false;
            }
        }
        true
    }

    /// Waits until all that was counted is stored, and nothing is left to drain. By the instant that it returns all usage
    /// must be told.
    async fn wait_until_drained(&self) -> Instant {
        self.wait_until_counts_shared().await;
        let is_drained = || async { self.pending_counts_in_redis().is_ok_and(|left| left == 0) };
        wait_until("nothing is left in Redis", Duration::from_secs(20), is_drained).await;
        Instant::now() + Duration::from_secs(20)
    }

    /// How many counts wait in Redis, and how many batches of them.
    fn pending_counts_in_redis(&self) -> anyhow::Result<u64> {
        let mut left = 0;
        for batch in self.redis.run_command::<Vec<String>>(&["KEYS", "*usage:batch:*"])? {
            left += self.redis.run_command::<u64>(&["HLEN", &batch])?;
        }
        for pending in self.redis.run_command::<Vec<String>>(&["KEYS", "*usage:pending"])? {
            left += self.redis.run_command::<u64>(&["LLEN", &pending])?;
        }
        Ok(left)
    }

    /// What is told of the key's one day once it is right, or is not after a while: the last outcomes of a replica are on
    /// their way for a moment.
    async fn poll_usage_until(
        &self,
        key: usize,
        account: &mut KeyTally,
        is_right: fn(&Value, &KeyTally) -> bool,
        until: Instant,
    ) -> anyhow::Result<Value> {
        loop {
            let told = self.fetch_complete_usage(key, account).await?;
            if is_right(&told, account) || Instant::now() > until {
                return Ok(told);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// What is told of the key's one day once it is said to be complete, the asking itself included, which enters the
    /// account too.
    async fn fetch_complete_usage(&self, key: usize, account: &mut KeyTally) -> anyhow::Result<Value> {
        let began = Instant::now();
        loop {
            let request = self.http.get(self.replicas[0].url("/api/v1/plans/usage"));
            let answer = request.header("X-API-Key", &self.keys[key]).send().await?;
            let status = answer.status().as_u16();
            account.sent += 1;
            account.answered_by_outcome[outcome_index(status)] += 1;
            let told: Value = answer.json().await?;
            if status == 200 && told["complete"] == true {
                return sum_daily_counts(&told);
            }
            anyhow::ensure!(began.elapsed() < Duration::from_secs(30), "usage is answered by {status}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn ledger_batch_count(&self) -> anyhow::Result<i64> {
        let mut connection = PgConnection::connect(&format!("{}/postgres", self.postgres.url())).await?;
        Ok(sqlx::query_scalar("select count(*) from usage_ledger").fetch_one(&mut connection).await?)
    }

    fn kill_count(&self) -> u32 {
        self.fault_counts.iter().filter(|(name, _)| name.ends_with("killed")).map(|(_, count)| count).sum()
    }
}

/// A run may go past midnight.
fn sum_daily_counts(body: &Value) -> anyhow::Result<Value> {
    let days = body["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = OUTCOME_FIELDS.iter().copied().chain(["requests", "unfinished"]);
    let sum = |name: &str| days.iter().filter_map(|day| day[name].as_u64()).sum::<u64>();
    Ok(names.map(|name| (name.to_owned(), Value::from(sum(name)))).collect())
}
