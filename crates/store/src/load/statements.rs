//! Archiving documents with financial statements. Their bodies are stored once each, whatever documents they belong to.

use std::collections::HashSet;

use chrono::NaiveDate;
use sqlx::Row;
use sqlx::postgres::PgRow;
use vintem_domain::event::EventKind;
use vintem_domain::statement::ValueChange;
use vintem_domain::{CompanyId, Decimal, StatementSet};

use super::fetch::insert_raw_body;
use super::{LoadTransaction, RawBody, StatementDocument, read_raw_body};
use crate::pool::{query, query_scalar};
use crate::tables::statement::STATEMENT_TABLE;
use crate::{Result, StoreError};

/// A document of this load that replaces another version or form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementReplacement {
    set: StatementSet,
    company_id: CompanyId,
    reference_date: NaiveDate,
    version: u16,
    previous_version: u16,
    body: Vec<u8>,
    previous_body: Vec<u8>,
}

/// The body of a document, and of the one that it replaces.
#[derive(Debug)]
pub struct ReplacedBodies {
    pub new: RawBody,
    pub previous: RawBody,
}

/// An event lists at most this many changes; `change_count` counts all. Each has some 300 bytes in the feed of every
/// replica, and a year that the regulator publishes again may restate thousands of documents.
const MAX_CHANGES_PER_EVENT: usize = 20;

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

    /// The documents of this load that replace another version or form; none if the load emits no events.
    pub async fn statement_replacements(&mut self) -> Result<Vec<StatementReplacement>> {
        if self.events_since.is_none() {
            return Ok(Vec::new());
        }
        let rows = query(
            "select filing_set, cvm_code, reference_date, version, body, previous_version, previous_body
             from statement_document
             join lateral (
                 select earlier.version as previous_version, earlier.body as previous_body
                 from statement_document earlier
                 where earlier.filing_set = statement_document.filing_set
                   and earlier.cvm_code = statement_document.cvm_code
                   and earlier.reference_date = statement_document.reference_date
                   and (earlier.version, earlier.known_at) < (statement_document.version, statement_document.known_at)
                 order by earlier.version desc, earlier.known_at desc
                 limit 1
             ) previous on previous_body <> body
             where generation = $1 and fetch_id = $2
             order by reference_date, cvm_code, version",
        )
        .bind(self.generation)
        .bind(self.fetch_id)
        .fetch_all(&mut *self.transaction)
        .await?;
        rows.iter().map(read_replacement).collect()
    }

    pub async fn replaced_bodies(&mut self, replacement: &StatementReplacement) -> Result<ReplacedBodies> {
        Ok(ReplacedBodies {
            new: self.stored_body(&replacement.body).await?,
            previous: self.stored_body(&replacement.previous_body).await?,
        })
    }

    async fn stored_body(&mut self, sha256: &[u8]) -> Result<RawBody> {
        let row = query("select sha256, size, compressed from raw_body where sha256 = $1")
            .bind(sha256)
            .fetch_one(&mut *self.transaction)
            .await?;
        read_raw_body(&row)
    }

    /// Emits the event of a document that changes figures of the one it replaces.
    pub async fn emit_restatement(
        &mut self,
        replacement: &StatementReplacement,
        changes: &[ValueChange<'_>],
    ) -> Result<()> {
        let named = &changes[..changes.len().min(MAX_CHANGES_PER_EVENT)];
        let texts = |text: fn(&ValueChange<'_>) -> String| -> Vec<String> { named.iter().map(text).collect() };
        let optional_texts =
            |text: fn(&ValueChange<'_>) -> Option<String>| -> Vec<Option<String>> { named.iter().map(text).collect() };
        query(
            "insert into event (type, occurred_at, subject, dataset, generation)
             select $1, $2,
                    jsonb_build_object(
                        'set', $3::text, 'company', $4::bigint, 'reference_date', $5::date, 'version', $6::bigint,
                        'previous_version', $7::bigint, 'change_count', $8::bigint,
                        'changes', jsonb_agg(to_jsonb(change) - 'place' order by place)
                    ),
                    $9, $10
             from unnest(
                      $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[],
                      $18::date[], $19::date[], $20::text[], $21::text[]
                  ) with ordinality as change (
                      statement, method, scope, equity_column, account, name, unit,
                      period_start, period_end, old, new, place
                  )",
        )
        .bind(EventKind::StatementRestated.id())
        .bind(self.known_at)
        .bind(replacement.set.id())
        .bind(i64::from(replacement.company_id))
        .bind(replacement.reference_date)
        .bind(i64::from(replacement.version))
        .bind(i64::from(replacement.previous_version))
        .bind(i64::try_from(changes.len()).unwrap_or(i64::MAX))
        .bind(self.dataset.id())
        .bind(self.generation)
        .bind(texts(|change| change.row.key.statement.id().to_owned()))
        .bind(optional_texts(|change| change.row.key.method.map(|method| method.id().to_owned())))
        .bind(texts(|change| change.row.key.scope.id().to_owned()))
        .bind(optional_texts(|change| change.row.key.column.map(storable_text)))
        .bind(texts(|change| storable_text(change.row.key.account)))
        .bind(texts(|change| storable_text(change.row.name)))
        .bind(texts(|change| change.row.unit.id().to_owned()))
        .bind(named.iter().map(|change| change.row.key.period_start).collect::<Vec<_>>())
        .bind(named.iter().map(|change| change.row.key.period_end).collect::<Vec<_>>())
        .bind(optional_texts(|change| change.old.as_ref().map(Decimal::to_string)))
        .bind(optional_texts(|change| change.new.as_ref().map(Decimal::to_string)))
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }
}

/// A text of PostgreSQL has no NUL; the archived bytes may have one.
fn storable_text(text: &str) -> String {
    text.replace('\0', " ")
}

fn read_replacement(row: &PgRow) -> Result<StatementReplacement> {
    let company: i64 = row.try_get("cvm_code")?;
    let unreadable = || StoreError::UnreadableData(format!("a statement of the company {company}"));
    let version = |value: i64| u16::try_from(value).map_err(|_| unreadable());
    Ok(StatementReplacement {
        set: StatementSet::from_id(row.try_get("filing_set")?).ok_or_else(unreadable)?,
        company_id: CompanyId::try_from(company).map_err(|_| unreadable())?,
        reference_date: row.try_get("reference_date")?,
        version: version(row.try_get("version")?)?,
        previous_version: version(row.try_get("previous_version")?)?,
        body: row.try_get("body")?,
        previous_body: row.try_get("previous_body")?,
    })
}
