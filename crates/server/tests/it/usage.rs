//! Usage: every answered request once, under its outcome, in the caller's own account.

use std::time::Duration;

use serde_json::{Value, json};
use vintem_domain::Plan;
use vintem_testkit::{TestDatabase, TestReplica, TestReplicaOptions, parse_env_var, random_redis_prefix, wait_until};

use crate::{TestResult, friday};

const SELIC_PATH: &str = "/api/v1/market/selic/current";

async fn get_usage(replica: &TestReplica, key: &str) -> anyhow::Result<Value> {
    Ok(replica.get_with_key("/api/v1/plans/usage", key).await?.json().await?)
}

#[tokio::test]
async fn every_request_counts_once_under_its_outcome() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (id, key) = replica.create_key(Plan::Free).await?;
    for path in [SELIC_PATH, "/api/v1/companies", "/api/v1/nothing", "/health", "/pricing"] {
        replica.get_with_key(path, &key).await?;
    }
    for _ in 0..30 {
        replica.get_with_key(SELIC_PATH, &key).await?;
    }
    // 30 of 33 were admitted; a key that is over its limit cannot ask, so it is moved up to see.
    replica.open_store()?.set_key_plan(id, Plan::Gold).await?;
    wait_until("the plan has changed", Duration::from_secs(2), || async {
        replica.get_with_key("/health", &key).await.is_ok_and(|answer| answer.headers()["x-plan"] == "gold")
    })
    .await;
    let body = get_usage(&replica, &key).await?;
    let today = &body["data"][0];
    assert_eq!(today["requests"], json!(34));
    assert_eq!(today["successful"], json!(29));
    assert_eq!(today["client_errors"], json!(2));
    assert_eq!(today["rate_limited"], json!(3));
    assert_eq!((&today["server_errors"], &today["unfinished"]), (&json!(0), &json!(0)));
    assert_eq!(body["total_requests"], json!(34));
    Ok(())
}

#[tokio::test]
async fn counts_are_correct_while_being_drained_on_every_replica() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let prefix = random_redis_prefix();
    let options = || TestReplicaOptions { redis_prefix: Some(&prefix), flags: &[] };
    let first = TestReplica::start_with_options(&database, friday(), options()).await?;
    let second = TestReplica::start_with_options(&database, friday(), options()).await?;
    let (id, key) = first.create_key(Plan::Platinum).await?;
    // Both replicas drain every two seconds: for longer than that each answer must count all requests before it.
    for turn in 0..60u64 {
        first.get_with_key(SELIC_PATH, &key).await?;
        let seen = get_usage(if turn % 2 == 0 { &first } else { &second }, &key).await?;
        assert_eq!(seen["total_requests"], json!(2 * turn + 2));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let store = first.open_store()?;
    let today = chrono::Utc::now().date_naive();
    wait_until("all counts are stored", Duration::from_secs(10), || async {
        let stored = store.key_usage(id, today.pred_opt().expect("a day"), today, &[]).await;
        stored.is_ok_and(|stored| stored.rows.iter().map(|row| row.counts.requests).sum::<u64>() == 120)
    })
    .await;
    Ok(())
}

/// A request is answered by one replica, and at once the other tells of it.
#[tokio::test]
async fn a_request_to_one_replica_is_immediately_in_the_usage_of_another() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let prefix = random_redis_prefix();
    let options = || TestReplicaOptions { redis_prefix: Some(&prefix), flags: &[] };
    let first = TestReplica::start_with_options(&database, friday(), options()).await?;
    let second = TestReplica::start_with_options(&database, friday(), options()).await?;
    let (_, key) = first.create_key(Plan::Platinum).await?;
    for round in 1..=200u64 {
        let (here, there) = if round % 2 == 0 { (&first, &second) } else { (&second, &first) };
        here.get_with_key(SELIC_PATH, &key).await?;
        assert_eq!(get_usage(there, &key).await?["total_requests"], json!(2 * round), "round {round}");
    }
    Ok(())
}

/// Random pairs of keys, a thousand by `just isolation`: what one does is never seen in what another is told.
#[tokio::test]
async fn a_key_sees_its_own_usage_alone() -> TestResult {
    let pairs = parse_env_var("VINTEM_PAIRS").unwrap_or(200);
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let mut accounts = Vec::new();
    for _ in 0..30 {
        accounts.push((replica.create_key(Plan::Platinum).await?.1, 0u64));
    }
    let mut seen_of_others = 0;
    for _ in 0..pairs {
        let (busy, asking) = (rand::random_range(0..accounts.len()), rand::random_range(0..accounts.len()));
        for _ in 0..rand::random_range(1..3) {
            replica.get_with_key(SELIC_PATH, &accounts[busy].0).await?;
            accounts[busy].1 += 1;
        }
        let (key, count) = &mut accounts[asking];
        *count += 1;
        let told = get_usage(&replica, key).await?;
        let is_its_own = told["total_requests"] == json!(*count) && told["key"] == format!("{}…", &key[..12]);
        seen_of_others += u32::from(!is_its_own);
    }
    println!("pairs: {pairs}");
    println!("usage_of_others_seen: {seen_of_others}");
    assert_eq!(seen_of_others, 0);
    Ok(())
}

#[tokio::test]
async fn a_registration_over_the_cap_is_counted_as_rate_limited() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let options = TestReplicaOptions { flags: &["--register-per-day", "1"], redis_prefix: None };
    let replica = TestReplica::start_with_options(&database, friday(), options).await?;
    let (_, key) = replica.create_key(Plan::Gold).await?;
    let register = || {
        let request = replica.http.post(replica.url("/api/v1/plans/register")).header("X-API-Key", &key);
        replica.send(request.json(&json!({"name": "Ana", "email": "ana@example.com"})))
    };
    assert_eq!(register().await?.status(), 201);
    let refused = register().await?;
    assert_eq!(refused.status(), 429);
    let wait = refused.headers()["retry-after"].to_str()?.to_owned();
    assert!(refused.headers()["ratelimit"].to_str()?.ends_with(&format!(";t={wait}")));
    let today = &get_usage(&replica, &key).await?["data"][0];
    assert_eq!(
        (&today["requests"], &today["rate_limited"], &today["client_errors"]),
        (&json!(3), &json!(1), &json!(0))
    );
    Ok(())
}
