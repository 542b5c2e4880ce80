//! What a request costs through the whole service, beside a bare axum server that sends the same bytes:
//! `just bench-request`.
//!
//! The service runs with its own Redis (without a file of its own) and a database of demo data, its request log off. The
//! load generator, Redis and the server under test share the machine's cores, so `throughput_ratio` holds all of them
//! against generator and bare server alone; `cpu_ratio` is the processor time of the serving processes only.

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
/// The least share of the bare server's throughput, and the most of its processor time.
const MIN_THROUGHPUT_RATIO: f64 = 0.6;
const MAX_CPU_RATIO: f64 = 1.4;
/// The least admissions that one call to Redis carries.
const MIN_ADMISSIONS_PER_CALL: f64 = 8.0;
/// Values that differ from answer to answer: of these only the shape is compared.
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

/// What one run came to.
#[derive(Debug, Clone, Copy)]
struct Measurement {
    requests_per_second: f64,
    /// Processor time a request, in microseconds: of the serving process, of Redis, of the load generator.
    server_cpu_micros: f64,
    redis_cpu_micros: f64,
    generator_cpu_micros: f64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(BenchCommand::Bare { path }) = &arguments.command {
        return bare_server::serve_response_from_stdin(path);
    }
    // One thread for the load: the cores are for who is measured.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run_benchmark(&arguments))
}

async fn run_benchmark(arguments: &Arguments) -> anyhow::Result<()> {
    ensure!(arguments.keys >= arguments.connections, "every connection needs a key of its own");
    let (redis, database) = (DedicatedRedis::start()?, TestDatabase::create_demo(Utc::now()).await?);
    let store = database.open_store()?;
    let mut requests = Vec::new();
    for _ in 0..arguments.keys {
        requests.push(build_keyed_get(REQUEST_PATH, &create_key(&store, Plan::Platinum).await?.1));
    }
    let service = ServerProcess::start(&arguments.vintem, &database.url(), &redis.url(), &[])?;
    let service_address: SocketAddr = service.address.parse()?;
    let answer = send_once(service_address, &requests[0]).await?;
    ensure!(answer.status() == Some(200), "the service answers {}", answer.head);
    let bare = BareServerProcess::start(REQUEST_PATH, &answer)?;
    ensure_same_response(
        &send_once(service_address, &requests[0]).await?,
        &send_once(bare.address, &requests[0]).await?,
    )?;
    println!("answer_bytes: {}", answer.head.len() + 4 + answer.body.len());
    if arguments.only_compare {
        return Ok(());
    }

    let (requests, body) = (Arc::new(requests), Arc::new(answer.body));
    let mut redis_commands = redis::Client::open(redis.url())?.get_connection()?;
    let redis_process = redis_info_field(&mut redis_commands, "server", "process_id:")?.parse()?;
    let (mut ours, mut bares, mut calls, mut admissions) = (Vec::new(), Vec::new(), 0, 0.0);
    for pair in 0..arguments.pairs {
        let calls_before = redis_script_calls(&mut redis_commands)?;
        let (run, requested) =
            measure_server(arguments, service_address, service.pid(), redis_process, &requests, &body).await?;
        calls += redis_script_calls(&mut redis_commands)? - calls_before;
        admissions += requested;
        let (bare, _) = measure_server(arguments, bare.address, bare.pid(), redis_process, &requests, &body).await?;
        println!(
            "pair {}: {:.0} beside {:.0} requests a second, {:.1} beside {:.1} us of processor time a request",
            pair + 1,
            run.requests_per_second,
            bare.requests_per_second,
            run.server_cpu_micros,
            bare.server_cpu_micros
        );
        ours.push(run);
        bares.push(bare);
    }
    let paired = |of: fn(&Measurement) -> f64| median(ours.iter().zip(&bares).map(|(our, bare)| of(our) / of(bare)));
    let (throughput, cpu) = (paired(|run| run.requests_per_second), paired(|run| run.server_cpu_micros));
    let admissions_a_call = admissions / calls as f64;
    let middle = |runs: &[Measurement], of: fn(&Measurement) -> f64| median(runs.iter().map(of));
    println!("requests_a_second: {:.0}", middle(&ours, |run| run.requests_per_second));
    println!("bare_requests_a_second: {:.0}", middle(&bares, |run| run.requests_per_second));
    println!("cpu_micros_a_request: {:.2}", middle(&ours, |run| run.server_cpu_micros));
    println!("bare_cpu_micros_a_request: {:.2}", middle(&bares, |run| run.server_cpu_micros));
    println!("redis_cpu_micros_a_request: {:.2}", middle(&ours, |run| run.redis_cpu_micros));
    println!("generator_cpu_micros_a_request: {:.2}", middle(&ours, |run| run.generator_cpu_micros));
    println!("bare_generator_cpu_micros_a_request: {:.2}", middle(&bares, |run| run.generator_cpu_micros));
    println!("admissions_a_redis_call: {admissions_a_call:.1}");
    println!("cpu_ratio: {cpu:.2}");
    println!("throughput_ratio: {throughput:.2}");
    let mut short = Vec::new();
    if admissions_a_call < MIN_ADMISSIONS_PER_CALL {
        short.push(format!("a call to Redis carries less than {MIN_ADMISSIONS_PER_CALL} admissions"));
    }
    if cpu > MAX_CPU_RATIO {
        short.push(format!("more than {MAX_CPU_RATIO} times the processor time of a bare server"));
    }
    if throughput < MIN_THROUGHPUT_RATIO {
        short.push(format!("less than {MIN_THROUGHPUT_RATIO} of the throughput of a bare server"));
    }
    ensure!(short.is_empty(), "{}", short.join("; "));
    Ok(())
}

