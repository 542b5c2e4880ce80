//! Runs ingestion: the upstreams in parallel, the sources and parts of each upstream one after the other. The state of
//! each part is saved when the part finishes.

use std::sync::Arc;

use chrono::{DateTime, NaiveDate, Utc};
use futures_util::future::join_all;
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::{Clock, CvmDataset, DataOrigin};
use vintem_store::Store;
use vintem_store::load::NewFetch;
use vintem_store::sources::CrossCheck;

use crate::IngestError;
use crate::cross_checks::run_cross_checks;
use crate::fetch::{RetryPolicy, UpstreamAddresses, UpstreamClient, build_http_client, compress_for_archive};
use crate::parsers::sgs::{SgsResponse, parse_response};
use crate::source::{DataSource, SourcePart, Upstream};
use crate::upstreams::{LoadContext, PartError, PartReport, cvm, ptax, sgs};
use crate::validation::{to_quarantined_rows, validate_bad_row_count};

/// Id of the extra state row for a source as a whole: it records when the first backfill of all parts was complete.
const WHOLE_SOURCE_PART_ID: &str = "*";

/// Receives progress events during a run.
pub trait ProgressReporter: Send + Sync {
    fn on_source_started(&self, source: DataSource, parts: usize);
    fn on_part_finished(&self, source: DataSource, part: &str, outcome: &PartOutcome);
    fn on_source_finished(&self, source: DataSource);
}

/// A reporter that ignores all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoopReporter;

impl ProgressReporter for NoopReporter {
    fn on_source_started(&self, _: DataSource, _: usize) {}
    fn on_part_finished(&self, _: DataSource, _: &str, _: &PartOutcome) {}
    fn on_source_finished(&self, _: DataSource) {}
}

#[derive(Debug)]
pub enum PartOutcome {
    Succeeded(PartReport),
    NotPublishedYet,
    Failed(PartError),
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

    /// Fetches everything new from these sources, with the upstreams in parallel. Failed parts are reported, and the
    /// next run retries them; only a store error ends the run early.
    pub async fn run(
        &self,
        sources: &[DataSource],
        since: Option<NaiveDate>,
        reporter: &dyn ProgressReporter,
    ) -> Result<RunReport, IngestError> {
        let sources_of = |upstream| -> Vec<DataSource> {
            sources.iter().copied().filter(|source| source.upstream() == upstream).collect()
        };
        let runs = Upstream::ALL.map(|upstream| self.run_sources_sequentially(sources_of(upstream), since, reporter));

        let mut report = RunReport::default();
        for part in join_all(runs).await {
            report.merge(part?);
        }

        if report.appended > 0 {
            report.cross_checks = run_cross_checks(&self.store, self.clock.now()).await?;
        }

        Ok(report)
    }

    async fn run_sources_sequentially(
        &self,
        sources: Vec<DataSource>,
        since: Option<NaiveDate>,
        reporter: &dyn ProgressReporter,
    ) -> Result<RunReport, IngestError> {
        let mut report = RunReport::default();
        for source in sources {
            report.merge(self.run_source(source, since, reporter).await?);
        }
        Ok(report)
    }

    async fn run_source(
        &self,
        source: DataSource,
        since: Option<NaiveDate>,
        reporter: &dyn ProgressReporter,
    ) -> Result<RunReport, IngestError> {
        // Waits for another worker to finish. Fetching then shows what is left to do.
        let _lock = self.store.lock_source(source.id(), true).await?;

        let today = sao_paulo_date(self.clock.now());
        if source == DataSource::Fx {
            ptax::backfill_parities(&self.store, today).await?;
        }

        let parts = source.parts(today, since);
        reporter.on_source_started(source, parts.len());

        let mut source_state = self.store.part_state(source.id(), WHOLE_SOURCE_PART_ID).await?;
        let announce = source_state.backfilled_at.is_some() && since.is_none();
        let mut report = RunReport::default();
        for part in parts {
            let id = part.id();
            let outcome = self.run_part(source, part, since, announce).await?;
            reporter.on_part_finished(source, &id, &outcome);
            report.record_outcome(source, &id, outcome);
        }

        if since.is_none() && report.failures.is_empty() && source_state.backfilled_at.is_none() {
            let now = self.clock.now();
            source_state.backfilled_at = Some(now);
            source_state.checked_at = Some(now);
            self.store.save_part_state(&source_state).await?;
        }

        reporter.on_source_finished(source);
        Ok(report)
    }

    async fn run_part(
        &self,
        source: DataSource,
        part: SourcePart,
        since: Option<NaiveDate>,
        announce: bool,
    ) -> Result<PartOutcome, IngestError> {
        let mut state = self.store.part_state(source.id(), &part.id()).await?;
        let now = self.clock.now();

        let client = match source.upstream() {
            Upstream::Sgs => &self.sgs,
            Upstream::Ptax => &self.ptax,
            Upstream::Cvm => &self.cvm,
        };
        let today = sao_paulo_date(now);
        let context = LoadContext { store: &self.store, client, source_id: source.id(), now, today, since, announce };

        let result = match part {
            SourcePart::Series(series) => sgs::load_series(&context, series, &mut state).await,
            SourcePart::Currency(currency) => ptax::load_currency(&context, currency, &mut state).await,
            SourcePart::Registry => cvm::load_registry(&context, &mut state).await,
            SourcePart::FilingYear(set, year) => cvm::load_filing_year(&context, set, year, &mut state).await,
        };

        let outcome = match result {
            Ok(report) => PartOutcome::Succeeded(report),
            Err(PartError::NotPublishedYet) => return Ok(PartOutcome::NotPublishedYet),
            Err(PartError::Store(error)) => return Err(error.into()),
            Err(error) => {
                state.failed_at = Some(now);
                state.failure = Some(error.to_string());
                PartOutcome::Failed(error)
            }
        };

        self.store.save_part_state(&state).await?;
        Ok(outcome)
    }

