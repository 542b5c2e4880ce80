//! One module per upstream: how its parts are fetched, parsed, validated and loaded.

mod archive;
pub mod cvm;
pub mod cvm_statements;
pub mod ptax;
pub mod sgs;

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Days, NaiveDate, Utc};
use vintem_domain::event::EVENT_RETENTION_DAYS;
use vintem_domain::{DataOrigin, Dataset};
use vintem_store::load::{LoadTransaction, MissingRowCounts, NewFetch, QuarantinedRow};
use vintem_store::sources::{FileValidators, SourcePartState};
use vintem_store::{Store, StoreError};

use crate::fetch::{FetchError, FetchRequest, ResponseVerdict, UpstreamResponse, compress_for_archive};
use crate::parsers::{BadRowKind, FormatError, ParsedRows};
use crate::source::SourcePart;
use crate::validation::ValidationError;

/// The first and the last date, inclusive.
type DateWindow = (NaiveDate, NaiveDate);

/// The inputs that the loaders of all upstreams share.
pub struct LoadContext<'a> {
    pub store: &'a Store,
    pub client: &'a crate::fetch::UpstreamClient,
    /// The source that the part belongs to.
    pub source_id: &'static str,
    pub now: DateTime<Utc>,
    pub today: NaiveDate,
    /// Load only data of this date or later.
    pub since: Option<NaiveDate>,
    /// Whether new rows emit events. They don't when a part is loaded for the first time.
    pub announce: bool,
    /// Whether to fetch all days of a part, because some lack a value.
    pub all_days: bool,
    /// Whether to try only once, to see whether a host answers again.
    pub single_attempt: bool,
}

impl LoadContext<'_> {
    /// The days to fetch of a part made of days: all of them the first time, later those that may have changed. Both
    /// begin some days earlier, which costs little and finds rows that a response left out.
    fn window_to_fetch(&self, part: SourcePart, state: &SourcePartState) -> DateWindow {
        let overlap = Days::new(part.overlap_days());
        let all_days = self.all_days || self.since.is_some() || !part.is_open(self.today);
        let newest = state.newest_date.filter(|_| !all_days && state.backfilled_at.is_some());
        let first = newest.unwrap_or_else(|| part.first_day()) - overlap;
        let first = self.since.map_or(first, |since| first.max(since));
        (first, part.last_day().min(self.today))
    }

    /// Fetches a response that `judge_response` accepts.
    pub async fn get(
        &self,
        request: FetchRequest<'_>,
        judge_response: impl Fn(&UpstreamResponse) -> ResponseVerdict,
    ) -> Result<UpstreamResponse, FetchError> {
        let request = FetchRequest { single_attempt: self.single_attempt, ..request };
        self.client.get_with_retries(&request, judge_response).await
    }

    /// Fetches a response that `judge_response` accepts. If the last one claimed success but was not data, it is
    /// quarantined, so that an operator can inspect it.
    pub async fn fetch_or_quarantine(
        &self,
        part: &str,
        path: &str,
        judge_response: impl Fn(&UpstreamResponse) -> ResponseVerdict,
    ) -> Result<UpstreamResponse, PartError> {
        let fetched = self.get(FetchRequest { path, ..FetchRequest::default() }, judge_response).await;
        if let Err(FetchError::Failed { problem, last_response: Some(response), .. }) = &fetched
            && response.status == 200
        {
            self.quarantine_response(part, response, &response.body, problem).await?;
        }
        Ok(fetched?)
    }

    /// Begins a load of real data, whose news emit events unless this is a backfill.
    pub async fn begin_load(&self, dataset: Dataset, fetch: &NewFetch) -> Result<LoadTransaction, StoreError> {
        let mut load = self.store.begin_load(dataset, DataOrigin::Real, fetch).await?;
        if self.announce {
            // A value counts as old by its day of publication: a month is published weeks after its date.
            let since = self.today - Days::new(EVENT_RETENTION_DAYS.into());
            load.emit_events_since(match dataset {
                Dataset::Series(series) => series.schedule().first_date_published_since(since),
                Dataset::Fx | Dataset::Companies | Dataset::Filings | Dataset::Statements => since,
            });
        }
        Ok(load)
    }

    /// The record of a response whose whole body is archived.
    fn fetch_record(&self, response: &UpstreamResponse) -> NewFetch {
        let archived_body = compress_for_archive(&response.body);
        response.to_fetch_record(response.address.clone(), self.now, response.body_sha256(), archived_body)
    }

    /// Quarantines a rejected response with the reason and `body`, the part of it that may be kept. Loads none of its
    /// rows.
    pub async fn quarantine_response(
        &self,
        part: &str,
        response: &UpstreamResponse,
        body: &[u8],
        reason: &str,
    ) -> Result<(), StoreError> {
        let row = QuarantinedRow { line: 0, reason: reason.to_owned(), content: response.address.clone() };
        let archived_body = compress_for_archive(&body[..body.len().min(MAX_QUARANTINED_BYTES)]);
        self.store.quarantine_file(self.source_id, part, response.body_sha256(), &archived_body, self.now, &row).await
    }
}

