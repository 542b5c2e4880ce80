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
    /// For a response from the company registry, which may become stale at any hour. Other datasets become stale at the
    /// end of a day.
    is_registry_stale: Option<bool>,
}

impl CacheValidity {
    pub fn new(snapshot: &Arc<Snapshot>, now: DateTime<Utc>, is_registry_stale: Option<bool>) -> Option<Self> {
        let day = sao_paulo_date(now);
        let day_start = sao_paulo_day_end(day.pred_opt()?);
        let day_bounds = day_start..sao_paulo_day_end(day);
        Some(Self { snapshot: Arc::downgrade(snapshot), day_bounds, is_registry_stale })
    }

    /// Whether the same response would be made now.
    pub fn holds(&self, live: &LiveSnapshot, now: DateTime<Utc>) -> bool {
        self.day_bounds.contains(&now)
            && live.is_current(&self.snapshot)
            && self.is_registry_stale.is_none_or(|was_stale| {
                let snapshot = self.snapshot.upgrade();
                snapshot.is_some_and(|snapshot| live.is_stale(&snapshot, Dataset::Companies, now) == was_stale)
            })
    }
}
