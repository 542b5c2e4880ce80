//! Requests at a steady pace, whatever becomes of the ones before: who waits for slow answers does not see them.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// One request and what came of it.
#[derive(Debug, Clone)]
pub struct TimedRequest {
    pub path: String,
    /// When it should have been sent.
    pub due_at: Instant,
    pub answered_at: Instant,
    /// None where no answer came.
    pub status: Option<u16>,
    pub etag: String,
    pub body: Vec<u8>,
}

impl TimedRequest {
    pub fn latency(&self) -> Duration {
        self.answered_at.duration_since(self.due_at)
    }
}

/// Asks for these paths in turn, so many times a second for so long.
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
    let (mut shots, mut done) = (JoinSet::new(), Vec::new());
    let count = (time.as_secs_f64() * f64::from(rate)) as usize;
    for path in paths.iter().cycle().take(count) {
        let due = ticks.tick().await.into_std();
        let request = http.get(format!("http://{address}{path}")).header("X-API-Key", key);
        let path = path.clone();
        shots.spawn(async move {
            let answer = request.send().await;
            let (status, etag, body) = match answer {
                Ok(answer) => {
                    let etag =
                        answer.headers().get("etag").and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
                    let status = answer.status().as_u16();
                    match answer.bytes().await {
                        Ok(body) => (Some(status), etag, body.to_vec()),
                        Err(_) => (None, etag, Vec::new()),
                    }
                }
                Err(_) => (None, String::new(), Vec::new()),
            };
            TimedRequest { path, due_at: due, answered_at: Instant::now(), status, etag, body }
        });
        while let Some(shot) = shots.try_join_next() {
            done.extend(shot);
        }
    }
    while let Some(shot) = shots.join_next().await {
        done.extend(shot);
    }
    done
}

/// Does this once for each number below `count`, so many at a time, and returns what came of them in whatever order.
pub async fn run_concurrently<T, F: Future<Output = anyhow::Result<T>>>(
    count: usize,
    concurrency: usize,
    run: impl FnMut(usize) -> F,
) -> anyhow::Result<Vec<T>> {
    futures_util::stream::iter(0..count).map(run).buffer_unordered(concurrency).try_collect().await
}

/// What so many of a hundred do not exceed.
pub fn percentile(times: impl IntoIterator<Item = Duration>, percent: usize) -> Duration {
    let mut times: Vec<Duration> = times.into_iter().collect();
    times.sort_unstable();
    times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}
