//! A key is shown once, to its owner. It must not appear anywhere else: in storage, counters, logs or responses.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use vintem_testkit::{DedicatedPostgres, DedicatedRedis, ServerProcess, create_key_by_cli, run_vintem};

use crate::{TestResult, vintem_binary};

const USAGE_PATH: &str = "/api/v1/plans/usage";
const OWNER_EMAIL: &str = "ana.segredo@example.com";

/// A place where a key could leak, and its content.
struct SearchedOutput {
    name: &'static str,
    content: String,
}

/// Bytes that are not UTF-8 are replaced; keys are plain ASCII and stay intact.
fn searched_output(name: &'static str, content: &[u8]) -> SearchedOutput {
    SearchedOutput { name, content: String::from_utf8_lossy(content).into_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_leaks_into_dumps_redis_files_logs_metrics_or_responses() -> TestResult {
    // PostgreSQL logs every statement with its parameters, so its log would show a key sent to it.
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
        let response = http.post(process.url("/api/v1/plans/register")).json(&body).send().await?;
        let registered: Value = response.json().await?;
        keys.push(registered["api_key"].as_str().expect("a key").to_owned());
    }

    let mut ids = Vec::new();
    for plan in ["bronze", "platinum"] {
        let (id, key) = create_key_by_cli(vintem_binary(), &database, plan).await?;
        ids.push(id);
        keys.push(key);
    }

    // Rotated keys: the old secrets remain valid for a day.
    for key in keys.clone().iter().skip(3) {
        let rotated = http.post(process.url("/api/v1/keys/rotate")).header("X-API-Key", key).send().await?;
        let rotated: Value = rotated.json().await?;
        keys.push(rotated["api_key"].as_str().expect("a key").to_owned());
    }

    let mut responses = Vec::new();
    for request in keys.iter().flat_map(|key| requests_carrying_key(&http, &process, key)) {
        let response = request.send().await?;
        responses.extend(format!("{:?}", response.headers()).into_bytes());
        responses.extend(response.bytes().await?);
    }

    let metrics = http.get(format!("http://{}/metrics", process.admin_address)).send().await?.bytes().await?;
    let (_, mut key_listing, _) = run_vintem(vintem_binary(), &database, &["keys", "list", "--json"]).await?;
    for id in ids {
        key_listing.push_str(&run_vintem(vintem_binary(), &database, &["keys", "history", &id.to_string()]).await?.1);
    }

    // Wait until usage is in PostgreSQL, so that the dump contains everything ever stored about a request.
    let is_drained = || async {
        redis.run_command::<Vec<String>>(&["KEYS", "*usage:chunk*"]).is_ok_and(|remaining| remaining.is_empty())
    };
    vintem_testkit::wait_until("all usage is drained", Duration::from_secs(10), is_drained).await;

    redis.run_command::<String>(&["SAVE"])?;
    process.terminate()?;
    assert!(process.wait_timeout(Duration::from_secs(10))?.is_some());

    let log = process.log();
    assert!(log.contains("\"message\":\"request\""), "requests are logged");
    assert!(log.contains("\"address\":\"127.0.0.0/24\""), "the address is cut");

    let append_only = read_all_files(&redis.data_dir().join("appendonlydir"))?;
    let rdb_file = redis.data_dir().join("dump.rdb");

    let outputs = [
        searched_output("dump", &postgres.pg_dump()?),
        searched_output("log of PostgreSQL", &postgres.read_log()?),
        searched_output("append-only file", &append_only),
        searched_output("image of Redis", &std::fs::read(rdb_file)?),
        searched_output("log", log.as_bytes()),
        searched_output("metrics", &metrics),
        searched_output("answers", &responses),
        searched_output("list of keys", key_listing.as_bytes()),
    ];

    // Each output must contain something known, otherwise the search would prove nothing.
    for (output, expected) in outputs.iter().zip([
        "COPY public.api_key",
        "insert into api_key",
        "vintem:",
        "vintem:",
        "/api/v1/plans/usage",
        "vintem_requests_total",
        "total_requests",
        OWNER_EMAIL,
    ]) {
        assert!(output.content.contains(expected), "{} does not hold {expected}", output.name);
    }

    let mut hits = Vec::new();
    for key in &keys {
        // Of the 37 random characters, people see eight, to tell keys apart, and no more.
        for (what, secret) in [("key", key.as_str()), ("random part", &key[4..41]), ("hidden part", &key[12..24])] {
            hits.extend(
                outputs.iter().filter(|output| output.content.contains(secret)).map(|output| (output.name, what)),
            );
        }
    }

    let email_in_log =
        outputs.iter().filter(|output| output.name == "log" && output.content.contains(OWNER_EMAIL)).count();

    println!("keys: {}", keys.len());
    for output in &outputs {
        println!("searched_bytes: {} {}", output.content.len(), output.name);
    }

    println!("hits: {}", hits.len());

    assert!(hits.is_empty(), "{hits:?}");
    assert_eq!(email_in_log, 0, "the e-mail is in the log");

    Ok(())
}

/// Requests with the key where it belongs, and where people put it by mistake.
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
