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
use vintem_testkit::journal::{Ask, Entry, Load};
use vintem_testkit::{
    OwnPostgres, OwnRedis, ServedProcess, Wire, asked_for, eventually, free_port, http_client, make_key, run_vintem,
};

use crate::{Outcome, binary};

const REPLICAS: usize = 3;
/// Keys that no limit holds back, and some that are refused now and then.
const ROOMY: usize = 26;
const TIGHT: usize = 4;
const WINDOW_SECONDS: u64 = 5;
const CLASSES: [&str; 4] = ["successful", "client_errors", "rate_limited", "server_errors"];
const PATHS: [&str; 7] = [
    "/api/v1/market/selic/current",
    "/api/v1/market/overview",
    "/api/v1/companies?limit=2",
    "/api/v1/companies/99999999",
    "/api/v1/market/selic?limit=x",
    "/api/v1/nothing",
    "/api/v1/filings?limit=2",
];

fn class(status: u16) -> usize {
    match status {
        429 => 2,
        400..500 => 1,
        500.. => 3,
        _ => 0,
    }
}

/// What the journal knows of a key.
#[derive(Debug, Clone, Default)]
struct Account {
    sent: u64,
    answered: [u64; 4],
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_replicas_redis_and_postgres_lose_no_usage_and_double_none() -> Outcome {
    let minutes: Option<u64> = asked_for("VINTEM_CHAOS_MINUTES");
    let time = minutes.map_or(Duration::from_secs(56), |minutes| Duration::from_secs(60 * minutes));
    let rate = if minutes.is_some() { 1_500 } else { 200 };
    let mut stage = Stage::set(rate).await?;
    let mut accounts = vec![Account::default(); ROOMY + TIGHT];

    // While no replica is killed every request is answered, and counted as what it was answered with.
    let load = stage.load();
    let until = Instant::now() + time / 4;
    while Instant::now() < until {
        stage.engine_fault().await?;
    }
    enter(&mut accounts, &load.stop().await?);
    let (sent, answered) = totals(&accounts);
    println!("sent_while_replicas_live: {sent}");
    assert_eq!(sent, answered, "some were not answered although no replica was killed");
    let right_until = stage.quiesce().await;
    for (key, account) in accounts.iter_mut().enumerate() {
        let told = stage.usage_once(key, account, is_all_told, right_until).await?;
        let classes = CLASSES.map(|class| told[class].as_u64().unwrap_or_default());
        assert_eq!(classes, account.answered, "key {key}: {CLASSES:?}, {told}");
        assert_eq!(
            (&told["requests"], &told["unfinished"]),
            (&Value::from(account.sent), &Value::from(0)),
            "key {key}"
        );
    }

    let load = stage.load();
    let until = Instant::now() + time * 3 / 4;
    while Instant::now() < until {
        for _ in 0..3 {
            stage.engine_fault().await?;
        }
        stage.settle().await;
        for _ in 0..3 {
            stage.replica_fault().await?;
        }
    }
    enter(&mut accounts, &load.stop().await?);
    let right_until = stage.quiesce().await;
    let (mut lost, mut doubled) = (0, 0);
    for (key, account) in accounts.iter_mut().enumerate() {
        let told = stage.usage_once(key, account, is_answered_told, right_until).await?;
        let counted = told["requests"].as_u64().unwrap_or_default();
        lost += account.answered.iter().sum::<u64>().saturating_sub(counted);
        doubled += counted.saturating_sub(account.sent);
    }
    let (sent, answered) = totals(&accounts);
    let by_class = |class: usize| accounts.iter().map(|account| account.answered[class]).sum::<u64>();
    println!("sent: {sent}");
    println!("answered: {answered}");
    println!("not_answered: {}", sent - answered);
    for (class, name) in CLASSES.iter().enumerate() {
        println!("answered_{name}: {}", by_class(class));
    }
    println!("batches_in_the_ledger: {}", stage.batches().await?);
    println!("faults: {:?}", stage.faults);
    println!("kills: {}", stage.kills());
    println!("lost: {lost}");
    println!("doubled: {doubled}");
    assert_eq!((lost, doubled), (0, 0));
    let least = minutes.map_or(10, |minutes| 20 * minutes as u32);
    assert!(stage.kills() >= least, "only {} kills", stage.kills());
    Ok(())
}

fn enter(accounts: &mut [Account], entries: &[Entry]) {
    for entry in entries {
        let account = &mut accounts[entry.caller];
        account.sent += 1;
        // What a replica could not lay to a key, as it did not know it yet, is not its usage; no key here is a free one.
        if let Some(answer) = entry.answer.as_ref().filter(|answer| answer.plan != "free") {
            account.answered[class(answer.status)] += 1;
        }
    }
}

/// Whether each answer is counted as what it was.
fn is_all_told(told: &Value, account: &Account) -> bool {
    let classes = CLASSES.map(|class| told[class].as_u64().unwrap_or_default());
    classes == account.answered && told["requests"] == account.sent
}

/// Whether as much is counted as was answered.
fn is_answered_told(told: &Value, account: &Account) -> bool {
    told["requests"].as_u64().unwrap_or_default() >= account.answered.iter().sum()
}

fn totals(accounts: &[Account]) -> (u64, u64) {
    let answered = |account: &Account| account.answered.iter().sum::<u64>();
    (accounts.iter().map(|account| account.sent).sum(), accounts.iter().map(answered).sum())
}

struct Stage {
    rate: u32,
    replicas: Vec<ServedProcess>,
    is_up: Arc<[AtomicBool; REPLICAS]>,
    flags: Vec<Vec<String>>,
    keys: Vec<String>,
    http: reqwest::Client,
    faults: BTreeMap<&'static str, u32>,
    redis_wire: Wire,
    postgres_wire: Wire,
    redis: OwnRedis,
    postgres: OwnPostgres,
}

impl Stage {
    async fn set(rate: u32) -> anyhow::Result<Self> {
        let (redis, postgres) = (OwnRedis::start_kept()?, OwnPostgres::start()?);
        let (redis_wire, postgres_wire) = (Wire::to(redis.port()).await?, Wire::to(postgres.port()).await?);
        let database = format!("{}/postgres", postgres.url());
        for command in [&["migrate"][..], &["demo", "--filings", "1000"]] {
            let (status, _, error) = run_vintem(binary(), &database, command).await?;
            anyhow::ensure!(status.success(), "{command:?}: {error}");
        }
        let mut keys = Vec::new();
        for plan in [["platinum"; ROOMY].as_slice(), &["bronze"; TIGHT]].concat() {
            keys.push(make_key(binary(), &database, plan).await?.1);
        }
        let mut flags = Vec::new();
        for _ in 0..REPLICAS {
            flags.push(vec![
                "--limit-platinum=10000000".to_owned(),
                "--limit-bronze=20".to_owned(),
                format!("--limit-window-seconds={WINDOW_SECONDS}"),
                // The same port again after a kill.
                format!("--listen=127.0.0.1:{}", free_port()?),
            ]);
        }
        let is_up = Arc::new([const { AtomicBool::new(true) }; REPLICAS]);
        let http = http_client().timeout(Duration::from_secs(20)).build()?;
        let mut stage = Self {
            rate,
            replicas: Vec::new(),
            is_up,
            flags,
            keys,
            http,
            faults: BTreeMap::new(),
            redis_wire,
            postgres_wire,
            redis,
            postgres,
        };
        for replica in 0..REPLICAS {
            stage.replicas.push(stage.start(replica)?);
        }
        Ok(stage)
    }

