//! The key endpoints for owners (show, label, rotate, revoke), expiry, and the history of changes.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use vintem_domain::{KeyActor, KeyChange, Plan};
use vintem_testkit::{DEFAULT_POSTGRES_BUDGET_FLAGS, TestDatabase, TestReplica, TestReplicaOptions, run_vintem};

use super::{OWN_KEY_PATH, ROTATE_PATH, SELIC_PATH, start_two_replicas};
use crate::{TestResult, friday, vintem_binary};

async fn patch_own_key(replica: &TestReplica, key: &str, body: &Value) -> anyhow::Result<reqwest::Response> {
    replica.send(replica.http.patch(replica.url(OWN_KEY_PATH)).header("X-API-Key", key).json(body)).await
}

async fn delete_own_key(replica: &TestReplica, key: &str) -> anyhow::Result<reqwest::Response> {
    replica.send(replica.http.delete(replica.url(OWN_KEY_PATH)).header("X-API-Key", key)).await
}

#[tokio::test]
async fn an_owner_reads_its_key_and_sets_a_label() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (id, key) = replica.create_key(Plan::Bronze).await?;

    let shown: Value = replica.get_with_key(OWN_KEY_PATH, &key).await?.json().await?;
    let fields = ["key", "plan", "label", "rate_limit", "expires_at", "previous_key", "previous_key_ends_at"];
    assert_eq!(
        fields.map(|field| shown[field].clone()),
        [
            json!(format!("{}…", &key[..12])),
            json!("bronze"),
            json!(""),
            json!(100),
            json!(null),
            json!(null),
            json!(null)
        ]
    );
    assert!(shown["created_at"].is_string());

    let label = "relatório da noite, 3ª versão";
    let response =
        patch_own_key(&replica, &key, &json!({"label": label, "plan": "platinum", "expires_at": null})).await?;
    assert_eq!((response.status().as_u16(), &response.headers()["cache-control"]), (200, &"no-store".parse()?));
    let labeled: Value = response.json().await?;
    assert_eq!((&labeled["label"], &labeled["plan"]), (&json!(label), &json!("bronze")), "and nothing else is bound");
    assert_eq!(replica.get_with_key(OWN_KEY_PATH, &key).await?.json::<Value>().await?["label"], label);

    // Setting the same label again is not a change.
    assert_eq!(patch_own_key(&replica, &key, &json!({"label": label})).await?.status(), 200);
    let changes = replica.open_store()?.key_history(id).await?;
    let kinds_and_actors: Vec<_> = changes.iter().map(|change| (change.kind, change.actor)).collect();
    assert_eq!(
        kinds_and_actors,
        [(KeyChange::Created, KeyActor::Operator), (KeyChange::LabelChanged, KeyActor::Owner)]
    );
    assert_eq!(changes[1].new_value, None, "a label is free text, so no history repeats it");
    Ok(())
}

#[tokio::test]
async fn key_endpoints_require_a_key_count_as_requests_and_are_not_cached() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Free).await?;

    let requests = || {
        [
            replica.http.get(replica.url(OWN_KEY_PATH)),
            replica.http.patch(replica.url(OWN_KEY_PATH)).json(&json!({"label": "a"})),
            replica.http.post(replica.url(ROTATE_PATH)),
            replica.http.delete(replica.url(OWN_KEY_PATH)),
        ]
    };

    for request in requests() {
        let response = replica.send(request).await?;
        assert_eq!((response.status().as_u16(), &response.headers()["www-authenticate"]), (401, &"Bearer".parse()?));
        assert_eq!(response.json::<Value>().await?["error"], "unauthorized");
    }

    for (turn, request) in requests().into_iter().enumerate() {
        let response = replica.send(request.bearer_auth(&key)).await?;
        assert!(response.status().is_success(), "{turn}: {}", response.status());
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert_eq!(response.headers()["x-ratelimit-remaining"], (29 - turn).to_string().as_str());
    }
    Ok(())
}

