//! Webhooks at length: `just outbox`, and `just fan-out`. Within checks/with-engines.
//!
//! `outbox` kills a process that loads rates, at random moments and again and again: never is there a value without its
//! event, nor an event without its value. `fan-out` has one event delivered to very many webhooks by one worker.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use chrono::{Days, NaiveDate, Utc};
use clap::{Parser, Subcommand};
use sqlx::{Connection, PgConnection};
use vintem_domain::dates::sao_paulo_day;
use vintem_domain::series::by_id;
use vintem_domain::{Dataset, Decimal, Filing, FilingSet, Origin, Plan};
use vintem_store::load::{Fetch, Observation};
use vintem_store::{Deadlines, Store};
use vintem_testkit::pace::percentile;
use vintem_testkit::processor::processor_time;
use vintem_testkit::receiver::{Manner, Received, Receiver};
use vintem_testkit::webhooks::make_webhooks;
use vintem_testkit::{TestDatabase, WorkerProcess, create_key, eventually};

/// What the API gives to one key.
const WEBHOOKS_OF_A_KEY: usize = 20;
/// The receiver that dies.
const DEAD: &str = "/0";
/// The first day that a trial loads a value of.
const FIRST_DAY: NaiveDate = NaiveDate::from_ymd_opt(1950, 1, 1).expect("a day of the calendar");

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    trial: Trial,
}

#[derive(Debug, Subcommand)]
enum Trial {
    /// Kills loads at random moments
    Outbox {
        #[arg(long, default_value_t = 1_000)]
        trials: u32,
    },
    /// Loads a value after the other until it is killed
    Load { database_url: String },
    /// One filing for many webhooks
    FanOut {
        /// The binary of the service
        #[arg(long)]
        vintem: PathBuf,
        #[arg(long, default_value_t = 10_000)]
        subscriptions: usize,
        /// All first attempts must be made within that
        #[arg(long, default_value_t = 30.0)]
        most_seconds: f64,
        /// How much later others may get theirs beside a receiver that is dead; not judged where it is not given
        #[arg(long)]
        most_p99_ratio: Option<f64>,
    },
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Arguments::parse().trial {
        Trial::Outbox { trials } => outbox(trials).await,
        Trial::Load { database_url } => load(&database_url).await,
        Trial::FanOut { vintem, subscriptions, most_seconds, most_p99_ratio } => {
            fan_out(&vintem, subscriptions, most_seconds, most_p99_ratio).await
        }
    }
}

