//! Rate limits while Redis is unavailable: no request waits for it, no request fails, callers are still limited, and
//! one second after Redis is back all replicas share their counts again.
//!
//! `just redis-away` runs outages of half a minute and also checks latencies; in CI, tests that run at the same time
//! would distort them. The latency of a request that overlaps a CPU stall is ignored; all its other properties are
//! checked.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use vintem_testkit::background_load::{BackgroundLoad, PlannedRequest, RequestRecord};
use vintem_testkit::cpu_stalls::{CpuStalls, StallMonitor};
use vintem_testkit::rate_limit_check::{ObservedDecision, check_rate_limit};
use vintem_testkit::timed_requests::percentile;
use vintem_testkit::{
    DedicatedRedis, QuietClock, ServerProcess, TcpProxy, TestDatabase, create_key_by_cli, http_client_builder,
    parse_env_var, wait_until,
};

use crate::{TestResult, friday, vintem_binary};

const SELIC_PATH: &str = "/api/v1/market/selic/current";
const REPLICA_COUNT: usize = 3;
/// The Bronze plan's limit per window in these tests.
const BRONZE_LIMIT: usize = 20;
/// The share of it that a replica admits while it counts locally.
const LIMIT_PER_REPLICA: usize = BRONZE_LIMIT.div_ceil(REPLICA_COUNT);
/// Bronze keys, which send twice as many requests as their limit.
const LIMITED_KEYS: usize = 3;
/// Platinum keys, which never reach their limit and send the rest of the load.
const UNLIMITED_KEYS: usize = 12;
/// 1 while the replicas share counts in Redis, 0 while a replica counts locally.
const SHARED_METRIC: &str = "vintem_meter_shared{server=\"0\"}";

/// The length of an outage, the load during it, and whether latencies are checked.
struct OutageConfig {
    outage_duration: Duration,
    calm_duration: Duration,
    window: Duration,
    requests_per_second: u32,
    /// How long a request waits for Redis; longer in CI, where a busy machine adds to the wait.
    budget_ms: &'static str,
    checks_latency: bool,
}

impl OutageConfig {
    fn from_env() -> Self {
        match parse_env_var("VINTEM_REDIS_AWAY_SECONDS") {
            Some(seconds) => Self {
                outage_duration: Duration::from_secs(seconds),
                calm_duration: Duration::from_secs(5),
                window: Duration::from_secs(6),
                requests_per_second: 500,
                budget_ms: "25",
                checks_latency: true,
            },
            None => Self {
                outage_duration: Duration::from_secs(5),
                calm_duration: Duration::from_secs(3),
                window: Duration::from_secs(2),
                requests_per_second: 150,
                budget_ms: "100",
                checks_latency: false,
            },
        }
    }
}

/// How much the 99th percentile may rise in the first second, in which the circuit opens.
const MAX_ADDED_P99_FIRST_SECOND: Duration = Duration::from_millis(30);
/// How much it may rise during the rest of the outage.
const MAX_ADDED_P99: Duration = Duration::from_millis(1);
const MAX_RECOVERY_TIME: Duration = Duration::from_secs(1);
/// If CPU stalls disturbed a larger share of the requests, the remaining latencies prove little.
const MAX_DISTURBED_SHARE: f64 = 0.5;

/// Three replicas that reach one Redis through a proxy.
struct OutageHarness {
    config: OutageConfig,
    processes: Vec<ServerProcess>,
    redis: DedicatedRedis,
    redis_proxy: TcpProxy,
    http: reqwest::Client,
    /// The limited keys first, then the unlimited ones.
    keys: Vec<String>,
    // Dropped last: PostgreSQL drops a database only when no connection to it is open.
    _database: TestDatabase,
}

