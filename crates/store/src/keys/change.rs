//! Changes of keys, each with its history entry in the same transaction.
//!
//! A change that replicas must learn of takes the next revision under one lock. Revisions therefore become visible in
//! order, and a replica that has seen revision N has seen all revisions before it.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use sqlx::{PgConnection, Postgres, Row, Transaction};
use vintem_domain::feature::Feature;
use vintem_domain::{KeyActor, KeyChange, KeyId, Plan};

use super::pepper::{self, PepperMark};
use super::{KeySecretRow, parse_key_secret_row};
use crate::pool::{query, query_scalar};
use crate::{Result, Store, with_timeout};

#[derive(Debug, Clone)]
pub struct NewKey<'a> {
    pub secret: NewSecret<'a>,
    pub plan: Plan,
    pub name: &'a str,
    pub email: &'a str,
}

/// Further settings of a new key. By default the operator creates it, and it never expires.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeyOptions<'a> {
    pub created_by: KeyActor,
    pub label: &'a str,
    pub expires_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone)]
pub struct NewSecret<'a> {
    pub hmac: [u8; 32],
    pub pepper: &'a PepperMark,
    pub display_prefix: &'a str,
}

/// The result of a change by the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerChangeResult<T> {
    Done(T),
    /// The key is revoked, expired or unknown.
    KeyInvalid,
    TooManyChanges {
        retry_after_seconds: u64,
    },
}

/// How often an owner may change a key within a day. Limited because each change stays in the history forever.
pub const MAX_DAILY_KEY_CHANGES: i64 = 100;
/// The next rotation deletes former secrets that ended longer ago than this. By then every replica knows that they
/// ended.
const FORMER_SECRET_RETENTION: TimeDelta = TimeDelta::days(30);

impl Store {
    /// Creates a key with the default options.
    pub async fn create_key(&self, key: &NewKey<'_>) -> Result<KeySecretRow> {
        self.create_key_with_options(key, &KeyOptions::default()).await
    }

    pub async fn create_key_with_options(&self, key: &NewKey<'_>, options: &KeyOptions<'_>) -> Result<KeySecretRow> {
        with_timeout(self.timeouts.query, async {
            let mut transaction = self.begin_key_change().await?;
            pepper::confirm(&mut transaction, key.secret.pepper).await?;
            let row = query(
                "insert into api_key (hmac, pepper_id, shown, plan, name, email, label, expires_at, revision)
                 values ($1, $2, $3, $4, $5, $6, $7, $8, nextval('api_key_revision'))
                 returning id, hmac, plan, expires_at as valid_until, revoked_at, false as is_former, revision",
            )
            .bind(key.secret.hmac.as_slice())
            .bind(&key.secret.pepper.id)
            .bind(key.secret.display_prefix)
            .bind(key.plan.id())
            .bind(key.name)
            .bind(key.email)
            .bind(options.label)
            .bind(options.expires_at)
            .fetch_one(&mut *transaction)
            .await?;

            let row = parse_key_secret_row(&row)?;
            let plan = Some(key.plan.id().to_owned());
            insert_key_change(&mut transaction, row.id, KeyChange::Created, options.created_by, None, plan).await?;
            if let Some(expires_at) = options.expires_at {
                insert_key_change(
                    &mut transaction,
                    row.id,
                    KeyChange::ExpiryChanged,
                    options.created_by,
                    None,
                    Some(format_instant(expires_at)),
                )
                .await?;
            }

            transaction.commit().await?;
            Ok(row)
        })
        .await
    }

