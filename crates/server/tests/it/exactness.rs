//! The promise of the rate limit, over several processes on one Redis: in any window at most N are admitted, and none is
//! refused while fewer than N were. `just exactness` holds full minutes at the plans' own limits to it.

use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};
use vintem_domain::Plan;
use vintem_testkit::sliding::{Decision, Findings, hold};
use vintem_testkit::{OwnRedis, ServedProcess, TestDatabase, asked_for, http_client, make_key};

use crate::{Outcome, binary, friday};

const SELIC: &str = "/api/v1/market/selic/current";
/// Who share a key, each at a random process each time.
const CLIENTS: usize = 6;

/// What is held to the promise, and for how long.
struct Setup {
    window: Duration,
    time: Duration,
    limits: [u32; 4],
}

impl Setup {
    fn new() -> Self {
        match asked_for("VINTEM_EXACTNESS_SECONDS") {
            Some(seconds) => Self {
                window: Duration::from_secs(60),
                time: Duration::from_secs(seconds),
                limits: Plan::ALL.map(Plan::default_limit),
            },
            None => Self { window: Duration::from_secs(4), time: Duration::from_secs(13), limits: [9, 15, 30, 60] },
        }
    }

    fn flags(&self) -> Vec<String> {
        let limit = |(plan, limit): (Plan, u32)| format!("--limit-{}={limit}", plan.id());
        let mut flags: Vec<String> = Plan::ALL.into_iter().zip(self.limits).map(limit).collect();
        flags.push(format!("--limit-window-seconds={}", self.window.as_secs()));
        flags
    }

    fn start(
        &self,
        database: &TestDatabase,
        redis: &OwnRedis,
        clock: &[(&str, &str)],
    ) -> anyhow::Result<ServedProcess> {
        let flags = self.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        ServedProcess::start_in(binary(), &database.url(), &redis.url(), &flags, clock)
    }
}

/// When requests come.
#[derive(Debug, Clone, Copy)]
enum Pattern {
    /// So many times the limit, all the time.
    Steady(f64),
    /// Twice the limit at every end of a window, half before and half after it.
    BoundaryBursts,
    /// Twice the limit at once, then a little more than it gives.
    BurstThenDrip,
    /// Three times the limit, then silence, in turns that no window divides.
    OnOff,
}

const PATTERNS: [Pattern; 7] = [
    Pattern::Steady(0.9),
    Pattern::Steady(1.0),
    Pattern::Steady(2.0),
    Pattern::Steady(5.0),
    Pattern::BoundaryBursts,
    Pattern::BurstThenDrip,
    Pattern::OnOff,
];

