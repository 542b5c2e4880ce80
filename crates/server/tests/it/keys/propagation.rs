//! How soon a change to a key on one replica takes effect on the others: a new key at once, a revocation or a change of
//! plan within a second, and a revocation without notifications within ten.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use vintem_domain::Plan;
use vintem_store::Store;
use vintem_testkit::{
    DedicatedRedis, HIGH_LIMIT_FLAGS, QuietClock, ServerProcess, TestDatabase, TestReplica, TestReplicaOptions,
    create_key, postgres_url, random_redis_prefix,
};

use super::{COMPANIES_PATH, SELIC_PATH, register_key};
use crate::{TestResult, friday, vintem_binary};

/// Each key is registered on the first replica and then used on the two others at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_keys_registered_on_one_replica_work_on_the_others_immediately() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let prefix = random_redis_prefix();
    let mut replicas = Vec::new();
    for _ in 0..3 {
        let options = TestReplicaOptions { redis_prefix: Some(&prefix), flags: &HIGH_LIMIT_FLAGS };
        replicas.push(TestReplica::start_with_options(&database, friday(), options).await?);
    }

    let mut uses = 0;
    for turn in 0..1_000 {
        let registered = register_key(&replicas[0], &format!("ana{turn}@example.com")).await?;
        assert_eq!(registered.status(), 201, "turn {turn}");
        let body: Value = registered.json().await?;
        let key = body["api_key"].as_str().expect("a key");

        let use_key = async |replica: &TestReplica| {
            replica.send_unchecked(replica.http.get(replica.url(SELIC_PATH)).header("X-API-Key", key)).await
        };
        let (second, third) = tokio::join!(use_key(&replicas[1]), use_key(&replicas[2]));
        for response in [second?, third?] {
            assert_eq!(response.status, 200, "turn {turn}");
            assert_eq!(response.headers["x-plan"], "free");
            uses += 1;
        }
    }
    println!("uses: {uses}");
    Ok(())
}

/// Three processes, and callers that keep them busy.
struct BusyReplicas {
    // Dropped first: they panic when a process no longer answers.
    background_callers: JoinSet<()>,
    processes: Vec<ServerProcess>,
    http: reqwest::Client,
    request_count: Arc<AtomicU64>,
    _redis: DedicatedRedis,
}