/// Enough to see what was received. A rejected file may have any size.
const MAX_QUARANTINED_BYTES: usize = 4 << 20;

/// The result of loading a part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartReport {
    pub bytes: u64,
    /// Valid rows that were parsed.
    pub rows: u64,
    pub appended: u64,
    /// By what is wrong with them.
    pub bad_rows: BTreeMap<BadRowKind, u64>,
    pub vanished: MissingRowCounts,
    pub alerts: Vec<String>,
    /// Whether the upstream had nothing new.
    pub unchanged: bool,
}

impl PartReport {
    /// Adds a committed load of some of the part's rows.
    pub fn add_load<T>(&mut self, appended: u64, parsed: &ParsedRows<T>) {
        self.appended += appended;
        self.unchanged &= appended == 0;
        self.rows += parsed.rows.len() as u64;
        self.add_problems(parsed);
    }

    /// Adds the bad rows of a table, and what is unusual about its format.
    pub fn add_problems<T>(&mut self, parsed: &ParsedRows<T>) {
        for (kind, count) in parsed.count_bad_rows() {
            *self.bad_rows.entry(kind).or_default() += count;
        }
        self.add_alerts(&parsed.alerts);
    }

    pub fn add_alerts(&mut self, alerts: impl IntoIterator<Item = impl ToString>) {
        for alert in alerts.into_iter().map(|alert| alert.to_string()) {
            if !self.alerts.contains(&alert) {
                self.alerts.push(alert);
            }
        }
    }

    /// The bad rows, whatever is wrong with them.
    pub fn quarantined(&self) -> u64 {
        self.bad_rows.values().sum()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PartError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The whole response is quarantined; Vintém keeps serving the last good data.
    #[error("the response was rejected: {reason}")]
    Rejected { reason: String, validators: FileValidators },
    /// The upstream still has the file that was rejected before.
    #[error("{problem}")]
    StillRejected { problem: String },
    /// The upstream does not have the file, and may not have published it yet.
    #[error("not published yet")]
    NotPublishedYet,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("reading was interrupted: {0}")]
    ParseTaskFailed(#[from] tokio::task::JoinError),
}

/// Why a whole response is quarantined.
#[derive(Debug, thiserror::Error)]
pub enum RejectionError {
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Content(#[from] ValidationError),
}

impl PartError {
    /// Whether the host did not answer, or said that it cannot. The part is not to blame then.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Fetch(error) if error.is_outage())
    }

    /// How long the host asks to be left alone.
    pub const fn requested_wait(&self) -> Option<Duration> {
        match self {
            Self::Fetch(FetchError::RetryLater { wait, .. }) => Some(*wait),
            _ => None,
        }
    }
}

/// Updates the state of a part that was fetched without an error.
pub fn record_success(context: &LoadContext<'_>, state: &mut SourcePartState, report: &PartReport) {
    // A part of which only some days were fetched is still to be fetched.
    if context.since.is_none() || state.backfilled_at.is_some() {
        state.checked_at = Some(context.now);
    }
    if report.appended > 0 {
        state.loaded_at = Some(context.now);
    }
    if context.since.is_none() {
        state.backfilled_at = state.backfilled_at.or(Some(context.now));
    }
    state.failure = None;
}
