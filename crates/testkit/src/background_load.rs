//! Requests at a steady pace to several replicas, whatever becomes of the ones before, and a journal of all of them.

use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use crate::rate_limit_check::ObservedDecision;

/// A request that is to be sent: whose it is and to which replica, by their places in the test's own lists.
#[derive(Debug)]
pub struct PlannedRequest {
    pub caller: usize,
    pub replica: usize,
    pub request: reqwest::RequestBuilder,
}

/// One request and what came of it.
#[derive(Debug, Clone)]
pub struct RequestRecord {
    pub caller: usize,
    pub replica: usize,
    /// When it should have been sent.
    pub due_at: Instant,
    pub answered_at: Instant,
    /// None where no answer came.
    pub response: Option<RateLimitResponse>,
}

/// What an answer says of the limit.
#[derive(Debug, Clone)]
pub struct RateLimitResponse {
    pub status: u16,
    /// None where it is neither good nor refused for its limit.
    pub decision: Option<ObservedDecision>,
    pub plan: String,
    pub limit: u64,
    pub remaining: u64,
}

impl RequestRecord {
    pub fn latency(&self) -> Duration {
        self.answered_at.duration_since(self.due_at)
    }

    pub fn status(&self) -> Option<u16> {
        self.response.as_ref().map(|answer| answer.status)
    }

    pub fn decision(&self) -> Option<ObservedDecision> {
        self.response.as_ref()?.decision
    }
}

/// Goes on until it is stopped.
#[derive(Debug)]
pub struct BackgroundLoad {
    stop: watch::Sender<bool>,
    records: JoinHandle<Vec<RequestRecord>>,
}

impl BackgroundLoad {
    /// So many requests a second, each made when it is due; none where `next` has nothing to ask just then.
    pub fn start(rate: u32, next: impl FnMut() -> Option<PlannedRequest> + Send + 'static) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, records: tokio::spawn(send_until_stopped(rate, next, stopped)) }
    }

    /// The whole journal, once all that were sent are answered or lost.
    pub async fn stop(self) -> anyhow::Result<Vec<RequestRecord>> {
        self.stop.send_replace(true);
        Ok(self.records.await?)
    }
}

async fn send_until_stopped(
    rate: u32,
    mut next: impl FnMut() -> Option<PlannedRequest>,
    stopped: watch::Receiver<bool>,
) -> Vec<RequestRecord> {
    let mut ticks = interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut under_way, mut entries) = (JoinSet::new(), Vec::new());
    while !*stopped.borrow() {
        let due = ticks.tick().await.into_std();
        if let Some(ask) = next() {
            under_way.spawn(send_and_record(ask, due));
        }
        while let Some(entry) = under_way.try_join_next() {
            entries.extend(entry);
        }
    }
    while let Some(entry) = under_way.join_next().await {
        entries.extend(entry);
    }
    entries
}

async fn send_and_record(ask: PlannedRequest, due: Instant) -> RequestRecord {
    let PlannedRequest { caller, replica, request } = ask;
    let answer = match request.send().await {
        Ok(answer) => {
            let (status, decision) = (answer.status().as_u16(), ObservedDecision::from_response(&answer).ok());
            let (plan, limit) =
                (header_text(answer.headers(), "x-plan"), header_number(answer.headers(), "x-ratelimit-limit"));
            let remaining = header_number(answer.headers(), "x-ratelimit-remaining");
            let is_whole = answer.bytes().await.is_ok();
            is_whole.then_some(RateLimitResponse { status, decision, plan, limit, remaining })
        }
        Err(_) => None,
    };
    RequestRecord { caller, replica, due_at: due, answered_at: Instant::now(), response: answer }
}

fn header_text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn header_number(headers: &HeaderMap, name: &str) -> u64 {
    header_text(headers, name).parse().unwrap_or(u64::MAX)
}
