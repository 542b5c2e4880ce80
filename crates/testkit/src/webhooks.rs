//! Webhooks put straight into a database, as the API would: more of them than a test wants to ask for.

use chrono::Utc;
use sqlx::PgConnection;
use vintem_deliver::webhook::{SecretBox, WebhookSecret};

use crate::replica::TEST_SECRET_KEY;

/// Webhooks of these keys, in turn, that want everything, one for each address.
pub async fn insert_webhooks(connection: &mut PgConnection, keys: &[i64], urls: &[String]) -> anyhow::Result<()> {
    let secrets = SecretBox::new(TEST_SECRET_KEY).expect("long enough");
    let ids: Vec<String> = urls.iter().map(|_| format!("whk_{:032x}", rand::random::<u128>())).collect();
    let sealed: Vec<Vec<u8>> = ids.iter().map(|id| secrets.seal(id, &WebhookSecret::random())).collect();
    let owners: Vec<i64> = keys.iter().copied().cycle().take(urls.len()).collect();
    sqlx::query(
        "insert into webhook (id, key_id, url, secret, created_at, types, companies, categories, folded_categories,
                              series, pairs)
         select id, key_id, url, secret, $5, '{}', '{}', '{}', '{}', '{}', '{}'
         from unnest($1::text[], $2::bigint[], $3::text[], $4::bytea[]) as made (id, key_id, url, secret)",
    )
    .bind(ids)
    .bind(owners)
    .bind(urls)
    .bind(sealed)
    .bind(Utc::now())
    .execute(connection)
    .await?;
    Ok(())
}
