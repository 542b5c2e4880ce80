//! A key is shown to its owner, once; nobody else finds it anywhere: not in what is stored, counted, logged or answered.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use vintem_testkit::{DedicatedPostgres, DedicatedRedis, ServerProcess, create_key_by_cli, run_vintem};

use crate::{TestResult, vintem_binary};

const USAGE_PATH: &str = "/api/v1/plans/usage";
const OWNER_EMAIL: &str = "ana.segredo@example.com";

/// Where a key could have been left behind, and what was found there.
struct SearchedOutput {
    name: &'static str,
    content: String,
}

/// What is not text in it is replaced; keys are.
fn searched_output(name: &'static str, content: &[u8]) -> SearchedOutput {
    SearchedOutput { name, content: String::from_utf8_lossy(content).into_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_leaks_into_dumps_redis_files_logs_metrics_or_responses() -> TestResult {
    // PostgreSQL logs every statement with its parameters: what it is told must not be the key either.
    let postgres = DedicatedPostgres::start_with_options("-c log_statement=all -c log_min_messages=debug1")?;
    let redis = DedicatedRedis::start_persistent()?;
    let database = format!("{}/postgres", postgres.url());
    for command in [&["migrate"][..], &["demo", "--filings", "1000"]] {
        let (status, _, error) = run_vintem(vintem_binary(), &database, command).await?;
        anyhow::ensure!(status.success(), "{command:?}: {error}");
    }
    let flags = ["--log", "trace", "--register-per-day", "1000"];
    let mut process = ServerProcess::start(vintem_binary(), &database, &redis.url(), &flags)?;
    let mut keys = Vec::new();
    let http = vintem_testkit::http_client_builder().build()?;
    for _ in 0..5 {
        let body = json!({"name": "Ana", "email": OWNER_EMAIL});
        let answer = http.post(process.url("/api/v1/plans/register")).json(&body).send().await?;
        let registered: Value = answer.json().await?;
        keys.push(registered["api_key"].as_str().expect("a key").to_owned());
    }
    let mut ids = Vec::new();
    for plan in ["bronze", "platinum"] {
        let (id, key) = create_key_by_cli(vintem_binary(), &database, plan).await?;
        ids.push(id);
        keys.push(key);
    }
    // New secrets of keys that have one: the former are good for a day more.
    for key in keys.clone().iter().skip(3) {
        let rotated = http.post(process.url("/api/v1/keys/rotate")).header("X-API-Key", key).send().await?;
        let rotated: Value = rotated.json().await?;
        keys.push(rotated["api_key"].as_str().expect("a key").to_owned());
    }
    let mut answers = Vec::new();
    for request in keys.iter().flat_map(|key| requests_carrying_key(&http, &process, key)) {
        let answer = request.send().await?;
        answers.extend(format!("{:?}", answer.headers()).into_bytes());
        answers.extend(answer.bytes().await?);
    }
    let metrics = http.get(format!("http://{}/metrics", process.admin_address)).send().await?.bytes().await?;
    let (_, mut listed, _) = run_vintem(vintem_binary(), &database, &["keys", "list", "--json"]).await?;
    for id in ids {
        listed.push_str(&run_vintem(vintem_binary(), &database, &["keys", "history", &id.to_string()]).await?.1);
    }
    // Usage has been moved to PostgreSQL, so that the dump holds all that is ever stored of a request.
    let moved =
        || async { redis.run_command::<Vec<String>>(&["KEYS", "*usage:batch*"]).is_ok_and(|left| left.is_empty()) };
    vintem_testkit::wait_until("all usage is drained", Duration::from_secs(10), moved).await;
    redis.run_command::<String>(&["SAVE"])?;
    process.terminate()?;
    assert!(process.wait_timeout(Duration::from_secs(10))?.is_some());

    let log = process.log();
    assert!(log.contains("\"message\":\"request\""), "requests are logged");
    assert!(log.contains("\"address\":\"127.0.0.0/24\""), "the address is cut");
    let (append_only, image) =
        (read_all_files(&redis.data_dir().join("appendonlydir"))?, redis.data_dir().join("dump.rdb"));
    let places = [
        searched_output("dump", &postgres.pg_dump()?),
        searched_output("log of PostgreSQL", &postgres.read_log()?),
        searched_output("append-only file", &append_only),
        searched_output("image of Redis", &std::fs::read(image)?),
        searched_output("log", log.as_bytes()),
        searched_output("metrics", &metrics),
        searched_output("answers", &answers),
        searched_output("list of keys", listed.as_bytes()),
    ];
    // A place that is not what it should be would hold nothing.
    for (place, expected) in places.iter().zip([
        "COPY public.api_key",
        "insert into api_key",
        "vintem:",
        "vintem:",
        "/api/v1/plans/usage",
        "vintem_requests_total",
        "total_requests",
        OWNER_EMAIL,
    ]) {
        assert!(place.content.contains(expected), "{} does not hold {expected}", place.name);
    }
    let mut hits = Vec::new();
    for key in &keys {
        // Of the 37 random characters eight are shown to people for them to tell keys apart; not one more.
        for (what, secret) in [("key", key.as_str()), ("random part", &key[4..41]), ("hidden part", &key[12..24])] {
            hits.extend(places.iter().filter(|place| place.content.contains(secret)).map(|place| (place.name, what)));
        }
    }
    let email_in_log = places.iter().filter(|place| place.name == "log" && place.content.contains(OWNER_EMAIL)).count();
    println!("keys: {}", keys.len());
    for place in &places {
        println!("searched_bytes: {} {}", place.content.len(), place.name);
    }
    println!("hits: {}", hits.len());
    assert!(hits.is_empty(), "{hits:?}");
    assert_eq!(email_in_log, 0, "the e-mail is in the log");
    Ok(())
}

/// A key where it belongs, and where people put it by mistake.
fn requests_carrying_key(http: &reqwest::Client, process: &ServerProcess, key: &str) -> Vec<reqwest::RequestBuilder> {
    let get = |path: &str| http.get(process.url(path));
    let mut requests = vec![
        get(USAGE_PATH).header("X-API-Key", key),
        get(USAGE_PATH).bearer_auth(key),
        get("/api/v1/keys/me").header("X-API-Key", key),
        get(USAGE_PATH).header("X-API-Key", key).bearer_auth(vintem_api::generate_key().reveal()),
        get(USAGE_PATH).header("X-API-Key", format!("{key}x")),
        get(USAGE_PATH).header("X-API-Key", key.replace("vtm_", "VTM_")),
        get(USAGE_PATH).header("Authorization", key),
        get(USAGE_PATH).header("Authorization", format!("Basic {key}")),
        get(USAGE_PATH).header("Cookie", format!("key={key}")),
        get("/api/v1/filings?limit=x").header("X-API-Key", key),
        get(&format!("/api/v1/companies/{key}")).header("X-API-Key", key),
        get(&format!("/{key}")),
        get("/pricing").header("Referer", format!("https://example.com/?key={key}")),
    ];
    for name in ["api_key", "apikey", "key", "token", "access_token", "X-API-Key"] {
        requests.push(get(&format!("/api/v1/market/selic?{name}={key}")));
        requests.push(get(&format!("/api/v1/nothing?{name}={key}&limit=x")));
    }
    requests
}

fn read_all_files(directory: &Path) -> anyhow::Result<Vec<u8>> {
    let mut content = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        content.extend(std::fs::read(entry?.path())?);
    }
    Ok(content)
}
