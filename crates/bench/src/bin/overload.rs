//! Sends three times as many requests as the service can answer, for a minute: `just overload`.
//!
//! The peak is the throughput of a closed loop, whose connections send the next request as soon as they have a response.
//! In the flood, requests come at three times that rate regardless of earlier ones, and each latency counts from the
//! instant the request was due: waiting for a free connection of the load generator counts like waiting in the service.
//!
//! The machine's speed varies from minute to minute, so the flood is split into segments. The peak is measured again
//! between them, and each segment is compared with the peaks before and after it. The service never rests in between: at
//! its peak it is as busy as in the flood.
//!
//! The service runs on one core; the recipe puts this program, Redis and PostgreSQL on the others. Their CPU time is not
//! the service's, and a service that slowed its load generator down would get fewer requests. The service's share of its
//! core is printed for peak and flood, because a run is worthless if other processes used that core. The requests are
//! expensive ones: for the cheapest requests, rejecting one costs nearly as much as answering it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use chrono::Utc;
use clap::Parser;
use vintem_bench::cpu_time::process_cpu_time;
use vintem_bench::open_loop::{LoadSample, measure_closed_loop_goodput, run_open_loop};
use vintem_bench::probes::{HealthProber, HealthResults};
use vintem_domain::Plan;
use vintem_testkit::build_keyed_get;
use vintem_testkit::timed_requests::percentile;
use vintem_testkit::{DEFAULT_POSTGRES_BUDGET_FLAGS, DedicatedRedis, ServerProcess, TestDatabase, create_key};

const MIN_GOODPUT_RATIO: f64 = 0.9;
const MAX_ADMITTED_P99: Duration = Duration::from_millis(250);
const MAX_SHED_P99: Duration = Duration::from_millis(50);
const MAX_HEALTH_P99: Duration = Duration::from_millis(100);
const MAX_RECOVERY_TIME: Duration = Duration::from_secs(2);
/// Number of segments of the flood; the peak is measured before and after each.
const FLOOD_SEGMENTS: u32 = 6;
/// As many such requests as the service handles concurrently: it always has work and rejects none.
const PEAK_CONNECTIONS: usize = 32;
const PEAK_DURATION: Duration = Duration::from_secs(4);
/// How long the moderate load before and after the flood lasts.
const CALM_DURATION: Duration = Duration::from_secs(5);

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

/// The service's core; the recipe keeps all other processes off it.
const SERVICE_CORE: &str = "0";

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run_overload(&arguments))
}

