//! How a data table is described: each column once. From this list come the staging table, the COPY, the comparison with
//! stored versions, the insert, and the select lists of all readers.

use chrono::{NaiveDate, NaiveDateTime};
use vintem_domain::Decimal;

use crate::copy_buffer::CopyBuffer;

/// A table of versions. The newest row of a key is its current version. `T` is a row as a load passes it.
///
/// Each table also has `known_at` (when we learned of the version) and `fetch_id` (where it comes from).
#[derive(Debug)]
pub struct DataTable<T: 'static> {
    pub name: &'static str,
    pub columns: &'static [TableColumn<T>],
    /// Whether the removal of a row is a version too, marked in the column `absent`.
    pub records_absence: bool,
    /// Whether rows store the generation that appended them (`generation`), and whether they replaced an earlier
    /// version (`supersedes`).
    pub has_generation: bool,
    pub event_query: Option<EventQuery>,
}

#[derive(Debug)]
pub struct TableColumn<T> {
    pub name: &'static str,
    pub is_key: bool,
    /// Whether a missing value is unknown, not different: a row that has it fills it in, without a new version.
    pub is_fillable: bool,
    pub value: ColumnValue<T>,
}

/// The SQL type of a column, and its value in a row.
#[derive(Debug)]
pub enum ColumnValue<T> {
    Text(fn(&T) -> &str),
    TextArray(fn(&T) -> &[String]),
    Smallint(fn(&T) -> u16),
    Integer(fn(&T) -> u32),
    Bigint(fn(&T) -> i64),
    Boolean(fn(&T) -> bool),
    /// Compared with its scale and read as text, because we serve the text: 15.0 and 15.00 are different values.
    Numeric(fn(&T) -> Decimal),
    OptionalNumeric(fn(&T) -> Option<Decimal>),
    Date(fn(&T) -> NaiveDate),
    OptionalDate(fn(&T) -> Option<NaiveDate>),
    Timestamp(fn(&T) -> NaiveDateTime),
    Bytes(fn(&T) -> &[u8]),
}

/// Selects the events of changed rows.
#[derive(Debug)]
pub struct EventQuery {
    /// The columns whose replaced values the query reads, as `old_…`.
    pub old_columns: &'static [&'static str],
    /// Reads from `changed`, where `is_new` says whether a row has no earlier version, and returns the columns of
    /// `event`. $1 is when we learned of the rows, $3 the first day with events.
    pub sql: &'static str,
}

/// The columns after the table's own in [`DataTable::select_list`].
const PROVENANCE_COLUMNS: [&str; 2] = ["known_at", "fetch_id"];

impl<T> TableColumn<T> {
    /// A column of the key, which says what a row is a version of.
    pub const fn key(name: &'static str, value: ColumnValue<T>) -> Self {
        Self { name, is_key: true, is_fillable: false, value }
    }

    /// A column whose change is a new version.
    pub const fn value(name: &'static str, value: ColumnValue<T>) -> Self {
        Self { name, is_key: false, is_fillable: false, value }
    }

    /// A column that earlier rows lack, although the response they were parsed from has its value.
    pub const fn fillable(name: &'static str, value: ColumnValue<T>) -> Self {
        Self { name, is_key: false, is_fillable: true, value }
    }

    const fn sql_type(&self) -> &'static str {
        match self.value {
            ColumnValue::Text(_) => "text",
            ColumnValue::TextArray(_) => "text[]",
            ColumnValue::Smallint(_) => "smallint",
            ColumnValue::Integer(_) => "integer",
            ColumnValue::Bigint(_) => "bigint",
            ColumnValue::Boolean(_) => "boolean",
            ColumnValue::Numeric(_) | ColumnValue::OptionalNumeric(_) => "numeric",
            ColumnValue::Date(_) | ColumnValue::OptionalDate(_) => "date",
            ColumnValue::Timestamp(_) => "timestamp",
            ColumnValue::Bytes(_) => "bytea",
        }
    }

    fn write_field(&self, row: &T, line: &mut CopyBuffer) {
        match self.value {
            ColumnValue::Text(value) => line.text(value(row)),
            ColumnValue::TextArray(value) => line.text_array(value(row)),
            ColumnValue::Smallint(value) => line.integer(value(row)),
            ColumnValue::Integer(value) => line.integer(value(row)),
            ColumnValue::Bigint(value) => line.integer(value(row)),
            ColumnValue::Boolean(value) => line.boolean(value(row)),
            ColumnValue::Numeric(value) => line.decimal(value(row)),
            ColumnValue::OptionalNumeric(value) => line.optional_decimal(value(row)),
            ColumnValue::Date(value) => line.date(value(row)),
            ColumnValue::OptionalDate(value) => line.optional_date(value(row)),
            ColumnValue::Timestamp(value) => line.date_time(value(row)),
            ColumnValue::Bytes(value) => line.bytes(value(row)),
        };
    }

    /// The value as compared with the row `other`.
    fn compared_terms(&self, alias: &str, other: &str) -> String {
        let name = self.name;
        let value = if self.is_fillable {
            // A missing value equals any other.
            format!("coalesce({alias}.{name}, {other}.{name})")
        } else {
            format!("{alias}.{name}")
        };

        match self.value {
            ColumnValue::Numeric(_) | ColumnValue::OptionalNumeric(_) => format!("{value}, scale({value})"),
            _ => value,
        }
    }

    fn select_term(&self, alias: &str) -> String {
        let name = self.name;
        match self.value {
            ColumnValue::Numeric(_) | ColumnValue::OptionalNumeric(_) => format!("{alias}.{name}::text as {name}"),
            _ => format!("{alias}.{name}"),
        }
    }
}

