//! The promise of the rate limit, over several processes on one Redis: in any window at most N are admitted, and none is
//! refused while fewer than N were. `just exactness` holds full minutes at the plans' own limits to it.

use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};
use vintem_domain::Plan;
use vintem_testkit::rate_limit_check::{ObservedDecision, RateLimitReport, check_rate_limit};
use vintem_testkit::{
    DedicatedRedis, ServerProcess, TestDatabase, create_key_by_cli, http_client_builder, parse_env_var,
};

use crate::{TestResult, friday, vintem_binary};

const SELIC_PATH: &str = "/api/v1/market/selic/current";
/// Who share a key, each at a random process each time.
const CLIENTS_PER_KEY: usize = 6;

/// What is held to the promise, and for how long.
struct ExactnessConfig {
    window: Duration,
    duration: Duration,
    limits: [u32; 4],
}

impl ExactnessConfig {
    fn from_env() -> Self {
        match parse_env_var("VINTEM_EXACTNESS_SECONDS") {
            Some(seconds) => Self {
                window: Duration::from_secs(60),
                duration: Duration::from_secs(seconds),
                limits: Plan::ALL.map(Plan::default_requests_per_minute),
            },
            None => Self { window: Duration::from_secs(4), duration: Duration::from_secs(13), limits: [9, 15, 30, 60] },
        }
    }

    fn flags(&self) -> Vec<String> {
        let limit = |(plan, limit): (Plan, u32)| format!("--limit-{}={limit}", plan.id());
        let mut flags: Vec<String> = Plan::ALL.into_iter().zip(self.limits).map(limit).collect();
        flags.push(format!("--limit-window-seconds={}", self.window.as_secs()));
        flags
    }

    fn start_process(
        &self,
        database: &TestDatabase,
        redis: &DedicatedRedis,
        clock: &[(&str, &str)],
    ) -> anyhow::Result<ServerProcess> {
        let flags = self.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        ServerProcess::start_with_env(vintem_binary(), &database.url(), &redis.url(), &flags, clock)
    }
}

/// When requests come.
#[derive(Debug, Clone, Copy)]
enum TrafficPattern {
    /// So many times the limit, all the time.
    Steady(f64),
    /// Twice the limit at every end of a window, half before and half after it.
    BoundaryBursts,
    /// Twice the limit at once, then a little more than it gives.
    BurstThenDrip,
    /// Three times the limit, then silence, in turns that no window divides.
    OnOff,
}

const ALL_PATTERNS: [TrafficPattern; 7] = [
    TrafficPattern::Steady(0.9),
    TrafficPattern::Steady(1.0),
    TrafficPattern::Steady(2.0),
    TrafficPattern::Steady(5.0),
    TrafficPattern::BoundaryBursts,
    TrafficPattern::BurstThenDrip,
    TrafficPattern::OnOff,
];

impl TrafficPattern {
    /// Since the beginning, in order.
    fn request_times(self, limit: u32, setup: &ExactnessConfig) -> Vec<Duration> {
        let (window, time) = (setup.window, setup.duration);
        let mut instants = Vec::new();
        // At random, at this multiple of the limit.
        let mut sprinkle = |load: f64, from: Duration, to: Duration| {
            let count = load * f64::from(limit) * (to - from).as_secs_f64() / window.as_secs_f64();
            instants.extend((0..count.round() as usize).map(|_| from + (to - from).mul_f64(rand::random())));
        };
        let starts = |step: Duration| (0..).map(move |turn| step * turn).take_while(move |start| *start < time);
        match self {
            Self::Steady(load) => sprinkle(load, Duration::ZERO, time),
            Self::BoundaryBursts => {
                sprinkle(0.3, Duration::ZERO, time);
                for end in starts(window).skip(1) {
                    sprinkle(40.0, end - window / 40, end + window / 40);
                }
            }
            Self::BurstThenDrip => {
                for start in starts(window * 2) {
                    sprinkle(200.0, start, start + window / 100);
                    sprinkle(1.1, start, start + window * 2);
                }
            }
            Self::OnOff => {
                starts(window.mul_f64(0.8)).for_each(|start| sprinkle(3.0, start, start + window.mul_f64(0.4)));
            }
        }
        instants.retain(|instant| *instant < time);
        instants.sort_unstable();
        instants
    }

