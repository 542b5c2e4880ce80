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
use vintem_domain::webhook::retry_delay;
use vintem_store::webhooks::dispatch::{
    AttemptOutcome, ClaimOptions, DeliveryAttempt, DeliveryLease, DueDelivery, ReceiverHealth,
};
use vintem_store::{Result, Store};

use super::secret::SecretBox;
use super::send::{SendAttempt, WebhookMessage, WebhookSender};

/// Attempts under way at once. Each has a connection of its own.
const MAX_IN_FLIGHT: usize = 512;
/// Of those, what may be of webhooks that are slow or failing.
const MAX_LAGGING_IN_FLIGHT: usize = MAX_IN_FLIGHT / 2;
/// So many of one webhook are taken up at once; when so few are still under way, the next.
const MAX_IN_FLIGHT_PER_WEBHOOK: usize = 8;
/// A receiver that takes longer is slow.
const SLOW_ATTEMPT_THRESHOLD: Duration = Duration::from_secs(5);

/// Delivers, as long as no other worker does.
#[derive(Debug)]
pub struct WebhookDispatcher {
    store: Store,
    sender: WebhookSender,
    secret_box: SecretBox,
    clock: Arc<dyn Clock>,
    delivery_lead: Option<DeliveryLease>,
    attempt_tasks: JoinSet<DeliveryAttempt>,
    in_flight: HashMap<Id, InFlightAttempt>,
    /// Made, and not noted yet.
    finished_attempts: Vec<DeliveryAttempt>,
    /// Up to which webhook each class was looked at: the next ones have their turn.
    cursor_by_class: HashMap<ReceiverHealth, i64>,
}

#[derive(Debug)]
struct InFlightAttempt {
    class: ReceiverHealth,
    /// What is noted if the attempt does not come to its end.
    result_if_aborted: DeliveryAttempt,
}

impl WebhookDispatcher {
    pub fn new(store: Store, sender: WebhookSender, secret_box: SecretBox, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            sender,
            secret_box,
            clock,
            delivery_lead: None,
            attempt_tasks: JoinSet::new(),
            in_flight: HashMap::new(),
            finished_attempts: Vec::new(),
            cursor_by_class: HashMap::new(),
        }
    }

    /// Notes what was made and takes up what is due. An error means that Postgres is away: what is under way goes on, and
    /// is noted by a later round.
    pub async fn run_round(&mut self) -> Result<()> {
        self.collect_finished();
        if !self.finished_attempts.is_empty() {
            self.store.record_attempts(&self.finished_attempts).await?;
            for attempt in self.finished_attempts.drain(..) {
                metrics::counter!("vintem_webhook_attempts_total", "verdict" => attempt.outcome.id()).increment(1);
            }
        }
        if self.delivery_lead.is_none() {
            let mine: Vec<i64> = self.in_flight.values().map(|attempt| attempt.result_if_aborted.delivery_id).collect();
            self.delivery_lead = self.store.try_lease_deliveries(&mine).await?;
        }
        self.start_due_attempts(ReceiverHealth::Prompt).await?;
        self.start_due_attempts(ReceiverHealth::Lagging).await
    }

    /// Waits until an attempt has come to its end.
    pub async fn wait_for_finished_attempt(&mut self) {
        match self.attempt_tasks.join_next_with_id().await {
            Some(ended) => self.record_finished(ended),
            None => std::future::pending().await,
        }
    }

    /// Delivers all that is due now, and returns when nothing is under way any more.
    pub async fn deliver_due(&mut self) -> Result<()> {
        loop {
            self.run_round().await?;
            if self.in_flight.is_empty() && self.finished_attempts.is_empty() {
                return Ok(());
            }
            if self.finished_attempts.is_empty() {
                self.wait_for_finished_attempt().await;
            }
        }
    }

    /// Waits for what is under way, takes up nothing more, and notes what came of it.
    pub async fn finish(mut self, timeout: Duration) -> Result<()> {
        let ending = async {
            while let Some(ended) = self.attempt_tasks.join_next_with_id().await {
                self.record_finished(ended);
            }
        };
        // What takes longer is made again by whoever delivers next.
        let _ = tokio::time::timeout(timeout, ending).await;
        if self.finished_attempts.is_empty() {
            Ok(())
        } else {
            self.store.record_attempts(&self.finished_attempts).await
        }
    }

    fn collect_finished(&mut self) {
        while let Some(ended) = self.attempt_tasks.try_join_next_with_id() {
            self.record_finished(ended);
        }
    }

    fn record_finished(&mut self, ended: std::result::Result<(Id, DeliveryAttempt), tokio::task::JoinError>) {
        match ended {
            Ok((task, attempted)) => {
                self.in_flight.remove(&task);
                self.finished_attempts.push(attempted);
            }
            Err(error) => {
                tracing::error!(%error, "an attempt to deliver did not come to its end");
                self.finished_attempts
                    .extend(self.in_flight.remove(&error.id()).map(|attempt| attempt.result_if_aborted));
            }
        }
    }

    /// Takes up deliveries of one class until nothing is due or there is no room.
    async fn start_due_attempts(&mut self, class: ReceiverHealth) -> Result<()> {
        let Some(mut lead) = self.delivery_lead.take() else { return Ok(()) };
        let mut has_begun_anew = false;
        loop {
            let room = self.free_slots(class);
            if room == 0 {
                break;
            }
            let (now, busy) = (self.clock.now(), self.saturated_webhooks(class));
            let after = self.cursor_by_class.get(&class).copied().unwrap_or(0);
            let most_of_one = MAX_IN_FLIGHT_PER_WEBHOOK as i64;
            let demand = ClaimOptions {
                now,
                receiver_health: class,
                after_webhook: after,
                excluded_webhooks: &busy,
                max_total: room as i64,
                max_per_webhook: most_of_one,
            };
            // With an error the right to deliver is given up: the connection may be gone, and another worker at it.
            let due = lead.claim_due(&demand).await?;
            let is_last = due.len() < room;
            let last = due.iter().map(|due| due.webhook_number).max().unwrap_or(after);
            self.cursor_by_class.insert(class, if is_last { 0 } else { last });
            for delivery in due {
                self.spawn_attempt(delivery, class);
            }
            if is_last && (after == 0 || has_begun_anew) {
                break;
            }
            has_begun_anew |= is_last;
        }
        self.delivery_lead = Some(lead);
        Ok(())
    }

    fn free_slots(&self, class: ReceiverHealth) -> usize {
        let room = MAX_IN_FLIGHT.saturating_sub(self.in_flight.len());
        match class {
            ReceiverHealth::Prompt => room,
            ReceiverHealth::Lagging => {
                let lagging = self.in_flight.values().filter(|attempt| attempt.class == class).count();
                room.min(MAX_LAGGING_IN_FLIGHT.saturating_sub(lagging))
            }
        }
    }

    /// Webhooks that have enough under way.
    fn saturated_webhooks(&self, class: ReceiverHealth) -> Vec<i64> {
        let mut of_each: HashMap<i64, usize> = HashMap::new();
        for attempt in self.in_flight.values() {
            *of_each.entry(attempt.result_if_aborted.webhook_number).or_default() += 1;
        }
        let enough = match class {
            ReceiverHealth::Prompt => MAX_IN_FLIGHT_PER_WEBHOOK,
            ReceiverHealth::Lagging => 1,
        };
        let full = of_each.into_iter().filter(|(_, count)| *count >= enough).map(|(webhook, _)| webhook);
        full.collect()
    }

    fn spawn_attempt(&mut self, due: DueDelivery, class: ReceiverHealth) {
        let now = self.clock.now();
        let broken = attempt_result(&due, &SendAttempt::failed(now, "internal"), now);
        let (sender, clock, secrets) = (self.sender.clone(), self.clock.clone(), self.secret_box.clone());
        let task = self.attempt_tasks.spawn(async move {
            let attempt = send_delivery(&sender, &secrets, &due, clock.now()).await;
            attempt_result(&due, &attempt, clock.now())
        });
        self.in_flight.insert(task.id(), InFlightAttempt { class, result_if_aborted: broken });
    }
}

