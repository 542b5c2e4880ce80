//! Changes of keys, each with its line of history in the same transaction. What replicas must know of takes the next
//! revision under one lock, so that revisions become visible in order and a replica that has seen revision N has seen
//! all before it.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use sqlx::{Postgres, Row, Transaction};
use vintem_domain::route::Feature;
use vintem_domain::{KeyActor, KeyChange, KeyId, Plan};

use super::{KeySecretRow, parse_key_secret_row};
use crate::{Result, Store, with_timeout};

#[derive(Debug, Clone)]
pub struct NewKey<'a> {
    pub hmac: [u8; 32],
    pub pepper_id: &'a str,
    pub display_prefix: &'a str,
    pub plan: Plan,
    pub name: &'a str,
    pub email: &'a str,
}

/// What a new key may have beside: by default the operator makes it, and it never expires.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeyOptions<'a> {
    pub created_by: KeyActor,
    pub label: &'a str,
    pub expires_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone)]
pub struct NewSecret<'a> {
    pub hmac: [u8; 32],
    pub pepper_id: &'a str,
    pub display_prefix: &'a str,
}

/// What became of a change that an owner asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerChangeResult<T> {
    Done(T),
    /// Revoked, expired or never there.
    KeyInvalid,
    TooManyChanges {
        retry_after_seconds: u64,
    },
}

/// How often an owner may change its key within a day: each change is kept for ever.
const MAX_OWNER_CHANGES_PER_DAY: i64 = 100;
/// A secret that ended so long ago is forgotten by the next rotation: every replica has heard of its end by then.
const FORMER_SECRET_RETENTION: TimeDelta = TimeDelta::days(30);

impl Store {
    /// A key as the operator makes it.
    pub async fn create_key(&self, key: &NewKey<'_>) -> Result<KeySecretRow> {
        self.create_key_with_options(key, &KeyOptions::default()).await
    }

    pub async fn create_key_with_options(&self, key: &NewKey<'_>, options: &KeyOptions<'_>) -> Result<KeySecretRow> {
        with_timeout(self.timeouts.query, async {
            let mut transaction = self.begin_key_change().await?;
            let row = sqlx::query(
                "insert into api_key (hmac, pepper_id, shown, plan, name, email, label, expires_at, revision)
                 values ($1, $2, $3, $4, $5, $6, $7, $8, nextval('api_key_revision'))
                 returning id, hmac, plan, expires_at as valid_until, revoked_at, false as is_former, revision",
            )
            .bind(key.hmac.as_slice())
            .bind(key.pepper_id)
            .bind(key.display_prefix)
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
            if let Some(at) = options.expires_at {
                insert_key_change(
                    &mut transaction,
                    row.id,
                    KeyChange::ExpiryChanged,
                    options.created_by,
                    None,
                    Some(format_instant(at)),
                )
                .await?;
            }
            transaction.commit().await?;
            Ok(row)
        })
        .await
    }

