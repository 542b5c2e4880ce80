//! Key rotation: during the grace period a key has two valid secrets.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use serde_json::{Value, json};
use vintem_domain::Plan;
use vintem_testkit::{
    DedicatedRedis, QuietClock, ServerProcess, TestDatabase, TestReplica, TestReplicaOptions, create_key,
    random_redis_prefix, wait_until,
};

use super::{OWN_KEY_PATH, ROTATE_PATH, SELIC_PATH};
use crate::{TestResult, friday, vintem_binary};

async fn rotate_key(replica: &TestReplica, key: &str, body: Option<Value>) -> anyhow::Result<(String, Value)> {
    let request = replica.http.post(replica.url(ROTATE_PATH)).header("X-API-Key", key);
    let request = if let Some(body) = &body { request.json(body) } else { request };
    let response = replica.send(request).await?;

    anyhow::ensure!(response.status() == 200, "{}", response.text().await?);
    let body: Value = response.json().await?;
    Ok((body["api_key"].as_str().expect("a key").to_owned(), body))
}

async fn get_status_and_remaining(replica: &TestReplica, key: &str) -> anyhow::Result<(u16, String)> {
    let response = replica.get_with_key(SELIC_PATH, key).await?;
    Ok((response.status().as_u16(), response.headers()["x-ratelimit-remaining"].to_str()?.to_owned()))
}

#[tokio::test]
async fn both_secrets_share_one_limit_until_the_grace_ends() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (_, old) = replica.create_key(Plan::Bronze).await?;
    assert_eq!(get_status_and_remaining(&replica, &old).await?, (200, "99".into()));

    // Without a body the grace period is one day.
    let (new, body) = rotate_key(&replica, &old, None).await?;
    assert_ne!(old, new);
    assert_eq!((&body["plan"], &body["rate_limit"]), (&json!("bronze"), &json!(100)));
    assert_eq!(body["previous_key_ends_at"], "2026-11-14T18:00:00Z");

    assert_eq!(get_status_and_remaining(&replica, &new).await?, (200, "97".into()));
    assert_eq!(get_status_and_remaining(&replica, &old).await?, (200, "96".into()));

    for secret in [&old, &new] {
        let shown: Value = replica.get_with_key(OWN_KEY_PATH, secret).await?.json().await?;
        assert_eq!(shown["key"], format!("{}…", &new[..12]));
        assert_eq!(shown["previous_key"], format!("{}…", &old[..12]));
        assert_eq!(shown["previous_key_ends_at"], "2026-11-14T18:00:00Z");
    }

    replica.clock.set(friday() + TimeDelta::milliseconds(86_399_999));
    assert_eq!(get_status_and_remaining(&replica, &old).await?.0, 200);
    replica.clock.set(friday() + TimeDelta::seconds(86_400));
    assert_eq!(get_status_and_remaining(&replica, &old).await?.0, 401);
    assert_eq!(get_status_and_remaining(&replica, &new).await?.0, 200);
    let shown: Value = replica.get_with_key(OWN_KEY_PATH, &new).await?.json().await?;
    assert_eq!((&shown["previous_key"], &shown["previous_key_ends_at"]), (&json!(null), &json!(null)));

    // Both secrets share one usage: nine requests before this one. The refused request counts for the address instead.
    let usage: Value = replica.get_with_key("/api/v1/plans/usage", &new).await?.json().await?;
    assert_eq!((&usage["total_requests"], &usage["key"]), (&json!(10), &json!(format!("{}…", &new[..12]))));
    Ok(())
}

