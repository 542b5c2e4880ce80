//! Runs ingestion: the upstreams in parallel, the parts of each upstream one after the other, newest first. A part fails
//! alone. Its state is saved when it finishes.

mod saved_files;

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use futures_util::future::join_all;
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::{Clock, CvmDataset, StatementSet, VERSION};
use vintem_store::Store;
use vintem_store::sources::{CrossCheck, PartFailure, RejectedFile, ResponseFigures, SourcePartState};

use crate::IngestError;
use crate::cross_checks::run_cross_checks;
use crate::drift::{compare_arrivals, record_arrival};
use crate::fetch::{RetryPolicy, UpstreamAddresses, UpstreamClient, build_http_client};
use crate::host_breaker::{HostBreaker, believable_wait};
use crate::parsers::BadRowKind;
use crate::plan::{GappyParts, PlannedPart, find_gaps, next_attempt_at, plan_parts};
use crate::source::{DataSource, SourcePart, Upstream};
use crate::upstreams::{LoadContext, PartError, PartReport, cvm, cvm_statements, ptax, sgs};

/// Receives progress events during a run.
pub trait ProgressReporter: Send + Sync {
    /// With the number of parts that the run is going to fetch.
    fn on_upstream_started(&self, upstream: Upstream, parts: usize);
    fn on_part_finished(&self, source: DataSource, part: &str, outcome: &PartOutcome);
    /// Instead of a report for each part that got no answer. The rest of its parts are not fetched.
    fn on_upstream_down(&self, upstream: Upstream, error: &PartError, skipped_parts: usize);
}

/// A reporter that ignores all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoopReporter;

impl ProgressReporter for NoopReporter {
    fn on_upstream_started(&self, _: Upstream, _: usize) {}
    fn on_part_finished(&self, _: DataSource, _: &str, _: &PartOutcome) {}
    fn on_upstream_down(&self, _: Upstream, _: &PartError, _: usize) {}
}

#[derive(Debug)]
pub enum PartOutcome {
    Succeeded(PartReport),
    NotPublishedYet,
    /// Another worker fetched it meanwhile.
    FetchedElsewhere,
    Failed {
        error: PartError,
        next_attempt_at: DateTime<Utc>,
    },
}

/// The totals of a run.
#[derive(Debug, Default)]
pub struct RunReport {
    pub parts: u64,
    pub bytes: u64,
    pub rows: u64,
    pub appended: u64,
    pub quarantined: u64,
    pub alerts: Vec<String>,
    /// Source, part and error message.
    pub failures: Vec<(DataSource, String, String)>,
    /// Parts that were left out because their upstream was down.
    pub skipped_parts: usize,
    /// Comparisons of series that should agree. Empty unless the run appended rows.
    pub cross_checks: Vec<CrossCheck>,
}

pub struct Ingestor {
    store: Store,
    clock: Arc<dyn Clock>,
    sgs: UpstreamClient,
    ptax: UpstreamClient,
    cvm: UpstreamClient,
}

