//! HTTP manners.

use serde_json::Value;
use vintem_domain::VERSION;

use super::{DemoService, start_demo};
use crate::TestResult;

/// One address of each kind of data.
const DATA_PATHS: [&str; 6] = [
    "/api/v1/market/selic",
    "/api/v1/market/fx/current",
    "/api/v1/market/overview",
    "/api/v1/companies?limit=5",
    "/api/v1/filings/recent",
    "/api/v1/search?q=companhia",
];

async fn get_with_header(
    served: &DemoService,
    path: &str,
    name: &str,
    value: &str,
) -> anyhow::Result<reqwest::Response> {
    let request = served.replica.http.get(served.replica.url(path)).header("X-API-Key", &served.platinum_key);
    served.replica.send(request.header(name, value)).await
}

#[tokio::test]
async fn data_has_a_weak_etag_and_a_matching_one_gets_304() -> TestResult {
    let served = start_demo().await?;
    for path in DATA_PATHS {
        let answer = served.replica.get_with_key(path, &served.platinum_key).await?;
        let tag = answer.headers()["etag"].to_str()?.to_owned();
        assert!(tag.starts_with("W/\""), "{path}: {tag}");
        let again = get_with_header(&served, path, "If-None-Match", &tag).await?;
        assert_eq!(again.status(), 304, "{path}");
        assert_eq!(again.headers()["etag"], tag.as_str());
        assert!(again.headers().contains_key("x-ratelimit-remaining"), "{path}");
        assert_eq!(get_with_header(&served, path, "If-None-Match", "W/\"other\"").await?.status(), 200, "{path}");
    }
    let tag = |path: &'static str| {
        let served = &served;
        async move { anyhow::Ok(served.replica.get(path).await?.headers()["etag"].clone()) }
    };
    let plain = tag("/api/v1/market/cdi").await?;
    assert_ne!(plain, tag("/api/v1/market/cdi?limit=3").await?, "parameters");
    assert_ne!(plain, tag("/api/v1/market/selic").await?, "route");
    Ok(())
}

#[tokio::test]
async fn keyed_responses_are_private_and_vary_lists_what_they_depend_on() -> TestResult {
    let served = start_demo().await?;
    for path in DATA_PATHS {
        let answer = served.replica.get_with_key(path, &served.platinum_key).await?;
        let cache = answer.headers()["cache-control"].to_str()?.to_owned();
        assert!(cache.contains("private"), "{path}: {cache}");
        assert_eq!(answer.headers()["vary"], "Accept-Encoding, Accept, Accept-Language, X-API-Key, Authorization");
    }
    let anonymous = served.replica.get("/api/v1/market/selic").await?;
    assert!(anonymous.headers()["cache-control"].to_str()?.contains("public"));
    let usage = served.replica.get_with_key("/api/v1/plans/usage", &served.platinum_key).await?;
    assert_eq!(usage.headers()["cache-control"], "no-store");
    Ok(())
}

#[tokio::test]
async fn responses_are_compressed_as_requested() -> TestResult {
    let served = start_demo().await?;
    let path = "/api/v1/market/selic?limit=2000";
    let plain = get_with_header(&served, path, "Accept-Encoding", "identity").await?;
    assert_eq!(plain.headers().get("content-encoding"), None);
    let whole = plain.bytes().await?.len();
    for encoding in ["gzip", "br", "zstd"] {
        let request = served.replica.http.get(served.replica.url(path)).header("X-API-Key", &served.platinum_key);
        let seen = served.replica.send_unchecked(request.header("Accept-Encoding", encoding)).await?;
        assert_eq!(seen.headers["content-encoding"], encoding);
        assert!(seen.body.len() * 3 < whole, "{encoding}: {} of {whole}", seen.body.len());
    }
    Ok(())
}

