//! Clients that dawdle, beside ordinary ones: `just slow-clients`.
//!
//! Of 2,400 connections 1,000 send nothing, 1,000 half a request head, 200 a byte of a body a second, and 200 read a long
//! response at a kilobyte a second. Each is opened again when the server has closed it. They come from 200 addresses, so
//! that the limits per address spare them. Another caller sends 300 requests a second meanwhile; its latency is compared
//! with that before they came.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::ensure;
use chrono::Utc;
use clap::Parser;
use tokio::task::JoinSet;
use vintem_bench::open_loop::run_open_loop;
use vintem_bench::probes::{HealthProber, MemoryWatch};
use vintem_bench::slow_connections::{AttackTarget, SlowClient, attacker_addresses};
use vintem_domain::Plan;
use vintem_testkit::timed_requests::percentile;
use vintem_testkit::{DedicatedRedis, ServerProcess, TestDatabase, build_keyed_get, create_key};

const ADDRESSES: u8 = 200;
/// Free keys of the slow readers.
const READER_KEYS: usize = 20;
/// Requests a second of the ordinary caller, and the connections that it may use.
const RATE: f64 = 300.0;
const CONNECTIONS: usize = 32;
const BASELINE_DURATION: Duration = Duration::from_secs(10);

const MAX_HEAD_WAIT: Duration = Duration::from_secs(10);
const MAX_BODY_WAIT: Duration = Duration::from_secs(15);
/// The p99 may be this many times that of the baseline, or this long.
const MAX_P99_RATIO: f64 = 2.0;
const MAX_P99: Duration = Duration::from_millis(25);
const MAX_HEALTH_P99: Duration = Duration::from_millis(100);
const MAX_MEMORY_GROWTH_BYTES: u64 = 128 << 20;
const MAX_SHUTDOWN: Duration = Duration::from_secs(10);
/// Until the last connections have been noticed as closed.
const MAX_SETTLING: Duration = Duration::from_secs(15);

#[derive(Debug, Parser)]
struct Arguments {
    /// The service's binary
    #[arg(long, default_value = "target/release/vintem")]
    vintem: PathBuf,

    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// Clients of one kind.
struct Group {
    name: &'static str,
    client: SlowClient,
    count: usize,
    /// By when the server must have closed a connection.
    max_wait: Duration,
    /// How long each connection was held.
    held: Arc<Mutex<Vec<Duration>>>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    rlimit::increase_nofile_limit(u64::MAX)?;
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?.block_on(run(&arguments))
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(Utc::now()).await?;
    let store = database.open_store()?;
    let key = create_key(&store, Plan::Gold).await?.1;
    let mut reader_keys = Vec::new();
    for _ in 0..READER_KEYS {
        reader_keys.push(create_key(&store, Plan::Free).await?.1);
    }
    let flags = ["--limit-gold=10000000", "--limit-free=10000000"];
    let mut service = ServerProcess::start(&arguments.vintem, &database.url(), &redis.url(), &flags)?;
    let address: SocketAddr = service.address.parse()?;

    let requests = Arc::new(ordinary_requests(&key));
    let baseline = run_open_loop(address, &requests, CONNECTIONS, RATE, BASELINE_DURATION).await;
    let baseline_p99 = percentile(baseline.iter().map(|sample| sample.latency), 99);
    // Until the connections of the baseline are closed.
    tokio::time::sleep(MAX_SETTLING).await;
    let descriptors_before = count_descriptors(service.pid())?;

    let groups = groups(reader_keys);
    let target = AttackTarget { address, sources: attacker_addresses(ADDRESSES) };
    let memory = MemoryWatch::start(service.pid())?;
    let health = HealthProber::start(address);
    let mut slow = start_clients(&groups, &target);
    let time = Duration::from_secs(arguments.seconds);
    let samples = run_open_loop(address, &requests, CONNECTIONS, RATE, time).await;
    let health = health.stop();
    let memory_growth_bytes = memory.stop();
    slow.shutdown().await;
    let descriptors_after = wait_for_descriptors(service.pid(), descriptors_before).await?;
    let mut late = 0;
    for group in &groups {
        late += group.report();
    }

