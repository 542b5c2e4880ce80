//! API keys in the database: reading them here, changing them in [`change`].

mod change;
mod pepper;
mod unused;

use chrono::{DateTime, NaiveDate, Utc};
use futures_util::TryStreamExt;
use sqlx::Row;
use sqlx::postgres::PgRow;
use vintem_domain::{KeyActor, KeyChange, KeyId, Plan};

pub use change::{KeyOptions, MAX_DAILY_KEY_CHANGES, NewKey, NewSecret, OwnerChangeResult};
pub use pepper::PepperMark;

use crate::change_id::ChangeId;
use crate::pool::{query, query_scalar};
use crate::{BACKGROUND_TIMEOUT, Result, Store, StoreError, with_timeout};

/// One secret of a key, with the facts that authorizing a request needs. After a rotation a key has two secrets for a
/// while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySecretRow {
    pub id: KeyId,
    pub hmac: [u8; 32],
    pub plan: Plan,
    /// When the key expires or this secret ends, whichever is earlier.
    pub valid_until: Option<DateTime<Utc>>,
    pub is_revoked: bool,
    /// Replaced by a rotation.
    pub is_former: bool,
    /// The revision of the key, the same for all of its secrets.
    pub revision: i64,
}

/// How far a reader has followed the changes of keys. The default is before all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyHistoryPosition {
    /// The database that was read; empty before the first change.
    pub epoch: String,
    pub revision: i64,
    pub change_id: Option<ChangeId>,
}

impl KeyHistoryPosition {
    pub fn is_start(&self) -> bool {
        self.epoch.is_empty()
    }
}

/// What follows a position.
#[derive(Debug)]
pub enum KeyChanges {
    /// Secrets of keys that changed, none if the reader is up to date, and the position after them.
    Next { rows: Vec<KeySecretRow>, position: KeyHistoryPosition },
    /// The database never was in the state that the reader has followed, or has lost it. The reader must start over.
    OtherHistory,
}

/// A key as its owner and the operator see it.
#[derive(Debug, Clone)]
pub struct KeyDetails {
    pub id: KeyId,
    pub display_prefix: String,
    pub plan: Plan,
    pub name: String,
    pub email: String,
    pub label: String,
    pub created_at: DateTime<Utc>,
    pub last_used_on: Option<NaiveDate>,
    pub expires_at: Option<DateTime<Utc>>,
    pub revoked_at: Option<DateTime<Utc>>,
    /// The previous secret, ended or not.
    pub former_secret: Option<FormerSecret>,
}

#[derive(Debug, Clone)]
pub struct FormerSecret {
    pub display_prefix: String,
    pub ends_at: DateTime<Utc>,
}

/// One entry in the history of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChangeRow {
    pub changed_at: DateTime<Utc>,
    pub kind: KeyChange,
    pub actor: KeyActor,
    pub old_value: Option<String>,
    pub new_value: Option<String>,
}

impl Store {
    /// Finds a key by its current secret or a former one.
    pub async fn find_key_by_hmac(&self, hmac: &[u8; 32]) -> Result<Option<KeySecretRow>> {
        with_timeout(self.timeouts.query, async {
            let row = query(
                "select id, hmac, plan, expires_at as valid_until, revoked_at, false as is_former, revision
                 from api_key
                 where hmac = $1
                 union all
                 select key.id, former.hmac, plan, least(expires_at, ends_at), revoked_at, true, revision
                 from key_former_secret former
                 join api_key key on key.id = former.key_id
                 where former.hmac = $1",
            )
            .bind(hmac.as_slice())
            .fetch_optional(&self.pool)
            .await?;
            row.as_ref().map(parse_key_secret_row).transpose()
        })
        .await
    }

