//! Compares the cost of a request through the whole service with a bare axum server that sends the same bytes:
//! `just bench-request`.
//!
//! Each round measures every client on both servers, so that a slow moment of the machine meets all of them.
//!
//! The service runs with a dedicated in-memory Redis and a database of demo data, its request log off. The load
//! generator, Redis and the server under test share the machine's cores, so `throughput_ratio` compares all three with
//! generator and bare server alone; `cpu_ratio` is the CPU time of the serving processes only. The headline is the mean
//! over the responses of `workload.rs` to a browser's headers, each of which the bare server got compressed once.

mod workload;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use chrono::Utc;
use clap::{Parser, Subcommand};
use vintem_bench::bare_server::{self, BareServerProcess};
use vintem_bench::closed_loop::{ClosedLoopLoad, ExpectedRequest, KeepAliveResponse, send_once};
use vintem_bench::cpu_time::process_cpu_time;
use vintem_testkit::{DedicatedRedis, ServerProcess, TestDatabase};
use workload::{Answer, BROWSER, CURL, Client, REQUESTS, answers, create_platinum_keys};

/// Minimum share of the bare server's throughput, and maximum multiple of its CPU time, for the headline.
const MIN_THROUGHPUT_RATIO: f64 = 0.5;
const MAX_CPU_RATIO: f64 = 1.5;
/// Minimum throughput with a browser's headers, as a share of that without compression, by answer.
const MIN_BROWSER_SHARES: [(&str, f64); 3] = [("current_value", 0.9), ("list_of_20", 0.9), ("filings_100", 0.6)];
/// Maximum CPU time of 100 filings with a browser's headers, as a multiple of that without compression.
const MAX_COMPRESSED_CPU_RATIO: f64 = 1.5;
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

    #[arg(long, default_value_t = 64)]
    connections: usize,

    /// How often each server is measured with each client and answer, in turns
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// How long each time, after a warm-up of a second
    #[arg(long, default_value_t = 3)]
    seconds: u64,

    /// Only hold the responses of the two servers against each other, and measure nothing
    #[arg(long)]
    only_compare: bool,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Serves the responses that come on standard input, as the bare server
    #[command(hide = true)]
    Bare,
}

/// The result of one run.
#[derive(Debug, Clone, Copy)]
struct Measurement {
    requests_per_second: f64,
    /// CPU time per request, in microseconds.
    server_cpu_micros: f64,
    redis_cpu_micros: f64,
}

/// The medians of one answer and client, and the medians of the ratios between runs that followed each other.
#[derive(Debug, Clone, Copy)]
struct Comparison {
    service: Measurement,
    throughput_ratio: f64,
    cpu_ratio: f64,
    cpu_ratio_with_redis: f64,
}

/// One client's requests for one answer, and what was measured with them in each round.
struct Contest {
    client: Client,
    bare_server: BareServerProcess,
    requests: Arc<Vec<ExpectedRequest>>,
    service_runs: Vec<Measurement>,
    bare_runs: Vec<Measurement>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(BenchCommand::Bare) = &arguments.command {
        return bare_server::serve_responses_from_stdin();
    }
    // One thread for the load leaves the cores to the measured processes.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run_benchmark(&arguments))
}

async fn run_benchmark(arguments: &Arguments) -> anyhow::Result<()> {
    ensure!(arguments.keys >= arguments.connections, "every connection needs a key of its own");
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(Utc::now()).await?;
    let keys = create_platinum_keys(&database.open_store()?, arguments.keys).await?;
    let service = ServerProcess::start(&arguments.vintem, &database.url(), &redis.url(), &[])?;
    let mut bench = Bench { arguments, keys, service, redis: RedisStats::connect(&redis.url())?, admissions: 0.0 };

    let mut browser_comparisons = Vec::new();
    let mut failures = Vec::new();
    for answer in answers() {
        let mut contests = Vec::new();
        for client in [BROWSER, REQUESTS, CURL] {
            contests.push(bench.prepare(&answer, client).await?);
        }
        if arguments.only_compare {
            continue;
        }

        for _ in 0..arguments.rounds {
            for contest in &mut contests {
                bench.measure_round(contest).await?;
            }
        }
        for contest in &contests {
            contest.compare().print(&format!("{}_{}", answer.name, contest.client.name));
        }
        let [browser, _, curl] = &contests[..] else { unreachable!("one contest for each client") };
        failures.extend(check_browser_share(&answer, browser, curl));
        if answer.is_in_headline {
            browser_comparisons.push(browser.compare());
        }
    }
    if arguments.only_compare {
        return Ok(());
    }

    failures.extend(bench.check_admissions_per_call()?);
    failures.extend(check_headline(&browser_comparisons));
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(())
}

