//! What a refusal says of when to come again is true, and no earlier would have done.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use vintem_testkit::sliding::Decision;
use vintem_testkit::{OwnRedis, ServedProcess, TestDatabase, asked_for, http_client};

use crate::{Outcome, binary, friday};

const LIMIT: u32 = 5;

/// What one refusal came to.
#[derive(Debug, Default, Clone, Copy)]
struct Told {
    /// Whether it was asked again a second too early, and passed.
    early: bool,
    early_passed: bool,
    /// Whether it was asked again when it was told to, and was refused.
    in_time: bool,
    in_time_refused: bool,
}

/// A thousand refusals of a full minute by `just limits`, fewer of a short window here.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_passes_when_it_was_told_to_come_again_and_not_a_second_before() -> Outcome {
    let (refusals, window) = match asked_for("VINTEM_REFUSALS") {
        Some(refusals) => (refusals, Duration::from_secs(60)),
        None => (150usize, Duration::from_secs(4)),
    };
    let (redis, database) = (OwnRedis::start()?, TestDatabase::demo(friday()).await?);
    // Behind a trusted proxy everybody is somebody else.
    let (seconds, limit) = (format!("--limit-window-seconds={}", window.as_secs()), format!("--limit-free={LIMIT}"));
    let flags = [seconds.as_str(), limit.as_str(), "--trusted-proxies=127.0.0.0/8"];
    let start = || ServedProcess::start(binary(), &database.url(), &redis.url(), &flags);
    let processes = [start()?, start()?];
    let urls: Vec<String> = processes.iter().map(|process| process.url("/api/v1/market/selic/current")).collect();
    let http = http_client().build()?;
    let callers: Vec<_> = (0..refusals)
        .map(|caller| {
            let address = std::net::Ipv4Addr::from(0x0a00_0000 + caller as u32).to_string();
            tokio::spawn(be_refused(http.clone(), urls.clone(), address, window))
        })
        .collect();
    let mut told = Vec::new();
    for caller in callers {
        told.push(caller.await??);
    }
    let count = |is: fn(&Told) -> bool| told.iter().filter(|told| is(told)).count();
    let (early, in_time) = (count(|told| told.early), count(|told| told.in_time));
    let lies = count(|told| told.early_passed) + count(|told| told.in_time_refused);
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
async fn be_refused(
    http: reqwest::Client,
    urls: Vec<String>,
    address: String,
    window: Duration,
) -> anyhow::Result<Told> {
    let ask = || async {
        let url = &urls[rand::random_range(0..urls.len())];
        let answer = http.get(url).header("X-Forwarded-For", &address).send().await?;
        let wait = answer.headers().get("retry-after").map(|wait| wait.to_str().unwrap_or_default().parse::<u64>());
        anyhow::Ok((Decision::of(&answer)?, wait.transpose()?))
    };
    let mut instants: Vec<Duration> = (0..LIMIT).map(|_| window.mul_f64(rand::random())).collect();
    instants.sort_unstable();
    let began = Instant::now();
    for instant in instants {
        sleep_until(began + instant).await;
        ask().await?;
    }
    // Some of what was spent may be free again by now.
    let (refused, wait, received) = loop {
        let asked = Instant::now();
        if let (Decision { admitted: false, at_us, .. }, wait) = ask().await? {
            break (at_us, wait.ok_or_else(|| anyhow::anyhow!("refused without Retry-After"))?, asked);
        }
    };
    let answered = Instant::now();
    let mut told = Told::default();
    if wait >= 2 {
        sleep_until(received + Duration::from_secs(wait) - Duration::from_millis(1_100)).await;
        let (again, _) = ask().await?;
        told.early = again.at_us - refused <= (wait - 1) * 1_000_000;
        told.early_passed = told.early && again.admitted;
        if again.admitted {
            return Ok(told);
        }
    }
    sleep(Duration::from_secs(wait).saturating_sub(answered.elapsed())).await;
    let (again, _) = ask().await?;
    told.in_time = again.at_us - refused >= wait * 1_000_000;
    told.in_time_refused = told.in_time && !again.admitted;
    Ok(told)
}