fn start_process(
    database: &TestDatabase,
    redis_url: &str,
    config: &OutageConfig,
    environment: &[(&str, &str)],
) -> anyhow::Result<ServerProcess> {
    let limit = BRONZE_LIMIT.to_string();
    let window_seconds = config.window.as_secs().to_string();
    let flags = [
        "--limit-bronze",
        &limit,
        "--limit-free",
        &limit,
        "--limit-platinum",
        "10000000",
        "--limit-window-seconds",
        &window_seconds,
        // Behind a trusted proxy each `X-Forwarded-For` address is a caller of its own.
        "--trusted-proxies",
        "127.0.0.0/8",
    ];
    let environment = [&[("VINTEM_REDIS_BUDGET_MS", config.budget_ms)], environment].concat();
    ServerProcess::start_with_env(vintem_binary(), &database.url(), redis_url, &flags, &environment)
}

impl OutageHarness {
    async fn start() -> anyhow::Result<Self> {
        let redis = DedicatedRedis::start_persistent()?;
        let database = TestDatabase::create_demo(friday()).await?;
        let config = OutageConfig::from_env();

        let redis_proxy = TcpProxy::start(redis.port()).await?;
        let url = format!("redis://127.0.0.1:{}", redis_proxy.port());
        let processes: Vec<ServerProcess> =
            (0..REPLICA_COUNT).map(|_| start_process(&database, &url, &config, &[])).collect::<anyhow::Result<_>>()?;

        let mut keys = Vec::new();
        for plan in [["bronze"; LIMITED_KEYS].as_slice(), &["platinum"; UNLIMITED_KEYS]].concat() {
            keys.push(create_key_by_cli(vintem_binary(), &database.url(), plan).await?.1);
        }

        Ok(Self {
            config,
            processes,
            redis,
            redis_proxy,
            http: http_client_builder().build()?,
            keys,
            _database: database,
        })
    }

    /// Starts a load in which each limited key sends twice its share of the limit to each replica, and the unlimited
    /// keys send the rest.
    fn start_load(&self) -> BackgroundLoad {
        let urls: Vec<String> = self.processes.iter().map(|process| process.url(SELIC_PATH)).collect();
        let http = self.http.clone();
        let keys = self.keys.clone();

        let limited_requests_per_second =
            (2 * LIMITED_KEYS * LIMIT_PER_REPLICA * REPLICA_COUNT) as f64 / self.config.window.as_secs_f64();
        let limited_share = limited_requests_per_second / f64::from(self.config.requests_per_second);
        BackgroundLoad::start(self.config.requests_per_second, move || {
            let is_limited = rand::random::<f64>() < limited_share;
            let caller = if is_limited {
                rand::random_range(0..LIMITED_KEYS)
            } else {
                rand::random_range(LIMITED_KEYS..keys.len())
            };
            let replica = rand::random_range(0..urls.len());
            Some(PlannedRequest {
                caller,
                replica,
                request: http.get(&urls[replica]).header("X-API-Key", &keys[caller]),
            })
        })
    }

    async fn all_report_shared(&self, shared: f64) -> bool {
        all_metrics_equal(&self.http, &self.processes, SHARED_METRIC, shared).await
    }

    async fn counts_are_shared(&self) -> bool {
        replicas_share_counts(&self.http, &self.processes, &random_caller_address()).await.unwrap_or(false)
    }

    /// The usage of each key, without the requests that fetch it. `polls` counts those per key, across calls.
    async fn usage_without_polls(&self, polls: &mut [u64]) -> anyhow::Result<Vec<u64>> {
        let mut counts = Vec::new();
        for (key, polls) in self.keys.iter().zip(polls) {
            let (total, attempts) = fetch_usage(&self.http, &self.processes[0], key).await?;
            *polls += attempts;
            counts.push(total - *polls);
        }
        Ok(counts)
    }
}

/// Whether this metric has this value on all processes.
async fn all_metrics_equal(http: &reqwest::Client, processes: &[ServerProcess], metric: &str, value: f64) -> bool {
    for process in processes {
        if !matches!(process.fetch_metric(http, metric).await, Ok(Some(reported)) if reported == value) {
            return false;
        }
    }
    true
}

/// A random address in 11.0.0.0/8, which no other caller is likely to have.
fn random_caller_address() -> String {
    std::net::Ipv4Addr::from_bits(0x0b00_0000 | rand::random::<u32>() >> 8).to_string()
}

