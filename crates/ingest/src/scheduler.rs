//! Keeps fetching, unattended, until shutdown. Each host has a loop of its own, so that the outage of one delays no other.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use futures_util::future::join_all;
use tokio::sync::watch;
use vintem_domain::Clock;
use vintem_domain::dates::{sao_paulo_date, sao_paulo_day_end};

use crate::IngestError;
use crate::host_breaker::HostBreaker;
use crate::ingestor::{Ingestor, PartOutcome};
use crate::parsers::BadRowKind;
use crate::plan::{GappyParts, PlannedPart};
use crate::source::{DataSource, Upstream};

/// The longest wait before the plan is looked at again: another worker may change it.
const MAX_SLEEP: Duration = Duration::from_secs(15);
/// The wait after an error of the database.
const STORE_RETRY_DELAY: TimeDelta = TimeDelta::seconds(15);

/// Runs until `stop` turns true. An interrupted load is rolled back, and the next start repeats it.
pub async fn run_on_schedule(ingestor: &Ingestor, clock: &Arc<dyn Clock>, stop: watch::Receiver<bool>) {
    join_all(Upstream::ALL.map(|upstream| run_host(HostLoop::new(ingestor, clock, upstream), stop.clone()))).await;
}

async fn run_host(mut host: HostLoop<'_>, mut stop: watch::Receiver<bool>) {
    loop {
        let next = tokio::select! {
            next = host.step() => next,
            Ok(_) = stop.wait_for(|stop| *stop) => return,
        };
        let now = host.clock.now();
        let next = next.unwrap_or_else(|error| {
            tracing::warn!(upstream = host.upstream.name(), %error, "ingestion failed; retrying");
            now + STORE_RETRY_DELAY
        });
        let wait = (next - now).to_std().unwrap_or_default().min(MAX_SLEEP);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            Ok(_) = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// The parts of one host, fetched one after the other when they are due.
pub struct HostLoop<'i> {
    ingestor: &'i Ingestor,
    clock: Arc<dyn Clock>,
    upstream: Upstream,
    sources: Vec<DataSource>,
    breaker: HostBreaker,
    budget: ByteBudget,
    gaps: GappyParts,
    /// The day on which the gaps were last looked for.
    gaps_found_on: Option<NaiveDate>,
    /// Whether there may be rows that have not been cross-checked yet.
    needs_cross_checks: bool,
}

impl<'i> HostLoop<'i> {
    pub fn new(ingestor: &'i Ingestor, clock: &Arc<dyn Clock>, upstream: Upstream) -> Self {
        Self::with_sources(ingestor, clock, upstream, DataSource::all().collect())
    }

    /// Only those sources that are of this host.
    pub fn with_sources(
        ingestor: &'i Ingestor,
        clock: &Arc<dyn Clock>,
        upstream: Upstream,
        mut sources: Vec<DataSource>,
    ) -> Self {
        sources.retain(|source| source.upstream() == upstream);
        Self {
            ingestor,
            clock: clock.clone(),
            upstream,
            sources,
            breaker: HostBreaker::default(),
            budget: ByteBudget::new(max_bytes_per_day(upstream)),
            gaps: GappyParts::new(),
            gaps_found_on: None,
            // The loop before this one may have stopped in between.
            needs_cross_checks: true,
        }
    }

    /// Fetches the newest part that is due, if there is one. Returns when to call this again.
    pub async fn step(&mut self) -> Result<DateTime<Utc>, IngestError> {
        let now = self.clock.now();
        if let Some(retry_at) = self.breaker.retry_at().filter(|retry_at| *retry_at > now) {
            return Ok(retry_at);
        }
        let today = sao_paulo_date(now);
        if !self.budget.has_bytes_left(self.ingestor.received_bytes(self.upstream), today) {
            if self.budget.is_newly_exhausted() {
                let max_bytes = self.budget.max_bytes;
                tracing::warn!(
                    upstream = self.upstream.name(),
                    max_bytes,
                    "no more is fetched today: the limit is reached"
                );
            }
            return Ok(sao_paulo_day_end(today));
        }

        if self.gaps_found_on != Some(today) {
            self.ingestor.prepare(self.upstream).await?;
            self.gaps = self.ingestor.find_gaps(&self.sources).await?;
            self.gaps_found_on = Some(today);
        }

        let parts = self.ingestor.plan(&self.sources, &self.gaps).await?;
        let next_due = parts.iter().filter_map(|planned| planned.due_at).min();
        let Some(planned) = parts.into_iter().find(|planned| planned.due_at.is_some_and(|due| due <= now)) else {
            self.cross_check().await?;
            return Ok(next_due.unwrap_or(now + TimeDelta::days(1)));
        };

        let outcome = self.ingestor.run_part(&planned, None, self.breaker.is_down()).await?;
        self.needs_cross_checks |= matches!(&outcome, PartOutcome::Succeeded(report) if report.appended > 0);
        self.record_outcome(&planned, &outcome);
        // Tomorrow a gap that is still there is found again.
        self.gaps.remove(&(planned.source.id(), planned.part.id()));
        Ok(now)
    }

    fn record_outcome(&mut self, planned: &PlannedPart, outcome: &PartOutcome) {
        log_outcome(planned, outcome);
        self.count_outcome(planned, outcome);
        let upstream = self.upstream.name();
        if !outcome.is_outage() {
            if let Some(since) = self.breaker.record_answer() {
                tracing::info!(upstream, down_since = %since, "upstream answers again");
            }
        } else if self.breaker.record_outage(self.clock.now(), outcome.requested_wait()) {
            tracing::warn!(upstream, "upstream does not answer; its parts wait, and its last good data is served");
        }
        let is_up = f64::from(u8::from(!self.breaker.is_down()));
        metrics::gauge!("vintem_upstream_up", "upstream" => self.upstream.name()).set(is_up);
    }

    fn count_outcome(&self, planned: &PlannedPart, outcome: &PartOutcome) {
        let source = planned.source.id();
        let (result, rows) = match outcome {
            PartOutcome::Succeeded(report) => ("succeeded", report.appended),
            PartOutcome::Failed { .. } => ("failed", 0),
            PartOutcome::NotPublishedYet | PartOutcome::FetchedElsewhere => ("skipped", 0),
        };
        metrics::counter!("vintem_ingest_rows_total", "source" => source).increment(rows);
        for kind in BadRowKind::ALL {
            let bad_rows = outcome.count_bad_rows(kind);
            metrics::counter!("vintem_ingest_bad_rows_total", "source" => source, "reason" => kind.id())
                .increment(bad_rows);
        }
        metrics::counter!("vintem_ingest_parts_total", "source" => source, "result" => result).increment(1);
        metrics::counter!("vintem_ingest_bytes_total", "upstream" => self.upstream.name())
            .absolute(self.ingestor.received_bytes(self.upstream));
    }

    /// Once nothing is due any more, so that a backfill is checked as a whole.
    async fn cross_check(&mut self) -> Result<(), IngestError> {
        if !self.needs_cross_checks {
            return Ok(());
        }
        for check in self.ingestor.run_cross_checks().await?.iter().filter(|check| check.differing_values > 0) {
            tracing::warn!(check = check.id, differing = check.differing_values, "cross-check found differing values");
        }
        self.needs_cross_checks = false;
        Ok(())
    }
}

fn log_outcome(planned: &PlannedPart, outcome: &PartOutcome) {
    let (source, part) = (planned.source.id(), planned.part.id());
    match outcome {
        PartOutcome::Succeeded(report) => {
            for alert in &report.alerts {
                tracing::warn!(source, part, alert, "ingestion alert");
            }
            if report.appended > 0 || report.quarantined() > 0 {
                let (appended, quarantined) = (report.appended, report.quarantined());
                tracing::info!(source, part, appended, quarantined, "loaded new data");
            }
        }
        PartOutcome::NotPublishedYet | PartOutcome::FetchedElsewhere => {}
        PartOutcome::Failed { error, next_attempt_at } => {
            tracing::warn!(source, part, problem = %error, %next_attempt_at, "part failed; serving the last good data");
        }
    }
}

/// A first fill takes some 1.6 GB from CVM, half of it statements, 120 MB of bulletins and a few MB of series. What comes
/// after is a small part of it, so that only a mistake of ours can use these up.
const fn max_bytes_per_day(upstream: Upstream) -> u64 {
    match upstream {
        Upstream::Sgs => 128 << 20,
        Upstream::Ptax => 512 << 20,
        Upstream::Cvm => 4 << 30,
    }
}

/// Limits what a host must send us in a day, whatever goes wrong.
struct ByteBudget {
    max_bytes: u64,
    day: NaiveDate,
    /// All bytes received before this day.
    received_before: u64,
    /// Whether it was noticed that nothing is left of this day's.
    is_exhausted: bool,
}

impl ByteBudget {
    const fn new(max_bytes: u64) -> Self {
        Self { max_bytes, day: NaiveDate::MIN, received_before: 0, is_exhausted: false }
    }

    fn has_bytes_left(&mut self, received: u64, today: NaiveDate) -> bool {
        if self.day != today {
            self.day = today;
            self.received_before = received;
            self.is_exhausted = false;
        }
        received - self.received_before < self.max_bytes
    }

    /// True once a day.
    const fn is_newly_exhausted(&mut self) -> bool {
        !std::mem::replace(&mut self.is_exhausted, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_of_a_day_is_not_exceeded() {
        let days = NaiveDate::MIN.iter_days().take(2).collect::<Vec<_>>();
        let mut budget = ByteBudget::new(100);
        assert!(budget.has_bytes_left(0, days[1]) && budget.has_bytes_left(99, days[1]));
        assert!(!budget.has_bytes_left(100, days[1]) && !budget.has_bytes_left(150, days[1]));
        assert!(budget.is_newly_exhausted() && !budget.is_newly_exhausted());
        let next_day = days[1] + chrono::Days::new(1);
        assert!(budget.has_bytes_left(150, next_day) && !budget.has_bytes_left(250, next_day));
        assert!(budget.is_newly_exhausted());
    }
}