    /// Loads an archived file as if it had been fetched at `known_at`. It emits no events, and rows that it lacks do
    /// not count as missing.
    pub async fn load_file(
        &self,
        source: DataSource,
        name: &str,
        bytes: &[u8],
        known_at: DateTime<Utc>,
    ) -> Result<PartReport, IngestError> {
        let _lock = self.store.lock_source(source.id(), true).await?;

        let today = sao_paulo_date(self.clock.now());
        let not_loaded = |reason: String| IngestError::FileNotLoaded { name: name.to_owned(), reason };
        let fetch_record = |sha256, archived_body| {
            let response =
                vintem_store::load::ArchivedResponse { status: 0, content_type: String::new(), body: archived_body };
            NewFetch { source_url: format!("file:{name}"), fetched_at: known_at, sha256, response: Some(response) }
        };

        let mut report = PartReport { bytes: bytes.len() as u64, ..PartReport::default() };
        let bad_rows = match source {
            DataSource::Series(series) => {
                let Ok(SgsResponse::Rows(parsed)) = parse_response(200, bytes) else {
                    return Err(not_loaded("it is no JSON array of observations".to_owned()));
                };
                validate_bad_row_count(&parsed).map_err(|error| not_loaded(error.to_string()))?;

                let archived_body = compress_for_archive(bytes);
                let fetch = fetch_record(archived_body.sha256, archived_body);
                let mut load = self.store.begin_load(source.dataset(), DataOrigin::Real, &fetch).await?;
                load.append_observations(series, &parsed.rows).await?;
                load.quarantine_rows(source.id(), series.id, &to_quarantined_rows(&parsed.bad_rows)).await?;
                report.rows = parsed.rows.len() as u64;
                report.appended = load.commit().await?;
                parsed.bad_rows
            }
            DataSource::Companies => {
                let file = cvm::parse_registry_file(bytes).map_err(|error| not_loaded(error.to_string()))?;

                let fetch = fetch_record(file.sha256, file.archived_body);
                let mut load = self.store.begin_load(source.dataset(), DataOrigin::Real, &fetch).await?;
                load.append_companies(&file.parsed.rows).await?;
                load.quarantine_rows(source.id(), "registry", &to_quarantined_rows(&file.parsed.bad_rows)).await?;
                report.rows = file.parsed.rows.len() as u64;
                report.appended = load.commit().await?;
                file.parsed.bad_rows
            }
            DataSource::Filings(set) => {
                let file = if bytes.starts_with(b"PK") {
                    let year =
                        year_from_file_name(name).ok_or_else(|| not_loaded("its name holds no year".to_owned()))?;
                    cvm::parse_year_archive(bytes, set, year, today).map(|year| year.filings)
                } else {
                    cvm::parse_filings_file(bytes, None, set, today)
                };
                let file = file.map_err(|error| not_loaded(error.to_string()))?;

                let fetch = fetch_record(file.sha256, file.archived_body);
                let mut load = self.store.begin_load(source.dataset(), DataOrigin::Real, &fetch).await?;
                load.append_filings(&file.parsed.rows).await?;
                load.quarantine_rows(source.id(), name, &to_quarantined_rows(&file.parsed.bad_rows)).await?;
                report.rows = file.parsed.rows.len() as u64;
                report.appended = load.commit().await?;
                file.parsed.bad_rows
            }
            DataSource::Fx => return Err(not_loaded("bulletins are not loaded from files".to_owned())),
        };

        report.quarantined = bad_rows.len() as u64;
        report.unchanged = report.appended == 0;
        Ok(report)
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
    }

    fn record_outcome(&mut self, source: DataSource, part: &str, outcome: PartOutcome) {
        self.parts += 1;
        match outcome {
            PartOutcome::Succeeded(report) => {
                self.bytes += report.bytes;
                self.rows += report.rows;
                self.appended += report.appended;
                self.quarantined += report.quarantined;
                self.alerts.extend(report.alerts.iter().map(|alert| format!("{} {part}: {alert}", source.id())));
            }
            PartOutcome::NotPublishedYet => {}
            PartOutcome::Failed(error) => self.failures.push((source, part.to_owned(), error.to_string())),
        }
    }
}

/// `ipe_cia_aberta_2015.zip` → 2015.
fn year_from_file_name(name: &str) -> Option<i32> {
    name.split(|character: char| !character.is_ascii_digit()).find(|digits| digits.len() == 4)?.parse().ok()
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
            other => vec![DataSource::from_id(other).ok_or_else(|| IngestError::UnknownSource(other.to_owned()))],
        })
        .collect()
}
