//! Three times as many requests as the service can answer, for a minute: `just overload`.
//!
//! First the peak of what it answers is found, by connections that ask again as soon as they are answered. Then requests
//! come at three times that rate, whatever becomes of them, each reckoned from the instant at which it was due: a request
//! that waits for a free connection of the load's own is as late as one that waits in the service.
//!
//! The service runs on one core, load and Redis on the others: what the load takes is not the service's doing, and a service
//! that slowed its load down would be asked for less. PostgreSQL runs wherever there is room. The requests are of the kind
//! that costs something: of the smallest ones being refused costs a good part of what being answered does.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use chrono::Utc;
use clap::Parser;
use vintem_domain::Plan;
use vintem_testkit::load::keyed_get;
use vintem_testkit::open_load::{Reply, closed_goodput, open_load};
use vintem_testkit::pace::percentile;
use vintem_testkit::{OwnRedis, ServedProcess, TestDatabase, create_key};

const LEAST_GOODPUT: f64 = 0.9;
const MOST_ADMITTED_P99: Duration = Duration::from_millis(250);
const MOST_SHED_P99: Duration = Duration::from_millis(50);
const MOST_HEALTH_P99: Duration = Duration::from_millis(100);
const MOST_RECOVERY: Duration = Duration::from_secs(2);
/// So often that a minute has some hundred of them, and so seldom that an address may: pages have a limit of their own.
const BETWEEN_PROBES: Duration = Duration::from_millis(150);

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

/// Where the service runs; the load and what it starts keep off it.
const CORE_OF_THE_SERVICE: usize = 0;

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    leave_the_core_to_the_service()?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(overload(&arguments))
}

async fn overload(arguments: &Arguments) -> anyhow::Result<()> {
    let (redis, database) = (OwnRedis::start()?, TestDatabase::demo(Utc::now()).await?);
    // Limits stay out of it: what is refused here is refused for the service's own sake.
    let mut flags = vec!["--limit-platinum", "100000000"];
    flags.extend(arguments.flags.iter().map(String::as_str));
    let store = database.store()?;
    let mut keys = Vec::new();
    for _ in 0..200 {
        keys.push(create_key(&store, Plan::Platinum).await?.1);
    }
    let service = ServedProcess::start_on(
        &CORE_OF_THE_SERVICE.to_string(),
        &arguments.vintem,
        &database.url(),
        &redis.url(),
        &flags,
    )?;
    let address: SocketAddr = service.address.parse()?;
    let requests = Arc::new(requests(&keys));

    closed_goodput(address, &requests, 32, Duration::from_secs(3)).await?;
    let peak_before = peak(address, &requests).await?;
    let calm_rate = peak_before / 3.0;
    let calm = open_load(address, &requests, arguments.connections, calm_rate, Duration::from_secs(5)).await;
    let refused_in_calm = calm.iter().filter(|reply| reply.status != 200).count();

    let stop = Arc::new(AtomicBool::new(false));
    let probes = std::thread::spawn({
        let stop = stop.clone();
        move || probe_health(address, &stop)
    });
    let time = Duration::from_secs(arguments.seconds);
    let flood = open_load(address, &requests, arguments.connections, peak_before * arguments.times, time).await;
    stop.store(true, Ordering::Relaxed);
    let health = probes.join().expect("the probe does not panic")?;
    let after = open_load(address, &requests, arguments.connections, calm_rate, Duration::from_secs(5)).await;
    // The machine is not the same from one minute to the next: the flood lies between the two.
    let peak = f64::midpoint(peak_before, peak(address, &requests).await?);

    let of = |status: u16| flood.iter().filter(move |reply| reply.status == status);
    let latency = |status: u16, percent: usize| percentile(of(status).map(|reply| reply.latency), percent);
    let (good, shed) = (of(200).count(), of(503).count());
    let others = flood.len() - good - shed;
    let unsaid = of(503).filter(|reply| !reply.says_when).count();
    let goodput = good as f64 / time.as_secs_f64();
    let recovery = recovery(&calm, &after);
    let milliseconds = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    println!("peak_requests_a_second: {peak:.0}");
    println!("peak_before_requests_a_second: {peak_before:.0}");
    println!("offered_requests_a_second: {:.0}", flood.len() as f64 / time.as_secs_f64());
    println!("goodput_requests_a_second: {goodput:.0}");
    println!("shed_requests_a_second: {:.0}", shed as f64 / time.as_secs_f64());
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
    println!("goodput_ratio: {:.2}", goodput / peak);
    ensure!(refused_in_calm == 0, "{refused_in_calm} were refused before there was too much");
    ensure!(others == 0 && unsaid == 0, "{others} answers were neither 200 nor 503, {unsaid} did not say when to come");
    ensure!(shed > 0, "nothing was shed: it was not too much");
    ensure!(goodput >= LEAST_GOODPUT * peak, "less than {LEAST_GOODPUT} of the peak was answered");
    ensure!(latency(200, 99) <= MOST_ADMITTED_P99, "the slowest of what was answered were too slow");
    ensure!(latency(503, 99) <= MOST_SHED_P99, "what was shed was told so too late");
    ensure!(percentile(health.iter().copied(), 99) <= MOST_HEALTH_P99, "/health was too slow");
    ensure!(recovery <= MOST_RECOVERY, "it took too long until all was as before");
    Ok(())
}

