//! Runs each source on its own schedule, unattended, until shutdown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::watch;
use vintem_domain::Clock;

use crate::ingestor::{Ingestor, ProgressReporter};
use crate::source::DataSource;

/// How often to check for due sources. The schedule is in minutes, so this is fine enough.
const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// A failed source is retried after this delay, unless its next scheduled fetch is earlier.
const FAILURE_RETRY_DELAY: TimeDelta = TimeDelta::minutes(15);

/// The next fetch time of each source.
#[derive(Debug)]
pub struct IngestSchedule(BTreeMap<&'static str, (DataSource, DateTime<Utc>)>);

impl IngestSchedule {
    /// All sources are due at start, because the time since the last run is unknown.
    pub fn new(now: DateTime<Utc>) -> Self {
        Self(DataSource::all().map(|source| (source.id(), (source, now))).collect())
    }

    pub fn due_sources(&self, now: DateTime<Utc>) -> Vec<DataSource> {
        DataSource::all().filter(|source| self.0.get(source.id()).is_some_and(|(_, due)| *due <= now)).collect()
    }

    pub fn reschedule(&mut self, source: DataSource, now: DateTime<Utc>, failed: bool) {
        let scheduled = source.next_fetch_at(now);
        let next = if failed { scheduled.min(now + FAILURE_RETRY_DELAY) } else { scheduled };
        self.0.insert(source.id(), (source, next));
    }
}

/// Runs until `stop` turns true.
pub async fn run_on_schedule(
    ingestor: &Ingestor,
    clock: &Arc<dyn Clock>,
    reporter: &dyn ProgressReporter,
    mut stop: watch::Receiver<bool>,
) {
    let mut schedule = IngestSchedule::new(clock.now());
    loop {
        let due = schedule.due_sources(clock.now());
        if !due.is_empty() {
            tokio::select! {
                () = ingest_due_sources(ingestor, clock, reporter, &due, &mut schedule) => {}
                // An interrupted load is rolled back, and the next start repeats it.
                Ok(_) = stop.wait_for(|stop| *stop) => return,
            }
        }

        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            Ok(_) = stop.wait_for(|stop| *stop) => return,
        }
    }
}

async fn ingest_due_sources(
    ingestor: &Ingestor,
    clock: &Arc<dyn Clock>,
    reporter: &dyn ProgressReporter,
    due: &[DataSource],
    schedule: &mut IngestSchedule,
) {
    match ingestor.run(due, None, reporter).await {
        Ok(report) => {
            for source in due {
                let failed = report.failures.iter().any(|(failed, ..)| failed == source);
                schedule.reschedule(*source, clock.now(), failed);
            }

            for (source, part, problem) in &report.failures {
                tracing::warn!(source = source.id(), part, problem, "source failed; serving the last good data");
            }

            for alert in &report.alerts {
                tracing::warn!(alert, "ingestion alert");
            }

            for check in report.cross_checks.iter().filter(|check| check.differing_values > 0) {
                tracing::warn!(
                    check = check.id,
                    differing = check.differing_values,
                    "cross-check found differing values"
                );
            }

            tracing::info!(
                sources = due.len(),
                appended = report.appended,
                set_aside = report.quarantined,
                "ingestion run finished"
            );
        }
        Err(error) => {
            tracing::warn!(%error, "ingestion run failed");
            for source in due {
                schedule.reschedule(*source, clock.now(), true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sources_are_due_at_start_and_a_failed_one_is_retried_early() {
        let now = DateTime::parse_from_rfc3339("2026-11-13T18:00:00Z").unwrap().to_utc();
        let mut schedule = IngestSchedule::new(now);
        assert_eq!(schedule.due_sources(now).len(), DataSource::all().count());

        for source in DataSource::all() {
            schedule.reschedule(source, now, source.id() == "ipe");
        }

        assert!(schedule.due_sources(now).is_empty());
        assert_eq!(schedule.due_sources(now + TimeDelta::minutes(15)), [DataSource::from_id("ipe").unwrap()]);
    }
}
