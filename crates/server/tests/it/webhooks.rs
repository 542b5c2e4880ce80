//! Webhooks: who may create them, which addresses are allowed, signatures, retries, and the delivery log.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{TimeDelta, Utc};
use reqwest::Method;
use serde_json::{Value, json};
use vintem_deliver::webhook::WebhookDispatcher;
use vintem_domain::text::hex_encode;
use vintem_domain::{Clock, Plan};
use vintem_testkit::webhook_receiver::{ReceivedRequest, ReceiverBehavior, WebhookReceiver};
use vintem_testkit::{QuietClock, TestDatabase, TestReplica, wait_until};

use crate::{TestResult, friday, insert_event};

const WEBHOOKS_PATH: &str = "/api/v1/webhooks";

struct WebhookHarness {
    database: TestDatabase,
    replica: TestReplica,
    dispatcher: WebhookDispatcher,
    receiver: WebhookReceiver,
    key_id: i64,
    key: String,
}

impl WebhookHarness {
    async fn start() -> anyhow::Result<Self> {
        let database = TestDatabase::create_demo(friday()).await?;
        let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
        let (key_id, key) = replica.create_key(Plan::Platinum).await?;
        let dispatcher = replica.webhook_dispatcher()?;
        Ok(Self { database, replica, dispatcher, receiver: WebhookReceiver::start().await?, key_id, key })
    }

