//! How new each dataset is, and whether newer data is overdue.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use vintem_domain::Dataset;
use vintem_domain::dates::sao_paulo_date;
use vintem_store::sources::{FailingPart, SourceAlert, SourceState};

use crate::datasets::snapshot_dataset;
use crate::live_snapshot::LiveSnapshot;
use crate::snapshot::Snapshot;

/// The registry is rewritten each day; a gap over a long weekend is normal.
const MAX_REGISTRY_AGE_DAYS: i64 = 4;

/// The freshness of a dataset at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetFreshness {
    pub rows: usize,
    pub newest_date: Option<NaiveDate>,
    pub loaded_at: Option<DateTime<Utc>>,
    /// When its publisher last gave a good answer, whether or not it had new data.
    pub last_success_at: Option<DateTime<Utc>>,
    pub next_expected_on: Option<NaiveDate>,
    /// The hour at which it is expected, if its publisher keeps one.
    pub next_expected_at: Option<DateTime<Utc>>,
    pub quarantined: u64,
    /// Parts of its sources that keep failing, the newest first.
    pub failing_parts: Vec<FailingPart>,
    /// What was unusual about the last responses of its sources, the newest parts first.
    pub alerts: Vec<SourceAlert>,
    /// Whether a value is expected by now that is not there. Its publisher may only be a little late.
    pub late: bool,
    /// Whether newer data is overdue. Both are also true for a dataset that was never loaded.
    pub stale: bool,
}

impl LiveSnapshot {
    pub fn freshness(&self, snapshot: &Snapshot, dataset: Dataset, now: DateTime<Utc>) -> DatasetFreshness {
        let (rows, newest_date) =
            snapshot_dataset(dataset).row_count_and_newest_date(snapshot, dataset, sao_paulo_date(now));
        let sources = self.sources();
        let quarantined = sources_of(&sources, dataset).map(|source| source.quarantined_rows).sum();
        let failing_parts = sources_of(&sources, dataset).flat_map(|source| &source.failing_parts).cloned().collect();
        let alerts = sources_of(&sources, dataset).flat_map(|source| &source.alerts).cloned().collect();

        let next_expected_at = newest_date.and_then(|newest| dataset.next_expected_at(newest));
        DatasetFreshness {
            rows,
            newest_date,
            loaded_at: snapshot.state(dataset).map(|state| state.loaded_at),
            last_success_at: oldest_success_at(sources_of(&sources, dataset)),
            next_expected_on: newest_date.map(|newest| dataset.next_expected_on(newest)),
            next_expected_at,
            quarantined,
            failing_parts,
            alerts,
            late: rows == 0 || next_expected_at.is_some_and(|expected_at| now >= expected_at),
            stale: self.is_stale(snapshot, dataset, now),
        }
    }

    pub fn is_stale(&self, snapshot: &Snapshot, dataset: Dataset, now: DateTime<Utc>) -> bool {
        let today = sao_paulo_date(now);
        match snapshot_dataset(dataset).row_count_and_newest_date(snapshot, dataset, today) {
            (0, _) => true,
            (_, Some(newest)) => dataset.is_stale(newest, today),
            // Rows without a date that advances are stale when nobody could read them for too long.
            (_, None) => oldest_success_at(sources_of(&self.sources(), dataset))
                .is_some_and(|checked_at| now - checked_at > TimeDelta::days(MAX_REGISTRY_AGE_DAYS)),
        }
    }

    /// Whether every dataset is loaded and none is stale.
    pub fn is_complete_and_fresh(&self, snapshot: &Snapshot, now: DateTime<Utc>) -> bool {
        Dataset::all().all(|dataset| !self.is_stale(snapshot, dataset, now))
    }
}

/// The sources that fill a dataset.
fn sources_of(sources: &[SourceState], dataset: Dataset) -> impl Iterator<Item = &SourceState> {
    let part = snapshot_dataset(dataset);
    sources.iter().filter(move |source| part.is_filled_by(dataset, &source.source))
}

/// The oldest last success among the sources; `None` if there is none, or if one of them never succeeded.
fn oldest_success_at<'s>(sources: impl Iterator<Item = &'s SourceState>) -> Option<DateTime<Utc>> {
    let mut oldest = None;
    for source in sources {
        let checked_at = source.checked_at?;
        oldest = Some(oldest.map_or(checked_at, |oldest: DateTime<Utc>| oldest.min(checked_at)));
    }
    oldest
}
