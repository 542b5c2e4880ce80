//! Usage by key, UTC day and part of the API.
//!
//! Each chunk of live counts is recorded exactly once, because its id goes into a ledger in the same transaction as its
//! counts.

use std::collections::HashSet;

use chrono::NaiveDate;
use sqlx::{PgConnection, Row};
use vintem_domain::KeyId;
use vintem_domain::usage::{RouteGroup, UsageChunkId, UsageCounts, UsageRow, usage_checksum};

use crate::partitions::{USAGE_CHUNKS, USAGE_DAYS};
use crate::pool::{query, query_scalar};
use crate::{BACKGROUND_TIMEOUT, Result, Store, with_timeout};

/// Rows written by one statement. A chunk of an earlier version can have many more.
const ROWS_PER_STATEMENT: usize = 5_000;

/// What became of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkRecord {
    Stored,
    /// Somebody has stored it before.
    WasStored,
    /// Other counts are stored under its id, so its own may be missing.
    Conflict,
}

/// Why counts may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageGapReason {
    RedisLostWrites,
    ChunkConflict,
}

impl UsageGapReason {
    const fn id(self) -> &'static str {
        match self {
            Self::RedisLostWrites => "redis_lost_writes",
            Self::ChunkConflict => "chunk_conflict",
        }
    }
}

/// The stored counts of a key, and which of the given chunks they already contain.
#[derive(Debug)]
pub struct StoredUsage {
    pub rows: Vec<UsageRow>,
    pub stored_chunks: HashSet<UsageChunkId>,
    /// Whether counts of these days may be missing.
    pub has_gaps: bool,
}

impl Store {
    /// Adds a chunk's counts, unless the ledger has the chunk already. Skips keys that no longer exist.
    pub async fn record_usage_chunk(&self, id: &UsageChunkId, rows: &[UsageRow]) -> Result<ChunkRecord> {
        let statements = 1 + rows.len() / ROWS_PER_STATEMENT;
        with_timeout(BACKGROUND_TIMEOUT * statements as u32, async {
            let result = self.record_usage_chunk_once(id, rows).await;
            // After a long outage, the day of the oldest chunks may have no partition.
            if let (Err(error), Some(day)) = (&result, id.created_on())
                && error.is_missing_partition()
            {
                self.add_partitions(&USAGE_CHUNKS, [day]).await?;
                self.add_partitions(&USAGE_DAYS, rows.iter().map(|row| row.day)).await?;
                return self.record_usage_chunk_once(id, rows).await;
            }
            result
        })
        .await
    }

    async fn record_usage_chunk_once(&self, id: &UsageChunkId, rows: &[UsageRow]) -> Result<ChunkRecord> {
        let mut transaction = self.pool.begin().await?;
        let record = record_chunk_id(&mut transaction, id, rows).await?;
        if record == ChunkRecord::Stored {
            for rows in rows.chunks(ROWS_PER_STATEMENT) {
                add_counts(&mut transaction, rows).await?;
            }
            transaction.commit().await?;
        }
        Ok(record)
    }

    /// Notes that counts of these days may be missing.
    pub async fn record_usage_gap(
        &self,
        first_day: NaiveDate,
        last_day: NaiveDate,
        reason: UsageGapReason,
    ) -> Result<()> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            query("insert into usage_gap (first_day, last_day, reason) values ($1, $2, $3)")
                .bind(first_day)
                .bind(last_day)
                .bind(reason.id())
                .execute(&self.pool)
                .await?;
            Ok(())
        })
        .await
    }

    /// The stored counts of a key, and which of `chunks` they already contain, both read from one consistent view.
    pub async fn key_usage(
        &self,
        key_id: KeyId,
        from: NaiveDate,
        to: NaiveDate,
        chunks: &[UsageChunkId],
    ) -> Result<StoredUsage> {
        with_timeout(self.timeouts.query, async {
            let mut reader = self.pool.begin().await?;
            query("set transaction isolation level repeatable read, read only").execute(&mut *reader).await?;
            let rows = query(
                "select day, route_group, requests, successful, client_errors, server_errors, rate_limited
                 from usage_day
                 where key_id = $1 and day between $2 and $3",
            )
            .bind(key_id)
            .bind(from)
            .bind(to)
            .fetch_all(&mut *reader)
            .await?;

            let stored_chunks: Vec<String> = query_scalar(
                "select usage_chunk.id
                 from unnest($1::date[], $2::text[]) as asked (created_on, id)
                 join usage_chunk on usage_chunk.created_on = asked.created_on and usage_chunk.id = asked.id
                 union all
                 select batch_id
                 from usage_ledger
                 where batch_id = any($2)",
            )
            .bind(chunks.iter().map(UsageChunkId::created_on).collect::<Vec<_>>())
            .bind(chunks.iter().map(UsageChunkId::as_str).collect::<Vec<_>>())
            .fetch_all(&mut *reader)
            .await?;

            let has_gaps: bool =
                query_scalar("select exists (select from usage_gap where last_day >= $1 and first_day <= $2)")
                    .bind(from)
                    .bind(to)
                    .fetch_one(&mut *reader)
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
            let stored_chunks = stored_chunks.into_iter().map(UsageChunkId::new).collect();
            Ok(StoredUsage { rows: usage_rows, stored_chunks, has_gaps })
        })
        .await
    }
}

/// Writes the id into the ledger, unless it is there.
async fn record_chunk_id(transaction: &mut PgConnection, id: &UsageChunkId, rows: &[UsageRow]) -> Result<ChunkRecord> {
    let Some(created_on) = id.created_on() else {
        // Versions up to 0.3 keep their ids here. They may be storing the same batch at this moment.
        let inserted = query("insert into usage_ledger (batch_id) values ($1) on conflict do nothing")
            .bind(id.as_str())
            .execute(transaction)
            .await?;
        return Ok(if inserted.rows_affected() == 1 { ChunkRecord::Stored } else { ChunkRecord::WasStored });
    };

    let checksum = i64::from(usage_checksum(rows));
    let inserted = query(
        "insert into usage_chunk (created_on, id, checksum)
         values ($1, $2, $3)
         on conflict do nothing",
    )
    .bind(created_on)
    .bind(id.as_str())
    .bind(checksum)
    .execute(&mut *transaction)
    .await?;
    if inserted.rows_affected() == 1 {
        return Ok(ChunkRecord::Stored);
    }

    let stored_checksum: i64 = query_scalar("select checksum from usage_chunk where created_on = $1 and id = $2")
        .bind(created_on)
        .bind(id.as_str())
        .fetch_one(transaction)
        .await?;
    Ok(if stored_checksum == checksum { ChunkRecord::WasStored } else { ChunkRecord::Conflict })
}

async fn add_counts(transaction: &mut PgConnection, rows: &[UsageRow]) -> Result<()> {
    let column = |count: fn(&UsageCounts) -> u64| -> Vec<i64> {
        rows.iter().map(|row| i64::try_from(count(&row.counts)).unwrap_or(i64::MAX)).collect()
    };

    // Keys in order, so that two drainers with the same keys wait for each other instead of deadlocking.
    query(
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

    query(
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

    Ok(())
}
