//! Delivering: what is due is taken up, sent aside, and what came of it noted.
//!
//! An attempt that was made and not noted, because the process or Postgres ended in between, is made again: a receiver
//! gets everything at least once. One that is slow or failing has few under way at a time, and all of those together no
//! more than half, so that others do not wait for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use rand::RngExt;
use tokio::task::{Id, JoinSet};
use vintem_domain::Clock;
use vintem_domain::webhook::wait_after;
use vintem_store::webhooks::dispatch::{Attempted, Class, DeliveryLead, Demand, DueDelivery, Verdict};
use vintem_store::{Result, Store};

use super::secret::SecretBox;
use super::send::{Attempt, Message, Sender};

/// Attempts under way at once. Each has a connection of its own.
const MOST_UNDER_WAY: usize = 512;
/// Of those, what may be of webhooks that are slow or failing.
const MOST_LAGGING: usize = MOST_UNDER_WAY / 2;
/// So many of one webhook are taken up at once; when so few are still under way, the next.
const MOST_OF_ONE: usize = 8;
/// A receiver that takes longer is slow.
const SLOW: Duration = Duration::from_secs(5);

/// Delivers, as long as no other worker does.
#[derive(Debug)]
pub struct Dispatcher {
    store: Store,
    sender: Sender,
    secrets: SecretBox,
    clock: Arc<dyn Clock>,
    lead: Option<DeliveryLead>,
    attempts: JoinSet<Attempted>,
    under_way: HashMap<Id, UnderWay>,
    /// Made, and not noted yet.
    made: Vec<Attempted>,
    /// Up to which webhook each class was looked at: the next ones have their turn.
    looked_at: HashMap<Class, i64>,
}

#[derive(Debug)]
struct UnderWay {
    class: Class,
    /// What is noted if the attempt does not come to its end.
    broken: Attempted,
}

impl Dispatcher {
    pub fn new(store: Store, sender: Sender, secrets: SecretBox, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            sender,
            secrets,
            clock,
            lead: None,
            attempts: JoinSet::new(),
            under_way: HashMap::new(),
            made: Vec::new(),
            looked_at: HashMap::new(),
        }
    }

    /// Notes what was made and takes up what is due. An error means that Postgres is away: what is under way goes on, and
    /// is noted by a later round.
    pub async fn round(&mut self) -> Result<()> {
        self.gather();
        if !self.made.is_empty() {
            self.store.note_attempts(&self.made).await?;
            for attempt in self.made.drain(..) {
                metrics::counter!("vintem_webhook_attempts_total", "verdict" => attempt.verdict.id()).increment(1);
            }
        }
        if self.lead.is_none() {
            let mine: Vec<i64> = self.under_way.values().map(|attempt| attempt.broken.delivery).collect();
            self.lead = self.store.lead_deliveries(&mine).await?;
        }
        self.take_up(Class::Prompt).await?;
        self.take_up(Class::Lagging).await
    }

    /// Waits until an attempt has come to its end.
    pub async fn attempt_ended(&mut self) {
        match self.attempts.join_next_with_id().await {
            Some(ended) => self.end(ended),
            None => std::future::pending().await,
        }
    }

    /// Delivers all that is due now, and returns when nothing is under way any more.
    pub async fn deliver_due(&mut self) -> Result<()> {
        loop {
            self.round().await?;
            if self.under_way.is_empty() && self.made.is_empty() {
                return Ok(());
            }
            if self.made.is_empty() {
                self.attempt_ended().await;
            }
        }
    }

    /// Waits for what is under way, takes up nothing more, and notes what came of it.
    pub async fn finish(mut self, at_most: Duration) -> Result<()> {
        let ending = async {
            while let Some(ended) = self.attempts.join_next_with_id().await {
                self.end(ended);
            }
        };
        // What takes longer is made again by whoever delivers next.
        let _ = tokio::time::timeout(at_most, ending).await;
        if self.made.is_empty() { Ok(()) } else { self.store.note_attempts(&self.made).await }
    }

    fn gather(&mut self) {
        while let Some(ended) = self.attempts.try_join_next_with_id() {
            self.end(ended);
        }
    }

    fn end(&mut self, ended: std::result::Result<(Id, Attempted), tokio::task::JoinError>) {
        match ended {
            Ok((task, attempted)) => {
                self.under_way.remove(&task);
                self.made.push(attempted);
            }
            Err(error) => {
                tracing::error!(%error, "an attempt to deliver did not come to its end");
                self.made.extend(self.under_way.remove(&error.id()).map(|attempt| attempt.broken));
            }
        }
    }

    /// Takes up deliveries of one class until nothing is due or there is no room.
    async fn take_up(&mut self, class: Class) -> Result<()> {
        let Some(mut lead) = self.lead.take() else { return Ok(()) };
        let mut has_begun_anew = false;
        loop {
            let room = self.room(class);
            if room == 0 {
                break;
            }
            let (now, busy) = (self.clock.now(), self.busy(class));
            let after = self.looked_at.get(&class).copied().unwrap_or(0);
            let most_of_one = MOST_OF_ONE as i64;
            let demand = Demand { now, class, after, but: &busy, most: room as i64, most_of_one };
            // With an error the right to deliver is given up: the connection may be gone, and another worker at it.
            let due = lead.take_up(&demand).await?;
            let is_last = due.len() < room;
            let last = due.iter().map(|due| due.webhook).max().unwrap_or(after);
            self.looked_at.insert(class, if is_last { 0 } else { last });
            for delivery in due {
                self.begin(delivery, class);
            }
            if is_last && (after == 0 || has_begun_anew) {
                break;
            }
            has_begun_anew |= is_last;
        }
        self.lead = Some(lead);
        Ok(())
    }

    fn room(&self, class: Class) -> usize {
        let room = MOST_UNDER_WAY.saturating_sub(self.under_way.len());
        match class {
            Class::Prompt => room,
            Class::Lagging => {
                let lagging = self.under_way.values().filter(|attempt| attempt.class == class).count();
                room.min(MOST_LAGGING.saturating_sub(lagging))
            }
        }
    }

    /// Webhooks that have enough under way.
    fn busy(&self, class: Class) -> Vec<i64> {
        let mut of_each: HashMap<i64, usize> = HashMap::new();
        for attempt in self.under_way.values() {
            *of_each.entry(attempt.broken.webhook).or_default() += 1;
        }
        let enough = match class {
            Class::Prompt => MOST_OF_ONE,
            Class::Lagging => 1,
        };
        let full = of_each.into_iter().filter(|(_, count)| *count >= enough).map(|(webhook, _)| webhook);
        full.collect()
    }

    fn begin(&mut self, due: DueDelivery, class: Class) {
        let now = self.clock.now();
        let broken = outcome(&due, &Attempt::failed(now, "internal"), now);
        let (sender, clock, secrets) = (self.sender.clone(), self.clock.clone(), self.secrets.clone());
        let task = self.attempts.spawn(async move {
            let attempt = attempt(&sender, &secrets, &due, clock.now()).await;
            outcome(&due, &attempt, clock.now())
        });
        self.under_way.insert(task.id(), UnderWay { class, broken });
    }
}

