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
use vintem_domain::Plan;
use vintem_testkit::load::keyed_get;
use vintem_testkit::open_load::{Reply, closed_goodput, open_load};
use vintem_testkit::pace::percentile;
use vintem_testkit::processor::processor_time;
use vintem_testkit::{OwnRedis, ServedProcess, TestDatabase, USUAL_POSTGRES_BUDGET, create_key};

const LEAST_GOODPUT: f64 = 0.9;
const MOST_ADMITTED_P99: Duration = Duration::from_millis(250);
const MOST_SHED_P99: Duration = Duration::from_millis(50);
const MOST_HEALTH_P99: Duration = Duration::from_millis(100);
const MOST_RECOVERY: Duration = Duration::from_secs(2);
/// The flood comes in so many pieces, and the peak is found anew in so long.
const PIECES: u32 = 6;
/// As many as the service has under way at once of such requests: it is never without work, and turns none away.
const CONNECTIONS_AT_PEAK: usize = 32;
const TIME_AT_PEAK: Duration = Duration::from_secs(4);
/// What is far from too much comes for so long, before and after.
const CALM: Duration = Duration::from_secs(5);
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

/// Where the service runs; the recipe keeps all else off it.
const CORE_OF_THE_SERVICE: &str = "0";

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(overload(&arguments))
}

async fn overload(arguments: &Arguments) -> anyhow::Result<()> {
    let (redis, database) = (OwnRedis::start()?, TestDatabase::demo(Utc::now()).await?);
    // Limits stay out of it: what is refused here is refused for the service's own sake.
    let mut flags = vec!["--limit-platinum", "100000000"];
    flags.extend(USUAL_POSTGRES_BUDGET);
    flags.extend(arguments.flags.iter().map(String::as_str));
    let store = database.store()?;
    let mut keys = Vec::new();
    for _ in 0..200 {
        keys.push(create_key(&store, Plan::Platinum).await?.1);
    }
    let (database_url, redis_url) = (database.url(), redis.url());
    let service = ServedProcess::start_on(CORE_OF_THE_SERVICE, &arguments.vintem, &database_url, &redis_url, &flags)?;
    let address: SocketAddr = service.address.parse()?;
    let requests = Arc::new(requests(&keys));

    let peak = async || closed_goodput(address, &requests, CONNECTIONS_AT_PEAK, TIME_AT_PEAK).await;
    let load = async |rate, time| open_load(address, &requests, arguments.connections, rate, time).await;
    let calm_rate = peak().await? / 3.0;
    let calm = load(calm_rate, CALM).await;
    let refused_in_calm = calm.iter().filter(|reply| reply.status != 200).count();

    let piece = Duration::from_secs(arguments.seconds) / PIECES;
    let (mut flood, mut ratios, mut health) = (Vec::new(), Vec::new(), Vec::new());
    let (mut core_at_peak, mut core_in_flood) = (Vec::new(), Vec::new());
    let mut core = Core::of(&service)?;
    let mut peaks = vec![peak().await?];
    for number in 0..PIECES as usize {
        core_at_peak.push(core.share()?);
        let prober = Prober::start(address);
        let replies = load(peaks[number] * arguments.times, piece).await;
        health.extend(prober.stop()?);
        core_in_flood.push(core.share()?);
        peaks.push(peak().await?);
        let good = replies.iter().filter(|reply| reply.status == 200).count();
        ratios.push(good as f64 / piece.as_secs_f64() / f64::midpoint(peaks[number], peaks[number + 1]));
        flood.extend(replies);
    }
    load(peaks[PIECES as usize] * arguments.times, CALM).await;
    let after = load(calm_rate, CALM).await;

    let of = |status: u16| flood.iter().filter(move |reply| reply.status == status);
    let latency = |status: u16, percent: usize| percentile(of(status).map(|reply| reply.latency), percent);
    let (good, shed) = (of(200).count(), of(503).count());
    let others = flood.len() - good - shed;
    let unsaid = of(503).filter(|reply| !reply.says_when).count();
    let goodput_ratio = median(&mut ratios);
    let recovery = recovery(&calm, &after);
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
    ensure!(goodput_ratio >= LEAST_GOODPUT, "less than {LEAST_GOODPUT} of the peak was answered");
    ensure!(latency(200, 99) <= MOST_ADMITTED_P99, "the slowest of what was answered were too slow");
    ensure!(latency(503, 99) <= MOST_SHED_P99, "what was shed was told so too late");
    ensure!(percentile(health.iter().copied(), 99) <= MOST_HEALTH_P99, "/health was too slow");
    ensure!(recovery <= MOST_RECOVERY, "it took too long until all was as before");
    Ok(())
}

/// How much of its core the service had.
struct Core<'s> {
    service: &'s ServedProcess,
    since: Instant,
    used: Duration,
}

impl<'s> Core<'s> {
    fn of(service: &'s ServedProcess) -> anyhow::Result<Self> {
        Ok(Self { service, since: Instant::now(), used: processor_time(service.id())? })
    }

    /// Since it was last asked.
    fn share(&mut self) -> anyhow::Result<f64> {
        let now = Self::of(self.service)?;
        let share = (now.used - self.used).as_secs_f64() / (now.since - self.since).as_secs_f64();
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
fn requests(keys: &[String]) -> Vec<Vec<u8>> {
    let ids = "selic,cdi,ipca,selic-effective,selic-daily,cdi-daily,ipca-12m,ipca-ytd,real-selic";
    let paths: Vec<String> = (1..=8).map(|limit| format!("/api/v1/market/compare?ids={ids}&limit={limit}")).collect();
    keys.iter().flat_map(|key| paths.iter().map(|path| keyed_get(path, key))).collect()
}

/// Asks for `/health` while the flood lasts; by a thread, so that the load's own queue is not taken for the service's.
struct Prober {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Vec<Duration>>>,
}

impl Prober {
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
