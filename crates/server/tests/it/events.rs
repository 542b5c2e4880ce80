//! The event feed: contents, order, cursors and long polling.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::PgConnection;
use vintem_domain::series::find_series;
use vintem_domain::{DataOrigin, Dataset, Plan, Series};
use vintem_server::worker::publish_pending_events;
use vintem_snapshot::LiveSnapshot;
use vintem_store::Store;
use vintem_store::load::{NewFetch, Observation};
use vintem_testkit::{QuietClock, TestDatabase, TestReplica, wait_until};

use crate::{TestResult, friday, insert_event};

const EVENTS_PATH: &str = "/api/v1/events";

async fn insert_friday_event(connection: &mut PgConnection, kind: &str, subject: &Value) -> anyhow::Result<()> {
    insert_event(connection, kind, subject, friday()).await
}

/// Publishes the inserted events and waits until the replica serves them.
async fn publish_and_wait(replica: &TestReplica, key: &str) -> anyhow::Result<u64> {
    let published = replica.publish_events().await?;
    let last: Value = json!(replica.open_store()?.feed_bounds(None).await?.last_position.to_string());
    wait_until("the replica knows what was published", Duration::from_secs(5), || async {
        get_events(replica, key, "after=latest").await.is_ok_and(|body| body["cursor"] == last)
    })
    .await;
    Ok(published)
}

async fn get_events(replica: &TestReplica, key: &str, query: &str) -> anyhow::Result<Value> {
    let response = replica.get_with_key(&format!("{EVENTS_PATH}?{query}"), key).await?;
    anyhow::ensure!(response.status() == 200, "{query}: {}", response.status());
    Ok(response.json().await?)
}

fn event_dates(body: &Value) -> Vec<&str> {
    body["data"].as_array().into_iter().flatten().filter_map(|event| event["data"]["date"].as_str()).collect()
}

