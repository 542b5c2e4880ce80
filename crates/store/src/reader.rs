//! Reads the current version of all data for the snapshot, in one repeatable-read transaction.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, NaiveDate, Utc};
use futures_util::TryStreamExt;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row, Transaction};
use vintem_domain::{Company, Currency, DataOrigin, Dataset, Series};

pub use crate::tables::bulletin::BulletinRow;
pub use crate::tables::filing::FilingRow;
pub use crate::tables::statement::StatementRow;
pub use crate::tables::stored_values::RowProvenance;

use crate::change_id::ChangeId;
use crate::pool::{query, query_scalar};
use crate::sources::CheckedValues;
use crate::tables::bulletin::BULLETIN_TABLE;
use crate::tables::company::load_companies;
use crate::tables::data_table_names;
use crate::tables::filing::FILING_TABLE;
use crate::tables::observation::{OBSERVATION_TABLE, Observation};
use crate::tables::statement::STATEMENT_TABLE;
use crate::{BACKGROUND_TIMEOUT, Result, Store, StoreError, disable_timeouts_in_transaction, with_timeout};

/// The state of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetState {
    /// Stays the same as long as each generation builds on the one before.
    pub lineage: String,
    pub generation: i64,
    /// Of the change that made this generation. After a restore, another change may make one of the same number.
    pub load_id: ChangeId,
    pub loaded_at: DateTime<Utc>,
    pub origin: DataOrigin,
}

/// One fetch: what was fetched, when and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRow {
    pub source_url: String,
    pub fetched_at: DateTime<Utc>,
    pub sha256: [u8; 32],
}

/// A consistent view of the database at one moment.
#[derive(Debug)]
pub struct SnapshotReader {
    transaction: Transaction<'static, Postgres>,
    /// The fetches of the rows that were read.
    fetch_ids: HashSet<u32>,
}

impl Store {
    pub async fn open_reader(&self) -> Result<SnapshotReader> {
        let mut transaction = self.pool.begin().await?;
        query("set transaction isolation level repeatable read, read only").execute(&mut *transaction).await?;
        disable_timeouts_in_transaction(&mut transaction).await?;

        // Locked before the view is taken: `truncate` is not MVCC-safe, so it must not run in between.
        let lock = format!("lock table {} in access share mode", data_table_names());
        query(AssertSqlSafe(lock)).execute(&mut *transaction).await?;

        Ok(SnapshotReader { transaction, fetch_ids: HashSet::new() })
    }

    /// The states of all datasets that were ever loaded.
    pub async fn dataset_states(&self) -> Result<HashMap<Dataset, DatasetState>> {
        with_timeout(BACKGROUND_TIMEOUT, async { load_dataset_states(&mut *self.pool.begin().await?).await }).await
    }

    /// A database contains either demo data or real data, never both.
    pub async fn has_synthetic_data(&self) -> Result<bool> {
        let states = self.dataset_states().await?;
        Ok(states.values().any(|state| state.origin == DataOrigin::Synthetic))
    }
}

impl SnapshotReader {
    pub async fn dataset_states(&mut self) -> Result<HashMap<Dataset, DatasetState>> {
        load_dataset_states(&mut self.transaction).await
    }

