//! What `vintem work` does: it makes the files of the bulk export, publishes events, and delivers them to webhooks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio::sync::watch;
use tokio::time::sleep;
use vintem_api::events::publication;
use vintem_api::exports::exported;
use vintem_deliver::export::{self, Built};
use vintem_deliver::webhook::{Dispatcher, Sender};
use vintem_domain::Clock;
use vintem_domain::dates::sao_paulo_day;
use vintem_snapshot::{LiveSnapshot, Snapshot};
use vintem_store::Store;

use crate::follow::Bells;
use crate::settings::WebhookSettings;

/// Between two looks at whether anything changed.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);
/// To find out what changed of millions of filings takes a second: not more often than this while something waits.
const WHILE_SOMETHING_WAITS: Duration = Duration::from_secs(60);
/// Between two looks at whether there are events to publish.
const BETWEEN_PUBLISHINGS: Duration = Duration::from_millis(500);
/// So many events are published at once, …
const MOST_EVENTS: usize = 500;
/// … or fewer, so that no more than so many deliveries are written with them.
const MOST_DELIVERIES: usize = 20_000;
/// Between two looks at whether something is to be delivered, if nothing is heard of it.
const BETWEEN_DELIVERIES: Duration = Duration::from_millis(250);
/// Where very many deliveries wait to be tried again a look takes long: most of the time is left to others.
const REST_AFTER_A_ROUND: u32 = 4;
/// A round takes up what came to its end meanwhile: many in one go.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(5);
/// What is on its way when the process is to end may take so long.
const LAST_DELIVERIES: Duration = Duration::from_secs(10);
/// A full disk is not written to the brim again and again.
const AFTER_A_FAILURE: Duration = Duration::from_secs(300);

/// Makes files as the datasets change, for ever.
pub async fn keep_exports(live: Arc<LiveSnapshot>, directory: PathBuf, clock: Arc<dyn Clock>) {
    let mut made_of = None;
    loop {
        sleep(BETWEEN_LOOKS).await;
        let Some(snapshot) = live.get() else { continue };
        let now = clock.now();
        let made_now = Some((snapshot.states().clone(), sao_paulo_day(now)));
        if made_of == made_now {
            continue;
        }
        let (began, to) = (Instant::now(), directory.clone());
        let built = tokio::task::spawn_blocking(move || make_exports(&snapshot, &to, now)).await;
        match built.map_err(anyhow::Error::from).and_then(|built| built.map_err(anyhow::Error::from)) {
            Ok(Built { made, failed, waiting, is_elsewhere }) => {
                if !made.is_empty() {
                    let seconds = began.elapsed().as_secs();
                    tracing::info!(datasets = made.len(), waiting, seconds, "files of the export were made");
                }
                if !failed.is_empty() {
                    sleep(AFTER_A_FAILURE).await;
                } else if waiting == 0 && !is_elsewhere {
                    made_of = made_now;
                } else {
                    sleep(WHILE_SOMETHING_WAITS).await;
                }
            }
            Err(error) => {
                tracing::error!(%error, "the files of the export could not be made");
                sleep(AFTER_A_FAILURE).await;
            }
        }
    }
}

/// Publishes events as loads write them, for ever.
pub async fn keep_publishing(store: Store, live: Arc<LiveSnapshot>, clock: Arc<dyn Clock>) {
    loop {
        match publish(&store, &live, clock.now()).await {
            // There may be more.
            Ok(published) if published > 0 => continue,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "events wait to be published"),
        }
        sleep(BETWEEN_PUBLISHINGS).await;
    }
}

/// Publishes some of the events whose rows are served, and says how many.
pub async fn publish(store: &Store, live: &LiveSnapshot, now: DateTime<Utc>) -> vintem_store::Result<u64> {
    let mut events = store.unpublished_events(MOST_EVENTS as i64).await?;
    if events.is_empty() {
        return Ok(0);
    }
    events.truncate((MOST_DELIVERIES / store.active_webhooks().await?.max(1)).max(1));
    // Read after the events, so it is as new as they are.
    let states = store.dataset_states().await?;
    let Some(snapshot) = live.get() else { return Ok(0) };
    if states.iter().any(|(dataset, state)| snapshot.generation(*dataset) < state.generation) {
        return Ok(0);
    }
    let publications: Vec<_> = events.iter().map(|event| publication(&snapshot, event)).collect();
    store.publish_events(&publications, now).await
}

/// What delivers to webhooks, from its settings.
pub fn dispatcher(store: Store, settings: &WebhookSettings, clock: Arc<dyn Clock>) -> anyhow::Result<Dispatcher> {
    Ok(Dispatcher::new(store, Sender::new(settings.guard())?, settings.secrets()?, clock))
}

/// Delivers what was published until it is to stop.
pub async fn keep_delivering(mut dispatcher: Dispatcher, bells: Arc<Bells>, mut stop: watch::Receiver<bool>) {
    let mut is_away = false;
    while !*stop.borrow() {
        let began = Instant::now();
        let round = dispatcher.round().await;
        let rest = BETWEEN_DELIVERIES.max(REST_AFTER_A_ROUND * began.elapsed());
        if let Err(error) = &round
            && !is_away
        {
            tracing::warn!(%error, "deliveries wait for Postgres");
        }
        is_away = round.is_err();
        if is_away {
            sleep(BETWEEN_DELIVERIES).await;
            continue;
        }
        tokio::select! {
            () = bells.deliveries.notified() => {}
            () = dispatcher.attempt_ended() => sleep(BETWEEN_ROUNDS).await,
            () = sleep(rest) => {}
            _ = stop.changed() => {}
        }
    }
    if let Err(error) = dispatcher.finish(LAST_DELIVERIES).await {
        tracing::warn!(%error, "the last deliveries could not be noted: they will be made again");
    }
}

/// Makes the files of what changed since they were made; blocks.
pub fn make_exports(snapshot: &Arc<Snapshot>, directory: &Path, now: DateTime<Utc>) -> export::Result<Built> {
    export::build(directory, &exported(snapshot, sao_paulo_day(now)), now)
}
