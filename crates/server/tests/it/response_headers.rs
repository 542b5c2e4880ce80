//! Headers that every response has, whatever its status; also size limits, preflights, pages and the operator port.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use vintem_domain::Plan;
use vintem_testkit::{TestDatabase, TestReplica, TestReplicaOptions};

use crate::{TestResult, friday};

const REQUIRED_HEADERS: [&str; 9] = [
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit",
    "ratelimit-policy",
    "x-plan",
    "x-request-id",
    "access-control-allow-origin",
    "vary",
];

#[tokio::test]
async fn every_response_has_limit_and_plan_headers() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;

    let long = format!("/api/v1/market/selic?x={}", "a".repeat(8200));
    let table = [
        ("GET", "/api/v1/market/selic", 200),
        ("HEAD", "/api/v1/market/selic", 200),
        ("GET", "/api/v1/nothing", 404),
        ("GET", "/", 200),
        ("GET", "/API/V1/companies", 404),
        ("GET", "/api/v1/companies/", 308),
        ("HEAD", "/pricing/", 308),
        ("GET", "/api/v1/companies//", 404),
        ("GET", "/api/v1/companies/%ff", 404),
        ("GET", "/api/v1/filings/%00", 404),
        ("DELETE", "/api/v1/market/selic", 405),
        ("TRACE", "/api/v1/market/selic", 405),
        ("OPTIONS", "/api/v1/market/selic", 405),
        ("GET", "/api/v1/plans/register", 405),
        ("GET", "/api/v1/market/selic?limit=x", 400),
        ("GET", "/api/v1/market/selic?limit=1&limit=1", 400),
        ("GET", "/api/v1/companies/search?q=%ff", 400),
        ("GET", &long, 400),
        ("GET", "/api/v1/companies?offset=99999999999999999999", 200),
        ("GET", "/api/v1/filings?offset=18446744073709551615&limit=18446744073709551615", 200),
        ("GET", "/api/v1/filings/search?q=a&offset=99999999999999999999", 200),
    ];

    for (method, path, status) in table {
        let request = replica.http.request(method.parse()?, replica.url(path)).header("X-API-Key", &key);
        let response = replica.send(request).await?;

        let short_path = &path[..path.len().min(60)];
        assert_eq!(response.status(), status, "{method} {short_path}");
        for header in REQUIRED_HEADERS {
            // Other websites get no access to registrations.
            let is_expected = !(header.starts_with("access-control-") && path == "/api/v1/plans/register");
            assert_eq!(response.headers().contains_key(header), is_expected, "{header} on {method} {short_path}");
        }
        assert_eq!(response.headers().contains_key("allow"), status == 405, "{method} {short_path}");
        if status >= 400 && method != "HEAD" {
            let id = response.headers()["x-request-id"].to_str()?.to_owned();
            assert_eq!(response.json::<Value>().await?["request_id"], id);
        }
    }
    Ok(())
}

#[tokio::test]
async fn oversized_headers_and_bodies_are_refused() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;

    let large_head = format!("GET /health HTTP/1.1\r\nHost: a\r\nX-Large: {}\r\n\r\n", "a".repeat(20_000));
    let mut stream = TcpStream::connect(replica.replica.address)?;
    let response = tokio::task::spawn_blocking(move || -> std::io::Result<String> {
        stream.write_all(large_head.as_bytes())?;
        let mut buffer = [0; 64];
        let length = stream.read(&mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    })
    .await??;
    assert!(response.starts_with("HTTP/1.1 431"), "{response}");

    let body = format!("{{\"name\":\"{}\",\"email\":\"ana@example.com\"}}", "a".repeat(9_000));
    let request = replica.http.post(replica.url("/api/v1/plans/register")).header("content-type", "application/json");
    let response = replica.send(request.body(body)).await?;
    assert_eq!(response.status(), 400);
    assert!(response.headers().contains_key("x-ratelimit-limit"));
    Ok(())
}

#[tokio::test]
async fn preflights_use_no_quota_and_allow_both_key_headers() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;
    for _ in 0..3 {
        let request = replica.http.request(reqwest::Method::OPTIONS, replica.url("/api/v1/plans/usage"));
        let request = request.header("Origin", "https://example.com").header("Access-Control-Request-Method", "GET");
        let response = replica.send(request).await?;

        assert_eq!(response.status(), 204);
        assert_eq!(response.headers()["x-ratelimit-remaining"], "30");
        let allowed = response.headers()["access-control-allow-headers"].to_str()?.to_lowercase();
        assert!(allowed.contains("x-api-key") && allowed.contains("authorization"));
        assert!(!response.headers().contains_key("access-control-allow-credentials"));
    }
    Ok(())
}

#[tokio::test]
async fn pages_have_their_own_limit() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let options = TestReplicaOptions { flags: &["--limit-window-seconds=3600"], redis_prefix: None };
    let replica = TestReplica::start_with_options(&database, friday(), options).await?;
    for turn in 0..600 {
        assert_eq!(replica.get("/health").await?.status(), 200, "turn {turn}");
    }

    let refused = replica.get("/pricing").await?;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(refused.headers()["x-ratelimit-remaining"], "30", "the quota is untouched");
    Ok(())
}

#[tokio::test]
async fn operator_endpoints_are_not_on_the_public_port() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    replica.get("/api/v1/market/selic").await?;

    let admin = |path: &str| replica.http.get(format!("http://{}{path}", replica.replica.admin_address)).send();
    assert_eq!(admin("/livez").await?.status(), 200);
    assert_eq!(admin("/readyz").await?.status(), 200);
    let metrics = admin("/metrics").await?.text().await?;
    for name in ["vintem_requests_total", "vintem_request_seconds", "vintem_snapshot_age_seconds"] {
        assert!(metrics.contains(name), "{name}");
    }

    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(replica.get(path).await?.status(), 404, "{path}");
    }
    Ok(())
}