#[tokio::test]
async fn a_second_rotation_ends_the_oldest_secret_at_once_everywhere() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let (first, second) = super::start_two_replicas(&database).await?;
    let (id, oldest) = first.create_key(Plan::Gold).await?;
    for replica in [&first, &second] {
        assert_eq!(replica.get_with_key(SELIC_PATH, &oldest).await?.status(), 200);
    }

    let (middle, _) = rotate_key(&first, &oldest, Some(json!({"grace_seconds": 3600}))).await?;
    // The previous secret can rotate the key too.
    let (newest, _) = rotate_key(&second, &oldest, Some(json!({}))).await?;
    assert_eq!(second.get_with_key(SELIC_PATH, &oldest).await?.status(), 401, "at once where it was rotated");
    for replica in [&first, &second] {
        for (secret, status) in [(&middle, 200), (&newest, 200)] {
            assert_eq!(replica.get_with_key(SELIC_PATH, secret).await?.status(), status);
        }
    }
    wait_until("the oldest is refused elsewhere", Duration::from_secs(1), || async {
        first.get_with_key(SELIC_PATH, &oldest).await.is_ok_and(|response| response.status() == 401)
    })
    .await;

    // A replica that starts later accepts the same secrets.
    let third = TestReplica::start(&database, friday()).await?;
    for (secret, status) in [(&oldest, 401), (&middle, 200), (&newest, 200)] {
        assert_eq!(third.get_with_key(SELIC_PATH, secret).await?.status(), status);
    }

    // The plan belongs to the key, not to a secret.
    assert!(first.open_store()?.set_key_plan(id, Plan::Bronze).await?);
    wait_until("both secrets have the new plan", Duration::from_secs(1), || async {
        let responses = [first.get_with_key(SELIC_PATH, &middle).await, second.get_with_key(SELIC_PATH, &newest).await];
        responses.into_iter().all(|response| response.is_ok_and(|response| response.headers()["x-plan"] == "bronze"))
    })
    .await;
    Ok(())
}

#[tokio::test]
async fn a_new_secret_works_on_every_replica_immediately() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let prefix = random_redis_prefix();
    let mut replicas = Vec::new();
    for _ in 0..3 {
        let options = TestReplicaOptions { redis_prefix: Some(&prefix), flags: &["--limit-gold", "100000"] };
        replicas.push(TestReplica::start_with_options(&database, friday(), options).await?);
    }

    let (_, mut key) = replicas[0].create_key(Plan::Gold).await?;
    for turn in 0..60 {
        key = rotate_key(&replicas[turn % 3], &key, Some(json!({"grace_seconds": turn % 2}))).await?.0;
        for replica in &replicas {
            assert_eq!(replica.get_with_key(SELIC_PATH, &key).await?.status(), 200, "turn {turn}");
        }
    }
    Ok(())
}

/// Uses the real clock and two processes.
#[tokio::test(flavor = "multi_thread")]
async fn after_the_grace_the_old_secret_is_refused_within_a_second_and_usage_is_shared() -> TestResult {
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(friday()).await?;
    let flags = ["--limit-gold", "1000000"];
    let first = ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &flags)?;
    let second = ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &flags)?;
    let http = vintem_testkit::http_client_builder().build()?;
    let get = async |process: &ServerProcess, path: &str, key: &str| {
        http.get(format!("http://{}{path}", process.address)).header("X-API-Key", key).send().await
    };

    for grace in [0u64, 5] {
        let (_, old) = create_key(&database.open_store()?, Plan::Gold).await?;
        for process in [&first, &second] {
            assert_eq!(get(process, SELIC_PATH, &old).await?.status(), 200);
        }

        // The grace begins between these two times.
        let requested_at = Instant::now();
        let request = http.post(format!("http://{}{ROTATE_PATH}", first.address)).header("X-API-Key", &old);
        let body: Value = request.json(&json!({"grace_seconds": grace})).send().await?.json().await?;
        let clock = QuietClock::start();
        let new = body["api_key"].as_str().expect("a key").to_owned();
        let mut answered = 3;
        for process in [&second, &first] {
            assert_eq!(get(process, SELIC_PATH, &new).await?.status(), 200, "the new one at once");
            answered += 1;
        }

        for (name, process) in [("where_it_was_rotated", &first), ("elsewhere", &second)] {
            while get(process, SELIC_PATH, &old).await?.status() == 200 {
                answered += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let ended_after = requested_at.elapsed();
            println!("grace_{grace}_{name}_seconds: {:.2}", ended_after.as_secs_f64());
            assert!(clock.elapsed() < Duration::from_secs(grace + 1), "{:?}", clock.elapsed());
            assert!(ended_after > Duration::from_secs(grace), "{ended_after:?}");
        }

        let usage: Value = get(&second, "/api/v1/plans/usage", &new).await?.json().await?;
        assert_eq!(usage["total_requests"], json!(answered + 1), "of both secrets, and the one that asks");
    }
    Ok(())
}
