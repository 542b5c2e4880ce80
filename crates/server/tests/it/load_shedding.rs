//! Load shedding: requests beyond the capacity get a 503 at once, and the others are served normally.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use vintem_domain::Plan;
use vintem_testkit::{
    DEFAULT_POSTGRES_BUDGET_FLAGS, HIGH_LIMIT_FLAGS, QuietClock, TestDatabase, TestReplica, TestReplicaOptions,
    wait_until,
};

use crate::{TestResult, friday};

const SELIC_PATH: &str = "/api/v1/market/selic/current";
/// A request that waits for PostgreSQL is answered within this time.
const MAX_POSTGRES_WAIT: Duration = Duration::from_millis(600);

/// Starts a replica that serves at most `max_in_flight` requests at a time, with rate limits that no test reaches.
async fn start_with_max_in_flight(database: &TestDatabase, max_in_flight: &str) -> anyhow::Result<TestReplica> {
    let flags: Vec<&str> = HIGH_LIMIT_FLAGS
        .into_iter()
        .chain(["--max-in-flight", max_in_flight])
        .chain(DEFAULT_POSTGRES_BUDGET_FLAGS)
        .collect();

    TestReplica::start_with_options(database, friday(), TestReplicaOptions { flags: &flags, redis_prefix: None }).await
}

/// Sends a request that stays in flight until the stream is dropped: it announces a body and never sends it. The
/// request has its permit once the service asks for the body.
async fn occupy_slot(replica: &TestReplica) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(replica.replica.address).await?;
    let head = "POST /api/v1/plans/register HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                Content-Length: 50\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;

    let mut interim = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut interim).await?;
    ensure!(interim.starts_with(b"HTTP/1.1 100 "), "{}", String::from_utf8_lossy(&interim));
    Ok(stream)
}

async fn is_shed(replica: &TestReplica, path: &str) -> bool {
    replica.get(path).await.is_ok_and(|response| response.status() == 503)
}

