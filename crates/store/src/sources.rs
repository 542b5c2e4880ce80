//! The state of each source and its parts, quarantined files, cross-checks between series, and the lock that keeps two
//! workers from ingesting the same source.

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Postgres, Row};
use vintem_domain::{Currency, Dataset, Decimal};

use crate::load::{QuarantinedRow, RawBody, insert_quarantined_row, insert_raw_body};
use crate::pool::{query, query_as, query_scalar};
use crate::reader::load_current_observations;
use crate::tables::bulletin::{BULLETIN_TABLE, BulletinRow};
use crate::tables::observation::Observation;
use crate::tables::stored_values::parse_stored_decimal;
use crate::{BACKGROUND_TIMEOUT, Result, Store, disable_timeouts, with_timeout};

/// The state of a source part, the unit that is fetched and loaded at once: some years of a series, a year of a currency,
/// the registry, a year of filings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourcePartState {
    pub source: String,
    pub part: String,
    /// When upstream last sent a good response, with or without new data.
    pub checked_at: Option<DateTime<Utc>>,
    /// When a response last brought new data.
    pub loaded_at: Option<DateTime<Utc>>,
    /// Of the last good file.
    pub validators: FileValidators,
    /// The hash of the last good file, if it was fetched as a whole.
    pub sha256: Option<Vec<u8>>,
    /// Changes with the members of the last good archive, if they alone were fetched.
    pub member_fingerprint: Option<String>,
    /// The number of good rows in the last good file.
    pub rows: u64,
    /// The newest day that has a value.
    pub newest_date: Option<NaiveDate>,
    /// Whether new data may appear. Of years long past we only ask for what is missing.
    pub is_open: bool,
    /// When the part was complete for the first time. Data that arrives later is new.
    pub backfilled_at: Option<DateTime<Utc>>,
    pub failure: Option<PartFailure>,
}

/// Identify a version of a file, so that the upstream does not send it again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileValidators {
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

/// The attempts of a part that failed since its last success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartFailure {
    pub attempts: u32,
    /// When the first of them failed.
    pub since: DateTime<Utc>,
    pub last_failed_at: DateTime<Utc>,
    pub next_attempt_at: DateTime<Utc>,
    pub problem: String,
    pub rejected_file: Option<RejectedFile>,
}

/// A file that was rejected. Only a changed file, or a later version of the service, may be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedFile {
    pub validators: FileValidators,
    /// The version of the service that rejected it.
    pub rejected_by: String,
}

/// A part that keeps failing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingPart {
    pub source: String,
    pub part: String,
    pub failure: PartFailure,
}