impl BusyReplicas {
    async fn start(database: &TestDatabase, database_url: &str) -> anyhow::Result<Self> {
        let redis = DedicatedRedis::start()?;
        let store = database.open_store()?;

        let mut processes = Vec::new();
        for _ in 0..3 {
            processes.push(ServerProcess::start(vintem_binary(), database_url, &redis.url(), &HIGH_LIMIT_FLAGS)?);
        }

        let http = vintem_testkit::http_client_builder().build()?;
        let request_count = Arc::new(AtomicU64::new(0));
        let mut background_callers = JoinSet::new();
        for process in &processes {
            let (_, key) = create_key(&store, Plan::Platinum).await?;
            let http = http.clone();
            let request_count = request_count.clone();
            let url = format!("http://{}{COMPANIES_PATH}", process.address);
            background_callers.spawn(async move {
                loop {
                    let response = http.get(&url).header("X-API-Key", &key).send().await;
                    assert!(response.is_ok_and(|response| response.status() == 200), "a key that nobody touched");
                    request_count.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
        }

        Ok(Self { background_callers, processes, http, request_count, _redis: redis })
    }

    /// Revokes keys one after another, and returns the longest time that any replica still accepted a revoked key.
    async fn max_validity_after_revocation(&self, store: &Store, key_count: usize) -> anyhow::Result<Duration> {
        let mut longest = Duration::ZERO;
        let clock = QuietClock::start();
        for _ in 0..key_count {
            let (id, key) = create_key(store, Plan::Bronze).await?;
            let key = Arc::<str>::from(key);

            let mut watchers = JoinSet::new();
            for process in &self.processes {
                let url = format!("http://{}{COMPANIES_PATH}", process.address);
                let first = self.http.get(&url).header("X-API-Key", &*key).send().await?;
                anyhow::ensure!(first.status() == 200, "good before");
                watchers.spawn(wait_for_last_acceptance(self.http.clone(), url, key.clone(), clock));
            }

            let revoking_at = clock.elapsed();
            assert!(store.revoke_key(id).await?);
            while let Some(last_accepted_at) = watchers.join_next().await {
                longest = longest.max(last_accepted_at??.saturating_sub(revoking_at));
            }
        }
        Ok(longest)
    }
}

/// Sends requests until the key has been refused five times in a row, because once refused it must stay refused.
/// Returns the clock's reading at the last accepted request.
async fn wait_for_last_acceptance(
    http: reqwest::Client,
    url: String,
    key: Arc<str>,
    clock: QuietClock,
) -> anyhow::Result<Duration> {
    let started_at = clock.elapsed();
    let mut last_accepted_at = started_at;
    let mut refusals = 0;
    while refusals < 5 {
        anyhow::ensure!(clock.elapsed() - started_at < Duration::from_secs(30), "never refused");
        let status = http.get(&url).header("X-API-Key", &*key).send().await?.status().as_u16();
        match status {
            200 if refusals == 0 => last_accepted_at = clock.elapsed(),
            401 => refusals += 1,
            other => anyhow::bail!("{other} after {refusals} refusals"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(last_accepted_at)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_revocations_under_load_reach_three_replicas_within_a_second() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let mut replicas = BusyReplicas::start(&database, &database.url()).await?;

    let longest = replicas.max_validity_after_revocation(&database.open_store()?, 100).await?;

    println!("longest_life_seconds: {:.3}", longest.as_secs_f64());
    println!("requests_beside: {}", replicas.request_count.load(Ordering::Relaxed));
    assert!(longest <= Duration::from_secs(1), "{longest:?}");
    assert!(replicas.background_callers.try_join_next().is_none(), "the others were served all the while");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_notifications_a_revocation_takes_effect_within_ten_seconds() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let proxy = NotificationDroppingProxy::start_to(postgres_port()?).await?;
    let name = database.url().rsplit('/').next().unwrap_or_default().to_owned();
    let proxied_url = format!("postgres://postgres@127.0.0.1:{}/{name}", proxy.port);
    let mut replicas = BusyReplicas::start(&database, &proxied_url).await?;
    let store = database.open_store()?;

    // Measured with notifications first, for comparison: any later delay is due to the dropped notifications.
    let notified = replicas.max_validity_after_revocation(&store, 5).await?;
    proxy.is_dropping.store(true, Ordering::Relaxed);
    let unnotified = replicas.max_validity_after_revocation(&store, 12).await?;

    println!("longest_life_told_seconds: {:.3}", notified.as_secs_f64());
    println!("longest_life_untold_seconds: {:.3}", unnotified.as_secs_f64());
    println!("bytes_swallowed: {}", proxy.dropped_bytes.load(Ordering::Relaxed));
    assert!(proxy.dropped_bytes.load(Ordering::Relaxed) > 0, "notifications were on their way");
    assert!(unnotified <= Duration::from_secs(10), "{unnotified:?}");
    assert!(replicas.background_callers.try_join_next().is_none(), "the others were served all the while");
    Ok(())
}

/// A proxy to PostgreSQL. While `is_dropping` is set, it silently drops everything that PostgreSQL sends on connections
/// that have sent `LISTEN`.
struct NotificationDroppingProxy {
    port: u16,
    is_dropping: Arc<AtomicBool>,
    dropped_bytes: Arc<AtomicU64>,
}

impl NotificationDroppingProxy {
    async fn start_to(target: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let is_dropping = Arc::new(AtomicBool::new(false));
        let dropped_bytes = Arc::new(AtomicU64::new(0));
        let proxy = Self { port, is_dropping: is_dropping.clone(), dropped_bytes: dropped_bytes.clone() };

        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward_connection(client, target, is_dropping.clone(), dropped_bytes.clone()));
            }
        });
        Ok(proxy)
    }
}

async fn forward_connection(
    client: TcpStream,
    target: u16,
    is_dropping: Arc<AtomicBool>,
    dropped_bytes: Arc<AtomicU64>,
) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let is_listening = AtomicBool::new(false);

    let forward_to_server = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            if buffer[..length].windows(7).any(|word| word == b"LISTEN ") {
                is_listening.store(true, Ordering::Relaxed);
            }
            if to_server.write_all(&buffer[..length]).await.is_err() {
                break;
            }
        }
    };
    let forward_to_client = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            if is_listening.load(Ordering::Relaxed) && is_dropping.load(Ordering::Relaxed) {
                dropped_bytes.fetch_add(length as u64, Ordering::Relaxed);
            } else if to_client.write_all(&buffer[..length]).await.is_err() {
                break;
            }
        }
    };

    tokio::select! {
        () = forward_to_server => {}
        () = forward_to_client => {}
    }
}

