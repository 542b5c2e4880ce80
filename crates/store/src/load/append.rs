//! Appending: rows are staged by COPY, and those that differ from their newest stored version are inserted.

use sqlx::AssertSqlSafe;
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::{Company, CvmDataset, Series};

use super::LoadTransaction;
use super::missing_rows::{FullFileScope, MissingRowCounts};
use crate::Result;
use crate::copy_buffer::CopyBuffer;
use crate::pool::{query, query_scalar};
use crate::tables::bulletin::{BULLETIN_TABLE, NewBulletin};
use crate::tables::company::COMPANY_TABLE;
use crate::tables::filing::{FILING_TABLE, Filing};
use crate::tables::observation::{Observation, SeriesObservation, observation_table};
use crate::tables::security::{ListedSecurity, SECURITY_TABLE};
use crate::tables::table::DataTable;

/// COPY data is sent in chunks of about this size: large enough to be fast, small enough for memory not to matter.
const COPY_CHUNK_BYTES: usize = 1 << 20;

impl LoadTransaction {
    /// Appends observations, each date once per call. Those of a month that is not over are provisional.
    pub async fn append_observations(&mut self, series: &Series, rows: &[Observation]) -> Result<()> {
        let known_on = sao_paulo_date(self.known_at);
        let with_series = |observation: &Observation| {
            let is_provisional = series.is_provisional(observation.date, known_on);
            SeriesObservation { series: series.id, observation: Observation { is_provisional, ..*observation } }
        };
        let rows: Vec<SeriesObservation> = rows.iter().map(with_series).collect();

        self.append_rows(observation_table(series), &rows, None).await?;
        Ok(())
    }

    pub async fn append_bulletins(&mut self, rows: &[NewBulletin]) -> Result<()> {
        self.append_rows(&BULLETIN_TABLE, rows, None).await?;
        Ok(())
    }

    /// Appends companies, each code once. Former names are not stored, because earlier versions have them.
    pub async fn append_companies(&mut self, rows: &[Company]) -> Result<MissingRowCounts> {
        self.append_rows(&COMPANY_TABLE, rows, None).await
    }

    /// Appends the full registry. Stored companies that it lacks count as missing.
    pub async fn append_full_registry(&mut self, rows: &[Company]) -> Result<MissingRowCounts> {
        self.append_rows(&COMPANY_TABLE, rows, Some(FullFileScope::Registry)).await
    }

    /// Appends securities, each document and ticker once per call.
    pub async fn append_securities(&mut self, rows: &[ListedSecurity]) -> Result<()> {
        self.append_rows(&SECURITY_TABLE, rows, None).await?;
        Ok(())
    }

    /// Appends filings, each document once per call.
    pub async fn append_filings(&mut self, rows: &[Filing]) -> Result<MissingRowCounts> {
        self.append_rows(&FILING_TABLE, rows, None).await
    }

    /// Appends the full file of a dataset and year, each document once. Stored filings that it lacks count as missing.
    pub async fn append_full_filings(
        &mut self,
        rows: &[Filing],
        cvm_dataset: CvmDataset,
        year: i32,
    ) -> Result<MissingRowCounts> {
        self.append_rows(&FILING_TABLE, rows, Some(FullFileScope::Filings(cvm_dataset, year))).await
    }

