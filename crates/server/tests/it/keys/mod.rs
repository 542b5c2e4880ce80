//! Keys: made on one replica, good on all; revoked or moved, within a second everywhere.

mod erasure;
mod form;
mod owner;
mod registration;
mod replicas;
mod rotation;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vintem_domain::Plan;
use vintem_store::Store;
use vintem_store::keys::NewKey;
use vintem_testkit::{PEPPER, TestDatabase, TestReplica, TestReplicaOptions, USUAL_POSTGRES_BUDGET, redis_prefix};

use crate::{Outcome, friday};

const COMPANIES: &str = "/api/v1/companies?limit=1";
const SELIC: &str = "/api/v1/market/selic/current";
const ME: &str = "/api/v1/keys/me";
const ROTATE: &str = "/api/v1/keys/rotate";

/// A key as the operator makes it, where no replica is at hand.
async fn create_key(store: &Store, plan: Plan) -> anyhow::Result<(i64, String)> {
    let (pepper, key) = (vintem_api::Pepper::new(PEPPER).expect("long enough"), vintem_api::new_key());
    let new = NewKey {
        hmac: pepper.hmac(key.reveal()),
        pepper_id: &pepper.id(),
        shown: key.shown(),
        plan,
        name: "Teste",
        email: "teste@example.com",
    };
    Ok((store.create_key(&new).await?.id, key.reveal().to_owned()))
}

async fn register(replica: &TestReplica, email: &str) -> anyhow::Result<reqwest::Response> {
    let body = json!({"name": "Ana", "email": email, "plan": "platinum"});
    replica.send(replica.http.post(replica.url("/api/v1/plans/register")).json(&body)).await
}

async fn two_replicas(database: &TestDatabase) -> anyhow::Result<(TestReplica, TestReplica)> {
    let prefix = redis_prefix();
    let options = || TestReplicaOptions { redis_prefix: Some(&prefix), flags: &["--limit-free", "1000"] };
    let first = TestReplica::start_with(database, friday(), options()).await?;
    Ok((first, TestReplica::start_with(database, friday(), options()).await?))
}

#[tokio::test]
async fn a_revoked_key_is_refused_everywhere_within_a_second() -> Outcome {
    let database = TestDatabase::demo(friday()).await?;
    let (first, second) = two_replicas(&database).await?;
    let (id, key) = first.create_key(Plan::Bronze).await?;
    assert_eq!(second.get_with(COMPANIES, &key).await?.status(), 200);
    assert!(first.store()?.revoke_key(id).await?);
    let revoked = Instant::now();
    for replica in [&first, &second] {
        while replica.get_with(COMPANIES, &key).await?.status() != 401 {
            assert!(revoked.elapsed() < Duration::from_secs(1), "still good after {:?}", revoked.elapsed());
        }
    }
    let body: Value = first.get_with(COMPANIES, &key).await?.json().await?;
    assert_eq!(body["error"], "invalid_api_key");
    Ok(())
}

#[tokio::test]
async fn registrations_are_capped_by_address_and_the_wait_is_true() -> Outcome {
    let database = TestDatabase::empty().await?;
    let flags = ["--register-per-day", "3"];
    let replica =
        TestReplica::start_with(&database, friday(), TestReplicaOptions { flags: &flags, redis_prefix: None }).await?;
    for turn in 0..3 {
        let registered = register(&replica, &format!("ana{turn}@example.com")).await?;
        assert_eq!(registered.status(), 201);
        let body: Value = registered.json().await?;
        assert_eq!((&body["plan"], &body["rate_limit"]), (&json!("free"), &json!(30)));
    }
    // Input that is refused takes nothing of the cap, and shows that the cap is not what refuses it.
    assert_eq!(register(&replica, "nope").await?.status(), 400);
    let refused = register(&replica, "outra@example.com").await?;
    assert_eq!(refused.status(), 429);
    let wait: u64 = refused.headers()["retry-after"].to_str()?.parse()?;
    assert!((86_390..=86_400).contains(&wait), "{wait}");
    let body: Value = refused.json().await?;
    assert_eq!((&body["error"], &body["retry_after"]), (&json!("rate_limited"), &json!(wait)));
    Ok(())
}