    // Open connections don't delay the shutdown.
    let mut slow = start_clients(&groups, &target);
    tokio::time::sleep(Duration::from_secs(1)).await;
    service.terminate()?;
    let terminated_at = Instant::now();
    let status = tokio::task::block_in_place(|| service.wait_timeout(MAX_SHUTDOWN))?;
    let shutdown = terminated_at.elapsed();
    slow.shutdown().await;

    let p99 = percentile(samples.iter().map(|sample| sample.latency), 99);
    let refused = samples.iter().filter(|sample| sample.status != 200).count();
    let milliseconds = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    println!("baseline_p99_milliseconds: {}", milliseconds(baseline_p99));
    println!("health_p99_milliseconds: {}", milliseconds(health.percentile(99)));
    println!("memory_growth_mib: {}", memory_growth_bytes >> 20);
    println!("descriptors: {descriptors_before} before, {descriptors_after} after");
    println!("shutdown_seconds: {:.1}", shutdown.as_secs_f64());
    println!("closed_too_late: {late}");
    println!("refused: {refused} of {}", samples.len());
    println!("p99_milliseconds: {}", milliseconds(p99));

    ensure!(late == 0, "{late} connections were closed too late");
    ensure!(refused == 0, "{refused} requests were refused");
    ensure!(p99 <= MAX_P99.max(baseline_p99.mul_f64(MAX_P99_RATIO)), "ordinary requests were too slow");
    ensure!(health.failed == 0, "/health failed {} times", health.failed);
    ensure!(health.percentile(99) <= MAX_HEALTH_P99, "/health was too slow");
    ensure!(memory_growth_bytes <= MAX_MEMORY_GROWTH_BYTES, "memory grew too much");
    ensure!(descriptors_after <= descriptors_before, "descriptors stayed open");
    ensure!(status.is_some_and(|status| status.success()), "the service did not stop in time: {status:?}");
    Ok(())
}

fn ordinary_requests(key: &str) -> Vec<Vec<u8>> {
    let targets = [
        "/api/v1/market/selic/current",
        "/api/v1/market/fx?limit=20",
        "/api/v1/filings?limit=20",
        "/api/v1/filings/search?q=dividendos&limit=20",
    ];
    targets.iter().map(|target| build_keyed_get(target, key)).collect()
}

fn groups(reader_keys: Vec<String>) -> [Group; 4] {
    let group = |name, client, count, max_wait| Group { name, client, count, max_wait, held: Arc::default() };
    [
        group("silent", SlowClient::Silent, 1000, MAX_HEAD_WAIT),
        group("half_sent", SlowClient::HalfSent, 1000, MAX_HEAD_WAIT),
        group("slow_body", SlowClient::SlowBody, 200, MAX_BODY_WAIT),
        group("slow_reader", SlowClient::SlowReader { keys: Arc::new(reader_keys) }, 200, MAX_BODY_WAIT),
    ]
}

impl Group {
    /// Prints how long connections were held, and returns how many were held too long.
    fn report(&self) -> usize {
        let held = self.held.lock().expect("never held across a panic");
        let late = held.iter().filter(|held| **held > self.max_wait).count();
        println!("{}_connections: {}", self.name, held.len());
        println!("{}_held_p50_seconds: {:.1}", self.name, percentile(held.iter().copied(), 50).as_secs_f64());
        println!("{}_held_longest_seconds: {:.1}", self.name, percentile(held.iter().copied(), 100).as_secs_f64());
        late
    }
}

fn start_clients(groups: &[Group], target: &AttackTarget) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for group in groups {
        for number in 0..group.count {
            let client = group.client.clone();
            let target = target.clone();
            let held = group.held.clone();
            tasks.spawn(async move {
                loop {
                    let started = Instant::now();
                    // The server may end a connection with an error or without one.
                    let _ = client.hold(&target, number).await;
                    held.lock().expect("never held across a panic").push(started.elapsed());
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
        }
    }
    tasks
}

fn count_descriptors(pid: u32) -> anyhow::Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// The number of open descriptors, once it is down to `expected` or too much time has passed.
async fn wait_for_descriptors(pid: u32, expected: usize) -> anyhow::Result<usize> {
    let started = Instant::now();
    loop {
        let count = count_descriptors(pid)?;
        if count <= expected || started.elapsed() > MAX_SETTLING {
            return Ok(count);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
