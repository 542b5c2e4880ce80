//! The usage endpoint.

use chrono::{Days, Utc};
use serde_json::{Value, json};

use super::{DemoService, field_values, start_demo};
use crate::TestResult;

const USAGE_PATH: &str = "/api/v1/plans/usage";

/// This request is counted as well, so it is sent before any counts are compared.
async fn get_usage(service: &DemoService, query: &str) -> anyhow::Result<Value> {
    service.get_ok(&format!("{USAGE_PATH}{query}")).await
}

#[tokio::test]
async fn usage_lists_the_last_thirty_days_newest_first_with_zeros() -> TestResult {
    let service = start_demo().await?;
    let body = get_usage(&service, "").await?;

    let today = Utc::now().date_naive();
    let expected: Vec<String> = (0..30).map(|days_back| (today - Days::new(days_back)).to_string()).collect();
    assert_eq!(field_values(&body, "date"), expected);
    assert_eq!(
        (&body["plan"], &body["rate_limit"], &body["timezone"]),
        (&json!("platinum"), &json!(2000), &json!("UTC"))
    );
    assert_eq!(body["key"].as_str().expect("text"), format!("{}…", &service.platinum_key[..12]));
    assert_eq!(
        (body["from"].as_str(), body["to"].as_str()),
        (expected.last().map(String::as_str), expected.first().map(String::as_str))
    );

    assert!(field_values(&body, "requests")[1..].iter().all(|count| count == "0"));

    Ok(())
}

#[tokio::test]
async fn usage_includes_the_last_request_and_its_outcomes_add_up() -> TestResult {
    let service = start_demo().await?;
    for path in ["/api/v1/market/selic", "/api/v1/companies/99999999", "/api/v1/market/selic?limit=x", "/health"] {
        service.replica.get_with_key(path, &service.platinum_key).await?;
    }

    let request = service.replica.http.request(reqwest::Method::OPTIONS, service.replica.url("/api/v1/market/selic"));
    let preflight = request.header("Origin", "https://example.com").header("Access-Control-Request-Method", "GET");
    service.replica.send(preflight.header("X-API-Key", &service.platinum_key)).await?;

    let body = get_usage(&service, "").await?;
    let today = &body["data"][0];
    let count = |name: &str| today[name].as_u64().expect("a count");
    assert_eq!((count("requests"), count("successful"), count("client_errors")), (4, 2, 2));
    let parts = ["successful", "client_errors", "server_errors", "rate_limited", "unfinished"];
    assert_eq!(parts.into_iter().map(count).sum::<u64>(), count("requests"));
    assert_eq!(body["total_requests"], json!(4));

    Ok(())
}

#[tokio::test]
async fn usage_covers_at_most_366_days_inclusive() -> TestResult {
    let service = start_demo().await?;

    let year = get_usage(&service, "?from=2024-01-01&to=2024-12-31").await?;
    assert_eq!(year["data"].as_array().map(Vec::len), Some(366));
    assert_eq!(get_usage(&service, "?from=2024-01-01&to=2024-01-01").await?["data"].as_array().map(Vec::len), Some(1));
    let (status, body) = service.get_status_and_body(&format!("{USAGE_PATH}?from=2024-01-01&to=2025-01-01")).await?;
    assert_eq!((status, &body["error"]), (400, &json!("bad_request")));
    Ok(())
}
