//! Free keys that nobody uses: they expire, and the personal data of their owners is erased.

use chrono::{DateTime, Days, NaiveDate, Utc};
use sqlx::{Postgres, Transaction};
use vintem_domain::key::UNUSED_KEY_DAYS;
use vintem_domain::{KeyActor, KeyChange, KeyId, Plan};

use crate::pool::{query, query_scalar};
use crate::{BACKGROUND_TIMEOUT, Result, Store, with_timeout};

/// Keys that expire in one transaction.
const MAX_KEYS: i64 = 1_000;

impl Store {
    /// Expires Free keys that were not used for [`UNUSED_KEY_DAYS`], at most 1,000 of them. Erases name, e-mail and label,
    /// and deletes webhooks. Usage stays under the ids of the keys, which are returned.
    pub async fn expire_unused_keys(&self, now: DateTime<Utc>) -> Result<Vec<KeyId>> {
        let last_day = now.date_naive() - Days::new(UNUSED_KEY_DAYS.into());
        with_timeout(BACKGROUND_TIMEOUT, async {
            // Most of the time there is none, and a change of keys makes all replicas look.
            if unused_keys(&mut self.pool.begin().await?, last_day, now).await?.is_empty() {
                return Ok(Vec::new());
            }

            let mut transaction = self.begin_key_change().await?;
            let ids = unused_keys(&mut transaction, last_day, now).await?;
            query(
                "insert into key_change (key_id, what, by_whom, was, became)
                 select key.id, change.what, $2, change.was, change.became
                 from api_key key
                 cross join lateral (values
                     (1, $3, to_char(key.expires_at at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'),
                         to_char($5 at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')),
                     (2, $4, null, null)
                 ) change (position, what, was, became)
                 where key.id = any($1)
                 order by key.id, change.position",
            )
            .bind(&ids)
            .bind(KeyActor::Service.id())
            .bind(KeyChange::ExpiryChanged.id())
            .bind(KeyChange::Erased.id())
            .bind(now)
            .execute(&mut *transaction)
            .await?;

            query(
                "update api_key
                 set expires_at = $2, name = '', email = '', label = '', revision = nextval('api_key_revision')
                 where id = any($1)",
            )
            .bind(&ids)
            .bind(now)
            .execute(&mut *transaction)
            .await?;
            query("delete from webhook where key_id = any($1)").bind(&ids).execute(&mut *transaction).await?;
            transaction.commit().await?;
            Ok(ids)
        })
        .await
    }
}

/// The Free keys that were last used on `last_day` or before, locked.
async fn unused_keys(
    transaction: &mut Transaction<'static, Postgres>,
    last_day: NaiveDate,
    now: DateTime<Utc>,
) -> Result<Vec<KeyId>> {
    let ids = query_scalar(
        "select id
         from api_key
         where plan = $1 and revoked_at is null and (expires_at is null or expires_at > $3)
           and greatest(last_used_on, unused_since) <= $2
         order by id
         limit $4
         for no key update",
    )
    .bind(Plan::Free.id())
    .bind(last_day)
    .bind(now)
    .bind(MAX_KEYS)
    .fetch_all(&mut **transaction)
    .await?;
    Ok(ids)
}
