//! Archiving documents with financial statements. Their bodies are stored once each, whatever documents they belong to.

use std::collections::HashSet;

use super::fetch::insert_raw_body;
use super::{LoadTransaction, StatementDocument};
use crate::Result;
use crate::pool::query_scalar;
use crate::tables::statement::STATEMENT_TABLE;

impl LoadTransaction {
    /// Appends the documents that differ from their last stored form, each document once per call.
    pub async fn append_statements(&mut self, documents: &[StatementDocument]) -> Result<()> {
        let hashes: Vec<&[u8]> = documents.iter().map(|document| document.body.sha256.as_slice()).collect();
        let stored: Vec<Vec<u8>> = query_scalar("select sha256 from raw_body where sha256 = any($1)")
            .bind(hashes)
            .fetch_all(&mut *self.transaction)
            .await?;
        let stored: HashSet<Vec<u8>> = stored.into_iter().collect();
        for document in documents.iter().filter(|document| !stored.contains(document.body.sha256.as_slice())) {
            insert_raw_body(&mut self.transaction, &document.body).await?;
        }

        self.append_rows(&STATEMENT_TABLE, documents, None).await?;
        Ok(())
    }
}