    async fn request_json(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<(u16, Value)> {
        request_json_as(&self.replica, &self.key, method, path, body).await
    }

    /// Creates a webhook to a path of the receiver, with these further fields.
    async fn create_webhook(&self, path: &str, fields: Value) -> anyhow::Result<CreatedWebhook> {
        let mut body = json!({"url": self.receiver.url(path)});
        body.as_object_mut().expect("an object").extend(fields.as_object().cloned().unwrap_or_default());
        let (status, created) = self.request_json(Method::POST, WEBHOOKS_PATH, Some(body)).await?;
        anyhow::ensure!(status == 201, "{status}: {created}");
        let text = |name: &str| created[name].as_str().unwrap_or_default().to_owned();
        Ok(CreatedWebhook { path: format!("{WEBHOOKS_PATH}/{}", text("id")), id: text("id"), secret: text("secret") })
    }

    /// Publishes a revised value of a series, as a load would write it.
    async fn publish_revision(&self, series: &str, date: &str) -> anyhow::Result<()> {
        let mut connection = self.database.connect().await?;
        let subject = json!({"series": series, "date": date, "old": "1.0", "new": "2.00"});
        insert_event(&mut connection, "series.revised", &subject, self.replica.clock.now()).await?;
        anyhow::ensure!(self.replica.publish_events().await? == 1, "not published");
        Ok(())
    }

    /// Advances the clock and delivers everything due by then.
    async fn advance_and_deliver(&mut self, wait: TimeDelta) -> anyhow::Result<()> {
        self.replica.clock.set(self.replica.clock.now() + wait);
        Ok(self.dispatcher.deliver_due().await?)
    }

    async fn deliver_due_now(&mut self) -> anyhow::Result<()> {
        self.advance_and_deliver(TimeDelta::zero()).await
    }

    async fn list_deliveries(&self, webhook: &CreatedWebhook, query: &str) -> anyhow::Result<Vec<Value>> {
        let (status, body) =
            self.request_json(Method::GET, &format!("{}/deliveries?{query}", webhook.path), None).await?;
        anyhow::ensure!(status == 200, "{body}");
        Ok(body["data"].as_array().cloned().unwrap_or_default())
    }

    async fn status_and_reason(&self, webhook: &CreatedWebhook) -> anyhow::Result<(String, Value)> {
        let (_, body) = self.request_json(Method::GET, &webhook.path, None).await?;
        Ok((body["status"].as_str().unwrap_or_default().to_owned(), body["disabled_reason"].clone()))
    }
}

struct CreatedWebhook {
    path: String,
    id: String,
    secret: String,
}

async fn request_json_as(
    replica: &TestReplica,
    key: &str,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> anyhow::Result<(u16, Value)> {
    let mut request = replica.http.request(method, replica.url(path)).header("X-API-Key", key);
    if let Some(body) = body {
        request = request.json(&body);
    }

    let response = replica.send(request).await?;
    let status = response.status().as_u16();
    let text = response.text().await?;
    Ok((status, if text.is_empty() { Value::Null } else { serde_json::from_str(&text)? }))
}

/// Verifies with the reference crate of Standard Webhooks. It compares the timestamp with the real time, so tests that
/// call this set their clock to the real time.
fn signature_verifies(secret: &str, received: &ReceivedRequest) -> bool {
    let verifier = standardwebhooks::Webhook::new(secret).expect("a secret");
    verifier.verify(&received.body, &received.headers).is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_its_owner_can_create_read_update_and_delete_a_webhook() -> TestResult {
    let harness = WebhookHarness::start().await?;
    let url = harness.receiver.url("/hook");
    let filing =
        harness.replica.get_with_key("/api/v1/filings?limit=1", &harness.key).await?.json::<Value>().await?["data"][0]
            .clone();
    let category = filing["category"].as_str().unwrap_or_default();
    let code = filing["company_id"].as_str().unwrap_or_default();

    let body = json!({"url": url, "types": ["filing.published", "filing.published"],
                      "filters": {"companies": [format!("00{code}")], "categories": [category.to_uppercase()]}});
    let (status, created) = harness.request_json(Method::POST, WEBHOOKS_PATH, Some(body)).await?;
    assert_eq!(status, 201, "{created}");
    assert!(created["secret"].as_str().is_some_and(|secret| secret.starts_with("whsec_")));

    let mut without_secret = created.clone();
    without_secret.as_object_mut().expect("an object").remove("secret");
    let expected = json!({
        "id": created["id"], "url": url, "types": ["filing.published"],
        "filters": {"companies": [code], "categories": [category], "series": [], "pairs": []},
        "status": "active", "disabled_reason": null, "created_at": "2026-11-13T18:00:00Z", "last_success_at": null,
    });
    assert_eq!(without_secret, expected);

    let path = format!("{WEBHOOKS_PATH}/{}", created["id"].as_str().unwrap_or_default());
    assert_eq!(harness.request_json(Method::GET, &path, None).await?, (200, expected.clone()));
    assert_eq!(
        harness.request_json(Method::GET, WEBHOOKS_PATH, None).await?,
        (200, json!({"data": [expected], "total": 1, "limit": 1, "offset": 0}))
    );

    let change = json!({"types": ["series.revised", "fx.published"],
                        "filters": {"pairs": ["usd-brl", "USDBRL"]}, "status": "paused"});
    let (status, changed) = harness.request_json(Method::PATCH, &path, Some(change)).await?;
    assert_eq!((status, &changed["status"], &changed["url"]), (200, &json!("paused"), &json!(url)));
    assert_eq!(changed["types"], json!(["fx.published", "series.revised"]));
    assert_eq!(changed["filters"], json!({"companies": [], "categories": [], "series": [], "pairs": ["USD/BRL"]}));

    let (status, refused) = harness.request_json(Method::POST, &format!("{path}/test"), None).await?;
    assert_eq!((status, &refused["error"]), (400, &json!("bad_request")), "nothing is sent to one that is paused");

    // Another key on the same plan can't see the webhook.
    let (_, other) = harness.replica.create_key(Plan::Platinum).await?;
    let as_other = async |method: Method, path: &str, body: Option<Value>| -> anyhow::Result<u16> {
        Ok(request_json_as(&harness.replica, &other, method, path, body).await?.0)
    };

    assert_eq!(as_other(Method::GET, &path, None).await?, 404);
    assert_eq!(as_other(Method::PATCH, &path, Some(json!({"status": "active"}))).await?, 404);
    assert_eq!(as_other(Method::POST, &format!("{path}/test"), None).await?, 404);
    assert_eq!(as_other(Method::POST, &format!("{path}/rotate"), None).await?, 404);
    assert_eq!(as_other(Method::GET, &format!("{path}/deliveries"), None).await?, 404);
    assert_eq!(as_other(Method::DELETE, &path, None).await?, 404);
    let (_, others_list) = request_json_as(&harness.replica, &other, Method::GET, WEBHOOKS_PATH, None).await?;
    assert_eq!(others_list, json!({"data": [], "total": 0, "limit": 0, "offset": 0}));

    assert_eq!(harness.request_json(Method::DELETE, &path, None).await?, (204, Value::Null));
    assert_eq!(harness.request_json(Method::DELETE, &path, None).await?.0, 404);
    for id in ["whk_1", "%00", "99999999", "whk_0000000000000000000000000000000G"] {
        assert_eq!(harness.request_json(Method::GET, &format!("{WEBHOOKS_PATH}/{id}"), None).await?.0, 404, "{id}");
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_at_most_twenty_webhooks_even_under_concurrency() -> TestResult {
    let harness = WebhookHarness::start().await?;
    let body = json!({"url": harness.receiver.url("/hook")});

    let requests = (0..30).map(|_| harness.request_json(Method::POST, WEBHOOKS_PATH, Some(body.clone())));
    let statuses: Vec<u16> =
        futures_util::future::try_join_all(requests).await?.into_iter().map(|(status, _)| status).collect();
    let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(201), count(400)), (20, 10), "{statuses:?}");

    let (_, listed) = harness.request_json(Method::GET, WEBHOOKS_PATH, None).await?;
    assert_eq!(listed["total"], json!(20));

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_webhook_fields_are_refused_by_name() -> TestResult {
    let harness = WebhookHarness::start().await?;
    let valid_url = json!(harness.receiver.url("/hook"));
    let cases = [
        ("url", json!({})),
        ("url", json!({"url": null})),
        ("url", json!({"url": 7})),
        ("url", json!({"url": "example.com"})),
        ("url", json!({"url": "http://example.com/"})),
        ("url", json!({"url": "https://10.0.0.1/"})),
        ("url", json!({"url": "https://[::ffff:127.0.0.1]/"})),
        ("url", json!({"url": "https://a:b@example.com/"})),
        ("url", json!({"url": "https://nowhere.invalid/"})),
        ("types", json!({"url": valid_url, "types": "filing.published"})),
        ("types", json!({"url": valid_url, "types": ["webhook.test"]})),
        ("types", json!({"url": valid_url, "types": null})),
        ("filters", json!({"url": valid_url, "filters": []})),
        ("filters", json!({"url": valid_url, "filters": {"company": ["9512"]}})),
        ("filters.companies", json!({"url": valid_url, "filters": {"companies": ["999999999"]}})),
        ("filters.companies", json!({"url": valid_url, "filters": {"companies": vec!["9512"; 101]}})),
        ("filters.categories", json!({"url": valid_url, "filters": {"categories": ["no such thing"]}})),
        ("filters.series", json!({"url": valid_url, "filters": {"series": ["ipca-ytd"]}})),
        ("filters.pairs", json!({"url": valid_url, "filters": {"pairs": ["BRL/USD"]}})),
        (
            "filters",
            json!({"url": valid_url, "filters": {"series": ["selic"], "pairs": ["USD/BRL"]},
                   "types": ["rate.published"]}),
        ),
    ];

    for (field, body) in cases {
        let (status, response) = harness.request_json(Method::POST, WEBHOOKS_PATH, Some(body.clone())).await?;
        let message = response["message"].as_str().unwrap_or_default();
        assert_eq!(status, 400, "{body}: {response}");
        assert!(message.contains(&format!("`{field}`")), "{body}: {message}");
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_delivered_signed_to_matching_webhooks_as_in_the_feed() -> TestResult {
    let mut harness = WebhookHarness::start().await?;

    // The verifier compares timestamps with the real time.
    harness.replica.clock.set(Utc::now());
    let get = async |path: &str| -> anyhow::Result<Value> {
        Ok(harness.replica.get_with_key(path, &harness.key).await?.json().await?)
    };
    let filing = get("/api/v1/filings?limit=1").await?["data"][0].clone();
    let company = filing["company_id"].clone();
    let category = filing["category"].clone();
    let other = get("/api/v1/companies?limit=100").await?;
    let other = other["data"].as_array().into_iter().flatten().find(|other| other["id"] != company).cloned();
    let other = other.expect("more than one company");

    let matching = [
        ("/all", json!({})),
        ("/filings", json!({"types": ["filing.published"]})),
        ("/company", json!({"filters": {"companies": [company]}})),
        ("/category", json!({"filters": {"categories": [category], "companies": [company]}})),
        ("/selic", json!({"filters": {"series": ["selic"]}})),
        ("/usd", json!({"filters": {"pairs": ["USD/BRL"]}})),
    ];
    let not_matching = [
        ("/other", json!({"filters": {"companies": [other["id"]]}})),
        ("/euro", json!({"filters": {"pairs": ["EUR/BRL"]}})),
        ("/rates", json!({"types": ["rate.published"]})),
    ];

    let mut webhooks = Vec::new();
    for (path, filters) in matching.iter().chain(&not_matching) {
        webhooks.push((*path, harness.create_webhook(path, filters.clone()).await?));
    }

    let paused = harness.create_webhook("/paused", json!({})).await?;
    harness.request_json(Method::PATCH, &paused.path, Some(json!({"status": "paused"}))).await?;

    let mut connection = harness.database.connect().await?;
    let now = harness.replica.clock.now();
    insert_event(&mut connection, "filing.published", &json!({"filing": filing["id"]}), now).await?;
    insert_event(
        &mut connection,
        "series.revised",
        &json!({"series": "selic", "date": "2026-11-12", "old": "1.0", "new": "2.00"}),
        now,
    )
    .await?;

    let quote = json!({"buy": "5.40", "sell": "5.50"});
    insert_event(
        &mut connection,
        "series.revised",
        &json!({"series": "fx", "pair": "USD/BRL", "date": "2026-11-12", "old": quote, "new": quote}),
        now,
    )
    .await?;

    assert_eq!(harness.replica.publish_events().await?, 3);
    harness.deliver_due_now().await?;

    let feed = harness.replica.open_store()?.published_events(0, None, 10).await?;
    let bodies: Vec<&str> = feed.iter().map(|event| event.body.as_str()).collect();
    let bodies_sent_to = |path: &str| -> Vec<String> {
        harness
            .receiver
            .requests_to(path)
            .iter()
            .map(|received| String::from_utf8_lossy(&received.body).into_owned())
            .collect()
    };

    let mut all = bodies_sent_to("/all");
    all.sort_by_key(|body| bodies.iter().position(|in_feed| in_feed == body));
    assert_eq!(all, bodies, "the very bodies of the feed");
    for path in ["/filings", "/company", "/category"] {
        assert_eq!(bodies_sent_to(path), [bodies[0]], "{path}");
    }

    assert_eq!(bodies_sent_to("/selic"), [bodies[1]]);
    assert_eq!(bodies_sent_to("/usd"), [bodies[2]]);
    for path in ["/other", "/euro", "/rates", "/paused"] {
        assert_eq!(bodies_sent_to(path), Vec::<String>::new(), "{path}");
    }

    for (path, webhook) in &webhooks {
        for received in harness.receiver.requests_to(path) {
            assert!(signature_verifies(&webhook.secret, &received), "{path}");
            assert!(!signature_verifies(&paused.secret, &received), "{path}");
            let body: Value = serde_json::from_slice(&received.body)?;
            assert_eq!(
                (received.event_id(), received.header("content-type")),
                (body["id"].as_str().unwrap_or_default(), "application/json")
            );
            assert!(received.header("user-agent").starts_with("vintem/"));

            let position =
                feed.iter().find(|event| event.body.as_bytes() == &received.body[..]).map(|event| event.position);
            assert_eq!(received.header("vintem-sequence"), position.unwrap_or_default().to_string());
        }
    }

    let delivered = harness.list_deliveries(&webhooks[0].1, "state=delivered").await?;
    assert_eq!(delivered.len(), 3);
    assert_eq!(
        (&delivered[0]["attempts"][0]["status"], &delivered[0]["attempts"][0]["error"]),
        (&json!(200), &Value::Null)
    );
    let (_, shown) = harness.request_json(Method::GET, &webhooks[0].1.path, None).await?;
    assert!(shown["last_success_at"].is_string(), "{shown}");

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_deliveries_are_retried_on_schedule_then_dead_and_replayable() -> TestResult {
    let mut harness = WebhookHarness::start().await?;
    let webhook = harness.create_webhook("/failing", json!({})).await?;
    harness.receiver.set_behavior("/failing", ReceiverBehavior::Status(500));
    harness.publish_revision("selic", "2026-11-12").await?;
    harness.deliver_due_now().await?;

    // The jitter is ±10%: never earlier than 90% of the wait, never later than 110%.
    let waits = [5, 300, 1_800, 7_200, 18_000, 36_000, 36_000];
    for (attempts, wait) in (1..).zip(waits) {
        assert_eq!(harness.receiver.requests_to("/failing").len(), attempts);
        let waiting = harness.list_deliveries(&webhook, "state=waiting").await?;
        assert_eq!(waiting.len(), 1);
        assert_eq!(waiting[0]["attempts"].as_array().map(Vec::len), Some(attempts));

        let wait = TimeDelta::seconds(wait);
        harness.advance_and_deliver(wait * 89 / 100).await?;
        assert_eq!(harness.receiver.requests_to("/failing").len(), attempts, "too early");
        harness.advance_and_deliver(wait * 22 / 100).await?;
    }

    assert_eq!(harness.receiver.requests_to("/failing").len(), 8);

    harness.advance_and_deliver(TimeDelta::days(2)).await?;
    let received = harness.receiver.requests_to("/failing");
    assert_eq!(received.len(), 8, "no more than that");

    let same =
        received.iter().all(|other| (other.event_id(), &other.body) == (received[0].event_id(), &received[0].body));
    assert!(same, "the same id and the same bytes each time");

    let dead = harness.list_deliveries(&webhook, "state=dead").await?;
    assert_eq!(
        (dead.len(), &dead[0]["attempts"][7]["status"], &dead[0]["attempts"][7]["error"]),
        (1, &json!(500), &json!("status"))
    );
    assert!(!dead[0].to_string().contains("nobody is to be told"), "what a receiver says is not passed on");

    let replay = format!("{}/deliveries/{}/replay", webhook.path, dead[0]["id"].as_str().unwrap_or_default());
    harness.receiver.set_behavior("/failing", ReceiverBehavior::Status(204));
    let (status, replayed) = harness.request_json(Method::POST, &replay, None).await?;
    assert_eq!((status, &replayed["state"]), (202, &json!("waiting")));
    harness.deliver_due_now().await?;

    let delivered = harness.list_deliveries(&webhook, "state=delivered").await?;
    assert_eq!((delivered.len(), delivered[0]["attempts"].as_array().map(Vec::len)), (1, Some(9)));
    assert_eq!(
        harness.receiver.requests_to("/failing").last().map(|last| last.event_id().to_owned()),
        Some(received[0].event_id().to_owned())
    );

    // A delivered event can be replayed as well, and if it fails it starts the whole retry schedule again.
    harness.receiver.set_behavior("/failing", ReceiverBehavior::Status(500));
    harness.request_json(Method::POST, &replay, None).await?;
    harness.deliver_due_now().await?;
    assert_eq!(harness.list_deliveries(&webhook, "state=waiting").await?.len(), 1);

    for unknown_path in ["/deliveries/99999999/replay", "/deliveries/x/replay"] {
        assert_eq!(harness.request_json(Method::POST, &format!("{}{unknown_path}", webhook.path), None).await?.0, 404);
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_delivery_failure_has_its_error_name() -> TestResult {
    let mut harness = WebhookHarness::start().await?;
    let elsewhere = harness.receiver.url("/elsewhere");
    let cases = [
        ("/ok", ReceiverBehavior::Status(200), json!(200), Value::Null),
        ("/created", ReceiverBehavior::Status(201), json!(201), Value::Null),
        ("/huge", ReceiverBehavior::EndlessBody, json!(200), Value::Null),
        ("/moved", ReceiverBehavior::Redirect(elsewhere), json!(302), json!("status")),
        ("/refused", ReceiverBehavior::Status(403), json!(403), json!("status")),
        ("/cut", ReceiverBehavior::CutConnection, Value::Null, json!("broken_off")),
    ];

    let mut webhooks = Vec::new();
    for (path, behavior, status, error) in cases {
        harness.receiver.set_behavior(path, behavior);
        webhooks.push((path, harness.create_webhook(path, json!({})).await?, status, error));
    }

    let unreachable = harness.create_webhook("/nobody", json!({})).await?;
    let closed = format!("http://127.0.0.1:{}/", vintem_testkit::find_free_port()?);
    let (status, _) = harness.request_json(Method::PATCH, &unreachable.path, Some(json!({"url": closed}))).await?;
    assert_eq!(status, 200);
    webhooks.push(("closed", unreachable, Value::Null, json!("connection")));

    // As if the address had been public when the webhook was created.
    let private = harness.create_webhook("/private", json!({})).await?;
    let mut connection = harness.database.connect().await?;
    sqlx::query("update webhook set url = 'https://10.0.0.1/' where id = $1")
        .bind(&private.id)
        .execute(&mut connection)
        .await?;
    webhooks.push(("private", private, Value::Null, json!("address")));

    // A receiver that does not speak TLS.
    let plain = harness.create_webhook("/plain", json!({})).await?;
    let url = format!("https://{}/", harness.receiver.address);
    sqlx::query("update webhook set url = $2 where id = $1").bind(&plain.id).bind(url).execute(&mut connection).await?;
    webhooks.push(("plain", plain, Value::Null, json!("tls")));

    harness.publish_revision("selic", "2026-11-12").await?;
    harness.deliver_due_now().await?;

    for (path, webhook, status, error) in &webhooks {
        let deliveries = harness.list_deliveries(webhook, "").await?;
        let attempt = &deliveries[0]["attempts"][0];
        assert_eq!((&attempt["status"], &attempt["error"]), (status, error), "{path}: {attempt}");
        let state = if error.is_null() { "delivered" } else { "waiting" };
        assert_eq!(deliveries[0]["state"], json!(state), "{path}");
    }

    assert!(harness.receiver.requests_to("/elsewhere").is_empty(), "a redirect was followed");

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_from_a_receiver_is_honored() -> TestResult {
    let mut harness = WebhookHarness::start().await?;
    let _webhook = harness.create_webhook("/busy", json!({})).await?;
    harness.receiver.set_behavior("/busy", ReceiverBehavior::TooManyRequests("120"));
    harness.publish_revision("selic", "2026-11-12").await?;
    harness.deliver_due_now().await?;

    harness.advance_and_deliver(TimeDelta::seconds(118)).await?;
    assert_eq!(harness.receiver.requests_to("/busy").len(), 1, "it asked for two minutes");
    harness.receiver.set_behavior("/busy", ReceiverBehavior::Status(200));
    harness.advance_and_deliver(TimeDelta::seconds(4)).await?;
    assert_eq!(harness.receiver.requests_to("/busy").len(), 2);

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_410_or_five_days_of_failures_disables_a_webhook() -> TestResult {
    let mut harness = WebhookHarness::start().await?;
    let gone = harness.create_webhook("/gone", json!({})).await?;
    let failing = harness.create_webhook("/failing", json!({})).await?;
    let recovering = harness.create_webhook("/recovering", json!({})).await?;
    harness.receiver.set_behavior("/gone", ReceiverBehavior::Status(410));
    harness.receiver.set_behavior("/failing", ReceiverBehavior::Status(503));
    harness.receiver.set_behavior("/recovering", ReceiverBehavior::Status(503));

    harness.publish_revision("selic", "2026-11-12").await?;
    harness.deliver_due_now().await?;
    assert_eq!(harness.status_and_reason(&gone).await?, ("disabled".into(), json!("gone")));
    assert_eq!(harness.list_deliveries(&gone, "state=dead").await?.len(), 1);

    // One event a day fails through its whole retry schedule.
    for day in 1..=4 {
        if day == 3 {
            harness.receiver.set_behavior("/recovering", ReceiverBehavior::Status(200));
        }
        harness.publish_revision("selic", &format!("2026-10-{day:02}")).await?;
        harness.advance_and_deliver(TimeDelta::hours(24)).await?;
        if day == 3 {
            harness.receiver.set_behavior("/recovering", ReceiverBehavior::Status(503));
        }
    }

    assert_eq!(harness.status_and_reason(&failing).await?, ("active".into(), Value::Null), "four days are not five");

    harness.publish_revision("selic", "2026-10-05").await?;
    harness.advance_and_deliver(TimeDelta::hours(25)).await?;
    assert_eq!(harness.status_and_reason(&failing).await?, ("disabled".into(), json!("failing")));
    assert_eq!(
        harness.status_and_reason(&recovering).await?,
        ("active".into(), Value::Null),
        "it succeeded in between"
    );
    assert_eq!(harness.receiver.requests_to("/gone").len(), 1, "nothing more is sent to it");

    // A reactivated webhook starts without failures, and its waiting deliveries continue.
    harness.receiver.set_behavior("/failing", ReceiverBehavior::Status(200));
    let before = harness.receiver.requests_to("/failing").len();
    harness.request_json(Method::PATCH, &failing.path, Some(json!({"status": "active"}))).await?;
    harness.deliver_due_now().await?;
    assert!(harness.receiver.requests_to("/failing").len() > before);
    assert_eq!(harness.status_and_reason(&failing).await?, ("active".into(), Value::Null));

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn both_secrets_sign_during_the_grace_and_none_is_stored_in_plain_text() -> TestResult {
    let mut harness = WebhookHarness::start().await?;
    harness.replica.clock.set(Utc::now());
    let webhook = harness.create_webhook("/hook", json!({})).await?;
    let rotate = async |harness: &WebhookHarness, grace: u32| -> anyhow::Result<String> {
        let body = Some(json!({"grace_seconds": grace}));
        let (status, rotated) = harness.request_json(Method::POST, &format!("{}/rotate", webhook.path), body).await?;
        anyhow::ensure!(status == 200, "{rotated}");
        Ok(rotated["secret"].as_str().unwrap_or_default().to_owned())
    };
    let send = async |harness: &mut WebhookHarness, date: &str| -> anyhow::Result<ReceivedRequest> {
        harness.publish_revision("selic", date).await?;
        harness.deliver_due_now().await?;
        Ok(harness.receiver.requests_to("/hook").pop().expect("it came"))
    };
    let first = webhook.secret.clone();

    // The verifier tolerates five minutes, so the grace period is shorter than that.
    let second = rotate(&harness, 60).await?;
    let received = send(&mut harness, "2026-11-10").await?;
    assert_eq!((signature_verifies(&first, &received), signature_verifies(&second, &received)), (true, true));
    assert_eq!(received.header("webhook-signature").split(' ').count(), 2);

    harness.replica.clock.set(harness.replica.clock.now() + TimeDelta::seconds(61));
    let received = send(&mut harness, "2026-11-11").await?;
    assert_eq!((signature_verifies(&first, &received), signature_verifies(&second, &received)), (false, true));

    let third = rotate(&harness, 60).await?;
    let fourth = rotate(&harness, 0).await?;
    let received = send(&mut harness, "2026-11-12").await?;
    let verified = [&first, &second, &third, &fourth].map(|secret| signature_verifies(secret, &received));
    assert_eq!(verified, [false, false, false, true], "a second rotation ends the oldest, a grace of 0 the last one");

    let (_, shown) = harness.request_json(Method::GET, &webhook.path, None).await?;
    assert!(!shown.to_string().contains("whsec_"), "{shown}");

    let mut connection = harness.database.connect().await?;
    let stored: String =
        sqlx::query_scalar("select string_agg(webhook::text, ' ') from webhook").fetch_one(&mut connection).await?;
    for secret in [first, second, third, fourth] {
        let base64 = secret.trim_start_matches("whsec_");
        let hex = hex_encode(&STANDARD.decode(base64)?);
        assert!(!stored.contains(base64) && !stored.contains(&hex), "a secret in the clear");
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downgraded_expired_or_revoked_key_gets_no_more_deliveries() -> TestResult {
    let mut harness = WebhookHarness::start().await?;
    let webhook = harness.create_webhook("/hook", json!({})).await?;
    let store = harness.replica.open_store()?;

    // Published before the plan changes, so it is already due.
    harness.publish_revision("selic", "2026-11-10").await?;
    store.set_key_plan(harness.key_id, Plan::Gold).await?;
    let started = QuietClock::start();
    harness.deliver_due_now().await?;
    harness.publish_revision("selic", "2026-11-11").await?;
    harness.deliver_due_now().await?;
    assert!(harness.receiver.all_requests().is_empty(), "sent on Gold");
    assert!(started.elapsed() < Duration::from_secs(10));

    wait_until("the gate knows the plan", Duration::from_secs(5), || async {
        harness.request_json(Method::GET, &webhook.path, None).await.is_ok_and(|(status, _)| status == 403)
    })
    .await;

    // Back on Platinum the webhook is still paused, so that its owner notices. Once it is active again, waiting
    // deliveries continue; events published meanwhile are not delivered.
    store.set_key_plan(harness.key_id, Plan::Platinum).await?;
    wait_until("the gate knows the plan again", Duration::from_secs(5), || async {
        harness.status_and_reason(&webhook).await.is_ok_and(|(status, _)| status == "paused")
    })
    .await;

    harness.deliver_due_now().await?;
    assert!(harness.receiver.all_requests().is_empty(), "sent while paused");
    harness.request_json(Method::PATCH, &webhook.path, Some(json!({"status": "active"}))).await?;
    harness.deliver_due_now().await?;
    let received = harness.receiver.single_request_to("/hook")?;
    assert!(String::from_utf8_lossy(&received.body).contains("2026-11-10"));

    store.set_key_expiry(harness.key_id, Some(harness.replica.clock.now())).await?;
    harness.publish_revision("selic", "2026-11-12").await?;
    harness.deliver_due_now().await?;
    store.set_key_expiry(harness.key_id, None).await?;
    harness.publish_revision("selic", "2026-11-13").await?;
    store.revoke_key(harness.key_id).await?;
    harness.deliver_due_now().await?;
    assert_eq!(harness.receiver.all_requests().len(), 1);

    // Erasing an owner leaves no webhook address behind.
    store.erase_keys_by_email("teste@example.com").await?;
    let mut connection = harness.database.connect().await?;
    let remaining: i64 = sqlx::query_scalar("select (select count(*) from webhook) + (select count(*) from delivery)")
        .fetch_one(&mut connection)
        .await?;
    assert_eq!(remaining, 0);

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_event_is_sent_once_and_its_result_is_listed() -> TestResult {
    let mut harness = WebhookHarness::start().await?;
    harness.replica.clock.set(Utc::now());
    let webhook = harness.create_webhook("/hook", json!({"types": ["rate.published"]})).await?;
    let test_path = format!("{}/test", webhook.path);

    let (status, queued) = harness.request_json(Method::POST, &test_path, None).await?;
    assert_eq!((status, &queued["type"], &queued["state"]), (202, &json!("webhook.test"), &json!("waiting")));
    harness.deliver_due_now().await?;
    let received = harness.receiver.single_request_to("/hook")?;
    assert!(signature_verifies(&webhook.secret, &received));
    let body: Value = serde_json::from_slice(&received.body)?;
    assert_eq!((&body["type"], &body["data"]), (&json!("webhook.test"), &json!({"webhook_id": webhook.id})));
    assert_eq!(
        (received.event_id(), received.header("vintem-sequence")),
        (queued["event_id"].as_str().unwrap_or_default(), "")
    );

    harness.receiver.set_behavior("/hook", ReceiverBehavior::Status(500));
    harness.request_json(Method::POST, &test_path, None).await?;
    harness.deliver_due_now().await?;
    harness.advance_and_deliver(TimeDelta::days(1)).await?;
    assert_eq!(harness.receiver.requests_to("/hook").len(), 2, "tests are not tried again");

    let states: Vec<Value> =
        harness.list_deliveries(&webhook, "limit=2").await?.iter().map(|delivery| delivery["state"].clone()).collect();
    assert_eq!(states, [json!("dead"), json!("delivered")]);

    let feed: Value = harness.replica.get_with_key("/api/v1/events", &harness.key).await?.json().await?;
    assert_eq!(feed["data"], json!([]), "tests are no events");

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_receiver_does_not_delay_others() -> TestResult {
    let mut harness = WebhookHarness::start().await?;
    let slow = harness.create_webhook("/slow", json!({})).await?;
    let fast = harness.create_webhook("/fast", json!({})).await?;
    harness.receiver.set_behavior("/slow", ReceiverBehavior::DelayedOk(Duration::from_secs(600)));
    for day in 1..=20 {
        harness.publish_revision("selic", &format!("2026-10-{day:02}")).await?;
    }

    // Rounds as the worker runs them: none waits for the slow receiver.
    let started = QuietClock::start();
    while harness.list_deliveries(&fast, "state=delivered&limit=1").await?.is_empty()
        || harness.receiver.requests_to("/fast").len() < 20
    {
        harness.dispatcher.run_round().await?;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(started.elapsed() < Duration::from_secs(20), "the fast one waits");
    }

    let sending = harness.list_deliveries(&slow, "state=sending").await?;
    assert_eq!(sending.len(), 8, "the slow one has its few in progress");
    assert_eq!(harness.receiver.requests_to("/fast").len(), 20);

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_pruned_with_their_events_after_thirty_days() -> TestResult {
    let mut harness = WebhookHarness::start().await?;
    let webhook = harness.create_webhook("/hook", json!({})).await?;
    harness.publish_revision("selic", "2026-11-12").await?;
    harness.request_json(Method::POST, &format!("{}/test", webhook.path), None).await?;
    harness.deliver_due_now().await?;
    assert_eq!(harness.list_deliveries(&webhook, "").await?.len(), 2);

    let later = Utc::now().date_naive() + chrono::Days::new(40);
    harness.replica.open_store()?.maintain_partitions(later).await?;
    assert_eq!(harness.list_deliveries(&webhook, "").await?, Vec::<Value>::new());

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_worker_delivers_at_a_time_and_a_standby_takes_over() -> TestResult {
    let mut harness = WebhookHarness::start().await?;
    let webhook = harness.create_webhook("/hook", json!({})).await?;
    harness.deliver_due_now().await?;
    let mut standby = harness.replica.webhook_dispatcher()?;
    harness.publish_revision("selic", "2026-11-11").await?;
    standby.deliver_due().await?;
    assert!(harness.receiver.all_requests().is_empty(), "only one worker delivers at a time");
    let session = waiting_sessions(&harness.database).await?;
    assert_eq!(session.len(), 1);
    for _ in 0..5 {
        standby.run_round().await?;
        assert_eq!(waiting_sessions(&harness.database).await?, session, "a standby keeps its session");
    }

    // A worker starts a delivery and dies before it can record the result.
    harness.receiver.set_behavior("/hook", ReceiverBehavior::DelayedOk(Duration::from_secs(600)));
    harness.dispatcher.run_round().await?;
    wait_until("it is on its way", Duration::from_secs(5), || async {
        harness.receiver.requests_to("/hook").len() == 1
    })
    .await;

    assert_eq!(harness.list_deliveries(&webhook, "state=sending").await?.len(), 1);
    harness.receiver.set_behavior("/hook", ReceiverBehavior::Status(200));
    harness.dispatcher = harness.replica.webhook_dispatcher()?;

    // The dead worker's connection closes a moment later.
    let started = QuietClock::start();
    while harness.receiver.requests_to("/hook").len() < 2 {
        assert!(started.elapsed() < Duration::from_secs(10), "nobody takes over");
        standby.deliver_due().await?;
    }

    let received = harness.receiver.requests_to("/hook");
    assert_eq!(received.len(), 2);
    assert_eq!((received[0].event_id(), &received[0].body), (received[1].event_id(), &received[1].body));
    assert_eq!(harness.list_deliveries(&webhook, "state=delivered").await?.len(), 1);

    Ok(())
}

/// The sessions of workers that wait until they may deliver.
async fn waiting_sessions(database: &TestDatabase) -> anyhow::Result<Vec<i32>> {
    let sessions = sqlx::query_scalar(
        "select pid
         from pg_stat_activity
         where datname = current_database() and query = 'select pg_try_advisory_lock($1)'",
    );
    Ok(sessions.fetch_all(&mut database.connect().await?).await?)
}