/// Whether a caller's request to one replica counts on the next.
async fn replicas_share_counts(
    http: &reqwest::Client,
    processes: &[ServerProcess],
    caller: &str,
) -> anyhow::Result<bool> {
    let mut remaining = Vec::new();
    for process in processes {
        let response = http.get(process.url(SELIC_PATH)).header("X-Forwarded-For", caller).send().await?;
        remaining.push(response.headers()["x-ratelimit-remaining"].to_str()?.parse::<usize>()?);
    }
    Ok(remaining.iter().enumerate().all(|(turn, remaining)| *remaining == BRONZE_LIMIT - 1 - turn))
}

/// The usage of a key, and how many requests it took to fetch it. All of them count as usage, refused or not.
async fn fetch_usage(http: &reqwest::Client, process: &ServerProcess, key: &str) -> anyhow::Result<(u64, u64)> {
    let clock = QuietClock::start();
    for attempts in 1.. {
        let response = http.get(process.url("/api/v1/plans/usage")).header("X-API-Key", key).send().await?;
        if response.status() == 200 {
            let body: Value = response.json().await?;
            return Ok((body["total_requests"].as_u64().unwrap_or_default(), attempts));
        }
        anyhow::ensure!(clock.elapsed() < Duration::from_secs(30), "{} for the usage", response.status());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    unreachable!("the loop has no end of its own")
}

fn unix_time_us() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// Whether Redis still has its data after the outage.
#[derive(PartialEq)]
enum RedisMemory {
    Kept,
    Lost,
}

/// The latencies of the requests that no CPU stall overlapped.
struct UndisturbedLatencies {
    latency_by_due_time: Vec<(Instant, Duration)>,
    disturbed_share: f64,
}

impl UndisturbedLatencies {
    fn new<'r>(records: impl IntoIterator<Item = &'r RequestRecord>, stalls: &CpuStalls) -> Self {
        let (undisturbed, disturbed): (Vec<&RequestRecord>, Vec<&RequestRecord>) =
            records.into_iter().partition(|record| stalls.none_overlap(record.due_at, record.answered_at));
        let disturbed_share = disturbed.len() as f64 / (undisturbed.len() + disturbed.len()).max(1) as f64;
        Self {
            latency_by_due_time: undisturbed.iter().map(|record| (record.due_at, record.latency())).collect(),
            disturbed_share,
        }
    }

    fn p99(&self, from: Instant, to: Instant) -> Duration {
        percentile(
            self.latency_by_due_time
                .iter()
                .filter(|(due_at, _)| (from..to).contains(due_at))
                .map(|(_, latency)| *latency),
            99,
        )
    }
}

