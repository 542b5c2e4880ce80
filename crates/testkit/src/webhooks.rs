//! Inserts webhooks straight into a database in the form that the API stores them. Creating many through the API would
//! take a test too long.

use chrono::Utc;
use sqlx::PgConnection;
use vintem_deliver::webhook::{SecretBox, WebhookSecret};

use crate::replica::TEST_SECRET_KEY;

/// Inserts one webhook without filters for each URL, assigned to these keys in turn.
pub async fn insert_webhooks(connection: &mut PgConnection, keys: &[i64], urls: &[String]) -> anyhow::Result<()> {
    let secret_box = SecretBox::new(TEST_SECRET_KEY).expect("long enough");
    let ids: Vec<String> = urls.iter().map(|_| format!("whk_{:032x}", rand::random::<u128>())).collect();
    let secrets: Vec<Vec<u8>> = ids.iter().map(|id| secret_box.seal(id, &WebhookSecret::random())).collect();
    let key_ids: Vec<i64> = keys.iter().copied().cycle().take(urls.len()).collect();

    sqlx::query(
        "insert into webhook (id, key_id, url, secret, created_at, types, companies, categories, folded_categories,
                              series, pairs)
         select id, key_id, url, secret, $5, '{}', '{}', '{}', '{}', '{}', '{}'
         from unnest($1::text[], $2::bigint[], $3::text[], $4::bytea[]) as made (id, key_id, url, secret)",
    )
    .bind(ids)
    .bind(key_ids)
    .bind(urls)
    .bind(secrets)
    .bind(Utc::now())
    .execute(connection)
    .await?;
    Ok(())
}