/// Compression must pay: prints what a browser's headers cost and save, and says which bound is missed. What they cost
/// the bare server is printed beside it.
fn check_browser_share(answer: &Answer, browser: &Contest, curl: &Contest) -> Vec<String> {
    let name = answer.name;
    let throughput = |run: &Measurement| run.requests_per_second;
    let share = median_ratio(&browser.service_runs, &curl.service_runs, throughput, throughput);
    let bare_share = median_ratio(&browser.bare_runs, &curl.bare_runs, throughput, throughput);
    let cpu_micros = |run: &Measurement| run.server_cpu_micros;
    let cpu = median_ratio(&browser.service_runs, &curl.service_runs, cpu_micros, cpu_micros);
    println!("{name}_browser_to_curl_cpu: {cpu:.2}");
    println!("{name}_browser_to_curl_throughput_bare: {bare_share:.2}");
    println!("{name}_browser_to_curl_throughput: {share:.2}");

    let mut failures = Vec::new();
    let minimum = MIN_BROWSER_SHARES.iter().find(|(bounded, _)| *bounded == name).map(|(_, minimum)| *minimum);
    if minimum.is_some_and(|minimum| share < minimum) {
        failures.push(format!("{name}: a browser gets {share:.2} of the throughput of curl"));
    }
    if name == "filings_100" && cpu > MAX_COMPRESSED_CPU_RATIO {
        failures.push(format!("{name}: a browser costs {cpu:.2} times the processor time of curl"));
    }
    failures
}

fn check_headline(comparisons: &[Comparison]) -> Vec<String> {
    let mean = |value: fn(&Comparison) -> f64| comparisons.iter().map(value).sum::<f64>() / comparisons.len() as f64;
    let cpu_ratio = mean(|comparison| comparison.cpu_ratio);
    let throughput_ratio = mean(|comparison| comparison.throughput_ratio);
    println!("cpu_ratio_with_redis: {:.2}", mean(|comparison| comparison.cpu_ratio_with_redis));
    println!("cpu_ratio: {cpu_ratio:.2}");
    println!("throughput_ratio: {throughput_ratio:.2}");

    let mut failures = Vec::new();
    if cpu_ratio > MAX_CPU_RATIO {
        failures.push(format!("more than {MAX_CPU_RATIO} times the processor time of a bare server"));
    }
    if throughput_ratio < MIN_THROUGHPUT_RATIO {
        failures.push(format!("less than {MIN_THROUGHPUT_RATIO} of the throughput of a bare server"));
    }
    failures
}

/// The service under test, and what is counted about it.
struct Bench<'a> {
    arguments: &'a Arguments,
    keys: Vec<String>,
    service: ServerProcess,
    redis: RedisStats,
    /// Requests that the service admitted during measurements.
    admissions: f64,
}

impl Bench<'_> {
    /// Starts a bare server with the responses to a client, and checks that both servers send the same.
    async fn prepare(&self, answer: &Answer, client: Client) -> anyhow::Result<Contest> {
        let service_address: SocketAddr = self.service.address.parse()?;
        let mut responses = Vec::new();
        for (target, key) in answer.targets.iter().zip(self.keys.iter().cycle()) {
            let response = send_once(service_address, &client.build_get(target, key)).await?;
            ensure!(response.status() == Some(200), "the service answers {}", response.head);
            responses.push((target.clone(), response));
        }

        let bare_server = BareServerProcess::start(&responses)?;
        let (target, response) = &responses[0];
        let request = client.build_get(target, &self.keys[0]);
        ensure_same_response(
            &send_once(service_address, &request).await?,
            &send_once(bare_server.address, &request).await?,
        )?;
        println!("{}_{}_body_bytes: {}", answer.name, client.name, response.body.len());

        let bodies: Vec<(&String, Arc<Vec<u8>>)> =
            responses.iter().map(|(target, response)| (target, Arc::new(response.body.clone()))).collect();
        let requests = self
            .keys
            .iter()
            .zip(bodies.iter().cycle())
            .map(|(key, (target, body))| ExpectedRequest { request: client.build_get(target, key), body: body.clone() })
            .collect();
        let requests = Arc::new(requests);
        Ok(Contest { client, bare_server, requests, service_runs: Vec::new(), bare_runs: Vec::new() })
    }

    /// Measures the service and then the bare server.
    async fn measure_round(&mut self, contest: &mut Contest) -> anyhow::Result<()> {
        let calls_before = self.redis.script_calls()?;
        let (run, responses) =
            self.measure(self.service.address.parse()?, self.service.pid(), &contest.requests).await?;
        self.redis.measured_calls += self.redis.script_calls()? - calls_before;
        self.admissions += responses;
        contest.service_runs.push(run);

        let bare_server = &contest.bare_server;
        let (run, _) = self.measure(bare_server.address, bare_server.pid(), &contest.requests).await?;
        contest.bare_runs.push(run);
        Ok(())
    }

    /// Measures one run; also returns the number of responses including the warm-up.
    async fn measure(
        &self,
        address: SocketAddr,
        server_pid: u32,
        requests: &Arc<Vec<ExpectedRequest>>,
    ) -> anyhow::Result<(Measurement, f64)> {
        let mut load = ClosedLoopLoad::start(address, self.arguments.connections, requests);
        load.run_for(Duration::from_secs(1)).await?;

        let pids = [server_pid, self.redis.pid];
        let cpu_times = || -> anyhow::Result<Vec<Duration>> { pids.into_iter().map(process_cpu_time).collect() };
        let started = Instant::now();
        let responses_before = load.response_count();
        let cpu_before = cpu_times()?;
        load.run_for(Duration::from_secs(self.arguments.seconds)).await?;
        let responses = (load.response_count() - responses_before) as f64;
        let cpu_after = cpu_times()?;
        let elapsed = started.elapsed();

        let micros = |process: usize| (cpu_after[process] - cpu_before[process]).as_secs_f64() * 1e6 / responses;
        let run = Measurement {
            requests_per_second: responses / elapsed.as_secs_f64(),
            server_cpu_micros: micros(0),
            redis_cpu_micros: micros(1),
        };
        Ok((run, load.response_count() as f64))
    }

    fn check_admissions_per_call(&self) -> anyhow::Result<Option<String>> {
        let admissions_per_call = self.admissions / self.redis.measured_calls as f64;
        println!("admissions_a_redis_call: {admissions_per_call:.1}");
        let is_low = admissions_per_call < MIN_ADMISSIONS_PER_CALL;
        Ok(is_low.then(|| format!("a call to Redis carries less than {MIN_ADMISSIONS_PER_CALL} admissions")))
    }
}