/// Makes Redis unavailable and available again under load, and checks that every guarantee held.
async fn run_outage(
    name: &str,
    memory: RedisMemory,
    start_outage: impl Fn(&OutageHarness) -> anyhow::Result<()>,
    end_outage: impl Fn(&OutageHarness) -> anyhow::Result<()>,
) -> TestResult {
    let harness = OutageHarness::start().await?;
    wait_until("all replicas count together", Duration::from_secs(5), || harness.counts_are_shared()).await;
    let load = harness.start_load();
    let stall_monitor = StallMonitor::start()?;
    tokio::time::sleep(harness.config.calm_duration).await;

    let outage_start = Instant::now();
    start_outage(&harness)?;
    wait_until("each replica counts by itself", Duration::from_secs(2), || harness.all_report_shared(0.0)).await;
    let circuit_open_after = outage_start.elapsed();
    let local_from_us = unix_time_us();
    tokio::time::sleep(harness.config.outage_duration).await;

    let local_until_us = unix_time_us();
    end_outage(&harness)?;
    let outage_end = Instant::now();
    let recovery_clock = QuietClock::start();
    wait_until("all say that they count together", Duration::from_secs(10), || harness.all_report_shared(1.0)).await;
    let reported_after = recovery_clock.elapsed();
    wait_until("all count together", Duration::from_secs(10), || harness.counts_are_shared()).await;
    let shared_after = recovery_clock.elapsed();
    tokio::time::sleep(harness.config.calm_duration).await;

    let records = load.stop().await?;
    let latencies = UndisturbedLatencies::new(&records, &stall_monitor.stop()?);
    let failed = records.iter().filter(|record| record.status().is_none()).count();
    let errors = records.iter().filter(|record| record.status().is_some_and(|status| status >= 500)).count();

    let first_second_end = outage_start + Duration::from_secs(1);
    let before = latencies.p99(outage_start - harness.config.calm_duration + Duration::from_secs(1), outage_start);
    let added_at_first = latencies.p99(outage_start, first_second_end).saturating_sub(before);
    let added_later = latencies.p99(first_second_end, outage_end).saturating_sub(before);
    let (max_by_one, max_by_all) = max_admitted(&harness, &records, local_from_us, local_until_us)?;

    println!("{name}_requests: {}", records.len());
    println!("{name}_share_while_the_machine_stood_still: {:.3}", latencies.disturbed_share);
    println!("{name}_p99_milliseconds_before: {:.2}", before.as_secs_f64() * 1e3);
    println!("{name}_p99_milliseconds_added_in_the_first_second: {:.2}", added_at_first.as_secs_f64() * 1e3);
    println!("{name}_p99_milliseconds_added_afterwards: {:.2}", added_later.as_secs_f64() * 1e3);
    println!("{name}_seconds_until_each_counted_by_itself: {:.2}", circuit_open_after.as_secs_f64());
    println!("{name}_most_admitted_by_one_replica: {max_by_one} of {LIMIT_PER_REPLICA}");
    println!("{name}_most_admitted_by_all: {max_by_all} of {BRONZE_LIMIT}");
    println!("{name}_seconds_until_the_gauge_said_shared: {:.2}", reported_after.as_secs_f64());
    println!("{name}_seconds_until_shared: {:.2}", shared_after.as_secs_f64());
    println!("{name}_without_answer: {failed}");
    println!("{name}_errors: {errors}");

    assert_eq!((failed, errors), (0, 0), "{name}");
    assert_eq!(max_by_one, LIMIT_PER_REPLICA, "{name}: what a replica admits by itself");
    // A window in which counting changes from shared to local may hold the full limit plus the share of every replica.
    assert!(max_by_all <= BRONZE_LIMIT + REPLICA_COUNT * LIMIT_PER_REPLICA, "{name}: {max_by_all} in a window");
    assert!(
        reported_after <= MAX_RECOVERY_TIME && shared_after <= MAX_RECOVERY_TIME,
        "{name}: {reported_after:?}, {shared_after:?}"
    );
    if harness.config.checks_latency {
        assert!(latencies.disturbed_share < MAX_DISTURBED_SHARE, "{name}: the machine stood still most of the time");
        assert!(added_at_first <= MAX_ADDED_P99_FIRST_SECOND, "{name}: {added_at_first:?} at first");
        assert!(added_later <= MAX_ADDED_P99, "{name}: {added_later:?} afterwards");
    }

    assert_usage_counted_once(name, &harness, &records, &memory).await
}

/// The most requests of a limited key that one replica admitted in a window while it counted locally, and that all
/// replicas together admitted in any window. Also checks that local limits are exact and that the headers report them.
fn max_admitted(
    harness: &OutageHarness,
    records: &[RequestRecord],
    local_from_us: u64,
    local_until_us: u64,
) -> anyhow::Result<(usize, usize)> {
    let window_us = harness.config.window.as_micros() as u64;
    let mut max_by_one = 0;
    let mut max_by_all = 0;
    for key in 0..LIMITED_KEYS {
        let of_key: Vec<&RequestRecord> = records.iter().filter(|record| record.caller == key).collect();
        let decisions: Vec<ObservedDecision> = of_key.iter().filter_map(|record| record.decision()).collect();
        max_by_all = max_by_all.max(check_rate_limit(&decisions, BRONZE_LIMIT, harness.config.window).max_in_window);

        for replica in 0..REPLICA_COUNT {
            // Requests admitted before the circuit was seen to be open may cause refusals in the first window.
            let is_local = |decision: &ObservedDecision| {
                let from = if decision.admitted { local_from_us } else { local_from_us + window_us };
                (from..local_until_us).contains(&decision.decided_at_us)
            };
            let local: Vec<&&RequestRecord> = of_key
                .iter()
                .filter(|record| record.replica == replica && record.decision().as_ref().is_some_and(is_local))
                .collect();
            let decisions: Vec<ObservedDecision> = local.iter().filter_map(|record| record.decision()).collect();
            let report = check_rate_limit(&decisions, LIMIT_PER_REPLICA, harness.config.window);
            anyhow::ensure!(report.violation_count() == 0, "replica {replica}, by itself: {report:?}");
            max_by_one = max_by_one.max(report.max_in_window);

            for response in local.iter().filter_map(|record| record.response.as_ref()) {
                anyhow::ensure!(response.limit == BRONZE_LIMIT as u64, "Limit became {}", response.limit);
                anyhow::ensure!(response.remaining < LIMIT_PER_REPLICA as u64, "{} remain", response.remaining);
            }
        }
    }
    Ok((max_by_one, max_by_all))
}