#[tokio::test]
async fn an_email_is_capped_whatever_its_case() -> Outcome {
    let database = TestDatabase::empty().await?;
    // Behind a trusted proxy every request is another client's.
    let flags = ["--register-per-day", "2", "--trusted-proxies", "127.0.0.0/8"];
    let replica =
        TestReplica::start_with(&database, friday(), TestReplicaOptions { flags: &flags, redis_prefix: None }).await?;
    let mut statuses = Vec::new();
    for (turn, email) in ["ana@example.com", "ANA@example.com", "Ana@Example.com", "bia@example.com"].iter().enumerate()
    {
        let request = replica.http.post(replica.url("/api/v1/plans/register"));
        let request = request.header("X-Forwarded-For", format!("198.51.100.{turn}"));
        let answer = replica.send(request.json(&json!({"name": "Ana", "email": email}))).await?;
        statuses.push(answer.status().as_u16());
    }
    assert_eq!(statuses, [201, 201, 429, 201]);
    Ok(())
}

#[tokio::test]
async fn a_guesser_of_keys_sees_401_until_its_address_is_limited() -> Outcome {
    let database = TestDatabase::demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let mut statuses = Vec::new();
    for _ in 0..33 {
        let key = vintem_api::new_key();
        statuses.push(replica.get_with("/api/v1/market/selic/current", key.reveal()).await?.status().as_u16());
    }
    assert_eq!(statuses, [[401; 30].as_slice(), [429; 3].as_slice()].concat());
    Ok(())
}

#[tokio::test]
async fn no_key_is_stored_in_clear() -> Outcome {
    let database = TestDatabase::empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let registered: Value = register(&replica, "ana@example.com").await?.json().await?;
    let key = registered["api_key"].as_str().expect("a key");
    let dump = std::process::Command::new("pg_dump").arg(database.url()).output()?;
    let dump = String::from_utf8_lossy(&dump.stdout);
    assert!(dump.contains(&key[..12]), "the dump holds the key's beginning");
    assert!(!dump.contains(&key[12..]), "the dump holds the key");
    Ok(())
}

#[tokio::test]
async fn a_body_that_is_no_object_makes_no_key() -> Outcome {
    let database = TestDatabase::empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;
    for body in [
        "[\"Ana\",\"ana@example.com\"]",
        "\"ana\"",
        "null",
        "1",
        "{\"name\":\"a\",\"name\":\"b\",\"email\":\"a@example.com\"}",
    ] {
        let request = replica.http.post(replica.url("/api/v1/plans/register"));
        let answer = replica.send(request.header("content-type", "application/json").body(body)).await?;
        assert_eq!(answer.status(), 400, "{body}");
    }
    assert!(replica.store()?.list_keys(i64::MAX, 1).await?.is_empty());
    Ok(())
}

/// A table that is locked, as by a migration, stands for every Postgres that does not answer.
#[tokio::test]
async fn a_postgres_that_hangs_is_503_within_two_seconds_and_known_keys_go_on() -> Outcome {
    let database = TestDatabase::demo(friday()).await?;
    let options = TestReplicaOptions { flags: &USUAL_POSTGRES_BUDGET, redis_prefix: None };
    let replica = TestReplica::start_with(&database, friday(), options).await?;
    let (_, known) = replica.create_key(Plan::Bronze).await?;
    assert_eq!(replica.get_with(COMPANIES, &known).await?.status(), 200);
    let lock = database.lock_table("api_key").await?;
    assert_eq!(replica.get_with(COMPANIES, &known).await?.status(), 200, "a known key keeps its plan");
    let (unknown, asked) = (vintem_api::new_key(), Instant::now());
    let answer = replica.get_with(COMPANIES, unknown.reveal()).await?;
    assert_eq!(answer.status(), 503, "never 401 for a key that may be good");
    assert!(answer.headers().contains_key("retry-after"));
    assert_eq!(register(&replica, "ana@example.com").await?.status(), 503);
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?} for two requests", asked.elapsed());
    drop(lock);
    vintem_testkit::eventually("keys can be registered again", Duration::from_secs(2), || async {
        register(&replica, "ana@example.com").await.is_ok_and(|answer| answer.status() == 201)
    })
    .await;
    Ok(())
}
