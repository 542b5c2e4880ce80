//! The state of each source and its parts, quarantined files, cross-checks between series, and the lock that keeps two
//! workers from ingesting the same source.

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Postgres, Row};
use vintem_domain::{Currency, Dataset, Decimal};

use crate::load::{QuarantinedRow, RawBody, insert_quarantined_row, insert_raw_body};
use crate::reader::load_current_observations;
use crate::tables::bulletin::{BULLETIN_TABLE, BulletinRow};
use crate::tables::observation::Observation;
use crate::tables::stored_values::parse_stored_decimal;
use crate::{BACKGROUND_TIMEOUT, Result, Store, disable_timeouts, with_timeout};

/// The state of a source part, the unit that is fetched and loaded at once: a series, a currency, the registry, a year
/// of filings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourcePartState {
    pub source: String,
    pub part: String,
    /// When upstream last sent a good response, with or without new data.
    pub checked_at: Option<DateTime<Utc>>,
    /// When a response last brought new data.
    pub loaded_at: Option<DateTime<Utc>>,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    /// The hash of the last good file.
    pub sha256: Option<Vec<u8>>,
    /// The number of good rows in the last good file.
    pub rows: u64,
    /// For parts that are fetched in date windows: the last day fetched so far.
    pub covered_until: Option<NaiveDate>,
    /// When the backfill was complete. Data that arrives later is new.
    pub backfilled_at: Option<DateTime<Utc>>,
    pub failed_at: Option<DateTime<Utc>>,
    pub failure: Option<String>,
}

/// The state of a source across all of its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceState {
    pub source: String,
    /// When the least recently checked part was checked; `None` until every part was.
    pub checked_at: Option<DateTime<Utc>>,
    pub loaded_at: Option<DateTime<Utc>>,
    pub failure: Option<String>,
    pub quarantined_rows: u64,
}

/// The result of comparing a series with another that should have the same values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrossCheck {
    pub id: String,
    pub checked_at: DateTime<Utc>,
    pub compared_values: u64,
    pub differing_values: u64,
    pub largest_difference: Decimal,
    pub worst_date: Option<NaiveDate>,
}

/// Held while a source is being ingested. Dropping it closes its connection, which releases the lock.
#[derive(Debug)]
pub struct SourceLock {
    connection: Option<PoolConnection<Postgres>>,
}

impl Drop for SourceLock {
    fn drop(&mut self) {
        // A connection that holds the lock must not go back to the pool.
        if let Some(connection) = self.connection.take() {
            drop(connection.detach());
        }
    }
}

impl Store {
    /// Locks a source. `None` if another worker holds the lock and `wait` is false.
    pub async fn lock_source(&self, source: &str, wait: bool) -> Result<Option<SourceLock>> {
        let mut connection = self.pool.acquire().await?;
        disable_timeouts(&mut connection).await?;
        let statement = if wait {
            "select true from (select pg_advisory_lock(hashtext('vintem_ingest'), hashtext($1))) waited"
        } else {
            "select pg_try_advisory_lock(hashtext('vintem_ingest'), hashtext($1))"
        };

        let is_locked: bool = sqlx::query_scalar(statement).bind(source).fetch_one(&mut *connection).await?;
        let lock = SourceLock { connection: Some(connection) };
        Ok(is_locked.then_some(lock))
    }

    pub async fn part_state(&self, source: &str, part: &str) -> Result<SourcePartState> {
        let row = sqlx::query("select * from source_part where source = $1 and part = $2")
            .bind(source)
            .bind(part)
            .fetch_optional(&self.pool)
            .await?;

        let initial =
            SourcePartState { source: source.to_owned(), part: part.to_owned(), ..SourcePartState::default() };
        row.map_or(Ok(initial), |row| parse_part_state(&row))
    }

