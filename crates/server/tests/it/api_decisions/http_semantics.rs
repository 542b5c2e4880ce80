//! HTTP semantics: ETags, caching, compression, CORS, HEAD, links and languages.

use serde_json::Value;
use vintem_domain::VERSION;

use super::{DemoService, start_demo};
use crate::TestResult;

/// One path of each kind of data.
const DATA_PATHS: [&str; 6] = [
    "/api/v1/market/selic",
    "/api/v1/market/fx/current",
    "/api/v1/market/overview",
    "/api/v1/companies?limit=5",
    "/api/v1/filings/recent",
    "/api/v1/search?q=companhia",
];

async fn get_with_header(
    service: &DemoService,
    path: &str,
    name: &str,
    value: &str,
) -> anyhow::Result<reqwest::Response> {
    let request = service.replica.http.get(service.replica.url(path)).header("X-API-Key", &service.platinum_key);
    service.replica.send(request.header(name, value)).await
}

#[tokio::test]
async fn data_has_a_weak_etag_and_a_matching_one_gets_304() -> TestResult {
    let service = start_demo().await?;
    for path in DATA_PATHS {
        let response = service.replica.get_with_key(path, &service.platinum_key).await?;
        let tag = response.headers()["etag"].to_str()?.to_owned();
        assert!(tag.starts_with("W/\""), "{path}: {tag}");

        let not_modified = get_with_header(&service, path, "If-None-Match", &tag).await?;
        assert_eq!(not_modified.status(), 304, "{path}");
        assert_eq!(not_modified.headers()["etag"], tag.as_str());
        assert!(not_modified.headers().contains_key("x-ratelimit-remaining"), "{path}");

        assert_eq!(get_with_header(&service, path, "If-None-Match", "W/\"other\"").await?.status(), 200, "{path}");
    }

    let get_etag = |path: &'static str| {
        let service = &service;
        async move { anyhow::Ok(service.replica.get(path).await?.headers()["etag"].clone()) }
    };

    let plain = get_etag("/api/v1/market/cdi").await?;
    assert_ne!(plain, get_etag("/api/v1/market/cdi?limit=3").await?, "parameters");
    assert_ne!(plain, get_etag("/api/v1/market/selic").await?, "route");

    Ok(())
}

#[tokio::test]
async fn keyed_responses_are_private_and_vary_lists_what_they_depend_on() -> TestResult {
    let service = start_demo().await?;
    for path in DATA_PATHS {
        let response = service.replica.get_with_key(path, &service.platinum_key).await?;
        let cache = response.headers()["cache-control"].to_str()?.to_owned();
        assert!(cache.contains("private"), "{path}: {cache}");
        assert_eq!(response.headers()["vary"], "Accept-Encoding, Accept, Accept-Language, X-API-Key, Authorization");
    }

    let anonymous = service.replica.get("/api/v1/market/selic").await?;
    assert!(anonymous.headers()["cache-control"].to_str()?.contains("public"));
    let usage = service.replica.get_with_key("/api/v1/plans/usage", &service.platinum_key).await?;
    assert_eq!(usage.headers()["cache-control"], "no-store");

    Ok(())
}

#[tokio::test]
async fn responses_are_compressed_as_requested() -> TestResult {
    let service = start_demo().await?;
    let path = "/api/v1/market/selic?limit=2000";
    let plain = get_with_header(&service, path, "Accept-Encoding", "identity").await?;
    assert_eq!(plain.headers().get("content-encoding"), None);

    let plain_size = plain.bytes().await?.len();
    for encoding in ["gzip", "br", "zstd"] {
        let request = service.replica.http.get(service.replica.url(path)).header("X-API-Key", &service.platinum_key);
        let response = service.replica.send_unchecked(request.header("Accept-Encoding", encoding)).await?;
        assert_eq!(response.headers["content-encoding"], encoding);
        assert!(response.body.len() * 3 < plain_size, "{encoding}: {} of {plain_size}", response.body.len());
    }

    Ok(())
}

