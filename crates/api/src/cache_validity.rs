//! How long a response from the snapshot stays the same.

use std::ops::Range;
use std::sync::{Arc, Weak};

use chrono::{DateTime, Utc};
use vintem_domain::Dataset;
use vintem_domain::dates::{sao_paulo_date, sao_paulo_day_end};
use vintem_snapshot::{LiveSnapshot, Snapshot};

/// What a response was made from. The reference is weak, so that it keeps no snapshot in memory.
#[derive(Debug, Clone)]
pub struct CacheValidity {
    snapshot: Weak<Snapshot>,
    /// The start and end of the day.
    day_bounds: Range<DateTime<Utc>>,
    undated_staleness: UndatedStaleness,
}

/// Data without a newest date, which may become stale at any hour. Other datasets become stale at the end of a day.
pub const UNDATED_DATASETS: [Dataset; 2] = [Dataset::Companies, Dataset::Statements];

/// Whether each of them was stale, if the response was made from it.
pub type UndatedStaleness = [Option<bool>; UNDATED_DATASETS.len()];

impl CacheValidity {
    pub fn new(snapshot: &Arc<Snapshot>, now: DateTime<Utc>, undated_staleness: UndatedStaleness) -> Option<Self> {
        let day = sao_paulo_date(now);
        let day_start = sao_paulo_day_end(day.pred_opt()?);
        let day_bounds = day_start..sao_paulo_day_end(day);
        Some(Self { snapshot: Arc::downgrade(snapshot), day_bounds, undated_staleness })
    }

    /// Whether the same response would be made now.
    pub fn holds(&self, live: &LiveSnapshot, now: DateTime<Utc>) -> bool {
        self.day_bounds.contains(&now)
            && live.is_current(&self.snapshot)
            && UNDATED_DATASETS.into_iter().zip(self.undated_staleness).all(|(dataset, staleness)| {
                staleness.is_none_or(|was_stale| {
                    let snapshot = self.snapshot.upgrade();
                    snapshot.is_some_and(|snapshot| live.is_stale(&snapshot, dataset, now) == was_stale)
                })
            })
    }
}
