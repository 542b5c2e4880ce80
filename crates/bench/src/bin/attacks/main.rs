//! Attacks a replica, and measures what another caller notices of it: `just attacks`.
//!
//! The victim has a Gold key and an address of its own. It sends a request 50 times a second, each on a new connection, and
//! its latency counts from the instant the request was due. Each attack comes once from one address and once from 200.
//! The control is the same attack against a bare server that sends the same bytes to the victim: what the victim notices
//! there is the cost of sharing two cores with the attackers.

mod attackers;
mod victim;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use chrono::Utc;
use clap::Parser;
use vintem_bench::bare_server::{self, BareServerProcess};
use vintem_bench::closed_loop::KeepAliveResponse;
use vintem_bench::slow_connections::{AttackTarget, attacker_addresses};
use vintem_domain::Plan;
use vintem_testkit::{DedicatedRedis, ServerProcess, TestDatabase, create_key};

use attackers::Attack;
use victim::{AttackImpact, VictimTraffic, observe};

/// The victim's p99 may be this many times that of the control, or this long.
const MAX_P99_RATIO: f64 = 2.0;
const MAX_P99: Duration = Duration::from_millis(25);
const MAX_HEALTH_P99: Duration = Duration::from_millis(100);
const MAX_MEMORY_GROWTH_BYTES: u64 = 128 << 20;
const ADDRESSES: u8 = 200;
/// Free keys at each address, as one address may register within a day.
const KEYS_PER_ADDRESS: usize = 20;
/// Until connections of one attack are closed and its memory is freed.
const REST: Duration = Duration::from_secs(2);

#[derive(Debug, Parser)]
struct Arguments {
    /// Serves the responses that come on standard input, as the bare server
    #[arg(hide = true)]
    mode: Option<String>,

    /// The service's binary
    #[arg(long, default_value = "target/release/vintem")]
    vintem: PathBuf,

    /// How long each attack lasts
    #[arg(long, default_value_t = 10)]
    seconds: u64,

    /// How often each attack is repeated; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,

    /// Only this attack
    #[arg(long)]
    only: Option<String>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if arguments.mode.is_some() {
        return bare_server::serve_responses_from_stdin();
    }
    rlimit::increase_nofile_limit(u64::MAX)?;
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?.block_on(run(&arguments))
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(Utc::now()).await?;
    let store = database.open_store()?;
    let victim_key = create_key(&store, Plan::Gold).await?.1;
    let mut attacker_keys = Vec::new();
    for _ in 0..KEYS_PER_ADDRESS {
        attacker_keys.push(create_key(&store, Plan::Free).await?.1);
    }

    let mut held = 0;
    let mut failures = Vec::new();
    let attacks: Vec<Attack> =
        Attack::all(&attacker_keys).into_iter().filter(|attack| attack.is_named(&arguments.only)).collect();
    for attack in &attacks {
        for (name, address_count) in [("one_address", 1), ("many_addresses", ADDRESSES)] {
            // A new process each time, so that memory is comparable.
            let flags = ["--limit-gold=10000000", "--register-per-day=1000000"];
            let service = ServerProcess::start(&arguments.vintem, &database.url(), &redis.url(), &flags)?;
            let traffic = VictimTraffic::new(&victim_key, Duration::from_secs(arguments.seconds));
            let service_address: SocketAddr = service.address.parse()?;
            let responses = traffic.fetch_responses(service_address).await?;
            let bare_server = BareServerProcess::start(&with_attack_target(responses, attack))?;

            let mut rounds = Vec::new();
            for _ in 0..arguments.rounds {
                let target = AttackTarget { address: service_address, sources: attacker_addresses(address_count) };
                let observed = observe(&traffic, attack, target, service.pid()).await?;
                tokio::time::sleep(REST).await;
                let target = AttackTarget { address: bare_server.address, sources: attacker_addresses(address_count) };
                let control = observe(&traffic, attack, target, bare_server.pid()).await?;
                tokio::time::sleep(REST).await;
                rounds.push((observed, control));
            }

            let name = format!("{}_{name}", attack.name);
            match judge(&name, &rounds) {
                Ok(()) => held += 1,
                Err(error) => failures.push(format!("{name}: {error}")),
            }
        }
    }

    for failure in &failures {
        println!("failed: {failure}");
    }
    println!("attacks_withstood: {held} of {}", 2 * attacks.len());
    ensure!(failures.is_empty(), "{} attacks harmed the victim", failures.len());
    Ok(())
}

/// The bare server also answers what the attackers request.
fn with_attack_target(
    mut responses: Vec<(String, KeepAliveResponse)>,
    attack: &Attack,
) -> Vec<(String, KeepAliveResponse)> {
    if let Some(target) = attack.large_target {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json".to_owned();
        responses.push((target.to_owned(), KeepAliveResponse { head, body: vec![b' '; attackers::LARGE_BODY_BYTES] }));
    }
    responses
}

fn judge(name: &str, rounds: &[(AttackImpact, AttackImpact)]) -> anyhow::Result<()> {
    let median_p99 = |pick: &dyn Fn(&(AttackImpact, AttackImpact)) -> Duration| {
        let mut times: Vec<Duration> = rounds.iter().map(pick).collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    let p99 = median_p99(&|(observed, _)| observed.victim_p99);
    let control = median_p99(&|(_, control)| control.victim_p99);
    let health = median_p99(&|(observed, _)| observed.health_p99);
    let failed_probes: usize = rounds.iter().map(|(observed, _)| observed.failed_health_probes).sum();
    let mut refusals: Vec<&String> = rounds.iter().flat_map(|(observed, _)| &observed.refusals).collect();
    let refused = refusals.len();
    let sent: usize = rounds.iter().map(|(observed, _)| observed.sent).sum();
    let growth = rounds.iter().map(|(observed, _)| observed.memory_growth_bytes).max().unwrap_or(0);

    println!("{name}_victim_p99_milliseconds: {:.1}", p99.as_secs_f64() * 1e3);
    println!("{name}_control_p99_milliseconds: {:.1}", control.as_secs_f64() * 1e3);
    println!("{name}_health_p99_milliseconds: {:.1}", health.as_secs_f64() * 1e3);
    println!("{name}_refused: {refused} of {sent}");
    println!("{name}_memory_growth_mib: {}", growth >> 20);
    refusals.sort_unstable();
    for same in refusals.chunk_by(|one, other| one == other) {
        println!("{name}_refusal: {} times {}", same.len(), same[0]);
    }

    ensure!(refused == 0, "{refused} of {sent} requests of the victim were refused");
    ensure!(
        p99 <= MAX_P99.max(control.mul_f64(MAX_P99_RATIO)),
        "the victim waited {p99:?}, in the control {control:?}"
    );
    ensure!(failed_probes == 0, "/health failed {failed_probes} times");
    ensure!(health <= MAX_HEALTH_P99, "/health took {health:?}");
    ensure!(growth <= MAX_MEMORY_GROWTH_BYTES, "memory grew by {} MiB", growth >> 20);
    Ok(())
}
