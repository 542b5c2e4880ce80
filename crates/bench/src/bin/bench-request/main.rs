//! Compares the cost of a request through the whole service with a bare axum server that sends the same bytes:
//! `just bench-request`.
//!
//! The service runs with a dedicated in-memory Redis and a database of demo data, its request log off. The load
//! generator, Redis and the server under test share the machine's cores, so `throughput_ratio` compares all three with
//! generator and bare server alone; `cpu_ratio` is the CPU time of the serving processes only.

mod bare_server;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bare_server::BareServerProcess;
use chrono::Utc;
use clap::{Parser, Subcommand};
use vintem_bench::closed_loop::{ClosedLoopLoad, KeepAliveResponse, send_once};
use vintem_bench::cpu_time::process_cpu_time;
use vintem_domain::Plan;
use vintem_testkit::build_keyed_get;
use vintem_testkit::{DedicatedRedis, ServerProcess, TestDatabase, create_key};

const REQUEST_PATH: &str = "/api/v1/market/selic/current";
/// Minimum share of the bare server's throughput, and maximum multiple of its CPU time.
const MIN_THROUGHPUT_RATIO: f64 = 0.6;
const MAX_CPU_RATIO: f64 = 1.4;
/// Minimum number of admissions per call to Redis.
const MIN_ADMISSIONS_PER_CALL: f64 = 8.0;
/// Headers whose values differ between responses; only their shape is compared.
const VARYING_HEADERS: [&str; 5] = ["date", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit", "x-request-id"];

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<BenchCommand>,

    /// The service's binary
    #[arg(long, default_value = "target/release/vintem")]
    vintem: PathBuf,

    /// Platinum keys that the requests are spread over
    #[arg(long, default_value_t = 5_000)]
    keys: usize,

    #[arg(long, default_value_t = 128)]
    connections: usize,

    /// How often each of the two is measured, in turns
    #[arg(long, default_value_t = 11)]
    pairs: usize,

    /// How long each time, after a warm-up of a second
    #[arg(long, default_value_t = 5)]
    seconds: u64,

    /// Only hold the two answers against each other, and measure nothing
    #[arg(long)]
    only_compare: bool,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Serves the answer that comes on standard input at a path, as the bare server
    #[command(hide = true)]
    Bare { path: String },
}

/// The result of one run.
#[derive(Debug, Clone, Copy)]
struct Measurement {
    requests_per_second: f64,
    /// CPU time per request, in microseconds: of the serving process, of Redis, of the load generator.
    server_cpu_micros: f64,
    redis_cpu_micros: f64,
    generator_cpu_micros: f64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(BenchCommand::Bare { path }) = &arguments.command {
        return bare_server::serve_response_from_stdin(path);
    }
    // One thread for the load leaves the cores to the measured processes.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run_benchmark(&arguments))
}

async fn run_benchmark(arguments: &Arguments) -> anyhow::Result<()> {
    ensure!(arguments.keys >= arguments.connections, "every connection needs a key of its own");

    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(Utc::now()).await?;
    let store = database.open_store()?;
    let mut requests = Vec::new();
    for _ in 0..arguments.keys {
        requests.push(build_keyed_get(REQUEST_PATH, &create_key(&store, Plan::Platinum).await?.1));
    }

    let service = ServerProcess::start(&arguments.vintem, &database.url(), &redis.url(), &[])?;
    let service_address: SocketAddr = service.address.parse()?;
    let response = send_once(service_address, &requests[0]).await?;
    ensure!(response.status() == Some(200), "the service answers {}", response.head);

    let bare_server = BareServerProcess::start(REQUEST_PATH, &response)?;
    ensure_same_response(
        &send_once(service_address, &requests[0]).await?,
        &send_once(bare_server.address, &requests[0]).await?,
    )?;
    println!("answer_bytes: {}", response.head.len() + 4 + response.body.len());
    if arguments.only_compare {
        return Ok(());
    }

    let requests = Arc::new(requests);
    let body = Arc::new(response.body);
    let mut redis_connection = redis::Client::open(redis.url())?.get_connection()?;
    let redis_pid = redis_info_field(&mut redis_connection, "server", "process_id:")?.parse()?;
    let mut service_runs = Vec::new();
    let mut bare_runs = Vec::new();
    let mut redis_calls = 0;
    let mut admissions = 0.0;
    for pair in 0..arguments.pairs {
        let calls_before = redis_script_calls(&mut redis_connection)?;
        let (service_run, responses) =
            measure_server(arguments, service_address, service.pid(), redis_pid, &requests, &body).await?;
        redis_calls += redis_script_calls(&mut redis_connection)? - calls_before;
        admissions += responses;
        let (bare_run, _) =
            measure_server(arguments, bare_server.address, bare_server.pid(), redis_pid, &requests, &body).await?;
        println!(
            "pair {}: {:.0} beside {:.0} requests a second, {:.1} beside {:.1} us of processor time a request",
            pair + 1,
            service_run.requests_per_second,
            bare_run.requests_per_second,
            service_run.server_cpu_micros,
            bare_run.server_cpu_micros
        );
        service_runs.push(service_run);
        bare_runs.push(bare_run);
    }

    let median_ratio = |value: fn(&Measurement) -> f64| {
        median(service_runs.iter().zip(&bare_runs).map(|(service, bare)| value(service) / value(bare)))
    };
    let throughput_ratio = median_ratio(|run| run.requests_per_second);
    let cpu_ratio = median_ratio(|run| run.server_cpu_micros);
    let admissions_per_call = admissions / redis_calls as f64;
    let median_of = |runs: &[Measurement], value: fn(&Measurement) -> f64| median(runs.iter().map(value));
    println!("requests_a_second: {:.0}", median_of(&service_runs, |run| run.requests_per_second));
    println!("bare_requests_a_second: {:.0}", median_of(&bare_runs, |run| run.requests_per_second));
    println!("cpu_micros_a_request: {:.2}", median_of(&service_runs, |run| run.server_cpu_micros));
    println!("bare_cpu_micros_a_request: {:.2}", median_of(&bare_runs, |run| run.server_cpu_micros));
    println!("redis_cpu_micros_a_request: {:.2}", median_of(&service_runs, |run| run.redis_cpu_micros));
    println!("generator_cpu_micros_a_request: {:.2}", median_of(&service_runs, |run| run.generator_cpu_micros));
    println!("bare_generator_cpu_micros_a_request: {:.2}", median_of(&bare_runs, |run| run.generator_cpu_micros));
    println!("admissions_a_redis_call: {admissions_per_call:.1}");
    println!("cpu_ratio: {cpu_ratio:.2}");
    println!("throughput_ratio: {throughput_ratio:.2}");

    let mut failures = Vec::new();
    if admissions_per_call < MIN_ADMISSIONS_PER_CALL {
        failures.push(format!("a call to Redis carries less than {MIN_ADMISSIONS_PER_CALL} admissions"));
    }
    if cpu_ratio > MAX_CPU_RATIO {
        failures.push(format!("more than {MAX_CPU_RATIO} times the processor time of a bare server"));
    }
    if throughput_ratio < MIN_THROUGHPUT_RATIO {
        failures.push(format!("less than {MIN_THROUGHPUT_RATIO} of the throughput of a bare server"));
    }
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(())
}