impl Pattern {
    /// Since the beginning, in order.
    fn instants(self, limit: u32, setup: &Setup) -> Vec<Duration> {
        let (window, time) = (setup.window, setup.time);
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
    const fn exhausts(self) -> bool {
        !matches!(self, Self::Steady(load) if load < 2.0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_admit_exactly_the_limit_of_every_plan_in_any_window() -> Outcome {
    let (redis, database, setup) = (OwnRedis::start()?, TestDatabase::demo(friday()).await?, Setup::new());
    let processes: Vec<ServedProcess> =
        (0..3).map(|_| setup.start(&database, &redis, &[])).collect::<anyhow::Result<_>>()?;
    hold_to_the_promise(&setup, &processes, &database, &Plan::ALL, &PATTERNS).await
}

/// One clock rules: that of Redis. What the machines think of the time changes no decision and no header.
#[tokio::test(flavor = "multi_thread")]
async fn processes_whose_clocks_are_wrong_by_up_to_an_hour_admit_exactly_the_limit() -> Outcome {
    let (redis, database, setup) = (OwnRedis::start()?, TestDatabase::demo(friday()).await?, Setup::new());
    let library = libfaketime()?;
    let mut processes = Vec::new();
    for skew_seconds in [-3600, -90, 90, 3600] {
        let skew = format!("{skew_seconds:+}s");
        // Timers run by the monotonic clock, which no administrator sets: it stays true.
        let clock = [("LD_PRELOAD", library.as_str()), ("FAKETIME", &skew), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        let process = setup.start(&database, &redis, &clock)?;
        let date = http_client().build()?.get(process.url("/health")).send().await?;
        let date = DateTime::parse_from_rfc2822(date.headers()["date"].to_str()?)?;
        let wrong_by = (date.to_utc() - Utc::now()).num_seconds();
        assert!((wrong_by - skew_seconds).abs() <= 5, "wrong by {wrong_by} s instead of {skew_seconds} s");
        processes.push(process);
    }
    let patterns = [Pattern::Steady(1.0), Pattern::Steady(2.0), Pattern::BoundaryBursts, Pattern::BurstThenDrip];
    hold_to_the_promise(&setup, &processes, &database, &[Plan::Bronze, Plan::Gold], &patterns).await
}

/// Where Debian's package puts it.
fn libfaketime() -> anyhow::Result<String> {
    let found = std::fs::read_dir("/usr/lib")?
        .filter_map(|entry| Some(entry.ok()?.path().join("faketime/libfaketimeMT.so.1")))
        .find(|library: &PathBuf| library.exists());
    let found = found.ok_or_else(|| anyhow::anyhow!("the package libfaketime is not installed"))?;
    Ok(found.to_string_lossy().into_owned())
}

/// Each pattern on a key of its own, all at once.
async fn hold_to_the_promise(
    setup: &Setup,
    processes: &[ServedProcess],
    database: &TestDatabase,
    plans: &[Plan],
    patterns: &[Pattern],
) -> Outcome {
    let http = http_client().build()?;
    let urls: Vec<String> = processes.iter().map(|process| process.url(SELIC)).collect();
    let mut callers = Vec::new();
    for plan in plans {
        for pattern in patterns {
            callers.push((*plan, *pattern, make_key(binary(), &database.url(), plan.id()).await?.1));
        }
    }
    let began = Instant::now() + Duration::from_millis(100);
    let mut under_way = Vec::new();
    for (plan, pattern, key) in callers {
        let limit = setup.limits[plan.rank()];
        let instants = pattern.instants(limit, setup);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let mine = instants.iter().copied().skip(client).step_by(CLIENTS).collect();
                tokio::spawn(visit_at(http.clone(), urls.clone(), key.clone(), began, mine))
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
        let findings = hold(&decisions, limit, setup.window);
        let Findings { decisions, admitted, most, .. } = findings;
        let name = format!("{}, {pattern:?}", plan.id());
        println!("{name}: {decisions} decisions, {admitted} admitted, {most} of {limit} in a window");
        if findings.violations() > 0 {
            println!("{name}: {findings:?}");
        }
        violations += findings.violations();
        all += decisions;
        assert!(!pattern.exhausts() || most >= limit, "{name}: the limit was never reached");
        let (counted, asked) = usage_once_admitted(&http, &processes[0], &key, setup.window).await?;
        assert_eq!(counted, (decisions + asked) as u64, "{name}: usage");
    }
    println!("decisions: {all}");
    println!("violations: {violations}");
    assert_eq!(violations, 0);
    Ok(())
}

async fn visit_at(
    http: reqwest::Client,
    urls: Vec<String>,
    key: String,
    began: Instant,
    instants: Vec<Duration>,
) -> anyhow::Result<Vec<Decision>> {
    let mut decisions = Vec::with_capacity(instants.len());
    for instant in instants {
        sleep_until(began + instant).await;
        let url = &urls[rand::random_range(0..urls.len())];
        decisions.push(Decision::of(&http.get(url).header("X-API-Key", &key).send().await?)?);
    }
    Ok(decisions)
}

/// What the usage says, and how often it was asked for until the limit let it through: those count too.
async fn usage_once_admitted(
    http: &reqwest::Client,
    process: &ServedProcess,
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
