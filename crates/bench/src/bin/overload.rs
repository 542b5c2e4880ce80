//! Three times as many requests as the service can answer, for a minute: `just overload`.
//!
//! The peak is what it answers to connections that ask again as soon as they are answered. In the flood requests come at
//! three times that rate, whatever becomes of them, each reckoned from the instant at which it was due: a request that waits
//! for a free connection of the load's own is as late as one that waits in the service.
//!
//! The machine is not the same from one minute to the next, so the flood comes in pieces, with the peak found anew between
//! them, and each piece is held against the peaks on both sides of it. The service never rests meanwhile: at its peak it is as
//! busy as in the flood.
//!
//! The service runs on one core; load, Redis and PostgreSQL on the others, where the recipe puts this program and the
//! engines: what they take is not the service's doing, and a service that slowed its load down would be asked for less. How
//! much of its core the service had is printed, at the peak and in the flood: a core that others were on too is no measure.
//! The requests are of the kind that costs something: of the smallest ones being refused costs a good part of what being
//! answered does.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::ensure;
use chrono::Utc;
use clap::Parser;
use vintem_bench::cpu_time::process_cpu_time;
use vintem_bench::open_loop::{LoadSample, measure_closed_loop_goodput, run_open_loop};
use vintem_domain::Plan;
use vintem_testkit::build_keyed_get;
use vintem_testkit::timed_requests::percentile;
use vintem_testkit::{DEFAULT_POSTGRES_BUDGET_FLAGS, DedicatedRedis, ServerProcess, TestDatabase, create_key};

const MIN_GOODPUT_RATIO: f64 = 0.9;
const MAX_ADMITTED_P99: Duration = Duration::from_millis(250);
const MAX_SHED_P99: Duration = Duration::from_millis(50);
const MAX_HEALTH_P99: Duration = Duration::from_millis(100);
const MAX_RECOVERY_TIME: Duration = Duration::from_secs(2);
/// The flood comes in so many pieces, and the peak is found anew in so long.
const FLOOD_SEGMENTS: u32 = 6;
/// As many as the service has under way at once of such requests: it is never without work, and turns none away.
const PEAK_CONNECTIONS: usize = 32;
const PEAK_DURATION: Duration = Duration::from_secs(4);
/// What is far from too much comes for so long, before and after.
const CALM_DURATION: Duration = Duration::from_secs(5);
/// So often that a minute has some hundred of them, and so seldom that an address may: pages have a limit of their own.
const PROBE_INTERVAL: Duration = Duration::from_millis(150);

#[derive(Debug, Parser)]
struct Arguments {
    /// The service's binary
    #[arg(long, default_value = "target/release/vintem")]
    vintem: PathBuf,

    #[arg(long, default_value_t = 60)]
    seconds: u64,

    /// How many times the peak is offered
    #[arg(long, default_value_t = 3.0)]
    times: f64,

    /// What the load may have open at once
    #[arg(long, default_value_t = 1024)]
    connections: usize,

    /// Further flags of `vintem serve`
    #[arg(last = true)]
    flags: Vec<String>,
}

/// Where the service runs; the recipe keeps all else off it.
const SERVICE_CORE: &str = "0";

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run_overload(&arguments))
}

