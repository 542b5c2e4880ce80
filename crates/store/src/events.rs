//! The event outbox: loads write events, and a worker publishes them in one global order.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::Row;
use vintem_domain::Dataset;
use vintem_domain::text::normalize_text;
use vintem_domain::webhook::EventAttributes;

use crate::pool::{query, query_scalar};
use crate::reader::DatasetState;
use crate::{BACKGROUND_TIMEOUT, Result, Store, with_timeout};

/// An event that has no position in the feed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpublishedEvent {
    pub sequence: i64,
    pub id: String,
    pub kind: String,
    pub occurred_at: DateTime<Utc>,
    /// The subject of the event as JSON: a reference to look up, or the complete content.
    pub subject_json: String,
}

/// An event with the body and attributes to publish it with.
#[derive(Debug, Clone)]
pub struct EventPublication {
    pub sequence: i64,
    /// The event as callers will get it.
    pub body: String,
    /// The values that webhook filters match.
    pub attributes: EventAttributes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedEvent {
    pub position: i64,
    pub kind: String,
    /// The event as callers get it. It never changes.
    pub body: String,
}

/// The positions of the last published event and of the last pruned one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeedBounds {
    pub last_position: i64,
    pub pruned_position: i64,
    /// Whether the database has the event that a reader read last, or has pruned it. If not, the database was restored or
    /// replaced, and the reader must start over.
    pub is_continued: bool,
}

/// Only one worker publishes at a time. The number is arbitrary, but used by no other lock.
const PUBLISH_LOCK_ID: i64 = 0x7669_6e74_656d_0003;

