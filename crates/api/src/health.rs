//! Why a replica is degraded.

use std::time::Duration;

use serde::{Serialize, Serializer};
use vintem_domain::{Dataset, LastTime};

use crate::app::App;

/// Something that keeps a replica from serving complete and current data, or from keeping up with its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DegradedReason {
    /// No snapshot yet, or a dataset that was never loaded.
    DataMissing,
    /// Newer data of a dataset is overdue.
    DataStale,
    /// The served data is from before the database was restored or replaced.
    DataBeingRebuilt,
    /// Keys are looked up one by one, because the database was restored or replaced.
    KeysBeingRebuilt,
    /// Data has not been compared with the database for a while.
    DataLagging,
    /// Changes of keys have not been read for a while.
    KeysLagging,
    PostgresqlUnreachable,
    /// PostgreSQL answers, but stores nothing.
    PostgresqlReadOnly,
    RedisUnreachable,
    /// Counted usage has not been stored for a while.
    UsageNotStored,
    /// A background task panicked and has not recovered yet.
    BackgroundTaskFailed,
    /// No key can be recognized.
    WrongPepper,
}

impl DegradedReason {
    pub const ALL: [Self; 12] = [
        Self::DataMissing,
        Self::DataStale,
        Self::DataBeingRebuilt,
        Self::KeysBeingRebuilt,
        Self::DataLagging,
        Self::KeysLagging,
        Self::PostgresqlUnreachable,
        Self::PostgresqlReadOnly,
        Self::RedisUnreachable,
        Self::UsageNotStored,
        Self::BackgroundTaskFailed,
        Self::WrongPepper,
    ];

    /// As in `/health` and in metrics.
    pub const fn id(self) -> &'static str {
        match self {
            Self::DataMissing => "data_missing",
            Self::DataStale => "data_stale",
            Self::DataBeingRebuilt => "data_being_rebuilt",
            Self::KeysBeingRebuilt => "keys_being_rebuilt",
            Self::DataLagging => "data_lagging",
            Self::KeysLagging => "keys_lagging",
            Self::PostgresqlUnreachable => "postgresql_unreachable",
            Self::PostgresqlReadOnly => "postgresql_read_only",
            Self::RedisUnreachable => "redis_unreachable",
            Self::UsageNotStored => "usage_not_stored",
            Self::BackgroundTaskFailed => "background_task_failed",
            Self::WrongPepper => "wrong_pepper",
        }
    }

    /// Whether it is about the data itself and not about how the service runs.
    const fn is_about_data(self) -> bool {
        matches!(self, Self::DataMissing | Self::DataStale)
    }
}

impl Serialize for DegradedReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

/// Keys and data are compared with the database every second, and usage is stored as often. Longer than this without
/// success counts as lagging.
const MAX_LAG: Duration = Duration::from_secs(10);

impl App {
    /// Seconds since the keys in memory were last known to be all of them. `None` if they were never read.
    pub fn keys_age_seconds(&self) -> Option<u64> {
        self.keyring.current_at().age().map(|age| age.as_secs())
    }

    /// Whether usage has waited for long to be stored.
    pub fn is_usage_late(&self) -> bool {
        self.usage_backlogs().iter().any(|(_, backlog)| backlog.oldest_age > MAX_LAG)
    }

    /// Why this replica is degraded; nothing if all is well.
    pub fn degraded_reasons(&self) -> Vec<DegradedReason> {
        let now = self.clock.now();
        let snapshot = self.live_snapshot.get();
        let is_missing =
            snapshot.as_ref().is_none_or(|snapshot| Dataset::all().any(|dataset| snapshot.state(dataset).is_none()));
        let is_stale = snapshot.is_some_and(|snapshot| {
            let mut loaded = Dataset::all().filter(|dataset| snapshot.state(*dataset).is_some());
            loaded.any(|dataset| self.live_snapshot.is_stale(&snapshot, dataset, now))
        });

        let is_lagging = |last: &LastTime| last.pause() > MAX_LAG;
        let candidates = [
            (DegradedReason::DataMissing, is_missing || self.live_snapshot.lacks_statements()),
            (DegradedReason::DataStale, is_stale),
            (DegradedReason::DataBeingRebuilt, self.live_snapshot.serves_lost_data()),
            (DegradedReason::KeysBeingRebuilt, self.keyring.is_starting_over()),
            (DegradedReason::DataLagging, is_lagging(self.live_snapshot.current_at())),
            (DegradedReason::KeysLagging, is_lagging(self.keyring.current_at())),
            (DegradedReason::PostgresqlUnreachable, !self.is_store_up()),
            (DegradedReason::PostgresqlReadOnly, self.is_store_read_only()),
            (DegradedReason::RedisUnreachable, !self.meter.redis_availability().all(|is_up| is_up)),
            (DegradedReason::UsageNotStored, self.is_usage_late()),
            (DegradedReason::BackgroundTaskFailed, self.task_health.has_failed_task()),
            (DegradedReason::WrongPepper, self.keyring.is_pepper_wrong()),
        ];
        candidates.into_iter().filter(|(_, holds)| *holds).map(|(reason, _)| reason).collect()
    }

    /// Whether the service itself runs as it should, however old its data is.
    pub fn is_running_well(&self) -> bool {
        self.degraded_reasons().into_iter().all(DegradedReason::is_about_data)
    }
}
