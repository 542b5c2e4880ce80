//! What `vintem work` does: it makes the files of the bulk export, publishes events, and delivers them to webhooks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio::sync::watch;
use tokio::time::sleep;
use vintem_api::event_body::build_publication;
use vintem_api::export_datasets::list_export_datasets;
use vintem_deliver::export::{self, BuildReport};
use vintem_deliver::webhook::{WebhookDispatcher, WebhookSender};
use vintem_domain::Clock;
use vintem_domain::dates::sao_paulo_date;
use vintem_snapshot::{LiveSnapshot, Snapshot};
use vintem_store::Store;

use crate::background::Notifications;
use crate::settings::WebhookSettings;

/// Between two looks at whether anything changed.
const EXPORT_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// To find out what changed of millions of filings takes a second: not more often than this while something waits.
const POSTPONED_EXPORT_DELAY: Duration = Duration::from_secs(60);
/// Between two looks at whether there are events to publish.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(500);
/// So many events are published at once, …
const MAX_EVENTS_PER_PUBLISH: usize = 500;
/// … or fewer, so that no more than so many deliveries are written with them.
const MAX_DELIVERIES_PER_PUBLISH: usize = 20_000;
/// Between two looks at whether something is to be delivered, if nothing is heard of it.
const DELIVERY_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Where very many deliveries wait to be tried again a look takes long: most of the time is left to others.
const ROUND_REST_FACTOR: u32 = 4;
/// A round takes up what came to its end meanwhile: many in one go.
const MIN_ROUND_INTERVAL: Duration = Duration::from_millis(5);
/// What is on its way when the process is to end may take so long.
const DELIVERY_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// A full disk is not written to the brim again and again.
const EXPORT_RETRY_DELAY: Duration = Duration::from_secs(300);

/// Makes files as the datasets change, for ever.
pub async fn run_export_builder(live: Arc<LiveSnapshot>, directory: PathBuf, clock: Arc<dyn Clock>) {
    let mut made_of = None;
    loop {
        sleep(EXPORT_POLL_INTERVAL).await;
        let Some(snapshot) = live.get() else { continue };
        let now = clock.now();
        let made_now = Some((snapshot.states().clone(), sao_paulo_date(now)));
        if made_of == made_now {
            continue;
        }
        let (began, to) = (Instant::now(), directory.clone());
        let built = tokio::task::spawn_blocking(move || build_changed_exports(&snapshot, &to, now)).await;
        match built.map_err(anyhow::Error::from).and_then(|built| built.map_err(anyhow::Error::from)) {
            Ok(BuildReport {
                built_datasets: made,
                failed_datasets: failed,
                postponed_count: waiting,
                is_locked_elsewhere: is_elsewhere,
            }) => {
                if !made.is_empty() {
                    let seconds = began.elapsed().as_secs();
                    tracing::info!(datasets = made.len(), waiting, seconds, "files of the export were made");
                }
                if !failed.is_empty() {
                    sleep(EXPORT_RETRY_DELAY).await;
                } else if waiting == 0 && !is_elsewhere {
                    made_of = made_now;
                } else {
                    sleep(POSTPONED_EXPORT_DELAY).await;
                }
            }
            Err(error) => {
                tracing::error!(%error, "the files of the export could not be made");
                sleep(EXPORT_RETRY_DELAY).await;
            }
        }
    }
}

/// Publishes events as loads write them, for ever.
pub async fn run_event_publisher(store: Store, live: Arc<LiveSnapshot>, clock: Arc<dyn Clock>) {
    loop {
        match publish_pending_events(&store, &live, clock.now()).await {
            // There may be more.
            Ok(published) if published > 0 => continue,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "events wait to be published"),
        }
        sleep(PUBLISH_INTERVAL).await;
    }
}

/// Publishes some of the events whose rows are served, and says how many.
pub async fn publish_pending_events(
    store: &Store,
    live: &LiveSnapshot,
    now: DateTime<Utc>,
) -> vintem_store::Result<u64> {
    let mut events = store.unpublished_events(MAX_EVENTS_PER_PUBLISH as i64).await?;
    if events.is_empty() {
        return Ok(0);
    }
    events.truncate((MAX_DELIVERIES_PER_PUBLISH / store.count_active_webhooks().await?.max(1)).max(1));
    // Read after the events, so it is as new as they are.
    let states = store.dataset_states().await?;
    let Some(snapshot) = live.get() else { return Ok(0) };
    if states.iter().any(|(dataset, state)| snapshot.generation(*dataset) < state.generation) {
        return Ok(0);
    }
    let publications: Vec<_> = events.iter().map(|event| build_publication(&snapshot, event)).collect();
    store.publish_events(&publications, now).await
}

/// What delivers to webhooks, from its settings.
pub fn build_dispatcher(
    store: Store,
    settings: &WebhookSettings,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<WebhookDispatcher> {
    Ok(WebhookDispatcher::new(store, WebhookSender::new(settings.address_guard())?, settings.secret_box()?, clock))
}

/// Delivers what was published until it is to stop.
pub async fn run_webhook_dispatcher(
    mut dispatcher: WebhookDispatcher,
    notifications: Arc<Notifications>,
    mut stop: watch::Receiver<bool>,
) {
    let mut is_away = false;
    while !*stop.borrow() {
        let began = Instant::now();
        let round = dispatcher.run_round().await;
        let rest = DELIVERY_POLL_INTERVAL.max(ROUND_REST_FACTOR * began.elapsed());
        if let Err(error) = &round
            && !is_away
        {
            tracing::warn!(%error, "deliveries wait for Postgres");
        }
        is_away = round.is_err();
        if is_away {
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
        tracing::warn!(%error, "the last deliveries could not be noted: they will be made again");
    }
}

/// Makes the files of what changed since they were made; blocks.
pub fn build_changed_exports(
    snapshot: &Arc<Snapshot>,
    directory: &Path,
    now: DateTime<Utc>,
) -> export::Result<BuildReport> {
    export::build_export_files(directory, &list_export_datasets(snapshot, sao_paulo_date(now)), now)
}