impl Store {
    /// The oldest events without a position whose loads are in these states of datasets. States that the database has
    /// never been in contain none.
    pub async fn unpublished_events(
        &self,
        served: &HashMap<Dataset, DatasetState>,
        limit: i64,
    ) -> Result<Vec<UnpublishedEvent>> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            let rows = query(
                "with served as (
                     select dataset_load.dataset, dataset_load.generation
                     from unnest($1::text[], $2::bigint[], $3::text[]) as given (dataset, generation, load_id)
                     join dataset_load on dataset_load.dataset = given.dataset
                                      and dataset_load.generation = given.generation
                                      and dataset_load.load_id = given.load_id::uuid
                 )
                 select sequence, event.id, type, occurred_at, subject::text as subject
                 from event
                 left join served on served.dataset = event.dataset
                 where position is null
                   and case when event.dataset is null
                            then not exists (
                                select 1
                                from dataset
                                where not exists (
                                    select 1 from served where served.dataset = id and served.generation = dataset.generation
                                )
                            )
                            else event.generation <= served.generation
                       end
                 order by sequence
                 limit $4",
            )
            .bind(served.keys().map(|dataset| dataset.id()).collect::<Vec<_>>())
            .bind(served.values().map(|state| state.generation).collect::<Vec<_>>())
            .bind(served.values().map(|state| state.load_id.to_uuid()).collect::<Vec<_>>())
            .bind(limit)
            .fetch_all(&self.pool)
            .await?;

            let parse_row = |row: &sqlx::postgres::PgRow| {
                Ok(UnpublishedEvent {
                    sequence: row.try_get("sequence")?,
                    id: row.try_get("id")?,
                    kind: row.try_get("type")?,
                    occurred_at: row.try_get("occurred_at")?,
                    subject_json: row.try_get("subject")?,
                })
            };
            rows.iter().map(parse_row).collect()
        })
        .await
    }

    pub async fn count_active_webhooks(&self) -> Result<usize> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            let count: i64 =
                query_scalar("select count(*) from webhook where status = 'active'").fetch_one(&self.pool).await?;
            Ok(usize::try_from(count).unwrap_or(usize::MAX))
        })
        .await
    }

    /// Publishes events in order of their sequence: each gets its body and the next position, and a delivery for every
    /// webhook whose filter it matches. Events that have a position already keep it. Returns the number of events
    /// published. A reader who sees an event also sees all events with a lower position. Positions advance with the time,
    /// so that a restored database does not issue them again, and readers can go on from theirs.
    pub async fn publish_events(&self, events: &[EventPublication], now: DateTime<Utc>) -> Result<u64> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            let mut transaction = self.pool.begin().await?;
            query("select pg_advisory_xact_lock($1)").bind(PUBLISH_LOCK_ID).execute(&mut *transaction).await?;
            let column = |attribute: fn(&EventAttributes) -> Option<String>| -> Vec<Option<String>> {
                events.iter().map(|event| attribute(&event.attributes)).collect()
            };

            let published: i64 = query_scalar(
                "with given as (
                     select given.*, row_number() over (order by event.sequence) as place
                     from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
                          as given (sequence, body, company, category, series, pair)
                     join event on event.sequence = given.sequence
                     where event.position is null
                 ), feed as (
                     update event_feed
                     set last_position = greatest(last_position, milliseconds_since_2020() << 12)
                                         + (select count(*) from given)
                     returning last_position - (select count(*) from given) as before
                 ), published as (
                     update event
                     set position = feed.before + given.place, body = given.body
                     from given, feed
                     where event.sequence = given.sequence
                     returning event.sequence, event.position, event.id, event.type
                 ), told as (
                     insert into delivery (webhook, event, event_id, type, next_attempt_at, created_at)
                     select webhook.number, sequence, published.id, published.type, $7, $7
                     from published
                     join given using (sequence)
                     join webhook on (webhook.types = '{}' or published.type = any(webhook.types))
                                 and (webhook.companies = '{}' or given.company = any(webhook.companies))
                                 and (webhook.folded_categories = '{}' or given.category = any(webhook.folded_categories))
                                 and (webhook.series = '{}' or given.series = any(webhook.series))
                                 and (webhook.pairs = '{}' or given.pair = any(webhook.pairs))
                     join api_key key on key.id = webhook.key_id
                     where webhook.status = 'active' and key.plan = 'platinum' and key.revoked_at is null
                       and (key.expires_at is null or key.expires_at > $7)
                     order by published.position, webhook.number
                 )
                 select count(*) from published",
            )
            .bind(events.iter().map(|event| event.sequence).collect::<Vec<_>>())
            .bind(events.iter().map(|event| event.body.as_str()).collect::<Vec<_>>())
            .bind(column(|attributes| attributes.company.clone()))
            .bind(column(|attributes| attributes.category.as_deref().map(normalize_text)))
            .bind(column(|attributes| attributes.series.clone()))
            .bind(column(|attributes| attributes.pair.clone()))
            .bind(now)
            .fetch_one(&mut *transaction)
            .await?;

            query("notify vintem_events").execute(&mut *transaction).await?;
            query("notify vintem_deliveries").execute(&mut *transaction).await?;
            transaction.commit().await?;
            Ok(published.unsigned_abs())
        })
        .await
    }

    /// The bounds for a reader that has read up to `last_read`.
    pub async fn feed_bounds(&self, last_read: Option<i64>) -> Result<FeedBounds> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            let row = query(
                "select last_position, forgotten_position,
                        $1 <= forgotten_position or exists (select 1 from event where position = $1) as is_continued
                 from event_feed",
            )
            .bind(last_read.unwrap_or(0))
            .fetch_one(&self.pool)
            .await?;
            Ok(FeedBounds {
                last_position: row.try_get("last_position")?,
                pruned_position: row.try_get("forgotten_position")?,
                is_continued: row.try_get("is_continued")?,
            })
        })
        .await
    }

    /// The position after which the newest `count` events follow, or all that are left.
    pub async fn start_of_newest_events(&self, count: i64) -> Result<i64> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            Ok(query_scalar(
                "select coalesce(
                     (select position from event where position is not null order by position desc offset $1 limit 1),
                     forgotten_position
                 )
                 from event_feed",
            )
            .bind(count)
            .fetch_one(&self.pool)
            .await?)
        })
        .await
    }

    /// The events after a position, in order; `None` for all kinds.
    pub async fn published_events(
        &self,
        after_position: i64,
        kinds: Option<&[&str]>,
        limit: i64,
    ) -> Result<Vec<PublishedEvent>> {
        with_timeout(self.timeouts.bulk_query, async {
            let rows = query(
                "select position, type, body
                 from event
                 where position > $1 and ($2::text[] is null or type = any($2))
                 order by position
                 limit $3",
            )
            .bind(after_position)
            .bind(kinds)
            .bind(limit)
            .fetch_all(&self.pool)
            .await?;

            let parse_row = |row: &sqlx::postgres::PgRow| {
                Ok(PublishedEvent {
                    position: row.try_get("position")?,
                    kind: row.try_get("type")?,
                    body: row.try_get("body")?,
                })
            };
            rows.iter().map(parse_row).collect()
        })
        .await
    }
}