impl Ingestor {
    pub fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        addresses: &UpstreamAddresses,
        contact: &str,
    ) -> Result<Self, IngestError> {
        Self::with_retry_policies(store, clock, addresses, contact, RetryPolicy::SHORT, RetryPolicy::LONG)
    }

    /// Like [`Self::new`], with other retry policies for the central bank and the regulator.
    pub fn with_retry_policies(
        store: Store,
        clock: Arc<dyn Clock>,
        addresses: &UpstreamAddresses,
        contact: &str,
        central_bank: RetryPolicy,
        regulator: RetryPolicy,
    ) -> Result<Self, IngestError> {
        let client = build_http_client(contact).map_err(|error| IngestError::HttpClient(error.to_string()))?;

        Ok(Self {
            store,
            clock,
            sgs: UpstreamClient::new(client.clone(), &addresses.sgs, central_bank),
            ptax: UpstreamClient::new(client.clone(), &addresses.ptax, central_bank),
            cvm: UpstreamClient::new(client, &addresses.cvm, regulator),
        })
    }

    /// Fetches everything new from these sources, with the upstreams in parallel. Failed parts are reported; only a store
    /// error ends the run early.
    pub async fn run(
        &self,
        sources: &[DataSource],
        since: Option<NaiveDate>,
        reporter: &dyn ProgressReporter,
    ) -> Result<RunReport, IngestError> {
        let sources_of = |upstream| -> Vec<DataSource> {
            sources.iter().copied().filter(|source| source.upstream() == upstream).collect()
        };
        let runs = Upstream::ALL.map(|upstream| self.run_upstream(upstream, sources_of(upstream), since, reporter));

        let mut report = RunReport::default();
        for part in join_all(runs).await {
            report.merge(part?);
        }

        if report.appended > 0 {
            report.cross_checks = self.run_cross_checks().await?;
        }

        Ok(report)
    }

    pub async fn run_cross_checks(&self) -> Result<Vec<CrossCheck>, IngestError> {
        run_cross_checks(&self.store, self.clock.now()).await
    }

    async fn run_upstream(
        &self,
        upstream: Upstream,
        sources: Vec<DataSource>,
        since: Option<NaiveDate>,
        reporter: &dyn ProgressReporter,
    ) -> Result<RunReport, IngestError> {
        let mut report = RunReport::default();
        if sources.is_empty() {
            return Ok(report);
        }
        self.prepare(upstream).await?;

        let gaps = self.find_gaps(&sources).await?;
        let mut parts = self.plan(&sources, &gaps).await?;
        parts.retain(|planned| match since {
            Some(since) => planned.part.last_day() >= since,
            None => planned.due_at.is_some(),
        });
        reporter.on_upstream_started(upstream, parts.len());

        let mut breaker = HostBreaker::default();
        // Parts without an answer wait here: if the next ones get none either, one report says it for all.
        let mut unreported: Vec<(&PlannedPart, PartOutcome)> = Vec::new();
        for (index, planned) in parts.iter().enumerate() {
            let outcome = self.run_part(planned, since, !unreported.is_empty()).await?;
            report.record_outcome(planned.source, &planned.part.id(), &outcome);

            if let PartOutcome::Failed { error, .. } = &outcome
                && error.is_outage()
            {
                if breaker.record_outage(self.clock.now(), error.requested_wait()) {
                    report.skipped_parts = parts.len() - index - 1;
                    reporter.on_upstream_down(upstream, error, report.skipped_parts);
                    return Ok(report);
                }
                unreported.push((planned, outcome));
                continue;
            }

            breaker.record_answer();
            unreported.push((planned, outcome));
            report_outcomes(reporter, &mut unreported);
        }
        report_outcomes(reporter, &mut unreported);
        Ok(report)
    }

    /// What an upstream needs before its parts are fetched.
    pub async fn prepare(&self, upstream: Upstream) -> Result<(), IngestError> {
        if upstream == Upstream::Ptax {
            let _lock = self.store.lock_source(DataSource::Fx.id(), true).await?;
            ptax::backfill_parities(&self.store, sao_paulo_date(self.clock.now())).await?;
        }
        Ok(())
    }

    pub async fn find_gaps(&self, sources: &[DataSource]) -> Result<GappyParts, IngestError> {
        Ok(find_gaps(&self.store, sources, sao_paulo_date(self.clock.now())).await?)
    }

    /// All parts of these sources, newest first.
    pub async fn plan(&self, sources: &[DataSource], gaps: &GappyParts) -> Result<Vec<PlannedPart>, IngestError> {
        Ok(plan_parts(&self.store, sources, gaps, self.clock.now()).await?)
    }

    pub async fn run_part(
        &self,
        planned: &PlannedPart,
        since: Option<NaiveDate>,
        single_attempt: bool,
    ) -> Result<PartOutcome, IngestError> {
        let PlannedPart { source, part, .. } = *planned;
        // Waits for another worker to finish, which may have fetched the same.
        let _lock = self.store.lock_source(source.id(), true).await?;
        let states = self.store.part_states(&[source.id()]).await?;
        let followed_since = states.iter().filter_map(|state| state.backfilled_at).min();
        let id = part.id();
        let state = states.into_iter().find(|state| state.part == id);
        let mut state = state.unwrap_or_else(|| SourcePartState::new(source.id(), &id));
        if state != planned.state {
            return Ok(PartOutcome::FetchedElsewhere);
        }

        let now = self.clock.now();
        let today = sao_paulo_date(now);
        // What a part has when it is loaded for the first time is history, unless it began while we were watching.
        let began_while_watching = followed_since.is_some_and(|since| sao_paulo_date(since) < part.first_day());
        let is_new_data = state.backfilled_at.is_some() || began_while_watching;
        let context = LoadContext {
            store: &self.store,
            client: self.client(source.upstream()),
            source_id: source.id(),
            now,
            today,
            since,
            announce: since.is_none() && is_new_data,
            all_days: planned.has_gap || source.has_few_values(),
            single_attempt,
        };

        let started = Instant::now();
        let before = (state.newest_date, state.checked_at);
        let result = load_part(&context, part, &mut state).await;
        let outcome = match result {
            Ok(mut report) => {
                notice_arrivals(source, before, &mut state, &mut report, now);
                if !report.unchanged || report.rows > 0 {
                    state.last_response = describe_response(&report, started.elapsed());
                }
                PartOutcome::Succeeded(report)
            }
            Err(PartError::NotPublishedYet) => {
                state.checked_at = Some(now);
                state.failure = None;
                PartOutcome::NotPublishedYet
            }
            Err(PartError::Store(error)) => return Err(error.into()),
            Err(error) => {
                let failure = describe_failure(part, state.failure.as_ref(), &error, now);
                let next_attempt_at = failure.next_attempt_at;
                state.failure = Some(failure);
                PartOutcome::Failed { error, next_attempt_at }
            }
        };

        state.is_open = part.is_open(today);
        self.store.save_part_state(&state).await?;
        Ok(outcome)
    }

    /// All bytes that an upstream has sent, whether or not they were of use.
    pub fn received_bytes(&self, upstream: Upstream) -> u64 {
        self.client(upstream).received_bytes()
    }

    const fn client(&self, upstream: Upstream) -> &UpstreamClient {
        match upstream {
            Upstream::Sgs => &self.sgs,
            Upstream::Ptax => &self.ptax,
            Upstream::Cvm => &self.cvm,
        }
    }
}

