//! What befalls a key on one replica, on all others: at once, within a second, or within ten where nobody is told.

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
    postgres_url, random_redis_prefix,
};

use super::{COMPANIES_PATH, SELIC_PATH, create_key, register_key};
use crate::{TestResult, friday, vintem_binary};

/// Registered on the first replica, used on the two others in the same moment.
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
        let used = async |replica: &TestReplica| {
            replica.send_unchecked(replica.http.get(replica.url(SELIC_PATH)).header("X-API-Key", key)).await
        };
        let (second, third) = tokio::join!(used(&replicas[1]), used(&replicas[2]));
        for seen in [second?, third?] {
            assert_eq!(seen.status, 200, "turn {turn}");
            assert_eq!(seen.headers["x-plan"], "free");
            uses += 1;
        }
    }
    println!("uses: {uses}");
    Ok(())
}

/// Three processes, and callers that keep them busy.
struct BusyReplicas {
    // Dropped first: they take it ill when a process goes away.
    background_callers: JoinSet<()>,
    processes: Vec<ServerProcess>,
    http: reqwest::Client,
    request_count: Arc<AtomicU64>,
    _redis: DedicatedRedis,
}

impl BusyReplicas {
    async fn start(database: &TestDatabase, database_url: &str) -> anyhow::Result<Self> {
        let (redis, store) = (DedicatedRedis::start()?, database.open_store()?);
        let mut processes = Vec::new();
        for _ in 0..3 {
            processes.push(ServerProcess::start(vintem_binary(), database_url, &redis.url(), &HIGH_LIMIT_FLAGS)?);
        }
        let http = vintem_testkit::http_client_builder().build()?;
        let (mut busy, asked) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
        for process in &processes {
            let (_, key) = create_key(&store, Plan::Platinum).await?;
            let (http, asked, url) =
                (http.clone(), asked.clone(), format!("http://{}{COMPANIES_PATH}", process.address));
            busy.spawn(async move {
                loop {
                    let answer = http.get(&url).header("X-API-Key", &key).send().await;
                    assert!(answer.is_ok_and(|answer| answer.status() == 200), "a key that nobody touched");
                    asked.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
        }
        Ok(Self { background_callers: busy, processes, http, request_count: asked, _redis: redis })
    }

    /// Revokes keys one after the other, and returns how long after its revocation the last one was still taken
    /// anywhere: the longest of all.
    async fn max_validity_after_revocation(&self, store: &Store, keys: usize) -> anyhow::Result<Duration> {
        let mut longest = Duration::ZERO;
        let clock = QuietClock::start();
        for _ in 0..keys {
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
            while let Some(last) = watchers.join_next().await {
                longest = longest.max(last??.saturating_sub(revoking_at));
            }
        }
        Ok(longest)
    }
}

/// Sends requests until the key is refused, and five more, because once refused it must stay refused. Returns when the
/// clock showed the last accepted one.
async fn wait_for_last_acceptance(
    http: reqwest::Client,
    url: String,
    key: Arc<str>,
    clock: QuietClock,
) -> anyhow::Result<Duration> {
    let started_at = clock.elapsed();
    let mut last = started_at;
    let mut refusals = 0;
    while refusals < 5 {
        anyhow::ensure!(clock.elapsed() - started_at < Duration::from_secs(30), "never refused");
        let status = http.get(&url).header("X-API-Key", &*key).send().await?.status().as_u16();
        match status {
            200 if refusals == 0 => last = clock.elapsed(),
            401 => refusals += 1,
            other => anyhow::bail!("{other} after {refusals} refusals"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(last)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_revocations_under_load_reach_three_replicas_within_a_second() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let mut fleet = BusyReplicas::start(&database, &database.url()).await?;
    let longest = fleet.max_validity_after_revocation(&database.open_store()?, 100).await?;
    println!("longest_life_seconds: {:.3}", longest.as_secs_f64());
    println!("requests_beside: {}", fleet.request_count.load(Ordering::Relaxed));
    assert!(longest <= Duration::from_secs(1), "{longest:?}");
    assert!(fleet.background_callers.try_join_next().is_none(), "the others were served all the while");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_notifications_a_revocation_takes_effect_within_ten_seconds() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let wire = NotificationDroppingProxy::start_to(postgres_port()?).await?;
    let name = database.url().rsplit('/').next().unwrap_or_default().to_owned();
    let through_wire = format!("postgres://postgres@127.0.0.1:{}/{name}", wire.port);
    let mut fleet = BusyReplicas::start(&database, &through_wire).await?;
    let store = database.open_store()?;
    // While it carries everything a revocation is told at once, so that what follows is the wire's doing.
    let told = fleet.max_validity_after_revocation(&store, 5).await?;
    wire.is_dropping.store(true, Ordering::Relaxed);
    let untold = fleet.max_validity_after_revocation(&store, 12).await?;
    println!("longest_life_told_seconds: {:.3}", told.as_secs_f64());
    println!("longest_life_untold_seconds: {:.3}", untold.as_secs_f64());
    println!("bytes_swallowed: {}", wire.dropped_bytes.load(Ordering::Relaxed));
    assert!(wire.dropped_bytes.load(Ordering::Relaxed) > 0, "notifications were on their way");
    assert!(untold <= Duration::from_secs(10), "{untold:?}");
    assert!(fleet.background_callers.try_join_next().is_none(), "the others were served all the while");
    Ok(())
}

/// Carries everything to PostgreSQL and back, until it is deaf: from then on nothing comes back on connections that
/// have begun to listen, and nobody is told so.
struct NotificationDroppingProxy {
    port: u16,
    is_dropping: Arc<AtomicBool>,
    dropped_bytes: Arc<AtomicU64>,
}

impl NotificationDroppingProxy {
    async fn start_to(target: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let (is_deaf, swallowed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let wire = Self { port, is_dropping: is_deaf.clone(), dropped_bytes: swallowed.clone() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward_connection(client, target, is_deaf.clone(), swallowed.clone()));
            }
        });
        Ok(wire)
    }
}

async fn forward_connection(client: TcpStream, target: u16, is_deaf: Arc<AtomicBool>, swallowed: Arc<AtomicU64>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let listens = AtomicBool::new(false);
    let there = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            if buffer[..length].windows(7).any(|word| word == b"LISTEN ") {
                listens.store(true, Ordering::Relaxed);
            }
            if to_server.write_all(&buffer[..length]).await.is_err() {
                break;
            }
        }
    };
    let back = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            if listens.load(Ordering::Relaxed) && is_deaf.load(Ordering::Relaxed) {
                swallowed.fetch_add(length as u64, Ordering::Relaxed);
            } else if to_client.write_all(&buffer[..length]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

fn postgres_port() -> anyhow::Result<u16> {
    Ok(postgres_url().rsplit(':').next().unwrap_or_default().parse()?)
}

/// The instant of Redis at which a request was decided: its id begins with it.
fn decided_at_us(answer: &reqwest::Response) -> anyhow::Result<u64> {
    let id = answer.headers()["x-request-id"].to_str()?;
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
        let answer = replica.get_with_key(SELIC_PATH, &key).await?;
        assert_eq!(answer.status(), 200);
        admitted.push(decided_at_us(&answer)?);
    }
    assert_eq!(replica.get_with_key(SELIC_PATH, &key).await?.status(), 429, "all of Free is taken");

    // Up: at once more, and no more than the difference.
    assert!(store.set_key_plan(id, Plan::Bronze).await?);
    let raised = wait_for_plan(&replica, &key, "bronze", &mut admitted).await?;
    assert_eq!(raised.status(), 200);
    assert_eq!(header_as_u64(&raised, "x-ratelimit-limit")?, 40);
    assert_eq!(header_as_u64(&raised, "x-ratelimit-remaining")?, 29, "what was admitted before counts");
    for _ in 0..19 {
        let answer = replica.get_with_key(SELIC_PATH, &key).await?;
        assert_eq!(answer.status(), 200);
        admitted.push(decided_at_us(&answer)?);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    // Down: too much was admitted, and the wait is until so much of it is gone that one more is within the limit.
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
    // Denied shortly before, admitted then.
    let until = |since: Duration| tokio::time::sleep_until((lowered_at + since).into());
    until(Duration::from_micros(free_at_us - now_us).saturating_sub(Duration::from_millis(1500))).await;
    assert_eq!(replica.get_with_key(SELIC_PATH, &key).await?.status(), 429);
    until(Duration::from_secs(wait)).await;
    let again = replica.get_with_key(SELIC_PATH, &key).await?;
    assert_eq!((again.status().as_u16(), header_as_u64(&again, "x-ratelimit-limit")?), (200, 10));
    Ok(())
}

/// Asks until the key is on this plan, which must be so within a second.
async fn wait_for_plan(
    replica: &TestReplica,
    key: &str,
    plan: &str,
    admitted: &mut Vec<u64>,
) -> anyhow::Result<reqwest::Response> {
    let changed = QuietClock::start();
    loop {
        let answer = replica.get_with_key(SELIC_PATH, key).await?;
        if answer.status() == 200 {
            admitted.push(decided_at_us(&answer)?);
        }
        if answer.headers()["x-plan"] == plan {
            println!("{plan}_in_force_seconds: {:.3}", changed.elapsed().as_secs_f64());
            return Ok(answer);
        }
        anyhow::ensure!(changed.elapsed() < Duration::from_secs(1), "not after {:?}", changed.elapsed());
    }
}

fn header_as_u64(answer: &reqwest::Response, name: &str) -> anyhow::Result<u64> {
    Ok(answer.headers()[name].to_str()?.parse()?)
}
