//! Loading: the only way by which data enters the database, for real and demo data alike.
//!
//! A load is one transaction over one dataset, and a dataset has one load at a time. Rows are staged by COPY; only
//! those that differ from their current version are appended, together with their events. If anything was appended, the
//! commit raises the dataset's generation and notifies replicas. A load without changes leaves no trace.
//!
//! Values that a stored row lacks are filled in, not appended: they belong to what we already knew (`completion.rs`).

mod append;
mod completion;
mod fetch;
mod filing_ids;
mod missing_rows;
mod quarantine;
mod statements;

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::{AssertSqlSafe, Postgres, Transaction};
use vintem_domain::{DataOrigin, Dataset};

pub use crate::tables::bulletin::{BulletinKind, NewBulletin};
pub use crate::tables::filing::Filing;
pub use crate::tables::observation::Observation;
pub use crate::tables::security::ListedSecurity;
pub use crate::tables::statement::StatementDocument;
pub use completion::IncompleteFetch;
pub use fetch::{ArchivedResponse, NewFetch, RawBody};
pub use missing_rows::MissingRowCounts;
pub use quarantine::QuarantinedRow;
pub use statements::{ReplacedBodies, StatementReplacement};

pub(crate) use fetch::{insert_raw_body, read_raw_body};
pub(crate) use quarantine::insert_quarantined_row;

use fetch::insert_fetch;

use crate::pool::{query, query_scalar};
use crate::tables::data_table_names;
use crate::tables::table::DataTable;
use crate::{Result, Store, StoreError, disable_timeouts_in_transaction};

/// One transaction that appends to one dataset. Dropping it without [`LoadTransaction::commit`] rolls it back.
#[derive(Debug)]
pub struct LoadTransaction {
    transaction: Transaction<'static, Postgres>,
    dataset: Dataset,
    origin: DataOrigin,
    known_at: DateTime<Utc>,
    /// The dataset's generation after this load. Known in advance, because a dataset has one load at a time.
    generation: i64,
    fetch_id: i64,
    sha256: [u8; 32],
    events_since: Option<NaiveDate>,
    appended_rows: u64,
    /// Stored rows whose missing values were filled in.
    completed_rows: u64,
    other_changes: u64,
}

impl Store {
    /// Begins a load, the only one on its dataset. Fails if the database holds data of the other origin.
    pub async fn begin_load(&self, dataset: Dataset, origin: DataOrigin, fetch: &NewFetch) -> Result<LoadTransaction> {
        let mut load = self.begin_exclusive(dataset, origin, fetch.fetched_at, fetch.sha256).await?;
        load.fetch_id = insert_fetch(&mut load.transaction, dataset, fetch).await?;
        Ok(load)
    }

    /// The only transaction that writes to a dataset. The caller sets the fetch that its rows come from.
    async fn begin_exclusive(
        &self,
        dataset: Dataset,
        origin: DataOrigin,
        known_at: DateTime<Utc>,
        sha256: [u8; 32],
    ) -> Result<LoadTransaction> {
        let mut transaction = self.pool.begin().await?;
        disable_timeouts_in_transaction(&mut transaction).await?;
        query("select pg_advisory_xact_lock(hashtext('vintem_load'), hashtext($1))")
            .bind(dataset.id())
            .execute(&mut *transaction)
            .await?;

        // Real loads may run concurrently, but not with a synthetic one: neither would see the other's origin yet.
        query(match origin {
            DataOrigin::Real => "select pg_advisory_xact_lock_shared(hashtext('vintem_origin'))",
            DataOrigin::Synthetic => "select pg_advisory_xact_lock(hashtext('vintem_origin'))",
        })
        .execute(&mut *transaction)
        .await?;

        let other_origin: Option<String> = query_scalar(
            "select origin
             from dataset
             where origin <> $1
             limit 1",
        )
        .bind(origin.id())
        .fetch_optional(&mut *transaction)
        .await?;
        if let Some(other_origin) = other_origin {
            transaction.rollback().await?;
            let stored = DataOrigin::from_id(&other_origin).map_or("foreign", DataOrigin::id);
            return Err(StoreError::WrongOrigin { stored, offered: origin.id() });
        }

        // Changed rows are materialized before they are appended, which needs more memory than the default.
        query("set local work_mem = '64MB'").execute(&mut *transaction).await?;
        let generation: i64 = query_scalar("select coalesce((select generation from dataset where id = $1), 0) + 1")
            .bind(dataset.id())
            .fetch_one(&mut *transaction)
            .await?;

        Ok(LoadTransaction {
            transaction,
            dataset,
            origin,
            known_at,
            generation,
            fetch_id: 0,
            sha256,
            events_since: None,
            appended_rows: 0,
            completed_rows: 0,
            other_changes: 0,
        })
    }

    /// Deletes all synthetic data, provenance included. Fails if the data is real.
    pub async fn remove_synthetic_data(&self) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        disable_timeouts_in_transaction(&mut transaction).await?;
        query("select pg_advisory_xact_lock(hashtext('vintem_origin'))").execute(&mut *transaction).await?;
        let real_datasets: i64 =
            query_scalar("select count(*) from dataset where origin = 'real'").fetch_one(&mut *transaction).await?;
        if real_datasets > 0 {
            return Err(StoreError::WrongOrigin { stored: DataOrigin::Real.id(), offered: DataOrigin::Synthetic.id() });
        }

        let truncate = format!("truncate {}, raw_fetch", data_table_names());
        query(AssertSqlSafe(truncate)).execute(&mut *transaction).await?;

        query("select pg_notify('vintem_generation', id) from dataset").execute(&mut *transaction).await?;
        query("delete from dataset").execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }
}

impl LoadTransaction {
    /// Makes later appends emit events: for new rows of this day or later, and for every changed value.
    pub fn emit_events_since(&mut self, day: NaiveDate) {
        self.events_since = Some(day);
    }

    /// Commits the load. If rows were appended or completed, raises the generation and notifies. Returns the number of
    /// appended rows.
    pub async fn commit(mut self) -> Result<u64> {
        let changed_rows = self.appended_rows + self.completed_rows;
        if changed_rows == 0 && self.other_changes == 0 {
            self.transaction.rollback().await?;
            return Ok(0);
        }

        if changed_rows > 0 {
            query(
                "insert into dataset (id, generation, loaded_at, origin)
                 values ($1, $4, $2, $3)
                 on conflict (id) do update
                 set generation = excluded.generation, loaded_at = greatest(dataset.loaded_at, excluded.loaded_at)",
            )
            .bind(self.dataset.id())
            .bind(self.known_at)
            .bind(self.origin.id())
            .bind(self.generation)
            .execute(&mut *self.transaction)
            .await?;
            query("select pg_notify('vintem_generation', $1)")
                .bind(self.dataset.id())
                .execute(&mut *self.transaction)
                .await?;
        }

        self.transaction.commit().await?;
        Ok(self.appended_rows)
    }

    /// The generation columns of a table that has them, and their values, each with a leading comma. `supersedes` is an
    /// SQL expression.
    fn generation_columns<T>(&self, table: &DataTable<T>, supersedes: &str) -> (&'static str, String) {
        if table.has_generation {
            (", generation, supersedes", format!(", {}, {supersedes}", self.generation))
        } else {
            ("", String::new())
        }
    }
}
