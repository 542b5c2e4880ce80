//! What goes on when an engine is away, and what is said of it.

use std::time::Duration;

use serde_json::Value;
use vintem_domain::usage::UsageCounts;
use vintem_testkit::timed_requests::{TimedRequest, get_at_rate, percentile};
use vintem_testkit::{
    DEFAULT_POSTGRES_BUDGET_FLAGS, DedicatedPostgres, DedicatedRedis, QuietClock, ServerProcess, TcpProxy,
    TestDatabase, run_vintem, wait_until,
};

use crate::{TestResult, friday, vintem_binary};

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_requests_are_still_served_limited_and_counted() -> TestResult {
    let (redis, database) = (DedicatedRedis::start()?, TestDatabase::create_demo(friday()).await?);
    let process = ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &["--replicas", "2"])?;
    let (_, printed, _) = run_vintem(
        vintem_binary(),
        &database.url(),
        &["keys", "create", "--plan", "free", "--name", "Ana", "--email", "ana@example.com", "--json"],
    )
    .await?;
    let created: Value = serde_json::from_str(&printed)?;
    let key = created["api_key"].as_str().expect("a key");
    let http = vintem_testkit::http_client_builder().build()?;
    let get = |path: &str| http.get(format!("http://{}{path}", process.address)).header("X-API-Key", key).send();
    // Gone before the replica was ever asked by this key: it has seen itself alone, and was told of two.
    drop(redis);
    wait_until("Redis is known to be away", Duration::from_secs(5), || async {
        get("/health")
            .await
            .is_ok_and(|answer| answer.status() == 200 && answer.headers()["x-ratelimit-remaining"] == "15")
    })
    .await;
    let mut statuses = Vec::new();
    for turn in 0..20u32 {
        let answer = get("/api/v1/market/selic/current").await?;
        statuses.push(answer.status().as_u16());
        assert_eq!(answer.headers()["x-ratelimit-limit"], "30", "the plan's limit");
        assert_eq!(answer.headers()["x-ratelimit-remaining"], 14u32.saturating_sub(turn).to_string().as_str());
    }
    assert_eq!(statuses, [[200; 15].as_slice(), [429; 5].as_slice()].concat(), "half of 30: two replicas");
    assert_eq!(get("/pricing").await?.status(), 200);
    let health: Value = get("/health").await?.json().await?;
    assert_eq!(health["status"], "degraded");
    let store = database.open_store()?;
    let id = created["id"].as_i64().expect("an id");
    let today = chrono::Utc::now().date_naive();
    let counted = QuietClock::start();
    loop {
        let stored = store.key_usage(id, today - chrono::Days::new(1), today, &[]).await?;
        let mut counts = UsageCounts::default();
        stored.rows.iter().for_each(|row| counts.add(&row.counts));
        if (counts.requests, counts.successful, counts.rate_limited) == (20, 15, 5) {
            break;
        }
        assert!(counted.elapsed() < Duration::from_secs(3), "{counts:?} after three seconds: {}", process.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// How long PostgreSQL is away, each time: `just postgres-away` says longer, and then holds the latencies to a bound too,
/// which beside other tests would be those of the machine.
fn outage_duration_from_env() -> (Duration, bool) {
    let seconds = std::env::var("VINTEM_AWAY_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    (Duration::from_secs(seconds.unwrap_or(2)), seconds.is_some())
}

/// Requests a second meanwhile, and how slow one in a hundred may be.
const REQUESTS_PER_SECOND: u32 = 300;
const MAX_P99: Duration = Duration::from_millis(50);
/// Whatever needs PostgreSQL says so within this, and works again this long after its return.
const MAX_REFUSAL_TIME: Duration = Duration::from_secs(1);
const MAX_RECOVERY_TIME: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn without_postgres_reads_continue_and_registrations_fail_fast() -> TestResult {
    let (redis, postgres) = (DedicatedRedis::start()?, DedicatedPostgres::start()?);
    let wire = TcpProxy::start(postgres.port()).await?;
    let database = format!("{}/postgres", postgres.url());
    for command in [&["migrate"][..], &["demo", "--filings", "20000"]] {
        let (status, _, error) = run_vintem(vintem_binary(), &database, command).await?;
        anyhow::ensure!(status.success(), "{command:?}: {error}");
    }
    let (_, key, _) = run_vintem(
        vintem_binary(),
        &database,
        &["keys", "create", "--plan", "platinum", "--name", "Ana", "--email", "ana@example.com", "--json"],
    )
    .await?;
    let key: Value = serde_json::from_str(&key)?;
    let key = key["api_key"].as_str().expect("a key");
    let through_wire = format!("postgres://postgres@127.0.0.1:{}/postgres", wire.port());
    let flags = ["--limit-platinum", "10000000", "--limit-free", "1000000", "--register-per-day", "1000000"];
    let flags = [flags.as_slice(), &DEFAULT_POSTGRES_BUDGET_FLAGS].concat();
    let process = ServerProcess::start(vintem_binary(), &through_wire, &redis.url(), &flags)?;
    let http = vintem_testkit::http_client_builder().build()?;
    let registers = || async {
        let asked = QuietClock::start();
        let body = serde_json::json!({"name": "Bia", "email": "bia@example.com"});
        let request = http.post(format!("http://{}/api/v1/plans/register", process.address)).json(&body);
        anyhow::Ok((request.send().await?.status().as_u16(), asked.elapsed()))
    };
    // A key is known once it was used.
    assert_eq!(registers().await?.0, 201);
    let paths: Vec<String> = [
        "/api/v1/market/overview",
        "/api/v1/market/selic/current",
        "/api/v1/market/fx?limit=50",
        "/api/v1/companies?limit=20",
        "/api/v1/companies/search?q=serra",
        "/api/v1/filings?limit=20&offset=10000",
        "/api/v1/filings/search?q=dividendos",
        "/api/v1/search?q=banco",
    ]
    .map(str::to_owned)
    .into();
    get_at_rate(&http, &process.address, key, &paths, 50, Duration::from_secs(1)).await;

    let (time, is_judged) = outage_duration_from_env();
    for way in ["stopped", "killed", "cut_off"] {
        match way {
            "stopped" => postgres.stop()?,
            "killed" => postgres.kill()?,
            _ => wire.cut(),
        }
        let (shots, refused) =
            tokio::join!(get_at_rate(&http, &process.address, key, &paths, REQUESTS_PER_SECOND, time), async {
                let mut slowest = Duration::ZERO;
                for _ in 0..3 {
                    let (status, waited) = registers().await?;
                    anyhow::ensure!(status == 503, "{way}: a registration was answered by {status}");
                    slowest = slowest.max(waited);
                }
                Ok(slowest)
            });
        let (slowest, p99) = (refused?, percentile(shots.iter().map(TimedRequest::latency), 99));
        let failed: Vec<_> =
            shots.iter().filter(|shot| shot.status != Some(200)).map(|shot| (&shot.path, shot.status)).collect();
        assert!(failed.is_empty(), "{way}: {} of {} failed: {:?}", failed.len(), shots.len(), failed.first());
        if way == "cut_off" {
            wire.restore();
        } else {
            postgres.launch()?;
        }
        let back = QuietClock::start();
        while registers().await?.0 != 201 {
            assert!(back.elapsed() < Duration::from_secs(20), "{way}: registrations never came back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let recovery = back.elapsed();
        println!("{way}_requests: {}", shots.len());
        println!("{way}_p99_milliseconds: {:.1}", p99.as_secs_f64() * 1e3);
        println!("{way}_slowest_refusal_seconds: {:.2}", slowest.as_secs_f64());
        println!("{way}_recovery_seconds: {:.2}", recovery.as_secs_f64());
        assert!(slowest <= MAX_REFUSAL_TIME, "{way}: {slowest:?}");
        assert!(recovery <= MAX_RECOVERY_TIME, "{way}: {recovery:?}");
        assert!(!is_judged || p99 <= MAX_P99, "{way}: {p99:?}");
    }
    Ok(())
}