async fn run_overload(arguments: &Arguments) -> anyhow::Result<()> {
    let (redis, database) = (DedicatedRedis::start()?, TestDatabase::create_demo(Utc::now()).await?);
    // Limits stay out of it: what is refused here is refused for the service's own sake.
    let mut flags = vec!["--limit-platinum", "100000000"];
    flags.extend(DEFAULT_POSTGRES_BUDGET_FLAGS);
    flags.extend(arguments.flags.iter().map(String::as_str));
    let store = database.open_store()?;
    let mut keys = Vec::new();
    for _ in 0..200 {
        keys.push(create_key(&store, Plan::Platinum).await?.1);
    }
    let (database_url, redis_url) = (database.url(), redis.url());
    let service = ServerProcess::start_on_cores(SERVICE_CORE, &arguments.vintem, &database_url, &redis_url, &flags)?;
    let address: SocketAddr = service.address.parse()?;
    let requests = Arc::new(build_requests(&keys));

    let peak = async || measure_closed_loop_goodput(address, &requests, PEAK_CONNECTIONS, PEAK_DURATION).await;
    let load = async |rate, time| run_open_loop(address, &requests, arguments.connections, rate, time).await;
    let calm_rate = peak().await? / 3.0;
    let calm = load(calm_rate, CALM_DURATION).await;
    let refused_in_calm = calm.iter().filter(|reply| reply.status != 200).count();

    let piece = Duration::from_secs(arguments.seconds) / FLOOD_SEGMENTS;
    let (mut flood, mut ratios, mut health) = (Vec::new(), Vec::new(), Vec::new());
    let (mut core_at_peak, mut core_in_flood) = (Vec::new(), Vec::new());
    let mut core = CpuShareMeter::start(&service)?;
    let mut peaks = vec![peak().await?];
    for number in 0..FLOOD_SEGMENTS as usize {
        core_at_peak.push(core.share_since_last_call()?);
        let prober = HealthProber::start(address);
        let replies = load(peaks[number] * arguments.times, piece).await;
        health.extend(prober.stop()?);
        core_in_flood.push(core.share_since_last_call()?);
        peaks.push(peak().await?);
        let good = replies.iter().filter(|reply| reply.status == 200).count();
        ratios.push(good as f64 / piece.as_secs_f64() / f64::midpoint(peaks[number], peaks[number + 1]));
        flood.extend(replies);
    }
    load(peaks[FLOOD_SEGMENTS as usize] * arguments.times, CALM_DURATION).await;
    let after = load(calm_rate, CALM_DURATION).await;

    let of = |status: u16| flood.iter().filter(move |reply| reply.status == status);
    let latency = |status: u16, percent: usize| percentile(of(status).map(|reply| reply.latency), percent);
    let (good, shed) = (of(200).count(), of(503).count());
    let others = flood.len() - good - shed;
    let unsaid = of(503).filter(|reply| !reply.has_retry_after).count();
    let goodput_ratio = median(&mut ratios);
    let recovery = recovery_time(&calm, &after);
    let milliseconds = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    let seconds = arguments.seconds as f64;
    println!("peak_requests_a_second: {:.0}", median(&mut peaks));
    println!("offered_requests_a_second: {:.0}", flood.len() as f64 / seconds);
    println!("goodput_requests_a_second: {:.0}", good as f64 / seconds);
    println!("shed_requests_a_second: {:.0}", shed as f64 / seconds);
    println!("share_of_the_core_at_peak: {:.3}", median(&mut core_at_peak));
    println!("share_of_the_core_in_flood: {:.3}", median(&mut core_in_flood));
    println!("refused_in_calm: {refused_in_calm} of {}", calm.len());
    println!("calm_p99_milliseconds: {}", milliseconds(percentile(calm.iter().map(|reply| reply.latency), 99)));
    println!("admitted_p50_milliseconds: {}", milliseconds(latency(200, 50)));
    println!("admitted_p99_milliseconds: {}", milliseconds(latency(200, 99)));
    println!("shed_p50_milliseconds: {}", milliseconds(latency(503, 50)));
    println!("shed_p99_milliseconds: {}", milliseconds(latency(503, 99)));
    println!("shed_slowest_milliseconds: {}", milliseconds(latency(503, 100)));
    println!("health_p99_milliseconds: {}", milliseconds(percentile(health.iter().copied(), 99)));
    println!("health_slowest_milliseconds: {}", milliseconds(percentile(health.iter().copied(), 100)));
    println!("recovery_seconds: {:.2}", recovery.as_secs_f64());
    println!("goodput_ratio_lowest: {:.2}", ratios[0]);
    println!("goodput_ratio_highest: {:.2}", ratios[ratios.len() - 1]);
    println!("goodput_ratio: {goodput_ratio:.2}");
    ensure!(refused_in_calm == 0, "{refused_in_calm} were refused before there was too much");
    ensure!(others == 0 && unsaid == 0, "{others} answers were neither 200 nor 503, {unsaid} did not say when to come");
    ensure!(shed > 0, "nothing was shed: it was not too much");
    ensure!(goodput_ratio >= MIN_GOODPUT_RATIO, "less than {MIN_GOODPUT_RATIO} of the peak was answered");
    ensure!(latency(200, 99) <= MAX_ADMITTED_P99, "the slowest of what was answered were too slow");
    ensure!(latency(503, 99) <= MAX_SHED_P99, "what was shed was told so too late");
    ensure!(percentile(health.iter().copied(), 99) <= MAX_HEALTH_P99, "/health was too slow");
    ensure!(recovery <= MAX_RECOVERY_TIME, "it took too long until all was as before");
    Ok(())
}

