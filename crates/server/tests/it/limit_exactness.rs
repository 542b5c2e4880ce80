//! The rate limit is exact across several processes on one Redis: in any window at most N requests are admitted, and
//! none is refused while fewer than N were. `just exactness` checks this with the plans' own limits and windows of a
//! full minute.

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
/// Clients that share a key; each sends every request to a random process.
const CLIENTS_PER_KEY: usize = 6;

/// The limits and the window to check, and for how long.
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
        environment: &[(&str, &str)],
    ) -> anyhow::Result<ServerProcess> {
        let flags = self.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        ServerProcess::start_with_env(vintem_binary(), &database.url(), &redis.url(), &flags, environment)
    }
}

/// When requests are sent.
#[derive(Debug, Clone, Copy)]
enum TrafficPattern {
    /// This multiple of the limit, spread at random over the whole run.
    Steady(f64),
    /// Twice the limit around every window boundary, half before and half after it.
    BoundaryBursts,
    /// Twice the limit in a burst, then slightly more than the limit allows.
    BurstThenDrip,
    /// Three times the limit, then nothing, in a cycle of 0.8 windows, so that it shifts against the windows.
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
    /// The time of each request since the start, sorted.
    fn request_times(self, limit: u32, config: &ExactnessConfig) -> Vec<Duration> {
        let window = config.window;
        let duration = config.duration;
        let mut times = Vec::new();

        // Adds random times between `from` and `to`, at this multiple of the limit.
        let mut add_random_times = |load: f64, from: Duration, to: Duration| {
            let count = load * f64::from(limit) * (to - from).as_secs_f64() / window.as_secs_f64();
            times.extend((0..count.round() as usize).map(|_| from + (to - from).mul_f64(rand::random())));
        };
        let starts = |step: Duration| (0..).map(move |index| step * index).take_while(move |start| *start < duration);

        match self {
            Self::Steady(load) => add_random_times(load, Duration::ZERO, duration),
            Self::BoundaryBursts => {
                add_random_times(0.3, Duration::ZERO, duration);
                for end in starts(window).skip(1) {
                    add_random_times(40.0, end - window / 40, end + window / 40);
                }
            }
            Self::BurstThenDrip => {
                for start in starts(window * 2) {
                    add_random_times(200.0, start, start + window / 100);
                    add_random_times(1.1, start, start + window * 2);
                }
            }
            Self::OnOff => {
                starts(window.mul_f64(0.8)).for_each(|start| add_random_times(3.0, start, start + window.mul_f64(0.4)));
            }
        }

        times.retain(|time| *time < duration);
        times.sort_unstable();
        times
    }