/// What this process starts from now on inherits it.
fn leave_the_core_to_the_service() -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    ensure!(cores > 1, "one core for the service, and another for all else");
    let others = format!("{}-{}", CORE_OF_THE_SERVICE + 1, cores - 1);
    let own = std::process::id().to_string();
    let set = Command::new("taskset").args(["--cpu-list", "--pid", &others, &own]).output()?;
    ensure!(set.status.success(), "taskset: {}", String::from_utf8_lossy(&set.stderr));
    Ok(())
}

/// The most that is answered in a second, by any number of connections that keep the service busy.
async fn peak(address: SocketAddr, requests: &Arc<Vec<Vec<u8>>>) -> anyhow::Result<f64> {
    let mut peak: f64 = 0.0;
    for connections in [8, 16, 32] {
        peak = peak.max(closed_goodput(address, requests, connections, Duration::from_secs(6)).await?);
    }
    Ok(peak)
}

/// What of all that people ask for costs the most to reckon and is answered in a few words, with each key in turn: a
/// comparison of all series over all of their days.
fn requests(keys: &[String]) -> Vec<Vec<u8>> {
    let ids = "selic,cdi,ipca,selic-effective,selic-daily,cdi-daily,ipca-12m,ipca-ytd,real-selic";
    let paths: Vec<String> = (1..=8).map(|limit| format!("/api/v1/market/compare?ids={ids}&limit={limit}")).collect();
    keys.iter().flat_map(|key| paths.iter().map(|path| keyed_get(path, key))).collect()
}

/// How long each answer took, on a connection of its own as a prober has it; by a thread, so that the load's own queue is
/// not taken for the service's.
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
        std::thread::sleep(BETWEEN_PROBES.saturating_sub(asked.elapsed()));
    }
    Ok(times)
}

/// How long after the flood a request was last refused, or as slow as none in a hundred was before it.
fn recovery(calm: &[Reply], after: &[Reply]) -> Duration {
    let slow = percentile(calm.iter().map(|reply| reply.latency), 99) * 2 + Duration::from_millis(10);
    let is_bad = |reply: &&Reply| reply.status != 200 || reply.latency > slow;
    let mut bad: Vec<Duration> = after.iter().filter(is_bad).map(|reply| reply.due + reply.latency).collect();
    bad.sort_unstable();
    // One in a hundred may be slow at any time.
    let spare = after.len() / 100;
    bad.len().checked_sub(spare + 1).map_or(Duration::ZERO, |place| bad[place])
}