#[tokio::test]
async fn key_endpoints_list_their_allowed_methods() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;
    for (path, allowed) in [(OWN_KEY_PATH, "GET, HEAD, PATCH, DELETE"), (ROTATE_PATH, "POST")] {
        let response = replica.send(replica.http.put(replica.url(path))).await?;
        assert_eq!((response.status().as_u16(), response.headers()["allow"].to_str()?), (405, allowed));

        let preflight = replica.http.request(reqwest::Method::OPTIONS, replica.url(path));
        let preflight =
            preflight.header("Origin", "https://example.com").header("Access-Control-Request-Method", "DELETE");
        let response = replica.send(preflight).await?;
        assert_eq!(response.headers()["access-control-allow-methods"], "GET, HEAD, POST, PATCH, DELETE");
    }
    Ok(())
}

#[tokio::test]
async fn an_owner_revokes_its_key_permanently() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let (first, second) = start_two_replicas(&database).await?;
    let (id, key) = first.create_key(Plan::Bronze).await?;
    assert_eq!(second.get_with_key(SELIC_PATH, &key).await?.status(), 200);

    let rotated: Value =
        first.send(first.http.post(first.url(ROTATE_PATH)).header("X-API-Key", &key)).await?.json().await?;
    let newest = rotated["api_key"].as_str().expect("a key").to_owned();

    let response = delete_own_key(&first, &key).await?;
    assert_eq!((response.status().as_u16(), response.bytes().await?.len()), (204, 0));
    for secret in [&key, &newest] {
        assert_eq!(first.get_with_key(SELIC_PATH, secret).await?.status(), 401, "at once where it was revoked");
    }
    vintem_testkit::wait_until("both secrets are refused elsewhere", Duration::from_secs(1), || async {
        let responses = [second.get_with_key(SELIC_PATH, &key).await, second.get_with_key(SELIC_PATH, &newest).await];
        responses.into_iter().all(|response| response.is_ok_and(|response| response.status() == 401))
    })
    .await;

    assert_eq!(delete_own_key(&first, &newest).await?.status(), 401, "it is gone");

    let changes = first.open_store()?.key_history(id).await?;
    let kinds_and_actors: Vec<_> = changes.iter().map(|change| (change.kind, change.actor)).collect();
    assert_eq!(kinds_and_actors[1..], [(KeyChange::Rotated, KeyActor::Owner), (KeyChange::Revoked, KeyActor::Owner)]);
    Ok(())
}