    /// Below the plan that has webhooks those of the key are paused. False where no key has this id.
    pub async fn set_key_plan(&self, id: KeyId, plan: Plan) -> Result<bool> {
        let mut transaction = self.begin_key_change().await?;
        let row = sqlx::query("select plan from api_key where id = $1 for no key update")
            .bind(id)
            .fetch_optional(&mut *transaction)
            .await?;
        let Some(row) = row else { return Ok(false) };
        let was = super::parse_plan(&row)?;
        if was == plan {
            return Ok(true);
        }
        sqlx::query("update api_key set plan = $2, revision = nextval('api_key_revision') where id = $1")
            .bind(id)
            .bind(plan.id())
            .execute(&mut *transaction)
            .await?;
        // They stay so when the key comes back: its owner is to see that something was missed.
        if plan < Feature::Webhooks.required_plan() {
            sqlx::query("update webhook set status = 'paused' where key_id = $1 and status = 'active'")
                .bind(id)
                .execute(&mut *transaction)
                .await?;
        }
        let (was, became) = (Some(was.id().to_owned()), Some(plan.id().to_owned()));
        insert_key_change(&mut transaction, id, KeyChange::PlanChanged, KeyActor::Operator, was, became).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// `None` for never. False where no key has this id.
    pub async fn set_key_expiry(&self, id: KeyId, expires_at: Option<DateTime<Utc>>) -> Result<bool> {
        let mut transaction = self.begin_key_change().await?;
        let row = sqlx::query("select expires_at from api_key where id = $1 for no key update")
            .bind(id)
            .fetch_optional(&mut *transaction)
            .await?;
        let Some(row) = row else { return Ok(false) };
        let was: Option<DateTime<Utc>> = row.try_get("expires_at")?;
        if was == expires_at {
            return Ok(true);
        }
        sqlx::query("update api_key set expires_at = $2, revision = nextval('api_key_revision') where id = $1")
            .bind(id)
            .bind(expires_at)
            .execute(&mut *transaction)
            .await?;
        let (was, became) = (was.map(format_instant), expires_at.map(format_instant));
        insert_key_change(&mut transaction, id, KeyChange::ExpiryChanged, KeyActor::Operator, was, became).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// For good. False where no key has this id; a key that is revoked already stays as it is.
    pub async fn revoke_key(&self, id: KeyId) -> Result<bool> {
        let mut transaction = self.begin_key_change().await?;
        let exists: Option<i64> = sqlx::query_scalar("select id from api_key where id = $1")
            .bind(id)
            .fetch_optional(&mut *transaction)
            .await?;
        if mark_revoked(&mut transaction, id, KeyActor::Operator).await? {
            transaction.commit().await?;
        }
        Ok(exists.is_some())
    }

    /// The owner's own revocation: all secrets of the key as they are then, or `None` where it was not valid any more.
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

    /// No replica holds labels, so this takes no revision.
    pub async fn set_key_label(&self, id: KeyId, label: &str, now: DateTime<Utc>) -> Result<OwnerChangeResult<()>> {
        with_timeout(self.timeouts.query, async {
            let mut transaction = self.pool.begin().await?;
            let was: Option<String> = sqlx::query_scalar(
                "select label
                 from api_key
                 where id = $1 and revoked_at is null and (expires_at is null or expires_at > $2)
                 for no key update",
            )
            .bind(id)
            .bind(now)
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(was) = was else { return Ok(OwnerChangeResult::KeyInvalid) };
            if was == label {
                return Ok(OwnerChangeResult::Done(()));
            }
            if let Some(retry_after_seconds) = owner_change_retry_seconds(&mut transaction, id).await? {
                return Ok(OwnerChangeResult::TooManyChanges { retry_after_seconds });
            }
            sqlx::query("update api_key set label = $2 where id = $1")
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

    /// Gives the key a new secret. The one it had ends at `ends_at`, those before it end now. All of its secrets as they
    /// are then.
    pub async fn rotate_key(
        &self,
        id: KeyId,
        secret: &NewSecret<'_>,
        now: DateTime<Utc>,
        old_secret_ends_at: DateTime<Utc>,
    ) -> Result<OwnerChangeResult<Vec<KeySecretRow>>> {
        with_timeout(self.timeouts.query, async {
            let mut transaction = self.begin_key_change().await?;
            let is_valid: Option<i64> = sqlx::query_scalar(
                "select id
                 from api_key
                 where id = $1 and revoked_at is null and (expires_at is null or expires_at > $2)
                 for update",
            )
            .bind(id)
            .bind(now)
            .fetch_optional(&mut *transaction)
            .await?;
            if is_valid.is_none() {
                return Ok(OwnerChangeResult::KeyInvalid);
            }
            if let Some(retry_after_seconds) = owner_change_retry_seconds(&mut transaction, id).await? {
                return Ok(OwnerChangeResult::TooManyChanges { retry_after_seconds });
            }
            sqlx::query("delete from key_former_secret where key_id = $1 and ends_at < $2")
                .bind(id)
                .bind(now - FORMER_SECRET_RETENTION)
                .execute(&mut *transaction)
                .await?;
            sqlx::query("update key_former_secret set ends_at = $2 where key_id = $1 and ends_at > $2")
                .bind(id)
                .bind(now)
                .execute(&mut *transaction)
                .await?;
            sqlx::query(
                "insert into key_former_secret (hmac, key_id, pepper_id, shown, ends_at)
                 select hmac, id, pepper_id, shown, $2
                 from api_key
                 where id = $1",
            )
            .bind(id)
            .bind(old_secret_ends_at)
            .execute(&mut *transaction)
            .await?;
            sqlx::query(
                "update api_key
                 set hmac = $2, pepper_id = $3, shown = $4, revision = nextval('api_key_revision')
                 where id = $1",
            )
            .bind(id)
            .bind(secret.hmac.as_slice())
            .bind(secret.pepper_id)
            .bind(secret.display_prefix)
            .execute(&mut *transaction)
            .await?;
            let became = Some(format_instant(old_secret_ends_at));
            insert_key_change(&mut transaction, id, KeyChange::Rotated, KeyActor::Owner, None, became).await?;
            let rows = load_key_secrets(&mut transaction, id).await?;
            transaction.commit().await?;
            Ok(OwnerChangeResult::Done(rows))
        })
        .await
    }

    /// Forgets who registered with this address, whatever its case: name, address, label and webhooks are gone from
    /// every table, the keys revoked. What they used stays under their numbers. The numbers of the keys.
    pub async fn erase_keys_by_email(&self, email: &str) -> Result<Vec<KeyId>> {
        let mut transaction = self.begin_key_change().await?;
        // In order, so that two who lock the same rows wait for each other and do not deadlock.
        let ids: Vec<KeyId> = sqlx::query_scalar(
            "select id
             from api_key
             where lower(email) = lower($1)
             order by id
             for no key update",
        )
        .bind(email)
        .fetch_all(&mut *transaction)
        .await?;
        sqlx::query(
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
        sqlx::query(
            "update api_key
             set name = '', email = '', label = '', revoked_at = coalesce(revoked_at, now()),
                 revision = nextval('api_key_revision')
             where id = any($1)",
        )
        .bind(&ids)
        .execute(&mut *transaction)
        .await?;
        sqlx::query("delete from webhook where key_id = any($1)").bind(&ids).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(ids)
    }

    async fn begin_key_change(&self) -> Result<Transaction<'static, Postgres>> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query("select pg_advisory_xact_lock(hashtext('vintem_keys')), pg_notify('vintem_keys', '')")
            .execute(&mut *transaction)
            .await?;
        Ok(transaction)
    }
}

/// False where no key has this id or it is revoked already.
async fn mark_revoked(transaction: &mut Transaction<'_, Postgres>, id: KeyId, actor: KeyActor) -> Result<bool> {
    let revoked = sqlx::query(
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
    sqlx::query("insert into key_change (key_id, what, by_whom, was, became) values ($1, $2, $3, $4, $5)")
        .bind(id)
        .bind(kind.id())
        .bind(actor.id())
        .bind(old_value)
        .bind(new_value)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// In how many seconds the owner may change something again, if not now. The key's row is locked, so that two changes at
/// once are counted one after the other.
async fn owner_change_retry_seconds(transaction: &mut Transaction<'_, Postgres>, id: KeyId) -> Result<Option<u64>> {
    let seconds: Option<i64> = sqlx::query_scalar(
        "select greatest(1, ceil(extract(epoch from at + interval '1 day' - clock_timestamp())))::bigint
         from key_change
         where key_id = $1 and by_whom = 'owner' and at > clock_timestamp() - interval '1 day'
         order by id desc
         offset $2
         limit 1",
    )
    .bind(id)
    .bind(MAX_OWNER_CHANGES_PER_DAY - 1)
    .fetch_optional(&mut **transaction)
    .await?;
    Ok(seconds.map(i64::unsigned_abs))
}

async fn load_key_secrets(transaction: &mut Transaction<'_, Postgres>, id: KeyId) -> Result<Vec<KeySecretRow>> {
    let rows = sqlx::query(
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

fn format_instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}