async fn load_part(
    context: &LoadContext<'_>,
    part: SourcePart,
    state: &mut SourcePartState,
) -> Result<PartReport, PartError> {
    match part {
        SourcePart::SeriesYears(series, _) => sgs::load_years(context, series, part, state).await,
        SourcePart::CurrencyYear(currency, _) => ptax::load_year(context, currency, part, state).await,
        SourcePart::Registry => cvm::load_registry(context, state).await,
        SourcePart::FilingYear(set, year) => cvm::load_filing_year(context, set, year, state).await,
        SourcePart::StatementYear(set, year) => cvm_statements::load_statement_year(context, set, year, state).await,
    }
}

/// Learns how long after it was expected the newest value arrived, and compares it with the arrivals before. Without a
/// look shortly before, nobody knows when it arrived.
fn notice_arrivals(
    source: DataSource,
    (newest_before, checked_before): (Option<NaiveDate>, Option<DateTime<Utc>>),
    state: &mut SourcePartState,
    report: &mut PartReport,
    now: DateTime<Utc>,
) {
    let tolerance = source.arrival_tolerance();
    if let (Some(before), Some(checked_before)) = (newest_before, checked_before)
        && state.newest_date > newest_before
        && let Some(expected_at) = source.expected_at(before)
        && now - checked_before.max(expected_at) <= tolerance
    {
        record_arrival(&mut state.usual, now - expected_at);
    }
    if let Some(alert) = compare_arrivals(&state.usual, tolerance) {
        report.add_alerts([alert]);
        state.alerts.clone_from(&report.alerts);
    }
}