#[tokio::test]
async fn invalid_labels_and_grace_periods_are_refused_by_field_name() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let options = TestReplicaOptions { flags: &["--limit-free", "1000"], redis_prefix: None };
    let replica = TestReplica::start_with_options(&database, friday(), options).await?;
    let (id, key) = replica.create_key(Plan::Free).await?;

    let long = format!(r#"{{"label":"{}"}}"#, "é".repeat(101));
    let table: [(&str, &str, &str, &str); 20] = [
        ("PATCH", "application/json", r#"{"label":1}"#, "`label`"),
        ("PATCH", "application/json", r#"{"label":null}"#, "`label`"),
        ("PATCH", "application/json", r#"{"label":"a\nb"}"#, "`label`"),
        ("PATCH", "application/json", r#"{"label":"a\u0000"}"#, "`label`"),
        ("PATCH", "application/json", &long, "`label`"),
        ("PATCH", "application/json", "{}", "`label`"),
        ("PATCH", "application/json", r#"{"label":"a","label":"b"}"#, "label"),
        ("PATCH", "application/json", r#"["a"]"#, "label"),
        ("PATCH", "application/json", "", "label"),
        ("PATCH", "text/plain", r#"{"label":"a"}"#, "Content-Type"),
        ("POST", "application/json", r#"{"grace_seconds":-1}"#, "`grace_seconds`"),
        ("POST", "application/json", r#"{"grace_seconds":86401}"#, "`grace_seconds`"),
        ("POST", "application/json", r#"{"grace_seconds":1.5}"#, "`grace_seconds`"),
        ("POST", "application/json", r#"{"grace_seconds":"60"}"#, "`grace_seconds`"),
        ("POST", "application/json", r#"{"grace_seconds":18446744073709551616}"#, "`grace_seconds`"),
        ("POST", "application/json", r#"{"grace_seconds":0,"grace_seconds":1}"#, "grace_seconds"),
        ("POST", "application/json", "[0]", "grace_seconds"),
        ("POST", "application/json", "null", "grace_seconds"),
        ("POST", "text/plain", r#"{"grace_seconds":0}"#, "Content-Type"),
        ("POST", "application/json", "{", "grace_seconds"),
    ];

    for (method, content_type, body, expected_name) in table {
        let path = if method == "POST" { ROTATE_PATH } else { OWN_KEY_PATH };
        let request = replica.http.request(method.parse()?, replica.url(path)).header("X-API-Key", &key);
        let response = replica.send(request.header("Content-Type", content_type).body(body.to_owned())).await?;

        assert_eq!(response.status(), 400, "{method} {body}");
        let refused: Value = response.json().await?;
        assert_eq!(refused["error"], "bad_request");
        assert!(refused["message"].as_str().expect("text").contains(expected_name), "{method} {body}: {refused}");
    }

    assert_eq!(replica.open_store()?.key_history(id).await?.len(), 1, "nothing was changed");
    Ok(())
}

/// The history keeps every change forever, so the number of changes per day is capped.
#[tokio::test]
async fn a_key_allows_a_hundred_changes_a_day_and_can_still_be_revoked() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let options = TestReplicaOptions { flags: &["--limit-free", "1000"], redis_prefix: None };
    let replica = TestReplica::start_with_options(&database, friday(), options).await?;
    let (id, key) = replica.create_key(Plan::Free).await?;

    // Two at a time: concurrent changes are counted exactly too.
    for turn in 0..50 {
        let first_body = json!({"label": format!("a{turn}")});
        let second_body = json!({"label": format!("b{turn}")});
        let (first, second) =
            tokio::join!(patch_own_key(&replica, &key, &first_body), patch_own_key(&replica, &key, &second_body));
        assert_eq!((first?.status().as_u16(), second?.status().as_u16()), (200, 200), "{turn}");
    }

    let rotation = replica.http.post(replica.url(ROTATE_PATH)).header("X-API-Key", &key);
    for refused in [patch_own_key(&replica, &key, &json!({"label": "one more"})).await?, replica.send(rotation).await?]
    {
        assert_eq!(refused.status(), 429);
        let wait: u64 = refused.headers()["retry-after"].to_str()?.parse()?;
        assert!((86_000..=86_400).contains(&wait), "{wait}");
        assert_eq!(refused.json::<Value>().await?["retry_after"], wait);
    }

    assert_eq!(replica.open_store()?.key_history(id).await?.len(), 101);
    assert_eq!(delete_own_key(&replica, &key).await?.status(), 204);
    Ok(())
}

#[tokio::test]
async fn a_key_expires_at_the_time_the_operator_set() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;

    let expiry = "2199-01-31T06:00:00-03:00";
    let create = ["keys", "create", "--plan", "bronze", "--name", "Ana", "--email", "ana@example.com", "--json"];
    let options = ["--expires", expiry, "--label", "painel"];
    let (_, printed, error) = run_vintem(vintem_binary(), &database.url(), &[&create[..], &options].concat()).await?;
    anyhow::ensure!(!printed.is_empty(), "{error}");
    let created: Value = serde_json::from_str(&printed)?;
    let key = created["api_key"].as_str().expect("a key");

    let expiry_utc = json!("2199-01-31T09:00:00Z");
    assert_eq!((&created["expires_at"], &created["label"]), (&expiry_utc, &json!("painel")));
    let shown: Value = replica.get_with_key(OWN_KEY_PATH, key).await?.json().await?;
    assert_eq!((&shown["expires_at"], &shown["label"]), (&expiry_utc, &json!("painel")));

    let expires_at: DateTime<Utc> = expiry.parse()?;
    replica.clock.set(expires_at - TimeDelta::milliseconds(1));
    assert_eq!(replica.get_with_key(SELIC_PATH, key).await?.status(), 200);
    replica.clock.set(expires_at);
    let refused = replica.get_with_key(SELIC_PATH, key).await?;
    assert_eq!(refused.status(), 401);
    assert_eq!(refused.json::<Value>().await?["error"], "invalid_api_key");

    let id = created["id"].to_string();
    let (status, _, error) =
        run_vintem(vintem_binary(), &database.url(), &["keys", "set-expiry", &id, "never"]).await?;
    anyhow::ensure!(status.success(), "{error}");
    vintem_testkit::wait_until("the key is good again", Duration::from_secs(1), || async {
        replica.get_with_key(SELIC_PATH, key).await.is_ok_and(|response| response.status() == 200)
    })
    .await;

    let (_, printed, _) = run_vintem(vintem_binary(), &database.url(), &["keys", "list", "--json"]).await?;
    let listed: Value = serde_json::from_str(&printed)?;
    assert_eq!((&listed["keys"][0]["expires_at"], &listed["keys"][0]["label"]), (&json!(null), &json!("painel")));
    Ok(())
}

#[tokio::test]
async fn key_history_lists_every_change_and_who_made_it() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let registered: Value = super::register_key(&replica, "ana@example.com").await?.json().await?;
    let key = registered["api_key"].as_str().expect("a key");
    let id = replica.open_store()?.list_keys(i64::MAX, 1).await?[0].id.to_string();

    patch_own_key(&replica, key, &json!({"label": "segredo de Ana"})).await?;
    replica
        .send(replica.http.post(replica.url(ROTATE_PATH)).header("X-API-Key", key).json(&json!({"grace_seconds": 60})))
        .await?;

    for command in [
        &["keys", "set-plan", &id, "gold"][..],
        &["keys", "set-plan", &id, "gold"],
        &["keys", "set-expiry", &id, "2199-01-31"],
        &["keys", "revoke", &id],
        &["keys", "revoke", &id],
    ] {
        let (status, _, error) = run_vintem(vintem_binary(), &database.url(), command).await?;
        anyhow::ensure!(status.success(), "{command:?}: {error}");
    }

    let (_, printed, _) = run_vintem(vintem_binary(), &database.url(), &["keys", "history", &id, "--json"]).await?;
    let history: Value = serde_json::from_str(&printed)?;
    let changes: Vec<Value> = history["changes"]
        .as_array()
        .expect("changes")
        .iter()
        .map(|change| json!([change["what"], change["by"], change["was"], change["became"]]))
        .collect();
    assert_eq!(
        changes,
        [
            json!(["created", "registration", null, "free"]),
            json!(["label", "owner", null, null]),
            json!(["rotated", "owner", null, "2026-11-13T18:01:00Z"]),
            json!(["plan", "operator", "free", "gold"]),
            json!(["expiry", "operator", null, "2199-01-31T00:00:00Z"]),
            json!(["revoked", "operator", null, null]),
        ]
    );

    let (_, printed, _) = run_vintem(vintem_binary(), &database.url(), &["keys", "history", &id]).await?;
    assert_eq!(printed.lines().count(), 7, "a line each, below a heading: {printed}");
    for secret in ["Ana", "ana@", "segredo", &key[12..]] {
        assert!(!printed.contains(secret), "{printed}");
    }

    let (status, _, error) = run_vintem(vintem_binary(), &database.url(), &["keys", "history", "999"]).await?;
    assert!(!status.success() && error.contains("999"), "{error}");
    Ok(())
}

#[tokio::test]
async fn while_postgres_hangs_changing_a_key_is_503() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let options = TestReplicaOptions { flags: &DEFAULT_POSTGRES_BUDGET_FLAGS, redis_prefix: None };
    let replica = TestReplica::start_with_options(&database, friday(), options).await?;
    let (_, key) = replica.create_key(Plan::Bronze).await?;
    assert_eq!(replica.get_with_key(SELIC_PATH, &key).await?.status(), 200);

    let lock = database.lock_table("api_key").await?;
    let rotation = replica.http.post(replica.url(ROTATE_PATH)).header("X-API-Key", &key);
    for response in [
        replica.get_with_key(OWN_KEY_PATH, &key).await?,
        patch_own_key(&replica, &key, &json!({"label": "a"})).await?,
        replica.send(rotation).await?,
        delete_own_key(&replica, &key).await?,
    ] {
        assert_eq!(response.status(), 503);
        assert!(response.headers().contains_key("retry-after"));
    }

    drop(lock);
    assert_eq!(replica.get_with_key(SELIC_PATH, &key).await?.status(), 200, "nothing of it happened");
    vintem_testkit::wait_until("the key shows itself again", Duration::from_secs(2), || async {
        replica.get_with_key(OWN_KEY_PATH, &key).await.is_ok_and(|response| response.status() == 200)
    })
    .await;
    Ok(())
}
