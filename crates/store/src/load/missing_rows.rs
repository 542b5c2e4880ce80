//! Rows that a full file no longer has. Rows missing from a second such file are marked as absent.

use sqlx::{AssertSqlSafe, Row};
use vintem_domain::CvmDataset;

use super::LoadTransaction;
use crate::Result;
use crate::pool::query;
use crate::tables::table::DataTable;

/// The stored rows that a full file covers. Rows in this scope that the file lacks count as missing.
#[derive(Debug, Clone, Copy)]
pub(super) enum FullFileScope {
    Registry,
    /// CVM's file for a dataset and year: by delivery date for IPE, by reference date for the others.
    Filings(CvmDataset, i32),
}

/// Counts of rows that a full file no longer has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MissingRowCounts {
    /// Missing for the first time.
    pub newly_missing: u64,
    /// Missing from a second good file, and so marked as absent.
    pub marked_absent: u64,
    /// Missing from a second good file, but not marked, because too many were missing at once.
    pub rejected: u64,
}

/// How the rows of the table `gone` compare with those of the file.
struct GoneRowCounts {
    missing_again: u64,
    newly_missing: u64,
    /// The rows that the file has.
    staged: u64,
}

/// If a larger share of a file's rows is missing at once, the file must be wrong.
const MAX_MISSING_PERCENT: u64 = 5;

impl LoadTransaction {
    /// Remembers current rows that a full file lacks. Rows missing from a second such file are marked as absent.
    pub(super) async fn mark_missing_rows<T: 'static>(
        &mut self,
        table: &DataTable<T>,
        full_file: FullFileScope,
    ) -> Result<MissingRowCounts> {
        self.find_gone_rows(table, full_file).await?;
        self.forget_returned_rows(table).await?;

        let GoneRowCounts { missing_again, newly_missing, staged } = self.count_gone_rows().await?;
        self.remember_gone_rows().await?;

        let mut missing = MissingRowCounts { newly_missing, marked_absent: 0, rejected: 0 };
        if missing_again * 100 > (staged + missing_again) * MAX_MISSING_PERCENT {
            missing.rejected = missing_again;
        } else if missing_again > 0 {
            missing.marked_absent = self.append_absent_versions(table).await?;
        }

        // Newly missing rows must be committed, although nothing is appended.
        self.other_changes += newly_missing;
        query("drop table gone").execute(&mut *self.transaction).await?;
        Ok(missing)
    }

    /// Creates the temporary table `gone`: the keys of current rows that the file lacks, and whether an earlier file
    /// lacked them too (`again`).
    async fn find_gone_rows<T: 'static>(&mut self, table: &DataTable<T>, full_file: FullFileScope) -> Result<()> {
        let key = table.key_names();
        let gone = format!(
            "create temporary table gone on commit drop as
             select current.{key}::text as key, missing_row.key is not null as again
             from (
                 select distinct on ({key}) {key}, absent
                 from {name}
                 where {scope}
                 order by {key}, known_at desc
             ) current
             left join missing_row
                 on missing_row.dataset = $1
                and missing_row.key = current.{key}::text
                and missing_row.first_missed_in <> $2
             where not current.absent
               and not exists (select 1 from staged where staged.{key} = current.{key})",
            name = table.name,
            scope = full_file.sql_condition()
        );
        query(AssertSqlSafe(gone))
            .bind(self.dataset.id())
            .bind(self.sha256.as_slice())
            .execute(&mut *self.transaction)
            .await?;

        Ok(())
    }

    /// Rows that came back are no longer missing.
    async fn forget_returned_rows<T: 'static>(&mut self, table: &DataTable<T>) -> Result<()> {
        let delete = format!(
            "delete from missing_row
             where dataset = $1 and key in (select {key}::text from staged)",
            key = table.key_names()
        );
        query(AssertSqlSafe(delete)).bind(self.dataset.id()).execute(&mut *self.transaction).await?;
        Ok(())
    }

    async fn count_gone_rows(&mut self) -> Result<GoneRowCounts> {
        let row = query(
            "select count(*) filter (where again) as missing_again,
                    count(*) filter (where not again) as newly_missing,
                    (select count(*) from staged) as staged
             from gone",
        )
        .fetch_one(&mut *self.transaction)
        .await?;

        let count = |name: &str| -> Result<u64> { Ok(row.try_get::<i64, _>(name)?.unsigned_abs()) };
        Ok(GoneRowCounts {
            missing_again: count("missing_again")?,
            newly_missing: count("newly_missing")?,
            staged: count("staged")?,
        })
    }

    async fn remember_gone_rows(&mut self) -> Result<()> {
        query(
            "insert into missing_row (dataset, key, first_missed_in)
             select $1, key, $2
             from gone
             on conflict do nothing",
        )
        .bind(self.dataset.id())
        .bind(self.sha256.as_slice())
        .execute(&mut *self.transaction)
        .await?;

        Ok(())
    }

    /// Appends an absent version of the rows that are missing again: a copy of their current one. Returns their number.
    async fn append_absent_versions<T: 'static>(&mut self, table: &DataTable<T>) -> Result<u64> {
        let (generation_columns, generation_values) = self.generation_columns(table, "true");
        let insert = format!(
            "insert into {name} ({columns}{generation_columns}, absent, known_at, fetch_id)
             select distinct on ({key}) {columns}{generation_values}, true, $1, $2
             from {name}
             where {key}::text in (select key from gone where again)
             order by {key}, known_at desc",
            name = table.name,
            columns = table.column_names(),
            key = table.key_names()
        );
        let marked = query(AssertSqlSafe(insert))
            .bind(self.known_at)
            .bind(self.fetch_id)
            .execute(&mut *self.transaction)
            .await?;

        query("delete from missing_row where dataset = $1 and key in (select key from gone where again)")
            .bind(self.dataset.id())
            .execute(&mut *self.transaction)
            .await?;

        Ok(marked.rows_affected())
    }
}

impl FullFileScope {
    /// Selects the stored rows that the file covers.
    fn sql_condition(self) -> String {
        match self {
            Self::Registry => "true".to_owned(),
            Self::Filings(set, year) => {
                let day = if set == CvmDataset::Ipe { "delivered_on" } else { "reference_date" };
                let set = set.id();
                format!("filing_set = '{set}' and {day} between make_date({year}, 1, 1) and make_date({year}, 12, 31)")
            }
        }
    }
}
