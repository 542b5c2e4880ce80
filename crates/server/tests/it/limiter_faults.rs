//! What becomes of the limit while Redis is away: nobody waits for it, nobody is turned away by an error, everybody is
//! still limited, and a second after its return all replicas count together again.
//!
//! `just redis-away` takes it away for half a minute each and holds the latencies to their bounds too, which beside other
//! tests would be those of the machine. Of the requests that came while the machine stood still the time is not judged; all
//! else of them is.

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
/// What a key of the Bronze plan may do in a window here, and what each replica gives it of that on its own.
const BRONZE_LIMIT: usize = 20;
const LIMIT_PER_REPLICA: usize = BRONZE_LIMIT.div_ceil(REPLICA_COUNT);
/// Keys that ask for twice their limit; and those that no limit holds back, for the pace.
const LIMITED_KEYS: usize = 3;
const UNLIMITED_KEYS: usize = 12;
/// 1 while all replicas count together, 0 while each counts by itself.
const SHARED_METRIC: &str = "vintem_meter_shared{server=\"0\"}";

/// How long it is away, at which pace, and whether latencies are judged.
struct OutageConfig {
    outage_duration: Duration,
    calm_duration: Duration,
    window: Duration,
    requests_per_second: u32,
    /// What a request waits for Redis; beside other tests it may be the machine that keeps it waiting.
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

/// What is added to the slowest of a hundred while the circuit closes, and from then on.
const MAX_ADDED_P99_FIRST_SECOND: Duration = Duration::from_millis(30);
const MAX_ADDED_P99: Duration = Duration::from_millis(1);
const MAX_RECOVERY_TIME: Duration = Duration::from_secs(1);
/// Where the machine stood still for more of the requests, the rest says little.
const MAX_DISTURBED_SHARE: f64 = 0.5;

/// Three replicas on one Redis, which they reach through a wire.
struct OutageHarness {
    config: OutageConfig,
    processes: Vec<ServerProcess>,
    redis: DedicatedRedis,
    redis_proxy: TcpProxy,
    http: reqwest::Client,
    /// The tight ones first.
    keys: Vec<String>,
    // Dropped last: a database goes when nobody is connected any more.
    _database: TestDatabase,
}

fn start_process(
    database: &TestDatabase,
    redis_url: &str,
    measure: &OutageConfig,
    environment: &[(&str, &str)],
) -> anyhow::Result<ServerProcess> {
    let limits = [BRONZE_LIMIT.to_string(), measure.window.as_secs().to_string()];
    let flags = [
        "--limit-bronze",
        &limits[0],
        "--limit-free",
        &limits[0],
        "--limit-platinum",
        "10000000",
        "--limit-window-seconds",
        &limits[1],
        // Behind a trusted proxy everybody can be somebody new.
        "--trusted-proxies",
        "127.0.0.0/8",
    ];
    let environment = [&[("VINTEM_REDIS_BUDGET_MS", measure.budget_ms)], environment].concat();
    ServerProcess::start_with_env(vintem_binary(), &database.url(), redis_url, &flags, &environment)
}

impl OutageHarness {
    async fn start() -> anyhow::Result<Self> {
        let (redis, database, measure) =
            (DedicatedRedis::start_persistent()?, TestDatabase::create_demo(friday()).await?, OutageConfig::from_env());
        let wire = TcpProxy::start(redis.port()).await?;
        let url = format!("redis://127.0.0.1:{}", wire.port());
        let processes: Vec<ServerProcess> =
            (0..REPLICA_COUNT).map(|_| start_process(&database, &url, &measure, &[])).collect::<anyhow::Result<_>>()?;
        let mut keys = Vec::new();
        for plan in [["bronze"; LIMITED_KEYS].as_slice(), &["platinum"; UNLIMITED_KEYS]].concat() {
            keys.push(create_key_by_cli(vintem_binary(), &database.url(), plan).await?.1);
        }
        Ok(Self {
            config: measure,
            processes,
            redis,
            redis_proxy: wire,
            http: http_client_builder().build()?,
            keys,
            _database: database,
        })
    }