/// The state of a source across all of its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceState {
    pub source: String,
    /// When the least recently checked part that is open was checked; `None` until every one was.
    pub checked_at: Option<DateTime<Utc>>,
    pub loaded_at: Option<DateTime<Utc>>,
    pub failing_parts: Vec<FailingPart>,
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
        let mut connection = self.sessions.acquire().await?;
        disable_timeouts(&mut connection).await?;
        let statement = if wait {
            "select true from (select pg_advisory_lock(hashtext('vintem_ingest'), hashtext($1))) waited"
        } else {
            "select pg_try_advisory_lock(hashtext('vintem_ingest'), hashtext($1))"
        };

        let is_locked: bool = query_scalar(statement).bind(source).fetch_one(&mut *connection).await?;
        let lock = SourceLock { connection: Some(connection) };
        Ok(is_locked.then_some(lock))
    }

    /// The states of all parts of these sources that were ever fetched.
    pub async fn part_states(&self, sources: &[&str]) -> Result<Vec<SourcePartState>> {
        let rows =
            query("select * from source_part where source = any($1)").bind(sources).fetch_all(&self.pool).await?;
        rows.iter().map(parse_part_state).collect()
    }

    pub async fn save_part_state(&self, state: &SourcePartState) -> Result<()> {
        let failure = state.failure.as_ref();
        let rejected_file = failure.and_then(|failure| failure.rejected_file.as_ref());
        let mut transaction = self.pool.begin().await?;
        query(
            "insert into source_part (source, part, checked_at, loaded_at, etag, last_modified, sha256, rows, newest_date,
                                      is_open, filled_at, failed_attempts, failing_since, failed_at, next_attempt_at,
                                      failure, rejected_etag, rejected_last_modified, rejected_by, member_fingerprint)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
             on conflict (source, part) do update
             set (checked_at, loaded_at, etag, last_modified, sha256, rows, newest_date, is_open, filled_at,
                  failed_attempts, failing_since, failed_at, next_attempt_at, failure, rejected_etag,
                  rejected_last_modified, rejected_by, member_fingerprint)
                 = (excluded.checked_at, excluded.loaded_at, excluded.etag, excluded.last_modified, excluded.sha256,
                    excluded.rows, excluded.newest_date, excluded.is_open, excluded.filled_at, excluded.failed_attempts,
                    excluded.failing_since, excluded.failed_at, excluded.next_attempt_at, excluded.failure,
                    excluded.rejected_etag, excluded.rejected_last_modified, excluded.rejected_by,
                    excluded.member_fingerprint)",
        )
        .bind(&state.source)
        .bind(&state.part)
        .bind(state.checked_at)
        .bind(state.loaded_at)
        .bind(&state.validators.etag)
        .bind(&state.validators.last_modified)
        .bind(&state.sha256)
        .bind(i64::try_from(state.rows).unwrap_or(i64::MAX))
        .bind(state.newest_date)
        .bind(state.is_open)
        .bind(state.backfilled_at)
        .bind(failure.map_or(0, |failure| i64::from(failure.attempts)))
        .bind(failure.map(|failure| failure.since))
        .bind(failure.map(|failure| failure.last_failed_at))
        .bind(failure.map(|failure| failure.next_attempt_at))
        .bind(failure.map(|failure| &failure.problem))
        .bind(rejected_file.and_then(|file| file.validators.etag.as_ref()))
        .bind(rejected_file.and_then(|file| file.validators.last_modified.as_ref()))
        .bind(rejected_file.map(|file| &file.rejected_by))
        .bind(&state.member_fingerprint)
        .execute(&mut *transaction)
        .await?;

        query("select pg_notify('vintem_generation', 'sources')").execute(&mut *transaction).await?;
        transaction.commit().await?;
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
            let rows = query(
                "select source,
                        case when bool_and(checked_at is not null) filter (where is_open)
                             then min(checked_at) filter (where is_open) end as checked_at,
                        max(loaded_at) as loaded_at,
                        (select count(*) from quarantine where quarantine.source = source_part.source) as quarantined
                 from source_part
                 where part <> '*'
                 group by source
                 order by source",
            )
            .fetch_all(&self.pool)
            .await?;
            let failing = query("select * from source_part where failing_since is not null order by source, part desc")
                .fetch_all(&self.pool)
                .await?;
            let failing: Vec<SourcePartState> = failing.iter().map(parse_part_state).collect::<Result<_>>()?;

            rows.iter()
                .map(|row| {
                    let source: String = row.try_get("source")?;
                    let failing_parts = failing.iter().filter(|state| state.source == source);
                    let failing_parts = failing_parts.filter_map(SourcePartState::to_failing_part).collect();
                    Ok(SourceState {
                        source,
                        checked_at: row.try_get("checked_at")?,
                        loaded_at: row.try_get("loaded_at")?,
                        failing_parts,
                        quarantined_rows: u64::try_from(row.try_get::<i64, _>("quarantined")?).unwrap_or(0),
                    })
                })
                .collect()
        })
        .await
    }

    /// The newest date of each dataset that has dates, up to `today`.
    pub async fn newest_dates(&self, today: NaiveDate) -> Result<HashMap<Dataset, NaiveDate>> {
        let rows: Vec<(String, Option<NaiveDate>)> = query_as(
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
        let count: i64 = query_scalar(
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

    /// The days of a series that have a value, in order.
    pub async fn observation_dates(&self, series: &str) -> Result<Vec<NaiveDate>> {
        Ok(query_scalar("select distinct ref_date from observation where series = $1 order by ref_date")
            .bind(series)
            .fetch_all(&self.pool)
            .await?)
    }

    /// The days of each currency that have a closing rate, in order.
    pub async fn closing_dates(&self) -> Result<Vec<(Currency, Vec<NaiveDate>)>> {
        let mut dates_by_currency = Vec::new();
        for currency in Currency::ALL {
            let dates = query_scalar(
                "select distinct ref_date from fx_bulletin where currency = $1 and bulletin = 'closing' order by ref_date",
            )
            .bind(currency.code())
            .fetch_all(&self.pool)
            .await?;
            dates_by_currency.push((currency, dates));
        }
        Ok(dates_by_currency)
    }

    /// Counts the bulletins of a currency; `from` and `to` are included.
    pub async fn count_bulletins(&self, currency: Currency, (from, to): (NaiveDate, NaiveDate)) -> Result<u64> {
        let count: i64 = query_scalar(
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
        let rows = load_current_observations(&mut *self.pool.begin().await?, series).await?;
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
        let rows = query(AssertSqlSafe(statement)).bind(currency.code()).fetch_all(&self.pool).await?;

        let to_rate = |row: &PgRow| {
            let BulletinRow { date, quote, .. } = BulletinRow::read(row)?;
            Ok((date, quote.buy, quote.sell))
        };
        rows.iter().map(to_rate).collect()
    }

    pub async fn save_cross_check(&self, check: &CrossCheck) -> Result<()> {
        query(
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
            let rows = query(
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

impl SourcePartState {
    /// The state of a part that was never fetched.
    pub fn new(source: &str, part: &str) -> Self {
        Self { source: source.to_owned(), part: part.to_owned(), is_open: true, ..Self::default() }
    }

    fn to_failing_part(&self) -> Option<FailingPart> {
        let failure = self.failure.clone()?;
        Some(FailingPart { source: self.source.clone(), part: self.part.clone(), failure })
    }
}

fn parse_part_state(row: &PgRow) -> Result<SourcePartState> {
    Ok(SourcePartState {
        source: row.try_get("source")?,
        part: row.try_get("part")?,
        checked_at: row.try_get("checked_at")?,
        loaded_at: row.try_get("loaded_at")?,
        validators: FileValidators { etag: row.try_get("etag")?, last_modified: row.try_get("last_modified")? },
        sha256: row.try_get("sha256")?,
        member_fingerprint: row.try_get("member_fingerprint")?,
        rows: u64::try_from(row.try_get::<i64, _>("rows")?).unwrap_or(0),
        newest_date: row.try_get("newest_date")?,
        is_open: row.try_get("is_open")?,
        backfilled_at: row.try_get("filled_at")?,
        failure: parse_part_failure(row)?,
    })
}

/// `None` if the last attempt succeeded. A failure that the version before recorded lacks the times; it is repeated at
/// once.
fn parse_part_failure(row: &PgRow) -> Result<Option<PartFailure>> {
    let (since, last_failed_at, next_attempt_at) =
        (row.try_get("failing_since")?, row.try_get("failed_at")?, row.try_get("next_attempt_at")?);
    let (Some(since), Some(last_failed_at), Some(next_attempt_at)) = (since, last_failed_at, next_attempt_at) else {
        return Ok(None);
    };
    let rejected_by: Option<String> = row.try_get("rejected_by")?;
    let validators =
        FileValidators { etag: row.try_get("rejected_etag")?, last_modified: row.try_get("rejected_last_modified")? };
    Ok(Some(PartFailure {
        attempts: u32::try_from(row.try_get::<i64, _>("failed_attempts")?).unwrap_or(u32::MAX),
        since,
        last_failed_at,
        next_attempt_at,
        problem: row.try_get::<Option<String>, _>("failure")?.unwrap_or_default(),
        rejected_file: rejected_by.map(|rejected_by| RejectedFile { validators, rejected_by }),
    }))
}
