//! Outages of Redis and PostgreSQL: which requests still work, and which fail fast.

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
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(friday()).await?;
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

    // Redis stops before this key's first request. The replica has seen no other replica there and knows of a second
    // one only from `--replicas 2`.
    drop(redis);
    wait_until("Redis is known to be away", Duration::from_secs(5), || async {
        get("/health")
            .await
            .is_ok_and(|response| response.status() == 200 && response.headers()["x-ratelimit-remaining"] == "15")
    })
    .await;

    let mut statuses = Vec::new();
    for turn in 0..20u32 {
        let response = get("/api/v1/market/selic/current").await?;
        statuses.push(response.status().as_u16());
        assert_eq!(response.headers()["x-ratelimit-limit"], "30", "the plan's limit");
        assert_eq!(response.headers()["x-ratelimit-remaining"], 14u32.saturating_sub(turn).to_string().as_str());
    }
    assert_eq!(statuses, [[200; 15].as_slice(), [429; 5].as_slice()].concat(), "half of 30: two replicas");

    assert_eq!(get("/pricing").await?.status(), 200);
    let health: Value = get("/health").await?.json().await?;
    assert_eq!(health["status"], "degraded");

    let store = database.open_store()?;
    let id = created["id"].as_i64().expect("an id");
    let today = chrono::Utc::now().date_naive();
    let clock = QuietClock::start();
    loop {
        let stored = store.key_usage(id, today - chrono::Days::new(1), today, &[]).await?;
        let mut counts = UsageCounts::default();
        stored.rows.iter().for_each(|row| counts.add(&row.counts));

        if (counts.requests, counts.successful, counts.rate_limited) == (20, 15, 5) {
            break;
        }
        assert!(clock.elapsed() < Duration::from_secs(3), "{counts:?} after three seconds: {}", process.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// How long each PostgreSQL outage lasts, and whether latencies are checked. `just postgres-away` runs longer outages
/// and checks them; in CI, tests that run at the same time would distort them.
fn outage_duration_from_env() -> (Duration, bool) {
    let seconds = std::env::var("VINTEM_AWAY_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    (Duration::from_secs(seconds.unwrap_or(2)), seconds.is_some())
}

/// The load during an outage.
const REQUESTS_PER_SECOND: u32 = 300;
const MAX_P99: Duration = Duration::from_millis(50);
/// A request that needs PostgreSQL is refused within this time.
const MAX_REFUSAL_TIME: Duration = Duration::from_secs(1);
/// Registrations work again this soon after PostgreSQL is back.
const MAX_RECOVERY_TIME: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn without_postgres_reads_continue_and_registrations_fail_fast() -> TestResult {
    let redis = DedicatedRedis::start()?;
    let postgres = DedicatedPostgres::start()?;
    let proxy = TcpProxy::start(postgres.port()).await?;

    let database = format!("{}/postgres", postgres.url());
    for command in [&["migrate"][..], &["demo", "--filings", "20000"]] {
        let (status, _, error) = run_vintem(vintem_binary(), &database, command).await?;
        anyhow::ensure!(status.success(), "{command:?}: {error}");
    }
    let (_, printed, _) = run_vintem(
        vintem_binary(),
        &database,
        &["keys", "create", "--plan", "platinum", "--name", "Ana", "--email", "ana@example.com", "--json"],
    )
    .await?;
    let created: Value = serde_json::from_str(&printed)?;
    let key = created["api_key"].as_str().expect("a key");

    let proxied_url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
    let flags = ["--limit-platinum", "10000000", "--limit-free", "1000000", "--register-per-day", "1000000"];
    let flags = [flags.as_slice(), &DEFAULT_POSTGRES_BUDGET_FLAGS].concat();
    let process = ServerProcess::start(vintem_binary(), &proxied_url, &redis.url(), &flags)?;

    let http = vintem_testkit::http_client_builder().build()?;
    let register = || async {
        let clock = QuietClock::start();
        let body = serde_json::json!({"name": "Bia", "email": "bia@example.com"});
        let request = http.post(format!("http://{}/api/v1/plans/register", process.address)).json(&body);
        let status = request.send().await?.status().as_u16();
        anyhow::Ok((status, clock.elapsed()))
    };
    assert_eq!(register().await?.0, 201);

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
    // The replica caches a key when it is first used, and the outage must not be its first use.
    get_at_rate(&http, &process.address, key, &paths, 50, Duration::from_secs(1)).await;

    let (outage_duration, checks_latency) = outage_duration_from_env();
    for fault in ["stopped", "killed", "cut_off"] {
        match fault {
            "stopped" => postgres.stop()?,
            "killed" => postgres.kill()?,
            _ => proxy.cut(),
        }
        let reads = get_at_rate(&http, &process.address, key, &paths, REQUESTS_PER_SECOND, outage_duration);
        let registrations = async {
            let mut slowest = Duration::ZERO;
            for _ in 0..3 {
                let (status, elapsed) = register().await?;
                anyhow::ensure!(status == 503, "{fault}: a registration was answered by {status}");
                slowest = slowest.max(elapsed);
            }
            anyhow::Ok(slowest)
        };
        let (requests, slowest) = tokio::join!(reads, registrations);
        let slowest = slowest?;

        let p99 = percentile(requests.iter().map(TimedRequest::latency), 99);
        let is_shed = |request: &TimedRequest| {
            let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            body["error"] == "overloaded"
        };
        let (shed, failed): (Vec<_>, Vec<_>) =
            requests.iter().filter(|request| request.status != Some(200)).partition(|request| is_shed(request));
        let first_failed = failed.first().map(|request| (&request.path, request.status));
        assert!(failed.is_empty(), "{fault}: {} of {} failed: {first_failed:?}", failed.len(), requests.len());

        // In CI, beside other tests, the replica may shed requests after a moment without CPU. They succeed when they are
        // repeated, while PostgreSQL is still away.
        assert!(shed.is_empty() || !checks_latency, "{fault}: {} of {} were shed", shed.len(), requests.len());
        for TimedRequest { path, .. } in shed {
            wait_until("the repeated request succeeds", Duration::from_secs(5), || async {
                let request = http.get(format!("http://{}{path}", process.address)).header("X-API-Key", key);
                request.send().await.is_ok_and(|response| response.status() == 200)
            })
            .await;
        }

        if fault == "cut_off" {
            proxy.restore();
        } else {
            postgres.launch()?;
        }
        let recovery_clock = QuietClock::start();
        while register().await?.0 != 201 {
            assert!(recovery_clock.elapsed() < Duration::from_secs(20), "{fault}: registrations never came back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let recovery = recovery_clock.elapsed();

        println!("{fault}_requests: {}", requests.len());
        println!("{fault}_p99_milliseconds: {:.1}", p99.as_secs_f64() * 1e3);
        println!("{fault}_slowest_refusal_seconds: {:.2}", slowest.as_secs_f64());
        println!("{fault}_recovery_seconds: {:.2}", recovery.as_secs_f64());
        assert!(slowest <= MAX_REFUSAL_TIME, "{fault}: {slowest:?}");
        assert!(recovery <= MAX_RECOVERY_TIME, "{fault}: {recovery:?}");
        assert!(!checks_latency || p99 <= MAX_P99, "{fault}: {p99:?}");
    }
    Ok(())
}
