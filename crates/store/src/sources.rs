//! The state of each source and its parts, quarantined files, cross-checks between series, and the lock that keeps two
//! workers from ingesting the same source.

mod cross_checks;
mod parts;

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Postgres, Row};
use vintem_domain::{Currency, Dataset, PublishedRates};

use crate::load::{QuarantinedRow, RawBody, insert_quarantined_row, insert_raw_body};
use crate::pool::{query, query_as, query_scalar};
use crate::reader::load_current_observations;
use crate::tables::bulletin::{BULLETIN_TABLE, BulletinRow};
use crate::tables::observation::Observation;
use crate::{BACKGROUND_TIMEOUT, Result, Store, disable_timeouts, with_timeout};

pub use self::cross_checks::{CheckedValues, CrossCheck, CrossCheckFinding};
use self::parts::read_part_state;
pub use self::parts::{
    FailingPart, FileValidators, PartFailure, RejectedFile, ResponseFigures, SourceAlert, SourcePartState,
    UsualResponse,
};

/// The state of a source across all of its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceState {
    pub source: String,
    /// When the least recently checked part that is open was checked; `None` until every one was.
    pub checked_at: Option<DateTime<Utc>>,
    pub loaded_at: Option<DateTime<Utc>>,
    pub failing_parts: Vec<FailingPart>,
    /// Of all parts, the newest first.
    pub alerts: Vec<SourceAlert>,
    pub quarantined_rows: u64,
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
            let noted = query(
                "select *
                 from source_part
                 where failing_since is not null or alerts <> '{}'
                 order by source, part desc",
            )
            .fetch_all(&self.pool)
            .await?;
            let noted: Vec<SourcePartState> = noted.iter().map(read_part_state).collect::<Result<_>>()?;

            rows.iter()
                .map(|row| {
                    let source: String = row.try_get("source")?;
                    let noted_parts = noted.iter().filter(|state| state.source == source);
                    let failing_parts = noted_parts.clone().filter_map(SourcePartState::to_failing_part).collect();
                    let alerts = noted_parts.flat_map(SourcePartState::source_alerts).collect();
                    Ok(SourceState {
                        source,
                        checked_at: row.try_get("checked_at")?,
                        loaded_at: row.try_get("loaded_at")?,
                        failing_parts,
                        alerts,
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

    /// The closing rates of a currency, oldest first. Each is in the Brazilian currency of its day.
    pub async fn current_closing_rates(&self, currency: Currency) -> Result<Vec<(NaiveDate, PublishedRates)>> {
        let statement = format!(
            "select distinct on (ref_date) {columns}
             from fx_bulletin
             where currency = $1 and bulletin = 'closing'
             order by ref_date, published_at desc, known_at desc",
            columns = BULLETIN_TABLE.select_list("fx_bulletin")
        );
        let rows = query(AssertSqlSafe(statement)).bind(currency.code()).fetch_all(&self.pool).await?;

        let to_rate = |row: &PgRow| {
            let BulletinRow { date, quote, parity, .. } = BulletinRow::read(row)?;
            Ok((date, PublishedRates { quote, parity }))
        };
        rows.iter().map(to_rate).collect()
    }
}
