//! Webhooks and their deliveries, as owners see and change them. How deliveries are made is in [`dispatch`].

pub mod dispatch;

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, Row, Transaction};
use vintem_domain::KeyId;
use vintem_domain::event::EventKind;
use vintem_domain::text::normalize_text;
use vintem_domain::webhook::{DeliveryState, EventFilter, MAX_WEBHOOKS_PER_KEY, WebhookStatus};

use crate::pool::{query, query_as, query_scalar};
use crate::{Result, Store, StoreError, with_timeout};

#[derive(Debug, Clone)]
pub struct WebhookRow {
    pub id: String,
    pub url: String,
    pub filter: EventFilter,
    pub status: WebhookStatus,
    pub created_at: DateTime<Utc>,
    pub last_success_at: Option<DateTime<Utc>>,
}

#[derive(Debug)]
pub struct NewWebhook<'a> {
    pub id: &'a str,
    pub url: &'a str,
    pub filter: &'a EventFilter,
    pub sealed_secret: &'a [u8],
    pub now: DateTime<Utc>,
}

/// A change of a webhook. Fields that are `None` stay unchanged.
#[derive(Debug, Default)]
pub struct WebhookUpdate<'a> {
    pub url: Option<&'a str>,
    pub filter: Option<&'a EventFilter>,
    pub status: Option<WebhookStatus>,
}

#[derive(Debug, Clone)]
pub struct DeliveryRow {
    pub id: i64,
    pub event_id: String,
    pub kind: String,
    pub state: DeliveryState,
    pub created_at: DateTime<Utc>,
    /// Only while it waits.
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub delivered_at: Option<DateTime<Utc>>,
    /// The attempts as a JSON list, oldest first.
    pub attempts_json: String,
}

/// The event that a webhook gets when its owner tests it.
#[derive(Debug)]
pub struct TestEvent<'a> {
    pub id: &'a str,
    pub kind: &'a str,
    pub body: &'a str,
}

/// The result of a request to test a webhook.
#[derive(Debug)]
pub enum WebhookTestOutcome {
    Queued(DeliveryRow),
    NoSuchWebhook,
    /// Paused or disabled: nothing is sent to it.
    NotActive,
}

/// How many deliveries of a deleted webhook are deleted at once.
const DELETE_BATCH_SIZE: i64 = 5_000;

const WEBHOOK_COLUMNS: &str = "id, url, types, companies, categories, series, pairs, status, disabled_reason, created_at, \
                       last_success_at";
const DELIVERY_COLUMNS: &str = "delivery.id, event_id, type, state, delivery.created_at, next_attempt_at, delivered_at, \
                        attempts::text as attempts";

