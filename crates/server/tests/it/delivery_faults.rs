//! Every event reaches every reachable webhook, whatever is killed. `just deliveries` runs this for longer.
//!
//! Workers are real processes, killed at random moments and restarted; PostgreSQL is stopped and killed meanwhile.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, PgConnection, Row};
use vintem_domain::Plan;
use vintem_store::{Store, Timeouts};
use vintem_testkit::webhook_receiver::{ReceiverBehavior, WebhookReceiver};
use vintem_testkit::webhooks::insert_webhooks;
use vintem_testkit::{DedicatedPostgres, QuietClock, WorkerProcess, create_key, parse_env_var, run_vintem};

use crate::{TestResult, vintem_binary};

/// Receivers that accept every delivery, some of them slowly.
const HEALTHY_PATHS: [&str; 14] =
    ["/0", "/1", "/2", "/3", "/4", "/5", "/6", "/7", "/8", "/9", "/10", "/11", "/huge", "/created"];
/// Receivers that fail or are too slow.
const FAILING_PATHS: [&str; 6] = ["/slow", "/error", "/busy", "/cut", "/moved", "/gone"];
const EVENTS_PER_INSERT: i32 = 50;
/// The first retry comes after 5 seconds ± 10%; anything below 80% of that is too early.
const MIN_RETRY_SECONDS: f64 = 4.0;
/// Deliveries of one webhook in flight at once, and so the most that one fault can duplicate.
const MAX_IN_FLIGHT_PER_WEBHOOK: usize = 15;

struct DeliveryHarness {
    postgres: DedicatedPostgres,
    worker: Option<WorkerProcess>,
    receiver: WebhookReceiver,
}

impl DeliveryHarness {
    async fn start() -> anyhow::Result<Self> {
        let postgres = DedicatedPostgres::start()?;
        let receiver = WebhookReceiver::start().await?;
        let harness = Self { postgres, worker: None, receiver };

        let (status, _, error) = run_vintem(vintem_binary(), &harness.database_url(), &["migrate"]).await?;
        anyhow::ensure!(status.success(), "{error}");

        let store = Store::open(&harness.database_url(), 2, Timeouts::for_workers())?;
        let (key, _) = create_key(&store, Plan::Platinum).await?;

        let urls: Vec<String> =
            HEALTHY_PATHS.iter().chain(&FAILING_PATHS).map(|path| harness.receiver.url(path)).collect();
        insert_webhooks(&mut harness.connect().await?, &[key], &urls).await?;

        for (path, behavior) in [
            ("/huge", ReceiverBehavior::EndlessBody),
            ("/created", ReceiverBehavior::Status(201)),
            ("/slow", ReceiverBehavior::DelayedOk(Duration::from_secs(29))),
            ("/error", ReceiverBehavior::Status(500)),
            ("/busy", ReceiverBehavior::TooManyRequests("2")),
            ("/cut", ReceiverBehavior::CutConnection),
            ("/moved", ReceiverBehavior::Redirect(harness.receiver.url("/elsewhere"))),
            ("/gone", ReceiverBehavior::Status(410)),
        ] {
            harness.receiver.set_behavior(path, behavior);
        }

        // Latency as over a network, so that a kill hits deliveries in flight.
        for path in &HEALTHY_PATHS[..12] {
            harness.receiver.set_behavior(path, ReceiverBehavior::DelayedOk(Duration::from_millis(30)));
        }

        Ok(harness)
    }

    fn database_url(&self) -> String {
        format!("{}/postgres", self.postgres.url())
    }

