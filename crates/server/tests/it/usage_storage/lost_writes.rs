//! A Redis server that loses its last writes, as after a power failure or the promotion of a replica that lagged. `just
//! lost-writes` runs fifty trials.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;
use vintem_domain::{Plan, SystemClock};
use vintem_server::replica::{Replica, start_replica};
use vintem_testkit::{
    DedicatedRedis, HIGH_LIMIT_FLAGS, TempDirectory, TestDatabase, create_key, http_client_builder, parse_env_var,
    parse_serve_settings, wait_until,
};

use super::count_fields_in_redis;
use crate::{TestResult, friday};

const KEYS_PER_TRIAL: usize = 6;
const APPEND_ONLY_DIRECTORY: &str = "appendonlydir";

#[tokio::test(flavor = "multi_thread")]
async fn only_the_lost_writes_are_missing_from_the_usage_and_it_says_so() -> TestResult {
    let trial_count: u32 = parse_env_var("VINTEM_LOST_WRITE_TRIALS").unwrap_or(4);
    let mut trials = LostWriteTrials::start().await?;
    let mut lost = 0;
    let mut lost_beyond = 0;
    let mut doubled = 0;
    let mut reported = 0;
    let mut unreported = 0;
    for _ in 0..trial_count {
        let trial = trials.run().await?;
        lost += trial.lost_requests;
        lost_beyond += trial.lost_beyond_the_last_writes;
        doubled += trial.doubled_requests;
        reported += u32::from(trial.is_reported);
        unreported += u32::from(trial.lost_requests > 0 && !trial.is_reported);
    }
    println!("trials: {trial_count}");
    println!("trials_reported: {reported}");
    println!("lost_requests: {lost}");
    println!("lost_and_not_reported: {unreported}");
    println!("lost_beyond_the_last_writes: {lost_beyond}");
    println!("doubled: {doubled}");
    assert!(lost > 0, "nothing was lost at all");
    assert_eq!((unreported, lost_beyond, doubled), (0, 0, 0));
    Ok(())
}

/// Somebody puts Redis back to a batch that is stored already. What is counted into it is not stored, but not silently.
#[tokio::test(flavor = "multi_thread")]
async fn counts_under_an_id_that_is_stored_already_are_reported() -> TestResult {
    let trials = LostWriteTrials::start().await?;
    let (_, key) = create_key(&trials.database.open_store()?, Plan::Platinum).await?;
    let request = async || anyhow::Ok(trials.get("/api/v1/market/selic/current", &key).await?.error_for_status()?);
    request().await?;

    let mut connection = trials.database.connect().await?;
    let chunk: String = loop {
        let stored = sqlx::query_scalar("select id from usage_chunk").fetch_optional(&mut connection).await?;
        match stored {
            Some(id) => break id,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let batch = chunk.strip_suffix(":0").context("its only chunk")?;
    trials.redis.run_command::<String>(&["SET", "test:usage:open", batch])?;
    for _ in 0..3 {
        request().await?;
    }

    wait_until("the usage says that it is incomplete", Duration::from_secs(10), || async {
        trials.fetch_usage(&key).await.is_ok_and(|usage| usage["complete"] == false)
    })
    .await;
    let reason: String = sqlx::query_scalar("select reason from usage_gap").fetch_one(&mut connection).await?;
    assert_eq!(reason, "chunk_conflict");
    Ok(())
}

#[derive(Debug, Default)]
struct TrialResult {
    lost_requests: u64,
    lost_beyond_the_last_writes: u64,
    doubled_requests: u64,
    is_reported: bool,
}

struct LostWriteTrials {
    database: TestDatabase,
    redis: DedicatedRedis,
    replicas: Vec<Replica>,
    http: reqwest::Client,
}

impl LostWriteTrials {
    async fn start() -> anyhow::Result<Self> {
        let database = TestDatabase::create_demo(friday()).await?;
        let redis = DedicatedRedis::start_persistent()?;
        let settings = parse_serve_settings(&database.url(), &redis.url(), &HIGH_LIMIT_FLAGS)?;
        let mut replicas = Vec::new();
        for _ in 0..2 {
            replicas.push(start_replica(&settings, "test:", Arc::new(SystemClock)).await?);
        }
        let are_ready = || async { replicas.iter().all(Replica::is_ready) };
        wait_until("the replicas are ready", Duration::from_secs(10), are_ready).await;
        Ok(Self { database, redis, replicas, http: http_client_builder().build()? })
    }

    async fn run(&mut self) -> anyhow::Result<TrialResult> {
        let store = self.database.open_store()?;
        let mut keys = Vec::new();
        for _ in 0..KEYS_PER_TRIAL {
            keys.push(create_key(&store, Plan::Platinum).await?.1);
        }
        let mut answered = [0u64; KEYS_PER_TRIAL];
        let mut answered_in_lost_time = [0u64; KEYS_PER_TRIAL];

        self.send_requests(&keys, &mut answered, rand::random_range(0.1..1.6)).await?;
        let saved = TempDirectory::create()?;
        copy_directory(&self.redis.data_dir().join(APPEND_ONLY_DIRECTORY), saved.path())?;
        self.send_requests(&keys, &mut answered_in_lost_time, rand::random_range(0.0..2.5)).await?;

        self.redis.kill()?;
        let append_only = self.redis.data_dir().join(APPEND_ONLY_DIRECTORY);
        std::fs::remove_dir_all(&append_only)?;
        std::fs::create_dir(&append_only)?;
        copy_directory(saved.path(), &append_only)?;
        self.redis.launch()?;
        self.send_requests(&keys, &mut answered, rand::random_range(0.1..1.0)).await?;
        wait_until("nothing is left in Redis", Duration::from_secs(20), || async {
            count_fields_in_redis(&self.redis).is_ok_and(|fields| fields == 0)
        })
        .await;

        let mut result = TrialResult::default();
        for (index, key) in keys.iter().enumerate() {
            let usage = self.fetch_usage(key).await?;
            // The request for the usage is counted as well.
            let counted = usage["total_requests"].as_u64().context("a number")? - 1;
            let kept = answered[index];
            let sent = kept + answered_in_lost_time[index];
            result.lost_requests += sent.saturating_sub(counted);
            result.lost_beyond_the_last_writes += kept.saturating_sub(counted);
            result.doubled_requests += counted.saturating_sub(sent);
            result.is_reported |= usage["complete"] == false;
        }

        let mut connection = self.database.connect().await?;
        sqlx::query("delete from usage_gap").execute(&mut connection).await?;
        Ok(result)
    }

    /// Sends requests one after another, and counts those that are answered.
    async fn send_requests(&self, keys: &[String], answered: &mut [u64], seconds: f64) -> TestResult {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < until {
            let key = rand::random_range(0..keys.len());
            let status = self.get("/api/v1/market/selic/current", &keys[key]).await?.status();
            anyhow::ensure!(status == 200, "{status}");
            answered[key] += 1;
        }
        Ok(())
    }

    async fn fetch_usage(&self, key: &str) -> anyhow::Result<Value> {
        Ok(self.get("/api/v1/plans/usage", key).await?.error_for_status()?.json().await?)
    }

    async fn get(&self, path: &str, key: &str) -> anyhow::Result<reqwest::Response> {
        let replica = &self.replicas[rand::random_range(0..self.replicas.len())];
        Ok(self.http.get(format!("http://{}{path}", replica.address)).header("X-API-Key", key).send().await?)
    }
}

fn copy_directory(from: &Path, to: &Path) -> TestResult {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
