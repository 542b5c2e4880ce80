//! `Retry-After` is exact: a retry after that time is admitted, and a retry a second earlier is not.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use vintem_testkit::rate_limit_check::ObservedDecision;
use vintem_testkit::{DedicatedRedis, ServerProcess, TestDatabase, http_client_builder, parse_env_var};

use crate::{TestResult, friday, vintem_binary};

const REQUEST_LIMIT: u32 = 5;

/// The retries that followed one refusal.
#[derive(Debug, Default, Clone, Copy)]
struct RetryOutcome {
    /// The retry was decided at least a second before `Retry-After` had passed.
    retried_early: bool,
    early_was_admitted: bool,
    /// The retry was decided after `Retry-After` had passed.
    retried_on_time: bool,
    on_time_was_refused: bool,
}

/// `just limits` runs this with a thousand refusals and a window of a full minute; here there are fewer refusals and a
/// shorter window.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_admitted_after_retry_after_and_not_a_second_earlier() -> TestResult {
    let (refusals, window) = match parse_env_var("VINTEM_REFUSALS") {
        Some(refusals) => (refusals, Duration::from_secs(60)),
        None => (150usize, Duration::from_secs(4)),
    };

    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(friday()).await?;

    // Behind a trusted proxy each `X-Forwarded-For` address is a caller of its own.
    let seconds = format!("--limit-window-seconds={}", window.as_secs());
    let limit = format!("--limit-free={REQUEST_LIMIT}");
    let flags = [seconds.as_str(), limit.as_str(), "--trusted-proxies=127.0.0.0/8"];

    let start = || ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &flags);
    let processes = [start()?, start()?];
    let urls: Vec<String> = processes.iter().map(|process| process.url("/api/v1/market/selic/current")).collect();
    let http = http_client_builder().build()?;

    let callers: Vec<_> = (0..refusals)
        .map(|caller| {
            let address = std::net::Ipv4Addr::from(0x0a00_0000 + caller as u32).to_string();
            tokio::spawn(exhaust_limit_and_retry(http.clone(), urls.clone(), address, window))
        })
        .collect();

    let mut outcomes = Vec::new();
    for caller in callers {
        outcomes.push(caller.await??);
    }

    let count = |matches: fn(&RetryOutcome) -> bool| outcomes.iter().filter(|outcome| matches(outcome)).count();
    let early = count(|outcome| outcome.retried_early);
    let in_time = count(|outcome| outcome.retried_on_time);
    let lies = count(|outcome| outcome.early_was_admitted) + count(|outcome| outcome.on_time_was_refused);

    println!("refusals: {}", outcomes.len());
    println!("asked_a_second_too_early: {early}");
    println!("asked_in_time: {in_time}");
    println!("lies: {lies}");

    assert!(early >= refusals / 4, "too few were told to wait for two seconds and more");
    assert!(in_time >= refusals * 9 / 10, "too few came in time");
    assert_eq!(lies, 0);

    Ok(())
}

/// Spends the quota at random instants, is refused, and retries once too early and once on time. The decision times in
/// the responses tell which it was, because a busy machine may delay a request that was sent early.
async fn exhaust_limit_and_retry(
    http: reqwest::Client,
    urls: Vec<String>,
    address: String,
    window: Duration,
) -> anyhow::Result<RetryOutcome> {
    let send = || async {
        let url = &urls[rand::random_range(0..urls.len())];
        let response = http.get(url).header("X-Forwarded-For", &address).send().await?;
        let wait = response.headers().get("retry-after").map(|wait| wait.to_str().unwrap_or_default().parse::<u64>());
        anyhow::Ok((ObservedDecision::from_response(&response)?, wait.transpose()?))
    };

    let mut instants: Vec<Duration> = (0..REQUEST_LIMIT).map(|_| window.mul_f64(rand::random())).collect();
    instants.sort_unstable();

    let started = Instant::now();
    for instant in instants {
        sleep_until(started + instant).await;
        send().await?;
    }

    // Part of the quota may be free again by now, so send until refused.
    let (refused_at_us, wait, sent_at) = loop {
        let sent_at = Instant::now();
        if let (ObservedDecision { admitted: false, decided_at_us, .. }, wait) = send().await? {
            break (decided_at_us, wait.ok_or_else(|| anyhow::anyhow!("refused without Retry-After"))?, sent_at);
        }
    };
    let refused_at = Instant::now();

    let mut outcome = RetryOutcome::default();
    if wait >= 2 {
        sleep_until(sent_at + Duration::from_secs(wait) - Duration::from_millis(1_100)).await;
        let (retry, _) = send().await?;
        outcome.retried_early = retry.decided_at_us - refused_at_us <= (wait - 1) * 1_000_000;
        outcome.early_was_admitted = outcome.retried_early && retry.admitted;
        if retry.admitted {
            return Ok(outcome);
        }
    }

    sleep(Duration::from_secs(wait).saturating_sub(refused_at.elapsed())).await;
    let (retry, _) = send().await?;
    outcome.retried_on_time = retry.decided_at_us - refused_at_us >= wait * 1_000_000;
    outcome.on_time_was_refused = outcome.retried_on_time && !retry.admitted;

    Ok(outcome)
}