    async fn connect(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect(&self.database_url()).await?)
    }

    fn start_worker(&mut self) -> anyhow::Result<()> {
        self.worker =
            Some(WorkerProcess::start(vintem_binary(), &self.database_url(), &["--webhook-allow", "127.0.0.0/8"])?);
        Ok(())
    }

    fn kill_worker(&mut self) -> anyhow::Result<()> {
        self.worker.take().map_or(Ok(()), |mut worker| worker.kill())
    }

    /// Inserts events the way loads do.
    async fn insert_events(&self, events: i32) -> anyhow::Result<()> {
        let subject = json!({"series": "selic", "date": "2026-11-12", "old": "1.0", "new": "2.00"}).to_string();
        sqlx::query(
            "insert into event (type, occurred_at, subject)
             select 'series.revised', now(), $2::jsonb from generate_series(1, $1)",
        )
        .bind(events)
        .bind(subject)
        .execute(&mut self.connect().await?)
        .await?;

        Ok(())
    }

    /// Counts the published events, and the deliveries to healthy webhooks that are still to be made.
    async fn count_published_and_pending(&self) -> anyhow::Result<(i64, i64)> {
        let row = sqlx::query(
            "select (select count(*) from event where position is not null) as published,
                    (select count(*)
                     from delivery
                     join webhook on webhook.number = delivery.webhook
                     where state <> 'delivered' and url = any($1)) as waiting",
        )
        .bind(HEALTHY_PATHS.map(|path| self.receiver.url(path)))
        .fetch_one(&mut self.connect().await?)
        .await?;

        Ok((row.try_get("published")?, row.try_get("waiting")?))
    }

    /// Counts deliveries by webhook URL and state.
    async fn count_deliveries_by_state(&self) -> anyhow::Result<HashMap<(String, String), i64>> {
        let rows = sqlx::query(
            "select url, state, count(*) as count
             from webhook
             join delivery on delivery.webhook = webhook.number
             group by url, state",
        )
        .fetch_all(&mut self.connect().await?)
        .await?;

        rows.iter().map(|row| Ok(((row.try_get("url")?, row.try_get("state")?), row.try_get("count")?))).collect()
    }

    async fn query_number(&self, query: &'static str) -> anyhow::Result<f64> {
        Ok(sqlx::query_scalar(query).fetch_one(&mut self.connect().await?).await?)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_workers_and_postgres_loses_no_delivery() -> TestResult {
    let kills: u32 = parse_env_var("VINTEM_DELIVERY_KILLS").unwrap_or(8);
    let (events, kills_per_restart) = if kills >= 50 { (5_000, 12) } else { (300, 4) };
    let mut harness = DeliveryHarness::start().await?;
    let mut inserted = 0;
    let mut restarts = 0;
    let mut in_flight_at_kill = 0.0;

    for kill in 0..kills {
        harness.start_worker()?;
        let due = events * (kill as i32 + 1) / kills as i32;
        while inserted < due {
            harness.insert_events(EVENTS_PER_INSERT.min(due - inserted)).await?;
            inserted += EVENTS_PER_INSERT.min(due - inserted);
        }

        // The worker needs about half a second before it delivers.
        tokio::time::sleep(Duration::from_millis(rand::random_range(300..2_000))).await;

        if (kill + 1) % kills_per_restart == 0 && kill + 1 < kills {
            restarts += 1;
            if restarts % 2 == 1 {
                harness.postgres.kill()?;
            } else {
                harness.postgres.stop()?;
            }

            tokio::time::sleep(Duration::from_millis(500)).await;
            harness.postgres.launch()?;
            // The worker recovers by itself.
            tokio::time::sleep(Duration::from_millis(1_500)).await;
        }

        harness.kill_worker()?;
        in_flight_at_kill +=
            harness.query_number("select count(*)::float8 from delivery where state = 'sending'").await?;
    }

    harness.start_worker()?;

    let started = QuietClock::start();
    loop {
        let (published, waiting) = harness.count_published_and_pending().await?;
        if published == i64::from(events) && waiting == 0 {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(300), "{published} published, {waiting} wait");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let mut by_path = BTreeMap::new();
    let mut bodies = HashMap::new();
    for received in harness.receiver.all_requests() {
        let body = bodies.entry(received.event_id().to_owned()).or_insert_with(|| received.body.clone());
        assert_eq!(*body, received.body, "an id with another body");
        let ids: &mut Vec<String> = by_path.entry(received.path.clone()).or_default();
        ids.push(received.event_id().to_owned());
    }

    let mut lost = 0;
    let mut duplicates = 0;
    for path in HEALTHY_PATHS {
        let ids = by_path.get(path).cloned().unwrap_or_default();
        let distinct = ids.iter().collect::<HashSet<_>>().len();
        lost += events as usize - distinct;
        duplicates += ids.len() - distinct;
    }

    let states = harness.count_deliveries_by_state().await?;
    let count_in_state =
        |path: &str, state: &str| states.get(&(harness.receiver.url(path), state.to_owned())).copied().unwrap_or(0);
    let count_all = |path: &str| {
        ["waiting", "sending", "delivered", "dead"].map(|state| count_in_state(path, state)).iter().sum::<i64>()
    };

    // No failing webhook is forgotten: each event still waits for it, or the retry schedule gave up on it.
    let forgotten: i64 =
        FAILING_PATHS.iter().filter(|path| **path != "/gone").map(|path| i64::from(events) - count_all(path)).sum();

    let inversions = harness
        .query_number(
            "select count(*)::float8
             from (select first_attempt_at < lag(first_attempt_at) over (partition by webhook order by event) as is_earlier
                   from delivery
                   where first_attempt_at is not null) attempts
             where is_earlier",
        )
        .await?;
    let shortest_retry = harness
        .query_number(
            "select coalesce(min(extract(epoch from (attempts -> 1 ->> 'at')::timestamptz
                                                    - (attempts -> 0 ->> 'at')::timestamptz)), 5)::float8
             from delivery
             where jsonb_array_length(attempts) > 1",
        )
        .await?;

    let faults = (kills + restarts) as usize;
    println!("events: {events}");
    println!("webhooks: {}", HEALTHY_PATHS.len() + FAILING_PATHS.len());
    println!("kills_of_workers: {kills}");
    println!("restarts_of_postgres: {restarts}");
    println!("under_way_when_killed: {in_flight_at_kill}");
    println!("received: {}", by_path.values().map(Vec::len).sum::<usize>());
    println!("soonest_retry_seconds: {shortest_retry:.2}");
    println!("told_after_410: {}", by_path.get("/gone").map_or(0, Vec::len));
    println!("first_attempts_out_of_order: {inversions}");
    println!("duplicates: {duplicates}");
    println!("forgotten: {forgotten}");
    println!("lost: {lost}");

    assert_eq!((lost, forgotten), (0, 0));
    assert!(in_flight_at_kill > 0.0, "no kill met anything in progress");
    assert!(
        duplicates <= faults * HEALTHY_PATHS.len() * MAX_IN_FLIGHT_PER_WEBHOOK,
        "more duplicates than were in progress"
    );
    assert!(shortest_retry >= MIN_RETRY_SECONDS, "a retry after {shortest_retry} seconds");
    assert_eq!(inversions, 0.0, "first attempts out of order");
    assert!(!by_path.contains_key("/elsewhere"), "a redirect was followed");

    // Those in flight together with the first 410, and once more for each kill before the 410 was recorded.
    let sent_to_gone = by_path.get("/gone").map_or(0, Vec::len);
    assert!((1..=MAX_IN_FLIGHT_PER_WEBHOOK * (1 + faults)).contains(&sent_to_gone), "{sent_to_gone}");

    let still_active = harness
        .query_number("select count(*)::float8 from webhook where url like '%/gone' and status = 'active'")
        .await?;
    assert_eq!(still_active, 0.0, "410 did not disable it");

    Ok(())
}