async fn run_overload(arguments: &Arguments) -> anyhow::Result<()> {
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(Utc::now()).await?;
    // No rate limit and no cap on the connections of one address: only load shedding may reject requests here. No
    // response cache: it would make expensive requests cheap.
    let mut flags = vec!["--limit-platinum=100000000", "--trusted-proxies=127.0.0.1/32", "--response-cache-mib=0"];
    flags.extend(DEFAULT_POSTGRES_BUDGET_FLAGS);
    flags.extend(arguments.flags.iter().map(String::as_str));
    let store = database.open_store()?;
    let mut keys = Vec::new();
    for _ in 0..200 {
        keys.push(create_key(&store, Plan::Platinum).await?.1);
    }

    let database_url = database.url();
    let redis_url = redis.url();
    let service = ServerProcess::start_on_cores(SERVICE_CORE, &arguments.vintem, &database_url, &redis_url, &flags)?;
    let address: SocketAddr = service.address.parse()?;
    let requests = Arc::new(build_requests(&keys));

    let measure_peak = async || measure_closed_loop_goodput(address, &requests, PEAK_CONNECTIONS, PEAK_DURATION).await;
    let run_load = async |rate, time| run_open_loop(address, &requests, arguments.connections, rate, time).await;
    let calm_rate = measure_peak().await? / 3.0;
    let calm = run_load(calm_rate, CALM_DURATION).await;
    let refused_in_calm = calm.iter().filter(|sample| sample.status != 200).count();

    let segment_time = Duration::from_secs(arguments.seconds) / FLOOD_SEGMENTS;
    let mut flood = Vec::new();
    let mut ratios = Vec::new();
    let mut health = HealthResults::default();
    let mut core_at_peak = Vec::new();
    let mut core_in_flood = Vec::new();
    let mut core = CpuShareMeter::start(&service)?;
    let mut peaks = vec![measure_peak().await?];
    for segment in 0..FLOOD_SEGMENTS as usize {
        core_at_peak.push(core.share_since_last_call()?);
        let prober = HealthProber::start(address);
        let samples = run_load(peaks[segment] * arguments.times, segment_time).await;
        health.append(prober.stop());
        core_in_flood.push(core.share_since_last_call()?);
        peaks.push(measure_peak().await?);

        let good = samples.iter().filter(|sample| sample.status == 200).count();
        ratios.push(good as f64 / segment_time.as_secs_f64() / f64::midpoint(peaks[segment], peaks[segment + 1]));
        flood.extend(samples);
    }
    run_load(peaks[FLOOD_SEGMENTS as usize] * arguments.times, CALM_DURATION).await;
    let after = run_load(calm_rate, CALM_DURATION).await;

    let with_status = |status: u16| flood.iter().filter(move |sample| sample.status == status);
    let latency = |status: u16, percent: usize| percentile(with_status(status).map(|sample| sample.latency), percent);
    let good = with_status(200).count();
    let shed = with_status(503).count();
    let others = flood.len() - good - shed;
    let without_retry_after = with_status(503).filter(|sample| !sample.has_retry_after).count();
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
    println!("calm_p99_milliseconds: {}", milliseconds(percentile(calm.iter().map(|sample| sample.latency), 99)));
    println!("admitted_p50_milliseconds: {}", milliseconds(latency(200, 50)));
    println!("admitted_p99_milliseconds: {}", milliseconds(latency(200, 99)));
    println!("shed_p50_milliseconds: {}", milliseconds(latency(503, 50)));
    println!("shed_p99_milliseconds: {}", milliseconds(latency(503, 99)));
    println!("shed_slowest_milliseconds: {}", milliseconds(latency(503, 100)));
    println!("health_p99_milliseconds: {}", milliseconds(health.percentile(99)));
    println!("health_slowest_milliseconds: {}", milliseconds(health.percentile(100)));
    println!("recovery_seconds: {:.2}", recovery.as_secs_f64());
    println!("goodput_ratio_lowest: {:.2}", ratios[0]);
    println!("goodput_ratio_highest: {:.2}", ratios[ratios.len() - 1]);
    println!("goodput_ratio: {goodput_ratio:.2}");

    ensure!(refused_in_calm == 0, "{refused_in_calm} were refused before there was too much");
    ensure!(
        others == 0 && without_retry_after == 0,
        "{others} answers were neither 200 nor 503, {without_retry_after} did not say when to come"
    );
    ensure!(shed > 0, "nothing was shed: it was not too much");
    ensure!(goodput_ratio >= MIN_GOODPUT_RATIO, "less than {MIN_GOODPUT_RATIO} of the peak was answered");
    ensure!(latency(200, 99) <= MAX_ADMITTED_P99, "the slowest of what was answered were too slow");
    ensure!(latency(503, 99) <= MAX_SHED_P99, "what was shed was told so too late");
    ensure!(health.failed == 0, "/health failed {} times", health.failed);
    ensure!(health.percentile(99) <= MAX_HEALTH_P99, "/health was too slow");
    ensure!(recovery <= MAX_RECOVERY_TIME, "it took too long until all was as before");
    Ok(())
}

/// Measures the service's share of its core.
struct CpuShareMeter<'s> {
    service: &'s ServerProcess,
    measured_at: Instant,
    cpu_time: Duration,
}

impl<'s> CpuShareMeter<'s> {
    fn start(service: &'s ServerProcess) -> anyhow::Result<Self> {
        Ok(Self { service, measured_at: Instant::now(), cpu_time: process_cpu_time(service.pid())? })
    }

    /// The share since the previous call.
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

/// The request that costs the most CPU and has a small response, a comparison of all series over all days, with each
/// key in turn.
fn build_requests(keys: &[String]) -> Vec<Vec<u8>> {
    let ids = "selic,cdi,ipca,selic-effective,selic-daily,cdi-daily,ipca-12m,ipca-ytd,real-selic";
    let paths: Vec<String> = (1..=8).map(|limit| format!("/api/v1/market/compare?ids={ids}&limit={limit}")).collect();
    keys.iter().flat_map(|key| paths.iter().map(|path| build_keyed_get(path, key))).collect()
}

/// When, after the flood, the last request failed or took more than twice the calm p99 plus 10 ms.
fn recovery_time(calm: &[LoadSample], after: &[LoadSample]) -> Duration {
    let max_latency = percentile(calm.iter().map(|sample| sample.latency), 99) * 2 + Duration::from_millis(10);
    let is_bad = |sample: &&LoadSample| sample.status != 200 || sample.latency > max_latency;
    let mut bad: Vec<Duration> = after.iter().filter(is_bad).map(|sample| sample.due_at + sample.latency).collect();
    bad.sort_unstable();

    // One in a hundred may be slow at any time.
    let tolerated = after.len() / 100;
    bad.len().checked_sub(tolerated + 1).map_or(Duration::ZERO, |index| bad[index])
}
