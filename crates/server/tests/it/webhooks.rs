//! Webhooks: who may have them, where they may lead, what is sent, when it is tried again, and what an owner sees of it.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{TimeDelta, Utc};
use reqwest::Method;
use serde_json::{Value, json};
use vintem_deliver::webhook::WebhookDispatcher;
use vintem_domain::text::hex_encode;
use vintem_domain::{Clock, Plan};
use vintem_testkit::webhook_receiver::{ReceivedRequest, ReceiverBehavior, WebhookReceiver};
use vintem_testkit::{TestDatabase, TestReplica, wait_until};

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

    /// A webhook that leads to a path of the receiver.
    async fn create_webhook(&self, path: &str, more: Value) -> anyhow::Result<CreatedWebhook> {
        let mut body = json!({"url": self.receiver.url(path)});
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        let (status, made) = self.request_json(Method::POST, WEBHOOKS_PATH, Some(body)).await?;
        anyhow::ensure!(status == 201, "{status}: {made}");
        let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
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

    /// Time goes by, and what is due by then is delivered.
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
    let answer = replica.send(request).await?;
    let status = answer.status().as_u16();
    let text = answer.text().await?;
    Ok((status, if text.is_empty() { Value::Null } else { serde_json::from_str(&text)? }))
}

/// By the standard's own crate. It compares the time with the real one, so the clock of such a test is the real one.
fn signature_verifies(secret: &str, received: &ReceivedRequest) -> bool {
    let verifier = standardwebhooks::Webhook::new(secret).expect("a secret");
    verifier.verify(&received.body, &received.headers).is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_its_owner_can_create_read_update_and_delete_a_webhook() -> TestResult {
    let stage = WebhookHarness::start().await?;
    let url = stage.receiver.url("/hook");
    let filing =
        stage.replica.get_with_key("/api/v1/filings?limit=1", &stage.key).await?.json::<Value>().await?["data"][0]
            .clone();
    let category = filing["category"].as_str().unwrap_or_default();
    let code = filing["company_id"].as_str().unwrap_or_default();
    let body = json!({"url": url, "types": ["filing.published", "filing.published"],
                      "filters": {"companies": [format!("00{code}")], "categories": [category.to_uppercase()]}});
    let (status, made) = stage.request_json(Method::POST, WEBHOOKS_PATH, Some(body)).await?;
    assert_eq!(status, 201, "{made}");
    assert!(made["secret"].as_str().is_some_and(|secret| secret.starts_with("whsec_")));
    let mut shown = made.clone();
    shown.as_object_mut().expect("an object").remove("secret");
    let expected = json!({
        "id": made["id"], "url": url, "types": ["filing.published"],
        "filters": {"companies": [code], "categories": [category], "series": [], "pairs": []},
        "status": "active", "disabled_reason": null, "created_at": "2026-11-13T18:00:00Z", "last_success_at": null,
    });
    assert_eq!(shown, expected);
    let path = format!("{WEBHOOKS_PATH}/{}", made["id"].as_str().unwrap_or_default());
    assert_eq!(stage.request_json(Method::GET, &path, None).await?, (200, expected.clone()));
    assert_eq!(
        stage.request_json(Method::GET, WEBHOOKS_PATH, None).await?,
        (200, json!({"data": [expected], "total": 1}))
    );

    let change = json!({"types": ["series.revised", "fx.published"], "filters": {"pairs": ["usd-brl", "USDBRL"]}, "status": "paused"});
    let (status, changed) = stage.request_json(Method::PATCH, &path, Some(change)).await?;
    assert_eq!((status, &changed["status"], &changed["url"]), (200, &json!("paused"), &json!(url)));
    assert_eq!(changed["types"], json!(["fx.published", "series.revised"]));
    assert_eq!(changed["filters"], json!({"companies": [], "categories": [], "series": [], "pairs": ["USD/BRL"]}));
    let (status, refused) = stage.request_json(Method::POST, &format!("{path}/test"), None).await?;
    assert_eq!((status, &refused["error"]), (400, &json!("bad_request")), "nothing is sent to one that is paused");

    // Another key of the same plan sees nothing of it.
    let (_, other) = stage.replica.create_key(Plan::Platinum).await?;
    let as_other = async |method: Method, path: &str, body: Option<Value>| -> anyhow::Result<u16> {
        Ok(request_json_as(&stage.replica, &other, method, path, body).await?.0)
    };
    assert_eq!(as_other(Method::GET, &path, None).await?, 404);
    assert_eq!(as_other(Method::PATCH, &path, Some(json!({"status": "active"}))).await?, 404);
    assert_eq!(as_other(Method::POST, &format!("{path}/test"), None).await?, 404);
    assert_eq!(as_other(Method::POST, &format!("{path}/rotate"), None).await?, 404);
    assert_eq!(as_other(Method::GET, &format!("{path}/deliveries"), None).await?, 404);
    assert_eq!(as_other(Method::DELETE, &path, None).await?, 404);
    let (_, of_other) = request_json_as(&stage.replica, &other, Method::GET, WEBHOOKS_PATH, None).await?;
    assert_eq!(of_other, json!({"data": [], "total": 0}));

    assert_eq!(stage.request_json(Method::DELETE, &path, None).await?, (204, Value::Null));
    assert_eq!(stage.request_json(Method::DELETE, &path, None).await?.0, 404);
    for id in ["whk_1", "%00", "99999999", "whk_0000000000000000000000000000000G"] {
        assert_eq!(stage.request_json(Method::GET, &format!("{WEBHOOKS_PATH}/{id}"), None).await?.0, 404, "{id}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_at_most_twenty_webhooks_even_under_concurrency() -> TestResult {
    let stage = WebhookHarness::start().await?;
    let body = json!({"url": stage.receiver.url("/hook")});
    let asked = (0..30).map(|_| stage.request_json(Method::POST, WEBHOOKS_PATH, Some(body.clone())));
    let statuses: Vec<u16> =
        futures_util::future::try_join_all(asked).await?.into_iter().map(|(status, _)| status).collect();
    let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(201), count(400)), (20, 10), "{statuses:?}");
    let (_, listed) = stage.request_json(Method::GET, WEBHOOKS_PATH, None).await?;
    assert_eq!(listed["total"], json!(20));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_webhook_fields_are_refused_by_name() -> TestResult {
    let stage = WebhookHarness::start().await?;
    let good = json!(stage.receiver.url("/hook"));
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
        ("types", json!({"url": good, "types": "filing.published"})),
        ("types", json!({"url": good, "types": ["webhook.test"]})),
        ("types", json!({"url": good, "types": null})),
        ("filters", json!({"url": good, "filters": []})),
        ("filters", json!({"url": good, "filters": {"company": ["9512"]}})),
        ("filters.companies", json!({"url": good, "filters": {"companies": ["999999999"]}})),
        ("filters.companies", json!({"url": good, "filters": {"companies": vec!["9512"; 101]}})),
        ("filters.categories", json!({"url": good, "filters": {"categories": ["no such thing"]}})),
        ("filters.series", json!({"url": good, "filters": {"series": ["ipca-ytd"]}})),
        ("filters.pairs", json!({"url": good, "filters": {"pairs": ["BRL/USD"]}})),
        (
            "filters",
            json!({"url": good, "filters": {"series": ["selic"], "pairs": ["USD/BRL"]}, "types": ["rate.published"]}),
        ),
    ];
    for (field, body) in cases {
        let (status, answer) = stage.request_json(Method::POST, WEBHOOKS_PATH, Some(body.clone())).await?;
        let message = answer["message"].as_str().unwrap_or_default();
        assert_eq!(status, 400, "{body}: {answer}");
        assert!(message.contains(&format!("`{field}`")), "{body}: {message}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_delivered_signed_to_matching_webhooks_as_in_the_feed() -> TestResult {
    let mut stage = WebhookHarness::start().await?;
    // Signatures are judged by the real time.
    stage.replica.clock.set(Utc::now());
    let get = async |path: &str| -> anyhow::Result<Value> {
        Ok(stage.replica.get_with_key(path, &stage.key).await?.json().await?)
    };
    let filing = get("/api/v1/filings?limit=1").await?["data"][0].clone();
    let (company, category) = (filing["company_id"].clone(), filing["category"].clone());
    let other = get("/api/v1/companies?limit=100").await?;
    let other = other["data"].as_array().into_iter().flatten().find(|other| other["id"] != company).cloned();
    let other = other.expect("more than one company");

    let wanted = [
        ("/all", json!({})),
        ("/filings", json!({"types": ["filing.published"]})),
        ("/company", json!({"filters": {"companies": [company]}})),
        ("/category", json!({"filters": {"categories": [category], "companies": [company]}})),
        ("/selic", json!({"filters": {"series": ["selic"]}})),
        ("/usd", json!({"filters": {"pairs": ["USD/BRL"]}})),
    ];
    let unwanted = [
        ("/other", json!({"filters": {"companies": [other["id"]]}})),
        ("/euro", json!({"filters": {"pairs": ["EUR/BRL"]}})),
        ("/rates", json!({"types": ["rate.published"]})),
    ];
    let mut webhooks = Vec::new();
    for (path, filters) in wanted.iter().chain(&unwanted) {
        webhooks.push((*path, stage.create_webhook(path, filters.clone()).await?));
    }
    let paused = stage.create_webhook("/paused", json!({})).await?;
    stage.request_json(Method::PATCH, &paused.path, Some(json!({"status": "paused"}))).await?;

    let mut connection = stage.database.connect().await?;
    let now = stage.replica.clock.now();
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
    assert_eq!(stage.replica.publish_events().await?, 3);
    stage.deliver_due_now().await?;

    let feed = stage.replica.open_store()?.published_events(0, None, 10).await?;
    let bodies: Vec<&str> = feed.iter().map(|event| event.body.as_str()).collect();
    let told = |path: &str| -> Vec<String> {
        stage
            .receiver
            .requests_to(path)
            .iter()
            .map(|received| String::from_utf8_lossy(&received.body).into_owned())
            .collect()
    };
    let mut all = told("/all");
    all.sort_by_key(|body| bodies.iter().position(|known| known == body));
    assert_eq!(all, bodies, "the very bodies of the feed");
    for path in ["/filings", "/company", "/category"] {
        assert_eq!(told(path), [bodies[0]], "{path}");
    }
    assert_eq!(told("/selic"), [bodies[1]]);
    assert_eq!(told("/usd"), [bodies[2]]);
    for path in ["/other", "/euro", "/rates", "/paused"] {
        assert_eq!(told(path), Vec::<String>::new(), "{path}");
    }

    for (path, webhook) in &webhooks {
        for received in stage.receiver.requests_to(path) {
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
    let delivered = stage.list_deliveries(&webhooks[0].1, "state=delivered").await?;
    assert_eq!(delivered.len(), 3);
    assert_eq!(
        (&delivered[0]["attempts"][0]["status"], &delivered[0]["attempts"][0]["error"]),
        (&json!(200), &Value::Null)
    );
    let (_, shown) = stage.request_json(Method::GET, &webhooks[0].1.path, None).await?;
    assert!(shown["last_success_at"].is_string(), "{shown}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_deliveries_are_retried_on_schedule_then_dead_and_replayable() -> TestResult {
    let mut stage = WebhookHarness::start().await?;
    let webhook = stage.create_webhook("/failing", json!({})).await?;
    stage.receiver.set_behavior("/failing", ReceiverBehavior::Status(500));
    stage.publish_revision("selic", "2026-11-12").await?;
    stage.deliver_due_now().await?;
    // Up to a tenth sooner or later; never before nine tenths, always after eleven.
    let waits = [5, 300, 1_800, 7_200, 18_000, 36_000, 36_000];
    for (attempts, wait) in (1..).zip(waits) {
        assert_eq!(stage.receiver.requests_to("/failing").len(), attempts);
        let waiting = stage.list_deliveries(&webhook, "state=waiting").await?;
        assert_eq!(waiting.len(), 1);
        assert_eq!(waiting[0]["attempts"].as_array().map(Vec::len), Some(attempts));
        let wait = TimeDelta::seconds(wait);
        stage.advance_and_deliver(wait * 89 / 100).await?;
        assert_eq!(stage.receiver.requests_to("/failing").len(), attempts, "too early");
        stage.advance_and_deliver(wait * 22 / 100).await?;
    }
    assert_eq!(stage.receiver.requests_to("/failing").len(), 8);
    stage.advance_and_deliver(TimeDelta::days(2)).await?;
    let received = stage.receiver.requests_to("/failing");
    assert_eq!(received.len(), 8, "no more than that");
    let same =
        received.iter().all(|other| (other.event_id(), &other.body) == (received[0].event_id(), &received[0].body));
    assert!(same, "the same id and the same bytes each time");
    let dead = stage.list_deliveries(&webhook, "state=dead").await?;
    assert_eq!(
        (dead.len(), &dead[0]["attempts"][7]["status"], &dead[0]["attempts"][7]["error"]),
        (1, &json!(500), &json!("status"))
    );
    assert!(!dead[0].to_string().contains("nobody is to be told"), "what a receiver says is not passed on");

    let replay = format!("{}/deliveries/{}/replay", webhook.path, dead[0]["id"].as_str().unwrap_or_default());
    stage.receiver.set_behavior("/failing", ReceiverBehavior::Status(204));
    let (status, replayed) = stage.request_json(Method::POST, &replay, None).await?;
    assert_eq!((status, &replayed["state"]), (202, &json!("waiting")));
    stage.deliver_due_now().await?;
    let delivered = stage.list_deliveries(&webhook, "state=delivered").await?;
    assert_eq!((delivered.len(), delivered[0]["attempts"].as_array().map(Vec::len)), (1, Some(9)));
    assert_eq!(
        stage.receiver.requests_to("/failing").last().map(|last| last.event_id().to_owned()),
        Some(received[0].event_id().to_owned())
    );
    // What was delivered can be replayed as well, and fails by the whole schedule anew.
    stage.receiver.set_behavior("/failing", ReceiverBehavior::Status(500));
    stage.request_json(Method::POST, &replay, None).await?;
    stage.deliver_due_now().await?;
    assert_eq!(stage.list_deliveries(&webhook, "state=waiting").await?.len(), 1);
    for nothing in ["/deliveries/99999999/replay", "/deliveries/x/replay"] {
        assert_eq!(stage.request_json(Method::POST, &format!("{}{nothing}", webhook.path), None).await?.0, 404);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_delivery_failure_has_its_error_name() -> TestResult {
    let mut stage = WebhookHarness::start().await?;
    let elsewhere = stage.receiver.url("/elsewhere");
    let manners = [
        ("/ok", ReceiverBehavior::Status(200), json!(200), Value::Null),
        ("/created", ReceiverBehavior::Status(201), json!(201), Value::Null),
        ("/huge", ReceiverBehavior::EndlessBody, json!(200), Value::Null),
        ("/moved", ReceiverBehavior::Redirect(elsewhere), json!(302), json!("status")),
        ("/refused", ReceiverBehavior::Status(403), json!(403), json!("status")),
        ("/cut", ReceiverBehavior::CutConnection, Value::Null, json!("broken_off")),
    ];
    let mut webhooks = Vec::new();
    for (path, manner, status, error) in manners {
        stage.receiver.set_behavior(path, manner);
        webhooks.push((path, stage.create_webhook(path, json!({})).await?, status, error));
    }
    let nobody = stage.create_webhook("/nobody", json!({})).await?;
    let closed = format!("http://127.0.0.1:{}/", vintem_testkit::find_free_port()?);
    let (status, _) = stage.request_json(Method::PATCH, &nobody.path, Some(json!({"url": closed}))).await?;
    assert_eq!(status, 200);
    webhooks.push(("closed", nobody, Value::Null, json!("connection")));
    // As if it had been public when it was made.
    let private = stage.create_webhook("/private", json!({})).await?;
    let mut connection = stage.database.connect().await?;
    sqlx::query("update webhook set url = 'https://10.0.0.1/' where id = $1")
        .bind(&private.id)
        .execute(&mut connection)
        .await?;
    webhooks.push(("private", private, Value::Null, json!("address")));
    // Whoever speaks no TLS.
    let plain = stage.create_webhook("/plain", json!({})).await?;
    let url = format!("https://{}/", stage.receiver.address);
    sqlx::query("update webhook set url = $2 where id = $1").bind(&plain.id).bind(url).execute(&mut connection).await?;
    webhooks.push(("plain", plain, Value::Null, json!("tls")));

    stage.publish_revision("selic", "2026-11-12").await?;
    stage.deliver_due_now().await?;
    for (path, webhook, status, error) in &webhooks {
        let deliveries = stage.list_deliveries(webhook, "").await?;
        let attempt = &deliveries[0]["attempts"][0];
        assert_eq!((&attempt["status"], &attempt["error"]), (status, error), "{path}: {attempt}");
        let state = if error.is_null() { "delivered" } else { "waiting" };
        assert_eq!(deliveries[0]["state"], json!(state), "{path}");
    }
    assert!(stage.receiver.requests_to("/elsewhere").is_empty(), "a redirect was followed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_from_a_receiver_is_honored() -> TestResult {
    let mut stage = WebhookHarness::start().await?;
    let _webhook = stage.create_webhook("/busy", json!({})).await?;
    stage.receiver.set_behavior("/busy", ReceiverBehavior::TooManyRequests("120"));
    stage.publish_revision("selic", "2026-11-12").await?;
    stage.deliver_due_now().await?;
    stage.advance_and_deliver(TimeDelta::seconds(118)).await?;
    assert_eq!(stage.receiver.requests_to("/busy").len(), 1, "it asked for two minutes");
    stage.receiver.set_behavior("/busy", ReceiverBehavior::Status(200));
    stage.advance_and_deliver(TimeDelta::seconds(4)).await?;
    assert_eq!(stage.receiver.requests_to("/busy").len(), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_410_or_five_days_of_failures_disables_a_webhook() -> TestResult {
    let mut stage = WebhookHarness::start().await?;
    let (gone, failing) =
        (stage.create_webhook("/gone", json!({})).await?, stage.create_webhook("/failing", json!({})).await?);
    let recovering = stage.create_webhook("/recovering", json!({})).await?;
    stage.receiver.set_behavior("/gone", ReceiverBehavior::Status(410));
    stage.receiver.set_behavior("/failing", ReceiverBehavior::Status(503));
    stage.receiver.set_behavior("/recovering", ReceiverBehavior::Status(503));
    stage.publish_revision("selic", "2026-11-12").await?;
    stage.deliver_due_now().await?;
    assert_eq!(stage.status_and_reason(&gone).await?, ("disabled".into(), json!("gone")));
    assert_eq!(stage.list_deliveries(&gone, "state=dead").await?.len(), 1);
    // One event a day fails by its whole schedule.
    for day in 1..=4 {
        if day == 3 {
            stage.receiver.set_behavior("/recovering", ReceiverBehavior::Status(200));
        }
        stage.publish_revision("selic", &format!("2026-10-{day:02}")).await?;
        stage.advance_and_deliver(TimeDelta::hours(24)).await?;
        if day == 3 {
            stage.receiver.set_behavior("/recovering", ReceiverBehavior::Status(503));
        }
    }
    assert_eq!(stage.status_and_reason(&failing).await?, ("active".into(), Value::Null), "four days are not five");
    stage.publish_revision("selic", "2026-10-05").await?;
    stage.advance_and_deliver(TimeDelta::hours(25)).await?;
    assert_eq!(stage.status_and_reason(&failing).await?, ("disabled".into(), json!("failing")));
    assert_eq!(stage.status_and_reason(&recovering).await?, ("active".into(), Value::Null), "it succeeded in between");
    assert_eq!(stage.receiver.requests_to("/gone").len(), 1, "nothing more is sent to it");

    // Made active again it has not failed yet, and what waited goes on.
    stage.receiver.set_behavior("/failing", ReceiverBehavior::Status(200));
    let before = stage.receiver.requests_to("/failing").len();
    stage.request_json(Method::PATCH, &failing.path, Some(json!({"status": "active"}))).await?;
    stage.deliver_due_now().await?;
    assert!(stage.receiver.requests_to("/failing").len() > before);
    assert_eq!(stage.status_and_reason(&failing).await?, ("active".into(), Value::Null));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn both_secrets_sign_during_the_grace_and_none_is_stored_in_plain_text() -> TestResult {
    let mut stage = WebhookHarness::start().await?;
    stage.replica.clock.set(Utc::now());
    let webhook = stage.create_webhook("/hook", json!({})).await?;
    let rotate = async |stage: &WebhookHarness, grace: u32| -> anyhow::Result<String> {
        let body = Some(json!({"grace_seconds": grace}));
        let (status, rotated) = stage.request_json(Method::POST, &format!("{}/rotate", webhook.path), body).await?;
        anyhow::ensure!(status == 200, "{rotated}");
        Ok(rotated["secret"].as_str().unwrap_or_default().to_owned())
    };
    let send = async |stage: &mut WebhookHarness, date: &str| -> anyhow::Result<ReceivedRequest> {
        stage.publish_revision("selic", date).await?;
        stage.deliver_due_now().await?;
        Ok(stage.receiver.requests_to("/hook").pop().expect("it came"))
    };
    let first = webhook.secret.clone();
    // The verifier takes five minutes for now: the grace is scaled to that.
    let second = rotate(&stage, 60).await?;
    let received = send(&mut stage, "2026-11-10").await?;
    assert_eq!((signature_verifies(&first, &received), signature_verifies(&second, &received)), (true, true));
    assert_eq!(received.header("webhook-signature").split(' ').count(), 2);
    stage.replica.clock.set(stage.replica.clock.now() + TimeDelta::seconds(61));
    let received = send(&mut stage, "2026-11-11").await?;
    assert_eq!((signature_verifies(&first, &received), signature_verifies(&second, &received)), (false, true));
    let third = rotate(&stage, 60).await?;
    let fourth = rotate(&stage, 0).await?;
    let received = send(&mut stage, "2026-11-12").await?;
    let verified = [&first, &second, &third, &fourth].map(|secret| signature_verifies(secret, &received));
    assert_eq!(verified, [false, false, false, true], "a second rotation ends the oldest, a grace of 0 the last one");

    let (_, shown) = stage.request_json(Method::GET, &webhook.path, None).await?;
    assert!(!shown.to_string().contains("whsec_"), "{shown}");
    let mut connection = stage.database.connect().await?;
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
    let mut stage = WebhookHarness::start().await?;
    let webhook = stage.create_webhook("/hook", json!({})).await?;
    let store = stage.replica.open_store()?;
    // Published before the plan changes: it was due already.
    stage.publish_revision("selic", "2026-11-10").await?;
    store.set_key_plan(stage.key_id, Plan::Gold).await?;
    let began = Instant::now();
    stage.deliver_due_now().await?;
    stage.publish_revision("selic", "2026-11-11").await?;
    stage.deliver_due_now().await?;
    assert!(stage.receiver.all_requests().is_empty(), "sent on Gold");
    assert!(began.elapsed() < Duration::from_secs(10));
    wait_until("the gate knows the plan", Duration::from_secs(5), || async {
        stage.request_json(Method::GET, &webhook.path, None).await.is_ok_and(|(status, _)| status == 403)
    })
    .await;

    // Back on Platinum it is still paused, for its owner to see. Made active, what waited goes on; what was published
    // meanwhile was not for it.
    store.set_key_plan(stage.key_id, Plan::Platinum).await?;
    wait_until("the gate knows the plan again", Duration::from_secs(5), || async {
        stage.status_and_reason(&webhook).await.is_ok_and(|(status, _)| status == "paused")
    })
    .await;
    stage.deliver_due_now().await?;
    assert!(stage.receiver.all_requests().is_empty(), "sent while paused");
    stage.request_json(Method::PATCH, &webhook.path, Some(json!({"status": "active"}))).await?;
    stage.deliver_due_now().await?;
    let received = stage.receiver.single_request_to("/hook")?;
    assert!(String::from_utf8_lossy(&received.body).contains("2026-11-10"));

    store.set_key_expiry(stage.key_id, Some(stage.replica.clock.now())).await?;
    stage.publish_revision("selic", "2026-11-12").await?;
    stage.deliver_due_now().await?;
    store.set_key_expiry(stage.key_id, None).await?;
    stage.publish_revision("selic", "2026-11-13").await?;
    store.revoke_key(stage.key_id).await?;
    stage.deliver_due_now().await?;
    assert_eq!(stage.receiver.all_requests().len(), 1);
    // Who is forgotten leaves no address behind.
    store.erase_keys_by_email("teste@example.com").await?;
    let mut connection = stage.database.connect().await?;
    let left: i64 = sqlx::query_scalar("select (select count(*) from webhook) + (select count(*) from delivery)")
        .fetch_one(&mut connection)
        .await?;
    assert_eq!(left, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_event_is_sent_once_and_its_result_is_listed() -> TestResult {
    let mut stage = WebhookHarness::start().await?;
    stage.replica.clock.set(Utc::now());
    let webhook = stage.create_webhook("/hook", json!({"types": ["rate.published"]})).await?;
    let test = format!("{}/test", webhook.path);
    let (status, noted) = stage.request_json(Method::POST, &test, None).await?;
    assert_eq!((status, &noted["type"], &noted["state"]), (202, &json!("webhook.test"), &json!("waiting")));
    stage.deliver_due_now().await?;
    let received = stage.receiver.single_request_to("/hook")?;
    assert!(signature_verifies(&webhook.secret, &received));
    let body: Value = serde_json::from_slice(&received.body)?;
    assert_eq!((&body["type"], &body["data"]), (&json!("webhook.test"), &json!({"webhook_id": webhook.id})));
    assert_eq!(
        (received.event_id(), received.header("vintem-sequence")),
        (noted["event_id"].as_str().unwrap_or_default(), "")
    );
    stage.receiver.set_behavior("/hook", ReceiverBehavior::Status(500));
    stage.request_json(Method::POST, &test, None).await?;
    stage.deliver_due_now().await?;
    stage.advance_and_deliver(TimeDelta::days(1)).await?;
    assert_eq!(stage.receiver.requests_to("/hook").len(), 2, "tests are not tried again");
    let states: Vec<Value> =
        stage.list_deliveries(&webhook, "limit=2").await?.iter().map(|delivery| delivery["state"].clone()).collect();
    assert_eq!(states, [json!("dead"), json!("delivered")]);
    let feed: Value = stage.replica.get_with_key("/api/v1/events", &stage.key).await?.json().await?;
    assert_eq!(feed["data"], json!([]), "tests are no events");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_receiver_does_not_delay_others() -> TestResult {
    let mut stage = WebhookHarness::start().await?;
    let slow = stage.create_webhook("/slow", json!({})).await?;
    let fast = stage.create_webhook("/fast", json!({})).await?;
    stage.receiver.set_behavior("/slow", ReceiverBehavior::DelayedOk(Duration::from_secs(600)));
    for day in 1..=20 {
        stage.publish_revision("selic", &format!("2026-10-{day:02}")).await?;
    }
    // Rounds as the worker makes them: none waits for the slow one.
    let began = Instant::now();
    while stage.list_deliveries(&fast, "state=delivered&limit=1").await?.is_empty()
        || stage.receiver.requests_to("/fast").len() < 20
    {
        stage.dispatcher.run_round().await?;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(began.elapsed() < Duration::from_secs(20), "the fast one waits");
    }
    let sending = stage.list_deliveries(&slow, "state=sending").await?;
    assert_eq!(sending.len(), 8, "the slow one has its few under way");
    assert_eq!(stage.receiver.requests_to("/fast").len(), 20);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_pruned_with_their_events_after_thirty_days() -> TestResult {
    let mut stage = WebhookHarness::start().await?;
    let webhook = stage.create_webhook("/hook", json!({})).await?;
    stage.publish_revision("selic", "2026-11-12").await?;
    stage.request_json(Method::POST, &format!("{}/test", webhook.path), None).await?;
    stage.deliver_due_now().await?;
    assert_eq!(stage.list_deliveries(&webhook, "").await?.len(), 2);
    let mut connection = stage.database.connect().await?;
    for statement in [
        "update event set occurred_at = now() - interval '31 days'",
        "update delivery set created_at = now() - interval '31 days'",
    ] {
        sqlx::query(statement).execute(&mut connection).await?;
    }
    stage.replica.open_store()?.prune_events().await?;
    assert_eq!(stage.list_deliveries(&webhook, "").await?, Vec::<Value>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_worker_delivers_at_a_time_and_a_standby_takes_over() -> TestResult {
    let mut stage = WebhookHarness::start().await?;
    let webhook = stage.create_webhook("/hook", json!({})).await?;
    stage.deliver_due_now().await?;
    let mut standby = stage.replica.webhook_dispatcher()?;
    stage.publish_revision("selic", "2026-11-11").await?;
    standby.deliver_due().await?;
    assert!(stage.receiver.all_requests().is_empty(), "only one worker delivers at a time");
    // It takes one up and is gone before it could note what came of it.
    stage.receiver.set_behavior("/hook", ReceiverBehavior::DelayedOk(Duration::from_secs(600)));
    stage.dispatcher.run_round().await?;
    wait_until("it is on its way", Duration::from_secs(5), || async { stage.receiver.requests_to("/hook").len() == 1 })
        .await;
    assert_eq!(stage.list_deliveries(&webhook, "state=sending").await?.len(), 1);
    stage.receiver.set_behavior("/hook", ReceiverBehavior::Status(200));
    stage.dispatcher = stage.replica.webhook_dispatcher()?;
    // The connection of the one that is gone ends a moment later.
    let began = Instant::now();
    while stage.receiver.requests_to("/hook").len() < 2 {
        assert!(began.elapsed() < Duration::from_secs(10), "nobody takes over");
        standby.deliver_due().await?;
    }
    let received = stage.receiver.requests_to("/hook");
    assert_eq!(received.len(), 2);
    assert_eq!((received[0].event_id(), &received[0].body), (received[1].event_id(), &received[1].body));
    assert_eq!(stage.list_deliveries(&webhook, "state=delivered").await?.len(), 1);
    Ok(())
}
