//! Background tasks of a process: refreshing keys, events and the snapshot from Postgres, compacting filing layers, saving
//! the disk copy, and draining usage counts.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use vintem_api::App;
use vintem_meter::UsageSource;
use vintem_snapshot::LiveSnapshot;
use vintem_store::Store;
use vintem_store::listener::StoreNotification;

/// Keys are polled as well, so that a revocation takes effect everywhere within a second even if the notification channel
/// fails.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often live counts move to Postgres; the usage endpoint adds the counts that are still live. While Redis is
/// unavailable, a replica that dies loses up to this much usage.
const DRAIN_INTERVAL: Duration = Duration::from_secs(1);
/// How often old usage and events are deleted, a few rows at a time.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3600);
/// The minimum time between two snapshots: a burst of loads causes few of them, and each load still shows up soon.
const MIN_SNAPSHOT_INTERVAL: Duration = Duration::from_millis(1_100);
/// How often to check whether filing layers need compaction.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(5);
/// How often to check whether the disk copy is behind. At startup, newer rows come from Postgres.
const COPY_INTERVAL: Duration = Duration::from_secs(5);
/// Keeps a full disk from being filled again and again.
const COPY_RETRY_DELAY: Duration = Duration::from_secs(300);
/// The pause between attempts while Postgres is unavailable.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// Wakes the tasks that wait for changes in Postgres.
#[derive(Default)]
pub struct Notifications {
    keys: Notify,
    generations: Notify,
    events: Notify,
    pub deliveries: Notify,
}

/// Forwards the notifications of Postgres, and reconnects if the connection is lost.
pub async fn listen_for_notifications(store: Store, notifications: Arc<Notifications>) {
    loop {
        match store.listen().await {
            Ok(mut listener) => loop {
                match listener.next_notification().await {
                    Ok(StoreNotification::KeysChanged) => notifications.keys.notify_one(),
                    Ok(StoreNotification::DatasetsChanged) => notifications.generations.notify_one(),
                    Ok(StoreNotification::EventsPublished) => notifications.events.notify_one(),
                    Ok(StoreNotification::DeliveriesQueued) => notifications.deliveries.notify_one(),
                    Ok(StoreNotification::Reconnected) => {
                        notifications.keys.notify_one();
                        notifications.generations.notify_one();
                        notifications.events.notify_one();
                        notifications.deliveries.notify_one();
                    }
                    Err(error) => {
                        tracing::warn!(%error, "lost postgres notification channel; reconnecting");
                        break;
                    }
                }
            },
            Err(error) => tracing::warn!(%error, "cannot listen for postgres notifications; retrying"),
        }
        sleep(RECONNECT_DELAY).await;
    }
}

pub async fn refresh_keys(app: Arc<App>, notifications: Arc<Notifications>) {
    loop {
        let refreshed = app.keyring.refresh().await;
        app.set_store_up(refreshed.is_ok());
        if let Err(error) = refreshed {
            tracing::warn!(%error, "cannot read key changes; using the keys in memory");
        }
        tokio::select! {
            () = notifications.keys.notified() => {}
            () = sleep(POLL_INTERVAL) => {}
        }
    }
}

pub async fn refresh_snapshot(store: Store, snapshot: Arc<LiveSnapshot>, notifications: Arc<Notifications>) {
    loop {
        let started = Instant::now();
        let mut is_new = false;
        match snapshot.refresh(&store).await {
            Ok(true) => {
                is_new = true;
                metrics::counter!("vintem_snapshots_total").increment(1);
                tracing::info!(milliseconds = started.elapsed().as_millis() as u64, "serving new snapshot");
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "cannot build snapshot; serving the last one"),
        }

        if let Err(error) = snapshot.refresh_sources(&store).await {
            tracing::warn!(%error, "cannot read source states");
        }

        if is_new {
            sleep(MIN_SNAPSHOT_INTERVAL.saturating_sub(started.elapsed())).await;
        }
        tokio::select! {
            () = notifications.generations.notified() => {}
            () = sleep(POLL_INTERVAL) => {}
        }
    }
}

/// Reads new events into the feed.
pub async fn refresh_events(app: Arc<App>, notifications: Arc<Notifications>) {
    loop {
        if let Err(error) = app.event_feed.refresh(&app.store).await {
            tracing::warn!(%error, "cannot read new events; retrying");
        }
        tokio::select! {
            () = notifications.events.notified() => {}
            () = sleep(POLL_INTERVAL) => {}
        }
    }
}

/// Merges filing layers in the background when there are many.
pub async fn compact_layers(snapshot: Arc<LiveSnapshot>) {
    loop {
        match snapshot.compact_filings().await {
            Ok(true) => tracing::info!("compacted filing layers"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "cannot compact filing layers"),
        }
        sleep(COMPACTION_INTERVAL).await;
    }
}

/// Keeps the disk copy close to the served snapshot.
pub async fn save_snapshot_copy(snapshot: Arc<LiveSnapshot>) {
    loop {
        let started = Instant::now();
        match snapshot.save_disk_cache().await {
            Ok(true) => {
                tracing::info!(milliseconds = started.elapsed().as_millis() as u64, "saved snapshot copy to disk");
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot save snapshot copy to disk");
                sleep(COPY_RETRY_DELAY).await;
            }
        }
        sleep(COPY_INTERVAL).await;
    }
}

pub async fn drain_usage(app: Arc<App>) {
    let mut ticks = interval(DRAIN_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);

    let mut pruned_at = Instant::now();
    let mut expired_at = Instant::now();
    loop {
        ticks.tick().await;

        if pruned_at.elapsed() > PRUNE_INTERVAL {
            pruned_at = Instant::now();
            if let Err(error) = app.store.prune_usage().await {
                tracing::warn!(%error, "cannot prune old usage; retrying");
            }
            if let Err(error) = app.store.prune_events().await {
                tracing::warn!(%error, "cannot prune old events; retrying");
            }
        }

        let mut is_usage_stored = true;
        for source in app.meter.usage_sources() {
            if let Err(error) = drain_usage_source(&app, source).await {
                tracing::warn!(%error, "cannot store usage in postgres; retrying");
                is_usage_stored = false;
            }
        }

        // While usage is behind, nobody knows which keys are unused.
        if is_usage_stored && expired_at.elapsed() > PRUNE_INTERVAL {
            expired_at = Instant::now();
            match app.store.expire_unused_keys(app.clock.now()).await {
                Ok(ids) if ids.is_empty() => {}
                Ok(ids) => tracing::info!(keys = ids.len(), "expired unused free keys"),
                Err(error) => tracing::warn!(%error, "cannot expire unused keys; retrying"),
            }
        }
    }
}

pub async fn drain_usage_source(app: &App, source: UsageSource) -> anyhow::Result<()> {
    // A batch left by a process that died comes first, then the current one.
    for _ in 0..2 {
        let Some(batch) = app.meter.next_usage_batch(source).await? else { break };
        app.store.record_usage_batch(&batch.id, &batch.rows).await?;
        app.meter.drop_usage_batch(&batch).await?;
    }
    Ok(())
}
