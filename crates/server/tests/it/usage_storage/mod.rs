//! How usage gets from Redis into PostgreSQL: in chunks, each exactly once, whatever happens to those who store them.

mod backlog;
mod lost_writes;
mod new_server;
mod replicas;
mod retention;

use sqlx::PgConnection;
use vintem_testkit::DedicatedRedis;

/// Inserts keys that nobody has, and returns their ids.
pub(crate) async fn insert_keys(connection: &mut PgConnection, count: u32) -> anyhow::Result<Vec<i64>> {
    let ids = sqlx::query_scalar(
        "insert into api_key (hmac, pepper_id, shown, plan, name, email, revision)
         select sha256(convert_to('a made-up key ' || number, 'utf8')), 'none', 'vtm_aaaaaaaa', 'free', 'Ninguém',
                'nobody' || number || '@example.com', nextval('api_key_revision')
         from generate_series(1, $1::bigint) number
         returning id",
    )
    .bind(i64::from(count))
    .fetch_all(connection)
    .await?;
    Ok(ids)
}

/// The number of counts in Redis that are not stored yet.
fn count_fields_in_redis(redis: &DedicatedRedis) -> anyhow::Result<u64> {
    let mut fields = 0;
    for chunk in redis.run_command::<Vec<String>>(&["KEYS", "*usage:chunk:*"])? {
        fields += redis.run_command::<u64>(&["HLEN", &chunk])?;
    }
    Ok(fields)
}