#[tokio::test]
async fn cors_exposes_responses_and_headers_without_credentials() -> TestResult {
    let served = start_demo().await?;
    let answer = get_with_header(&served, "/api/v1/companies", "Origin", "https://example.com").await?;
    assert_eq!(answer.headers()["access-control-allow-origin"], "*");
    assert_eq!(answer.headers().get("access-control-allow-credentials"), None);
    let exposed = answer.headers()["access-control-expose-headers"].to_str()?.to_lowercase();
    for name in [
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "ratelimit",
        "ratelimit-policy",
        "x-plan",
        "x-request-id",
        "x-data-source",
        "etag",
        "link",
        "retry-after",
        "content-location",
        "content-disposition",
    ] {
        assert!(exposed.split(", ").any(|other| other == name), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn head_gives_the_headers_of_get_without_a_body() -> TestResult {
    let served = start_demo().await?;
    for path in DATA_PATHS.into_iter().chain(["/health", "/pricing", "/docs/openapi.yaml"]) {
        let get = served.replica.get_with_key(path, &served.platinum_key).await?;
        let request = served.replica.http.head(served.replica.url(path)).header("X-API-Key", &served.platinum_key);
        let head = served.replica.send(request).await?;
        assert_eq!(head.status(), get.status(), "{path}");
        for name in ["content-type", "etag", "cache-control", "x-plan", "content-length"] {
            assert_eq!(head.headers().get(name), get.headers().get(name), "{name} of {path}");
        }
        assert!(head.bytes().await?.is_empty(), "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn lists_link_to_the_next_and_the_previous_page() -> TestResult {
    let served = start_demo().await?;
    let mut path = "/api/v1/companies?limit=100".to_owned();
    let (mut read, mut pages) = (0, 0);
    loop {
        let answer = served.replica.get_with_key(&path, &served.platinum_key).await?;
        let links = answer.headers()["link"].to_str()?.to_owned();
        let body: Value = answer.json().await?;
        read += body["data"].as_array().map_or(0, Vec::len);
        pages += 1;
        assert_eq!(links.contains("rel=\"prev\""), pages > 1, "{links}");
        let next = links.split(", ").find(|link| link.contains("rel=\"next\""));
        let Some(next) = next else {
            assert_eq!(body["total"], read, "all of them, once");
            assert!(pages > 2);
            return Ok(());
        };
        let address = next.split(['<', '>']).nth(1).expect("an address");
        let start = address.find("/api/").expect("a path");
        path = address[start..].to_owned();
    }
}

/// A page that forgets what was asked for shows other rows: of `as_of` those of today.
#[tokio::test]
async fn next_links_repeat_every_query_parameter() -> TestResult {
    let served = start_demo().await?;
    let day = "2026-10-01";
    for path in [
        format!(
            "/api/v1/market/series/ipca?limit=1&as_of={day}&from=2020-01-01&to={day}&order=asc&numbers=string&provenance=true"
        ),
        format!("/api/v1/market/fx?limit=1&as_of={day}&pair=EUR-BRL&updated_since=2000-01-01"),
        format!("/api/v1/companies?limit=1&as_of={day}"),
        format!("/api/v1/filings?limit=1&as_of={day}&from=2003-01-01&to={day}"),
        "/api/v1/filings/search?limit=1&q=a&facets=true&highlight=true".to_owned(),
    ] {
        let answer = served.replica.get_with_key(&path, &served.platinum_key).await?;
        assert_eq!(answer.status(), 200, "{path}");
        let link = answer.headers()["link"].to_str()?.to_owned();
        let (_, asked) = path.split_once('?').expect("parameters");
        for pair in asked.split('&').filter(|pair| !pair.starts_with("limit=")) {
            assert!(link.contains(pair), "{pair} of {path}: {link}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn messages_follow_accept_language_and_codes_do_not() -> TestResult {
    let served = start_demo().await?;
    let read = |language: &'static str| {
        let served = &served;
        async move {
            let answer = get_with_header(served, "/api/v1/market/selic?limit=x", "Accept-Language", language).await?;
            anyhow::Ok(answer.json::<Value>().await?)
        }
    };
    let (english, portuguese) = (read("en-GB, pt;q=0.5").await?, read("pt-BR, en;q=0.8").await?);
    assert_eq!(english["error"], portuguese["error"]);
    assert!(portuguese["message"].as_str().expect("text").contains("deve ser um número inteiro"), "{portuguese}");
    assert!(english["message"].as_str().expect("text").contains("must be a whole number"), "{english}");
    Ok(())
}

#[tokio::test]
async fn health_openapi_and_binary_report_one_version() -> TestResult {
    let served = start_demo().await?;
    assert_eq!(served.get_ok("/health").await?["version"], VERSION);
    assert_eq!(served.get_ok("/docs/openapi.json").await?["info"]["version"], VERSION);
    Ok(())
}
