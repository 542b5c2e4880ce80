//! Long webhook trials, run by checks/lib/with-engines: `just outbox` and `just fan-out`.
//!
//! `outbox` repeatedly kills a process that loads rates, at random moments, and checks that no value is ever without its
//! event and no event without its value. `fan-out` has one worker deliver one event to very many webhooks.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use chrono::{Days, NaiveDate, Utc};
use clap::{Parser, Subcommand};
use sqlx::{Connection, PgConnection};
use vintem_bench::cpu_time::process_cpu_time;
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::series::find_series;
use vintem_domain::{CvmDataset, DataOrigin, Dataset, Decimal, Plan};
use vintem_store::load::{Filing, NewFetch, Observation};
use vintem_store::{Store, Timeouts};
use vintem_testkit::timed_requests::percentile;
use vintem_testkit::webhook_receiver::{ReceivedRequest, ReceiverBehavior, WebhookReceiver};
use vintem_testkit::webhooks::insert_webhooks;
use vintem_testkit::{TestDatabase, WorkerProcess, create_key, wait_until};

/// The API's limit per key.
const WEBHOOKS_PER_KEY: usize = 20;
/// The receiver that stops responding.
const DEAD_RECEIVER_PATH: &str = "/0";
/// The day of the first loaded value.
const FIRST_DAY: NaiveDate = NaiveDate::from_ymd_opt(1950, 1, 1).expect("a day of the calendar");

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    trial: TrialCommand,
}

#[derive(Debug, Subcommand)]
enum TrialCommand {
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
        max_seconds: f64,
        /// How much later others may get theirs beside a receiver that is dead; not judged where it is not given
        #[arg(long)]
        max_p99_ratio: Option<f64>,
    },
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Arguments::parse().trial {
        TrialCommand::Outbox { trials } => run_outbox_trials(trials).await,
        TrialCommand::Load { database_url } => load_values_until_killed(&database_url).await,
        TrialCommand::FanOut { vintem, subscriptions, max_seconds, max_p99_ratio } => {
            run_fan_out(&vintem, subscriptions, max_seconds, max_p99_ratio).await
        }
    }
}

