//! The rate limit: how callers are identified, which requests count, and the order of the checks.

use serde_json::Value;
use vintem_domain::Plan;

use super::{start_demo, start_demo_with};
use crate::TestResult;

const SELIC_PATH: &str = "/api/v1/market/selic/current";

#[tokio::test]
async fn anonymous_callers_are_counted_by_ipv4_address_or_ipv6_network() -> TestResult {
    let service = start_demo_with(&["--trusted-proxies=127.0.0.0/8"]).await?;

    // The remaining quota shows which addresses are the same caller.
    let table = [
        ("203.0.113.7", "29"),
        ("::ffff:203.0.113.7", "28"),
        ("203.0.113.8", "29"),
        ("2001:db8:1:2::1", "29"),
        ("2001:db8:1:2:ffff::9", "28"),
        ("2001:db8:1:3::1", "29"),
        // The entries further left were written by the client itself.
        ("203.0.113.7, 198.51.100.1", "29"),
        ("203.0.113.99, 203.0.113.7", "27"),
    ];
    for (forwarded, remaining) in table {
        let request = service.replica.http.get(service.replica.url(SELIC_PATH)).header("X-Forwarded-For", forwarded);
        let response = service.replica.send(request).await?;
        assert_eq!(response.headers()["x-ratelimit-remaining"], remaining, "{forwarded}");
    }

    Ok(())
}

#[tokio::test]
async fn forwarding_headers_are_trusted_only_from_trusted_proxies() -> TestResult {
    let service = start_demo().await?;
    for (index, name) in ["X-Forwarded-For", "Forwarded", "X-Real-IP"].into_iter().enumerate() {
        let value = if name == "Forwarded" { "for=203.0.113.7" } else { "203.0.113.7" };
        let request = service.replica.http.get(service.replica.url(SELIC_PATH)).header(name, value);
        let response = service.replica.send(request).await?;
        assert_eq!(response.headers()["x-ratelimit-remaining"], (29 - index).to_string().as_str(), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn each_key_has_its_own_limit_whatever_its_address() -> TestResult {
    let service = start_demo().await?;
    let (_, other) = service.replica.create_key(Plan::Platinum).await?;
    for (key, remaining) in [(&service.platinum_key, "1999"), (&service.platinum_key, "1998"), (&other, "1999")] {
        let response = service.replica.get_with_key(SELIC_PATH, key).await?;
        assert_eq!(response.headers()["x-ratelimit-remaining"], remaining);
    }
    assert_eq!(service.replica.get(SELIC_PATH).await?.headers()["x-ratelimit-remaining"], "29");
    Ok(())
}

#[tokio::test]
async fn refused_retries_do_not_lengthen_the_wait_and_all_fields_agree_on_it() -> TestResult {
    let service = start_demo_with(&["--limit-free=3"]).await?;

    for _ in 0..3 {
        assert_eq!(service.replica.get(SELIC_PATH).await?.status(), 200);
    }

    let mut last_wait = 60;
    for _ in 0..20 {
        let response = service.replica.get(SELIC_PATH).await?;
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["x-ratelimit-remaining"], "0");
        assert_eq!(response.headers()["ratelimit-policy"], "\"free\";q=3;w=60");

        let wait: u64 = response.headers()["retry-after"].to_str()?.parse()?;
        assert_eq!(response.headers()["ratelimit"], format!("\"free\";r=0;t={wait}").as_str());
        let body: Value = response.json().await?;
        assert_eq!((&body["error"], &body["retry_after"]), (&"rate_limited".into(), &wait.into()));
        assert!((1..=last_wait).contains(&wait), "{wait} after {last_wait}");
        last_wait = wait;
    }

    Ok(())
}

#[tokio::test]
async fn request_checks_run_in_the_documented_order() -> TestResult {
    let service = start_demo_with(&["--limit-free=7", "--limit-bronze=1"]).await?;
    let unknown = vintem_api::generate_key().reveal().to_owned();

    let send = |method: &str, path: &str, keys: &[&str]| {
        let mut request = service.replica.http.request(method.parse().expect("a method"), service.replica.url(path));
        for key in keys {
            request = request.header("X-API-Key", *key);
        }
        service.replica.send(request)
    };

    // Each request also fails every check that comes after the one that rejects it.
    let table: [(&str, &str, &[&str], u16); 7] = [
        ("GET", "/api/v1/nothing?limit=x", &[&unknown], 401),
        ("GET", "/api/v1/nothing?limit=x", &[&unknown, "other"], 400),
        ("GET", "/api/v1/nothing?limit=x", &[], 404),
        ("DELETE", "/api/v1/filings?limit=x", &[], 405),
        ("GET", "/api/v1/companies/99999999/filings?limit=x", &[], 403),
        ("GET", "/api/v1/market/selic?limit=x", &[], 400),
        ("GET", "/api/v1/market/selic", &[], 200),
    ];

    for (method, path, keys, status) in table {
        assert_eq!(send(method, path, keys).await?.status(), status, "{method} {path}");
    }

    // All of them were charged to the address; now the limit is checked before everything else.
    for (method, path, keys, _) in table {
        assert_eq!(send(method, path, keys).await?.status(), 429, "{method} {path}");
    }

    let platinum = service.platinum_key.as_str();
    assert_eq!(send("GET", "/api/v1/companies/99999999/filings?limit=x", &[platinum]).await?.status(), 400);
    assert_eq!(send("GET", "/api/v1/companies/99999999/filings", &[platinum]).await?.status(), 404);

    Ok(())
}

#[tokio::test]
async fn callers_over_the_limit_can_still_read_health_and_pages() -> TestResult {
    let service = start_demo_with(&["--limit-free=1"]).await?;
    assert_eq!(service.replica.get(SELIC_PATH).await?.status(), 200);
    assert_eq!(service.replica.get(SELIC_PATH).await?.status(), 429);

    for path in ["/health", "/", "/pricing", "/docs", "/docs/openapi.yaml", "/assets/vintem.css"] {
        let response = service.replica.get(path).await?;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.headers()["x-ratelimit-remaining"], "0", "{path} shows the quota's state");
    }

    Ok(())
}
