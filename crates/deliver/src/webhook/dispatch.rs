//! The delivery loop: it claims due deliveries, sends them concurrently, and records the outcomes.
//!
//! Delivery is at least once: if the process or Postgres dies after an attempt and before it is recorded, the attempt is
//! made again. A slow or failing receiver gets few concurrent attempts, and all such receivers together at most half of
//! them, so that the others do not wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use rand::RngExt;
use tokio::task::{Id, JoinSet};
use vintem_domain::Clock;
use vintem_domain::webhook::retry_delay;
use vintem_store::webhooks::dispatch::{
    AttemptOutcome, ClaimOptions, DeliveryAttempt, DeliverySession, DueDelivery, ReceiverHealth,
};
use vintem_store::{Result, Store};

use super::secret::SecretBox;
use super::send::{SendAttempt, WebhookMessage, WebhookSender};

/// Concurrent attempts. Each has its own connection.
const MAX_IN_FLIGHT: usize = 512;
/// The share of [`MAX_IN_FLIGHT`] that slow or failing webhooks may take.
const MAX_LAGGING_IN_FLIGHT: usize = MAX_IN_FLIGHT / 2;
/// Deliveries claimed at once for one webhook. It gets more as soon as fewer than this are in flight.
const MAX_IN_FLIGHT_PER_WEBHOOK: usize = 8;
/// A receiver that takes longer counts as slow.
const SLOW_ATTEMPT_THRESHOLD: Duration = Duration::from_secs(5);

/// Delivers webhooks while it holds the lease that keeps other workers from doing the same.
#[derive(Debug)]
pub struct WebhookDispatcher {
    store: Store,
    sender: WebhookSender,
    secret_box: SecretBox,
    clock: Arc<dyn Clock>,
    /// Kept while another worker delivers too, because a new session for each try would cost more than the try.
    session: Option<DeliverySession>,
    attempt_tasks: JoinSet<DeliveryAttempt>,
    in_flight: HashMap<Id, InFlightAttempt>,
    /// Not recorded yet.
    finished_attempts: Vec<DeliveryAttempt>,
    /// The last webhook claimed for in each class, so that the following webhooks have their turn.
    cursor_by_class: HashMap<ReceiverHealth, i64>,
}

#[derive(Debug)]
struct InFlightAttempt {
    class: ReceiverHealth,
    /// Recorded if the task of the attempt panics.
    result_if_aborted: DeliveryAttempt,
}

