//! Keys: their format, the two headers, one response for all invalid keys, and registration.

use serde_json::{Value, json};
use vintem_domain::{ApiKey, Plan};

use super::{start_demo, start_demo_with};
use crate::TestResult;

const SELIC_PATH: &str = "/api/v1/market/selic/current";
const REGISTER_PATH: &str = "/api/v1/plans/register";

#[tokio::test]
async fn a_key_has_the_form_that_leak_scanners_look_for() -> TestResult {
    let service = start_demo().await?;
    let request = service.replica.http.post(service.replica.url(REGISTER_PATH));
    let body: Value =
        service.replica.send(request.json(&json!({"name": "Ana", "email": "ana@example.com"}))).await?.json().await?;
    let key = body["api_key"].as_str().expect("a key");

    let after_prefix = key.strip_prefix("vtm_").expect("the prefix");
    assert!(
        after_prefix.len() == 43 && after_prefix.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        "{}",
        after_prefix.len()
    );
    assert!(ApiKey::parse(key).is_some(), "its last six characters check the rest");

    Ok(())
}

#[tokio::test]
async fn a_key_with_a_wrong_checksum_is_refused_without_a_lookup() -> TestResult {
    let service = start_demo().await?;

    let mut bad_key = vintem_api::generate_key().reveal().to_owned();
    let last = if bad_key.ends_with('0') { "1" } else { "0" };
    bad_key.replace_range(46.., last);

    // With the table locked, a lookup would end in a 503.
    let _lock = service._database.lock_table("api_key").await?;
    assert_eq!(service.replica.get_with_key(SELIC_PATH, &bad_key).await?.status(), 401);
    Ok(())
}

#[tokio::test]
async fn other_websites_cannot_register_keys_from_the_browsers_of_their_visitors() -> TestResult {
    let service = start_demo_with(&["--limit-free=1000", "--public-url=https://api.example.com"]).await?;
    let replica = &service.replica;
    let register = |origin: Option<&str>| {
        let email = format!("ana{:016x}@example.com", rand::random::<u64>());
        let request = replica.http.post(replica.url(REGISTER_PATH)).json(&json!({"name": "Ana", "email": email}));
        replica.send(origin.into_iter().fold(request, |request, origin| request.header("Origin", origin)))
    };

    let own_host = format!("http://{}", replica.replica.address);
    for origin in [None, Some("https://api.example.com"), Some(own_host.as_str())] {
        assert_eq!(register(origin).await?.status(), 201, "{origin:?}");
    }
    for origin in ["https://evil.example", "null", "https://api.example.com.evil.example"] {
        let response = register(Some(origin)).await?;
        assert_eq!(response.status(), 400, "{origin}");
        assert!(!response.headers().contains_key("access-control-allow-origin"), "{origin}");
        let body: Value = response.json().await?;
        assert_eq!(body["error"], "bad_request", "{origin}");
    }

    let preflight = |path: &str| {
        let request = replica.http.request(http::Method::OPTIONS, replica.url(path));
        let request = request.header("Origin", "https://evil.example").header("Access-Control-Request-Method", "POST");
        replica.send(request)
    };
    let names = |response: &reqwest::Response| {
        response.headers().keys().filter(|name| name.as_str().starts_with("access-control-")).count()
    };
    assert_eq!(names(&preflight(REGISTER_PATH).await?), 0);
    assert!(names(&preflight(SELIC_PATH).await?) >= 3);
    Ok(())
}

#[tokio::test]
async fn the_two_key_headers_must_not_contradict_each_other() -> TestResult {
    let service = start_demo_with(&["--limit-free=1000"]).await?;
    let (_, bronze) = service.replica.create_key(Plan::Bronze).await?;
    let (_, gold) = service.replica.create_key(Plan::Gold).await?;
    let bearer = |key: &str| format!("Bearer {key}");
    let table: Vec<(Vec<&str>, Vec<String>, u16, &str)> = vec![
        (vec![], vec![], 200, "free"),
        (vec![&bronze], vec![], 200, "bronze"),
        (vec![], vec![bearer(&bronze)], 200, "bronze"),
        (vec![], vec![format!("bearer {bronze}")], 200, "bronze"),
        (vec![&bronze], vec![bearer(&bronze)], 200, "bronze"),
        (vec![&bronze, &bronze], vec![], 200, "bronze"),
        (vec![&bronze], vec![bearer(&gold)], 400, "free"),
        (vec![&bronze, &gold], vec![], 400, "free"),
        (vec![], vec![bearer(&bronze), bearer(&gold)], 400, "free"),
        (vec![&bronze], vec!["Bearer nonsense".into()], 400, "free"),
        (vec![&bronze], vec!["Basic YTpi".into()], 400, "free"),
        (vec![""], vec![], 401, "free"),
        (vec![], vec!["Basic YTpi".into()], 401, "free"),
        (vec![], vec!["Bearer".into()], 401, "free"),
        (vec![], vec!["Bearer ".into()], 401, "free"),
        (vec![], vec![bronze.clone()], 401, "free"),
        (vec!["nonsense"], vec![], 401, "free"),
    ];

    for (keys, authorizations, status, plan) in table {
        let mut request = service.replica.http.get(service.replica.url(SELIC_PATH));
        for key in &keys {
            request = request.header("X-API-Key", *key);
        }
        for authorization in &authorizations {
            request = request.header("Authorization", authorization);
        }

        let response = service.replica.send(request).await?;
        assert_eq!(response.status(), status, "{} and {} headers", keys.len(), authorizations.len());
        assert_eq!(response.headers()["x-plan"], plan);
    }

    Ok(())
}

