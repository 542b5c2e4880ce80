//! The rate-limit headers, on every kind of response.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::{HeaderMap, Method};
use serde_json::Value;
use vintem_domain::Plan;
use vintem_testkit::timed_requests::run_concurrently;
use vintem_testkit::{TestDatabase, TestReplica, TestReplicaOptions, http_client_builder, parse_env_var};

use crate::{TestResult, friday};

const SELIC_PATH: &str = "/api/v1/market/selic/current";
/// Every status that the service itself returns; a 500 would be a bug.
const EXPECTED_STATUSES: [u16; 11] = [200, 201, 204, 304, 400, 401, 403, 404, 405, 429, 503];

fn integer_header(headers: &HeaderMap, name: &str) -> Option<u64> {
    let text = headers.get(name)?.to_str().ok()?;
    // Plain decimal notation only: no sign, no leading zero, no fraction.
    text.parse::<u64>().ok().filter(|number| number.to_string() == text)
}

/// `just limits` spreads the 100 refusals over half a window of 60 seconds.
#[tokio::test]
async fn remaining_falls_by_one_and_the_reset_is_constant_while_refused() -> TestResult {
    // In CI the refusals take three seconds of the minute, so that even a slow machine finishes within the window.
    let recipe_window: Option<u32> = parse_env_var("VINTEM_HEADERS_WINDOW");
    let window = recipe_window.unwrap_or(60);
    let pause = recipe_window.map_or(Duration::from_millis(30), |seconds| Duration::from_secs(seconds.into()) / 200);

    let database = TestDatabase::create_demo(friday()).await?;
    let seconds = format!("--limit-window-seconds={window}");
    let options = TestReplicaOptions { flags: &[&seconds], redis_prefix: None };
    let replica = TestReplica::start_with_options(&database, friday(), options).await?;

    let mut last_reset = 0;
    for remaining in (0..30).rev() {
        let headers = replica.get(SELIC_PATH).await?.headers().clone();
        assert_eq!(integer_header(&headers, "x-ratelimit-remaining"), Some(remaining));
        let reset = integer_header(&headers, "x-ratelimit-reset").expect("an integer");
        assert!(reset >= last_reset, "{reset} after {last_reset}");
        last_reset = reset;
    }

    let mut resets = BTreeSet::new();
    let mut last_wait = u64::MAX;
    for _ in 0..100 {
        let response = replica.get(SELIC_PATH).await?;
        assert_eq!(response.status(), 429);
        let wait = integer_header(response.headers(), "retry-after").expect("an integer");
        assert!((1..=last_wait).contains(&wait), "{wait} after {last_wait}");
        assert_eq!(response.headers()["ratelimit"], format!("\"free\";r=0;t={wait}").as_str());
        resets.insert(integer_header(response.headers(), "x-ratelimit-reset").expect("an integer"));
        last_wait = wait;
        tokio::time::sleep(pause).await;
    }

    println!("distinct_resets_while_refused: {}", resets.len());
    assert_eq!(resets, [last_reset].into());
    Ok(())
}

