//! The victim: an ordinary caller, and what it notices.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use vintem_bench::closed_loop::{KeepAliveResponse, send_once};
use vintem_bench::probes::{HealthProber, MemoryWatch, send_and_close};
use vintem_bench::slow_connections::AttackTarget;
use vintem_testkit::build_keyed_get;
use vintem_testkit::timed_requests::percentile;

use crate::attackers::Attack;

/// Requests a second.
const RATE: u32 = 50;
/// Until the attack has reached its strength.
const WARM_UP: Duration = Duration::from_millis(500);

const TARGETS: [&str; 4] = [
    "/api/v1/market/selic/current",
    "/api/v1/market/fx?limit=20",
    "/api/v1/filings?limit=20",
    "/api/v1/filings/search?q=dividendos&limit=20",
];

/// What the victim sends.
pub struct VictimTraffic {
    key: String,
    requests: Vec<Vec<u8>>,
    duration: Duration,
}

/// What the victim noticed during an attack.
pub struct AttackImpact {
    pub victim_p99: Duration,
    pub health_p99: Duration,
    pub failed_health_probes: usize,
    pub sent: usize,
    /// Responses other than 200, and missing ones: what came instead.
    pub refusals: Vec<String>,
    pub memory_growth_bytes: u64,
}

impl VictimTraffic {
    pub fn new(key: &str, duration: Duration) -> Self {
        let close = |target: &str| {
            let request = String::from_utf8(build_keyed_get(target, key)).expect("plain text");
            request.replacen("\r\n", "\r\nConnection: close\r\n", 1).into_bytes()
        };
        Self { key: key.to_owned(), requests: TARGETS.map(close).into(), duration }
    }

    /// The responses that the bare server is to send.
    pub async fn fetch_responses(&self, service: SocketAddr) -> anyhow::Result<Vec<(String, KeepAliveResponse)>> {
        let mut responses = Vec::new();
        for target in TARGETS.into_iter().chain(["/health"]) {
            responses.push((target.to_owned(), send_once(service, &build_keyed_get(target, &self.key)).await?));
        }
        Ok(responses)
    }

    /// Sends requests at their rate, one after another. Each latency counts from the instant the request was due.
    fn run(&self, server: SocketAddr) -> Vec<(Duration, Option<String>)> {
        let started = Instant::now();
        let interval = Duration::from_secs(1) / RATE;
        let mut samples = Vec::new();
        for (number, request) in (0u32..).zip(self.requests.iter().cycle()) {
            let due_at = interval * number;
            if due_at >= self.duration {
                return samples;
            }
            std::thread::sleep(due_at.saturating_sub(started.elapsed()));
            let refusal = describe_refusal(request, &send_and_close(server, request));
            samples.push((started.elapsed().saturating_sub(due_at), refusal));
        }
        samples
    }
}

/// `None` if it was answered with 200.
fn describe_refusal(request: &[u8], response: &std::io::Result<Vec<u8>>) -> Option<String> {
    let first_line = |text: &[u8]| String::from_utf8_lossy(text).lines().next().unwrap_or_default().to_owned();
    let target = first_line(request);
    match response {
        Ok(response) if response.starts_with(b"HTTP/1.1 200") => None,
        Ok(response) => Some(format!("{target}: {}", first_line(response))),
        Err(error) => Some(format!("{target}: {error}")),
    }
}

/// Attacks the server, and watches the victim, `/health` and the memory of the process meanwhile.
pub async fn observe(
    traffic: &VictimTraffic,
    attack: &Attack,
    target: AttackTarget,
    pid: u32,
) -> anyhow::Result<AttackImpact> {
    let server = target.address;
    debug_assert!(!target.sources.contains(&Ipv4Addr::LOCALHOST), "the victim has this address");
    let memory = MemoryWatch::start(pid)?;
    let running = attack.start(target);
    tokio::time::sleep(WARM_UP).await;

    let health = HealthProber::start(server);
    let samples = std::thread::scope(|scope| scope.spawn(|| traffic.run(server)).join().expect("it does not panic"));
    let health = health.stop();
    let memory_growth_bytes = memory.stop();
    running.stop().await;

    Ok(AttackImpact {
        victim_p99: percentile(samples.iter().map(|(latency, _)| *latency), 99),
        health_p99: health.percentile(99),
        failed_health_probes: health.failed,
        sent: samples.len(),
        refusals: samples.into_iter().filter_map(|(_, refusal)| refusal).collect(),
        memory_growth_bytes,
    })
}