fn postgres_port() -> anyhow::Result<u16> {
    Ok(postgres_url().rsplit(':').next().unwrap_or_default().parse()?)
}

/// When Redis decided the request, by its own clock: the request id begins with that time.
fn decided_at_us(response: &reqwest::Response) -> anyhow::Result<u64> {
    let id = response.headers()["x-request-id"].to_str()?;
    Ok(u64::from_str_radix(id.split('-').next().unwrap_or(""), 16)?)
}

#[tokio::test]
async fn a_plan_change_within_a_window_applies_within_a_second_and_keeps_prior_counts() -> TestResult {
    const WINDOW_US: u64 = 15_000_000;
    let database = TestDatabase::create_demo(friday()).await?;
    let flags = ["--limit-window-seconds=15", "--limit-free=10", "--limit-bronze=40"];
    let options = TestReplicaOptions { flags: &flags, redis_prefix: None };
    let replica = TestReplica::start_with_options(&database, friday(), options).await?;
    let (id, key) = replica.create_key(Plan::Free).await?;
    let store = replica.open_store()?;

    let mut admitted = Vec::new();
    for _ in 0..10 {
        let response = replica.get_with_key(SELIC_PATH, &key).await?;
        assert_eq!(response.status(), 200);
        admitted.push(decided_at_us(&response)?);
    }
    assert_eq!(replica.get_with_key(SELIC_PATH, &key).await?.status(), 429, "all of Free is taken");

    // Upgrade: the key can send more at once, but only the difference.
    assert!(store.set_key_plan(id, Plan::Bronze).await?);
    let raised = wait_for_plan(&replica, &key, "bronze", &mut admitted).await?;
    assert_eq!(raised.status(), 200);
    assert_eq!(header_as_u64(&raised, "x-ratelimit-limit")?, 40);
    assert_eq!(header_as_u64(&raised, "x-ratelimit-remaining")?, 29, "what was admitted before counts");
    for _ in 0..19 {
        let response = replica.get_with_key(SELIC_PATH, &key).await?;
        assert_eq!(response.status(), 200);
        admitted.push(decided_at_us(&response)?);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    // Downgrade: more requests were admitted than Free allows. The wait lasts until enough of them have left the window
    // that one more is within the limit.
    assert!(store.set_key_plan(id, Plan::Free).await?);
    let lowered = wait_for_plan(&replica, &key, "free", &mut admitted).await?;
    let lowered_at = Instant::now();
    assert_eq!(lowered.status(), 429);
    assert_eq!(header_as_u64(&lowered, "x-ratelimit-limit")?, 10);
    assert_eq!(header_as_u64(&lowered, "x-ratelimit-remaining")?, 0);

    let now_us = decided_at_us(&lowered)?;
    let free_at_us = admitted[admitted.len() - 10] + WINDOW_US;
    let wait = header_as_u64(&lowered, "retry-after")?;
    assert_eq!(wait, (free_at_us - now_us).div_ceil(1_000_000), "{admitted:?}");

    // Refused shortly before that time, admitted after it.
    let sleep_until_after = |since: Duration| tokio::time::sleep_until((lowered_at + since).into());
    sleep_until_after(Duration::from_micros(free_at_us - now_us).saturating_sub(Duration::from_millis(1500))).await;
    assert_eq!(replica.get_with_key(SELIC_PATH, &key).await?.status(), 429);
    sleep_until_after(Duration::from_secs(wait)).await;
    let again = replica.get_with_key(SELIC_PATH, &key).await?;
    assert_eq!((again.status().as_u16(), header_as_u64(&again, "x-ratelimit-limit")?), (200, 10));
    Ok(())
}

/// Sends requests until the key is on this plan; fails if that takes longer than a second.
async fn wait_for_plan(
    replica: &TestReplica,
    key: &str,
    plan: &str,
    admitted: &mut Vec<u64>,
) -> anyhow::Result<reqwest::Response> {
    let clock = QuietClock::start();
    loop {
        let response = replica.get_with_key(SELIC_PATH, key).await?;
        if response.status() == 200 {
            admitted.push(decided_at_us(&response)?);
        }
        if response.headers()["x-plan"] == plan {
            println!("{plan}_in_force_seconds: {:.3}", clock.elapsed().as_secs_f64());
            return Ok(response);
        }
        anyhow::ensure!(clock.elapsed() < Duration::from_secs(1), "not after {:?}", clock.elapsed());
    }
}

fn header_as_u64(response: &reqwest::Response, name: &str) -> anyhow::Result<u64> {
    Ok(response.headers()[name].to_str()?.parse()?)
}