#[tokio::test(flavor = "multi_thread")]
async fn excess_requests_get_a_complete_503_and_health_is_never_shed() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = start_with_max_in_flight(&database, "1").await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;
    assert_eq!(replica.get_with_key(SELIC_PATH, &key).await?.status(), 200);

    let occupied = occupy_slot(&replica).await?;
    let shed = replica.get_with_key(SELIC_PATH, &key).await?;
    assert_eq!(shed.status(), 503);

    let header = |name: &str| shed.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let expected = [
        ("retry-after", "1"),
        ("cache-control", "no-store"),
        ("content-type", "application/json"),
        ("x-plan", "platinum"),
        ("x-ratelimit-limit", "10000000"),
        ("x-ratelimit-remaining", "0"),
        ("ratelimit", "\"platinum\";r=0;t=1"),
        ("access-control-allow-origin", "*"),
        ("x-content-type-options", "nosniff"),
    ];
    for (name, value) in expected {
        assert_eq!(header(name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(header("x-ratelimit-reset"), Some((friday().timestamp() + 1).to_string()));

    let id = header("x-request-id");
    let body: Value = shed.json().await?;
    assert_eq!((&body["error"], &body["retry_after"]), (&json!("overloaded"), &json!(1)));
    assert_eq!(body["request_id"].as_str(), id.as_deref());

    for path in ["/pricing", "/api/v1/nothing", "/api/v1/plans"] {
        assert!(is_shed(&replica, path).await, "{path}");
    }

    let portuguese = replica.http.get(replica.url(SELIC_PATH)).header("Accept-Language", "pt-BR");
    let body: Value = replica.send(portuguese).await?.json().await?;
    assert!(body["message"].as_str().is_some_and(|message| message.contains("Tente de novo")), "{body}");

    for _ in 0..20 {
        assert_eq!(replica.get("/health").await?.status(), 200);
    }

    drop(occupied);
    wait_until("there is room again", Duration::from_secs(5), || async { !is_shed(&replica, SELIC_PATH).await }).await;
    assert_eq!(replica.get_with_key(SELIC_PATH, &key).await?.status(), 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn shed_requests_count_as_usage_but_do_not_use_the_quota() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = start_with_max_in_flight(&database, "1").await?;
    let (_, key) = replica.create_key(Plan::Gold).await?;

    let before = replica.get_with_key(SELIC_PATH, &key).await?;
    let occupied = occupy_slot(&replica).await?;
    for _ in 0..5 {
        assert_eq!(replica.get_with_key(SELIC_PATH, &key).await?.status(), 503);
    }
    // Pages and preflights are never counted, not even when they are shed.
    assert_eq!(replica.get_with_key("/pricing", &key).await?.status(), 503);
    drop(occupied);
    wait_until("there is room again", Duration::from_secs(5), || async { !is_shed(&replica, SELIC_PATH).await }).await;

    let after = replica.get_with_key(SELIC_PATH, &key).await?;
    let remaining = |response: &reqwest::Response| -> anyhow::Result<u32> {
        Ok(response.headers()["x-ratelimit-remaining"].to_str()?.parse()?)
    };
    assert_eq!(remaining(&after)?, remaining(&before)? - 1);

    let usage: Value = replica.get_with_key("/api/v1/plans/usage", &key).await?.json().await?;
    let today = &usage["data"][0];
    assert_eq!((&today["requests"], &today["server_errors"]), (&json!(8), &json!(5)), "{today}");
    assert_eq!((&today["successful"], &today["unfinished"]), (&json!(3), &json!(0)), "{today}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn under_overload_some_requests_succeed_and_afterwards_none_is_shed() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = start_with_max_in_flight(&database, "8").await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;

    let is_over = AtomicBool::new(false);
    let started = Instant::now();
    let flood = try_join_all((0..64).map(|_| async {
        let mut answered = 0;
        let mut shed = 0;
        while !is_over.load(Ordering::Relaxed) {
            match replica.get_with_key("/api/v1/filings?limit=100", &key).await?.status().as_u16() {
                200 => answered += 1,
                503 => shed += 1,
                other => anyhow::bail!("{other}"),
            }
        }
        Ok((answered, shed))
    }));
    let poll_health = async {
        while started.elapsed() < Duration::from_secs(2) {
            assert_eq!(replica.get("/health").await?.status(), 200);
        }
        is_over.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    let (counts, health) = tokio::join!(flood, poll_health);
    health?;

    let (answered, shed) = counts?.into_iter().fold((0, 0), |sum, (answered, shed)| (sum.0 + answered, sum.1 + shed));
    println!("answered: {answered}, shed: {shed}");
    assert!(answered > 0 && shed > 0, "{answered} answered, {shed} shed");

    for _ in 0..50 {
        assert_eq!(replica.get_with_key(SELIC_PATH, &key).await?.status(), 200);
    }
    Ok(())
}

/// Another session locks a table, and every connection of the pool waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn while_a_table_is_locked_requests_fail_fast_and_no_connection_is_lost() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = start_with_max_in_flight(&database, "512").await?;
    let (_, key) = replica.create_key(Plan::Gold).await?;
    assert_eq!(replica.get_with_key(SELIC_PATH, &key).await?.status(), 200);

    let lock = database.lock_table("api_key").await?;
    let locked_at = Instant::now();
    while locked_at.elapsed() < Duration::from_secs(3) {
        let waits = try_join_all((0..30).map(|turn| {
            let replica = &replica;
            let key = &key;
            async move {
                let request = match turn % 3 {
                    0 => replica.http.post(replica.url("/api/v1/plans/register")).json(&registration_body()),
                    1 => replica
                        .http
                        .get(replica.url(SELIC_PATH))
                        .header("X-API-Key", vintem_api::generate_key().reveal()),
                    _ => replica.http.get(replica.url("/api/v1/plans/usage")).header("X-API-Key", key),
                };

                let clock = QuietClock::start();
                let response = replica.send(request).await?;
                ensure!(response.status() == 503, "{turn}: {}", response.status());
                ensure!(response.headers().contains_key("retry-after"), "{turn}");
                Ok(clock.elapsed())
            }
        }));

        let slowest = waits.await?.into_iter().max().unwrap_or_default();
        println!("slowest: {slowest:?}");
        assert!(slowest <= MAX_POSTGRES_WAIT, "{slowest:?}");
        assert_eq!(replica.get_with_key(SELIC_PATH, &key).await?.status(), 200, "what needs no PostgreSQL goes on");
    }

    drop(lock);
    let register = || replica.send(replica.http.post(replica.url("/api/v1/plans/register")).json(&registration_body()));
    // As many concurrent requests as during the lock: the pool lost no connection. One of them may still be refused
    // while the machine is slow, but not in every round.
    wait_until("thirty keys can be registered at the same time again", Duration::from_secs(30), || async {
        let responses = try_join_all((0..30).map(|_| register())).await;
        responses.is_ok_and(|all| all.iter().all(|response| response.status() == 201))
    })
    .await;
    Ok(())
}

fn registration_body() -> Value {
    json!({"name": "Ana", "email": "ana@example.com"})
}
