//! Outcomes follow their admissions: gathered in the process, sent together, counted once.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use redis::Script;
use tokio::sync::Notify;
use vintem_domain::KeyId;
use vintem_domain::usage::Outcome;

use crate::admission::LOG_LUA;
use crate::{Meter, Result};

static OUTCOMES: LazyLock<Script> = LazyLock::new(|| Script::new(&[LOG_LUA, include_str!("outcomes.lua")].concat()));

/// A day in microseconds, as the scripts number days.
const DAY_US: u64 = 24 * 3600 * 1_000_000;

type Waiting = HashMap<(KeyId, u64, Outcome), u64>;

/// A group on its way. It keeps its number when it is sent again, so that it counts once.
#[derive(Debug)]
struct Group {
    number: u64,
    counts: Waiting,
}

#[derive(Debug, Default)]
struct Sending {
    last_number: u64,
    /// The group whose sending has not succeeded yet.
    group: Option<Group>,
}

#[derive(Debug)]
pub struct Outcomes {
    nonce: String,
    waiting: Mutex<Waiting>,
    came: Notify,
    /// Held while a group is sent: one after the other, so that the highest number tells all that were counted.
    sending: tokio::sync::Mutex<Sending>,
}

impl Default for Outcomes {
    fn default() -> Self {
        Self {
            nonce: format!("{:016x}", rand::random::<u64>()),
            waiting: Mutex::default(),
            came: Notify::new(),
            sending: tokio::sync::Mutex::default(),
        }
    }
}

impl Outcomes {
    /// Tells this process' batches and groups from those of all others.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    fn take_waiting(&self) -> Waiting {
        std::mem::take(&mut *self.waiting.lock().expect("never held across a panic"))
    }
}

impl Meter {
    /// Notes how a visit ended that was admitted at this instant. Returns at once.
    pub fn note_outcome(&self, key_id: KeyId, admitted_at_us: u64, outcome: Outcome) {
        let mut waiting = self.outcomes.waiting.lock().expect("never held across a panic");
        *waiting.entry((key_id, admitted_at_us / DAY_US, outcome)).or_default() += 1;
        drop(waiting);
        self.outcomes.came.notify_one();
    }

    /// Returns once all outcomes noted before are counted.
    pub async fn flush_outcomes(&self) -> Result<()> {
        let mut sending = self.outcomes.sending.lock().await;
        loop {
            if sending.group.is_none() {
                let counts = self.outcomes.take_waiting();
                if counts.is_empty() {
                    return Ok(());
                }
                sending.last_number += 1;
                sending.group = Some(Group { number: sending.last_number, counts });
            }
            if let Some(group) = &sending.group {
                self.send(group).await?;
                sending.group = None;
            }
        }
    }

    async fn send(&self, group: &Group) -> Result<()> {
        let mut call = OUTCOMES.key(self.keys.current_batch());
        call.key(self.keys.sent_outcomes(&self.outcomes.nonce));
        call.arg(self.keys.batch_prefix()).arg(&self.outcomes.nonce).arg(group.number);
        for ((key_id, day, outcome), count) in &group.counts {
            call.arg(format!("{key_id}:{day}:{}", class(*outcome))).arg(*count);
        }
        self.invoke(&call).await
    }
}

const fn class(outcome: Outcome) -> char {
    match outcome {
        Outcome::Successful => 's',
        Outcome::ClientError => 'c',
        Outcome::ServerError => 'e',
        Outcome::RateLimited => 'l',
    }
}

/// Runs as long as the process: nothing waits for a timer, what comes while a group is under way goes with the next.
pub async fn send_as_they_come(meter: Meter) {
    loop {
        meter.outcomes.came.notified().await;
        while let Err(error) = meter.flush_outcomes().await {
            tracing::warn!(%error, "outcomes wait for Redis");
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}