    /// Changes the plan of a key, and pauses its webhooks if the new plan does not include them. False if no key has
    /// this id.
    pub async fn set_key_plan(&self, id: KeyId, plan: Plan) -> Result<bool> {
        let mut transaction = self.begin_key_change().await?;
        let row = query("select plan from api_key where id = $1 for no key update")
            .bind(id)
            .fetch_optional(&mut *transaction)
            .await?;
        let Some(row) = row else { return Ok(false) };
        let old_plan = super::parse_plan(&row)?;
        if old_plan == plan {
            return Ok(true);
        }

        // A key that moves to the Free plan starts to count as unused only now.
        query(
            "update api_key
             set plan = $2, unused_since = (now() at time zone 'utc')::date, revision = nextval('api_key_revision')
             where id = $1",
        )
        .bind(id)
        .bind(plan.id())
        .execute(&mut *transaction)
        .await?;

        // They stay paused when the key gets its plan back, so that the owner notices the missed events.
        if plan < Feature::Webhooks.required_plan() {
            query("update webhook set status = 'paused' where key_id = $1 and status = 'active'")
                .bind(id)
                .execute(&mut *transaction)
                .await?;
        }

        let old_value = Some(old_plan.id().to_owned());
        let new_value = Some(plan.id().to_owned());
        insert_key_change(&mut transaction, id, KeyChange::PlanChanged, KeyActor::Operator, old_value, new_value)
            .await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Changes when a key expires; `None` for never. False if no key has this id.
    pub async fn set_key_expiry(&self, id: KeyId, expires_at: Option<DateTime<Utc>>) -> Result<bool> {
        let mut transaction = self.begin_key_change().await?;
        let row = query("select expires_at from api_key where id = $1 for no key update")
            .bind(id)
            .fetch_optional(&mut *transaction)
            .await?;
        let Some(row) = row else { return Ok(false) };
        let old_expires_at: Option<DateTime<Utc>> = row.try_get("expires_at")?;
        if old_expires_at == expires_at {
            return Ok(true);
        }

        query("update api_key set expires_at = $2, revision = nextval('api_key_revision') where id = $1")
            .bind(id)
            .bind(expires_at)
            .execute(&mut *transaction)
            .await?;

        let old_value = old_expires_at.map(format_instant);
        let new_value = expires_at.map(format_instant);
        insert_key_change(&mut transaction, id, KeyChange::ExpiryChanged, KeyActor::Operator, old_value, new_value)
            .await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Revokes a key permanently; does nothing if it is revoked already. False if no key has this id.
    pub async fn revoke_key(&self, id: KeyId) -> Result<bool> {
        let mut transaction = self.begin_key_change().await?;
        let exists: Option<i64> =
            query_scalar("select id from api_key where id = $1").bind(id).fetch_optional(&mut *transaction).await?;

        if mark_revoked(&mut transaction, id, KeyActor::Operator).await? {
            transaction.commit().await?;
        }

        Ok(exists.is_some())
    }

    /// Revokes a key on behalf of its owner and returns all of its secrets. `None` if it was revoked already.
    pub async fn revoke_key_as_owner(&self, id: KeyId) -> Result<Option<Vec<KeySecretRow>>> {
        with_timeout(self.timeouts.query, async {
            let mut transaction = self.begin_key_change().await?;
            if !mark_revoked(&mut transaction, id, KeyActor::Owner).await? {
                return Ok(None);
            }

            let rows = load_key_secrets(&mut transaction, id).await?;
            transaction.commit().await?;
            Ok(Some(rows))
        })
        .await
    }

    /// Changes the label of a key. Replicas don't hold labels, so this takes no revision.
    pub async fn set_key_label(&self, id: KeyId, label: &str, now: DateTime<Utc>) -> Result<OwnerChangeResult<()>> {
        with_timeout(self.timeouts.query, async {
            let mut transaction = self.pool.begin().await?;
            let old_label: Option<String> = query_scalar(
                "select label
                 from api_key
                 where id = $1 and revoked_at is null and (expires_at is null or expires_at > $2)
                 for no key update",
            )
            .bind(id)
            .bind(now)
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(old_label) = old_label else { return Ok(OwnerChangeResult::KeyInvalid) };
            if old_label == label {
                return Ok(OwnerChangeResult::Done(()));
            }

            if let Some(retry_after_seconds) = owner_change_retry_seconds(&mut transaction, id).await? {
                return Ok(OwnerChangeResult::TooManyChanges { retry_after_seconds });
            }

            query("update api_key set label = $2 where id = $1")
                .bind(id)
                .bind(label)
                .execute(&mut *transaction)
                .await?;

            insert_key_change(&mut transaction, id, KeyChange::LabelChanged, KeyActor::Owner, None, None).await?;
            transaction.commit().await?;
            Ok(OwnerChangeResult::Done(()))
        })
        .await
    }

    /// Gives a key a new secret and returns all of its secrets. The old secret ends at `old_secret_ends_at`, any secret
    /// before it ends now.
    pub async fn rotate_key(
        &self,
        id: KeyId,
        secret: &NewSecret<'_>,
        now: DateTime<Utc>,
        old_secret_ends_at: DateTime<Utc>,
    ) -> Result<OwnerChangeResult<Vec<KeySecretRow>>> {
        with_timeout(self.timeouts.query, async {
            let mut transaction = self.begin_key_change().await?;
            let valid_id: Option<i64> = query_scalar(
                "select id
                 from api_key
                 where id = $1 and revoked_at is null and (expires_at is null or expires_at > $2)
                 for update",
            )
            .bind(id)
            .bind(now)
            .fetch_optional(&mut *transaction)
            .await?;
            if valid_id.is_none() {
                return Ok(OwnerChangeResult::KeyInvalid);
            }

            if let Some(retry_after_seconds) = owner_change_retry_seconds(&mut transaction, id).await? {
                return Ok(OwnerChangeResult::TooManyChanges { retry_after_seconds });
            }

            pepper::confirm(&mut transaction, secret.pepper).await?;
            keep_former_secret(&mut transaction, id, now, old_secret_ends_at).await?;
            query(
                "update api_key
                 set hmac = $2, pepper_id = $3, shown = $4, revision = nextval('api_key_revision')
                 where id = $1",
            )
            .bind(id)
            .bind(secret.hmac.as_slice())
            .bind(&secret.pepper.id)
            .bind(secret.display_prefix)
            .execute(&mut *transaction)
            .await?;

            let new_value = Some(format_instant(old_secret_ends_at));
            insert_key_change(&mut transaction, id, KeyChange::Rotated, KeyActor::Owner, None, new_value).await?;
            let rows = load_key_secrets(&mut transaction, id).await?;
            transaction.commit().await?;
            Ok(OwnerChangeResult::Done(rows))
        })
        .await
    }

    /// Erases the personal data of an email address, compared without case: revokes its keys, and removes name, email,
    /// label and webhooks from every table. Usage stays under the ids of the keys, which are returned.
    pub async fn erase_keys_by_email(&self, email: &str) -> Result<Vec<KeyId>> {
        let mut transaction = self.begin_key_change().await?;

        // In order, so that two transactions that lock the same rows wait for each other instead of deadlocking.
        let ids: Vec<KeyId> = query_scalar(
            "select id
             from api_key
             where lower(email) = lower($1)
             order by id
             for no key update",
        )
        .bind(email)
        .fetch_all(&mut *transaction)
        .await?;

        query(
            "insert into key_change (key_id, what, by_whom)
             select id, what, $2
             from api_key
             cross join unnest(array[$3, $4]) what
             where id = any($1) and (what = $4 or revoked_at is null)
             order by id, what desc",
        )
        .bind(&ids)
        .bind(KeyActor::Operator.id())
        .bind(KeyChange::Revoked.id())
        .bind(KeyChange::Erased.id())
        .execute(&mut *transaction)
        .await?;

        query(
            "update api_key
             set name = '', email = '', label = '', revoked_at = coalesce(revoked_at, now()),
                 revision = nextval('api_key_revision')
             where id = any($1)",
        )
        .bind(&ids)
        .execute(&mut *transaction)
        .await?;

        query("delete from webhook where key_id = any($1)").bind(&ids).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(ids)
    }

    pub(super) async fn begin_key_change(&self) -> Result<Transaction<'static, Postgres>> {
        let mut transaction = self.pool.begin().await?;
        query("select pg_advisory_xact_lock(hashtext('vintem_keys')), pg_notify('vintem_keys', '')")
            .execute(&mut *transaction)
            .await?;

        Ok(transaction)
    }
}

/// False if no key has this id, or if it is revoked already.
async fn mark_revoked(transaction: &mut Transaction<'_, Postgres>, id: KeyId, actor: KeyActor) -> Result<bool> {
    let revoked = query(
        "update api_key
         set revoked_at = now(), revision = nextval('api_key_revision')
         where id = $1 and revoked_at is null",
    )
    .bind(id)
    .execute(&mut **transaction)
    .await?;
    if revoked.rows_affected() == 0 {
        return Ok(false);
    }

    insert_key_change(transaction, id, KeyChange::Revoked, actor, None, None).await?;
    Ok(true)
}

async fn insert_key_change(
    transaction: &mut Transaction<'_, Postgres>,
    id: KeyId,
    kind: KeyChange,
    actor: KeyActor,
    old_value: Option<String>,
    new_value: Option<String>,
) -> Result<()> {
    query("insert into key_change (key_id, what, by_whom, was, became) values ($1, $2, $3, $4, $5)")
        .bind(id)
        .bind(kind.id())
        .bind(actor.id())
        .bind(old_value)
        .bind(new_value)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Keeps the current secret of a key as a former one until `ends_at`, and ends those before it.
async fn keep_former_secret(
    connection: &mut PgConnection,
    id: KeyId,
    now: DateTime<Utc>,
    ends_at: DateTime<Utc>,
) -> Result<()> {
    query("delete from key_former_secret where key_id = $1 and ends_at < $2")
        .bind(id)
        .bind(now - FORMER_SECRET_RETENTION)
        .execute(&mut *connection)
        .await?;
    query("update key_former_secret set ends_at = $2 where key_id = $1 and ends_at > $2")
        .bind(id)
        .bind(now)
        .execute(&mut *connection)
        .await?;
    query(
        "insert into key_former_secret (hmac, key_id, pepper_id, shown, ends_at)
         select hmac, id, pepper_id, shown, $2
         from api_key
         where id = $1",
    )
    .bind(id)
    .bind(ends_at)
    .execute(connection)
    .await?;
    Ok(())
}

/// The seconds until the owner may change the key again, or `None` if it may now. The caller has locked the key's row,
/// so concurrent changes are counted one after the other.
async fn owner_change_retry_seconds(transaction: &mut Transaction<'_, Postgres>, id: KeyId) -> Result<Option<u64>> {
    let seconds: Option<i64> = query_scalar(
        "select greatest(1, ceil(extract(epoch from at + interval '1 day' - clock_timestamp())))::bigint
         from key_change
         where key_id = $1 and by_whom = 'owner' and at > clock_timestamp() - interval '1 day'
         order by id desc
         offset $2
         limit 1",
    )
    .bind(id)
    .bind(MAX_DAILY_KEY_CHANGES - 1)
    .fetch_optional(&mut **transaction)
    .await?;
    Ok(seconds.map(i64::unsigned_abs))
}

async fn load_key_secrets(transaction: &mut Transaction<'_, Postgres>, id: KeyId) -> Result<Vec<KeySecretRow>> {
    let rows = query(
        "select id, hmac, plan, expires_at as valid_until, revoked_at, false as is_former, revision
         from api_key
         where id = $1
         union all
         select key.id, former.hmac, plan, least(expires_at, ends_at), revoked_at, true, revision
         from key_former_secret former
         join api_key key on key.id = former.key_id
         where key.id = $1",
    )
    .bind(id)
    .fetch_all(&mut **transaction)
    .await?;
    rows.iter().map(parse_key_secret_row).collect()
}

fn format_instant(instant: DateTime<Utc>) -> String {
    instant.to_rfc3339_opts(SecondsFormat::Secs, true)
}
