//! The victim: an ordinary caller, and what it notices.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use vintem_bench::closed_loop::{KeepAliveResponse, send_once};
use vintem_bench::process_memory::read_proc_status_bytes;
use vintem_testkit::build_keyed_get;
use vintem_testkit::timed_requests::percentile;

use crate::attackers::{Attack, AttackTarget};

/// Requests a second.
const RATE: u32 = 50;
/// Within the limit that pages have per address.
const HEALTH_INTERVAL: Duration = Duration::from_millis(150);
const MEMORY_INTERVAL: Duration = Duration::from_millis(50);
/// Until the attack has reached its strength.
const WARM_UP: Duration = Duration::from_millis(500);
/// A response that takes longer is lost.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

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
            let refusal = describe_refusal(request, &send(server, request));
            samples.push((started.elapsed().saturating_sub(due_at), refusal));
        }
        samples
    }
}

fn send(server: SocketAddr, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, RESPONSE_TIMEOUT)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.write_all(request)?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    Ok(response)
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
    let memory_before = read_proc_status_bytes(pid, "VmRSS")?;
    let running = attack.start(target);
    tokio::time::sleep(WARM_UP).await;

    let is_over = Arc::new(AtomicBool::new(false));
    let health = {
        let is_over = is_over.clone();
        std::thread::spawn(move || probe_health(server, &is_over))
    };
    let memory = {
        let is_over = is_over.clone();
        std::thread::spawn(move || watch_memory(pid, &is_over))
    };
    let samples = std::thread::scope(|scope| scope.spawn(|| traffic.run(server)).join().expect("it does not panic"));
    is_over.store(true, Ordering::Relaxed);
    let health = health.join().expect("it does not panic");
    let peak = memory.join().expect("it does not panic");
    running.stop().await;

    Ok(AttackImpact {
        victim_p99: percentile(samples.iter().map(|(latency, _)| *latency), 99),
        health_p99: percentile(health, 99),
        sent: samples.len(),
        refusals: samples.into_iter().filter_map(|(_, refusal)| refusal).collect(),
        memory_growth_bytes: peak.saturating_sub(memory_before),
    })
}

/// The latency of each probe; a failed one counts as the longest wait.
fn probe_health(server: SocketAddr, is_over: &AtomicBool) -> Vec<Duration> {
    let mut latencies = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let started = Instant::now();
        let response = send(server, b"GET /health HTTP/1.1\r\nHost: vintem.example\r\nConnection: close\r\n\r\n");
        let is_good = response.is_ok_and(|response| response.starts_with(b"HTTP/1.1 200"));
        latencies.push(if is_good { started.elapsed() } else { RESPONSE_TIMEOUT });
        std::thread::sleep(HEALTH_INTERVAL.saturating_sub(started.elapsed()));
    }
    latencies
}

fn watch_memory(pid: u32, is_over: &AtomicBool) -> u64 {
    let mut peak = 0;
    while !is_over.load(Ordering::Relaxed) {
        peak = peak.max(read_proc_status_bytes(pid, "VmRSS").unwrap_or(0));
        std::thread::sleep(MEMORY_INTERVAL);
    }
    peak
}
