//! An open-loop load: requests come at a fixed rate, regardless of earlier ones, so that the server's slowness shows.
//!
//! Each request is due at an instant, and its latency counts from there. Waiting for a free connection is included, so
//! nothing is hidden because the server was slow.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::closed_loop::{KeepAliveConnection, KeepAliveResponse};

/// One request and its outcome.
#[derive(Debug, Clone, Copy)]
pub struct LoadSample {
    /// When it should have been sent, since the load started.
    pub due_at: Duration,
    /// From then until the complete response had arrived.
    pub latency: Duration,
    /// 0 if no response arrived.
    pub status: u16,
    /// Whether the response has a `Retry-After`.
    pub has_retry_after: bool,
}

/// Shorter than the service's idle timeout, so that a closed idle connection is not counted as a failure.
const MAX_CONNECTION_IDLE: Duration = Duration::from_secs(3);

/// At high rates, requests are released in groups: a thread that wakes up for each would take the cores from the others.
const MIN_PAUSE: Duration = Duration::from_micros(200);

/// Sends these requests in turn, `rate` times a second for `time`, over at most `connections` connections.
pub async fn run_open_loop(
    address: SocketAddr,
    requests: &Arc<Vec<Vec<u8>>>,
    connections: usize,
    rate: f64,
    time: Duration,
) -> Vec<LoadSample> {
    let count = (time.as_secs_f64() * rate) as u64;
    let due_requests = Arc::new(Semaphore::new(0));
    let next_number = Arc::new(AtomicU64::new(0));
    let samples = Arc::new(Mutex::new(Vec::with_capacity(count as usize)));

    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let requests = requests.clone();
        let due_requests = due_requests.clone();
        let next_number = next_number.clone();
        let samples = samples.clone();
        tasks.spawn(async move {
            let mut connection = ReusableConnection::default();
            loop {
                // Closed once all requests are answered.
                let Ok(permit) = due_requests.acquire().await else { return };
                permit.forget();
                let number = next_number.fetch_add(1, Ordering::Relaxed);
                let due_at = Duration::from_secs_f64(number as f64 / rate);
                let request = &requests[(number % requests.len() as u64) as usize];

                let response = connection.send(address, request).await.ok();
                let status = response.as_ref().and_then(KeepAliveResponse::status).unwrap_or(0);
                let has_retry_after = response.is_some_and(|response| response.header("retry-after").is_some());
                let latency = started.elapsed().saturating_sub(due_at);
                let sample = LoadSample { due_at, latency, status, has_retry_after };
                samples.lock().expect("never held across a panic").push(sample);
            }
        });
    }

    // A thread of its own, because timers of tokio are up to two milliseconds late.
    let releasing = due_requests.clone();
    let pacer = std::thread::spawn(move || {
        let mut released = 0;
        while released < count {
            let next_due_at = Duration::from_secs_f64(released as f64 / rate);
            std::thread::sleep(next_due_at.saturating_sub(started.elapsed()).max(MIN_PAUSE));
            // All requests due by now: a late wake-up must not lose any.
            let due_by_now = ((started.elapsed().as_secs_f64() * rate) as u64 + 1).min(count);
            releasing.add_permits((due_by_now - released) as usize);
            released = due_by_now;
        }
    });
    while samples.lock().expect("never held across a panic").len() < count as usize {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    pacer.join().expect("it does not panic");
    due_requests.close();
    while tasks.join_next().await.is_some() {}
    std::mem::take(&mut *samples.lock().expect("never held across a panic"))
}

/// Measures 200 responses per second when each connection sends its next request as soon as it has a response.
pub async fn measure_closed_loop_goodput(
    address: SocketAddr,
    requests: &Arc<Vec<Vec<u8>>>,
    connections: usize,
    time: Duration,
) -> anyhow::Result<f64> {
    let successes = Arc::new(AtomicU64::new(0));
    let next_number = Arc::new(AtomicU64::new(0));

    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let requests = requests.clone();
        let successes = successes.clone();
        let next_number = next_number.clone();
        tasks.spawn(async move {
            let mut connection = KeepAliveConnection::open(address).await?;
            while started.elapsed() < time {
                let number = next_number.fetch_add(1, Ordering::Relaxed) as usize;
                let response = connection.send(&requests[number % requests.len()]).await?;
                successes.fetch_add(u64::from(response.status() == Some(200)), Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }

    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(successes.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}

/// A connection that is opened on demand and replaced before the service closes it as idle.
#[derive(Debug, Default)]
struct ReusableConnection {
    connection: Option<KeepAliveConnection>,
    last_used: Option<Instant>,
}

impl ReusableConnection {
    async fn send(&mut self, address: SocketAddr, request: &[u8]) -> anyhow::Result<KeepAliveResponse> {
        let is_fresh = self.last_used.is_some_and(|used| used.elapsed() < MAX_CONNECTION_IDLE);
        let mut connection = match self.connection.take().filter(|_| is_fresh) {
            Some(connection) => connection,
            None => KeepAliveConnection::open(address).await?,
        };
        let response = connection.send(request).await?;
        *self = Self { connection: Some(connection), last_used: Some(Instant::now()) };
        Ok(response)
    }
}