impl WebhookDispatcher {
    pub fn new(store: Store, sender: WebhookSender, secret_box: SecretBox, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            sender,
            secret_box,
            clock,
            session: None,
            attempt_tasks: JoinSet::new(),
            in_flight: HashMap::new(),
            finished_attempts: Vec::new(),
            cursor_by_class: HashMap::new(),
        }
    }

    /// Records finished attempts and starts due ones. An error means that Postgres is unavailable: attempts in flight
    /// continue, and a later round records them.
    pub async fn run_round(&mut self) -> Result<()> {
        self.collect_finished();
        if !self.finished_attempts.is_empty() {
            self.store.record_attempts(&self.finished_attempts).await?;
            for attempt in self.finished_attempts.drain(..) {
                metrics::counter!("vintem_webhook_attempts_total", "verdict" => attempt.outcome.id()).increment(1);
            }
        }

        // An error drops the session: its connection may be lost, and another worker may have the lease by now.
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.store.open_delivery_session().await?,
        };
        let in_flight: Vec<i64> =
            self.in_flight.values().map(|attempt| attempt.result_if_aborted.delivery_id).collect();
        if session.try_lease(&in_flight).await? {
            self.start_due_attempts(&mut session, ReceiverHealth::Prompt).await?;
            self.start_due_attempts(&mut session, ReceiverHealth::Lagging).await?;
        }
        self.session = Some(session);
        Ok(())
    }

    /// Waits until an attempt finishes; forever if none is in flight.
    pub async fn wait_for_finished_attempt(&mut self) {
        match self.attempt_tasks.join_next_with_id().await {
            Some(result) => self.record_finished(result),
            None => std::future::pending().await,
        }
    }

    /// Delivers everything that is due now, and returns when nothing is in flight.
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

    /// Waits for the attempts in flight, starts no new ones, and records the outcomes.
    pub async fn finish(mut self, timeout: Duration) -> Result<()> {
        let drain = async {
            while let Some(result) = self.attempt_tasks.join_next_with_id().await {
                self.record_finished(result);
            }
        };
        // The next worker repeats attempts that take longer.
        let _ = tokio::time::timeout(timeout, drain).await;

        if self.finished_attempts.is_empty() {
            Ok(())
        } else {
            self.store.record_attempts(&self.finished_attempts).await
        }
    }

    fn collect_finished(&mut self) {
        while let Some(result) = self.attempt_tasks.try_join_next_with_id() {
            self.record_finished(result);
        }
    }

    fn record_finished(&mut self, result: std::result::Result<(Id, DeliveryAttempt), tokio::task::JoinError>) {
        match result {
            Ok((task, attempt)) => {
                self.in_flight.remove(&task);
                self.finished_attempts.push(attempt);
            }
            Err(error) => {
                tracing::error!(%error, "webhook delivery attempt failed unexpectedly");
                self.finished_attempts
                    .extend(self.in_flight.remove(&error.id()).map(|attempt| attempt.result_if_aborted));
            }
        }
    }

    /// Starts due deliveries of one class until none is left or all slots are taken.
    async fn start_due_attempts(&mut self, session: &mut DeliverySession, class: ReceiverHealth) -> Result<()> {
        let mut has_wrapped = false;
        loop {
            let free_slots = self.free_slots(class);
            if free_slots == 0 {
                break;
            }

            let now = self.clock.now();
            let saturated = self.saturated_webhooks(class);
            let cursor = self.cursor_by_class.get(&class).copied().unwrap_or(0);
            let options = ClaimOptions {
                now,
                receiver_health: class,
                after_webhook: cursor,
                excluded_webhooks: &saturated,
                max_total: free_slots as i64,
                max_per_webhook: MAX_IN_FLIGHT_PER_WEBHOOK as i64,
            };
            let due = session.claim_due(&options).await?;

            let is_last_page = due.len() < free_slots;
            let last_webhook = due.iter().map(|delivery| delivery.webhook_number).max().unwrap_or(cursor);
            self.cursor_by_class.insert(class, if is_last_page { 0 } else { last_webhook });
            for delivery in due {
                self.spawn_attempt(delivery, class);
            }

            if is_last_page && (cursor == 0 || has_wrapped) {
                break;
            }
            has_wrapped |= is_last_page;
        }
        Ok(())
    }

    fn free_slots(&self, class: ReceiverHealth) -> usize {
        let free = MAX_IN_FLIGHT.saturating_sub(self.in_flight.len());
        match class {
            ReceiverHealth::Prompt => free,
            ReceiverHealth::Lagging => {
                let lagging = self.in_flight.values().filter(|attempt| attempt.class == class).count();
                free.min(MAX_LAGGING_IN_FLIGHT.saturating_sub(lagging))
            }
        }
    }

    /// Webhooks that may not have more attempts in flight.
    fn saturated_webhooks(&self, class: ReceiverHealth) -> Vec<i64> {
        let mut counts: HashMap<i64, usize> = HashMap::new();
        for attempt in self.in_flight.values() {
            *counts.entry(attempt.result_if_aborted.webhook_number).or_default() += 1;
        }

        let max_per_webhook = match class {
            ReceiverHealth::Prompt => MAX_IN_FLIGHT_PER_WEBHOOK,
            ReceiverHealth::Lagging => 1,
        };
        let saturated = counts.into_iter().filter(|(_, count)| *count >= max_per_webhook);
        saturated.map(|(webhook, _)| webhook).collect()
    }

    fn spawn_attempt(&mut self, due: DueDelivery, class: ReceiverHealth) {
        let now = self.clock.now();
        let result_if_aborted = attempt_result(&due, &SendAttempt::failed(now, "internal"), now);

        let sender = self.sender.clone();
        let clock = self.clock.clone();
        let secret_box = self.secret_box.clone();
        let task = self.attempt_tasks.spawn(async move {
            let attempt = send_delivery(&sender, &secret_box, &due, clock.now()).await;
            attempt_result(&due, &attempt, clock.now())
        });
        self.in_flight.insert(task.id(), InFlightAttempt { class, result_if_aborted });
    }
}

async fn send_delivery(
    sender: &WebhookSender,
    secret_box: &SecretBox,
    due: &DueDelivery,
    now: DateTime<Utc>,
) -> SendAttempt {
    let former_secret = due.sealed_former_secret.as_ref().filter(|(_, ends_at)| *ends_at > now);
    let sealed_secrets = std::iter::once(&due.sealed_secret).chain(former_secret.map(|(sealed, _)| sealed));

    let timestamp = now.timestamp();
    let sign = |sealed: &Vec<u8>| {
        let secret = secret_box.open(&due.webhook_id, sealed)?;
        Some(secret.sign(&due.event_id, timestamp, &due.body))
    };
    let Some(signatures) = sealed_secrets.map(sign).collect::<Option<Vec<String>>>() else {
        tracing::error!(webhook = due.webhook_id, "webhook secret was encrypted with another VINTEM_SECRET_KEY");
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

/// Decides whether a delivery is done, retried or given up after an attempt.
fn attempt_result(due: &DueDelivery, attempt: &SendAttempt, now: DateTime<Utc>) -> DeliveryAttempt {
    let failures = usize::from(due.failures.unsigned_abs()) + 1;
    let jitter = rand::rng().random_range(-100..=100);
    let retry_after = attempt.retry_after.and_then(|wait| TimeDelta::from_std(wait).ok());
    // Test events have no position in the feed. They are not retried: the owner is watching and sees the failure.
    let delay = if due.event_position.is_none() { None } else { retry_delay(failures, jitter, retry_after) };
    let outcome = match delay {
        _ if attempt.is_success() => AttemptOutcome::Delivered,
        _ if attempt.is_gone() => AttemptOutcome::ReceiverGone,
        Some(delay) => AttemptOutcome::RetryAt(now + delay),
        None => AttemptOutcome::Exhausted,
    };

    DeliveryAttempt {
        delivery_id: due.id,
        webhook_number: due.webhook_number,
        url: due.url.clone(),
        failures_before: due.failures,
        attempted_at: now,
        outcome,
        is_slow: Duration::from_millis(attempt.milliseconds) > SLOW_ATTEMPT_THRESHOLD,
        attempt_json: serde_json::to_string(attempt).expect("attempts have text keys only"),
    }
}
