//! The delivery queue: claiming due deliveries and recording attempts.
//!
//! Only one worker delivers at a time: the one whose connection holds the lock. It claims deliveries on that same
//! connection, so a worker that has lost the lock cannot claim any more. Deliveries in flight when the lock is lost are
//! claimed again by the next worker, and so may arrive twice.

use chrono::{DateTime, Utc};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Row};
use vintem_domain::webhook::DISABLE_AFTER_FAILING;

use crate::pool::{query, query_scalar};
use crate::{BACKGROUND_TIMEOUT, Result, Store, with_timeout};

/// Arbitrary, but used by no other lock.
const DELIVERY_LOCK_ID: i64 = 0x7669_6e74_656d_0004;
/// How many attempts of a delivery are kept. Replays add to them, and the oldest is dropped.
pub const MAX_ATTEMPTS_KEPT: i32 = 20;

/// The queue must be read by its indexes. It can grow from empty to very large within a moment, and a plan made for an
/// empty table would scan the full one each time.
const FORCE_INDEX_SCANS: &str =
    "set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off";

/// A session of a worker that delivers, or waits until it may. The exclusive right to deliver lasts as long as it.
#[derive(Debug)]
pub struct DeliverySession {
    connection: PgConnection,
    has_lease: bool,
}

/// A delivery to be made now.
#[derive(Debug, Clone)]
pub struct DueDelivery {
    pub id: i64,
    pub webhook_number: i64,
    pub webhook_id: String,
    pub url: String,
    pub sealed_secret: Vec<u8>,
    /// The former secret, and until when it signs too.
    pub sealed_former_secret: Option<(Vec<u8>, DateTime<Utc>)>,
    pub event_id: String,
    pub body: String,
    /// The position in the event feed; a test has none.
    pub event_position: Option<i64>,
    pub failures: i16,
}

/// How well a receiver keeps up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReceiverHealth {
    Prompt,
    /// Its last attempt failed or was slow, so it gets fewer deliveries at a time.
    Lagging,
}

/// Which due deliveries to claim, and how many.
#[derive(Debug)]
pub struct ClaimOptions<'a> {
    pub now: DateTime<Utc>,
    pub receiver_health: ReceiverHealth,
    /// Only webhooks with a higher number are considered.
    pub after_webhook: i64,
    /// Webhooks that have enough deliveries in flight.
    pub excluded_webhooks: &'a [i64],
    pub max_total: i64,
    /// For one webhook. A slow webhook gets half as many, a failing webhook only one.
    pub max_per_webhook: i64,
}

/// The result of one attempt.
#[derive(Debug, Clone)]
pub struct DeliveryAttempt {
    pub delivery_id: i64,
    pub webhook_number: i64,
    pub url: String,
    /// The number of failures before this attempt, which tells it apart from a later one.
    pub failures_before: i16,
    pub attempted_at: DateTime<Utc>,
    pub outcome: AttemptOutcome,
    pub is_slow: bool,
    /// The attempt as JSON, shown to the owner of the webhook.
    pub attempt_json: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    Delivered,
    /// Failed; to be retried at this time.
    RetryAt(DateTime<Utc>),
    /// Failed at the last attempt.
    Exhausted,
    /// The receiver answered 410: the delivery is dead, and the webhook gets disabled.
    ReceiverGone,
}

impl AttemptOutcome {
    pub const fn id(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::RetryAt(_) => "again",
            Self::Exhausted => "dead",
            Self::ReceiverGone => "gone",
        }
    }
}

impl Store {
    /// Opens a session that can take the exclusive right to deliver.
    pub async fn open_delivery_session(&self) -> Result<DeliverySession> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            let mut connection = self.sessions.acquire().await?.detach();
            // With short keepalives, a worker whose machine died does not hold the lock for hours.
            sqlx::raw_sql("set tcp_keepalives_idle = 5; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3")
                .execute(&mut connection)
                .await?;
            Ok(DeliverySession { connection, has_lease: false })
        })
        .await
    }

    /// Records attempts and updates their deliveries and webhooks. Recording an attempt twice counts once.
    pub async fn record_attempts(&self, attempts: &[DeliveryAttempt]) -> Result<()> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            let mut transaction = self.pool.begin().await?;
            sqlx::raw_sql(FORCE_INDEX_SCANS).execute(&mut *transaction).await?;
            update_attempted_deliveries(&mut transaction, attempts).await?;
            update_attempted_webhooks(&mut transaction, attempts).await?;
            transaction.commit().await?;
            Ok(())
        })
        .await
    }
}

