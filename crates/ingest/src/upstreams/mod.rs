//! One file an upstream: how a part of it is asked for, read, judged and loaded.

pub mod cvm;
pub mod ptax;
pub mod sgs;

use chrono::{DateTime, Days, NaiveDate, Utc};
use vintem_store::load::{MissingRowCounts, QuarantinedRow};
use vintem_store::sources::SourcePartState;
use vintem_store::{Store, StoreError};

use crate::fetch::{FetchError, UpstreamResponse, compress_for_archive};
use crate::parsers::{FormatAlert, FormatError};
use crate::validation::ValidationError;

/// What a part was asked for with.
pub struct LoadContext<'a> {
    pub store: &'a Store,
    pub client: &'a crate::fetch::UpstreamClient,
    /// The source that the part belongs to.
    pub source_id: &'static str,
    pub now: DateTime<Utc>,
    pub today: NaiveDate,
    /// Only what is of this day or later.
    pub since: Option<NaiveDate>,
    /// Whether what is new is news, and not the first filling.
    pub announce: bool,
}

/// News is not older than this.
const MAX_NEWS_AGE_DAYS: u64 = 30;

impl LoadContext<'_> {
    pub fn announce_since(&self) -> Option<NaiveDate> {
        self.announce.then(|| self.today - Days::new(MAX_NEWS_AGE_DAYS))
    }

    /// Notes that an answer is not believed, with the reason and with what may be kept of it; loads nothing of it.
    pub async fn quarantine_response(
        &self,
        part: &str,
        answer: &UpstreamResponse,
        body: &[u8],
        reason: &str,
    ) -> Result<(), StoreError> {
        let misfit = QuarantinedRow { line: 0, reason: reason.to_owned(), content: answer.address.clone() };
        let archived_body = compress_for_archive(&body[..body.len().min(MAX_QUARANTINED_BYTES)]);
        self.store.quarantine_file(self.source_id, part, answer.body_sha256(), &archived_body, self.now, &misfit).await
    }
}

/// Enough to see what it was. A file that is refused may be of any size.
const MAX_QUARANTINED_BYTES: usize = 4 << 20;

/// What asking for a part came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartReport {
    pub bytes: u64,
    /// Good rows that were read.
    pub rows: u64,
    pub appended: u64,
    pub quarantined: u64,
    pub vanished: MissingRowCounts,
    pub alerts: Vec<String>,
    /// Whether upstream had nothing that we did not have.
    pub unchanged: bool,
}

impl PartReport {
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
    /// Set aside whole: what was served before is served on.
    #[error("what came is not believed: {0}")]
    Rejected(String),
    /// Upstream has no such file, where it need not have one.
    #[error("not there yet")]
    NotPublishedYet,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("reading was cut off: {0}")]
    ParseTaskFailed(#[from] tokio::task::JoinError),
}

/// Why an answer is set aside whole.
#[derive(Debug, thiserror::Error)]
pub enum RejectionError {
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Content(#[from] ValidationError),
}

/// A part that was answered well.
pub fn record_success(state: &mut SourcePartState, now: DateTime<Utc>, report: &PartReport) {
    state.checked_at = Some(now);
    if report.appended > 0 {
        state.loaded_at = Some(now);
    }
    (state.failed_at, state.failure) = (None, None);
}
