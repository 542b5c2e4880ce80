//! `/health` tells the truth: every reason for `degraded` shows, and goes when its cause is gone. A replica that starts
//! without PostgreSQL serves its copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{Connection, Executor, PgConnection};
use vintem_domain::{Clock, Plan};
use vintem_server::replica::{Replica, start_replica};
use vintem_store::{Store, Timeouts};
use vintem_testkit::{
    DEFAULT_POSTGRES_BUDGET_FLAGS, DedicatedPostgres, DedicatedRedis, HIGH_LIMIT_FLAGS, QuietClock, ServerProcess,
    TcpProxy, TempDirectory, TestDatabase, TestReplica, create_key, http_client_builder, parse_serve_settings,
    run_vintem, wait_until,
};

use crate::{TestResult, friday, vintem_binary};

/// A reason shows when something has failed for ten seconds, and some operations first wait for a timeout.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// A replica without PostgreSQL answers from its copy this soon after its start.
const MAX_START_FROM_COPY: Duration = Duration::from_secs(10);
/// A background task that panicked works again this soon.
const MAX_RESTART: Duration = Duration::from_secs(1);

/// The machine's clock. It panics once if `panics_next` is set.
#[derive(Debug, Default)]
struct FaultyClock {
    panics_next: AtomicBool,
}

impl Clock for FaultyClock {
    fn now(&self) -> DateTime<Utc> {
        assert!(!self.panics_next.swap(false, Ordering::SeqCst), "a panic that a test asked for");
        Utc::now()
    }
}

/// A replica on its own PostgreSQL and Redis, both behind proxies that can be cut.
struct WatchedReplica {
    replica: Replica,
    clock: Arc<FaultyClock>,
    postgres: DedicatedPostgres,
    postgres_link: TcpProxy,
    redis_link: TcpProxy,
    store: Store,
    http: reqwest::Client,
    _redis: DedicatedRedis,
}

impl WatchedReplica {
    async fn start() -> anyhow::Result<Self> {
        let (postgres, redis) = (DedicatedPostgres::start()?, DedicatedRedis::start()?);
        prepare_demo(&postgres, "2000").await?;
        let postgres_link = TcpProxy::start(postgres.port()).await?;
        let redis_link = TcpProxy::start(redis.port()).await?;
        let database_url = format!("postgres://postgres@127.0.0.1:{}/postgres", postgres_link.port());
        let redis_url = format!("redis://127.0.0.1:{}", redis_link.port());
        let flags = [&HIGH_LIMIT_FLAGS[..], &["--postgres-budget-ms", "500", "--redis-budget-ms", "500"]].concat();

        let clock = Arc::new(FaultyClock::default());
        let settings = parse_serve_settings(&database_url, &redis_url, &flags)?;
        Ok(Self {
            replica: start_replica(&settings, "test:", clock.clone()).await?,
            clock,
            store: Store::open(&database_url_of(&postgres), 2, Timeouts::for_workers())?,
            postgres,
            postgres_link,
            redis_link,
            http: http_client_builder().build()?,
            _redis: redis,
        })
    }

    async fn connect(&self) -> anyhow::Result<PgConnection> {
        let mut connection = PgConnection::connect(&database_url_of(&self.postgres)).await?;
        connection.execute("set default_transaction_read_only = off").await?;
        Ok(connection)
    }

    async fn get(&self, path: &str, key: &str) -> anyhow::Result<reqwest::Response> {
        let url = format!("http://{}{path}", self.replica.address);
        Ok(self.http.get(url).header("X-API-Key", key).send().await?)
    }

    async fn health(&self) -> anyhow::Result<Value> {
        Ok(self.http.get(format!("http://{}/health", self.replica.address)).send().await?.json().await?)
    }

    async fn reasons(&self) -> anyhow::Result<Vec<String>> {
        let health = self.health().await?;
        let reasons: Vec<String> = serde_json::from_value(health["reasons"].clone())?;
        let expected_status = if reasons.is_empty() { "ok" } else { "degraded" };
        anyhow::ensure!(health["status"] == expected_status, "{health}");
        Ok(reasons)
    }

    async fn wait_for(&self, reasons: &[&str]) {
        wait_until(&format!("/health says {reasons:?}"), MAX_WAIT, || async {
            self.reasons().await.is_ok_and(|shown| reasons.iter().all(|reason| shown.iter().any(|one| one == reason)))
        })
        .await;
    }

    /// Waits until the replica has read all keys of this moment.
    async fn wait_for_keys(&self) {
        let asked_at = Instant::now();
        wait_until("the keys of this moment are read", MAX_WAIT, || async {
            let age = self.health().await.ok().and_then(|health| health["keys_age_seconds"].as_f64());
            // The age is in whole seconds.
            age.is_some_and(|age| age + 1.0 < asked_at.elapsed().as_secs_f64())
        })
        .await;
    }

    async fn wait_until_well(&self) {
        wait_until("/health says that all is well", MAX_WAIT, || async {
            self.reasons().await.is_ok_and(|shown| shown.is_empty())
        })
        .await;
    }
}