/// Checks that every answered request is counted once, whether in Redis or locally. Counts that were only in Redis may
/// be lost if Redis lost its data.
async fn assert_usage_counted_once(
    name: &str,
    harness: &OutageHarness,
    records: &[RequestRecord],
    memory: &RedisMemory,
) -> TestResult {
    let mut answered = vec![0; harness.keys.len()];
    records.iter().filter(|record| record.response.is_some()).for_each(|record| answered[record.caller] += 1);

    wait_until("what was kept is stored", Duration::from_secs(10), || {
        all_metrics_equal(&harness.http, &harness.processes, "vintem_usage_kept", 0.0)
    })
    .await;
    // The last outcomes may not be recorded yet, and a drain may still be running.
    let clock = QuietClock::start();
    let mut polls = vec![0; harness.keys.len()];
    let mut counted = harness.usage_without_polls(&mut polls).await?;
    while counted != answered && clock.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        counted = harness.usage_without_polls(&mut polls).await?;
    }

    let mut lost = 0;
    let mut doubled = 0;
    for (answered, counted) in answered.iter().zip(&counted) {
        lost += u64::saturating_sub(*answered, *counted);
        doubled += counted.saturating_sub(*answered);
    }
    println!("{name}_usage_lost: {lost}");
    println!("{name}_usage_doubled: {doubled}");
    assert_eq!(doubled, 0, "{name}: {answered:?} answered, {counted:?} counted");
    match memory {
        RedisMemory::Kept => assert_eq!(lost, 0, "{name}: {answered:?} answered, {counted:?} counted"),
        // Redis is drained every two seconds, and the outage may have interrupted a drain.
        RedisMemory::Lost => assert!(lost <= 4 * u64::from(harness.config.requests_per_second), "{name}: {lost}"),
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_served_and_limited_while_redis_hangs() -> TestResult {
    run_outage("stopped", RedisMemory::Kept, |harness| harness.redis.pause(), |harness| harness.redis.resume()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_served_and_limited_while_redis_is_killed() -> TestResult {
    run_outage("killed", RedisMemory::Kept, |harness| harness.redis.kill(), |harness| harness.redis.launch()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_served_and_limited_while_redis_is_cut_off() -> TestResult {
    let cut = |harness: &OutageHarness| {
        harness.redis_proxy.cut();
        Ok(())
    };
    let restore = |harness: &OutageHarness| {
        harness.redis_proxy.restore();
        Ok(())
    };
    run_outage("cut_off", RedisMemory::Kept, cut, restore).await
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_counts_again_after_redis_loses_its_data() -> TestResult {
    run_outage("emptied", RedisMemory::Lost, |harness| harness.redis.kill(), |harness| harness.redis.launch_empty())
        .await
}

/// Without Redis a replica can't see the others; it only knows the configured number.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_never_saw_redis_divides_limits_by_its_configured_replica_count() -> TestResult {
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(friday()).await?;
    redis.kill()?;
    let http = http_client_builder().build()?;
    let config = OutageConfig { window: Duration::from_secs(60), ..OutageConfig::from_env() };

    for (replicas, share) in [("1", BRONZE_LIMIT), ("3", BRONZE_LIMIT.div_ceil(3)), ("100", 1)] {
        let process = start_process(&database, &redis.url(), &config, &[("VINTEM_REPLICAS", replicas)])?;
        let caller = random_caller_address();
        let mut statuses = Vec::new();
        for _ in 0..=BRONZE_LIMIT {
            let response = http.get(process.url(SELIC_PATH)).header("X-Forwarded-For", &caller).send().await?;
            assert_eq!(response.headers()["x-ratelimit-limit"], BRONZE_LIMIT.to_string().as_str());
            statuses.push(response.status().as_u16());
        }

        let expected = [vec![200; share], vec![429; BRONZE_LIMIT + 1 - share]].concat();
        assert_eq!(statuses, expected, "one of {replicas}");
    }
    Ok(())
}

/// While Redis is unavailable each replica stores its counts in PostgreSQL, where the others read them.
#[tokio::test(flavor = "multi_thread")]
async fn without_redis_a_request_to_one_replica_is_in_the_usage_of_another_within_two_seconds() -> TestResult {
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(friday()).await?;
    let config = OutageConfig::from_env();
    let start = || start_process(&database, &redis.url(), &config, &[]);
    let processes = [start()?, start()?];
    let [first, second] = &processes;
    let (_, key) = create_key_by_cli(vintem_binary(), &database.url(), "platinum").await?;
    let http = http_client_builder().build()?;

    redis.kill()?;
    wait_until("each replica counts by itself", Duration::from_secs(5), || {
        all_metrics_equal(&http, &processes, SHARED_METRIC, 0.0)
    })
    .await;

    // The requests that fetch the usage are stored and counted too.
    let mut sent = 0;
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        assert_eq!(http.get(first.url(SELIC_PATH)).header("X-API-Key", &key).send().await?.status(), 200);
        sent += 1;
        let clock = QuietClock::start();
        loop {
            let response = http.get(second.url("/api/v1/plans/usage")).header("X-API-Key", &key).send().await?;
            let status = response.status();
            let body: Value = response.json().await?;
            assert_eq!(status, 200, "{body}");
            sent += 1;
            if body["total_requests"].as_u64() == Some(sent) {
                break;
            }
            assert!(clock.elapsed() < Duration::from_secs(2), "not told after {:?}", clock.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        slowest = slowest.max(clock.elapsed());
    }
    println!("seconds_until_told: {:.2}", slowest.as_secs_f64());
    Ok(())
}

/// Callers are distributed over two Redis servers. A caller on the surviving one must see exact limits and, in
/// `just redis-away`, an unchanged latency.
#[tokio::test(flavor = "multi_thread")]
async fn killing_one_of_two_redis_servers_does_not_affect_callers_of_the_other() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let config = OutageConfig::from_env();
    let servers = [DedicatedRedis::start_persistent()?, DedicatedRedis::start_persistent()?];
    let urls = servers.each_ref().map(DedicatedRedis::url).join(",");
    // A killed server refuses connections at once, so a long budget only keeps a slow moment of the machine from looking
    // like an outage of the other server.
    let patience: &[(&str, &str)] = if config.checks_latency { &[] } else { &[("VINTEM_REDIS_BUDGET_MS", "2000")] };
    let processes: Vec<ServerProcess> = (0..REPLICA_COUNT)
        .map(|_| start_process(&database, &urls, &config, patience))
        .collect::<anyhow::Result<_>>()?;
    let http = http_client_builder().build()?;

    // The server that counts a caller has keys with its address.
    let mut callers: [Vec<String>; 2] = Default::default();
    for _ in 0..400 {
        let caller = random_caller_address();
        assert!(replicas_share_counts(&http, &processes, &caller).await?, "callers are counted together");
        for (server, callers) in servers.iter().zip(&mut callers) {
            let redis_keys: Vec<String> = server.run_command(&["KEYS", &format!("*{caller}*")])?;
            if !redis_keys.is_empty() && callers.len() < LIMITED_KEYS {
                callers.push(caller.clone());
            }
        }
        if callers.iter().all(|callers| callers.len() == LIMITED_KEYS) {
            break;
        }
    }
    let [unaffected, affected] = &callers;
    assert_eq!((unaffected.len(), affected.len()), (LIMITED_KEYS, LIMITED_KEYS), "both servers have callers");

    let all_callers: Vec<String> = [unaffected.as_slice(), affected].concat();
    let caller_count = all_callers.len();
    let targets: Vec<String> = processes.iter().map(|process| process.url(SELIC_PATH)).collect();
    let load_http = http.clone();
    let load = BackgroundLoad::start(config.requests_per_second, move || {
        let caller = rand::random_range(0..caller_count);
        let replica = rand::random_range(0..targets.len());
        Some(PlannedRequest {
            caller,
            replica,
            request: load_http.get(&targets[replica]).header("X-Forwarded-For", &all_callers[caller]),
        })
    });
    let stall_monitor = StallMonitor::start()?;
    tokio::time::sleep(config.calm_duration).await;

    let outage_start = Instant::now();
    servers[1].kill()?;
    tokio::time::sleep(config.outage_duration).await;
    servers[1].launch()?;
    let outage_end = Instant::now();

    let recovery_clock = QuietClock::start();
    let new_caller_is_shared =
        || async { replicas_share_counts(&http, &processes, &random_caller_address()).await.unwrap_or(false) };
    // Shared counts of six new callers in a row: it is unlikely that the surviving server counts all of them.
    let mut in_a_row = 0;
    while in_a_row < 6 {
        in_a_row = if new_caller_is_shared().await { in_a_row + 1 } else { 0 };
        assert!(recovery_clock.elapsed() < Duration::from_secs(10), "never counted together again");
    }
    let shared_after = recovery_clock.elapsed();
    let records = load.stop().await?;
    let stalls = stall_monitor.stop()?;

    let of_unaffected = || records.iter().filter(|record| record.caller < LIMITED_KEYS);
    let failed = records.iter().filter(|record| !matches!(record.status(), Some(200 | 429))).count();
    let mut by_caller: HashMap<usize, Vec<ObservedDecision>> = HashMap::new();
    for record in of_unaffected() {
        by_caller.entry(record.caller).or_default().extend(record.decision());
    }

    let mut violations = 0;
    for decisions in by_caller.values() {
        let report = check_rate_limit(decisions, BRONZE_LIMIT, config.window);
        assert_eq!(report.max_in_window, BRONZE_LIMIT, "{report:?}");
        // The requests that assigned callers to servers are not recorded, and may cause refusals in the first window.
        let first_us = decisions.iter().map(|decision| decision.decided_at_us).min().unwrap_or(0);
        let later: Vec<ObservedDecision> = decisions
            .iter()
            .filter(|decision| {
                decision.admitted || decision.decided_at_us > first_us + config.window.as_micros() as u64
            })
            .copied()
            .collect();
        violations += check_rate_limit(&later, BRONZE_LIMIT, config.window).violation_count();
    }
    let latencies = UndisturbedLatencies::new(of_unaffected(), &stalls);
    let p99_before = latencies.p99(outage_start - config.calm_duration, outage_start);
    let p99_during = latencies.p99(outage_start, outage_end);

    println!("requests: {}", records.len());
    println!("share_while_the_machine_stood_still: {:.3}", latencies.disturbed_share);
    println!("p99_milliseconds_before: {:.2}", p99_before.as_secs_f64() * 1e3);
    println!("p99_milliseconds_meanwhile: {:.2}", p99_during.as_secs_f64() * 1e3);
    println!("seconds_until_shared: {:.2}", shared_after.as_secs_f64());
    println!("failed: {failed}");
    println!("violations_for_callers_of_the_other: {violations}");

    assert_eq!((failed, violations), (0, 0));
    assert!(shared_after <= MAX_RECOVERY_TIME, "{shared_after:?}");
    if config.checks_latency {
        assert!(latencies.disturbed_share < MAX_DISTURBED_SHARE, "the machine stood still most of the time");
        assert!(p99_during <= p99_before + MAX_ADDED_P99, "{p99_before:?}, then {p99_during:?}");
    }
    Ok(())
}