impl<T: 'static> DataTable<T> {
    /// The position of a column in [`DataTable::select_list`]. Readers look names up in constants, because a lookup for
    /// each cell would slow down reading millions of rows; a wrong name does not compile.
    pub const fn position(&self, name: &str) -> usize {
        let mut index = 0;
        while index < self.columns.len() {
            if is_same_text(self.columns[index].name, name) {
                return index;
            }
            index += 1;
        }

        let mut offset = 0;
        while offset < PROVENANCE_COLUMNS.len() {
            if is_same_text(PROVENANCE_COLUMNS[offset], name) {
                return self.columns.len() + offset;
            }
            offset += 1;
        }

        panic!("the table has no such column");
    }

    /// A hash of the columns' names and types: changes with every change of the columns.
    pub const fn fingerprint(&self) -> u64 {
        let mut hash = FNV_OFFSET;
        let mut index = 0;
        while index < self.columns.len() {
            hash = hash_text(hash, self.columns[index].name);
            hash = hash_text(hash, self.columns[index].sql_type());
            index += 1;
        }
        hash
    }

    /// What readers select: the table's columns, then `known_at` and `fetch_id`.
    pub fn select_list(&self, alias: &str) -> String {
        let columns = self.columns.iter().map(|column| column.select_term(alias));
        let provenance = PROVENANCE_COLUMNS.iter().map(|name| format!("{alias}.{name}"));
        join(columns.chain(provenance), ", ")
    }

    /// The names of the columns in the order in which [`DataTable::write_fields`] writes them.
    pub fn column_names(&self) -> String {
        join(self.columns.iter().map(|column| column.name), ", ")
    }

    /// Writes the table's columns as the next fields of a row, without ending it.
    pub fn write_fields(&self, row: &T, line: &mut CopyBuffer) {
        for column in self.columns {
            column.write_field(row, line);
        }
    }

    /// The names of all columns that hold data, `absent` included.
    pub fn data_column_names(&self) -> String {
        let absent = self.records_absence.then_some("absent");
        join(self.columns.iter().map(|column| column.name).chain(absent), ", ")
    }

    pub(crate) fn staging_columns(&self) -> String {
        let columns = self.columns.iter().map(|column| format!("{} {}", column.name, column.sql_type()));
        let absent = self.records_absence.then(|| "absent boolean default false".to_owned());
        join(columns.chain(absent), ", ")
    }

    pub(crate) fn key_names(&self) -> String {
        join(self.columns.iter().filter(|column| column.is_key).map(|column| column.name), ", ")
    }

    /// True for a staged row and a stored version of the same key.
    pub(crate) fn same_key_condition(&self) -> String {
        let table = self.name;
        let keys = self.columns.iter().filter(|column| column.is_key).map(|column| column.name);
        join(keys.map(|key| format!("{table}.{key} = staged.{key}")), " and ")
    }

    /// True for a staged row that differs from a stored version.
    pub(crate) fn is_changed_condition(&self, stored: &str) -> String {
        let terms = |alias: &str, other: &str| {
            let values = self.columns.iter().filter(|column| !column.is_key);
            let absent = self.records_absence.then(|| format!("{alias}.absent"));
            join(values.map(|column| column.compared_terms(alias, other)).chain(absent), ", ")
        };
        format!("({}) is distinct from ({})", terms(stored, "staged"), terms("staged", stored))
    }

    /// The update that fills in values which stored rows lack and equal staged rows have. More conditions may follow.
    /// `None` for a table without fillable columns; all of them are filled in together.
    pub(crate) fn fill_statement(&self) -> Option<String> {
        let table = self.name;
        let fillable: Vec<&str> =
            self.columns.iter().filter(|column| column.is_fillable).map(|column| column.name).collect();
        if fillable.is_empty() {
            return None;
        }

        let assignments = join(fillable.iter().map(|name| format!("{name} = staged.{name}")), ", ");
        let is_missing = |name: &&str| format!("{table}.{name} is null and staged.{name} is not null");
        let are_missing = join(fillable.iter().map(is_missing), " and ");
        Some(format!(
            "update {table}
             set {assignments}
             from staged
             where {same_key} and {are_missing} and not ({is_changed})",
            same_key = self.same_key_condition(),
            is_changed = self.is_changed_condition(table)
        ))
    }
}

fn join(parts: impl Iterator<Item = impl Into<String>>, separator: &str) -> String {
    parts.map(Into::into).collect::<Vec<String>>().join(separator)
}

const fn is_same_text(left: &str, right: &str) -> bool {
    let left = left.as_bytes();
    let right = right.as_bytes();
    if left.len() != right.len() {
        return false;
    }

    let mut index = 0;
    while index < left.len() {
        if left[index] != right[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// FNV-1a, which is short enough to be computed by the compiler.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

const fn hash_text(mut hash: u64, text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(FNV_PRIME);
        index += 1;
    }

    // Separates the texts, so that `ab, c` and `a, bc` differ.
    (hash ^ b'\n' as u64).wrapping_mul(FNV_PRIME)
}
