//! What goes on when an engine is away, and what is said of it.

use std::time::{Duration, Instant};

use serde_json::Value;
use vintem_testkit::{OwnRedis, ServedProcess, TestDatabase};

use crate::{Outcome, binary, friday};

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_pages_go_on_and_counted_requests_are_503_within_a_second() -> Outcome {
    let (redis, database) = (OwnRedis::start()?, TestDatabase::demo(friday()).await?);
    let process = ServedProcess::start(binary(), &database.url(), &redis.url(), &[])?;
    let get = |path: &str| reqwest::get(format!("http://{}{path}", process.address));
    assert_eq!(get("/api/v1/market/selic/current").await?.status(), 200);
    drop(redis);
    let asked = Instant::now();
    let answer = get("/api/v1/market/selic/current").await?;
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(answer.status(), 503);
    assert!(answer.headers().contains_key("retry-after") && answer.headers().contains_key("x-ratelimit-limit"));
    assert_eq!(answer.json::<Value>().await?["error"], "service_unavailable");
    assert_eq!(get("/pricing").await?.status(), 200);
    let health: Value = get("/health").await?.json().await?;
    assert_eq!(health["status"], "degraded");
    Ok(())
}

/// Even at the level that logs everything: neither where it belongs nor where it does not.
#[tokio::test(flavor = "multi_thread")]
async fn no_key_is_ever_logged() -> Outcome {
    let (redis, database) = (OwnRedis::start()?, TestDatabase::demo(friday()).await?);
    let mut process = ServedProcess::start(binary(), &database.url(), &redis.url(), &["--log", "trace"])?;
    let http = reqwest::Client::new();
    let address = process.address.clone();
    let url = |path: &str| format!("http://{address}{path}");
    let body = serde_json::json!({"name": "Ana", "email": "ana.segredo@example.com"});
    let registered: Value = http.post(url("/api/v1/plans/register")).json(&body).send().await?.json().await?;
    let key = registered["api_key"].as_str().expect("a key");
    http.get(url("/api/v1/plans/usage")).header("X-API-Key", key).send().await?;
    http.get(url("/api/v1/plans/usage")).bearer_auth(key).send().await?;
    http.get(url(&format!("/api/v1/market/selic?api_key={key}"))).send().await?;
    process.terminate()?;
    assert!(process.wait(Duration::from_secs(10))?.is_some());
    let log = process.log();
    assert!(log.contains("\"message\":\"request\""), "requests are logged");
    assert!(!log.contains(&key[12..]), "the key is in the log");
    assert!(!log.contains("ana.segredo"), "the e-mail is in the log");
    assert!(log.contains("\"address\":\"127.0.0.0/24\""), "the address is cut");
    Ok(())
}