async fn outbox(trials: u32) -> anyhow::Result<()> {
    let database = TestDatabase::empty().await?;
    let mut connection = database.connect().await?;
    let (mut killed, mut loads) = (0, 0);
    for trial in 1..=trials {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["load", &database.url()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // It needs some milliseconds to begin; then a load follows the other, each of some fifty.
        tokio::time::sleep(Duration::from_micros(rand::random_range(30_000..250_000))).await;
        killed += u32::from(child.try_wait()?.is_none());
        child.kill()?;
        child.wait()?;
        // A transaction that was sent to its end before may still come to it.
        settle(&mut connection).await?;
        let (values, events) = (days(&mut connection, VALUES).await?, days(&mut connection, EVENTS).await?);
        let alone = values.symmetric_difference(&events).count();
        ensure!(alone == 0, "trial {trial}: {alone} values or events without the other");
        loads = values.len();
    }
    println!("trials: {trials}");
    println!("killed_at_work: {killed}");
    println!("loads: {loads}");
    println!("alone: 0");
    ensure!(killed == trials, "some had ended by themselves");
    ensure!(loads > trials as usize / 2, "too few loads were met");
    Ok(())
}

const VALUES: &str = "select ref_date from observation where series = 'selic-daily'";
const EVENTS: &str = "select (subject ->> 'date')::date from event where type = 'rate.published'";

async fn days(connection: &mut PgConnection, query: &'static str) -> anyhow::Result<HashSet<NaiveDate>> {
    let days: Vec<NaiveDate> = sqlx::query_scalar(query).fetch_all(connection).await?;
    let (count, days) = (days.len(), days.into_iter().collect::<HashSet<_>>());
    ensure!(count == days.len(), "one of them is there twice");
    Ok(days)
}

/// Waits until the connections of the one that was killed are gone.
async fn settle(connection: &mut PgConnection) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let others: i64 = sqlx::query_scalar(
            "select count(*)
             from pg_stat_activity
             where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'",
        )
        .fetch_one(&mut *connection)
        .await?;
        if others == 0 {
            return Ok(());
        }
        ensure!(began.elapsed() < Duration::from_secs(10), "a connection does not end");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn load(database_url: &str) -> anyhow::Result<()> {
    let store = Store::open(database_url, 1, Deadlines::of_workers())?;
    let series = by_id("selic-daily").context("a series")?;
    let mut connection = PgConnection::connect(database_url).await?;
    let last: Option<NaiveDate> =
        sqlx::query_scalar("select max(ref_date) from observation").fetch_one(&mut connection).await?;
    connection.close().await?;
    let mut day = last.map_or(FIRST_DAY, |last| last + Days::new(1));
    loop {
        let fetch = Fetch::made_here(format!("trial:{day}"), Utc::now(), [2; 32]);
        let mut load = store.begin_load(Dataset::Series(series), Origin::Synthetic, &fetch).await?;
        load.announce_since(FIRST_DAY);
        load.append_observations(series, &[Observation { date: day, value: Decimal::new(5, 2) }]).await?;
        load.commit().await?;
        day = day + Days::new(1);
    }
}

async fn fan_out(
    vintem: &Path,
    subscriptions: usize,
    most_seconds: f64,
    most_p99_ratio: Option<f64>,
) -> anyhow::Result<()> {
    let database = TestDatabase::demo(Utc::now()).await?;
    let (store, mut connection) = (database.store()?, database.connect().await?);
    let receiver = Receiver::start().await?;
    let mut keys = Vec::new();
    for _ in 0..subscriptions.div_ceil(WEBHOOKS_OF_A_KEY) {
        keys.push(create_key(&store, Plan::Platinum).await?.0);
    }
    let urls: Vec<String> = (0..subscriptions).map(|number| receiver.url(&format!("/{number}"))).collect();
    make_webhooks(&mut connection, &keys, &urls).await?;
    let worker = WorkerProcess::start(vintem, &database.url(), &["--webhook-allow", "127.0.0.0/8"])?;
    // It is ready once it has published something: a first filing, which all get.
    publish(&store, 0).await?;
    eventually("the worker works", Duration::from_secs(120), || async { receiver.count() == subscriptions }).await;

    publish(&store, 1).await?;
    let committed = Instant::now();
    eventually("all have heard of it", Duration::from_secs(300), || async { receiver.count() >= 2 * subscriptions })
        .await;
    let all = receiver.all_received();
    let of_it = &all[subscriptions..];
    let reached: HashSet<&str> = of_it.iter().map(|received| received.path.as_str()).collect();
    ensure!(reached.len() == subscriptions && of_it.len() == subscriptions, "some were told twice, others never");
    let since = |received: &Received| received.at.saturating_duration_since(committed);
    let last = of_it.iter().map(since).max().unwrap_or_default().as_secs_f64();
    println!("subscriptions: {subscriptions}");
    println!("first_seconds: {:.2}", of_it.iter().map(since).min().unwrap_or_default().as_secs_f64());
    println!("median_seconds: {:.2}", percentile(of_it.iter().map(since), 50).as_secs_f64());
    println!("processor_seconds_of_the_worker: {:.2}", processor_time(worker.id())?.as_secs_f64());

    // A receiver that is dead, beside the others, in turns with and without it: how long after the first of the others
    // the rest of them hear of it.
    let mut latencies = [Vec::new(), Vec::new()];
    for round in 2..12u32 {
        let is_dead = round % 2 == 1;
        let manner = if is_dead { Manner::Slow(Duration::from_secs(3600)) } else { Manner::Status(200) };
        receiver.behave(DEAD, manner);
        receiver.forget();
        publish(&store, round).await?;
        eventually("all others have heard of it", Duration::from_secs(300), || async {
            receiver.count_but(DEAD) == subscriptions - 1
        })
        .await;
        let all = receiver.all_received();
        let times: Vec<Instant> = all.iter().filter(|one| one.path != DEAD).map(|one| one.at).collect();
        let first = times.iter().min().copied().context("some were told")?;
        latencies[usize::from(is_dead)].extend(times.into_iter().map(|time| time - first));
    }
    let [calm, beside] = latencies.map(|times| percentile(times, 99).as_secs_f64());
    println!("p99_seconds: {calm:.3}");
    println!("p99_seconds_beside_a_dead_one: {beside:.3}");
    println!("p99_ratio: {:.2}", beside / calm);
    println!("seconds: {last:.2}");
    ensure!(last <= most_seconds, "the last one heard of it after {last:.2} s");
    if let Some(most) = most_p99_ratio {
        ensure!(beside / calm <= most, "beside a dead receiver others wait {:.2} times as long", beside / calm);
    }
    Ok(())
}

/// A filing that is new today.
async fn publish(store: &Store, number: u32) -> anyhow::Result<()> {
    let today = sao_paulo_day(Utc::now());
    let fetch = Fetch::made_here(format!("filing:{number}"), Utc::now(), [3; 32]);
    let mut load = store.begin_load(Dataset::Filings, Origin::Synthetic, &fetch).await?;
    load.announce_since(today);
    load.append_filings(&[Filing {
        id: format!("zz-new-{number:06}"),
        set: FilingSet::Ipe,
        company_id: 1,
        company_name: "NOVA S.A.".into(),
        category: "Fato Relevante".into(),
        doc_type: String::new(),
        kind: String::new(),
        subject: format!("Nova {number}"),
        delivered_on: today,
        reference_date: None,
        version: 1,
        protocol: String::new(),
        url: String::new(),
    }])
    .await?;
    load.commit().await?;
    Ok(())
}
