//! Usage by key, UTC day and part of the API.
//!
//! Each batch of live counts is recorded exactly once, because its id goes into the ledger in the same transaction as
//! its counts.

use std::collections::HashSet;

use chrono::NaiveDate;
use sqlx::Row;
use vintem_domain::KeyId;
use vintem_domain::usage::{RouteGroup, UsageCounts, UsageRow};

use crate::{BACKGROUND_TIMEOUT, Result, Store, with_timeout};

/// The stored counts of a key, and which of the given batches they already contain.
#[derive(Debug)]
pub struct StoredUsage {
    pub rows: Vec<UsageRow>,
    pub drained_batches: HashSet<String>,
}

impl Store {
    /// Adds a batch's counts, unless the ledger has the batch already. Skips keys that no longer exist.
    pub async fn record_usage_batch(&self, batch_id: &str, rows: &[UsageRow]) -> Result<()> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            let mut transaction = self.pool.begin().await?;
            let inserted = sqlx::query(
                "insert into usage_ledger (batch_id)
                 values ($1)
                 on conflict do nothing",
            )
            .bind(batch_id)
            .execute(&mut *transaction)
            .await?;
            if inserted.rows_affected() == 0 {
                return Ok(());
            }

            let column = |count: fn(&UsageCounts) -> u64| -> Vec<i64> {
                rows.iter().map(|row| i64::try_from(count(&row.counts)).unwrap_or(i64::MAX)).collect()
            };

            // Keys in order, so that two drainers with the same keys wait for each other instead of deadlocking.
            sqlx::query(
                "insert into usage_day (key_id, day, route_group, requests, successful, client_errors, server_errors, rate_limited)
                 select batch.*
                 from unnest($1::bigint[], $2::date[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
                      as batch (key_id, day, route_group, requests, successful, client_errors, server_errors, rate_limited)
                 join api_key on api_key.id = batch.key_id
                 order by batch.key_id, batch.day, batch.route_group
                 on conflict (key_id, day, route_group) do update
                 set requests = usage_day.requests + excluded.requests,
                     successful = usage_day.successful + excluded.successful,
                     client_errors = usage_day.client_errors + excluded.client_errors,
                     server_errors = usage_day.server_errors + excluded.server_errors,
                     rate_limited = usage_day.rate_limited + excluded.rate_limited",
            )
            .bind(rows.iter().map(|row| row.key_id).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.day).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.group.id()).collect::<Vec<_>>())
            .bind(column(|counts| counts.requests))
            .bind(column(|counts| counts.successful))
            .bind(column(|counts| counts.client_errors))
            .bind(column(|counts| counts.server_errors))
            .bind(column(|counts| counts.rate_limited))
            .execute(&mut *transaction)
            .await?;

            sqlx::query(
                "update api_key
                 set last_used_on = batch.day
                 from (
                     select key_id, max(day) as day
                     from unnest($1::bigint[], $2::date[]) as batch (key_id, day)
                     group by key_id
                 ) batch
                 where api_key.id = batch.key_id
                   and (api_key.last_used_on is null or api_key.last_used_on < batch.day)",
            )
            .bind(rows.iter().map(|row| row.key_id).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.day).collect::<Vec<_>>())
            .execute(&mut *transaction)
            .await?;

            transaction.commit().await?;
            Ok(())
        })
        .await
    }

    /// The stored counts of a key, and which of `batch_ids` they already contain, both read from one consistent view.
    pub async fn key_usage(
        &self,
        key_id: KeyId,
        from: NaiveDate,
        to: NaiveDate,
        batch_ids: &[String],
    ) -> Result<StoredUsage> {
        with_timeout(self.timeouts.query, async {
            let mut reader = self.pool.begin().await?;
            sqlx::query("set transaction isolation level repeatable read, read only").execute(&mut *reader).await?;
            let rows = sqlx::query(
                "select day, route_group, requests, successful, client_errors, server_errors, rate_limited
                 from usage_day
                 where key_id = $1 and day between $2 and $3",
            )
            .bind(key_id)
            .bind(from)
            .bind(to)
            .fetch_all(&mut *reader)
            .await?;

            let drained: Vec<String> = sqlx::query_scalar("select batch_id from usage_ledger where batch_id = any($1)")
                .bind(batch_ids)
                .fetch_all(&mut *reader)
                .await?;

            let mut usage_rows = Vec::with_capacity(rows.len());
            for row in rows {
                let count =
                    |name: &str| -> Result<u64> { Ok(u64::try_from(row.try_get::<i64, _>(name)?).unwrap_or(0)) };
                let counts = UsageCounts {
                    requests: count("requests")?,
                    successful: count("successful")?,
                    client_errors: count("client_errors")?,
                    server_errors: count("server_errors")?,
                    rate_limited: count("rate_limited")?,
                };

                // Old counts have no group, and a later version may have groups that this one does not know.
                let group = RouteGroup::from_id(row.try_get("route_group")?).unwrap_or(RouteGroup::Other);
                usage_rows.push(UsageRow { key_id, day: row.try_get("day")?, group, counts });
            }
            Ok(StoredUsage { rows: usage_rows, drained_batches: drained.into_iter().collect() })
        })
        .await
    }

    /// Deletes a batch of expired rows: daily counts after 25 months, ledger entries after 400 days.
    pub async fn prune_usage(&self) -> Result<()> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            sqlx::query(
                "delete from usage_ledger
                 where batch_id in (
                     select batch_id
                     from usage_ledger
                     where drained_at < now() - interval '400 days'
                     limit 10000
                 )",
            )
            .execute(&self.pool)
            .await?;

            sqlx::query(
                "delete from usage_day
                 where (key_id, day) in (
                     select key_id, day
                     from usage_day
                     where day < (now() at time zone 'utc')::date - interval '25 months'
                     limit 10000
                 )",
            )
            .execute(&self.pool)
            .await?;

            Ok(())
        })
        .await
    }
}
