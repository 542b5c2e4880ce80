//! Background tasks of a process: refreshing keys, events and the snapshot from Postgres, compacting filing layers, saving
//! the disk copy, and storing usage counts.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use vintem_api::App;
use vintem_meter::{UsageChunk, UsageSource};
use vintem_snapshot::LiveSnapshot;
use vintem_store::listener::StoreNotification;
use vintem_store::usage::{ChunkRecord, UsageGapReason};
use vintem_store::{Store, StoreError};

/// Keys are polled as well, so that a revocation takes effect everywhere within a second even if the notification channel
/// fails.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often live counts move to Postgres; the usage endpoint adds the counts that are still live. While Redis is
/// unavailable, a replica that dies loses up to this much usage.
const USAGE_INTERVAL: Duration = Duration::from_secs(1);
/// How often unused keys expire.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(3600);
/// How often partitions are looked at. They are there days ahead, but a database that was restored may lack some.
const PARTITION_INTERVAL: Duration = Duration::from_secs(60);
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
    has_tried_snapshot: watch::Sender<bool>,
}

impl Notifications {
    /// Waits until there is a snapshot, or it is known that there is none for now.
    pub async fn first_snapshot_attempt(&self) {
        // Fails only without a sender, which `self` has.
        let _ = self.has_tried_snapshot.subscribe().wait_for(|has_tried| *has_tried).await;
    }
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
        app.set_store_up(matches!(refreshed, Ok(()) | Err(StoreError::WrongPepper)));
        if let Err(error) = refreshed {
            tracing::warn!(%error, "cannot read key changes; using the keys in memory");
        }
        // If it does not answer, the last answer stands.
        if let Ok(is_read_only) = app.store.is_read_only().await {
            app.set_store_read_only(is_read_only);
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
        notifications.has_tried_snapshot.send_replace(true);

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

pub async fn store_usage(app: Arc<App>) {
    let mut ticks = interval(USAGE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);

    let mut expired_at = Instant::now();
    loop {
        ticks.tick().await;
        for source in app.meter.usage_sources() {
            if let Err(error) = store_usage_from(&app, source, USAGE_INTERVAL).await {
                tracing::warn!(%error, "cannot store usage in postgres; retrying");
            }
        }
        if let Err(error) = record_usage_gaps(&app).await {
            tracing::warn!(%error, "cannot record where usage may be incomplete; retrying");
        }
        let is_usage_stored = update_usage_backlogs(&app).await;

        // While usage is behind, nobody knows which keys are unused.
        if is_usage_stored && expired_at.elapsed() > EXPIRY_INTERVAL {
            expired_at = Instant::now();
            match app.store.expire_unused_keys(app.clock.now()).await {
                Ok(ids) if ids.is_empty() => {}
                Ok(ids) => tracing::info!(keys = ids.len(), "expired unused free keys"),
                Err(error) => tracing::warn!(%error, "cannot expire unused keys; retrying"),
            }
        }
    }
}

/// Stores the counts that wait in one place, or as many as it can before it is time for the other places.
pub async fn store_usage_from(app: &App, source: UsageSource, time_limit: Duration) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut closes_open = true;
    while started.elapsed() < time_limit
        && let Some(chunk) = app.meter.next_usage_chunk(source, closes_open).await?
    {
        // Counts that arrive meanwhile are stored the next time, so that there are few chunks.
        closes_open = false;
        let record = app.store.record_usage_chunk(&chunk.id, &chunk.rows).await?;
        if record == ChunkRecord::Conflict && app.meter.has_usage_chunk(&chunk).await? {
            report_conflict(app, &chunk).await?;
        }
        app.meter.drop_usage_chunk(&chunk).await?;
    }
    Ok(())
}

/// Other counts are stored under a chunk's id: somebody put Redis back to an earlier state.
async fn report_conflict(app: &App, chunk: &UsageChunk) -> anyhow::Result<()> {
    let days = chunk.rows.iter().map(|row| row.day);
    if let (Some(first), Some(last)) = (days.clone().min(), days.max()) {
        app.store.record_usage_gap(first, last, UsageGapReason::ChunkConflict).await?;
    }
    metrics::counter!("vintem_usage_conflicts_total").increment(1);
    tracing::error!(
        chunk = chunk.id.as_str(),
        rows = chunk.rows.len(),
        "a chunk of usage was stored with other counts"
    );
    Ok(())
}

async fn record_usage_gaps(app: &App) -> anyhow::Result<()> {
    for gap in app.meter.usage_gaps() {
        app.store.record_usage_gap(gap.from, gap.to, UsageGapReason::RedisLostWrites).await?;
        metrics::counter!("vintem_usage_calls_lost_total").increment(gap.lost_calls);
        app.meter.drop_usage_gaps(&[gap]);
    }
    Ok(())
}

/// Looks at what is not stored yet. Returns whether that is little, and known.
async fn update_usage_backlogs(app: &App) -> bool {
    let mut backlogs = Vec::new();
    for source in app.meter.usage_sources() {
        match app.meter.usage_backlog(source).await {
            Ok(backlog) => backlogs.push(backlog),
            Err(error) => {
                tracing::warn!(%error, "cannot see how much usage waits to be stored");
                backlogs.push(None);
            }
        }
    }
    let is_known = backlogs.iter().all(Option::is_some);
    app.set_usage_backlogs(backlogs);
    is_known && !app.is_usage_late()
}

/// Adds the partitions of the next days, and drops those that have expired.
pub async fn maintain_partitions(store: Store) {
    let mut ticks = interval(PARTITION_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match store.maintain_partitions(chrono::Utc::now().date_naive()).await {
            Ok(dropped) if dropped.is_empty() => {}
            Ok(dropped) => tracing::info!(?dropped, "dropped expired partitions"),
            Err(error) => tracing::warn!(%error, "cannot add or drop partitions; retrying"),
        }
    }
}