/// One run, and how many requests were answered in all of it, warm-up included.
async fn measure_server(
    arguments: &Arguments,
    address: SocketAddr,
    server: u32,
    redis: u32,
    requests: &Arc<Vec<Vec<u8>>>,
    body: &Arc<Vec<u8>>,
) -> anyhow::Result<(Measurement, f64)> {
    let mut load = ClosedLoopLoad::start(address, arguments.connections, requests, body);
    load.run_for(Duration::from_secs(1)).await?;
    let processes = [server, redis, std::process::id()];
    let times = || -> anyhow::Result<Vec<Duration>> { processes.into_iter().map(process_cpu_time).collect() };
    let (began, answered_before, before) = (Instant::now(), load.response_count(), times()?);
    load.run_for(Duration::from_secs(arguments.seconds)).await?;
    let (answered, after, time) = ((load.response_count() - answered_before) as f64, times()?, began.elapsed());
    let micros = |process: usize| (after[process] - before[process]).as_secs_f64() * 1e6 / answered;
    let run = Measurement {
        requests_per_second: answered / time.as_secs_f64(),
        server_cpu_micros: micros(0),
        redis_cpu_micros: micros(1),
        generator_cpu_micros: micros(2),
    };
    Ok((run, load.response_count() as f64))
}

/// Refuses two answers that differ in more than the values that change from one to the next.
fn ensure_same_response(ours: &KeepAliveResponse, bare: &KeepAliveResponse) -> anyhow::Result<()> {
    ensure!(ours.body == bare.body, "the bodies differ");
    let (ours, bare): (Vec<&str>, Vec<&str>) = (ours.head.lines().collect(), bare.head.lines().collect());
    ensure!(ours.len() == bare.len(), "other headers: {ours:?} and {bare:?}");
    for (our, bare) in ours.into_iter().zip(bare) {
        let name = our.split(':').next().unwrap_or_default();
        let alike = if VARYING_HEADERS.contains(&name) {
            mask_alphanumerics(our) == mask_alphanumerics(bare)
        } else {
            our == bare
        };
        ensure!(alike, "{our:?} is not {bare:?}");
    }
    Ok(())
}

/// The same for two values of one kind and length.
fn mask_alphanumerics(text: &str) -> String {
    text.chars().map(|character| if character.is_ascii_alphanumeric() { 'x' } else { character }).collect()
}

/// Scripts that Redis has run, by its own count.
fn redis_script_calls(redis: &mut redis::Connection) -> anyhow::Result<u64> {
    let Ok(stats) = redis_info_field(redis, "commandstats", "cmdstat_evalsha:") else { return Ok(0) };
    let calls = stats.split(',').find_map(|field| field.strip_prefix("calls=")).context("no calls in commandstats")?;
    Ok(calls.parse()?)
}

fn redis_info_field(redis: &mut redis::Connection, section: &str, field: &str) -> anyhow::Result<String> {
    let told: String = redis::cmd("INFO").arg(section).query(redis)?;
    let found =
        told.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("no {field} in INFO"))?;
    Ok(found.trim().to_owned())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