impl Store {
    /// `None` if the key has the maximum number of webhooks already.
    pub async fn create_webhook(&self, key: KeyId, webhook: &NewWebhook<'_>) -> Result<Option<WebhookRow>> {
        with_timeout(self.timeouts.query, async {
            let mut transaction = self.pool.begin().await?;

            // The lock makes concurrent creations count one after the other.
            query("select from api_key where id = $1 for no key update")
                .bind(key)
                .execute(&mut *transaction)
                .await?;

            let existing: i64 = query_scalar("select count(*) from webhook where key_id = $1")
                .bind(key)
                .fetch_one(&mut *transaction)
                .await?;
            if existing >= MAX_WEBHOOKS_PER_KEY as i64 {
                return Ok(None);
            }

            let statement = format!(
                "insert into webhook (key_id, id, url, types, companies, categories, folded_categories, series, pairs, secret,
                                      created_at)
                 values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
                 returning {WEBHOOK_COLUMNS}"
            );
            let filter = webhook.filter;
            let row = query(sqlx::AssertSqlSafe(statement))
                .bind(key)
                .bind(webhook.id)
                .bind(webhook.url)
                .bind(event_kind_ids(filter))
                .bind(&filter.companies)
                .bind(&filter.categories)
                .bind(normalized_categories(filter))
                .bind(&filter.series)
                .bind(&filter.pairs)
                .bind(webhook.sealed_secret)
                .bind(webhook.now)
                .fetch_one(&mut *transaction)
                .await?;

            transaction.commit().await?;
            Ok(Some(parse_webhook_row(&row)?))
        })
        .await
    }

    /// The webhooks of a key, oldest first.
    pub async fn list_webhooks(&self, key: KeyId) -> Result<Vec<WebhookRow>> {
        with_timeout(self.timeouts.query, async {
            let statement = format!("select {WEBHOOK_COLUMNS} from webhook where key_id = $1 order by number");
            let rows = query(sqlx::AssertSqlSafe(statement)).bind(key).fetch_all(&self.pool).await?;
            rows.iter().map(parse_webhook_row).collect()
        })
        .await
    }

    pub async fn find_webhook(&self, key: KeyId, id: &str) -> Result<Option<WebhookRow>> {
        with_timeout(self.timeouts.query, async {
            let statement = format!("select {WEBHOOK_COLUMNS} from webhook where key_id = $1 and id = $2");
            let row = query(sqlx::AssertSqlSafe(statement)).bind(key).bind(id).fetch_optional(&self.pool).await?;
            row.as_ref().map(parse_webhook_row).transpose()
        })
        .await
    }

    /// `None` if the key has no such webhook. Setting the status to active resets `failing_since`, and so does a new
    /// URL.
    pub async fn update_webhook(&self, key: KeyId, id: &str, update: &WebhookUpdate<'_>) -> Result<Option<WebhookRow>> {
        with_timeout(self.timeouts.query, async {
            let mut transaction = self.pool.begin().await?;
            let statement = format!(
                "update webhook
                 set url = coalesce($3, url),
                     types = coalesce($4, types),
                     companies = coalesce($5, companies),
                     categories = coalesce($6, categories),
                     folded_categories = coalesce($7, folded_categories),
                     series = coalesce($8, series),
                     pairs = coalesce($9, pairs),
                     status = coalesce($10, status),
                     disabled_reason = case when $10 is null then disabled_reason end,
                     failing_since = case when $3 is null and $10 is distinct from 'active' then failing_since end
                 where key_id = $1 and id = $2
                 returning {WEBHOOK_COLUMNS}"
            );
            let filter = update.filter;
            let row = query(sqlx::AssertSqlSafe(statement))
                .bind(key)
                .bind(id)
                .bind(update.url)
                .bind(filter.map(event_kind_ids))
                .bind(filter.map(|filter| &filter.companies))
                .bind(filter.map(|filter| &filter.categories))
                .bind(filter.map(normalized_categories))
                .bind(filter.map(|filter| &filter.series))
                .bind(filter.map(|filter| &filter.pairs))
                .bind(update.status.map(WebhookStatus::id))
                .fetch_optional(&mut *transaction)
                .await?;

            notify_deliveries(&mut transaction).await?;
            transaction.commit().await?;
            row.as_ref().map(parse_webhook_row).transpose()
        })
        .await
    }

    /// Deletes a webhook with all of its deliveries, in batches because there can be very many. The webhook is paused
    /// first, so that nothing more is sent to it. False if the key has no such webhook.
    pub async fn delete_webhook(&self, key: KeyId, id: &str) -> Result<bool> {
        let pause = WebhookUpdate { status: Some(WebhookStatus::Paused), ..WebhookUpdate::default() };
        if self.update_webhook(key, id, &pause).await?.is_none() {
            return Ok(false);
        }

        while self.delete_delivery_batch(key, id).await? {}
        with_timeout(self.timeouts.bulk_query, async {
            query("delete from webhook where key_id = $1 and id = $2").bind(key).bind(id).execute(&self.pool).await?;
            Ok(true)
        })
        .await
    }

    /// Returns whether there may be more.
    async fn delete_delivery_batch(&self, key: KeyId, id: &str) -> Result<bool> {
        with_timeout(self.timeouts.bulk_query, async {
            let deleted = query(
                "delete from delivery
                 where id in (
                     select delivery.id
                     from delivery
                     join webhook on webhook.number = delivery.webhook
                     where webhook.key_id = $1 and webhook.id = $2
                     limit $3
                 )",
            )
            .bind(key)
            .bind(id)
            .bind(DELETE_BATCH_SIZE)
            .execute(&self.pool)
            .await?;
            Ok(deleted.rows_affected() == DELETE_BATCH_SIZE.unsigned_abs())
        })
        .await
    }

    /// Gives a webhook a new secret. The old one signs too until `old_secret_ends_at`; any secret before it ends now.
    /// False if the key has no such webhook.
    pub async fn rotate_webhook_secret(
        &self,
        key: KeyId,
        id: &str,
        sealed_secret: &[u8],
        old_secret_ends_at: DateTime<Utc>,
    ) -> Result<bool> {
        with_timeout(self.timeouts.query, async {
            let rotated = query(
                "update webhook
                 set former_secret = secret, former_secret_ends_at = $4, secret = $3
                 where key_id = $1 and id = $2",
            )
            .bind(key)
            .bind(id)
            .bind(sealed_secret)
            .bind(old_secret_ends_at)
            .execute(&self.pool)
            .await?;
            Ok(rotated.rows_affected() > 0)
        })
        .await
    }

    /// Queues a test event for a webhook; it is delivered like any other event.
    pub async fn queue_test_delivery(
        &self,
        key: KeyId,
        id: &str,
        event: &TestEvent<'_>,
        now: DateTime<Utc>,
    ) -> Result<WebhookTestOutcome> {
        with_timeout(self.timeouts.query, async {
            let mut transaction = self.pool.begin().await?;
            let row: Option<(i64, String)> =
                query_as("select number, status from webhook where key_id = $1 and id = $2 for key share")
                    .bind(key)
                    .bind(id)
                    .fetch_optional(&mut *transaction)
                    .await?;
            let Some((number, status)) = row else { return Ok(WebhookTestOutcome::NoSuchWebhook) };
            if status != WebhookStatus::Active.id() {
                return Ok(WebhookTestOutcome::NotActive);
            }

            let statement = format!(
                "insert into delivery (webhook, event_id, type, body, next_attempt_at, created_at)
                 values ($1, $2, $3, $4, $5, $5)
                 returning {DELIVERY_COLUMNS}"
            );
            let row = query(sqlx::AssertSqlSafe(statement))
                .bind(number)
                .bind(event.id)
                .bind(event.kind)
                .bind(event.body)
                .bind(now)
                .fetch_one(&mut *transaction)
                .await?;

            notify_deliveries(&mut transaction).await?;
            transaction.commit().await?;
            Ok(WebhookTestOutcome::Queued(parse_delivery_row(&row)?))
        })
        .await
    }

    /// One page of the deliveries of a webhook, newest first, and their total number. `None` if the key has no such
    /// webhook.
    pub async fn list_deliveries(
        &self,
        key: KeyId,
        id: &str,
        state: Option<DeliveryState>,
        offset: i64,
        limit: i64,
    ) -> Result<Option<(Vec<DeliveryRow>, u64)>> {
        with_timeout(self.timeouts.bulk_query, async {
            let number: Option<i64> = query_scalar("select number from webhook where key_id = $1 and id = $2")
                .bind(key)
                .bind(id)
                .fetch_optional(&self.pool)
                .await?;
            let Some(number) = number else { return Ok(None) };
            let statement = format!(
                "select {DELIVERY_COLUMNS}
                 from delivery
                 where webhook = $1 and ($2 is null or state = $2)
                 order by id desc
                 offset $3
                 limit $4"
            );
            let rows = query(sqlx::AssertSqlSafe(statement))
                .bind(number)
                .bind(state.map(DeliveryState::id))
                .bind(offset)
                .bind(limit)
                .fetch_all(&self.pool)
                .await?;

            let total: i64 =
                query_scalar("select count(*) from delivery where webhook = $1 and ($2 is null or state = $2)")
                    .bind(number)
                    .bind(state.map(DeliveryState::id))
                    .fetch_one(&self.pool)
                    .await?;

            let deliveries = rows.iter().map(parse_delivery_row).collect::<Result<_>>()?;
            Ok(Some((deliveries, total.unsigned_abs())))
        })
        .await
    }

    /// Queues a delivery again, whatever its state: it is sent at once, with the full retry schedule. A delivery that
    /// is being sent right now is left alone. `None` if the webhook of the key has no such delivery.
    pub async fn replay_delivery(
        &self,
        key: KeyId,
        id: &str,
        delivery_id: i64,
        now: DateTime<Utc>,
    ) -> Result<Option<DeliveryRow>> {
        with_timeout(self.timeouts.query, async {
            let mut transaction = self.pool.begin().await?;
            let statement = format!(
                "update delivery
                 set state = case when state = 'sending' then state else 'waiting' end,
                     failures = case when state = 'sending' then failures else 0 end,
                     next_attempt_at = case when state = 'sending' then next_attempt_at else $4 end
                 from webhook
                 where delivery.id = $3 and webhook.number = delivery.webhook and webhook.key_id = $1
                   and webhook.id = $2
                 returning {DELIVERY_COLUMNS}"
            );
            let row = query(sqlx::AssertSqlSafe(statement))
                .bind(key)
                .bind(id)
                .bind(delivery_id)
                .bind(now)
                .fetch_optional(&mut *transaction)
                .await?;

            notify_deliveries(&mut transaction).await?;
            transaction.commit().await?;
            row.as_ref().map(parse_delivery_row).transpose()
        })
        .await
    }
}