#[tokio::test]
async fn limit_headers_are_consistent_for_every_status() -> TestResult {
    let count = parse_env_var("VINTEM_HEADERS_ANSWERS").unwrap_or(2_000);
    let demo = TestDatabase::create_demo(friday()).await?;
    let empty = TestDatabase::create_empty().await?;
    let flags = ["--limit-free=1000000", "--limit-bronze=7", "--limit-platinum=1000000", "--register-per-day=1000000"];
    let options = || TestReplicaOptions { flags: &flags, redis_prefix: None };
    let replica = TestReplica::start_with_options(&demo, friday(), options()).await?;
    // Without any data a healthy service answers 503.
    let empty_replica = TestReplica::start_with_options(&empty, friday(), options()).await?;

    let (_, platinum) = replica.create_key(Plan::Platinum).await?;
    let (_, bronze) = replica.create_key(Plan::Bronze).await?;
    let revoked = replica.create_revoked_key().await?;
    let etag = replica.get_with_key("/api/v1/market/selic", &platinum).await?.headers()["etag"].clone();

    let http = http_client_builder().build()?;
    let request_of_kind = |kind: usize| {
        let get = |path: &str| http.get(replica.url(path));
        match kind % 16 {
            0 => get("/api/v1/market/overview").header("X-API-Key", &platinum),
            1 => get("/api/v1/filings?limit=3").bearer_auth(&platinum),
            2 => get("/api/v1/market/selic").header("X-API-Key", &platinum).header("If-None-Match", etag.clone()),
            3 => get("/api/v1/market/selic?limit=x"),
            4 => get(SELIC_PATH).header("X-API-Key", &revoked),
            5 => get("/api/v1/plans/usage"),
            6 => get("/api/v1/filings").header("Accept-Language", "pt-BR"),
            7 => get("/api/v1/companies/99999999").header("X-API-Key", &platinum),
            8 => http.delete(replica.url(SELIC_PATH)),
            9 | 10 => get(SELIC_PATH).header("X-API-Key", &bronze),
            11 => http.get(empty_replica.url(SELIC_PATH)),
            12 => http
                .request(Method::OPTIONS, replica.url(SELIC_PATH))
                .header("Origin", "https://example.com")
                .header("Access-Control-Request-Method", "GET"),
            13 => http.head(replica.url("/api/v1/market/selic")),
            14 => get("/pricing"),
            _ => http
                .post(replica.url("/api/v1/plans/register"))
                .json(&serde_json::json!({"name": "Ana", "email": format!("ana{kind}@example.com")})),
        }
    };
    let responses = run_concurrently(count, 8, |kind| {
        let request = request_of_kind(kind);
        async move {
            let response = request.send().await?;
            let status = response.status().as_u16();
            let headers = response.headers().clone();
            Ok((status, headers, response.bytes().await?))
        }
    })
    .await?;

    let mut statuses = BTreeMap::<u16, usize>::new();
    let mut violations = Vec::new();
    for (status, headers, body) in &responses {
        *statuses.entry(*status).or_default() += 1;
        if let Some(violation) = find_header_violation(*status, headers, body) {
            violations.push(format!("{status}: {violation}"));
        }
    }

    println!("answers: {} {statuses:?}", responses.len());
    println!("exceptions: {}", violations.len());
    assert!(violations.is_empty(), "{}", violations[0]);
    assert_eq!(statuses.into_keys().collect::<Vec<_>>(), EXPECTED_STATUSES);
    Ok(())
}

/// Describes the first violation in the headers of a response; `None` if they are consistent.
fn find_header_violation(status: u16, headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let not_an_integer = |name: &str| format!("{name} is {:?}", text(name));

    let names = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    let mut numbers = [0; 3];
    for (number, name) in numbers.iter_mut().zip(names) {
        let Some(value) = integer_header(headers, name) else { return Some(not_an_integer(name)) };
        *number = value;
    }
    let [limit, remaining, reset] = numbers;

    let plan = text("x-plan");
    let id = text("x-request-id");
    if Plan::from_id(&plan).is_none() {
        return Some(format!("X-Plan is {plan:?}"));
    }
    if remaining > limit {
        return Some(format!("{remaining} remain of {limit}"));
    }

    let decided_at_us = id.split_once('-').and_then(|(instant, _)| u64::from_str_radix(instant, 16).ok());
    let Some(decided_at_us) = decided_at_us else { return Some(format!("X-Request-Id is {id:?}")) };
    let decided_at = decided_at_us / 1_000_000;
    if reset < decided_at || reset > decided_at + 61 {
        return Some(format!("Reset is {reset}, decided at {decided_at}"));
    }

    if text("ratelimit-policy") != format!("\"{plan}\";q={limit};w=60") {
        return Some(format!("RateLimit-Policy is {:?}", text("ratelimit-policy")));
    }
    let rate_limit = text("ratelimit");
    let seconds = rate_limit.strip_prefix(&format!("\"{plan}\";r={remaining};t=")).and_then(|t| t.parse::<u64>().ok());
    let Some(seconds) = seconds else { return Some(format!("RateLimit is {rate_limit:?}")) };
    match (status, integer_header(headers, "retry-after")) {
        (429, Some(wait)) if wait >= 1 && wait == seconds => {}
        (503, Some(1..)) => {}
        (429 | 503, _) => return Some(not_an_integer("retry-after")),
        // Both are rounded up: `t` counts from the decision, the reset from 1970.
        (_, None) if (decided_at + seconds).abs_diff(reset) <= 1 => {}
        (_, wait) => return Some(format!("RateLimit is {rate_limit:?}, Reset {reset}, Retry-After {wait:?}")),
    }

    if status >= 400 && !body.is_empty() {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if body["request_id"].as_str() != Some(&id) {
            return Some(format!("{id} is called {} in the body", body["request_id"]));
        }
        if status == 429 && body["retry_after"].as_u64() != Some(seconds) {
            return Some(format!("{seconds} s are {} in the body", body["retry_after"]));
        }
    }
    None
}