/// Measures one run; also returns the number of responses including the warm-up.
async fn measure_server(
    arguments: &Arguments,
    address: SocketAddr,
    server_pid: u32,
    redis_pid: u32,
    requests: &Arc<Vec<Vec<u8>>>,
    body: &Arc<Vec<u8>>,
) -> anyhow::Result<(Measurement, f64)> {
    let mut load = ClosedLoopLoad::start(address, arguments.connections, requests, body);
    load.run_for(Duration::from_secs(1)).await?;

    let pids = [server_pid, redis_pid, std::process::id()];
    let cpu_times = || -> anyhow::Result<Vec<Duration>> { pids.into_iter().map(process_cpu_time).collect() };
    let started = Instant::now();
    let responses_before = load.response_count();
    let cpu_before = cpu_times()?;
    load.run_for(Duration::from_secs(arguments.seconds)).await?;
    let responses = (load.response_count() - responses_before) as f64;
    let cpu_after = cpu_times()?;
    let elapsed = started.elapsed();

    let micros = |process: usize| (cpu_after[process] - cpu_before[process]).as_secs_f64() * 1e6 / responses;
    let run = Measurement {
        requests_per_second: responses / elapsed.as_secs_f64(),
        server_cpu_micros: micros(0),
        redis_cpu_micros: micros(1),
        generator_cpu_micros: micros(2),
    };
    Ok((run, load.response_count() as f64))
}

/// An error if two responses differ in more than the values of [`VARYING_HEADERS`].
fn ensure_same_response(ours: &KeepAliveResponse, bare: &KeepAliveResponse) -> anyhow::Result<()> {
    ensure!(ours.body == bare.body, "the bodies differ");

    let ours: Vec<&str> = ours.head.lines().collect();
    let bare: Vec<&str> = bare.head.lines().collect();
    ensure!(ours.len() == bare.len(), "other headers: {ours:?} and {bare:?}");
    for (our, bare) in ours.into_iter().zip(bare) {
        let name = our.split(':').next().unwrap_or_default();
        let is_same = if VARYING_HEADERS.contains(&name) {
            mask_alphanumerics(our) == mask_alphanumerics(bare)
        } else {
            our == bare
        };
        ensure!(is_same, "{our:?} is not {bare:?}");
    }
    Ok(())
}

/// Two values of the same shape and length have the same mask.
fn mask_alphanumerics(text: &str) -> String {
    text.chars().map(|character| if character.is_ascii_alphanumeric() { 'x' } else { character }).collect()
}

/// The number of scripts that Redis has run, by its own count.
fn redis_script_calls(redis: &mut redis::Connection) -> anyhow::Result<u64> {
    let Ok(stats) = redis_info_field(redis, "commandstats", "cmdstat_evalsha:") else { return Ok(0) };
    let calls = stats.split(',').find_map(|field| field.strip_prefix("calls=")).context("no calls in commandstats")?;
    Ok(calls.parse()?)
}

fn redis_info_field(redis: &mut redis::Connection, section: &str, field: &str) -> anyhow::Result<String> {
    let info: String = redis::cmd("INFO").arg(section).query(redis)?;
    let value =
        info.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("no {field} in INFO"))?;
    Ok(value.trim().to_owned())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
