//! One module per upstream: how its parts are fetched, parsed, validated and loaded.

pub mod cvm;
pub mod ptax;
pub mod sgs;

use chrono::{DateTime, Days, NaiveDate, Utc};
use vintem_domain::event::EVENT_RETENTION_DAYS;
use vintem_domain::{DataOrigin, Dataset};
use vintem_store::load::{LoadTransaction, MissingRowCounts, NewFetch, QuarantinedRow};
use vintem_store::sources::SourcePartState;
use vintem_store::{Store, StoreError};

use crate::fetch::{CacheValidators, FetchError, ResponseVerdict, UpstreamResponse, compress_for_archive};
use crate::parsers::{FormatAlert, FormatError};
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
    /// Whether new rows emit events. They don't during a backfill.
    pub announce: bool,
}

impl LoadContext<'_> {
    /// Fetches a response that `judge_response` accepts. If the last one claimed success but was not data, it is
    /// quarantined, so that an operator can inspect it.
    pub async fn fetch_or_quarantine(
        &self,
        part: &str,
        path: &str,
        judge_response: impl Fn(&UpstreamResponse) -> ResponseVerdict,
    ) -> Result<UpstreamResponse, PartError> {
        let fetched = self.client.get_with_retries(path, &CacheValidators::default(), judge_response).await;
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
            load.emit_events_since(self.today - Days::new(EVENT_RETENTION_DAYS.into()));
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
    pub quarantined: u64,
    pub vanished: MissingRowCounts,
    pub alerts: Vec<String>,
    /// Whether the upstream had nothing new.
    pub unchanged: bool,
}

impl PartReport {
    /// Adds a committed load of some of the part's rows.
    pub fn add_load(&mut self, appended: u64, bad_rows: usize) {
        self.appended += appended;
        self.quarantined += bad_rows as u64;
        self.unchanged &= appended == 0;
    }

    pub fn add_alerts(&mut self, alerts: &[FormatAlert]) {
        for alert in alerts.iter().map(FormatAlert::to_string) {
            if !self.alerts.contains(&alert) {
                self.alerts.push(alert);
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PartError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The whole response is quarantined; Vintém keeps serving the last good data.
    #[error("the response was rejected: {0}")]
    Rejected(String),
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

/// Updates the state of a part that was fetched without an error.
pub fn record_success(state: &mut SourcePartState, now: DateTime<Utc>, report: &PartReport) {
    state.checked_at = Some(now);
    if report.appended > 0 {
        state.loaded_at = Some(now);
    }
    state.failed_at = None;
    state.failure = None;
}
