//! Reads archived documents with financial statements.

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::Row;
use vintem_domain::{CompanyId, StatementSet};

use crate::load::{RawBody, read_raw_body};
use crate::pool::query;
use crate::{Result, Store, StoreError};

/// A form of a document, and since when we have known it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedStatement {
    pub version: u16,
    pub known_at: DateTime<Utc>,
    pub row_count: u32,
    pub body: RawBody,
}

impl Store {
    /// All that was ever published of a company's statements for a date: the forms of each version, oldest first.
    pub async fn archived_statements(
        &self,
        set: StatementSet,
        company_id: CompanyId,
        reference_date: NaiveDate,
    ) -> Result<Vec<ArchivedStatement>> {
        let rows = query(
            "select version, known_at, row_count, sha256, size, compressed
             from statement_document
             join raw_body on sha256 = body
             where filing_set = $1 and cvm_code = $2 and reference_date = $3
             order by version, known_at",
        )
        .bind(set.id())
        .bind(i64::from(company_id))
        .bind(reference_date)
        .fetch_all(&self.pool)
        .await?;

        rows.iter()
            .map(|row| {
                let unreadable = || StoreError::UnreadableData(format!("a statement of the company {company_id}"));
                Ok(ArchivedStatement {
                    version: u16::try_from(row.try_get::<i64, _>("version")?).map_err(|_| unreadable())?,
                    known_at: row.try_get("known_at")?,
                    row_count: u32::try_from(row.try_get::<i64, _>("row_count")?).map_err(|_| unreadable())?,
                    body: read_raw_body(row)?,
                })
            })
            .collect()
    }
}