    /// Whether the load is high enough that it must reach the limit.
    const fn must_reach_limit(self) -> bool {
        !matches!(self, Self::Steady(load) if load < 2.0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_admit_exactly_the_limit_of_every_plan_in_any_window() -> TestResult {
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(friday()).await?;
    let config = ExactnessConfig::from_env();
    let processes: Vec<ServerProcess> =
        (0..3).map(|_| config.start_process(&database, &redis, &[])).collect::<anyhow::Result<_>>()?;
    assert_limit_is_exact(&config, &processes, &database, &Plan::ALL, &ALL_PATTERNS).await
}

/// Only the clock of Redis counts: the clocks of the replicas affect no decision and no header.
#[tokio::test(flavor = "multi_thread")]
async fn processes_whose_clocks_are_wrong_by_up_to_an_hour_admit_exactly_the_limit() -> TestResult {
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(friday()).await?;
    let config = ExactnessConfig::from_env();
    let library = find_libfaketime()?;

    let mut processes = Vec::new();
    for skew_seconds in [-3600, -90, 90, 3600] {
        let skew = format!("{skew_seconds:+}s");
        // Timers use the monotonic clock. It stays correct, because nobody can set it on a real machine either.
        let environment =
            [("LD_PRELOAD", library.as_str()), ("FAKETIME", &skew), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        let process = config.start_process(&database, &redis, &environment)?;

        let response = http_client_builder().build()?.get(process.url("/health")).send().await?;
        let date = DateTime::parse_from_rfc2822(response.headers()["date"].to_str()?)?;
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
    assert_limit_is_exact(&config, &processes, &database, &[Plan::Bronze, Plan::Gold], &patterns).await
}

/// Finds the library where Debian's package installs it.
fn find_libfaketime() -> anyhow::Result<String> {
    let library = std::fs::read_dir("/usr/lib")?
        .filter_map(|entry| Some(entry.ok()?.path().join("faketime/libfaketimeMT.so.1")))
        .find(|path: &PathBuf| path.exists());
    let library = library.ok_or_else(|| anyhow::anyhow!("the package libfaketime is not installed"))?;
    Ok(library.to_string_lossy().into_owned())
}

/// Runs every pattern for every plan at the same time, each with its own key, and checks all decisions.
async fn assert_limit_is_exact(
    config: &ExactnessConfig,
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

    let start = Instant::now() + Duration::from_millis(100);
    let mut runs = Vec::new();
    for (plan, pattern, key) in callers {
        let limit = config.limits[plan.rank()];
        let times = pattern.request_times(limit, config);
        let clients: Vec<_> = (0..CLIENTS_PER_KEY)
            .map(|client| {
                let client_times = times.iter().copied().skip(client).step_by(CLIENTS_PER_KEY).collect();
                tokio::spawn(send_requests_at(http.clone(), urls.clone(), key.clone(), start, client_times))
            })
            .collect();
        runs.push((plan, pattern, key, limit as usize, clients));
    }

    let mut violations = 0;
    let mut all = 0;
    for (plan, pattern, key, limit, clients) in runs {
        let mut decisions = Vec::new();
        for client in clients {
            decisions.extend(client.await??);
        }

        let report = check_rate_limit(&decisions, limit, config.window);
        let RateLimitReport { total, admitted, max_in_window, .. } = report;
        let name = format!("{}, {pattern:?}", plan.id());
        println!("{name}: {total} decisions, {admitted} admitted, {max_in_window} of {limit} in a window");
        if report.violation_count() > 0 {
            println!("{name}: {report:?}");
        }
        violations += report.violation_count();
        all += total;
        assert!(!pattern.must_reach_limit() || max_in_window >= limit, "{name}: the limit was never reached");

        let (counted, polls) = poll_usage_until_admitted(&http, &processes[0], &key, config.window).await?;
        assert_eq!(counted, (total + polls) as u64, "{name}: usage");
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
    start: Instant,
    times: Vec<Duration>,
) -> anyhow::Result<Vec<ObservedDecision>> {
    let mut decisions = Vec::with_capacity(times.len());
    for time in times {
        sleep_until(start + time).await;
        let url = &urls[rand::random_range(0..urls.len())];
        decisions.push(ObservedDecision::from_response(&http.get(url).header("X-API-Key", &key).send().await?)?);
    }
    Ok(decisions)
}

/// The usage of the key, and how many requests it took to fetch it. All of them count as usage, refused or not.
async fn poll_usage_until_admitted(
    http: &reqwest::Client,
    process: &ServerProcess,
    key: &str,
    window: Duration,
) -> anyhow::Result<(u64, usize)> {
    let started = Instant::now();
    for polls in 1.. {
        let response = http.get(process.url("/api/v1/plans/usage")).header("X-API-Key", key).send().await?;
        if response.status() == 200 {
            let body: Value = response.json().await?;
            return Ok((body["total_requests"].as_u64().unwrap_or_default(), polls));
        }
        anyhow::ensure!(started.elapsed() < window * 2, "still refused after two windows");
        tokio::time::sleep(window / 20).await;
    }
    unreachable!("the loop has no end of its own")
}
