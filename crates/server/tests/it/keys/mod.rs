//! API keys: a key created on one replica works on all, and a revocation or a change of plan reaches all within a
//! second.

mod erasure;
mod key_format;
mod pepper;
mod propagation;
mod registration;
mod rotation;
mod self_service;
mod unused;

use std::time::Duration;

use serde_json::{Value, json};
use vintem_domain::Plan;
use vintem_testkit::{
    DEFAULT_POSTGRES_BUDGET_FLAGS, QuietClock, TestDatabase, TestReplica, TestReplicaOptions, random_redis_prefix,
};

use crate::{TestResult, friday};

const COMPANIES_PATH: &str = "/api/v1/companies?limit=1";
const SELIC_PATH: &str = "/api/v1/market/selic/current";
const OWN_KEY_PATH: &str = "/api/v1/keys/me";
const ROTATE_PATH: &str = "/api/v1/keys/rotate";

async fn register_key(replica: &TestReplica, email: &str) -> anyhow::Result<reqwest::Response> {
    let body = json!({"name": "Ana", "email": email, "plan": "platinum"});
    replica.send(replica.http.post(replica.url("/api/v1/plans/register")).json(&body)).await
}

async fn start_two_replicas(database: &TestDatabase) -> anyhow::Result<(TestReplica, TestReplica)> {
    let prefix = random_redis_prefix();
    let options = || TestReplicaOptions { redis_prefix: Some(&prefix), flags: &["--limit-free", "1000"] };
    let first = TestReplica::start_with_options(database, friday(), options()).await?;
    let second = TestReplica::start_with_options(database, friday(), options()).await?;
    Ok((first, second))
}

#[tokio::test]
async fn a_revoked_key_is_refused_everywhere_within_a_second() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let (first, second) = start_two_replicas(&database).await?;
    let (id, key) = first.create_key(Plan::Bronze).await?;
    assert_eq!(second.get_with_key(COMPANIES_PATH, &key).await?.status(), 200);

    assert!(first.open_store()?.revoke_key(id).await?);
    let clock = QuietClock::start();
    for replica in [&first, &second] {
        while replica.get_with_key(COMPANIES_PATH, &key).await?.status() != 401 {
            assert!(clock.elapsed() < Duration::from_secs(1), "still good after {:?}", clock.elapsed());
        }
    }

    let body: Value = first.get_with_key(COMPANIES_PATH, &key).await?.json().await?;
    assert_eq!(body["error"], "invalid_api_key");
    Ok(())
}

#[tokio::test]
async fn registrations_are_capped_per_address_with_a_correct_retry_after() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let flags = ["--register-per-day", "3"];
    let replica =
        TestReplica::start_with_options(&database, friday(), TestReplicaOptions { flags: &flags, redis_prefix: None })
            .await?;

    for turn in 0..3 {
        let registered = register_key(&replica, &format!("ana{turn}@example.com")).await?;
        assert_eq!(registered.status(), 201);
        let body: Value = registered.json().await?;
        assert_eq!((&body["plan"], &body["rate_limit"]), (&json!("free"), &json!(30)));
    }

    // Invalid input uses nothing of the cap, and gets 400 even when the cap is used up.
    assert_eq!(register_key(&replica, "nope").await?.status(), 400);

    let refused = register_key(&replica, "outra@example.com").await?;
    assert_eq!(refused.status(), 429);
    let wait: u64 = refused.headers()["retry-after"].to_str()?.parse()?;
    assert!((86_390..=86_400).contains(&wait), "{wait}");
    let body: Value = refused.json().await?;
    assert_eq!((&body["error"], &body["retry_after"]), (&json!("rate_limited"), &json!(wait)));
    Ok(())
}

#[tokio::test]
async fn registrations_are_capped_per_email_ignoring_case() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    // Behind a trusted proxy each `X-Forwarded-For` address is a caller of its own.
    let flags = ["--register-per-day", "2", "--trusted-proxies", "127.0.0.0/8"];
    let replica =
        TestReplica::start_with_options(&database, friday(), TestReplicaOptions { flags: &flags, redis_prefix: None })
            .await?;

    let mut statuses = Vec::new();
    for (turn, email) in ["ana@example.com", "ANA@example.com", "Ana@Example.com", "bia@example.com"].iter().enumerate()
    {
        let request = replica.http.post(replica.url("/api/v1/plans/register"));
        let request = request.header("X-Forwarded-For", format!("198.51.100.{turn}"));
        let response = replica.send(request.json(&json!({"name": "Ana", "email": email}))).await?;
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses, [201, 201, 429, 201]);
    Ok(())
}

#[tokio::test]
async fn guessed_keys_get_401_until_the_address_is_limited() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let mut statuses = Vec::new();
    for _ in 0..33 {
        let key = vintem_api::generate_key();
        statuses.push(replica.get_with_key("/api/v1/market/selic/current", key.reveal()).await?.status().as_u16());
    }
    assert_eq!(statuses, [[401; 30].as_slice(), [429; 3].as_slice()].concat());
    Ok(())
}

#[tokio::test]
async fn no_key_is_stored_in_plain_text() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let registered: Value = register_key(&replica, "ana@example.com").await?.json().await?;
    let key = registered["api_key"].as_str().expect("a key");

    let output = std::process::Command::new("pg_dump").arg(database.url()).output()?;
    let dump = String::from_utf8_lossy(&output.stdout);
    assert!(dump.contains(&key[..12]), "the dump holds the key's beginning");
    assert!(!dump.contains(&key[12..]), "the dump holds the key");
    Ok(())
}

#[tokio::test]
async fn a_body_that_is_not_an_object_creates_no_key() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;

    for body in [
        "[\"Ana\",\"ana@example.com\"]",
        "\"ana\"",
        "null",
        "1",
        "{\"name\":\"a\",\"name\":\"b\",\"email\":\"a@example.com\"}",
    ] {
        let request = replica.http.post(replica.url("/api/v1/plans/register"));
        let response = replica.send(request.header("content-type", "application/json").body(body)).await?;
        assert_eq!(response.status(), 400, "{body}");
    }
    assert!(replica.open_store()?.list_keys(i64::MAX, 1).await?.is_empty());
    Ok(())
}

/// A locked table, as during a migration, represents any PostgreSQL that does not answer.
#[tokio::test]
async fn while_postgres_hangs_unknown_keys_get_503_and_known_keys_work() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let options = TestReplicaOptions { flags: &DEFAULT_POSTGRES_BUDGET_FLAGS, redis_prefix: None };
    let replica = TestReplica::start_with_options(&database, friday(), options).await?;
    let (_, known) = replica.create_key(Plan::Bronze).await?;
    assert_eq!(replica.get_with_key(COMPANIES_PATH, &known).await?.status(), 200);

    let lock = database.lock_table("api_key").await?;
    assert_eq!(replica.get_with_key(COMPANIES_PATH, &known).await?.status(), 200, "a known key keeps its plan");

    let unknown = vintem_api::generate_key();
    let clock = QuietClock::start();
    let response = replica.get_with_key(COMPANIES_PATH, unknown.reveal()).await?;
    assert_eq!(response.status(), 503, "never 401 for a key that may be good");
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(register_key(&replica, "ana@example.com").await?.status(), 503);
    assert!(clock.elapsed() < Duration::from_secs(4), "{:?} for two requests", clock.elapsed());

    drop(lock);
    vintem_testkit::wait_until("keys can be registered again", Duration::from_secs(2), || async {
        register_key(&replica, "ana@example.com").await.is_ok_and(|response| response.status() == 201)
    })
    .await;
    Ok(())
}
