//! Usage: every answered request is counted once, under its outcome, for the key that sent it.

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

    // 30 of 33 requests were admitted. A key over its limit can't read its usage, so it gets a higher plan.
    replica.open_store()?.set_key_plan(id, Plan::Gold).await?;
    wait_until("the plan has changed", Duration::from_secs(2), || async {
        replica.get_with_key("/health", &key).await.is_ok_and(|response| response.headers()["x-plan"] == "gold")
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

    // Both replicas drain every two seconds. For longer than that, each response must count all requests before it.
    for turn in 0..60u64 {
        first.get_with_key(SELIC_PATH, &key).await?;
        let usage = get_usage(if turn % 2 == 0 { &first } else { &second }, &key).await?;
        assert_eq!(usage["total_requests"], json!(2 * turn + 2));
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

/// One replica answers a request, and the usage on the other includes it at once.
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

/// Requests of one key never show up in the usage of another, for random pairs of keys; `just limits` runs a thousand
/// pairs.
#[tokio::test]
async fn a_key_sees_its_own_usage_alone() -> TestResult {
    let pairs = parse_env_var("VINTEM_PAIRS").unwrap_or(200);
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;

    let mut keys_and_counts = Vec::new();
    for _ in 0..30 {
        keys_and_counts.push((replica.create_key(Plan::Platinum).await?.1, 0u64));
    }

    let mut wrong_usages = 0;
    for _ in 0..pairs {
        let sender = rand::random_range(0..keys_and_counts.len());
        let reader = rand::random_range(0..keys_and_counts.len());
        for _ in 0..rand::random_range(1..3) {
            replica.get_with_key(SELIC_PATH, &keys_and_counts[sender].0).await?;
            keys_and_counts[sender].1 += 1;
        }

        let (key, count) = &mut keys_and_counts[reader];
        *count += 1;
        let usage = get_usage(&replica, key).await?;
        let is_its_own = usage["total_requests"] == json!(*count) && usage["key"] == format!("{}…", &key[..12]);
        wrong_usages += u32::from(!is_its_own);
    }

    println!("pairs: {pairs}");
    println!("usage_of_others_seen: {wrong_usages}");
    assert_eq!(wrong_usages, 0);
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