impl DeliverySession {
    /// Whether this worker has the exclusive right to deliver; takes it if no other worker has it. Then deliveries in
    /// state `sending` go back to `waiting`, except for `in_flight`, which this worker is still sending.
    pub async fn try_lease(&mut self, in_flight: &[i64]) -> Result<bool> {
        if self.has_lease {
            return Ok(true);
        }
        with_timeout(BACKGROUND_TIMEOUT, async {
            let acquired: bool = query_scalar("select pg_try_advisory_lock($1)")
                .bind(DELIVERY_LOCK_ID)
                .fetch_one(&mut self.connection)
                .await?;
            if acquired {
                query("update delivery set state = 'waiting' where state = 'sending' and id <> all($1)")
                    .bind(in_flight)
                    .execute(&mut self.connection)
                    .await?;
                self.has_lease = true;
            }
            Ok(acquired)
        })
        .await
    }

    /// Claims due deliveries, a few per webhook, so that no webhook waits behind another. Only active webhooks count,
    /// and only if their key is valid and its plan includes webhooks.
    pub async fn claim_due(&mut self, options: &ClaimOptions<'_>) -> Result<Vec<DueDelivery>> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            let mut transaction = self.connection.begin().await?;
            sqlx::raw_sql(FORCE_INDEX_SCANS).execute(&mut *transaction).await?;
            let rows = query(
                "with recursive lane as (
                     (select webhook from delivery where state = 'waiting' and webhook > $2 order by webhook limit 1)
                     union all
                     select next.webhook
                     from lane
                     cross join lateral (
                         select webhook
                         from delivery
                         where state = 'waiting' and webhook > lane.webhook
                         order by webhook
                         limit 1
                     ) next
                 ), due as (
                     select first.id, owner.*
                     from lane
                     -- One lane after the other, and none beyond what is wanted: `offset 0` keeps the order of the joins.
                     cross join lateral (
                         select webhook.number, webhook.id as webhook_id, url, secret, former_secret, former_secret_ends_at,
                                case when failing_since is not null then 1 when is_slow then $6 / 2 else $6 end as most
                         from webhook
                         join api_key key on key.id = webhook.key_id
                         where webhook.number = lane.webhook and webhook.number <> all($3) and webhook.status = 'active'
                           and (failing_since is not null or is_slow) = $4 and key.plan = 'platinum'
                           and key.revoked_at is null and (key.expires_at is null or key.expires_at > $1)
                         offset 0
                     ) owner
                     cross join lateral (
                         select id
                         from delivery
                         where webhook = lane.webhook and state = 'waiting' and next_attempt_at <= $1
                         order by next_attempt_at, id
                         limit owner.most
                     ) first
                     limit $5
                 ), taken as (
                     update delivery
                     set state = 'sending', first_attempt_at = coalesce(first_attempt_at, $1)
                     from due
                     where delivery.id = due.id
                     returning due.*, delivery.event, delivery.event_id, delivery.body, delivery.failures
                 )
                 select taken.id, number, webhook_id, url, secret, former_secret, former_secret_ends_at,
                        event_id, coalesce(taken.body, event.body) as body, position, failures
                 from taken
                 left join event on event.sequence = taken.event
                 order by taken.id",
            )
            .bind(options.now)
            .bind(options.after_webhook)
            .bind(options.excluded_webhooks)
            .bind(options.receiver_health == ReceiverHealth::Lagging)
            .bind(options.max_total)
            .bind(options.max_per_webhook)
            .persistent(false)
            .fetch_all(&mut *transaction)
            .await?;

            transaction.commit().await?;
            rows.iter().map(parse_due_delivery).collect()
        })
        .await
    }
}