/// Wakes up the delivery worker.
async fn notify_deliveries(transaction: &mut Transaction<'_, Postgres>) -> Result<()> {
    query("notify vintem_deliveries").execute(&mut **transaction).await?;
    Ok(())
}

fn normalized_categories(filter: &EventFilter) -> Vec<String> {
    filter.categories.iter().map(|category| normalize_text(category)).collect()
}

fn event_kind_ids(filter: &EventFilter) -> Vec<&'static str> {
    filter.kinds.iter().map(|kind| kind.id()).collect()
}

fn parse_webhook_row(row: &PgRow) -> Result<WebhookRow> {
    let status: &str = row.try_get("status")?;
    let disabled_reason: Option<&str> = row.try_get("disabled_reason")?;
    let kinds: Vec<String> = row.try_get("types")?;
    let parse_kind =
        |id: &String| EventKind::from_id(id).ok_or_else(|| StoreError::UnreadableData(format!("events of type {id}")));

    Ok(WebhookRow {
        id: row.try_get("id")?,
        url: row.try_get("url")?,
        filter: EventFilter {
            kinds: kinds.iter().map(parse_kind).collect::<Result<_>>()?,
            companies: row.try_get("companies")?,
            categories: row.try_get("categories")?,
            series: row.try_get("series")?,
            pairs: row.try_get("pairs")?,
        },
        status: WebhookStatus::from_ids(status, disabled_reason)
            .ok_or_else(|| StoreError::UnreadableData(format!("a webhook that is {status}")))?,
        created_at: row.try_get("created_at")?,
        last_success_at: row.try_get("last_success_at")?,
    })
}

fn parse_delivery_row(row: &PgRow) -> Result<DeliveryRow> {
    let state: &str = row.try_get("state")?;
    let state = DeliveryState::from_id(state)
        .ok_or_else(|| StoreError::UnreadableData(format!("a delivery that is {state}")))?;
    let next_attempt_at: DateTime<Utc> = row.try_get("next_attempt_at")?;

    Ok(DeliveryRow {
        id: row.try_get("id")?,
        event_id: row.try_get("event_id")?,
        kind: row.try_get("type")?,
        state,
        created_at: row.try_get("created_at")?,
        next_attempt_at: (state == DeliveryState::Waiting).then_some(next_attempt_at),
        delivered_at: row.try_get("delivered_at")?,
        attempts_json: row.try_get("attempts")?,
    })
}
