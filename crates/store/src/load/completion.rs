//! Completing bulletins that were stored before we read parities: each is filled in once, in place, from the archived
//! body that it was parsed from. It is part of what we fetched then, so there is no new version, no event and no other
//! `known_at`.

use chrono::{DateTime, Utc};
use sqlx::Row;
use vintem_domain::{Currency, DataOrigin, Dataset};

use super::LoadTransaction;
use super::fetch::{RawBody, read_raw_body};
use crate::pool::query;
use crate::tables::bulletin::{BULLETIN_TABLE, NewBulletin};
use crate::{Result, Store, StoreError};

/// A fetch whose bulletins lack parities, and the body that may have them.
#[derive(Debug, Clone)]
pub struct IncompleteFetch {
    /// A fetch has the bulletins of one currency.
    pub currency: Currency,
    pub body: RawBody,
    id: i64,
    fetched_at: DateTime<Utc>,
}

impl Store {
    /// The next fetch to complete, in order of id. Each is returned until it was completed, and never again.
    pub async fn next_incomplete_fetch(&self) -> Result<Option<IncompleteFetch>> {
        let row = query(
            "select next.fetch_id, next.currency, source_fetch.fetched_at, body.sha256, body.size, body.compressed
             from (
                 select bulletin.fetch_id, bulletin.currency
                 from fx_bulletin bulletin
                 join raw_fetch archived on archived.id = bulletin.fetch_id and archived.body is not null
                 where bulletin.parity_buy is null
                   and bulletin.fetch_id > (select last_fetch_id from parity_backfill)
                 order by bulletin.fetch_id
                 limit 1
             ) next
             join raw_fetch source_fetch on source_fetch.id = next.fetch_id
             join raw_body body on body.sha256 = source_fetch.body",
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };

        let id: i64 = row.try_get("fetch_id")?;
        let code: &str = row.try_get("currency")?;
        let currency =
            Currency::from_code(code).ok_or_else(|| StoreError::UnreadableData(format!("currency {code}")))?;
        let body = read_raw_body(&row)?;
        Ok(Some(IncompleteFetch { currency, body, id, fetched_at: row.try_get("fetched_at")? }))
    }

    /// Begins a load that only completes the bulletins of a fetch. Archived bodies are always real data.
    pub async fn begin_completion(&self, fetch: &IncompleteFetch) -> Result<LoadTransaction> {
        let mut load = self.begin_exclusive(Dataset::Fx, DataOrigin::Real, fetch.fetched_at, fetch.body.sha256).await?;
        load.fetch_id = fetch.id;
        Ok(load)
    }
}

impl LoadTransaction {
    /// Fills in the parities of the fetch's bulletins from rows that were parsed from its body, and records that the
    /// fetch was read. Bulletins whose rows have no parity stay without one. Returns the number of completed bulletins.
    pub async fn complete_bulletins(&mut self, rows: &[NewBulletin]) -> Result<u64> {
        self.stage_rows(&BULLETIN_TABLE, rows).await?;
        let completed = self.fill_missing_values(&BULLETIN_TABLE, Some(self.fetch_id)).await?;
        query("drop table staged").execute(&mut *self.transaction).await?;

        query("update parity_backfill set last_fetch_id = greatest(last_fetch_id, $1)")
            .bind(self.fetch_id)
            .execute(&mut *self.transaction)
            .await?;

        self.completed_rows += completed;
        self.other_changes += 1;
        Ok(completed)
    }
}