    pub(super) async fn append_rows<T: 'static>(
        &mut self,
        table: &DataTable<T>,
        rows: &[T],
        full_file: Option<FullFileScope>,
    ) -> Result<MissingRowCounts> {
        self.stage_rows(table, rows).await?;
        if full_file.is_some() {
            self.index_staged_rows(table).await?;
        }
        if table.name == FILING_TABLE.name {
            self.separate_shared_filing_ids().await?;
        }
        let appended = self.append_changed_rows(table).await?;
        let completed = self.fill_missing_values(table, None).await?;
        let missing = match full_file {
            Some(scope) => self.mark_missing_rows(table, scope).await?,
            None => MissingRowCounts::default(),
        };

        self.appended_rows += appended + missing.marked_absent;
        self.completed_rows += completed;
        query("drop table staged").execute(&mut *self.transaction).await?;
        Ok(missing)
    }

    /// Copies rows into the temporary table `staged`.
    pub(super) async fn stage_rows<T: 'static>(&mut self, table: &DataTable<T>, rows: &[T]) -> Result<()> {
        let create = format!("create temporary table staged ({}) on commit drop", table.staging_columns());
        query(AssertSqlSafe(create)).execute(&mut *self.transaction).await?;

        let copy = format!("copy staged ({}) from stdin", table.column_names());
        let mut sink = self.transaction.copy_in_raw(&copy).await?;
        let mut buffer = CopyBuffer::default();
        for row in rows {
            table.write_fields(row, &mut buffer);
            buffer.end_row();
            if buffer.len() >= COPY_CHUNK_BYTES {
                sink.send(buffer.take_bytes()).await?;
            }
        }

        sink.send(buffer.take_bytes()).await?;
        sink.finish().await?;
        Ok(())
    }

    /// The planner has no statistics for the tables of a load yet; with an index on `staged` every plan is acceptable.
    ///
    /// Before anything changes keys of `staged`: PostgreSQL does not use an index in the transaction that created it after
    /// it updated the indexed column.
    async fn index_staged_rows<T: 'static>(&mut self, table: &DataTable<T>) -> Result<()> {
        let index = format!("create index on staged ({})", table.key_names());
        query(AssertSqlSafe(index)).execute(&mut *self.transaction).await?;
        Ok(())
    }

    /// Appends the staged rows that differ from their newest stored version, and emits their events if enabled.
    async fn append_changed_rows<T: 'static>(&mut self, table: &DataTable<T>) -> Result<u64> {
        let events = table.event_query.as_ref().zip(self.events_since);
        let changed = changed_rows_query(table);
        let insert = self.insert_changed_rows(table);

        let statement = match events {
            Some((event_query, _)) => format!(
                "with changed as materialized ({changed}), announced as (
                     insert into event (type, occurred_at, subject, dataset, generation)
                     select news.*, $4, {generation}
                     from ({news}) news
                 )
                 {insert} from changed",
                generation = self.generation,
                news = event_query.sql,
            ),
            None => format!("{insert} from ({changed}) changed"),
        };

        let mut query = query(AssertSqlSafe(statement)).bind(self.known_at).bind(self.fetch_id);
        if let Some((_, since)) = events {
            query = query.bind(since).bind(self.dataset.id());
        }

        let appended = query.execute(&mut *self.transaction).await?.rows_affected();
        if table.has_generation && self.is_older_than_stored_data().await? {
            self.mark_later_versions(table).await?;
        }

        Ok(appended)
    }

    /// Fills in what stored rows lack and equal staged rows have; only in rows of `fetch_id`, if given. Returns the
    /// number of rows.
    pub(super) async fn fill_missing_values<T: 'static>(
        &mut self,
        table: &DataTable<T>,
        fetch_id: Option<i64>,
    ) -> Result<u64> {
        let Some(fill) = table.fill_statement() else { return Ok(0) };
        let statement = format!("{fill} and ($1::bigint is null or {}.fetch_id = $1)", table.name);
        let filled = query(AssertSqlSafe(statement)).bind(fetch_id).execute(&mut *self.transaction).await?;
        Ok(filled.rows_affected())
    }

    /// The insert of changed rows, without its `from`. $1 is when we learned of them, $2 their fetch.
    fn insert_changed_rows<T: 'static>(&self, table: &DataTable<T>) -> String {
        let (generation_columns, generation_values) = self.generation_columns(table, "not is_new");
        format!(
            "insert into {name} ({columns}{generation_columns}, known_at, fetch_id)
             select {columns}{generation_values}, $1, $2",
            name = table.name,
            columns = table.data_column_names()
        )
    }

    /// Whether this load is more than a day older than the stored data; then rows that were the first version may not be
    /// the first any more. Concurrent loads also overtake each other, but by minutes and never with the same rows.
    async fn is_older_than_stored_data(&mut self) -> Result<bool> {
        Ok(query_scalar("select exists (select 1 from dataset where id = $1 and loaded_at > $2 + interval '1 day')")
            .bind(self.dataset.id())
            .bind(self.known_at)
            .fetch_one(&mut *self.transaction)
            .await?)
    }

    /// Marks later versions of the staged rows, which now have an earlier version.
    async fn mark_later_versions<T: 'static>(&mut self, table: &DataTable<T>) -> Result<()> {
        let supersede = format!(
            "update {name}
             set supersedes = true
             where not supersedes and known_at > $1 and ({key}) in (select {key} from staged)",
            name = table.name,
            key = table.key_names()
        );
        query(AssertSqlSafe(supersede)).bind(self.known_at).execute(&mut *self.transaction).await?;
        Ok(())
    }
}

/// Selects the staged rows that are new or differ from their newest stored version.
fn changed_rows_query<T: 'static>(table: &DataTable<T>) -> String {
    let old_columns = table.event_query.as_ref().map_or(&[][..], |query| query.old_columns);
    let old_values: String = old_columns.iter().map(|column| format!(", current.{column} as old_{column}")).collect();

    format!(
        "select staged.*, current.known_at is null as is_new{old_values}
         from staged
         left join lateral (
             select known_at, {columns}
             from {name}
             where {same_key} and known_at <= $1
             order by known_at desc
             limit 1
         ) current on true
         where current.known_at is null
            or {is_changed}",
        columns = table.data_column_names(),
        name = table.name,
        same_key = table.same_key_condition(),
        is_changed = table.is_changed_condition("current")
    )
}