    /// The tight keys ask for twice their limit at each replica, the others for the rest of the pace.
    fn start_load(&self) -> BackgroundLoad {
        let urls: Vec<String> = self.processes.iter().map(|process| process.url(SELIC_PATH)).collect();
        let (http, keys) = (self.http.clone(), self.keys.clone());
        let of_the_tight =
            (2 * LIMITED_KEYS * LIMIT_PER_REPLICA * REPLICA_COUNT) as f64 / self.config.window.as_secs_f64();
        let share_of_the_tight = of_the_tight / f64::from(self.config.requests_per_second);
        BackgroundLoad::start(self.config.requests_per_second, move || {
            let is_tight = rand::random::<f64>() < share_of_the_tight;
            let caller = if is_tight {
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

    /// The usage of each key, without the requests that ask for it; `polls` counts those from one call to the next.
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

/// Whether all tell their operators this value.
async fn all_metrics_equal(http: &reqwest::Client, processes: &[ServerProcess], metric: &str, value: f64) -> bool {
    for process in processes {
        if !matches!(process.fetch_metric(http, metric).await, Ok(Some(told)) if told == value) {
            return false;
        }
    }
    true
}

/// An address that nobody had before.
fn random_caller_address() -> String {
    std::net::Ipv4Addr::from_bits(0x0b00_0000 | rand::random::<u32>() >> 8).to_string()
}

/// Whether what a caller did at one replica counts at the next.
async fn replicas_share_counts(
    http: &reqwest::Client,
    processes: &[ServerProcess],
    caller: &str,
) -> anyhow::Result<bool> {
    let mut remaining = Vec::new();
    for process in processes {
        let answer = http.get(process.url(SELIC_PATH)).header("X-Forwarded-For", caller).send().await?;
        remaining.push(answer.headers()["x-ratelimit-remaining"].to_str()?.parse::<usize>()?);
    }
    Ok(remaining.iter().enumerate().all(|(turn, remaining)| *remaining == BRONZE_LIMIT - 1 - turn))
}

/// The usage of a key, and how many requests it took to get it past the limit, which are counted too.
async fn fetch_usage(http: &reqwest::Client, process: &ServerProcess, key: &str) -> anyhow::Result<(u64, u64)> {
    let clock = QuietClock::start();
    for attempts in 1.. {
        let answer = http.get(process.url("/api/v1/plans/usage")).header("X-API-Key", key).send().await?;
        if answer.status() == 200 {
            let body: Value = answer.json().await?;
            return Ok((body["total_requests"].as_u64().unwrap_or_default(), attempts));
        }
        anyhow::ensure!(clock.elapsed() < Duration::from_secs(30), "{} for the usage", answer.status());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    unreachable!("the loop has no end of its own")
}

fn unix_time_us() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// Whether what Redis held is there again after its return.
#[derive(PartialEq)]
enum RedisMemory {
    Kept,
    Lost,
}

/// How long requests took that came while the machine did not stand still.
struct UndisturbedLatencies {
    latency_by_due_time: Vec<(Instant, Duration)>,
    disturbed_share: f64,
}

impl UndisturbedLatencies {
    fn new<'e>(entries: impl IntoIterator<Item = &'e RequestRecord>, standstills: &CpuStalls) -> Self {
        let (spared, disturbed): (Vec<&RequestRecord>, Vec<&RequestRecord>) =
            entries.into_iter().partition(|entry| standstills.none_overlap(entry.due_at, entry.answered_at));
        let disturbed_share = disturbed.len() as f64 / (spared.len() + disturbed.len()).max(1) as f64;
        Self {
            latency_by_due_time: spared.iter().map(|entry| (entry.due_at, entry.latency())).collect(),
            disturbed_share,
        }
    }

    fn p99(&self, from: Instant, to: Instant) -> Duration {
        percentile(
            self.latency_by_due_time.iter().filter(|(due, _)| (from..to).contains(due)).map(|(_, latency)| *latency),
            99,
        )
    }
}

/// Takes Redis away and brings it back under load, and holds all that was answered to what is promised.
async fn run_outage(
    name: &str,
    memory: RedisMemory,
    take_away: impl Fn(&OutageHarness) -> anyhow::Result<()>,
    bring_back: impl Fn(&OutageHarness) -> anyhow::Result<()>,
) -> TestResult {
    let scene = OutageHarness::start().await?;
    wait_until("all replicas count together", Duration::from_secs(5), || scene.counts_are_shared()).await;
    let (load, stillness) = (scene.start_load(), StallMonitor::start()?);
    tokio::time::sleep(scene.config.calm_duration).await;
    let gone = Instant::now();
    take_away(&scene)?;
    wait_until("each replica counts by itself", Duration::from_secs(2), || scene.all_report_shared(0.0)).await;
    let (open, open_us) = (gone.elapsed(), unix_time_us());
    tokio::time::sleep(scene.config.outage_duration).await;
    let back_us = unix_time_us();
    bring_back(&scene)?;
    let back = Instant::now();
    let recovery = QuietClock::start();
    wait_until("all say that they count together", Duration::from_secs(10), || scene.all_report_shared(1.0)).await;
    let told_after = recovery.elapsed();
    wait_until("all count together", Duration::from_secs(10), || scene.counts_are_shared()).await;
    let together_after = recovery.elapsed();
    tokio::time::sleep(scene.config.calm_duration).await;
    let entries = load.stop().await?;
    let latencies = UndisturbedLatencies::new(&entries, &stillness.stop()?);

    let failed = entries.iter().filter(|entry| entry.status().is_none()).count();
    let errors = entries.iter().filter(|entry| entry.status().is_some_and(|status| status >= 500)).count();
    let before = latencies.p99(gone - scene.config.calm_duration + Duration::from_secs(1), gone);
    let at_first = latencies.p99(gone, gone + Duration::from_secs(1)).saturating_sub(before);
    let afterwards = latencies.p99(gone + Duration::from_secs(1), back).saturating_sub(before);
    let (by_itself, in_all) = max_admitted(&scene, &entries, open_us, back_us)?;
    println!("{name}_requests: {}", entries.len());
    println!("{name}_share_while_the_machine_stood_still: {:.3}", latencies.disturbed_share);
    println!("{name}_p99_milliseconds_before: {:.2}", before.as_secs_f64() * 1e3);
    println!("{name}_p99_milliseconds_added_in_the_first_second: {:.2}", at_first.as_secs_f64() * 1e3);
    println!("{name}_p99_milliseconds_added_afterwards: {:.2}", afterwards.as_secs_f64() * 1e3);
    println!("{name}_seconds_until_each_counted_by_itself: {:.2}", open.as_secs_f64());
    println!("{name}_most_admitted_by_one_replica: {by_itself} of {LIMIT_PER_REPLICA}");
    println!("{name}_most_admitted_by_all: {in_all} of {BRONZE_LIMIT}");
    println!("{name}_seconds_until_the_gauge_said_shared: {:.2}", told_after.as_secs_f64());
    println!("{name}_seconds_until_shared: {:.2}", together_after.as_secs_f64());
    println!("{name}_without_answer: {failed}");
    println!("{name}_errors: {errors}");
    assert_eq!((failed, errors), (0, 0), "{name}");
    assert_eq!(by_itself, LIMIT_PER_REPLICA, "{name}: what a replica admits by itself");
    // Once at each hand-over: what all admitted together, and what each then admits by itself.
    assert!(in_all <= BRONZE_LIMIT + REPLICA_COUNT * LIMIT_PER_REPLICA, "{name}: {in_all} in a window");
    assert!(
        told_after <= MAX_RECOVERY_TIME && together_after <= MAX_RECOVERY_TIME,
        "{name}: {told_after:?}, {together_after:?}"
    );
    if scene.config.checks_latency {
        assert!(latencies.disturbed_share < MAX_DISTURBED_SHARE, "{name}: the machine stood still most of the time");
        assert!(at_first <= MAX_ADDED_P99_FIRST_SECOND, "{name}: {at_first:?} at first");
        assert!(afterwards <= MAX_ADDED_P99, "{name}: {afterwards:?} afterwards");
    }
    assert_usage_counted_once(name, &scene, &entries, &memory).await
}

/// The most that one replica admitted of a tight key in a window while it counted by itself, and that all did ever.
/// Also: while it counts by itself it is exact, and says what it does.
fn max_admitted(
    scene: &OutageHarness,
    entries: &[RequestRecord],
    open_us: u64,
    back_us: u64,
) -> anyhow::Result<(usize, usize)> {
    let window_us = scene.config.window.as_micros() as u64;
    let (mut by_itself, mut in_all) = (0, 0);
    for key in 0..LIMITED_KEYS {
        let of_key: Vec<&RequestRecord> = entries.iter().filter(|entry| entry.caller == key).collect();
        let decisions: Vec<ObservedDecision> = of_key.iter().filter_map(|entry| entry.decision()).collect();
        in_all = in_all.max(check_rate_limit(&decisions, BRONZE_LIMIT, scene.config.window).max_in_window);
        for replica in 0..REPLICA_COUNT {
            // A refusal of the first window may be for what was admitted before the circuit was seen to be open.
            let is_own = |decision: &ObservedDecision| {
                let from = if decision.admitted { open_us } else { open_us + window_us };
                (from..back_us).contains(&decision.decided_at_us)
            };
            let own: Vec<&&RequestRecord> = of_key
                .iter()
                .filter(|entry| entry.replica == replica && entry.decision().as_ref().is_some_and(is_own))
                .collect();
            let decisions: Vec<ObservedDecision> = own.iter().filter_map(|entry| entry.decision()).collect();
            let findings = check_rate_limit(&decisions, LIMIT_PER_REPLICA, scene.config.window);
            anyhow::ensure!(findings.violation_count() == 0, "replica {replica}, by itself: {findings:?}");
            by_itself = by_itself.max(findings.max_in_window);
            for answer in own.iter().filter_map(|entry| entry.response.as_ref()) {
                anyhow::ensure!(answer.limit == BRONZE_LIMIT as u64, "Limit became {}", answer.limit);
                anyhow::ensure!(answer.remaining < LIMIT_PER_REPLICA as u64, "{} remain", answer.remaining);
            }
        }
    }
    Ok((by_itself, in_all))
}

/// Every answered request is counted once, whoever counted it. What only Redis knew and lost is lost.
async fn assert_usage_counted_once(
    name: &str,
    scene: &OutageHarness,
    entries: &[RequestRecord],
    memory: &RedisMemory,
) -> TestResult {
    let mut answered = vec![0; scene.keys.len()];
    entries.iter().filter(|entry| entry.response.is_some()).for_each(|entry| answered[entry.caller] += 1);
    wait_until("what was kept is stored", Duration::from_secs(10), || {
        all_metrics_equal(&scene.http, &scene.processes, "vintem_usage_kept", 0.0)
    })
    .await;
    // The last outcomes and a drain may still be on their way.
    let drained = QuietClock::start();
    let mut polls = vec![0; scene.keys.len()];
    let mut counted = scene.usage_without_polls(&mut polls).await?;
    while counted != answered && drained.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        counted = scene.usage_without_polls(&mut polls).await?;
    }
    let (mut lost, mut doubled) = (0, 0);
    for (answered, counted) in answered.iter().zip(&counted) {
        lost += u64::saturating_sub(*answered, *counted);
        doubled += counted.saturating_sub(*answered);
    }
    println!("{name}_usage_lost: {lost}");
    println!("{name}_usage_doubled: {doubled}");
    assert_eq!(doubled, 0, "{name}: {answered:?} answered, {counted:?} counted");
    match memory {
        RedisMemory::Kept => assert_eq!(lost, 0, "{name}: {answered:?} answered, {counted:?} counted"),
        // It is drained every two seconds, and a drain may have been under way.
        RedisMemory::Lost => assert!(lost <= 4 * u64::from(scene.config.requests_per_second), "{name}: {lost}"),
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_served_and_limited_while_redis_hangs() -> TestResult {
    run_outage("stopped", RedisMemory::Kept, |scene| scene.redis.pause(), |scene| scene.redis.resume()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_served_and_limited_while_redis_is_killed() -> TestResult {
    run_outage("killed", RedisMemory::Kept, |scene| scene.redis.kill(), |scene| scene.redis.launch()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_served_and_limited_while_redis_is_cut_off() -> TestResult {
    let cut = |scene: &OutageHarness| {
        scene.redis_proxy.cut();
        Ok(())
    };
    let mend = |scene: &OutageHarness| {
        scene.redis_proxy.restore();
        Ok(())
    };
    run_outage("cut_off", RedisMemory::Kept, cut, mend).await
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_counts_again_after_redis_loses_its_data() -> TestResult {
    run_outage("emptied", RedisMemory::Lost, |scene| scene.redis.kill(), |scene| scene.redis.launch_empty()).await
}

/// A replica that starts without Redis knows of no other but by its settings.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_never_saw_redis_divides_limits_by_its_configured_replica_count() -> TestResult {
    let (redis, database) = (DedicatedRedis::start()?, TestDatabase::create_demo(friday()).await?);
    redis.kill()?;
    let (http, measure) =
        (http_client_builder().build()?, OutageConfig { window: Duration::from_secs(60), ..OutageConfig::from_env() });
    for (replicas, share) in [("1", BRONZE_LIMIT), ("3", BRONZE_LIMIT.div_ceil(3)), ("100", 1)] {
        let process = start_process(&database, &redis.url(), &measure, &[("VINTEM_REPLICAS", replicas)])?;
        let (mut statuses, caller) = (Vec::new(), random_caller_address());
        for _ in 0..=BRONZE_LIMIT {
            let answer = http.get(process.url(SELIC_PATH)).header("X-Forwarded-For", &caller).send().await?;
            assert_eq!(answer.headers()["x-ratelimit-limit"], BRONZE_LIMIT.to_string().as_str());
            statuses.push(answer.status().as_u16());
        }
        let expected = [vec![200; share], vec![429; BRONZE_LIMIT + 1 - share]].concat();
        assert_eq!(statuses, expected, "one of {replicas}");
    }
    Ok(())
}

/// What was answered while Redis is away is told by another replica soon, for it is stored.
#[tokio::test(flavor = "multi_thread")]
async fn without_redis_a_request_to_one_replica_is_in_the_usage_of_another_within_two_seconds() -> TestResult {
    let (redis, database) = (DedicatedRedis::start()?, TestDatabase::create_demo(friday()).await?);
    let measure = OutageConfig::from_env();
    let start = || start_process(&database, &redis.url(), &measure, &[]);
    let processes = [start()?, start()?];
    let [first, second] = &processes;
    let (_, key) = create_key_by_cli(vintem_binary(), &database.url(), "platinum").await?;
    let http = http_client_builder().build()?;
    redis.kill()?;
    wait_until("each replica counts by itself", Duration::from_secs(5), || {
        all_metrics_equal(&http, &processes, SHARED_METRIC, 0.0)
    })
    .await;
    // Also those by which the second replica is asked are stored, as they come.
    let (mut sent, mut slowest) = (0, Duration::ZERO);
    for _ in 0..10 {
        assert_eq!(http.get(first.url(SELIC_PATH)).header("X-API-Key", &key).send().await?.status(), 200);
        sent += 1;
        let answered = QuietClock::start();
        loop {
            let answer = http.get(second.url("/api/v1/plans/usage")).header("X-API-Key", &key).send().await?;
            assert_eq!(answer.status(), 200);
            sent += 1;
            if answer.json::<Value>().await?["total_requests"].as_u64() == Some(sent) {
                break;
            }
            assert!(answered.elapsed() < Duration::from_secs(2), "not told after {:?}", answered.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        slowest = slowest.max(answered.elapsed());
    }
    println!("seconds_until_told: {:.2}", slowest.as_secs_f64());
    Ok(())
}

/// Callers are shared out over two servers; who is counted by the one that stays notices nothing.
#[tokio::test(flavor = "multi_thread")]
async fn killing_one_of_two_redis_servers_does_not_affect_callers_of_the_other() -> TestResult {
    let (database, measure) = (TestDatabase::create_demo(friday()).await?, OutageConfig::from_env());
    let servers = [DedicatedRedis::start_persistent()?, DedicatedRedis::start_persistent()?];
    let urls = servers.each_ref().map(DedicatedRedis::url).join(",");
    let processes: Vec<ServerProcess> =
        (0..REPLICA_COUNT).map(|_| start_process(&database, &urls, &measure, &[])).collect::<anyhow::Result<_>>()?;
    let http = http_client_builder().build()?;
    // Which server counts a caller is seen by which one knows its address.
    let mut callers: [Vec<String>; 2] = Default::default();
    for _ in 0..400 {
        let caller = random_caller_address();
        assert!(replicas_share_counts(&http, &processes, &caller).await?, "callers are counted together");
        for (server, callers) in servers.iter().zip(&mut callers) {
            let known: Vec<String> = server.run_command(&["KEYS", &format!("*{caller}*")])?;
            if !known.is_empty() && callers.len() < LIMITED_KEYS {
                callers.push(caller.clone());
            }
        }
        if callers.iter().all(|callers| callers.len() == LIMITED_KEYS) {
            break;
        }
    }
    let [staying, leaving] = &callers;
    assert_eq!((staying.len(), leaving.len()), (LIMITED_KEYS, LIMITED_KEYS), "both servers have callers");
    let all: Vec<String> = [staying.as_slice(), leaving].concat();
    let count = all.len();
    let targets: Vec<String> = processes.iter().map(|process| process.url(SELIC_PATH)).collect();
    let sender = http.clone();
    let load = BackgroundLoad::start(measure.requests_per_second, move || {
        let (caller, replica) = (rand::random_range(0..count), rand::random_range(0..targets.len()));
        Some(PlannedRequest {
            caller,
            replica,
            request: sender.get(&targets[replica]).header("X-Forwarded-For", &all[caller]),
        })
    });
    let stillness = StallMonitor::start()?;
    tokio::time::sleep(measure.calm_duration).await;
    let gone = Instant::now();
    servers[1].kill()?;
    tokio::time::sleep(measure.outage_duration).await;
    servers[1].launch()?;
    let back = Instant::now();
    let recovery = QuietClock::start();
    let anew = || async { replicas_share_counts(&http, &processes, &random_caller_address()).await.unwrap_or(false) };
    // Six new callers in a row are counted together: not all of them by the server that stayed.
    let mut in_a_row = 0;
    while in_a_row < 6 {
        in_a_row = if anew().await { in_a_row + 1 } else { 0 };
        assert!(recovery.elapsed() < Duration::from_secs(10), "never counted together again");
    }
    let together_after = recovery.elapsed();
    let (entries, standstills) = (load.stop().await?, stillness.stop()?);

    let of = |callers: std::ops::Range<usize>| entries.iter().filter(move |entry| callers.contains(&entry.caller));
    let failed = entries.iter().filter(|entry| !matches!(entry.status(), Some(200 | 429))).count();
    let mut by_caller: HashMap<usize, Vec<ObservedDecision>> = HashMap::new();
    for entry in of(0..LIMITED_KEYS) {
        by_caller.entry(entry.caller).or_default().extend(entry.decision());
    }
    let mut violations = 0;
    for decisions in by_caller.values() {
        let findings = check_rate_limit(decisions, BRONZE_LIMIT, measure.window);
        assert_eq!(findings.max_in_window, BRONZE_LIMIT, "{findings:?}");
        // What the search for callers did is not in the journal: the first window of each may be refused for it.
        let first = decisions.iter().map(|decision| decision.decided_at_us).min().unwrap_or(0);
        let later: Vec<ObservedDecision> = decisions
            .iter()
            .filter(|decision| decision.admitted || decision.decided_at_us > first + measure.window.as_micros() as u64)
            .copied()
            .collect();
        violations += check_rate_limit(&later, BRONZE_LIMIT, measure.window).violation_count();
    }
    let latencies = UndisturbedLatencies::new(of(0..LIMITED_KEYS), &standstills);
    let (before, meanwhile) = (latencies.p99(gone - measure.calm_duration, gone), latencies.p99(gone, back));
    println!("requests: {}", entries.len());
    println!("share_while_the_machine_stood_still: {:.3}", latencies.disturbed_share);
    println!("p99_milliseconds_before: {:.2}", before.as_secs_f64() * 1e3);
    println!("p99_milliseconds_meanwhile: {:.2}", meanwhile.as_secs_f64() * 1e3);
    println!("seconds_until_shared: {:.2}", together_after.as_secs_f64());
    println!("failed: {failed}");
    println!("violations_for_callers_of_the_other: {violations}");
    assert_eq!((failed, violations), (0, 0));
    assert!(together_after <= MAX_RECOVERY_TIME, "{together_after:?}");
    if measure.checks_latency {
        assert!(latencies.disturbed_share < MAX_DISTURBED_SHARE, "the machine stood still most of the time");
        assert!(meanwhile <= before + MAX_ADDED_P99, "{before:?}, then {meanwhile:?}");
    }
    Ok(())
}
