//! Registration: exact caps, whoever asks at once with others, and nothing to learn about who is registered already.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use vintem_testkit::{TestDatabase, TestReplica, TestReplicaOptions, random_redis_prefix};

use crate::{TestResult, friday};

fn registration_request(replica: &TestReplica, email: &str, address: &str) -> reqwest::RequestBuilder {
    let request = replica.http.post(replica.url("/api/v1/plans/register")).header("X-Forwarded-For", address);
    request.json(&json!({"name": "Ana", "email": email}))
}

/// How often each status came, all asked at once.
async fn count_statuses(
    requests: impl Iterator<Item = reqwest::RequestBuilder>,
) -> anyhow::Result<BTreeMap<u16, usize>> {
    let mut asked: JoinSet<_> = requests.map(reqwest::RequestBuilder::send).collect();
    let mut statuses = BTreeMap::new();
    while let Some(answer) = asked.join_next().await {
        *statuses.entry(answer??.status().as_u16()).or_default() += 1;
    }
    Ok(statuses)
}

/// Behind a trusted proxy every request may be another client's.
async fn start_replicas(database: &TestDatabase, count: usize) -> anyhow::Result<Vec<TestReplica>> {
    let prefix = random_redis_prefix();
    let flags = ["--trusted-proxies", "127.0.0.0/8", "--limit-free", "100000"];
    let mut replicas = Vec::new();
    for _ in 0..count {
        let options = TestReplicaOptions { flags: &flags, redis_prefix: Some(&prefix) };
        replicas.push(TestReplica::start_with_options(database, friday(), options).await?);
    }
    Ok(replicas)
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_registrations_on_two_replicas_admit_exactly_twenty() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replicas = start_replicas(&database, 2).await?;
    let by_address =
        (0..50).map(|turn| registration_request(&replicas[turn % 2], &format!("a{turn}@example.com"), "203.0.113.7"));
    assert_eq!(count_statuses(by_address).await?, BTreeMap::from([(201, 20), (429, 30)]), "one address");
    let by_email =
        (0..50).map(|turn| registration_request(&replicas[turn % 2], "bia@example.com", &format!("198.51.100.{turn}")));
    assert_eq!(count_statuses(by_email).await?, BTreeMap::from([(201, 20), (429, 30)]), "one e-mail");
    assert_eq!(replicas[0].open_store()?.list_keys(i64::MAX, 100).await?.len(), 40, "a key for each that passed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ipv6_subscriber_registers_twenty_keys_a_day_and_its_site_two_hundred() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replicas = start_replicas(&database, 1).await?;
    let mut passed = BTreeMap::new();
    // Eleven networks of one site, 22 registrations from each: 20 of each of ten pass, and then the site is full.
    for network in 0..11 {
        for host in 0..22 {
            let address = format!("2001:db8:7:{network:x}::{host:x}");
            let request = registration_request(&replicas[0], &format!("a{network}b{host}@example.com"), &address);
            let answer = replicas[0].send(request).await?;
            *passed.entry((network, answer.status().as_u16())).or_insert(0) += 1;
        }
    }
    for network in 0..10 {
        assert_eq!((passed[&(network, 201)], passed[&(network, 429)]), (20, 2), "network {network}");
    }
    assert_eq!(passed.get(&(10, 201)), None);
    let elsewhere = registration_request(&replicas[0], "other@example.com", "2001:db8:8::1");
    assert_eq!(replicas[0].send(elsewhere).await?.status(), 201, "another site");
    Ok(())
}

/// As many as it takes for the medians to be sharp: they lie within a percent of each other, and the bound is five.
const TIMED_PAIRS: usize = 1_500;

#[tokio::test(flavor = "multi_thread")]
async fn a_known_email_is_indistinguishable_from_an_unknown_one() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let ask = async |email: String| {
        let request = replica.http.post(replica.url("/api/v1/plans/register"));
        let began = Instant::now();
        let seen = replica.send_unchecked(request.json(&json!({"name": "Ana", "email": email}))).await?;
        let took = began.elapsed();
        anyhow::ensure!(seen.status == 201, "{}", seen.status);
        let mut body: Value = serde_json::from_slice(&seen.body)?;
        let key = body["api_key"].take();
        let headers: Vec<String> = seen.headers.keys().map(ToString::to_string).collect();
        anyhow::Ok((took, key, body, headers))
    };
    let (mut known, mut unknown, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    let (_, _, same_body, same_headers) = ask("ana0@example.com".into()).await?;
    // In turns, so that whatever else the machine does befalls both alike; each known one was made one turn before.
    for turn in 1..=TIMED_PAIRS {
        let order = if turn % 2 == 0 { [turn, turn - 1] } else { [turn - 1, turn] };
        for number in order {
            let (took, key, body, headers) = ask(format!("ana{number}@example.com")).await?;
            assert_eq!((&body, &headers), (&same_body, &same_headers));
            keys.push(key);
            if number == turn { &mut unknown } else { &mut known }.push(took);
        }
    }
    assert!(keys.iter().all(|key| key.as_str().is_some_and(|key| key.starts_with("vtm_"))));
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64()
    };
    let (known, unknown) = (median(&mut known), median(&mut unknown));
    println!("known_median_milliseconds: {:.3}", known * 1e3);
    println!("unknown_median_milliseconds: {:.3}", unknown * 1e3);
    println!("difference_percent: {:.2}", 100.0 * (known / unknown - 1.0));
    assert!((known / unknown - 1.0).abs() <= 0.05, "{known} and {unknown} seconds");
    Ok(())
}
