//! What a running service is watched for during an experiment: the latency of `/health`, and its memory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use vintem_testkit::timed_requests::percentile;

use crate::process_memory::read_proc_status_bytes;

/// A response that takes longer is lost.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Frequent enough for a few hundred probes a minute, and within the limit that pages have per address.
const HEALTH_INTERVAL: Duration = Duration::from_millis(150);
const MEMORY_INTERVAL: Duration = Duration::from_millis(50);

/// Sends a request on a new connection, and reads until the server closes it.
pub fn send_and_close(server: SocketAddr, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, RESPONSE_TIMEOUT)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.write_all(request)?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    Ok(response)
}

/// Calls a function again and again, on a thread of its own, until it is stopped: what the load generator's tasks wait
/// for is not mistaken for the service's slowness.
#[derive(Debug)]
struct Repeater<T> {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<T>>,
}

impl<T: Send + 'static> Repeater<T> {
    fn start(interval: Duration, probe: impl Fn() -> T + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut results = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let started = Instant::now();
                results.push(probe());
                std::thread::sleep(interval.saturating_sub(started.elapsed()));
            }
            results
        });
        Self { stop, thread }
    }

    fn stop(self) -> Vec<T> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("a probe does not panic")
    }
}

/// Requests `/health`, each time on a new connection, as a load balancer's health check does.
#[derive(Debug)]
pub struct HealthProber(Repeater<HealthProbe>);

#[derive(Debug)]
struct HealthProbe {
    latency: Duration,
    is_good: bool,
}

/// How `/health` answered.
#[derive(Debug, Default)]
pub struct HealthResults {
    latencies: Vec<Duration>,
    /// Probes that got something else than 200, or nothing.
    pub failed: usize,
}

impl HealthResults {
    pub fn percentile(&self, percent: usize) -> Duration {
        percentile(self.latencies.iter().copied(), percent)
    }

    pub fn append(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.failed += other.failed;
    }
}

impl HealthProber {
    pub fn start(server: SocketAddr) -> Self {
        Self(Repeater::start(HEALTH_INTERVAL, move || {
            let started = Instant::now();
            let request = b"GET /health HTTP/1.1\r\nHost: vintem.example\r\nConnection: close\r\n\r\n";
            let response = send_and_close(server, request);
            let is_good = response.is_ok_and(|response| response.starts_with(b"HTTP/1.1 200"));
            HealthProbe { latency: started.elapsed(), is_good }
        }))
    }

    pub fn stop(self) -> HealthResults {
        let probes = self.0.stop();
        let failed = probes.iter().filter(|probe| !probe.is_good).count();
        HealthResults { latencies: probes.into_iter().map(|probe| probe.latency).collect(), failed }
    }
}

/// Watches by how much the memory of a process grows.
#[derive(Debug)]
pub struct MemoryWatch {
    bytes_before: u64,
    samples: Repeater<u64>,
}

impl MemoryWatch {
    pub fn start(pid: u32) -> anyhow::Result<Self> {
        let bytes_before = read_proc_status_bytes(pid, "VmRSS")?;
        let samples = Repeater::start(MEMORY_INTERVAL, move || read_proc_status_bytes(pid, "VmRSS").unwrap_or(0));
        Ok(Self { bytes_before, samples })
    }

    /// Stops watching and returns the growth at the peak, in bytes.
    pub fn stop(self) -> u64 {
        self.samples.stop().into_iter().max().unwrap_or(0).saturating_sub(self.bytes_before)
    }
}