async fn update_attempted_deliveries(transaction: &mut PgConnection, attempts: &[DeliveryAttempt]) -> Result<()> {
    let next_state = |attempt: &DeliveryAttempt| match attempt.outcome {
        AttemptOutcome::Delivered => ("delivered", None),
        AttemptOutcome::RetryAt(at) => ("waiting", Some(at)),
        AttemptOutcome::Exhausted | AttemptOutcome::ReceiverGone => ("dead", None),
    };
    let (states, next_attempts): (Vec<&str>, Vec<Option<DateTime<Utc>>>) = attempts.iter().map(next_state).unzip();
    query(
        "with attempted as (
             select *
             from unnest($1::bigint[], $2::smallint[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::text[])
                  as attempted (id, failures_before, state, next_attempt_at, at, shown)
         )
         update delivery
         set state = attempted.state,
             failures = failures + case when attempted.state = 'delivered' then 0 else 1 end,
             next_attempt_at = coalesce(attempted.next_attempt_at, delivery.next_attempt_at),
             delivered_at = case when attempted.state = 'delivered' then attempted.at else delivered_at end,
             attempts = case when jsonb_array_length(attempts) >= $7 then attempts - 0 else attempts end
                        || attempted.shown::jsonb
         from attempted
         where delivery.id = attempted.id and delivery.state = 'sending'
           and delivery.failures = attempted.failures_before",
    )
    .bind(attempts.iter().map(|attempt| attempt.delivery_id).collect::<Vec<_>>())
    .bind(attempts.iter().map(|attempt| attempt.failures_before).collect::<Vec<_>>())
    .bind(states)
    .bind(next_attempts)
    .bind(attempts.iter().map(|attempt| attempt.attempted_at).collect::<Vec<_>>())
    .bind(attempts.iter().map(|attempt| attempt.attempt_json.as_str()).collect::<Vec<_>>())
    .bind(MAX_ATTEMPTS_KEPT)
    .persistent(false)
    .execute(transaction)
    .await?;

    Ok(())
}

/// Attempts at a former URL of the webhook say nothing about its current one.
async fn update_attempted_webhooks(transaction: &mut PgConnection, attempts: &[DeliveryAttempt]) -> Result<()> {
    query(
        "with attempted as (
             select *
             from unnest($1::bigint[], $2::text[], $3::boolean[], $4::boolean[], $5::boolean[], $6::timestamptz[])
                  as attempted (webhook, url, is_delivered, is_gone, is_slow, at)
         ), by_webhook as (
             select attempted.webhook, max(at) as until, bool_or(is_gone) as is_gone,
                    bool_or(attempted.is_slow) as is_slow,
                    max(at) filter (where is_delivered) as last_success_at
             from attempted
             join webhook on webhook.number = attempted.webhook and webhook.url = attempted.url
             group by attempted.webhook
         ), stood as (
             select by_webhook.*, failing.since
             from by_webhook
             join webhook on webhook.number = by_webhook.webhook
             cross join lateral (
                 select case when by_webhook.last_success_at is null
                             then least(webhook.failing_since, min(at)) else min(at) end as since
                 from attempted
                 where attempted.webhook = by_webhook.webhook and not is_delivered
                   and (by_webhook.last_success_at is null or at > by_webhook.last_success_at)
             ) failing
         )
         update webhook
         set last_success_at = greatest(webhook.last_success_at, stood.last_success_at),
             failing_since = stood.since,
             is_slow = stood.is_slow,
             status = case when is_given_up then 'disabled' else status end,
             disabled_reason = case when is_given_up then case when is_gone then 'gone' else 'failing' end
                                    else disabled_reason end
         from stood
         cross join lateral (
             select is_gone or coalesce(stood.until - stood.since >= $7::interval, false) as is_given_up
         ) given_up
         where webhook.number = stood.webhook and webhook.status <> 'disabled'",
    )
    .bind(attempts.iter().map(|attempt| attempt.webhook_number).collect::<Vec<_>>())
    .bind(attempts.iter().map(|attempt| attempt.url.as_str()).collect::<Vec<_>>())
    .bind(attempts.iter().map(|attempt| attempt.outcome == AttemptOutcome::Delivered).collect::<Vec<_>>())
    .bind(attempts.iter().map(|attempt| attempt.outcome == AttemptOutcome::ReceiverGone).collect::<Vec<_>>())
    .bind(attempts.iter().map(|attempt| attempt.is_slow).collect::<Vec<_>>())
    .bind(attempts.iter().map(|attempt| attempt.attempted_at).collect::<Vec<_>>())
    .bind(format!("{} seconds", DISABLE_AFTER_FAILING.num_seconds()))
    .persistent(false)
    .execute(transaction)
    .await?;

    Ok(())
}

fn parse_due_delivery(row: &PgRow) -> Result<DueDelivery> {
    let former_secret: Option<Vec<u8>> = row.try_get("former_secret")?;
    let former_secret_ends_at: Option<DateTime<Utc>> = row.try_get("former_secret_ends_at")?;

    Ok(DueDelivery {
        id: row.try_get("id")?,
        webhook_number: row.try_get("number")?,
        webhook_id: row.try_get("webhook_id")?,
        url: row.try_get("url")?,
        sealed_secret: row.try_get("secret")?,
        sealed_former_secret: former_secret.zip(former_secret_ends_at),
        event_id: row.try_get("event_id")?,
        body: row.try_get("body")?,
        event_position: row.try_get("position")?,
        failures: row.try_get("failures")?,
    })
}