impl Contest {
    fn compare(&self) -> Comparison {
        let median_of = |value: fn(&Measurement) -> f64| median(self.service_runs.iter().map(value));
        let ratio =
            |value: fn(&Measurement) -> f64, bare| median_ratio(&self.service_runs, &self.bare_runs, value, bare);
        let throughput = |run: &Measurement| run.requests_per_second;
        let cpu = |run: &Measurement| run.server_cpu_micros;
        Comparison {
            service: Measurement {
                requests_per_second: median_of(throughput),
                server_cpu_micros: median_of(cpu),
                redis_cpu_micros: median_of(|run| run.redis_cpu_micros),
            },
            throughput_ratio: ratio(throughput, throughput),
            cpu_ratio: ratio(cpu, cpu),
            cpu_ratio_with_redis: ratio(|run| run.server_cpu_micros + run.redis_cpu_micros, cpu),
        }
    }
}

impl Comparison {
    fn print(&self, name: &str) {
        println!("{name}_requests_a_second: {:.0}", self.service.requests_per_second);
        println!("{name}_cpu_micros: {:.2}", self.service.server_cpu_micros);
        println!("{name}_redis_cpu_micros: {:.2}", self.service.redis_cpu_micros);
        println!("{name}_cpu_ratio: {:.2}", self.cpu_ratio);
        println!("{name}_throughput_ratio: {:.2}", self.throughput_ratio);
    }
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

/// What Redis says of itself.
struct RedisStats {
    connection: redis::Connection,
    pid: u32,
    /// Scripts that ran during measurements.
    measured_calls: u64,
}

impl RedisStats {
    fn connect(url: &str) -> anyhow::Result<Self> {
        let mut connection = redis::Client::open(url)?.get_connection()?;
        let pid = redis_info_field(&mut connection, "server", "process_id:")?.parse()?;
        Ok(Self { connection, pid, measured_calls: 0 })
    }

    /// The number of scripts that Redis has run, by its own count.
    fn script_calls(&mut self) -> anyhow::Result<u64> {
        let Ok(stats) = redis_info_field(&mut self.connection, "commandstats", "cmdstat_evalsha:") else {
            return Ok(0);
        };
        let calls =
            stats.split(',').find_map(|field| field.strip_prefix("calls=")).context("no calls in commandstats")?;
        Ok(calls.parse()?)
    }
}

fn redis_info_field(redis: &mut redis::Connection, section: &str, field: &str) -> anyhow::Result<String> {
    let info: String = redis::cmd("INFO").arg(section).query(redis)?;
    let value =
        info.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("no {field} in INFO"))?;
    Ok(value.trim().to_owned())
}

/// The median over the rounds of the ratios within each round.
fn median_ratio(
    runs: &[Measurement],
    base_runs: &[Measurement],
    value: fn(&Measurement) -> f64,
    base_value: fn(&Measurement) -> f64,
) -> f64 {
    median(runs.iter().zip(base_runs).map(|(run, base)| value(run) / base_value(base)))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