    /// All secrets of the next `limit` keys that changed after this position, in order of revision.
    pub async fn key_changes(&self, after: &KeyHistoryPosition, limit: i64) -> Result<KeyChanges> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            let mut transaction = self.pool.begin().await?;
            let mut rows = query(
                "with head as (
                     select current_epoch() as epoch,
                            $1 = '' or $1 = current_epoch()
                            and ($2 = 0 or exists (
                                select 1 from key_revision where revision = $2 and change_id = $3::uuid
                            )) as is_continued
                 ), changed as materialized (
                     select id, hmac, plan, expires_at, revoked_at, revision
                     from api_key
                     where revision > $2 and (select is_continued from head)
                     order by revision
                     limit $4
                 ), secret as (
                     select id, hmac, plan, expires_at as valid_until, revoked_at, false as is_former, revision
                     from changed
                     union all
                     select changed.id, former.hmac, plan, least(expires_at, ends_at), revoked_at, true, revision
                     from changed
                     join key_former_secret former on former.key_id = changed.id
                 )
                 select head.*, last.revision as last_revision, last.change_id::text as last_change_id, secret.*
                 from head
                 left join key_revision last on last.revision = (select max(revision) from changed)
                 left join secret on true
                 order by secret.revision, is_former",
            )
            .bind(&after.epoch)
            .bind(after.revision)
            .bind(after.change_id.map(ChangeId::to_uuid))
            .bind(limit)
            .fetch(&mut *transaction);

            // Parsed one by one, because the driver's rows take many times the memory.
            let mut position = after.clone();
            let mut keys = Vec::new();
            while let Some(row) = rows.try_next().await? {
                if !row.try_get("is_continued")? {
                    return Ok(KeyChanges::OtherHistory);
                }
                position.epoch = row.try_get("epoch")?;
                let Some(last_revision) = row.try_get("last_revision")? else { break };
                position.revision = last_revision;
                position.change_id = Some(ChangeId::parse(row.try_get("last_change_id")?)?);
                keys.push(parse_key_secret_row(&row)?);
            }
            Ok(KeyChanges::Next { rows: keys, position })
        })
        .await
    }

    /// Lists keys for the operator, newest first: those with an id below `before_id`.
    pub async fn list_keys(&self, before_id: KeyId, limit: i64) -> Result<Vec<KeyDetails>> {
        let rows = query(
            "select key.*, former.shown as former_shown, former.ends_at as former_ends_at
             from (select * from api_key where id < $1 order by id desc limit $2) key
             left join lateral (
                 select shown, ends_at
                 from key_former_secret
                 where key_id = key.id
                 order by ends_at desc
                 limit 1
             ) former on true
             order by key.id desc",
        )
        .bind(before_id)
        .bind(limit)
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(parse_key_details).collect()
    }

    pub async fn key_details(&self, id: KeyId) -> Result<Option<KeyDetails>> {
        with_timeout(self.timeouts.query, async {
            let row = query(
                "select key.*, former.shown as former_shown, former.ends_at as former_ends_at
                 from api_key key
                 left join key_former_secret former on former.key_id = key.id
                 where key.id = $1
                 order by former.ends_at desc
                 limit 1",
            )
            .bind(id)
            .fetch_optional(&self.pool)
            .await?;
            row.as_ref().map(parse_key_details).transpose()
        })
        .await
    }

    /// The history of a key, oldest first.
    pub async fn key_history(&self, id: KeyId) -> Result<Vec<KeyChangeRow>> {
        let rows = query(
            "select at, what, by_whom, was, became
             from key_change
             where key_id = $1
             order by id",
        )
        .bind(id)
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(parse_key_change_row).collect()
    }

    /// The first 12 characters of a key, which identify it to its owner.
    pub async fn key_display_prefix(&self, id: KeyId) -> Result<Option<String>> {
        with_timeout(self.timeouts.query, async {
            let display_prefix =
                query_scalar("select shown from api_key where id = $1").bind(id).fetch_optional(&self.pool).await?;
            Ok(display_prefix)
        })
        .await
    }
}

fn parse_key_secret_row(row: &PgRow) -> Result<KeySecretRow> {
    let hmac: &[u8] = row.try_get("hmac")?;
    let revoked_at: Option<DateTime<Utc>> = row.try_get("revoked_at")?;
    Ok(KeySecretRow {
        id: row.try_get("id")?,
        hmac: hmac.try_into().map_err(|_| StoreError::UnreadableData("an HMAC of another length".into()))?,
        plan: parse_plan(row)?,
        valid_until: row.try_get("valid_until")?,
        is_revoked: revoked_at.is_some(),
        is_former: row.try_get("is_former")?,
        revision: row.try_get("revision")?,
    })
}

fn parse_key_details(row: &PgRow) -> Result<KeyDetails> {
    let former_prefix: Option<String> = row.try_get("former_shown")?;
    let former_ends_at: Option<DateTime<Utc>> = row.try_get("former_ends_at")?;
    let former_secret =
        former_prefix.zip(former_ends_at).map(|(display_prefix, ends_at)| FormerSecret { display_prefix, ends_at });

    Ok(KeyDetails {
        id: row.try_get("id")?,
        display_prefix: row.try_get("shown")?,
        plan: parse_plan(row)?,
        name: row.try_get("name")?,
        email: row.try_get("email")?,
        label: row.try_get("label")?,
        created_at: row.try_get("created_at")?,
        last_used_on: row.try_get("last_used_on")?,
        expires_at: row.try_get("expires_at")?,
        revoked_at: row.try_get("revoked_at")?,
        former_secret,
    })
}

fn parse_key_change_row(row: &PgRow) -> Result<KeyChangeRow> {
    let kind: &str = row.try_get("what")?;
    let actor: &str = row.try_get("by_whom")?;
    let unknown = |id: &str| StoreError::UnreadableData(format!("a change of a key called {id}"));

    Ok(KeyChangeRow {
        changed_at: row.try_get("at")?,
        kind: KeyChange::from_id(kind).ok_or_else(|| unknown(kind))?,
        actor: KeyActor::from_id(actor).ok_or_else(|| unknown(actor))?,
        old_value: row.try_get("was")?,
        new_value: row.try_get("became")?,
    })
}

fn parse_plan(row: &PgRow) -> Result<Plan> {
    let id: &str = row.try_get("plan")?;
    Plan::from_id(id).ok_or_else(|| StoreError::UnreadableData(format!("plan {id}")))
}
