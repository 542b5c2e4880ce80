//! A load at a rate of its own, whatever becomes of the requests before: what a server under it is slow at is seen.
//!
//! Each request is due at an instant, and its latency is reckoned from there: that it had to wait for a free connection
//! is part of it, so nothing is left out because the server was slow.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::closed_loop::{KeepAliveConnection, KeepAliveResponse};

/// One request and what came of it.
#[derive(Debug, Clone, Copy)]
pub struct LoadSample {
    /// When it should have been sent, since the load began.
    pub due_at: Duration,
    /// From then until all of the answer was there.
    pub latency: Duration,
    /// 0 where no answer came.
    pub status: u16,
    /// Whether it says when to come again.
    pub has_retry_after: bool,
}

/// The service closes connections that are silent for longer than this, which is no fault of its own.
const MAX_IDLE_TIME: Duration = Duration::from_secs(3);

/// Asks for these requests in turn, so many times a second for so long, over at most so many connections.
pub async fn run_open_loop(
    address: SocketAddr,
    requests: &Arc<Vec<Vec<u8>>>,
    connections: usize,
    rate: f64,
    time: Duration,
) -> Vec<LoadSample> {
    let count = (time.as_secs_f64() * rate) as u64;
    let (due, next) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU64::new(0)));
    let replies = Arc::new(Mutex::new(Vec::with_capacity(count as usize)));
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let (requests, due, next, replies) = (requests.clone(), due.clone(), next.clone(), replies.clone());
        tasks.spawn(async move {
            let mut kept = ReusableConnection::default();
            loop {
                // Closed when there is nothing more to ask.
                let Ok(turn) = due.acquire().await else { return };
                turn.forget();
                let number = next.fetch_add(1, Ordering::Relaxed);
                let should = Duration::from_secs_f64(number as f64 / rate);
                let request = &requests[(number % requests.len() as u64) as usize];
                let answer = kept.send(address, request).await.ok();
                let status = answer.as_ref().and_then(KeepAliveResponse::status).unwrap_or(0);
                let says_when = answer.is_some_and(|answer| answer.header("retry-after").is_some());
                let latency = began.elapsed().saturating_sub(should);
                let reply = LoadSample { due_at: should, latency, status, has_retry_after: says_when };
                replies.lock().expect("never held across a panic").push(reply);
            }
        });
    }
    let mut released = 0;
    while released < count {
        // As many as are due by now: a timer that is late makes none of them go missing.
        let by_now = ((began.elapsed().as_secs_f64() * rate) as u64).min(count);
        due.add_permits((by_now - released) as usize);
        released = by_now;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while replies.lock().expect("never held across a panic").len() < count as usize {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    due.close();
    while tasks.join_next().await.is_some() {}
    std::mem::take(&mut *replies.lock().expect("never held across a panic"))
}

/// How many are answered by 200 in a second when so many connections ask again as soon as they are answered.
pub async fn measure_closed_loop_goodput(
    address: SocketAddr,
    requests: &Arc<Vec<Vec<u8>>>,
    connections: usize,
    time: Duration,
) -> anyhow::Result<f64> {
    let (good, next, began) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Instant::now());
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let (requests, good, next) = (requests.clone(), good.clone(), next.clone());
        tasks.spawn(async move {
            let mut connection = KeepAliveConnection::open(address).await?;
            while began.elapsed() < time {
                let number = next.fetch_add(1, Ordering::Relaxed) as usize;
                let answer = connection.send(&requests[number % requests.len()]).await?;
                good.fetch_add(u64::from(answer.status() == Some(200)), Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(good.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64())
}

/// A connection, opened when it is needed and given up before the service closes it for its silence.
#[derive(Debug, Default)]
struct ReusableConnection {
    connection: Option<KeepAliveConnection>,
    last_used: Option<Instant>,
}

impl ReusableConnection {
    async fn send(&mut self, address: SocketAddr, request: &[u8]) -> anyhow::Result<KeepAliveResponse> {
        let is_fresh = self.last_used.is_some_and(|used| used.elapsed() < MAX_IDLE_TIME);
        let mut connection = match self.connection.take().filter(|_| is_fresh) {
            Some(connection) => connection,
            None => KeepAliveConnection::open(address).await?,
        };
        let answer = connection.send(request).await?;
        *self = Self { connection: Some(connection), last_used: Some(Instant::now()) };
        Ok(answer)
    }
}
