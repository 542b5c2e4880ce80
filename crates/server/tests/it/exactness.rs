//! The promise of the rate limit, over several processes on one Redis.

use std::time::{Duration, Instant};

use serde_json::Value;
use vintem_testkit::{OwnRedis, ServedProcess, TestDatabase, run_vintem};

use crate::{Outcome, binary, friday};

const WINDOW: Duration = Duration::from_secs(6);
const LIMIT: usize = 40;
const CLIENTS: usize = 6;

/// One answer: when Redis decided it, to the microsecond, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Decision {
    at_us: u64,
    admitted: bool,
}

/// In any window at most N are admitted, and none is refused while fewer than N were.
#[tokio::test(flavor = "multi_thread")]
async fn three_processes_admit_exactly_the_limit_in_any_window() -> Outcome {
    let (redis, database) = (OwnRedis::start()?, TestDatabase::demo(friday()).await?);
    let flags = ["--limit-window-seconds", "6", "--limit-bronze", "40"];
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(ServedProcess::start(binary(), &database.url(), &redis.url(), &flags)?);
    }
    let create = ["keys", "create", "--plan", "bronze", "--name", "Teste", "--email", "teste@example.com", "--json"];
    let (_, printed, _) = run_vintem(binary(), &database.url(), &create).await?;
    let key: Value = serde_json::from_str(&printed)?;
    let key = key["api_key"].as_str().expect("a key").to_owned();
    let addresses: Vec<String> = processes.iter().map(|process| process.address.clone()).collect();

    let began = Instant::now();
    let clients =
        (0..CLIENTS).map(|client| tokio::spawn(visit_in_turns(client, addresses.clone(), key.clone(), began)));
    let mut decisions = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        decisions.extend(client.await??);
    }
    decisions.sort();

    let admitted: Vec<u64> =
        decisions.iter().filter(|decision| decision.admitted).map(|decision| decision.at_us).collect();
    let window_us = WINDOW.as_micros() as u64;
    // A window that begins just after an instant ends a window later, that instant included.
    let within = |end_us: u64| {
        let first = admitted.partition_point(|at| at + window_us <= end_us);
        admitted.partition_point(|at| *at <= end_us) - first
    };
    let most = admitted.iter().map(|at| within(*at)).max().unwrap_or(0);
    let wrongly_refused =
        decisions.iter().filter(|decision| !decision.admitted && within(decision.at_us) < LIMIT).count();
    println!(
        "decisions: {}, admitted: {}, most in a window: {most}, wrongly refused: {wrongly_refused}",
        decisions.len(),
        admitted.len()
    );
    assert_eq!(most, LIMIT, "the limit is reached and never passed");
    assert_eq!(wrongly_refused, 0);
    assert!(admitted.len() >= 3 * LIMIT, "at least three windows went by");
    assert!(decisions.len() > admitted.len() + LIMIT, "many were refused");
    Ok(())
}

/// Bursts of twice the limit straddle the ends of windows; between them a steady load of about the limit.
async fn visit_in_turns(
    client: usize,
    addresses: Vec<String>,
    key: String,
    began: Instant,
) -> anyhow::Result<Vec<Decision>> {
    let http = reqwest::Client::new();
    let mut decisions = Vec::new();
    let mut turn = client;
    for window in 0..3u32 {
        // All clients at once, half before and half after the windows' ends.
        let burst_at = WINDOW * (window + 1) - Duration::from_millis(150);
        while began.elapsed() < burst_at {
            decisions.push(visit(&http, &addresses[turn % 3], &key).await?);
            turn += 1 + client % 2;
            tokio::time::sleep(Duration::from_millis(600 + 70 * client as u64)).await;
        }
        for _ in 0..2 * LIMIT / CLIENTS {
            decisions.push(visit(&http, &addresses[turn % 3], &key).await?);
            turn += 1 + client % 2;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(decisions)
}

async fn visit(http: &reqwest::Client, address: &str, key: &str) -> anyhow::Result<Decision> {
    let answer =
        http.get(format!("http://{address}/api/v1/market/selic/current")).header("X-API-Key", key).send().await?;
    let admitted = match answer.status().as_u16() {
        200 => true,
        429 => false,
        status => anyhow::bail!("{status}: {}", answer.text().await?),
    };
    // A request's id begins with the instant of its admission.
    let id = answer.headers()["x-request-id"].to_str()?;
    Ok(Decision { at_us: u64::from_str_radix(id.split('-').next().unwrap_or(""), 16)?, admitted })
}