/// How much of its core the service had.
struct CpuShareMeter<'s> {
    service: &'s ServerProcess,
    measured_at: Instant,
    cpu_time: Duration,
}

impl<'s> CpuShareMeter<'s> {
    fn start(service: &'s ServerProcess) -> anyhow::Result<Self> {
        Ok(Self { service, measured_at: Instant::now(), cpu_time: process_cpu_time(service.pid())? })
    }

    /// Since it was last asked.
    fn share_since_last_call(&mut self) -> anyhow::Result<f64> {
        let now = Self::start(self.service)?;
        let share = (now.cpu_time - self.cpu_time).as_secs_f64() / (now.measured_at - self.measured_at).as_secs_f64();
        *self = now;
        Ok(share)
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What of all that people ask for costs the most to reckon and is answered in a few words, with each key in turn: a
/// comparison of all series over all of their days.
fn build_requests(keys: &[String]) -> Vec<Vec<u8>> {
    let ids = "selic,cdi,ipca,selic-effective,selic-daily,cdi-daily,ipca-12m,ipca-ytd,real-selic";
    let paths: Vec<String> = (1..=8).map(|limit| format!("/api/v1/market/compare?ids={ids}&limit={limit}")).collect();
    keys.iter().flat_map(|key| paths.iter().map(|path| build_keyed_get(path, key))).collect()
}

/// Asks for `/health` while the flood lasts; by a thread, so that the load's own queue is not taken for the service's.
struct HealthProber {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Vec<Duration>>>,
}

impl HealthProber {
    fn start(address: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        Self { stop, thread: std::thread::spawn(move || probe_health(address, &stopped)) }
    }

    /// How long each answer took.
    fn stop(self) -> anyhow::Result<Vec<Duration>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the probe does not panic")
    }
}

/// On a connection of its own each, as a prober has it.
fn probe_health(address: SocketAddr, stop: &AtomicBool) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: vintem.example\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        times.push(asked.elapsed());
        ensure!(answer.starts_with(b"HTTP/1.1 200"), "/health: {}", String::from_utf8_lossy(&answer));
        std::thread::sleep(PROBE_INTERVAL.saturating_sub(asked.elapsed()));
    }
    Ok(times)
}

/// How long after the flood a request was last refused, or as slow as none in a hundred was before it.
fn recovery_time(calm: &[LoadSample], after: &[LoadSample]) -> Duration {
    let slow = percentile(calm.iter().map(|reply| reply.latency), 99) * 2 + Duration::from_millis(10);
    let is_bad = |reply: &&LoadSample| reply.status != 200 || reply.latency > slow;
    let mut bad: Vec<Duration> = after.iter().filter(is_bad).map(|reply| reply.due_at + reply.latency).collect();
    bad.sort_unstable();
    // One in a hundred may be slow at any time.
    let spare = after.len() / 100;
    bad.len().checked_sub(spare + 1).map_or(Duration::ZERO, |place| bad[place])
}