async fn start_with_feed() -> anyhow::Result<(TestDatabase, TestReplica, String)> {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;
    wait_until("the feed is known", Duration::from_secs(5), || async {
        get_events(&replica, &key, "after=latest").await.is_ok()
    })
    .await;
    Ok((database, replica, key))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_contains_the_same_data_as_the_api() -> TestResult {
    let (database, replica, key) = start_with_feed().await?;

    let get = async |path: &str| -> anyhow::Result<Value> { Ok(replica.get_with_key(path, &key).await?.json().await?) };
    let filing = get("/api/v1/filings?limit=1").await?["data"][0].clone();
    let company = get("/api/v1/companies?limit=1").await?["data"][0].clone();
    let rate = get("/api/v1/market/selic/current").await?;
    let fx = get("/api/v1/market/fx/current?pair=EUR/BRL").await?;
    let code: u32 = company["id"].as_str().unwrap_or_default().parse()?;

    let mut connection = database.connect().await?;
    insert_friday_event(&mut connection, "filing.published", &json!({"filing": filing["id"]})).await?;
    insert_friday_event(&mut connection, "company.updated", &json!({"company": code})).await?;
    insert_friday_event(&mut connection, "rate.published", &json!({"series": "selic", "date": rate["date"]})).await?;
    insert_friday_event(&mut connection, "fx.published", &json!({"pair": "EUR/BRL", "date": fx["date"]})).await?;

    let revised = json!({"series": "cdi", "date": "2026-11-12", "old": "14.90", "new": "14.9000"});
    insert_friday_event(&mut connection, "series.revised", &revised).await?;

    let quote = |rate: &str| json!({"buy": rate, "sell": "5.50"});
    let revised =
        json!({"series": "fx", "pair": "USD/BRL", "date": "2026-11-12", "old": quote("5.40"), "new": quote("5.41")});
    insert_friday_event(&mut connection, "series.revised", &revised).await?;
    insert_friday_event(&mut connection, "filing.published", &json!({"filing": "gone"})).await?;

    assert_eq!(publish_and_wait(&replica, &key).await?, 7);
    assert_eq!(replica.publish_events().await?, 0, "each is published once");

    let response = replica.get_with_key(EVENTS_PATH, &key).await?;
    assert_eq!(response.headers()["cache-control"], "no-store");
    let text = response.text().await?;
    assert!(text.contains("\"old\":14.90,\"new\":14.9000"), "numbers keep their characters: {text}");

    let body: Value = serde_json::from_str(&text)?;
    let events: Vec<(&Value, &Value)> =
        body["data"].as_array().into_iter().flatten().map(|event| (&event["type"], &event["data"])).collect();

    let known_at = friday().to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let expected = [
        (json!("filing.published"), filing),
        (json!("company.updated"), company),
        (json!("rate.published"), rate),
        (json!("fx.published"), fx),
        (
            json!("series.revised"),
            json!({"series": "cdi", "date": "2026-11-12", "old": 14.9, "new": 14.9, "known_at": known_at}),
        ),
        (
            json!("series.revised"),
            json!({"series": "fx", "pair": "USD/BRL", "date": "2026-11-12", "old": {"buy": 5.4, "sell": 5.5},
                   "new": {"buy": 5.41, "sell": 5.5}, "known_at": known_at}),
        ),
        (json!("filing.published"), json!({"filing": "gone"})),
    ];

    let expected: Vec<(&Value, &Value)> = expected.iter().map(|(kind, data)| (kind, data)).collect();
    assert_eq!(events, expected);

    for event in body["data"].as_array().into_iter().flatten() {
        assert!(event["id"].as_str().is_some_and(|id| id.starts_with("evt_")), "{event}");
        assert_eq!(event["timestamp"], json!(known_at));
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_resume_from_a_cursor_in_order_and_filter_by_type() -> TestResult {
    let (database, replica, key) = start_with_feed().await?;
    let mut connection = database.connect().await?;

    let mut all = Vec::new();
    for number in 0..30u32 {
        let kind = ["rate.published", "series.revised"][number as usize % 2];
        let date = format!("2026-01-{:02}", number + 1);
        insert_friday_event(&mut connection, kind, &json!({"series": "selic", "date": date, "old": "1", "new": "2"}))
            .await?;
        all.push(date);
    }

    let start_cursor =
        get_events(&replica, &key, "after=latest").await?["cursor"].as_str().unwrap_or_default().to_owned();
    publish_and_wait(&replica, &key).await?;

    let mut cursor = start_cursor.clone();
    let mut read_dates = Vec::new();
    for page in 0..4 {
        let body = get_events(&replica, &key, &format!("after={cursor}&limit=8")).await?;
        read_dates.extend(event_dates(&body).into_iter().map(str::to_owned));
        cursor = body["cursor"].as_str().unwrap_or_default().to_owned();
        assert_eq!(body["has_more"], json!(page < 3));
    }

    assert_eq!(read_dates, all);
    assert_eq!(get_events(&replica, &key, "").await?["data"].as_array().map(Vec::len), Some(20), "from the oldest on");

    let revised = get_events(&replica, &key, &format!("after={start_cursor}&types=series.revised&limit=1000")).await?;
    assert_eq!(event_dates(&revised), all.iter().skip(1).step_by(2).map(String::as_str).collect::<Vec<_>>());
    assert_eq!(revised["cursor"], json!(cursor), "what is of no interest is passed over as well");

    let none = get_events(&replica, &key, &format!("after={start_cursor}&types=fx.published,company.updated")).await?;
    assert_eq!((&none["data"], &none["cursor"]), (&json!([]), &json!(cursor)));

    // As if another replica had published it: a cursor that this replica has not heard of yet is not refused.
    for attempt in 0..10 {
        insert_friday_event(&mut connection, "rate.published", &json!({"series": "selic", "date": "2026-01-31"}))
            .await?;
        assert_eq!(replica.publish_events().await?, 1);
        let last = replica.open_store()?.feed_bounds(None).await?.last_position;
        let body = get_events(&replica, &key, &format!("after={last}")).await?;
        assert_eq!((&body["data"], &body["cursor"]), (&json!([]), &json!(last.to_string())), "turn {attempt}");
    }

    for query in
        ["after=abc", "after=-1", "after=9223372036854775807", "after=", "types=nothing", "types=", "wait=x", "limit=0"]
    {
        let response = replica.get_with_key(&format!("{EVENTS_PATH}?{query}"), &key).await?;
        assert_eq!(response.status(), 400, "{query}");
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_cursor_is_410_and_a_retained_one_continues() -> TestResult {
    let (database, replica, key) = start_with_feed().await?;
    let mut connection = database.connect().await?;
    for day in 1..=3 {
        insert_friday_event(
            &mut connection,
            "rate.published",
            &json!({"series": "selic", "date": format!("2026-02-{day:02}")}),
        )
        .await?;
    }

    publish_and_wait(&replica, &key).await?;

    // In forty days: all events but the first are from then, and the first one has expired.
    let store = replica.open_store()?;
    let later = chrono::Utc::now().date_naive() + chrono::Days::new(40);
    sqlx::query("select add_partition('event', $1, first_id_of_day($2)::text, first_id_of_day($2 + 1)::text)")
        .bind(later.format("event_%Y_%m_%d").to_string())
        .bind(later)
        .execute(&mut connection)
        .await?;
    let pruned: i64 = sqlx::query_scalar("select min(position) from event").fetch_one(&mut connection).await?;
    sqlx::query("update event set sequence = sequence + (first_id_of_day($1) - first_id_of_day(current_date)) where position > $2")
        .bind(later)
        .bind(pruned)
        .execute(&mut connection)
        .await?;

    assert!(store.maintain_partitions(later).await?.iter().any(|partition| partition.starts_with("event_until_")));
    wait_until("the replica knows that it is gone", Duration::from_secs(5), || async {
        replica
            .get_with_key(&format!("{EVENTS_PATH}?after=0"), &key)
            .await
            .is_ok_and(|response| response.status() == 410)
    })
    .await;

    let expired: Value = replica.get_with_key(&format!("{EVENTS_PATH}?after=0"), &key).await?.json().await?;
    assert_eq!(expired["error"], "cursor_expired");
    assert_eq!(
        event_dates(&get_events(&replica, &key, &format!("after={pruned}")).await?),
        ["2026-02-02", "2026-02-03"]
    );
    assert_eq!(event_dates(&get_events(&replica, &key, "").await?), ["2026-02-02", "2026-02-03"]);

    // A replica that started later has never seen the pruned event.
    let other = TestReplica::start_with_high_limits(&database, friday()).await?;
    wait_until("the other knows the feed", Duration::from_secs(5), || async {
        get_events(&other, &key, &format!("after={pruned}"))
            .await
            .is_ok_and(|body| event_dates(&body) == ["2026-02-02", "2026-02-03"])
    })
    .await;

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_ends_on_an_event_on_timeout_or_on_shutdown() -> TestResult {
    let (database, mut replica, key) = start_with_feed().await?;
    let mut connection = database.connect().await?;

    // The head of the response is sent at once, its body only when there are events.
    let poll = async |query: &str| -> anyhow::Result<reqwest::Response> {
        let request = replica.http.get(replica.url(&format!("{EVENTS_PATH}?after=latest&{query}")));
        Ok(request.header("X-API-Key", &key).send().await?)
    };

    // A key has 8 long polls at most; the ninth does not wait.
    let mut waiting = Vec::new();
    for _ in 0..8 {
        waiting.push(poll("wait=30").await?);
    }

    let started = QuietClock::start();
    let ninth: Value = poll("wait=30").await?.json().await?;
    assert_eq!(ninth["data"], json!([]));
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());

    insert_friday_event(&mut connection, "rate.published", &json!({"series": "selic", "date": "2026-03-02"})).await?;
    assert_eq!(replica.publish_events().await?, 1);
    for response in waiting {
        assert_eq!(response.status(), 200);
        let body: Value = response.json().await?;
        assert_eq!(event_dates(&body), ["2026-03-02"]);
    }

    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());

    let started = Instant::now();
    let body: Value = poll("wait=1").await?.json().await?;
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!((&body["data"], &body["has_more"]), (&json!([]), &json!(false)));
    let cursor = body["cursor"].clone();

    let pending = poll("wait=30").await?;
    let started = QuietClock::start();
    replica.replica.stop().await;
    let ended: Value = pending.json().await?;
    assert_eq!((&ended["data"], &ended["cursor"]), (&json!([]), &cursor));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());

    Ok(())
}

/// Loads a value of a series with its event.
async fn load_rate(store: &Store, series: &'static Series, value: u32) -> TestResult {
    let fetched_at = friday() + chrono::Duration::minutes(value.into());
    let fetch = NewFetch::without_response(format!("test:{}", series.id), fetched_at, [value as u8; 32]);
    let mut load = store.begin_load(Dataset::Series(series), DataOrigin::Real, &fetch).await?;
    load.emit_events_since("2026-11-01".parse()?);
    load.append_observations(series, &[Observation::new("2026-11-12".parse()?, value.into())]).await?;
    load.commit().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_waits_for_its_own_load_alone() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let (selic, cdi) = (find_series("selic").expect("ours"), find_series("cdi").expect("ours"));
    let live = LiveSnapshot::default();
    load_rate(&store, selic, 14).await?;
    live.refresh(&store).await?;

    // Neither a later load of another dataset nor one of its own is served yet.
    load_rate(&store, cdi, 13).await?;
    load_rate(&store, selic, 15).await?;
    assert_eq!(publish_pending_events(&store, &live, friday()).await?, 1);
    assert_eq!(publish_pending_events(&store, &live, friday()).await?, 0);
    live.refresh(&store).await?;
    assert_eq!(publish_pending_events(&store, &live, friday()).await?, 2);
    Ok(())
}
