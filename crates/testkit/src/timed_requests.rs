//! Requests at a fixed rate, regardless of earlier ones (an open loop). A client that waits for each response before it
//! sends the next would hide slow responses.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// One request and its outcome.
#[derive(Debug, Clone)]
pub struct TimedRequest {
    pub path: String,
    /// When it should have been sent.
    pub due_at: Instant,
    pub answered_at: Instant,
    /// `None` if no complete response arrived.
    pub status: Option<u16>,
    pub etag: String,
    pub body: Vec<u8>,
}

impl TimedRequest {
    pub fn latency(&self) -> Duration {
        self.answered_at.duration_since(self.due_at)
    }
}

/// Requests these paths in turn, `rate` times a second for this long.
pub async fn get_at_rate(
    http: &reqwest::Client,
    address: &str,
    key: &str,
    paths: &[String],
    rate: u32,
    time: Duration,
) -> Vec<TimedRequest> {
    let mut ticks = interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);

    let mut in_flight = JoinSet::new();
    let mut finished = Vec::new();
    let count = (time.as_secs_f64() * f64::from(rate)) as usize;
    for path in paths.iter().cycle().take(count) {
        let due_at = ticks.tick().await.into_std();
        let request = http.get(format!("http://{address}{path}")).header("X-API-Key", key);
        let path = path.clone();
        in_flight.spawn(async move {
            let (status, etag, body) = match request.send().await {
                Ok(response) => {
                    let etag = response.headers().get("etag").and_then(|etag| etag.to_str().ok());
                    let etag = etag.unwrap_or_default().to_owned();
                    let status = response.status().as_u16();
                    match response.bytes().await {
                        Ok(body) => (Some(status), etag, body.to_vec()),
                        Err(_) => (None, etag, Vec::new()),
                    }
                }
                Err(_) => (None, String::new(), Vec::new()),
            };
            TimedRequest { path, due_at, answered_at: Instant::now(), status, etag, body }
        });
        while let Some(request) = in_flight.try_join_next() {
            finished.extend(request);
        }
    }

    while let Some(request) = in_flight.join_next().await {
        finished.extend(request);
    }
    finished
}

/// Calls `run` with each number below `count`, at most `concurrency` at a time; the results are in no particular order.
pub async fn run_concurrently<T, F: Future<Output = anyhow::Result<T>>>(
    count: usize,
    concurrency: usize,
    run: impl FnMut(usize) -> F,
) -> anyhow::Result<Vec<T>> {
    futures_util::stream::iter(0..count).map(run).buffer_unordered(concurrency).try_collect().await
}

/// The duration that `percent` percent of these don't exceed.
pub fn percentile(times: impl IntoIterator<Item = Duration>, percent: usize) -> Duration {
    let mut times: Vec<Duration> = times.into_iter().collect();
    times.sort_unstable();
    times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}