    fn start(&self, replica: usize) -> anyhow::Result<ServedProcess> {
        let database = format!("postgres://postgres@127.0.0.1:{}/postgres", self.postgres_wire.port());
        let redis = format!("redis://127.0.0.1:{}", self.redis_wire.port());
        let flags: Vec<&str> = self.flags[replica].iter().map(String::as_str).collect();
        // As impatient as it is where it is in earnest: much is then decided and counted twice, and must count once.
        let budgets = [("VINTEM_REDIS_BUDGET_MS", "25"), ("VINTEM_POSTGRES_BUDGET_MS", "500")];
        ServedProcess::start_in(binary(), &database, &redis, &flags, &budgets)
    }

    fn load(&self) -> Load {
        let addresses: Vec<String> = self.replicas.iter().map(|replica| replica.url("")).collect();
        let (http, keys, is_up) = (self.http.clone(), self.keys.clone(), self.is_up.clone());
        Load::start(self.rate, move || {
            let (caller, replica) = (rand::random_range(0..keys.len()), rand::random_range(0..REPLICAS));
            let path = PATHS[rand::random_range(0..PATHS.len())];
            let request = http.get(format!("{}{path}", addresses[replica])).header("X-API-Key", &keys[caller]);
            is_up[replica].load(Ordering::Acquire).then_some(Ask { caller, replica, request })
        })
    }

    /// Takes Redis or PostgreSQL away and brings it back.
    async fn engine_fault(&mut self) -> Outcome {
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
        *self.faults.entry(kind).or_default() += 1;
        let away = Duration::from_secs_f64(rand::random_range(0.05..0.5));
        let long_away = Duration::from_secs_f64(rand::random_range(1.0..2.0));
        match kind {
            "redis_killed" => {
                self.redis.kill()?;
                tokio::time::sleep(away).await;
                self.redis.bring_back()?;
            }
            "redis_stopped" => {
                self.redis.pause()?;
                tokio::time::sleep(long_away).await;
                self.redis.resume()?;
            }
            "redis_cut_off" => {
                self.redis_wire.cut();
                tokio::time::sleep(long_away).await;
                self.redis_wire.mend();
            }
            "postgres_killed" => {
                self.postgres.kill()?;
                tokio::time::sleep(away).await;
                self.postgres.bring_back()?;
            }
            _ => {
                self.postgres_wire.cut();
                tokio::time::sleep(long_away).await;
                self.postgres_wire.mend();
            }
        }
        tokio::time::sleep(Duration::from_secs_f64(rand::random_range(0.2..0.8))).await;
        Ok(())
    }

