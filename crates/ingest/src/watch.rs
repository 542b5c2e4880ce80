//! Watching: each source is asked by its own schedule, for years, without anybody looking.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::watch;
use vintem_domain::Clock;

use crate::run::{Ingestor, Reporter};
use crate::source::Source;

/// The clock is looked at this often: a schedule in minutes needs no finer one.
const LOOK: Duration = Duration::from_secs(15);
/// After a failure a source is asked again this soon, and not only when its next time comes.
const AGAIN: TimeDelta = TimeDelta::minutes(15);

/// When each source is due next.
#[derive(Debug)]
pub struct Schedule(BTreeMap<&'static str, (Source, DateTime<Utc>)>);

impl Schedule {
    /// At the start all are due: nobody knows how long nobody looked.
    pub fn new(now: DateTime<Utc>) -> Self {
        Self(Source::all().map(|source| (source.id(), (source, now))).collect())
    }

    pub fn due(&self, now: DateTime<Utc>) -> Vec<Source> {
        let in_order = Source::all();
        in_order.filter(|source| self.0.get(source.id()).is_some_and(|(_, at)| *at <= now)).collect()
    }

    pub fn done(&mut self, source: Source, now: DateTime<Utc>, failed: bool) {
        let regular = source.next_ask(now);
        let next = if failed { regular.min(now + AGAIN) } else { regular };
        self.0.insert(source.id(), (source, next));
    }
}

/// Runs until `stop` turns true.
pub async fn watch(
    ingestor: &Ingestor,
    clock: &Arc<dyn Clock>,
    reporter: &dyn Reporter,
    mut stop: watch::Receiver<bool>,
) {
    let mut schedule = Schedule::new(clock.now());
    loop {
        let due = schedule.due(clock.now());
        if !due.is_empty() {
            tokio::select! {
                () = ask(ingestor, clock, reporter, &due, &mut schedule) => {}
                // A load that is cut off has not happened: the next start does it anew.
                Ok(_) = stop.wait_for(|stop| *stop) => return,
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            Ok(_) = stop.wait_for(|stop| *stop) => return,
        }
    }
}

async fn ask(
    ingestor: &Ingestor,
    clock: &Arc<dyn Clock>,
    reporter: &dyn Reporter,
    due: &[Source],
    schedule: &mut Schedule,
) {
    match ingestor.run(due, None, reporter).await {
        Ok(report) => {
            for source in due {
                let failed = report.failures.iter().any(|(failed, ..)| failed == source);
                schedule.done(*source, clock.now(), failed);
            }
            for (source, part, problem) in &report.failures {
                tracing::warn!(
                    source = source.id(),
                    part,
                    problem,
                    "a source could not be read; what was served is served on"
                );
            }
            for alert in &report.alerts {
                tracing::warn!(alert, "a source has changed its shape");
            }
            for check in report.checks.iter().filter(|check| check.differing > 0) {
                tracing::warn!(check = check.id, differing = check.differing, "two series that say the same differ");
            }
            tracing::info!(
                sources = due.len(),
                appended = report.appended,
                set_aside = report.set_aside,
                "sources were asked"
            );
        }
        Err(error) => {
            tracing::warn!(%error, "the sources could not be asked");
            for source in due {
                schedule.done(*source, clock.now(), true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_due_at_first_and_a_failure_brings_one_back_early() {
        let now = DateTime::parse_from_rfc3339("2026-11-13T18:00:00Z").unwrap().to_utc();
        let mut schedule = Schedule::new(now);
        assert_eq!(schedule.due(now).len(), Source::all().count());
        for source in Source::all() {
            schedule.done(source, now, source.id() == "ipe");
        }
        assert!(schedule.due(now).is_empty());
        assert_eq!(schedule.due(now + TimeDelta::minutes(15)), [Source::from_id("ipe").unwrap()]);
    }
}
