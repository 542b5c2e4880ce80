//! Looks at the database from time to time, for metrics: whether it answers, its schema, and the work that waits in it.
//!
//! Every role does this, so that work shows up that nobody does.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::sleep;
use vintem_ingest::source::DataSource;
use vintem_store::Store;
use vintem_store::sources::SourcePartState;

const INTERVAL: Duration = Duration::from_secs(5);

pub async fn watch_database(store: Store) {
    loop {
        // A lock on a single table delays what is recorded, but does not mean that PostgreSQL is down.
        let is_up = store.ping().await.is_ok();
        metrics::gauge!("vintem_postgres_up").set(f64::from(u8::from(is_up)));
        if is_up && let Err(error) = record_database(&store).await {
            tracing::debug!(%error, "cannot look at the database");
        }
        sleep(INTERVAL).await;
    }
}

async fn record_database(store: &Store) -> vintem_store::Result<()> {
    let now = Utc::now();
    let age = |since: Option<DateTime<Utc>>| since.map_or(0.0, |since| (now - since).as_seconds_f64().max(0.0));

    metrics::gauge!("vintem_schema_version").set(store.current_schema_version().await? as f64);
    let backlog = store.work_backlog(now).await?;
    metrics::gauge!("vintem_event_backlog_seconds").set(age(backlog.oldest_event));
    metrics::gauge!("vintem_delivery_backlog_seconds").set(age(backlog.oldest_delivery));
    // Series that were switched off are not fetched any more.
    let states = store.source_states().await?;
    for state in states.into_iter().filter(|state| DataSource::from_id(&state.source).is_some()) {
        let source = state.source;
        if let Some(checked_at) = state.checked_at {
            metrics::gauge!("vintem_source_check_age_seconds", "source" => source.clone()).set(age(Some(checked_at)));
        }
        metrics::gauge!("vintem_source_failing_parts", "source" => source.clone())
            .set(state.failing_parts.len() as f64);
        metrics::gauge!("vintem_source_alerts", "source" => source.clone()).set(state.alerts.len() as f64);
        metrics::gauge!("vintem_source_quarantined_rows", "source" => source).set(state.quarantined_rows as f64);
    }
    for part in store.open_part_states().await?.into_iter().filter(|part| DataSource::from_id(&part.source).is_some()) {
        record_part(&part, age(part.checked_at));
    }
    for check in store.cross_checks().await? {
        metrics::gauge!("vintem_cross_check_compared", "check" => check.id.clone()).set(check.compared_values as f64);
        metrics::gauge!("vintem_cross_check_differing", "check" => check.id).set(check.differing_values as f64);
    }
    Ok(())
}

fn record_part(part: &SourcePartState, check_age_seconds: f64) {
    let record = |name: &'static str, value: f64| {
        metrics::gauge!(name, "source" => part.source.clone(), "part" => part.part.clone()).set(value);
    };
    if part.checked_at.is_some() {
        record("vintem_part_check_age_seconds", check_age_seconds);
    }
    let response = &part.last_response;
    record("vintem_part_rows", part.rows as f64);
    record("vintem_part_bad_rows", response.bad_rows.values().sum::<u64>() as f64);
    record("vintem_part_received_bytes", response.bytes as f64);
    record("vintem_part_load_seconds", response.load_milliseconds as f64 / 1000.0);
}
