//! One file an upstream: how a part of it is asked for, read, judged and loaded.

pub mod cvm;
pub mod ptax;
pub mod sgs;

use chrono::{DateTime, Days, NaiveDate, Utc};
use vintem_store::load::{Misfit, Vanished};
use vintem_store::sources::PartState;
use vintem_store::{Store, StoreError};

use crate::fetch::{Answer, FetchError, archived};
use crate::gate::Disbelief;
use crate::read::{Alert, Refused};

/// What a part was asked for with.
pub struct Asked<'a> {
    pub store: &'a Store,
    pub host: &'a crate::fetch::Host,
    /// The source that the part belongs to.
    pub source: &'static str,
    pub now: DateTime<Utc>,
    pub today: NaiveDate,
    /// Only what is of this day or later.
    pub since: Option<NaiveDate>,
    /// Whether what is new is news, and not the first filling.
    pub announce: bool,
}

/// News is not older than this.
const NEWS_DAYS: u64 = 30;

impl Asked<'_> {
    pub fn announce_since(&self) -> Option<NaiveDate> {
        self.announce.then(|| self.today - Days::new(NEWS_DAYS))
    }

    /// Notes that an answer is not believed, with the reason and with what may be kept of it; loads nothing of it.
    pub async fn set_aside_whole(
        &self,
        part: &str,
        answer: &Answer,
        kept: &[u8],
        reason: &str,
    ) -> Result<(), StoreError> {
        let misfit = Misfit { line: 0, reason: reason.to_owned(), content: answer.address.clone() };
        let kept = archived(&kept[..kept.len().min(MOST_KEPT_OF_REFUSED)]);
        self.store.quarantine(self.source, part, answer.sha256(), &kept, self.now, &misfit).await
    }
}

/// Enough to see what it was. A file that is refused may be of any size.
const MOST_KEPT_OF_REFUSED: usize = 4 << 20;

/// What asking for a part came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartReport {
    pub bytes: u64,
    /// Good rows that were read.
    pub rows: u64,
    pub appended: u64,
    pub set_aside: u64,
    pub vanished: Vanished,
    pub alerts: Vec<String>,
    /// Whether upstream had nothing that we did not have.
    pub unchanged: bool,
}

impl PartReport {
    pub fn note_alerts(&mut self, alerts: &[Alert]) {
        for alert in alerts.iter().map(Alert::to_string) {
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
    Refused(String),
    /// Upstream has no such file, where it need not have one.
    #[error("not there yet")]
    NotThereYet,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("reading was cut off: {0}")]
    Aside(#[from] tokio::task::JoinError),
}

/// Why an answer is set aside whole.
#[derive(Debug, thiserror::Error)]
pub enum Unbelievable {
    #[error(transparent)]
    Format(#[from] Refused),
    #[error(transparent)]
    Content(#[from] Disbelief),
}

/// A part that was answered well.
pub fn note_success(state: &mut PartState, now: DateTime<Utc>, report: &PartReport) {
    state.checked_at = Some(now);
    if report.appended > 0 {
        state.loaded_at = Some(now);
    }
    (state.failed_at, state.failure) = (None, None);
}