#[tokio::test]
async fn a_key_in_the_query_string_is_refused_and_never_repeated() -> TestResult {
    let service = start_demo().await?;
    let key = &service.platinum_key;
    for query in [
        format!("api_key={key}"),
        format!("key={key}"),
        format!("token={key}"),
        format!("X-API-Key={key}"),
        format!("colour={key}"),
        key.clone(),
        format!("{key}=1"),
    ] {
        let response = service.replica.get(&format!("{SELIC_PATH}?{query}")).await?;
        assert_eq!((response.status().as_u16(), &response.headers()["x-plan"]), (400, &"free".parse()?));
        let body = response.text().await?;
        assert!(body.contains("X-API-Key") && body.contains("docs_url") && !body.contains(key.as_str()), "{body}");
    }
    Ok(())
}

#[tokio::test]
async fn invalid_keys_get_the_same_response_on_every_route() -> TestResult {
    let service = start_demo_with(&["--limit-free=1000"]).await?;
    let revoked = service.replica.create_revoked_key().await?;
    let unknown = vintem_api::generate_key().reveal().to_owned();

    let mut bodies = Vec::new();
    for key in [revoked.as_str(), &unknown, "malformed"] {
        for path in [SELIC_PATH, "/api/v1/plans/usage", "/api/v1/companies", "/pricing", "/health", "/api/v1/nothing"] {
            let response = service.replica.get_with_key(path, key).await?;
            assert_eq!(response.status(), 401, "{path}");
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
            assert_eq!(response.headers()["x-ratelimit-limit"], "1000", "charged to the address");
            let mut body: Value = response.json().await?;
            body["request_id"] = Value::Null;
            bodies.push(body);
        }
    }

    assert_eq!(bodies[0]["error"], "invalid_api_key");
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:#?}");

    Ok(())
}

#[tokio::test]
async fn a_missing_key_is_401_where_one_is_required() -> TestResult {
    let service = start_demo().await?;
    let response = service.replica.get("/api/v1/plans/usage").await?;
    assert_eq!(response.status(), 401);
    assert_eq!(response.headers()["www-authenticate"], "Bearer");
    let body: Value = response.json().await?;
    assert_eq!((&body["error"], &body["message"]), (&json!("unauthorized"), &json!("API key required")));
    Ok(())
}

#[tokio::test]
async fn registration_creates_a_free_key_and_reveals_nothing_about_others() -> TestResult {
    let service = start_demo().await?;
    let mut keys = Vec::new();
    for email in ["ana@example.com", "ana@example.com", "eva@example.com"] {
        let request = service.replica.http.post(service.replica.url(REGISTER_PATH));
        let body = json!({"name": "  Ana  ", "email": email, "plan": "platinum"});

        let response = service.replica.send(request.json(&body)).await?;
        assert_eq!(response.status(), 201);
        assert_eq!(response.headers()["cache-control"], "no-store");
        let mut body: Value = response.json().await?;

        keys.push(body["api_key"].take());
        assert_eq!((&body["plan"], &body["rate_limit"]), (&json!("free"), &json!(30)));
        assert!(body["message"].is_string());
    }

    assert!(keys[0] != keys[1] && keys[1] != keys[2], "a second registration is a second key");
    let stored = service.replica.open_store()?.list_keys(i64::MAX, 10).await?;
    assert!(stored.iter().any(|key| key.name == "Ana"), "trimmed");

    Ok(())
}

#[tokio::test]
async fn an_invalid_registration_names_the_field() -> TestResult {
    let service = start_demo().await?;
    for (body, field) in [
        (json!({"email": "ana@example.com"}), "name"),
        (json!({"name": " ", "email": "ana@example.com"}), "name"),
        (json!({"name": "a".repeat(101), "email": "ana@example.com"}), "name"),
        (json!({"name": 5, "email": "ana@example.com"}), "name"),
        (json!({"name": "Ana"}), "email"),
        (json!({"name": "Ana", "email": "ana"}), "email"),
        (json!({"name": "Ana", "email": format!("{}@example.com", "a".repeat(250))}), "email"),
    ] {
        let request = service.replica.http.post(service.replica.url(REGISTER_PATH));
        let response = service.replica.send(request.json(&body)).await?;
        assert_eq!(response.status(), 400, "{body}");
        let body: Value = response.json().await?;
        assert_eq!(body["error"], "bad_request");
        assert!(body["message"].as_str().expect("text").contains(&format!("`{field}`")), "{body}");
    }

    Ok(())
}
