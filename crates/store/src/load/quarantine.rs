//! Quarantine: rows and files that were rejected.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::LoadTransaction;
use crate::Result;
use crate::pool::query;

/// A row that was rejected, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantinedRow {
    /// 0 for the whole file.
    pub line: u64,
    pub reason: String,
    pub content: String,
}

impl LoadTransaction {
    /// Quarantines rejected rows of this load. The same row of the same file is kept once.
    pub async fn quarantine_rows(&mut self, source: &str, part: &str, rows: &[QuarantinedRow]) -> Result<()> {
        for row in rows {
            self.other_changes +=
                insert_quarantined_row(&mut self.transaction, source, part, &self.sha256, self.known_at, row).await?;
        }
        Ok(())
    }
}

/// Returns the number of inserted rows: 0 if the row was there already.
pub(crate) async fn insert_quarantined_row(
    connection: &mut PgConnection,
    source: &str,
    part: &str,
    sha256: &[u8; 32],
    quarantined_at: DateTime<Utc>,
    row: &QuarantinedRow,
) -> Result<u64> {
    // Postgres' text type cannot hold NUL.
    let content = row.content.replace('\0', "");
    let inserted = query(
        "insert into quarantine (source, part, sha256, line, reason, content, quarantined_at)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict do nothing",
    )
    .bind(source)
    .bind(part)
    .bind(sha256.as_slice())
    .bind(i64::try_from(row.line).unwrap_or(i64::MAX))
    .bind(&row.reason)
    .bind(content)
    .bind(quarantined_at)
    .execute(connection)
    .await?;

    Ok(inserted.rows_affected())
}
