//! The outbox: events as loads wrote them, and as they are published, in one order.

use chrono::{DateTime, Utc};
use sqlx::Row;

use crate::{FOLLOW_BUDGET, Result, Store, within};

/// An event that has no place in the order yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpublishedEvent {
    pub sequence: i64,
    pub id: String,
    pub kind: String,
    pub occurred_at: DateTime<Utc>,
    /// What it tells of, as JSON: where to look it up, or all that there is to say.
    pub subject: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedEvent {
    pub position: i64,
    pub kind: String,
    /// As callers get it; it never changes.
    pub body: String,
}

/// The positions of the last event that was published, and of the last one that was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeedEnds {
    pub last: i64,
    pub forgotten: i64,
}

/// Only one worker publishes at a time; an arbitrary number that no other lock has.
const PUBLISHING: i64 = 0x7669_6e74_656d_0003;

impl Store {
    /// The oldest that have no place yet.
    pub async fn unpublished_events(&self, limit: i64) -> Result<Vec<UnpublishedEvent>> {
        within(FOLLOW_BUDGET, async {
            let rows = sqlx::query(
                "select sequence, id, type, occurred_at, subject::text as subject
                 from event
                 where position is null
                 order by sequence
                 limit $1",
            )
            .bind(limit)
            .fetch_all(&self.pool)
            .await?;
            let event = |row: &sqlx::postgres::PgRow| {
                Ok(UnpublishedEvent {
                    sequence: row.try_get("sequence")?,
                    id: row.try_get("id")?,
                    kind: row.try_get("type")?,
                    occurred_at: row.try_get("occurred_at")?,
                    subject: row.try_get("subject")?,
                })
            };
            rows.iter().map(event).collect()
        })
        .await
    }

    /// Gives events, by their sequence, the next positions and their bodies; those that have one keep it. Says how many
    /// it were. Whoever sees an event of it sees all that have a lower position.
    pub async fn publish_events(&self, events: &[(i64, String)]) -> Result<u64> {
        within(FOLLOW_BUDGET, async {
            let mut transaction = self.pool.begin().await?;
            sqlx::query("select pg_advisory_xact_lock($1)").bind(PUBLISHING).execute(&mut *transaction).await?;
            let (sequences, bodies): (Vec<i64>, Vec<&str>) =
                events.iter().map(|(sequence, body)| (*sequence, body.as_str())).unzip();
            let published = sqlx::query(
                "with given as (
                     select event.sequence, given.body, row_number() over (order by event.sequence) as place
                     from unnest($1::bigint[], $2::text[]) as given (sequence, body)
                     join event on event.sequence = given.sequence
                     where event.position is null
                 ), feed as (
                     update event_feed
                     set last_position = last_position + (select count(*) from given)
                     returning last_position - (select count(*) from given) as before
                 )
                 update event
                 set position = feed.before + given.place, body = given.body
                 from given, feed
                 where event.sequence = given.sequence",
            )
            .bind(sequences)
            .bind(bodies)
            .execute(&mut *transaction)
            .await?;
            sqlx::query("notify vintem_events").execute(&mut *transaction).await?;
            transaction.commit().await?;
            Ok(published.rows_affected())
        })
        .await
    }

    pub async fn feed_ends(&self) -> Result<FeedEnds> {
        within(FOLLOW_BUDGET, async {
            let row =
                sqlx::query("select last_position, forgotten_position from event_feed").fetch_one(&self.pool).await?;
            Ok(FeedEnds { last: row.try_get("last_position")?, forgotten: row.try_get("forgotten_position")? })
        })
        .await
    }

    /// Those after a position, in order, of these kinds or of all.
    pub async fn published_events(
        &self,
        after: i64,
        kinds: Option<&[&str]>,
        limit: i64,
    ) -> Result<Vec<PublishedEvent>> {
        within(self.deadlines.history, async {
            let rows = sqlx::query(
                "select position, type, body
                 from event
                 where position > $1 and ($2::text[] is null or type = any($2))
                 order by position
                 limit $3",
            )
            .bind(after)
            .bind(kinds)
            .bind(limit)
            .fetch_all(&self.pool)
            .await?;
            let event = |row: &sqlx::postgres::PgRow| {
                Ok(PublishedEvent {
                    position: row.try_get("position")?,
                    kind: row.try_get("type")?,
                    body: row.try_get("body")?,
                })
            };
            rows.iter().map(event).collect()
        })
        .await
    }

    /// Forgets some of the events that are older than 30 days.
    pub async fn prune_events(&self) -> Result<u64> {
        within(FOLLOW_BUDGET, async {
            let mut transaction = self.pool.begin().await?;
            let pruned = sqlx::query(
                "delete from event
                 where sequence in (
                     select sequence
                     from event
                     where occurred_at < now() - interval '30 days'
                     order by occurred_at
                     limit 10000
                 )
                 returning position",
            )
            .fetch_all(&mut *transaction)
            .await?;
            let positions = pruned.iter().map(|row| row.try_get::<Option<i64>, _>("position"));
            let last = positions.collect::<std::result::Result<Vec<_>, _>>()?.into_iter().flatten().max();
            if let Some(last) = last {
                sqlx::query("update event_feed set forgotten_position = greatest(forgotten_position, $1)")
                    .bind(last)
                    .execute(&mut *transaction)
                    .await?;
            }
            transaction.commit().await?;
            Ok(pruned.len() as u64)
        })
        .await
    }
}
