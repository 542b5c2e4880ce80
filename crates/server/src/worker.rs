//! The background work of `vintem work` and `vintem up`: it builds the bulk export, publishes events, and delivers them
//! to webhooks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use vintem_api::TaskHealth;
use vintem_api::event_body::build_publication;
use vintem_api::export_datasets::list_export_datasets;
use vintem_deliver::export::{self, BuildReport};
use vintem_deliver::webhook::{WebhookDispatcher, WebhookSender};
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::{Clock, SystemClock};
use vintem_snapshot::{LiveSnapshot, Snapshot};
use vintem_store::Store;

use crate::background::Notifications;
use crate::settings::WebhookSettings;
use crate::supervision::spawn_supervised;
use crate::traces::attempt_tracer;

/// How often to check whether a dataset changed.
const EXPORT_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The poll interval while a dataset is postponed: finding what changed among millions of filings takes a second.
const POSTPONED_EXPORT_DELAY: Duration = Duration::from_secs(60);
/// How often to check for events to publish.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(500);
/// Events published at once; fewer if they would exceed [`MAX_DELIVERIES_PER_PUBLISH`].
const MAX_EVENTS_PER_PUBLISH: usize = 500;
/// Deliveries written along with the events published at once.
const MAX_DELIVERIES_PER_PUBLISH: usize = 20_000;
/// How often to check for due deliveries without a notification.
const DELIVERY_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The pause after a round, as a multiple of its duration. With many pending retries a round takes long, and the pause
/// leaves Postgres most of the time for other work.
const ROUND_REST_FACTOR: u32 = 4;
/// The pause before a round that records finished attempts, so that it records many at once.
const MIN_ROUND_INTERVAL: Duration = Duration::from_millis(5);
/// How long attempts in flight may take at shutdown.
const DELIVERY_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// Keeps a full disk from being filled again and again.
const EXPORT_RETRY_DELAY: Duration = Duration::from_secs(300);

/// What the tasks of a worker share.
pub struct Worker {
    pub store: Store,
    pub live_snapshot: Arc<LiveSnapshot>,
    pub notifications: Arc<Notifications>,
    pub health: Arc<TaskHealth>,
}

impl Worker {
    /// Publishes events and, if there is a directory for them, builds export files.
    pub fn spawn_publisher_and_exports(&self, export_directory: Option<PathBuf>) -> Vec<JoinHandle<()>> {
        let publisher = (self.store.clone(), self.live_snapshot.clone());
        let mut tasks = vec![spawn_supervised("publisher", &self.health, publisher, |(store, live)| {
            run_event_publisher(store, live, Arc::new(SystemClock))
        })];
        tasks.extend(export_directory.map(|directory| {
            let context = (self.live_snapshot.clone(), directory);
            spawn_supervised("exports", &self.health, context, |(live, directory)| {
                run_export_builder(live, directory, Arc::new(SystemClock))
            })
        }));
        tasks
    }

    /// Delivers webhooks until `stopping` turns true.
    pub fn spawn_deliveries(
        &self,
        settings: &WebhookSettings,
        stopping: watch::Receiver<bool>,
    ) -> anyhow::Result<JoinHandle<()>> {
        // Wrong settings show now and not in the task.
        build_dispatcher(self.store.clone(), settings, Arc::new(SystemClock))?;
        let context = (self.store.clone(), settings.clone(), self.notifications.clone(), stopping);
        Ok(spawn_supervised("webhooks", &self.health, context, async |(store, settings, notifications, stopping)| {
            match build_dispatcher(store, &settings, Arc::new(SystemClock)) {
                Ok(dispatcher) => run_webhook_dispatcher(dispatcher, notifications, stopping).await,
                Err(error) => tracing::error!(%error, "cannot deliver webhooks"),
            }
        }))
    }
}