fn describe_response(report: &PartReport, duration: Duration) -> ResponseFigures {
    ResponseFigures {
        bytes: report.bytes,
        load_milliseconds: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        bad_rows: report.bad_rows.iter().map(|(kind, count)| (kind.id().to_owned(), *count)).collect(),
    }
}

fn report_outcomes(reporter: &dyn ProgressReporter, outcomes: &mut Vec<(&PlannedPart, PartOutcome)>) {
    for (planned, outcome) in outcomes.drain(..) {
        reporter.on_part_finished(planned.source, &planned.part.id(), &outcome);
    }
}

fn describe_failure(
    part: SourcePart,
    before: Option<&PartFailure>,
    error: &PartError,
    now: DateTime<Utc>,
) -> PartFailure {
    let is_outage = error.is_outage();
    let rejected_before = before.and_then(|failure| failure.rejected_file.clone());
    let rejected_file = match error {
        PartError::Rejected { validators, .. } => {
            Some(RejectedFile { validators: validators.clone(), rejected_by: VERSION.to_owned() })
        }
        _ => rejected_before,
    };
    PartFailure {
        // An outage of the host says nothing about this part.
        attempts: before.map_or(0, |failure| failure.attempts) + u32::from(!is_outage),
        since: before.map_or(now, |failure| failure.since),
        last_failed_at: now,
        next_attempt_at: next_attempt_at(part, before, is_outage, now)
            .max(now + error.requested_wait().map_or(TimeDelta::zero(), believable_wait)),
        problem: error.to_string(),
        rejected_file,
    }
}

impl PartOutcome {
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Failed { error, .. } if error.is_outage())
    }

    pub fn count_bad_rows(&self, kind: BadRowKind) -> u64 {
        match self {
            Self::Succeeded(report) => report.bad_rows.get(&kind).copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// How long the host asks to be left alone.
    pub const fn requested_wait(&self) -> Option<Duration> {
        match self {
            Self::Failed { error, .. } => error.requested_wait(),
            _ => None,
        }
    }
}

impl RunReport {
    fn merge(&mut self, other: Self) {
        self.parts += other.parts;
        self.bytes += other.bytes;
        self.rows += other.rows;
        self.appended += other.appended;
        self.quarantined += other.quarantined;
        self.alerts.extend(other.alerts);
        self.failures.extend(other.failures);
        self.skipped_parts += other.skipped_parts;
    }

    fn record_outcome(&mut self, source: DataSource, part: &str, outcome: &PartOutcome) {
        self.parts += 1;
        match outcome {
            PartOutcome::Succeeded(report) => {
                self.bytes += report.bytes;
                self.rows += report.rows;
                self.appended += report.appended;
                self.quarantined += report.quarantined();
                self.alerts.extend(report.alerts.iter().map(|alert| format!("{} {part}: {alert}", source.id())));
            }
            PartOutcome::NotPublishedYet | PartOutcome::FetchedElsewhere => {}
            PartOutcome::Failed { error, .. } => self.failures.push((source, part.to_owned(), error.to_string())),
        }
    }
}

/// Resolves source names; no names mean all sources.
pub fn parse_source_names(names: &[String]) -> Result<Vec<DataSource>, IngestError> {
    if names.is_empty() {
        return Ok(DataSource::all().collect());
    }

    names
        .iter()
        .flat_map(|name| match name.as_str() {
            // Group names save listing a dozen sources.
            "sgs" => DataSource::all().filter(|source| source.upstream() == Upstream::Sgs).map(Ok).collect(),
            "ptax" => vec![Ok(DataSource::Fx)],
            "cvm" => DataSource::all().filter(|source| source.upstream() == Upstream::Cvm).map(Ok).collect(),
            "filings" => CvmDataset::ALL.map(|set| Ok(DataSource::Filings(set))).into(),
            "statements" => StatementSet::ALL.map(|set| Ok(DataSource::Statements(set))).into(),
            other => vec![DataSource::from_id(other).ok_or_else(|| IngestError::UnknownSource(other.to_owned()))],
        })
        .collect()
}