#[tokio::test]
async fn cors_exposes_responses_and_headers_without_credentials() -> TestResult {
    let service = start_demo().await?;
    let response = get_with_header(&service, "/api/v1/companies", "Origin", "https://example.com").await?;
    assert_eq!(response.headers()["access-control-allow-origin"], "*");
    assert_eq!(response.headers().get("access-control-allow-credentials"), None);

    let exposed = response.headers()["access-control-expose-headers"].to_str()?.to_lowercase();
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
        "deprecation",
        "sunset",
    ] {
        assert!(exposed.split(", ").any(|other| other == name), "{name}");
    }

    Ok(())
}

#[tokio::test]
async fn head_gives_the_headers_of_get_without_a_body() -> TestResult {
    let service = start_demo().await?;
    for path in DATA_PATHS.into_iter().chain(["/health", "/pricing", "/docs/openapi.yaml"]) {
        let get = service.replica.get_with_key(path, &service.platinum_key).await?;
        let request = service.replica.http.head(service.replica.url(path)).header("X-API-Key", &service.platinum_key);
        let head = service.replica.send(request).await?;

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
    let service = start_demo().await?;
    let mut path = "/api/v1/companies?limit=100".to_owned();
    let mut row_count = 0;
    let mut pages = 0;
    loop {
        let response = service.replica.get_with_key(&path, &service.platinum_key).await?;
        let links = response.headers()["link"].to_str()?.to_owned();
        let body: Value = response.json().await?;
        row_count += body["data"].as_array().map_or(0, Vec::len);
        pages += 1;
        assert_eq!(links.contains("rel=\"prev\""), pages > 1, "{links}");

        let next = links.split(", ").find(|link| link.contains("rel=\"next\""));
        let Some(next) = next else {
            assert_eq!(body["total"], row_count, "all of them, once");
            assert!(pages > 2);
            return Ok(());
        };

        let address = next.split(['<', '>']).nth(1).expect("an address");
        let start = address.find("/api/").expect("a path");
        path = address[start..].to_owned();
    }
}

/// A link that drops a parameter leads to other rows: without `as_of`, to today's.
#[tokio::test]
async fn next_links_repeat_every_query_parameter() -> TestResult {
    let service = start_demo().await?;
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
        let response = service.replica.get_with_key(&path, &service.platinum_key).await?;
        assert_eq!(response.status(), 200, "{path}");
        let link = response.headers()["link"].to_str()?.to_owned();
        let (_, query) = path.split_once('?').expect("parameters");
        for pair in query.split('&').filter(|pair| !pair.starts_with("limit=")) {
            assert!(link.contains(pair), "{pair} of {path}: {link}");
        }
    }

    Ok(())
}

#[tokio::test]
async fn messages_follow_accept_language_and_codes_do_not() -> TestResult {
    let service = start_demo().await?;

    let get_error = |language: &'static str| {
        let service = &service;
        async move {
            let response =
                get_with_header(service, "/api/v1/market/selic?limit=x", "Accept-Language", language).await?;
            anyhow::Ok(response.json::<Value>().await?)
        }
    };

    let english = get_error("en-GB, pt;q=0.5").await?;
    let portuguese = get_error("pt-BR, en;q=0.8").await?;
    assert_eq!(english["error"], portuguese["error"]);
    assert!(portuguese["message"].as_str().expect("text").contains("deve ser um número inteiro"), "{portuguese}");
    assert!(english["message"].as_str().expect("text").contains("must be an integer"), "{english}");

    Ok(())
}

#[tokio::test]
async fn health_openapi_and_binary_report_one_version() -> TestResult {
    let service = start_demo().await?;
    assert_eq!(service.get_ok("/health").await?["version"], VERSION);
    assert_eq!(service.get_ok("/docs/openapi.json").await?["info"]["version"], VERSION);
    Ok(())
}