/// Rebuilds export files as datasets change, forever.
pub async fn run_export_builder(live: Arc<LiveSnapshot>, directory: PathBuf, clock: Arc<dyn Clock>) {
    // Nothing is known yet. A worker that never completes the export must become late all the same.
    record_complete_export(clock.now());
    let mut built_state = None;
    loop {
        sleep(EXPORT_POLL_INTERVAL).await;
        let Some(snapshot) = live.get() else { continue };
        if live.lacks_statements() {
            // The files that are there stay as they are.
            tracing::error!("no export files are built while statements cannot be written to the local file");
            sleep(EXPORT_RETRY_DELAY).await;
            continue;
        }
        let now = clock.now();
        let current_state = Some((snapshot.states().clone(), sao_paulo_date(now)));
        if built_state == current_state {
            record_complete_export(now);
            continue;
        }

        let started = Instant::now();
        let directory = directory.clone();
        let result = tokio::task::spawn_blocking(move || build_changed_exports(&snapshot, &directory, now)).await;
        match result.map_err(anyhow::Error::from).and_then(|report| report.map_err(anyhow::Error::from)) {
            Ok(BuildReport { built_datasets, failed_datasets, postponed_count: waiting, is_locked_elsewhere }) => {
                if !built_datasets.is_empty() {
                    let seconds = started.elapsed().as_secs();
                    tracing::info!(datasets = built_datasets.len(), waiting, seconds, "built export files");
                }
                if !failed_datasets.is_empty() {
                    sleep(EXPORT_RETRY_DELAY).await;
                } else if waiting == 0 && !is_locked_elsewhere {
                    built_state = current_state;
                    record_complete_export(now);
                } else {
                    sleep(POSTPONED_EXPORT_DELAY).await;
                }
            }
            Err(error) => {
                tracing::error!(%error, "export build failed");
                sleep(EXPORT_RETRY_DELAY).await;
            }
        }
    }
}

fn record_complete_export(at: DateTime<Utc>) {
    metrics::gauge!("vintem_export_complete_timestamp_seconds").set(at.timestamp() as f64);
}

/// Publishes events as loads write them, forever.
pub async fn run_event_publisher(store: Store, live: Arc<LiveSnapshot>, clock: Arc<dyn Clock>) {
    loop {
        match publish_pending_events(&store, &live, clock.now()).await {
            // There may be more.
            Ok(published) if published > 0 => continue,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "cannot publish events; retrying"),
        }
        sleep(PUBLISH_INTERVAL).await;
    }
}

/// Publishes one batch of events whose rows are already served, and returns their number.
pub async fn publish_pending_events(
    store: &Store,
    live: &LiveSnapshot,
    now: DateTime<Utc>,
) -> vintem_store::Result<u64> {
    let Some(snapshot) = live.get() else { return Ok(0) };
    let mut events = store.unpublished_events(snapshot.states(), MAX_EVENTS_PER_PUBLISH as i64).await?;
    if events.is_empty() {
        return Ok(0);
    }
    events.truncate((MAX_DELIVERIES_PER_PUBLISH / store.count_active_webhooks().await?.max(1)).max(1));

    let publications: Vec<_> = events.iter().map(|event| build_publication(&snapshot, event)).collect();
    store.publish_events(&publications, now).await
}

pub fn build_dispatcher(
    store: Store,
    settings: &WebhookSettings,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<WebhookDispatcher> {
    Ok(WebhookDispatcher::new(
        store,
        WebhookSender::new(settings.address_guard(), attempt_tracer())?,
        settings.secret_box()?,
        clock,
    ))
}

/// Delivers published events until `stop` turns true.
pub async fn run_webhook_dispatcher(
    mut dispatcher: WebhookDispatcher,
    notifications: Arc<Notifications>,
    mut stop: watch::Receiver<bool>,
) {
    let mut is_store_down = false;
    while !*stop.borrow() {
        let started = Instant::now();
        let round = dispatcher.run_round().await;
        let rest = DELIVERY_POLL_INTERVAL.max(ROUND_REST_FACTOR * started.elapsed());

        if let Err(error) = &round
            && !is_store_down
        {
            tracing::warn!(%error, "postgres unreachable; webhook deliveries are on hold");
        }
        is_store_down = round.is_err();
        if is_store_down {
            sleep(DELIVERY_POLL_INTERVAL).await;
            continue;
        }

        tokio::select! {
            () = notifications.deliveries.notified() => {}
            () = dispatcher.wait_for_finished_attempt() => sleep(MIN_ROUND_INTERVAL).await,
            () = sleep(rest) => {}
            _ = stop.changed() => {}
        }
    }

    if let Err(error) = dispatcher.finish(DELIVERY_SHUTDOWN_TIMEOUT).await {
        tracing::warn!(%error, "cannot record the last webhook deliveries; they will be sent again");
    }
}

/// Rebuilds the files of the datasets that changed. Blocks.
pub fn build_changed_exports(
    snapshot: &Arc<Snapshot>,
    directory: &Path,
    now: DateTime<Utc>,
) -> export::Result<BuildReport> {
    export::build_export_files(directory, &list_export_datasets(snapshot, sao_paulo_date(now)), now)
}
