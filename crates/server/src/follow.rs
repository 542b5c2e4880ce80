//! What goes on beside answering: a process follows the store's generations and keys, and drains the usage.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use vintem_api::App;
use vintem_meter::Source;
use vintem_snapshot::LiveSnapshot;
use vintem_store::Store;
use vintem_store::listen::Notice;

/// Keys are polled as well, so that a revocation holds everywhere within a second whatever befalls the channel.
const POLL: Duration = Duration::from_secs(1);
/// Live counts move to Postgres this often; the usage endpoint adds what is still live. While Redis is away, it is what
/// a replica that dies takes with it.
const DRAIN: Duration = Duration::from_secs(1);
/// Old usage is forgotten this often, a little at a time.
const PRUNE: Duration = Duration::from_secs(3600);
/// From one snapshot to the next: a burst of loads leads to few of them, and each load is seen soon enough.
const BETWEEN_SNAPSHOTS: Duration = Duration::from_millis(1_100);
/// Between two looks at whether layers of filings should become one.
const BETWEEN_COMPACTIONS: Duration = Duration::from_secs(5);
/// Between two looks at whether the copy on disk is behind; what is newer than it comes from Postgres at a start.
const BETWEEN_COPIES: Duration = Duration::from_secs(5);
/// A full disk is not written to the brim again and again.
const AFTER_A_FAILED_COPY: Duration = Duration::from_secs(300);
/// Between tries while Postgres is away.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct Bells {
    keys: Notify,
    generations: Notify,
    events: Notify,
    pub deliveries: Notify,
}

/// Rings when Postgres notifies.
pub async fn listen(store: Store, bells: Arc<Bells>) {
    loop {
        match store.listen().await {
            Ok(mut listener) => loop {
                match listener.next().await {
                    Ok(Notice::Keys) => bells.keys.notify_one(),
                    Ok(Notice::Generation) => bells.generations.notify_one(),
                    Ok(Notice::Events) => bells.events.notify_one(),
                    Ok(Notice::Deliveries) => bells.deliveries.notify_one(),
                    Ok(Notice::Reconnected) => {
                        bells.keys.notify_one();
                        bells.generations.notify_one();
                        bells.events.notify_one();
                        bells.deliveries.notify_one();
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the channel to Postgres was cut");
                        break;
                    }
                }
            },
            Err(error) => tracing::warn!(%error, "Postgres cannot be listened to"),
        }
        sleep(PAUSE).await;
    }
}

pub async fn keys(app: Arc<App>, bells: Arc<Bells>) {
    loop {
        let refreshed = app.keyring.refresh().await;
        app.note_store_answers(refreshed.is_ok());
        if let Err(error) = refreshed {
            tracing::warn!(%error, "keys cannot be followed; those in memory rule");
        }
        tokio::select! {
            () = bells.keys.notified() => {}
            () = sleep(POLL) => {}
        }
    }
}

pub async fn snapshot(store: Store, snapshot: Arc<LiveSnapshot>, bells: Arc<Bells>) {
    loop {
        let began = Instant::now();
        let mut is_new = false;
        match snapshot.refresh(&store).await {
            Ok(true) => {
                is_new = true;
                metrics::counter!("vintem_snapshots_total").increment(1);
                tracing::info!(milliseconds = began.elapsed().as_millis() as u64, "a new snapshot is served");
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "no new snapshot could be built; the last one is served on"),
        }
        if let Err(error) = snapshot.refresh_sources(&store).await {
            tracing::warn!(%error, "how the sources stand is not known");
        }
        if is_new {
            sleep(BETWEEN_SNAPSHOTS.saturating_sub(began.elapsed())).await;
        }
        tokio::select! {
            () = bells.generations.notified() => {}
            () = sleep(POLL) => {}
        }
    }
}

/// Reads events as they are published.
pub async fn events(app: Arc<App>, bells: Arc<Bells>) {
    loop {
        if let Err(error) = app.feed.refresh(&app.store).await {
            tracing::warn!(%error, "events cannot be followed");
        }
        tokio::select! {
            () = bells.events.notified() => {}
            () = sleep(POLL) => {}
        }
    }
}

/// Makes few layers of many, aside.
pub async fn compact(snapshot: Arc<LiveSnapshot>) {
    loop {
        match snapshot.compact().await {
            Ok(true) => tracing::info!("layers of filings became one"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "layers of filings could not be made one"),
        }
        sleep(BETWEEN_COMPACTIONS).await;
    }
}

/// Keeps the copy on disk near what is served.
pub async fn save_copy(snapshot: Arc<LiveSnapshot>) {
    loop {
        let began = Instant::now();
        match snapshot.save_copy().await {
            Ok(true) => tracing::info!(milliseconds = began.elapsed().as_millis() as u64, "the copy on disk is new"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "the copy on disk could not be written");
                sleep(AFTER_A_FAILED_COPY).await;
            }
        }
        sleep(BETWEEN_COPIES).await;
    }
}

pub async fn drain_usage(app: Arc<App>) {
    let mut ticks = interval(DRAIN);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pruned_at = Instant::now();
    loop {
        ticks.tick().await;
        if pruned_at.elapsed() > PRUNE {
            pruned_at = Instant::now();
            if let Err(error) = app.store.prune_usage().await {
                tracing::warn!(%error, "old usage waits to be forgotten");
            }
            if let Err(error) = app.store.prune_events().await {
                tracing::warn!(%error, "old events wait to be forgotten");
            }
        }
        for source in app.meter.sources() {
            if let Err(error) = drain(&app, source).await {
                tracing::warn!(%error, "usage waits to be drained");
            }
        }
    }
}

pub async fn drain(app: &App, source: Source) -> anyhow::Result<()> {
    // A batch that was left by a drainer that died comes first, then the current one.
    for _ in 0..2 {
        let Some(batch) = app.meter.next_batch(source).await? else { break };
        app.store.drain_usage_batch(&batch.id, &batch.rows).await?;
        app.meter.drop_batch(&batch).await?;
    }
    Ok(())
}
