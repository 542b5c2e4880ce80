//! Fetches: where loaded values come from, with the bytes that were received.

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Postgres, Row, Transaction};
use vintem_domain::Dataset;

use crate::pool::{query, query_scalar};
use crate::{Result, StoreError};

/// The fetch that loaded values come from.
#[derive(Debug, Clone)]
pub struct NewFetch {
    pub source_url: String,
    /// Becomes `known_at` of the loaded rows.
    pub fetched_at: DateTime<Utc>,
    /// The hash of the bytes as received.
    pub sha256: [u8; 32],
    pub response: Option<ArchivedResponse>,
}

/// A response of an upstream, as archived.
#[derive(Debug, Clone)]
pub struct ArchivedResponse {
    pub status: u16,
    pub content_type: String,
    pub body: RawBody,
}

/// A body to archive, compressed with zstd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawBody {
    pub sha256: [u8; 32],
    pub size: usize,
    pub compressed: Vec<u8>,
}

impl NewFetch {
    /// For data that no upstream sent.
    pub fn without_response(source_url: String, fetched_at: DateTime<Utc>, sha256: [u8; 32]) -> Self {
        Self { source_url, fetched_at, sha256, response: None }
    }
}

/// Returns the id of the fetch with these bytes from this URL, inserting it if necessary.
pub(super) async fn insert_fetch(
    transaction: &mut Transaction<'static, Postgres>,
    dataset: Dataset,
    fetch: &NewFetch,
) -> Result<i64> {
    let response = fetch.response.as_ref();
    if let Some(response) = response {
        insert_raw_body(transaction, &response.body).await?;
    }

    let id = query_scalar(
        "insert into raw_fetch (dataset, address, fetched_at, sha256, status, content_type, body)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (dataset, address, sha256) do update
         set dataset = excluded.dataset
         returning id",
    )
    .bind(dataset.id())
    .bind(&fetch.source_url)
    .bind(fetch.fetched_at)
    .bind(fetch.sha256.as_slice())
    .bind(response.map(|response| i16::try_from(response.status).unwrap_or(0)))
    .bind(response.map(|response| response.content_type.as_str()))
    .bind(response.map(|response| response.body.sha256.as_slice()))
    .fetch_one(&mut **transaction)
    .await?;

    Ok(id)
}

/// From the columns `sha256`, `size` and `compressed`.
pub(crate) fn read_raw_body(row: &PgRow) -> Result<RawBody> {
    let unreadable = || StoreError::UnreadableData("the checksum or size of an archived body".to_owned());
    let sha256: &[u8] = row.try_get("sha256")?;
    Ok(RawBody {
        sha256: sha256.try_into().map_err(|_| unreadable())?,
        size: usize::try_from(row.try_get::<i64, _>("size")?).map_err(|_| unreadable())?,
        compressed: row.try_get("compressed")?,
    })
}

pub(crate) async fn insert_raw_body(connection: &mut PgConnection, body: &RawBody) -> Result<()> {
    query(
        "insert into raw_body (sha256, size, compressed)
         values ($1, $2, $3)
         on conflict do nothing",
    )
    .bind(body.sha256.as_slice())
    .bind(i64::try_from(body.size).unwrap_or(i64::MAX))
    .bind(&body.compressed)
    .execute(connection)
    .await?;
    Ok(())
}