    pub async fn save_part_state(&self, state: &SourcePartState) -> Result<()> {
        sqlx::query(
            "insert into source_part (source, part, checked_at, loaded_at, etag, last_modified, sha256, rows,
                                      covered_until, filled_at, failed_at, failure)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
             on conflict (source, part) do update
             set (checked_at, loaded_at, etag, last_modified, sha256, rows, covered_until, filled_at, failed_at, failure)
                 = (excluded.checked_at, excluded.loaded_at, excluded.etag, excluded.last_modified, excluded.sha256,
                    excluded.rows, excluded.covered_until, excluded.filled_at, excluded.failed_at, excluded.failure)",
        )
        .bind(&state.source)
        .bind(&state.part)
        .bind(state.checked_at)
        .bind(state.loaded_at)
        .bind(&state.etag)
        .bind(&state.last_modified)
        .bind(&state.sha256)
        .bind(i64::try_from(state.rows).unwrap_or(i64::MAX))
        .bind(state.covered_until)
        .bind(state.backfilled_at)
        .bind(state.failed_at)
        .bind(&state.failure)
        .execute(&self.pool)
        .await?;

        sqlx::query("select pg_notify('vintem_generation', 'sources')").execute(&self.pool).await?;
        Ok(())
    }

    /// Quarantines a whole file outside of a load. `sha256` is of the bytes received, `body` the part that may be
    /// stored.
    pub async fn quarantine_file(
        &self,
        source: &str,
        part: &str,
        sha256: [u8; 32],
        body: &RawBody,
        quarantined_at: DateTime<Utc>,
        row: &QuarantinedRow,
    ) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        insert_raw_body(&mut transaction, body).await?;
        insert_quarantined_row(&mut transaction, source, part, &sha256, quarantined_at, row).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// All sources that were ever fetched.
    pub async fn source_states(&self) -> Result<Vec<SourceState>> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            let rows = sqlx::query(
                "select source,
                        case when count(*) = count(checked_at) then min(checked_at) end as checked_at,
                        max(loaded_at) as loaded_at,
                        (array_agg(failure order by failed_at desc) filter (where failure is not null))[1] as failure,
                        (select count(*) from quarantine where quarantine.source = source_part.source) as quarantined
                 from source_part
                 where part <> '*'
                 group by source
                 order by source",
            )
            .fetch_all(&self.pool)
            .await?;
            rows.iter()
                .map(|row| {
                    Ok(SourceState {
                        source: row.try_get("source")?,
                        checked_at: row.try_get("checked_at")?,
                        loaded_at: row.try_get("loaded_at")?,
                        failure: row.try_get("failure")?,
                        quarantined_rows: u64::try_from(row.try_get::<i64, _>("quarantined")?).unwrap_or(0),
                    })
                })
                .collect()
        })
        .await
    }

    /// The newest date of each dataset that has dates, up to `today`.
    pub async fn newest_dates(&self, today: NaiveDate) -> Result<HashMap<Dataset, NaiveDate>> {
        let rows: Vec<(String, Option<NaiveDate>)> = sqlx::query_as(
            "select series, max(ref_date) from observation where ref_date <= $1 group by series
             union all
             select 'fx', max(ref_date) from fx_bulletin where bulletin = 'closing' and ref_date <= $1
             union all
             select 'filings', max(delivered_on) from filing_version where delivered_on <= $1",
        )
        .bind(today)
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().filter_map(|(id, day)| Some((Dataset::from_id(&id)?, day?))).collect())
    }

    /// Counts the days of a series that have a value; `from` and `to` are included.
    pub async fn count_observations(&self, series: &str, (from, to): (NaiveDate, NaiveDate)) -> Result<u64> {
        let count: i64 = sqlx::query_scalar(
            "select count(distinct ref_date)
             from observation
             where series = $1 and ref_date between $2 and $3",
        )
        .bind(series)
        .bind(from)
        .bind(to)
        .fetch_one(&self.pool)
        .await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Counts the bulletins of a currency; `from` and `to` are included.
    pub async fn count_bulletins(&self, currency: Currency, (from, to): (NaiveDate, NaiveDate)) -> Result<u64> {
        let count: i64 = sqlx::query_scalar(
            "select count(distinct (ref_date, bulletin, published_at))
             from fx_bulletin
             where currency = $1 and ref_date between $2 and $3",
        )
        .bind(currency.code())
        .bind(from)
        .bind(to)
        .fetch_one(&self.pool)
        .await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// The current values of a series, oldest first, each date once. `series` is its id in the database.
    pub async fn current_observations(&self, series: &str) -> Result<Vec<Observation>> {
        let rows = load_current_observations(&mut *self.pool.acquire().await?, series).await?;
        Ok(rows.into_iter().map(|(observation, _)| observation).collect())
    }

    /// The closing rates of a currency, oldest first: date, buy, sell. Each is in the Brazilian currency of its day.
    pub async fn current_closing_rates(&self, currency: Currency) -> Result<Vec<(NaiveDate, Decimal, Decimal)>> {
        let statement = format!(
            "select distinct on (ref_date) {columns}
             from fx_bulletin
             where currency = $1 and bulletin = 'closing'
             order by ref_date, published_at desc, known_at desc",
            columns = BULLETIN_TABLE.select_list("fx_bulletin")
        );
        let rows = sqlx::query(AssertSqlSafe(statement)).bind(currency.code()).fetch_all(&self.pool).await?;

        let to_rate = |row: &PgRow| {
            let BulletinRow { date, quote, .. } = BulletinRow::read(row)?;
            Ok((date, quote.buy, quote.sell))
        };
        rows.iter().map(to_rate).collect()
    }

    pub async fn save_cross_check(&self, check: &CrossCheck) -> Result<()> {
        sqlx::query(
            "insert into cross_check (id, checked_at, compared, differing, largest_difference, worst_date)
             values ($1, $2, $3, $4, $5, $6)
             on conflict (id) do update
             set (checked_at, compared, differing, largest_difference, worst_date)
                 = (excluded.checked_at, excluded.compared, excluded.differing, excluded.largest_difference,
                    excluded.worst_date)",
        )
        .bind(&check.id)
        .bind(check.checked_at)
        .bind(i64::try_from(check.compared_values).unwrap_or(i64::MAX))
        .bind(i64::try_from(check.differing_values).unwrap_or(i64::MAX))
        .bind(check.largest_difference)
        .bind(check.worst_date)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    pub async fn cross_checks(&self) -> Result<Vec<CrossCheck>> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            let rows = sqlx::query(
                "select id, checked_at, compared, differing, largest_difference::text as largest_difference, worst_date
                 from cross_check
                 order by id",
            )
            .fetch_all(&self.pool)
            .await?;
            rows.iter()
                .map(|row| {
                    Ok(CrossCheck {
                        id: row.try_get("id")?,
                        checked_at: row.try_get("checked_at")?,
                        compared_values: u64::try_from(row.try_get::<i64, _>("compared")?).unwrap_or(0),
                        differing_values: u64::try_from(row.try_get::<i64, _>("differing")?).unwrap_or(0),
                        largest_difference: parse_stored_decimal(row.try_get("largest_difference")?)?,
                        worst_date: row.try_get("worst_date")?,
                    })
                })
                .collect()
        })
        .await
    }
}

fn parse_part_state(row: &PgRow) -> Result<SourcePartState> {
    Ok(SourcePartState {
        source: row.try_get("source")?,
        part: row.try_get("part")?,
        checked_at: row.try_get("checked_at")?,
        loaded_at: row.try_get("loaded_at")?,
        etag: row.try_get("etag")?,
        last_modified: row.try_get("last_modified")?,
        sha256: row.try_get("sha256")?,
        rows: u64::try_from(row.try_get::<i64, _>("rows")?).unwrap_or(0),
        covered_until: row.try_get("covered_until")?,
        backfilled_at: row.try_get("filled_at")?,
        failed_at: row.try_get("failed_at")?,
        failure: row.try_get("failure")?,
    })
}