async fn send_delivery(
    sender: &WebhookSender,
    secret_box: &SecretBox,
    due: &DueDelivery,
    now: DateTime<Utc>,
) -> SendAttempt {
    let former = due.sealed_former_secret.as_ref().filter(|(_, ends_at)| *ends_at > now);
    let sealed = std::iter::once(&due.sealed_secret).chain(former.map(|(sealed, _)| sealed));
    let timestamp = now.timestamp();
    let sign = |sealed: &Vec<u8>| {
        let secret = secret_box.open(&due.webhook_id, sealed)?;
        Some(secret.sign(&due.event_id, timestamp, &due.body))
    };
    let Some(signatures) = sealed.map(sign).collect::<Option<Vec<String>>>() else {
        tracing::error!(webhook = due.webhook_id, "its secret was sealed under another VINTEM_SECRET_KEY");
        return SendAttempt::failed(now, "internal");
    };
    let message = WebhookMessage {
        url: &due.url,
        event_id: &due.event_id,
        timestamp,
        signatures: signatures.join(" "),
        body: due.body.clone(),
        feed_position: due.event_position,
    };
    sender.send(message, now).await
}

/// What an attempt means for its delivery.
fn attempt_result(due: &DueDelivery, attempt: &SendAttempt, now: DateTime<Utc>) -> DeliveryAttempt {
    let (failures, chance) = (usize::from(due.failures.unsigned_abs()) + 1, rand::rng().random_range(-100..=100));
    let asked = attempt.retry_after.and_then(|wait| TimeDelta::from_std(wait).ok());
    // A test is for its owner, who waits for it: it is not tried again.
    let wait = if due.event_position.is_none() { None } else { retry_delay(failures, chance, asked) };
    let verdict = match wait {
        _ if attempt.is_success() => AttemptOutcome::Delivered,
        _ if attempt.is_gone() => AttemptOutcome::ReceiverGone,
        Some(wait) => AttemptOutcome::RetryAt(now + wait),
        None => AttemptOutcome::Exhausted,
    };
    DeliveryAttempt {
        delivery_id: due.id,
        webhook_number: due.webhook_number,
        url: due.url.clone(),
        failures_before: due.failures,
        attempted_at: now,
        outcome: verdict,
        is_slow: Duration::from_millis(attempt.milliseconds) > SLOW_ATTEMPT_THRESHOLD,
        attempt_json: serde_json::to_string(attempt).expect("attempts have text keys only"),
    }
}
