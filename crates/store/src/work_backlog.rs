//! How far the workers are behind.

use chrono::{DateTime, Utc};

use crate::migrations::schema_version;
use crate::pool::{ConnectionCounts, query_as};
use crate::{BACKGROUND_TIMEOUT, Result, Store, with_timeout};

/// The oldest work that is still to be done, if there is any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkBacklog {
    /// When the oldest event happened that is not published.
    pub oldest_event: Option<DateTime<Utc>>,
    /// When the oldest delivery was due that waits for an attempt. Those of failing and slow receivers don't count, because
    /// they wait for the receiver, nor those of keys that get no deliveries any more.
    pub oldest_delivery: Option<DateTime<Utc>>,
}

impl Store {
    pub async fn work_backlog(&self, now: DateTime<Utc>) -> Result<WorkBacklog> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            let (oldest_event, oldest_delivery) = query_as(
                "select (select min(occurred_at) from event where position is null),
                        (select min(next_attempt_at)
                         from delivery
                         join webhook on webhook.number = delivery.webhook
                         join api_key key on key.id = webhook.key_id
                         where state = 'waiting' and next_attempt_at <= $1
                           and webhook.status = 'active' and failing_since is null and not is_slow
                           and key.plan = 'platinum' and key.revoked_at is null
                           and (key.expires_at is null or key.expires_at > $1))",
            )
            .bind(now)
            .fetch_one(&self.pool)
            .await?;
            Ok(WorkBacklog { oldest_event, oldest_delivery })
        })
        .await
    }

    /// The version of the database's schema.
    pub async fn current_schema_version(&self) -> Result<i64> {
        with_timeout(BACKGROUND_TIMEOUT, async { Ok(schema_version(&mut *self.pool.begin().await?).await?) }).await
    }

    pub fn connection_counts(&self) -> ConnectionCounts {
        self.pool.connection_counts()
    }
}