    /// Which of these states the database has been in: what was read then needs only the changes since.
    pub async fn past_states(&mut self, states: &HashMap<Dataset, DatasetState>) -> Result<HashSet<Dataset>> {
        let column = |value: fn(&DatasetState) -> String| states.values().map(value).collect::<Vec<_>>();
        let ids: Vec<String> = query_scalar(
            "select dataset.id
             from unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) as given (id, lineage, generation, load_id)
             join dataset on dataset.id = given.id and dataset.lineage || '/' || current_epoch() = given.lineage
             join dataset_load on dataset_load.dataset = given.id and dataset_load.generation = given.generation
                              and dataset_load.load_id = given.load_id::uuid",
        )
        .bind(states.keys().map(|dataset| dataset.id()).collect::<Vec<_>>())
        .bind(column(|state| state.lineage.clone()))
        .bind(states.values().map(|state| state.generation).collect::<Vec<_>>())
        .bind(column(|state| state.load_id.to_uuid()))
        .fetch_all(&mut *self.transaction)
        .await?;
        Ok(ids.iter().filter_map(|id| Dataset::from_id(id)).collect())
    }

    /// The fetches of all rows read so far and all newer fetches, by id, without those that are known already. A load
    /// may commit after another one with a higher id, so newer ids alone would miss some.
    pub async fn fetches_except(&mut self, known: &HashMap<u32, FetchRow>) -> Result<HashMap<u32, FetchRow>> {
        let unknown = self.fetch_ids.iter().filter(|id| !known.contains_key(id));
        let rows = query(
            "select id, address, fetched_at, sha256
             from raw_fetch
             where id > $1 or id = any($2)",
        )
        .bind(known.keys().max().copied().map_or(0, i64::from))
        .bind(unknown.copied().map(i64::from).collect::<Vec<_>>())
        .fetch_all(&mut *self.transaction)
        .await?;

        let parse_row = |row: &PgRow| {
            let id: i64 = row.try_get("id")?;
            let fetched_at: DateTime<Utc> = row.try_get("fetched_at")?;
            let sha256: &[u8] = row.try_get("sha256")?;
            let sha256 =
                sha256.try_into().map_err(|_| StoreError::UnreadableData(format!("the checksum of the fetch {id}")))?;

            let provenance = RowProvenance::new(fetched_at, id)?;
            Ok((provenance.fetch_id, FetchRow { source_url: row.try_get("address")?, fetched_at, sha256 }))
        };
        rows.iter().map(parse_row).collect()
    }

    /// The current values of a series, oldest first, each date once.
    pub async fn observations(&mut self, series: &Series) -> Result<Vec<(Observation, RowProvenance)>> {
        let rows = load_current_observations(&mut self.transaction, series.id).await?;
        self.fetch_ids.extend(rows.iter().map(|(_, provenance)| provenance.fetch_id));
        Ok(rows)
    }

    /// The days on which a cross-check found that these values do not agree with others, oldest first.
    pub async fn disputed_days(&mut self, values: CheckedValues) -> Result<Vec<NaiveDate>> {
        let days = query_scalar(
            "select distinct ref_date
             from disputed_day
             where dataset = $1 and part = $2
             order by ref_date",
        );
        Ok(days.bind(values.dataset().id()).bind(values.part()).fetch_all(&mut *self.transaction).await?)
    }

    /// Visits the current version of every bulletin of a currency, in order of publication.
    pub async fn for_each_bulletin(
        &mut self,
        currency: Currency,
        mut on_row: impl FnMut(BulletinRow<'_>),
    ) -> Result<()> {
        let statement = format!(
            "select distinct on (ref_date, published_at, bulletin) {columns}
             from fx_bulletin
             where currency = $1
             order by ref_date, published_at, bulletin, known_at desc",
            columns = BULLETIN_TABLE.select_list("fx_bulletin")
        );
        let mut rows = query(AssertSqlSafe(statement)).bind(currency.code()).fetch(&mut *self.transaction);

        while let Some(row) = rows.try_next().await? {
            let row = BulletinRow::read(&row)?;
            self.fetch_ids.insert(row.provenance.fetch_id);
            on_row(row);
        }
        Ok(())
    }

    /// The companies of the registry, with the names from earlier versions.
    pub async fn companies(&mut self) -> Result<Vec<(Company, RowProvenance)>> {
        let companies = load_companies(&mut self.transaction, None).await?;
        self.fetch_ids.extend(companies.iter().map(|(_, provenance, _)| provenance.fetch_id));
        Ok(companies.into_iter().map(|(company, provenance, _)| (company, provenance)).collect())
    }

    /// Visits the current version of every filing, in no particular order.
    pub async fn for_each_filing(&mut self, mut on_row: impl FnMut(FilingRow<'_>)) -> Result<()> {
        let statement = format!(
            "select {columns}
             from filing_version filing
             where not absent
               and not exists (
                   select 1
                   from filing_version newer
                   where newer.id = filing.id and newer.known_at > filing.known_at
               )",
            columns = FILING_TABLE.select_list("filing")
        );
        let mut rows = query(AssertSqlSafe(statement)).fetch(&mut *self.transaction);

        while let Some(row) = rows.try_next().await? {
            let filing = FilingRow::read(&row)?;
            self.fetch_ids.insert(filing.provenance.fetch_id);
            on_row(filing);
        }
        Ok(())
    }

    /// Visits the filings that changed after this generation, each in its current version, with whether it is absent.
    pub async fn for_each_filing_since(
        &mut self,
        generation: i64,
        mut on_row: impl FnMut(FilingRow<'_>, bool),
    ) -> Result<()> {
        // Only a few of millions of rows match. A fresh load has no statistics, so the planner would scan the whole
        // table.
        query("set local enable_seqscan = off").execute(&mut *self.transaction).await?;
        let statement = format!(
            "select distinct on (id) {columns}, absent
             from filing_version filing
             where id = any(array(select id from filing_version where generation > $1))
             order by id, known_at desc",
            columns = FILING_TABLE.select_list("filing")
        );
        let mut rows = query(AssertSqlSafe(statement)).bind(generation).fetch(&mut *self.transaction);

        while let Some(row) = rows.try_next().await? {
            let filing = FilingRow::read(&row)?;
            self.fetch_ids.insert(filing.provenance.fetch_id);
            on_row(filing, row.try_get("absent")?);
        }

        drop(rows);
        query("set local enable_seqscan = on").execute(&mut *self.transaction).await?;
        Ok(())
    }

    /// Visits the forms of documents that were stored after this generation; all of them after the generation -1. Those of a
    /// company follow each other.
    pub async fn for_each_statement_since(
        &mut self,
        generation: i64,
        mut on_row: impl FnMut(StatementRow<'_>),
    ) -> Result<()> {
        let statement = format!(
            "select {columns}, compressed
             from statement_document statement
             join raw_body on sha256 = body
             where generation > $1
             order by cvm_code, filing_set, reference_date, version, known_at",
            columns = STATEMENT_TABLE.select_list("statement")
        );
        let mut rows = query(AssertSqlSafe(statement)).bind(generation).fetch(&mut *self.transaction);

        while let Some(row) = rows.try_next().await? {
            let statement = StatementRow::read(&row)?;
            self.fetch_ids.insert(statement.provenance.fetch_id);
            on_row(statement);
        }
        Ok(())
    }
}

/// The current values of a series, oldest first, each date once.
pub(crate) async fn load_current_observations(
    connection: &mut PgConnection,
    series_id: &str,
) -> Result<Vec<(Observation, RowProvenance)>> {
    let statement = format!(
        "select distinct on (ref_date) {columns}
         from observation
         where series = $1
         order by ref_date, known_at desc",
        columns = OBSERVATION_TABLE.select_list("observation")
    );
    let rows = query(AssertSqlSafe(statement)).bind(series_id).fetch_all(connection).await?;
    rows.iter().map(Observation::read).collect()
}

async fn load_dataset_states(connection: &mut PgConnection) -> Result<HashMap<Dataset, DatasetState>> {
    let rows = query(
        "select id, lineage || '/' || current_epoch() as lineage, generation, load_id::text as load_id, loaded_at, origin
         from dataset",
    )
    .fetch_all(connection)
    .await?;

    let mut states = HashMap::new();
    for row in rows {
        let origin: &str = row.try_get("origin")?;
        let origin =
            DataOrigin::from_id(origin).ok_or_else(|| StoreError::UnreadableData(format!("origin {origin}")))?;

        // Datasets of a newer version are unknown to this one.
        let Some(dataset) = Dataset::from_id(row.try_get("id")?) else { continue };
        let state = DatasetState {
            lineage: row.try_get("lineage")?,
            generation: row.try_get("generation")?,
            load_id: ChangeId::parse(row.try_get("load_id")?)?,
            loaded_at: row.try_get("loaded_at")?,
            origin,
        };
        states.insert(dataset, state);
    }
    Ok(states)
}