    /// Whether so much comes that the limit must be reached.
    const fn must_reach_limit(self) -> bool {
        !matches!(self, Self::Steady(load) if load < 2.0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_admit_exactly_the_limit_of_every_plan_in_any_window() -> TestResult {
    let (redis, database, setup) =
        (DedicatedRedis::start()?, TestDatabase::create_demo(friday()).await?, ExactnessConfig::from_env());
    let processes: Vec<ServerProcess> =
        (0..3).map(|_| setup.start_process(&database, &redis, &[])).collect::<anyhow::Result<_>>()?;
    assert_limit_is_exact(&setup, &processes, &database, &Plan::ALL, &ALL_PATTERNS).await
}

/// One clock rules: that of Redis. What the machines think of the time changes no decision and no header.
#[tokio::test(flavor = "multi_thread")]
async fn processes_whose_clocks_are_wrong_by_up_to_an_hour_admit_exactly_the_limit() -> TestResult {
    let (redis, database, setup) =
        (DedicatedRedis::start()?, TestDatabase::create_demo(friday()).await?, ExactnessConfig::from_env());
    let library = find_libfaketime()?;
    let mut processes = Vec::new();
    for skew_seconds in [-3600, -90, 90, 3600] {
        let skew = format!("{skew_seconds:+}s");
        // Timers run by the monotonic clock, which no administrator sets: it stays true.
        let clock = [("LD_PRELOAD", library.as_str()), ("FAKETIME", &skew), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        let process = setup.start_process(&database, &redis, &clock)?;
        let date = http_client_builder().build()?.get(process.url("/health")).send().await?;
        let date = DateTime::parse_from_rfc2822(date.headers()["date"].to_str()?)?;
        let wrong_by = (date.to_utc() - Utc::now()).num_seconds();
        assert!((wrong_by - skew_seconds).abs() <= 5, "wrong by {wrong_by} s instead of {skew_seconds} s");
        processes.push(process);
    }
    let patterns = [
        TrafficPattern::Steady(1.0),
        TrafficPattern::Steady(2.0),
        TrafficPattern::BoundaryBursts,
        TrafficPattern::BurstThenDrip,
    ];
    assert_limit_is_exact(&setup, &processes, &database, &[Plan::Bronze, Plan::Gold], &patterns).await
}

/// Where Debian's package puts it.
fn find_libfaketime() -> anyhow::Result<String> {
    let found = std::fs::read_dir("/usr/lib")?
        .filter_map(|entry| Some(entry.ok()?.path().join("faketime/libfaketimeMT.so.1")))
        .find(|library: &PathBuf| library.exists());
    let found = found.ok_or_else(|| anyhow::anyhow!("the package libfaketime is not installed"))?;
    Ok(found.to_string_lossy().into_owned())
}

/// Each pattern on a key of its own, all at once.
async fn assert_limit_is_exact(
    setup: &ExactnessConfig,
    processes: &[ServerProcess],
    database: &TestDatabase,
    plans: &[Plan],
    patterns: &[TrafficPattern],
) -> TestResult {
    let http = http_client_builder().build()?;
    let urls: Vec<String> = processes.iter().map(|process| process.url(SELIC_PATH)).collect();
    let mut callers = Vec::new();
    for plan in plans {
        for pattern in patterns {
            callers.push((*plan, *pattern, create_key_by_cli(vintem_binary(), &database.url(), plan.id()).await?.1));
        }
    }
    let began = Instant::now() + Duration::from_millis(100);
    let mut under_way = Vec::new();
    for (plan, pattern, key) in callers {
        let limit = setup.limits[plan.rank()];
        let instants = pattern.request_times(limit, setup);
        let clients: Vec<_> = (0..CLIENTS_PER_KEY)
            .map(|client| {
                let mine = instants.iter().copied().skip(client).step_by(CLIENTS_PER_KEY).collect();
                tokio::spawn(send_requests_at(http.clone(), urls.clone(), key.clone(), began, mine))
            })
            .collect();
        under_way.push((plan, pattern, key, limit as usize, clients));
    }
    let (mut violations, mut all) = (0, 0);
    for (plan, pattern, key, limit, clients) in under_way {
        let mut decisions = Vec::new();
        for client in clients {
            decisions.extend(client.await??);
        }
        let findings = check_rate_limit(&decisions, limit, setup.window);
        let RateLimitReport { total: decisions, admitted, max_in_window: most, .. } = findings;
        let name = format!("{}, {pattern:?}", plan.id());
        println!("{name}: {decisions} decisions, {admitted} admitted, {most} of {limit} in a window");
        if findings.violation_count() > 0 {
            println!("{name}: {findings:?}");
        }
        violations += findings.violation_count();
        all += decisions;
        assert!(!pattern.must_reach_limit() || most >= limit, "{name}: the limit was never reached");
        let (counted, asked) = poll_usage_until_admitted(&http, &processes[0], &key, setup.window).await?;
        assert_eq!(counted, (decisions + asked) as u64, "{name}: usage");
    }
    println!("decisions: {all}");
    println!("violations: {violations}");
    assert_eq!(violations, 0);
    Ok(())
}

async fn send_requests_at(
    http: reqwest::Client,
    urls: Vec<String>,
    key: String,
    began: Instant,
    instants: Vec<Duration>,
) -> anyhow::Result<Vec<ObservedDecision>> {
    let mut decisions = Vec::with_capacity(instants.len());
    for instant in instants {
        sleep_until(began + instant).await;
        let url = &urls[rand::random_range(0..urls.len())];
        decisions.push(ObservedDecision::from_response(&http.get(url).header("X-API-Key", &key).send().await?)?);
    }
    Ok(decisions)
}

/// What the usage says, and how often it was asked for until the limit let it through: those count too.
async fn poll_usage_until_admitted(
    http: &reqwest::Client,
    process: &ServerProcess,
    key: &str,
    window: Duration,
) -> anyhow::Result<(u64, usize)> {
    let began = Instant::now();
    for asked in 1.. {
        let answer = http.get(process.url("/api/v1/plans/usage")).header("X-API-Key", key).send().await?;
        if answer.status() == 200 {
            let body: Value = answer.json().await?;
            return Ok((body["total_requests"].as_u64().unwrap_or_default(), asked));
        }
        anyhow::ensure!(began.elapsed() < window * 2, "still refused after two windows");
        tokio::time::sleep(window / 20).await;
    }
    unreachable!("the loop has no end of its own")
}
