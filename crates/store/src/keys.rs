//! API keys at rest. Every change takes the next revision under one lock, so that revisions become visible in order
//! and a replica that has seen revision N has seen all before it.

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, Row, Transaction};
use vintem_domain::{KeyId, Plan};

use crate::{FOLLOW_BUDGET, REQUEST_BUDGET, Result, Store, StoreError, within};

#[derive(Debug, Clone)]
pub struct NewKey<'a> {
    pub hmac: [u8; 32],
    pub pepper_id: &'a str,
    pub shown: &'a str,
    pub plan: Plan,
    pub name: &'a str,
    pub email: &'a str,
}

/// What deciding about a request needs to know of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    pub id: KeyId,
    pub hmac: [u8; 32],
    pub plan: Plan,
    pub expires_at: Option<DateTime<Utc>>,
    pub revoked: bool,
    pub revision: i64,
}

/// What the operator sees of a key.
#[derive(Debug, Clone)]
pub struct KeyDetails {
    pub id: KeyId,
    pub shown: String,
    pub plan: Plan,
    pub name: String,
    pub email: String,
    pub created_at: DateTime<Utc>,
    pub last_used_on: Option<NaiveDate>,
    pub revoked_at: Option<DateTime<Utc>>,
}

impl Store {
    pub async fn create_key(&self, key: &NewKey<'_>) -> Result<KeyRow> {
        within(REQUEST_BUDGET, async {
            let mut transaction = self.begin_key_change().await?;
            let row = sqlx::query(
                "insert into api_key (hmac, pepper_id, shown, plan, name, email, revision)
                 values ($1, $2, $3, $4, $5, $6, nextval('api_key_revision'))
                 returning id, hmac, plan, expires_at, revoked_at, revision",
            )
            .bind(key.hmac.as_slice())
            .bind(key.pepper_id)
            .bind(key.shown)
            .bind(key.plan.id())
            .bind(key.name)
            .bind(key.email)
            .fetch_one(&mut *transaction)
            .await?;
            transaction.commit().await?;
            key_row(&row)
        })
        .await
    }

    /// False where no key has this id.
    pub async fn set_key_plan(&self, id: KeyId, plan: Plan) -> Result<bool> {
        let mut transaction = self.begin_key_change().await?;
        let changed = sqlx::query(
            "update api_key
             set plan = $2, revision = nextval('api_key_revision')
             where id = $1",
        )
        .bind(id)
        .bind(plan.id())
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(changed.rows_affected() > 0)
    }

    /// For good. False where no key has this id; a key that is revoked already stays as it is.
    pub async fn revoke_key(&self, id: KeyId) -> Result<bool> {
        let mut transaction = self.begin_key_change().await?;
        let changed = sqlx::query(
            "update api_key
             set revoked_at = coalesce(revoked_at, now()), revision = nextval('api_key_revision')
             where id = $1",
        )
        .bind(id)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(changed.rows_affected() > 0)
    }

    pub async fn find_key(&self, hmac: &[u8; 32]) -> Result<Option<KeyRow>> {
        within(REQUEST_BUDGET, async {
            let row = sqlx::query(
                "select id, hmac, plan, expires_at, revoked_at, revision
                 from api_key
                 where hmac = $1",
            )
            .bind(hmac.as_slice())
            .fetch_optional(&self.pool)
            .await?;
            row.as_ref().map(key_row).transpose()
        })
        .await
    }

    /// The first keys that changed after this revision, in order of revision.
    pub async fn keys_changed_after(&self, revision: i64, most: i64) -> Result<Vec<KeyRow>> {
        within(FOLLOW_BUDGET, async {
            let rows = sqlx::query(
                "select id, hmac, plan, expires_at, revoked_at, revision
                 from api_key
                 where revision > $1
                 order by revision
                 limit $2",
            )
            .bind(revision)
            .bind(most)
            .fetch_all(&self.pool)
            .await?;
            rows.iter().map(key_row).collect()
        })
        .await
    }

    /// For the operator, newest first, from below the id `before` on.
    pub async fn list_keys(&self, before: KeyId, most: i64) -> Result<Vec<KeyDetails>> {
        let rows = sqlx::query(
            "select id, shown, plan, name, email, created_at, last_used_on, revoked_at
             from api_key
             where id < $1
             order by id desc
             limit $2",
        )
        .bind(before)
        .bind(most)
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(KeyDetails {
                    id: row.try_get("id")?,
                    shown: row.try_get("shown")?,
                    plan: plan(row)?,
                    name: row.try_get("name")?,
                    email: row.try_get("email")?,
                    created_at: row.try_get("created_at")?,
                    last_used_on: row.try_get("last_used_on")?,
                    revoked_at: row.try_get("revoked_at")?,
                })
            })
            .collect()
    }

    /// The first 12 characters of a key, as its owner is shown it.
    pub async fn key_shown(&self, id: KeyId) -> Result<Option<String>> {
        within(REQUEST_BUDGET, async {
            let shown = sqlx::query_scalar("select shown from api_key where id = $1")
                .bind(id)
                .fetch_optional(&self.pool)
                .await?;
            Ok(shown)
        })
        .await
    }

    async fn begin_key_change(&self) -> Result<Transaction<'static, Postgres>> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query("select pg_advisory_xact_lock(hashtext('vintem_keys')), pg_notify('vintem_keys', '')")
            .execute(&mut *transaction)
            .await?;
        Ok(transaction)
    }
}

fn key_row(row: &PgRow) -> Result<KeyRow> {
    let hmac: &[u8] = row.try_get("hmac")?;
    let revoked_at: Option<DateTime<Utc>> = row.try_get("revoked_at")?;
    Ok(KeyRow {
        id: row.try_get("id")?,
        hmac: hmac.try_into().map_err(|_| StoreError::Foreign("an HMAC of another length".into()))?,
        plan: plan(row)?,
        expires_at: row.try_get("expires_at")?,
        revoked: revoked_at.is_some(),
        revision: row.try_get("revision")?,
    })
}

fn plan(row: &PgRow) -> Result<Plan> {
    let id: &str = row.try_get("plan")?;
    Plan::from_id(id).ok_or_else(|| StoreError::Foreign(format!("plan {id}")))
}