    /// Kills a replica, and so one of those that drain usage, wherever in it all it just is; and starts it anew.
    async fn replica_fault(&mut self) -> Outcome {
        let replica = rand::random_range(0..REPLICAS);
        *self.faults.entry("replica_killed").or_default() += 1;
        // A machine that stands still for a moment is a Redis that is away for it.
        self.settle().await;
        // Only then is it asked no more: what it is killed with in its hands is what may or may not be counted.
        self.replicas[replica].kill()?;
        self.is_up[replica].store(false, Ordering::Release);
        self.replicas[replica] = self.start(replica)?;
        self.is_up[replica].store(true, Ordering::Release);
        tokio::time::sleep(Duration::from_secs_f64(rand::random_range(0.2..0.8))).await;
        Ok(())
    }

    /// Waits until what replicas counted by themselves is stored, and they count together again.
    async fn settle(&self) {
        eventually("all count together and keep nothing", Duration::from_secs(30), || async {
            self.all_tell("vintem_meter_shared{server=\"0\"}", 1.0).await
                && self.all_tell("vintem_usage_kept", 0.0).await
        })
        .await;
    }

    async fn all_tell(&self, metric: &str, value: f64) -> bool {
        for replica in &self.replicas {
            if !matches!(replica.metric(&self.http, metric).await, Ok(Some(told)) if told == value) {
                return false;
            }
        }
        true
    }

    /// Waits until all that was counted is stored, and nothing is left to drain. By the instant that it returns all usage
    /// must be told.
    async fn quiesce(&self) -> Instant {
        self.settle().await;
        let is_drained = || async { self.left_in_redis().is_ok_and(|left| left == 0) };
        eventually("nothing is left in Redis", Duration::from_secs(20), is_drained).await;
        Instant::now() + Duration::from_secs(20)
    }

    /// How many counts wait in Redis, and how many batches of them.
    fn left_in_redis(&self) -> anyhow::Result<u64> {
        let mut left = 0;
        for batch in self.redis.ask::<Vec<String>>(&["KEYS", "*usage:batch:*"])? {
            left += self.redis.ask::<u64>(&["HLEN", &batch])?;
        }
        for pending in self.redis.ask::<Vec<String>>(&["KEYS", "*usage:pending"])? {
            left += self.redis.ask::<u64>(&["LLEN", &pending])?;
        }
        Ok(left)
    }

    /// What is told of the key's one day once it is right, or is not after a while: the last outcomes of a replica are on
    /// their way for a moment.
    async fn usage_once(
        &self,
        key: usize,
        account: &mut Account,
        is_right: fn(&Value, &Account) -> bool,
        until: Instant,
    ) -> anyhow::Result<Value> {
        loop {
            let told = self.usage(key, account).await?;
            if is_right(&told, account) || Instant::now() > until {
                return Ok(told);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// What is told of the key's one day once it is said to be complete, the asking itself included, which enters the
    /// account too.
    async fn usage(&self, key: usize, account: &mut Account) -> anyhow::Result<Value> {
        let began = Instant::now();
        loop {
            let request = self.http.get(self.replicas[0].url("/api/v1/plans/usage"));
            let answer = request.header("X-API-Key", &self.keys[key]).send().await?;
            let status = answer.status().as_u16();
            account.sent += 1;
            account.answered[class(status)] += 1;
            let told: Value = answer.json().await?;
            if status == 200 && told["complete"] == true {
                return sum_of_days(&told);
            }
            anyhow::ensure!(began.elapsed() < Duration::from_secs(30), "usage is answered by {status}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn batches(&self) -> anyhow::Result<i64> {
        let mut connection = PgConnection::connect(&format!("{}/postgres", self.postgres.url())).await?;
        Ok(sqlx::query_scalar("select count(*) from usage_ledger").fetch_one(&mut connection).await?)
    }

    fn kills(&self) -> u32 {
        self.faults.iter().filter(|(name, _)| name.ends_with("killed")).map(|(_, count)| count).sum()
    }
}

/// A run may go past midnight.
fn sum_of_days(body: &Value) -> anyhow::Result<Value> {
    let days = body["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = CLASSES.iter().copied().chain(["requests", "unfinished"]);
    let sum = |name: &str| days.iter().filter_map(|day| day[name].as_u64()).sum::<u64>();
    Ok(names.map(|name| (name.to_owned(), Value::from(sum(name)))).collect())
}
