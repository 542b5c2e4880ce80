//! Registration: the daily caps are exact under concurrency, and responses don't reveal which e-mails are registered.

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

/// Sends all requests at the same time and counts the responses by status.
async fn count_statuses(
    requests: impl Iterator<Item = reqwest::RequestBuilder>,
) -> anyhow::Result<BTreeMap<u16, usize>> {
    let mut in_flight: JoinSet<_> = requests.map(reqwest::RequestBuilder::send).collect();
    let mut statuses = BTreeMap::new();
    while let Some(response) = in_flight.join_next().await {
        *statuses.entry(response??.status().as_u16()).or_default() += 1;
    }
    Ok(statuses)
}

/// Behind a trusted proxy each `X-Forwarded-For` address is a caller of its own.
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

    // Eleven networks of one site, 22 registrations from each: 20 from each of the first ten pass, and then the site
    // has reached its cap.
    let mut counts = BTreeMap::new();
    for network in 0..11 {
        for host in 0..22 {
            let address = format!("2001:db8:7:{network:x}::{host:x}");
            let request = registration_request(&replicas[0], &format!("a{network}b{host}@example.com"), &address);
            let response = replicas[0].send(request).await?;
            *counts.entry((network, response.status().as_u16())).or_insert(0) += 1;
        }
    }

    for network in 0..10 {
        assert_eq!((counts[&(network, 201)], counts[&(network, 429)]), (20, 2), "network {network}");
    }
    assert_eq!(counts.get(&(10, 201)), None);
    let elsewhere = registration_request(&replicas[0], "other@example.com", "2001:db8:8::1");
    assert_eq!(replicas[0].send(elsewhere).await?.status(), 201, "another site");
    Ok(())
}

/// Enough for precise medians: they differ by less than one percent, and the test allows five. On a busy machine it
/// allows more, by how much two halves of the same measurement differ.
const TIMED_PAIRS: usize = 1_500;

#[tokio::test(flavor = "multi_thread")]
async fn a_known_email_is_indistinguishable_from_an_unknown_one() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;

    let register = async |email: String| {
        let request = replica.http.post(replica.url("/api/v1/plans/register"));
        let started = Instant::now();
        let response = replica.send_unchecked(request.json(&json!({"name": "Ana", "email": email}))).await?;
        let elapsed = started.elapsed();
        anyhow::ensure!(response.status == 201, "{}", response.status);

        let mut body: Value = serde_json::from_slice(&response.body)?;
        let key = body["api_key"].take();
        let headers: Vec<String> = response.headers.keys().map(ToString::to_string).collect();
        anyhow::Ok((elapsed, key, body, headers))
    };

    let mut known = Vec::new();
    let mut unknown = Vec::new();
    let mut keys = Vec::new();
    let (_, _, expected_body, expected_headers) = register("ana0@example.com".into()).await?;
    // In alternating order, so that other load on the machine affects both alike. Each known e-mail was registered one
    // turn before.
    for turn in 1..=TIMED_PAIRS {
        let order = if turn % 2 == 0 { [turn, turn - 1] } else { [turn - 1, turn] };
        for number in order {
            let (elapsed, key, body, headers) = register(format!("ana{number}@example.com")).await?;
            assert_eq!((&body, &headers), (&expected_body, &expected_headers));
            keys.push(key);
            if number == turn { &mut unknown } else { &mut known }.push(elapsed);
        }
    }
    assert!(keys.iter().all(|key| key.as_str().is_some_and(|key| key.starts_with("vtm_"))));

    let median = |times: &[Duration]| {
        let mut times = times.to_vec();
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64()
    };
    // Pairs of turns go to the two halves in turn, so that each half has both orders.
    let half = |remainder: usize| {
        let times = unknown.iter().enumerate().filter(|(at, _)| at / 2 % 2 == remainder).map(|(_, time)| *time);
        median(&times.collect::<Vec<_>>())
    };
    let noise = (half(0) / half(1) - 1.0).abs();
    let known = median(&known);
    let unknown = median(&unknown);

    println!("known_median_milliseconds: {:.3}", known * 1e3);
    println!("unknown_median_milliseconds: {:.3}", unknown * 1e3);
    println!("difference_percent: {:.2}", 100.0 * (known / unknown - 1.0));
    println!("noise_percent: {:.2}", 100.0 * noise);
    let allowed = (3.0 * noise).max(0.05);
    assert!((known / unknown - 1.0).abs() <= allowed, "{known} and {unknown} seconds, noise {noise}");
    Ok(())
}
