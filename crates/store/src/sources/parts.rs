//! What is known of each part of a source: when it was fetched, what came, what is usual, and what failed.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::pool::query;
use crate::{Result, Store};

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
    /// What was unusual about the last response that was read, although it was loaded.
    pub alerts: Vec<String>,
    pub last_response: ResponseFigures,
    pub usual: UsualResponse,
    pub failure: Option<PartFailure>,
}

/// What the last response that was read was like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseFigures {
    pub bytes: u64,
    /// From the request until its rows were stored.
    pub load_milliseconds: u64,
    /// By what is wrong with them.
    pub bad_rows: BTreeMap<String, u64>,
}

/// What is usual for a part, so that a response that is not is noticed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsualResponse {
    /// The share of blank fields of each column, of ten thousand.
    pub blank_shares: BTreeMap<String, u64>,
    /// How many minutes after they were expected the last values arrived, the newest last.
    pub arrival_delays: Vec<i64>,
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

/// Something unusual about the last response of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceAlert {
    pub source: String,
    pub part: String,
    pub alert: String,
}

impl Store {
    /// The states of all parts of these sources that were ever fetched.
    pub async fn part_states(&self, sources: &[&str]) -> Result<Vec<SourcePartState>> {
        let rows =
            query("select * from source_part where source = any($1)").bind(sources).fetch_all(&self.pool).await?;
        rows.iter().map(read_part_state).collect()
    }

    pub async fn save_part_state(&self, state: &SourcePartState) -> Result<()> {
        let failure = state.failure.as_ref();
        let rejected_file = failure.and_then(|failure| failure.rejected_file.as_ref());
        let (bad_row_kinds, bad_row_counts) = to_columns(&state.last_response.bad_rows);
        let (usual_columns, usual_blanks) = to_columns(&state.usual.blank_shares);
        let mut transaction = self.pool.begin().await?;
        query(
            "insert into source_part (source, part, checked_at, loaded_at, etag, last_modified, sha256, rows, newest_date,
                                      is_open, filled_at, failed_attempts, failing_since, failed_at, next_attempt_at,
                                      failure, rejected_etag, rejected_last_modified, rejected_by, member_fingerprint,
                                      alerts, received_bytes, load_milliseconds, bad_row_kinds, bad_row_counts,
                                      usual_columns, usual_blanks, arrival_delays)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
                     $22, $23, $24, $25, $26, $27, $28)
             on conflict (source, part) do update
             set (checked_at, loaded_at, etag, last_modified, sha256, rows, newest_date, is_open, filled_at,
                  failed_attempts, failing_since, failed_at, next_attempt_at, failure, rejected_etag,
                  rejected_last_modified, rejected_by, member_fingerprint, alerts, received_bytes, load_milliseconds,
                  bad_row_kinds, bad_row_counts, usual_columns, usual_blanks, arrival_delays)
                 = (excluded.checked_at, excluded.loaded_at, excluded.etag, excluded.last_modified, excluded.sha256,
                    excluded.rows, excluded.newest_date, excluded.is_open, excluded.filled_at, excluded.failed_attempts,
                    excluded.failing_since, excluded.failed_at, excluded.next_attempt_at, excluded.failure,
                    excluded.rejected_etag, excluded.rejected_last_modified, excluded.rejected_by,
                    excluded.member_fingerprint, excluded.alerts, excluded.received_bytes, excluded.load_milliseconds,
                    excluded.bad_row_kinds, excluded.bad_row_counts, excluded.usual_columns, excluded.usual_blanks,
                    excluded.arrival_delays)",
        )
        .bind(&state.source)
        .bind(&state.part)
        .bind(state.checked_at)
        .bind(state.loaded_at)
        .bind(&state.validators.etag)
        .bind(&state.validators.last_modified)
        .bind(&state.sha256)
        .bind(to_bigint(state.rows))
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
        .bind(&state.alerts)
        .bind(to_bigint(state.last_response.bytes))
        .bind(to_bigint(state.last_response.load_milliseconds))
        .bind(bad_row_kinds)
        .bind(bad_row_counts)
        .bind(usual_columns)
        .bind(usual_blanks)
        .bind(&state.usual.arrival_delays)
        .execute(&mut *transaction)
        .await?;

        query("select pg_notify('vintem_generation', 'sources')").execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// The states of all parts in which new data may appear.
    pub async fn open_part_states(&self) -> Result<Vec<SourcePartState>> {
        let rows = query("select * from source_part where is_open and part <> '*' order by source, part")
            .fetch_all(&self.pool)
            .await?;
        rows.iter().map(read_part_state).collect()
    }
}

impl SourcePartState {
    /// The state of a part that was never fetched.
    pub fn new(source: &str, part: &str) -> Self {
        Self { source: source.to_owned(), part: part.to_owned(), is_open: true, ..Self::default() }
    }

    pub(super) fn source_alerts(&self) -> impl Iterator<Item = SourceAlert> {
        let to_alert =
            |alert: &String| SourceAlert { source: self.source.clone(), part: self.part.clone(), alert: alert.clone() };
        self.alerts.iter().map(to_alert)
    }

    pub(super) fn to_failing_part(&self) -> Option<FailingPart> {
        let failure = self.failure.clone()?;
        Some(FailingPart { source: self.source.clone(), part: self.part.clone(), failure })
    }
}

pub(super) fn read_part_state(row: &PgRow) -> Result<SourcePartState> {
    Ok(SourcePartState {
        source: row.try_get("source")?,
        part: row.try_get("part")?,
        checked_at: row.try_get("checked_at")?,
        loaded_at: row.try_get("loaded_at")?,
        validators: FileValidators { etag: row.try_get("etag")?, last_modified: row.try_get("last_modified")? },
        sha256: row.try_get("sha256")?,
        member_fingerprint: row.try_get("member_fingerprint")?,
        rows: read_count(row, "rows")?,
        newest_date: row.try_get("newest_date")?,
        is_open: row.try_get("is_open")?,
        backfilled_at: row.try_get("filled_at")?,
        alerts: row.try_get("alerts")?,
        last_response: ResponseFigures {
            bytes: read_count(row, "received_bytes")?,
            load_milliseconds: read_count(row, "load_milliseconds")?,
            bad_rows: read_counts(row, "bad_row_kinds", "bad_row_counts")?,
        },
        usual: UsualResponse {
            blank_shares: read_counts(row, "usual_columns", "usual_blanks")?,
            arrival_delays: row.try_get("arrival_delays")?,
        },
        failure: read_part_failure(row)?,
    })
}

/// `None` if the last attempt succeeded. A failure that the version before recorded lacks the times; it is repeated at
/// once.
fn read_part_failure(row: &PgRow) -> Result<Option<PartFailure>> {
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

fn read_count(row: &PgRow, column: &str) -> Result<u64> {
    Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0))
}

fn read_counts(row: &PgRow, names: &str, counts: &str) -> Result<BTreeMap<String, u64>> {
    let names: Vec<String> = row.try_get(names)?;
    let counts: Vec<i64> = row.try_get(counts)?;
    Ok(names.into_iter().zip(counts.into_iter().map(|count| u64::try_from(count).unwrap_or(0))).collect())
}

fn to_columns(counts: &BTreeMap<String, u64>) -> (Vec<&str>, Vec<i64>) {
    counts.iter().map(|(name, count)| (name.as_str(), to_bigint(*count))).unzip()
}

fn to_bigint(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
