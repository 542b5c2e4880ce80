//! What a refusal says of when to come again is true, and no earlier would have done.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use vintem_testkit::rate_limit_check::ObservedDecision;
use vintem_testkit::{DedicatedRedis, ServerProcess, TestDatabase, http_client_builder, parse_env_var};

use crate::{TestResult, friday, vintem_binary};

const REQUEST_LIMIT: u32 = 5;

/// What one refusal came to.
#[derive(Debug, Default, Clone, Copy)]
struct RetryOutcome {
    /// Whether it was asked again a second too early, and passed.
    retried_early: bool,
    early_was_admitted: bool,
    /// Whether it was asked again when it was told to, and was refused.
    retried_on_time: bool,
    on_time_was_refused: bool,
}

/// A thousand refusals of a full minute by `just limits`, fewer of a short window here.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_admitted_after_retry_after_and_not_a_second_earlier() -> TestResult {
    let (refusals, window) = match parse_env_var("VINTEM_REFUSALS") {
        Some(refusals) => (refusals, Duration::from_secs(60)),
        None => (150usize, Duration::from_secs(4)),
    };
    let (redis, database) = (DedicatedRedis::start()?, TestDatabase::create_demo(friday()).await?);
    // Behind a trusted proxy everybody is somebody else.
    let (seconds, limit) =
        (format!("--limit-window-seconds={}", window.as_secs()), format!("--limit-free={REQUEST_LIMIT}"));
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
    let mut told = Vec::new();
    for caller in callers {
        told.push(caller.await??);
    }
    let count = |is: fn(&RetryOutcome) -> bool| told.iter().filter(|told| is(told)).count();
    let (early, in_time) = (count(|told| told.retried_early), count(|told| told.retried_on_time));
    let lies = count(|told| told.early_was_admitted) + count(|told| told.on_time_was_refused);
    println!("refusals: {}", told.len());
    println!("asked_a_second_too_early: {early}");
    println!("asked_in_time: {in_time}");
    println!("lies: {lies}");
    assert!(early >= refusals / 4, "too few were told to wait for two seconds and more");
    assert!(in_time >= refusals * 9 / 10, "too few came in time");
    assert_eq!(lies, 0);
    Ok(())
}

/// Spends the quota at random instants, is refused, and asks again too early and in time. Which of both it was is told
/// by when the answers were decided: a busy machine may have delayed what was sent early.
async fn exhaust_limit_and_retry(
    http: reqwest::Client,
    urls: Vec<String>,
    address: String,
    window: Duration,
) -> anyhow::Result<RetryOutcome> {
    let ask = || async {
        let url = &urls[rand::random_range(0..urls.len())];
        let answer = http.get(url).header("X-Forwarded-For", &address).send().await?;
        let wait = answer.headers().get("retry-after").map(|wait| wait.to_str().unwrap_or_default().parse::<u64>());
        anyhow::Ok((ObservedDecision::from_response(&answer)?, wait.transpose()?))
    };
    let mut instants: Vec<Duration> = (0..REQUEST_LIMIT).map(|_| window.mul_f64(rand::random())).collect();
    instants.sort_unstable();
    let began = Instant::now();
    for instant in instants {
        sleep_until(began + instant).await;
        ask().await?;
    }
    // Some of what was spent may be free again by now.
    let (refused, wait, received) = loop {
        let asked = Instant::now();
        if let (ObservedDecision { admitted: false, decided_at_us: at_us, .. }, wait) = ask().await? {
            break (at_us, wait.ok_or_else(|| anyhow::anyhow!("refused without Retry-After"))?, asked);
        }
    };
    let answered = Instant::now();
    let mut told = RetryOutcome::default();
    if wait >= 2 {
        sleep_until(received + Duration::from_secs(wait) - Duration::from_millis(1_100)).await;
        let (again, _) = ask().await?;
        told.retried_early = again.decided_at_us - refused <= (wait - 1) * 1_000_000;
        told.early_was_admitted = told.retried_early && again.admitted;
        if again.admitted {
            return Ok(told);
        }
    }
    sleep(Duration::from_secs(wait).saturating_sub(answered.elapsed())).await;
    let (again, _) = ask().await?;
    told.retried_on_time = again.decided_at_us - refused >= wait * 1_000_000;
    told.on_time_was_refused = told.retried_on_time && !again.admitted;
    Ok(told)
}