async fn prepare_demo(postgres: &DedicatedPostgres, filings: &str) -> TestResult {
    for command in [&["migrate"][..], &["demo", "--filings", filings]] {
        let (status, _, error) = run_vintem(vintem_binary(), &database_url_of(postgres), command).await?;
        anyhow::ensure!(status.success(), "{command:?}: {error}");
    }
    Ok(())
}

fn database_url_of(postgres: &DedicatedPostgres) -> String {
    format!("{}/postgres", postgres.url())
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_engines_and_lagging_keys_and_data_show() -> TestResult {
    let watched = WatchedReplica::start().await?;
    watched.wait_until_well().await;

    watched.redis_link.cut();
    // Redis is asked only if there are requests.
    watched.wait_for(&["redis_unreachable"]).await;
    watched.redis_link.restore();
    watched.wait_until_well().await;

    watched.postgres_link.cut();
    watched.wait_for(&["postgresql_unreachable", "keys_lagging", "data_lagging"]).await;
    watched.postgres_link.restore();
    watched.wait_until_well().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_database_and_usage_that_waits_show() -> TestResult {
    let watched = WatchedReplica::start().await?;
    let (_, key) = create_key(&watched.store, Plan::Gold).await?;
    watched.wait_until_well().await;

    let mut connection = watched.connect().await?;
    connection.execute("alter system set default_transaction_read_only = on").await?;
    connection.execute("select pg_reload_conf()").await?;
    watched.wait_for(&["postgresql_read_only"]).await;
    assert_eq!(watched.get("/api/v1/market/selic/current", &key).await?.status(), 200);
    watched.wait_for(&["postgresql_read_only", "usage_not_stored"]).await;

    connection.execute("alter system reset default_transaction_read_only").await?;
    connection.execute("select pg_reload_conf()").await?;
    watched.wait_until_well().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_data_that_are_read_again_show() -> TestResult {
    let watched = WatchedReplica::start().await?;
    let (_, key) = create_key(&watched.store, Plan::Gold).await?;
    watched.wait_for_keys().await;
    watched.wait_until_well().await;

    // What a refresh reads after it has noticed that the database is another one. Until the replica has seen a key, it
    // reads this before anything else.
    let (mut connection, mut blocking_keys, mut blocking_data) =
        (watched.connect().await?, watched.connect().await?, watched.connect().await?);
    let mut keys_lock = blocking_keys.begin().await?;
    keys_lock.execute("lock table pepper_verifier in access exclusive mode").await?;
    let mut data_lock = blocking_data.begin().await?;
    data_lock.execute("lock table raw_fetch in access exclusive mode").await?;
    connection.execute("update database_epoch set epoch = gen_random_uuid()").await?;
    watched.wait_for(&["keys_being_rebuilt", "data_being_rebuilt"]).await;

    // Meanwhile keys are looked up, and the data from before is served.
    assert_eq!(watched.get("/api/v1/market/selic/current", &key).await?.status(), 200);

    keys_lock.rollback().await?;
    data_lock.rollback().await?;
    watched.wait_until_well().await;
    assert_eq!(watched.get("/api/v1/market/selic/current", &key).await?.status(), 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_whose_keys_need_another_pepper_shows() -> TestResult {
    let watched = WatchedReplica::start().await?;
    let (_, key) = create_key(&watched.store, Plan::Gold).await?;
    watched.wait_until_well().await;

    let mut connection = watched.connect().await?;
    let verifier: Vec<u8> =
        sqlx::query_scalar("select verifier from pepper_verifier").fetch_one(&mut connection).await?;
    connection.execute("update pepper_verifier set verifier = decode(repeat('00', 32), 'hex')").await?;
    connection.execute("update database_epoch set epoch = gen_random_uuid()").await?;
    watched.wait_for(&["wrong_pepper"]).await;
    // Nobody can say whether the key is valid.
    assert_eq!(watched.get("/api/v1/market/selic/current", &key).await?.status(), 503);

    sqlx::query("update pepper_verifier set verifier = $1").bind(verifier).execute(&mut connection).await?;
    watched.wait_until_well().await;
    assert_eq!(watched.get("/api/v1/market/selic/current", &key).await?.status(), 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_and_stale_data_show() -> TestResult {
    let reasons = async |replica: &TestReplica| {
        let health: Value = replica.get("/health").await?.json().await?;
        anyhow::Ok(health["reasons"].as_array().cloned().unwrap_or_default())
    };
    let empty = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&empty, friday()).await?;
    assert!(reasons(&replica).await?.contains(&"data_missing".into()));

    let demo = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&demo, friday()).await?;
    assert!(!reasons(&replica).await?.contains(&"data_stale".into()));
    replica.clock.set(friday() + chrono::Duration::days(60));
    assert!(reasons(&replica).await?.contains(&"data_stale".into()));
    replica.clock.set(friday());
    assert!(!reasons(&replica).await?.contains(&"data_stale".into()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_task_that_panics_works_again_within_a_second() -> TestResult {
    let watched = WatchedReplica::start().await?;
    let (id, key) = create_key(&watched.store, Plan::Gold).await?;
    watched.wait_until_well().await;
    assert_eq!(watched.get("/api/v1/market/selic/current", &key).await?.status(), 200);

    // Nobody sends requests, so the next to ask for the time is the task that follows the keys.
    watched.clock.panics_next.store(true, Ordering::SeqCst);
    wait_until("the clock has panicked", MAX_WAIT, || async { !watched.clock.panics_next.load(Ordering::SeqCst) })
        .await;
    let clock = QuietClock::start();
    watched.store.revoke_key(id).await?;
    while watched.get("/api/v1/market/selic/current", &key).await?.status() != 401 {
        anyhow::ensure!(clock.elapsed() < MAX_RESTART, "the task did not start again");
    }
    println!("task_works_again_after_seconds: {:.2}", clock.elapsed().as_secs_f64());

    assert!(watched.reasons().await?.contains(&"background_task_failed".to_owned()));
    watched.wait_until_well().await;
    let admin = format!("http://{}/metrics", watched.replica.admin_address);
    let metrics = watched.http.get(admin).send().await?.text().await?;
    assert!(metrics.contains("vintem_task_panics_total{task=\"keys\"}"), "{metrics}");
    Ok(())
}

/// Requests that need data of every kind.
const PATHS: [&str; 6] = [
    "/api/v1/market/selic?limit=5",
    "/api/v1/market/series/real-selic/current",
    "/api/v1/market/fx?pair=EUR/USD&limit=3",
    "/api/v1/companies?limit=3",
    "/api/v1/filings?limit=3",
    "/api/v1/search?q=dividendos&limit=3",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_starts_without_postgresql_serves_its_copy() -> TestResult {
    let (postgres, redis, directory) =
        (DedicatedPostgres::start()?, DedicatedRedis::start()?, TempDirectory::create()?);
    prepare_demo(&postgres, "20000").await?;
    let store = Store::open(&database_url_of(&postgres), 2, Timeouts::for_workers())?;
    let (_, key) = create_key(&store, Plan::Platinum).await?;
    let (revoked_id, revoked_key) = create_key(&store, Plan::Platinum).await?;
    let (_, late_key) = create_key(&store, Plan::Platinum).await?;
    let directory_text = directory.path().to_str().context("plain characters")?;
    let flags = [&HIGH_LIMIT_FLAGS[..], &["--data-dir", directory_text], &DEFAULT_POSTGRES_BUDGET_FLAGS].concat();
    let start = || ServerProcess::start(vintem_binary(), &database_url_of(&postgres), &redis.url(), &flags);
    let http = http_client_builder().build()?;
    let get = async |process: &ServerProcess, path: &str, key: &str| {
        let url = format!("http://{}{path}", process.address);
        let response = http.get(url).header("X-API-Key", key).send().await?;
        anyhow::Ok((response.status().as_u16(), response.bytes().await?))
    };

    let process = start()?;
    let mut before = Vec::new();
    for path in PATHS {
        let (status, body) = get(&process, path, &key).await?;
        assert_eq!(status, 200, "{path}: {body:?}");
        before.push(body);
    }
    wait_until("the copy is on disk", MAX_WAIT, || async { directory.path().join("snapshot/served").exists() }).await;
    let saved_key_bytes = || std::fs::metadata(directory.path().join("keys")).map_or(0, |file| file.len());
    wait_until("the keys are on disk", MAX_WAIT, || async { saved_key_bytes() > 0 }).await;
    let bytes_before = saved_key_bytes();
    store.revoke_key(revoked_id).await?;
    wait_until("the revocation is on disk", MAX_WAIT, || async { saved_key_bytes() > bytes_before }).await;
    assert_eq!(get(&process, "/health", &revoked_key).await?.0, 401);
    // Killed, not stopped: nothing is written at the end.
    drop(process);
    postgres.stop()?;

    let clock = QuietClock::start();
    let process = start()?;
    for (path, expected) in PATHS.iter().zip(&before) {
        let (status, body) = get(&process, path, &key).await?;
        assert_eq!((status, &body), (200, expected), "{path}");
    }
    println!("answers_without_postgres_after_seconds: {:.1}", clock.elapsed().as_secs_f64());
    anyhow::ensure!(clock.elapsed() < MAX_START_FROM_COPY, "too late: {:?}", clock.elapsed());
    assert_eq!(get(&process, "/health", &late_key).await?.0, 200);
    assert_eq!(get(&process, "/health", &revoked_key).await?.0, 401);

    let health: Value = serde_json::from_slice(&get(&process, "/health", &key).await?.1)?;
    assert!(health["reasons"].as_array().is_some_and(|reasons| reasons.contains(&"postgresql_unreachable".into())));
    assert!(health["keys_age_seconds"].as_u64().is_some_and(|age| age < 600), "{health}");

    postgres.launch()?;
    wait_until("all is well", MAX_WAIT, || async {
        get(&process, "/health", &key)
            .await
            .is_ok_and(|(_, body)| serde_json::from_slice::<Value>(&body).is_ok_and(|health| health["status"] == "ok"))
    })
    .await;
    Ok(())
}
