//! Requests at a steady pace to several replicas, whatever becomes of the ones before, and a journal of all of them.

use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use crate::sliding::Decision;

/// A request that is to be sent: whose it is and to which replica, by their places in the test's own lists.
#[derive(Debug)]
pub struct Ask {
    pub caller: usize,
    pub replica: usize,
    pub request: reqwest::RequestBuilder,
}

/// One request and what came of it.
#[derive(Debug, Clone)]
pub struct Entry {
    pub caller: usize,
    pub replica: usize,
    /// When it should have been sent.
    pub due: Instant,
    pub answered: Instant,
    /// None where no answer came.
    pub answer: Option<Answer>,
}

/// What an answer says of the limit.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// None where it is neither good nor refused for its limit.
    pub decision: Option<Decision>,
    pub plan: String,
    pub limit: u64,
    pub remaining: u64,
}

impl Entry {
    pub fn latency(&self) -> Duration {
        self.answered.duration_since(self.due)
    }

    pub fn status(&self) -> Option<u16> {
        self.answer.as_ref().map(|answer| answer.status)
    }

    pub fn decision(&self) -> Option<Decision> {
        self.answer.as_ref()?.decision
    }
}

/// Goes on until it is stopped.
#[derive(Debug)]
pub struct Load {
    stop: watch::Sender<bool>,
    entries: JoinHandle<Vec<Entry>>,
}

impl Load {
    /// So many requests a second, each made when it is due; none where `next` has nothing to ask just then.
    pub fn start(rate: u32, next: impl FnMut() -> Option<Ask> + Send + 'static) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, entries: tokio::spawn(ask_on(rate, next, stopped)) }
    }

    /// The whole journal, once all that were sent are answered or lost.
    pub async fn stop(self) -> anyhow::Result<Vec<Entry>> {
        self.stop.send_replace(true);
        Ok(self.entries.await?)
    }
}

async fn ask_on(rate: u32, mut next: impl FnMut() -> Option<Ask>, stopped: watch::Receiver<bool>) -> Vec<Entry> {
    let mut ticks = interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut under_way, mut entries) = (JoinSet::new(), Vec::new());
    while !*stopped.borrow() {
        let due = ticks.tick().await.into_std();
        if let Some(ask) = next() {
            under_way.spawn(carry_out(ask, due));
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

async fn carry_out(ask: Ask, due: Instant) -> Entry {
    let Ask { caller, replica, request } = ask;
    let answer = match request.send().await {
        Ok(answer) => {
            let (status, decision) = (answer.status().as_u16(), Decision::of(&answer).ok());
            let (plan, limit) = (text(answer.headers(), "x-plan"), number(answer.headers(), "x-ratelimit-limit"));
            let remaining = number(answer.headers(), "x-ratelimit-remaining");
            let is_whole = answer.bytes().await.is_ok();
            is_whole.then_some(Answer { status, decision, plan, limit, remaining })
        }
        Err(_) => None,
    };
    Entry { caller, replica, due, answered: Instant::now(), answer }
}

fn text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn number(headers: &HeaderMap, name: &str) -> u64 {
    text(headers, name).parse().unwrap_or(u64::MAX)
}
