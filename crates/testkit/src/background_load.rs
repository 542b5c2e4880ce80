//! Sends requests to several replicas at a fixed rate, regardless of earlier ones, and records all of them.

use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use crate::rate_limit_check::ObservedDecision;

/// A request to send. `caller` and `replica` are indexes into the test's own lists.
#[derive(Debug)]
pub struct PlannedRequest {
    pub caller: usize,
    pub replica: usize,
    pub request: reqwest::RequestBuilder,
}

/// One request and its outcome.
#[derive(Debug, Clone)]
pub struct RequestRecord {
    pub caller: usize,
    pub replica: usize,
    /// When it should have been sent.
    pub due_at: Instant,
    pub answered_at: Instant,
    /// `None` if no complete response arrived.
    pub response: Option<RateLimitResponse>,
}

/// The rate-limit information in a response.
#[derive(Debug, Clone)]
pub struct RateLimitResponse {
    pub status: u16,
    /// `None` unless the status is 200 or 429.
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
        self.response.as_ref().map(|response| response.status)
    }

    pub fn decision(&self) -> Option<ObservedDecision> {
        self.response.as_ref()?.decision
    }
}

/// A load that runs until [`BackgroundLoad::stop`].
#[derive(Debug)]
pub struct BackgroundLoad {
    stop: watch::Sender<bool>,
    records: JoinHandle<Vec<RequestRecord>>,
}

impl BackgroundLoad {
    /// Calls `next` `rate` times a second and sends its request; when it returns `None`, that turn is skipped.
    pub fn start(rate: u32, next: impl FnMut() -> Option<PlannedRequest> + Send + 'static) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, records: tokio::spawn(send_until_stopped(rate, next, stopped)) }
    }

    /// Stops sending and returns all records once every request is answered or failed.
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

    let mut in_flight = JoinSet::new();
    let mut records = Vec::new();
    while !*stopped.borrow() {
        let due_at = ticks.tick().await.into_std();
        if let Some(planned) = next() {
            in_flight.spawn(send_and_record(planned, due_at));
        }
        while let Some(record) = in_flight.try_join_next() {
            records.extend(record);
        }
    }

    while let Some(record) = in_flight.join_next().await {
        records.extend(record);
    }
    records
}

async fn send_and_record(planned: PlannedRequest, due_at: Instant) -> RequestRecord {
    let PlannedRequest { caller, replica, request } = planned;
    let response = match request.send().await {
        Ok(response) => {
            let status = response.status().as_u16();
            let decision = ObservedDecision::from_response(&response).ok();
            let plan = header_text(response.headers(), "x-plan");
            let limit = header_number(response.headers(), "x-ratelimit-limit");
            let remaining = header_number(response.headers(), "x-ratelimit-remaining");
            let is_complete = response.bytes().await.is_ok();
            is_complete.then_some(RateLimitResponse { status, decision, plan, limit, remaining })
        }
        Err(_) => None,
    };
    RequestRecord { caller, replica, due_at, answered_at: Instant::now(), response }
}

fn header_text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn header_number(headers: &HeaderMap, name: &str) -> u64 {
    header_text(headers, name).parse().unwrap_or(u64::MAX)
}
