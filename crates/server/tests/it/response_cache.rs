//! The response cache: a cached response equals a fresh one, and expires as soon as it could differ.

use std::time::Duration;

use chrono::Duration as Span;
use http::HeaderMap;
use serde_json::Value;
use vintem_domain::{DataOrigin, Dataset, Plan, series};
use vintem_store::load::{NewFetch, Observation};
use vintem_testkit::{TestDatabase, TestReplica, wait_until};

use crate::{TestResult, friday};

/// Routes without parameters whose responses depend only on the snapshot and the day.
const CACHEABLE_PATHS: [&str; 7] = [
    "/api/v1/market/selic/current",
    "/api/v1/market/selic",
    "/api/v1/market/overview",
    "/api/v1/market/fx/current",
    "/api/v1/market/series",
    "/api/v1/filings",
    "/api/v1/companies",
];
/// Headers that differ from one response to the next, or with the URL.
const VARYING_HEADERS: [&str; 6] =
    ["date", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit", "x-request-id", "etag"];

/// A replica with limits that no test reaches.
async fn start_unlimited_replica(database: &TestDatabase) -> anyhow::Result<TestReplica> {
    TestReplica::start_with_high_limits(database, friday()).await
}

async fn get_stable_headers_and_body(
    replica: &TestReplica,
    path: &str,
    key: Option<&str>,
    lang: &str,
) -> anyhow::Result<(HeaderMap, String)> {
    let mut request = replica.http.get(replica.url(path)).header("Accept-Language", lang);
    if let Some(key) = key {
        request = request.header("X-API-Key", key);
    }

    let response = replica.send(request).await?;
    let mut headers = response.headers().clone();
    let is_ok = response.status() == 200;
    for name in VARYING_HEADERS {
        headers.remove(name);
    }

    // Error bodies are left out, because each has its own request ID.
    Ok((headers, if is_ok { response.text().await? } else { String::new() }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_response_equals_a_fresh_one_for_every_plan_and_language() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = start_unlimited_replica(&database).await?;

    let mut keys = vec![None];
    for plan in Plan::ALL {
        keys.push(Some(replica.create_key(plan).await?.1));
    }

    for path in CACHEABLE_PATHS {
        for key in &keys {
            for lang in ["en", "pt-BR"] {
                // A query string bypasses the cache.
                let fresh = get_stable_headers_and_body(&replica, &format!("{path}?_=1"), key.as_deref(), lang).await?;

                let first = get_stable_headers_and_body(&replica, path, key.as_deref(), lang).await?;
                let second = get_stable_headers_and_body(&replica, path, key.as_deref(), lang).await?;
                assert_eq!(first, second, "{path} {lang}");

                let is_platinum = second.0["x-plan"] == "platinum";
                assert!(!is_platinum || !second.1.is_empty(), "{path} {lang}");

                // Links repeat only the known parameters, so they are equal as well.
                assert_eq!(fresh.1, second.1, "{path} {lang}");
                assert_eq!(fresh.0, second.0, "{path} {lang}");
            }
        }
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_responses_have_their_own_remaining_quota_and_request_id() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Gold).await?;

    let mut remaining = Vec::new();
    let mut ids = Vec::new();
    for _ in 0..5 {
        let response = replica.get_with_key(CACHEABLE_PATHS[0], &key).await?;
        remaining.push(response.headers()["x-ratelimit-remaining"].to_str()?.parse::<u32>()?);
        ids.push(response.headers()["x-request-id"].clone());
    }

    assert!(remaining.windows(2).all(|pair| pair[1] == pair[0] - 1), "{remaining:?}");

    ids.sort_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
    ids.dedup();
    assert_eq!(ids.len(), 5);

    let (_, other) = replica.create_key(Plan::Gold).await?;
    let response = replica.get_with_key(CACHEABLE_PATHS[0], &other).await?;
    assert_eq!(response.headers()["x-ratelimit-remaining"], *(remaining[0]).to_string());

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_response_expires_at_midnight_and_on_a_load() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = start_unlimited_replica(&database).await?;
    let current = || async {
        let body: Value = replica.get(CACHEABLE_PATHS[0]).await?.json().await?;
        anyhow::Ok((body["value"].to_string(), body["stale"] == true))
    };

    let (before, _) = current().await?;
    assert_eq!(current().await?, (before.clone(), false));

    replica.clock.set(friday() + Span::days(14));
    assert_eq!(current().await?, (before.clone(), true), "two weeks later nothing newer has come");
    replica.clock.set(friday());
    assert_eq!(current().await?, (before.clone(), false));

    let selic = series::find_series("selic").expect("the series is there");
    let fetch = NewFetch::without_response("test:kept".to_owned(), friday() + Span::seconds(1), [7; 32]);
    let store = database.open_store()?;
    let mut load = store.begin_load(Dataset::Series(selic), DataOrigin::Synthetic, &fetch).await?;
    load.append_observations(selic, &[Observation { date: friday().date_naive(), value: "99.25".parse()? }]).await?;
    load.commit().await?;

    wait_until("the new value is served", Duration::from_secs(10), || async {
        current().await.is_ok_and(|(value, _)| value == "99.25")
    })
    .await;

    Ok(())
}