async fn run_outbox_trials(trials: u32) -> anyhow::Result<()> {
    let database = TestDatabase::create_empty().await?;
    let mut connection = database.connect().await?;
    let load_time = measure_load_time(&database, &mut connection).await?;
    let mut killed = 0;
    let mut loads = 0;
    for trial in 1..=trials {
        let mut child = spawn_loader(&database)?;
        // The process takes some milliseconds to start; then it loads one value after another.
        tokio::time::sleep(load_time.mul_f64(rand::random_range(0.5..5.0))).await;
        killed += u32::from(child.try_wait()?.is_none());
        child.kill()?;
        child.wait()?;

        // A commit that was sent before the kill may still complete.
        wait_for_other_connections(&mut connection).await?;
        let values = fetch_unique_dates(&mut connection, SELECT_VALUE_DATES).await?;
        let events = fetch_unique_dates(&mut connection, SELECT_EVENT_DATES).await?;
        let unmatched = values.symmetric_difference(&events).count();
        ensure!(unmatched == 0, "trial {trial}: {unmatched} values or events without the other");
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

fn spawn_loader(database: &TestDatabase) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    Ok(command.args(["load", &database.url()]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}

/// How long a load takes on this machine, with its share of the start of the process.
async fn measure_load_time(database: &TestDatabase, connection: &mut PgConnection) -> anyhow::Result<Duration> {
    const MEASURED_LOADS: u32 = 5;
    let started = Instant::now();
    let mut child = spawn_loader(database)?;
    while fetch_unique_dates(connection, SELECT_VALUE_DATES).await?.len() < MEASURED_LOADS as usize {
        ensure!(started.elapsed() < Duration::from_secs(60), "nothing is loaded");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let load_time = started.elapsed() / MEASURED_LOADS;

    child.kill()?;
    child.wait()?;
    wait_for_other_connections(connection).await?;
    Ok(load_time)
}

const SELECT_VALUE_DATES: &str = "select ref_date from observation where series = 'selic-daily'";
const SELECT_EVENT_DATES: &str = "select (subject ->> 'date')::date from event where type = 'rate.published'";

async fn fetch_unique_dates(connection: &mut PgConnection, query: &'static str) -> anyhow::Result<HashSet<NaiveDate>> {
    let dates: Vec<NaiveDate> = sqlx::query_scalar(query).fetch_all(connection).await?;
    let count = dates.len();
    let unique_dates: HashSet<NaiveDate> = dates.into_iter().collect();
    ensure!(count == unique_dates.len(), "one of them is there twice");
    Ok(unique_dates)
}

/// Waits until the connections of the killed process are gone.
async fn wait_for_other_connections(connection: &mut PgConnection) -> anyhow::Result<()> {
    let started = Instant::now();
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
        ensure!(started.elapsed() < Duration::from_secs(10), "a connection does not end");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn load_values_until_killed(database_url: &str) -> anyhow::Result<()> {
    let store = Store::open(database_url, 1, Timeouts::for_workers())?;
    let series = find_series("selic-daily").context("a series")?;
    let mut connection = PgConnection::connect(database_url).await?;
    let last: Option<NaiveDate> =
        sqlx::query_scalar("select max(ref_date) from observation").fetch_one(&mut connection).await?;
    connection.close().await?;

    let mut day = last.map_or(FIRST_DAY, |last| last + Days::new(1));
    loop {
        let fetch = NewFetch::without_response(format!("trial:{day}"), Utc::now(), [2; 32]);
        let mut load = store.begin_load(Dataset::Series(series), DataOrigin::Synthetic, &fetch).await?;
        load.emit_events_since(FIRST_DAY);
        load.append_observations(series, &[Observation::new(day, Decimal::new(5, 2))]).await?;
        load.commit().await?;
        day = day + Days::new(1);
    }
}

async fn run_fan_out(
    vintem: &Path,
    subscriptions: usize,
    max_seconds: f64,
    max_p99_ratio: Option<f64>,
) -> anyhow::Result<()> {
    let database = TestDatabase::create_demo(Utc::now()).await?;
    let store = database.open_store()?;
    let mut connection = database.connect().await?;
    let receiver = WebhookReceiver::start().await?;
    let mut keys = Vec::new();
    for _ in 0..subscriptions.div_ceil(WEBHOOKS_PER_KEY) {
        keys.push(create_key(&store, Plan::Platinum).await?.0);
    }
    let urls: Vec<String> = (0..subscriptions).map(|number| receiver.url(&format!("/{number}"))).collect();
    insert_webhooks(&mut connection, &keys, &urls).await?;

    let worker = WorkerProcess::start(vintem, &database.url(), &["--webhook-allow", "127.0.0.0/8"])?;
    // The worker is ready once it has delivered a first filing to all webhooks.
    load_new_filing(&store, 0).await?;
    wait_until("the worker works", Duration::from_secs(120), || async { receiver.request_count() == subscriptions })
        .await;

    load_new_filing(&store, 1).await?;
    let committed = Instant::now();
    wait_until("all have heard of it", Duration::from_secs(300), || async {
        receiver.request_count() >= 2 * subscriptions
    })
    .await;

    let all_requests = receiver.all_requests();
    let deliveries = &all_requests[subscriptions..];
    let paths: HashSet<&str> = deliveries.iter().map(|request| request.path.as_str()).collect();
    ensure!(paths.len() == subscriptions && deliveries.len() == subscriptions, "some were told twice, others never");
    let delay = |request: &ReceivedRequest| request.received_at.saturating_duration_since(committed);
    let last = deliveries.iter().map(delay).max().unwrap_or_default().as_secs_f64();
    println!("subscriptions: {subscriptions}");
    println!("first_seconds: {:.2}", deliveries.iter().map(delay).min().unwrap_or_default().as_secs_f64());
    println!("median_seconds: {:.2}", percentile(deliveries.iter().map(delay), 50).as_secs_f64());
    println!("processor_seconds_of_the_worker: {:.2}", process_cpu_time(worker.pid())?.as_secs_f64());

    // Rounds alternate between a dead receiver and none. Measured is the delay of the other receivers' deliveries after
    // the first of them.
    let mut latencies = [Vec::new(), Vec::new()];
    for round in 2..12u32 {
        let is_dead = round % 2 == 1;
        let behavior = if is_dead {
            ReceiverBehavior::DelayedOk(Duration::from_secs(3600))
        } else {
            ReceiverBehavior::Status(200)
        };
        receiver.set_behavior(DEAD_RECEIVER_PATH, behavior);
        receiver.clear_requests();
        load_new_filing(&store, round).await?;
        wait_until("all others have heard of it", Duration::from_secs(300), || async {
            receiver.request_count_excluding(DEAD_RECEIVER_PATH) == subscriptions - 1
        })
        .await;

        let requests = receiver.all_requests();
        let others = requests.iter().filter(|request| request.path != DEAD_RECEIVER_PATH);
        let times: Vec<Instant> = others.map(|request| request.received_at).collect();
        let first = times.iter().min().copied().context("some were told")?;
        latencies[usize::from(is_dead)].extend(times.into_iter().map(|time| time - first));
    }

    let [p99_alone, p99_beside_dead] = latencies.map(|times| percentile(times, 99).as_secs_f64());
    let ratio = p99_beside_dead / p99_alone;
    println!("p99_seconds: {p99_alone:.3}");
    println!("p99_seconds_beside_a_dead_one: {p99_beside_dead:.3}");
    println!("p99_ratio: {ratio:.2}");
    println!("seconds: {last:.2}");
    ensure!(last <= max_seconds, "the last one heard of it after {last:.2} s");
    if let Some(max_ratio) = max_p99_ratio {
        ensure!(ratio <= max_ratio, "beside a dead receiver others wait {ratio:.2} times as long");
    }
    Ok(())
}

/// Loads a filing delivered today.
async fn load_new_filing(store: &Store, number: u32) -> anyhow::Result<()> {
    let today = sao_paulo_date(Utc::now());
    let fetch = NewFetch::without_response(format!("filing:{number}"), Utc::now(), [3; 32]);

    let mut load = store.begin_load(Dataset::Filings, DataOrigin::Synthetic, &fetch).await?;
    load.emit_events_since(today);
    load.append_filings(&[Filing {
        id: format!("zz-new-{number:06}"),
        cvm_dataset: CvmDataset::Ipe,
        company_id: 1,
        company_name: "NOVA S.A.".into(),
        category: "Fato Relevante".into(),
        subject: format!("Nova {number}"),
        delivered_on: today,
        version: 1,
        ..Filing::default()
    }])
    .await?;
    load.commit().await?;
    Ok(())
}