async fn attempt(sender: &Sender, secrets: &SecretBox, due: &DueDelivery, now: DateTime<Utc>) -> Attempt {
    let former = due.former_secret.as_ref().filter(|(_, ends_at)| *ends_at > now);
    let sealed = std::iter::once(&due.secret).chain(former.map(|(sealed, _)| sealed));
    let timestamp = now.timestamp();
    let sign = |sealed: &Vec<u8>| {
        let secret = secrets.open(&due.webhook_id, sealed)?;
        Some(secret.sign(&due.event_id, timestamp, &due.body))
    };
    let Some(signatures) = sealed.map(sign).collect::<Option<Vec<String>>>() else {
        tracing::error!(webhook = due.webhook_id, "its secret was sealed under another VINTEM_SECRET_KEY");
        return Attempt::failed(now, "internal");
    };
    let message = Message {
        url: &due.url,
        id: &due.event_id,
        timestamp,
        signatures: signatures.join(" "),
        body: due.body.clone(),
        position: due.position,
    };
    sender.send(message, now).await
}

/// What an attempt means for its delivery.
fn outcome(due: &DueDelivery, attempt: &Attempt, now: DateTime<Utc>) -> Attempted {
    let (failures, chance) = (usize::from(due.failures.unsigned_abs()) + 1, rand::rng().random_range(-100..=100));
    let asked = attempt.asked_wait.and_then(|wait| TimeDelta::from_std(wait).ok());
    // A test is for its owner, who waits for it: it is not tried again.
    let wait = if due.position.is_none() { None } else { wait_after(failures, chance, asked) };
    let verdict = match wait {
        _ if attempt.is_success() => Verdict::Delivered,
        _ if attempt.is_gone() => Verdict::Gone,
        Some(wait) => Verdict::Again(now + wait),
        None => Verdict::Dead,
    };
    Attempted {
        delivery: due.id,
        webhook: due.webhook,
        url: due.url.clone(),
        failures_before: due.failures,
        at: now,
        verdict,
        is_slow: Duration::from_millis(attempt.milliseconds) > SLOW,
        shown: serde_json::to_string(attempt).expect("attempts have text keys only"),
    }
}
