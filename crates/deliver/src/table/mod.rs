//! A table to write out: its columns and a source of rows, independent of the output format.

pub mod csv;
pub mod ndjson;
pub mod parquet;

use std::any::Any;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use chrono::{Datelike, NaiveDate};
use vintem_domain::Decimal;

/// The type of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    Text,
    TextList,
    Integer,
    Boolean,
    /// A date, or null.
    Date,
    /// A date written as the instant at which it began in São Paulo.
    DateAsMidnight,
    /// An exact decimal with at most this many decimal places, or null.
    Decimal(u32),
    /// Like `Decimal`, with up to [`WIDE_DECIMAL_PRECISION`] digits. It takes twice the space.
    WideDecimal(u32),
}

impl ColumnType {
    /// The name used in descriptions of the columns.
    pub fn type_name(self) -> Cow<'static, str> {
        match self {
            Self::Text => "text".into(),
            Self::TextList => "list of text".into(),
            Self::Integer => "integer".into(),
            Self::Boolean => "boolean".into(),
            Self::Date | Self::DateAsMidnight => "date".into(),
            Self::Decimal(scale) => format!("decimal({DECIMAL_PRECISION},{scale})").into(),
            Self::WideDecimal(scale) => format!("decimal({WIDE_DECIMAL_PRECISION},{scale})").into(),
        }
    }
}

/// The maximum number of digits of a decimal: as many as fit into 64 bits.
pub const DECIMAL_PRECISION: u32 = 18;
/// As many as fit into 128 bits.
pub const WIDE_DECIMAL_PRECISION: u32 = 38;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: Cow<'static, str>,
    pub column_type: ColumnType,
}

impl Column {
    pub const fn new(name: &'static str, column_type: ColumnType) -> Self {
        Self { name: Cow::Borrowed(name), column_type }
    }

    pub const fn text(name: &'static str) -> Self {
        Self::new(name, ColumnType::Text)
    }

    pub const fn text_list(name: &'static str) -> Self {
        Self::new(name, ColumnType::TextList)
    }

    pub const fn integer(name: &'static str) -> Self {
        Self::new(name, ColumnType::Integer)
    }

    pub const fn boolean(name: &'static str) -> Self {
        Self::new(name, ColumnType::Boolean)
    }

    pub const fn date(name: &'static str) -> Self {
        Self::new(name, ColumnType::Date)
    }

    pub const fn date_as_midnight(name: &'static str) -> Self {
        Self::new(name, ColumnType::DateAsMidnight)
    }

    pub const fn decimal(name: &'static str, scale: u32) -> Self {
        Self::new(name, ColumnType::Decimal(scale))
    }

    pub const fn wide_decimal(name: &'static str, scale: u32) -> Self {
        Self::new(name, ColumnType::WideDecimal(scale))
    }
}

/// Receives a row cell by cell, in the order and with the types of the columns.
pub trait CellWriter {
    /// Free text, which may contain anything.
    fn write_text(&mut self, text: &str);
    /// A number that is an identifier: it goes into a text column.
    fn write_code(&mut self, code: u32);
    fn write_text_list(&mut self, texts: &mut dyn Iterator<Item = &str>);
    fn write_integer(&mut self, number: i64);
    fn write_boolean(&mut self, flag: bool);
    fn write_date(&mut self, day: Option<NaiveDate>);
    fn write_date_as_midnight(&mut self, day: NaiveDate);
    fn write_decimal(&mut self, value: Option<Decimal>);
}

/// Writes the next row; false if there is none.
type WriteNextRow = Box<dyn FnMut(&mut dyn CellWriter) -> bool + Send>;

/// Why a table ended before its last row.
#[derive(Debug, Clone, Default)]
pub struct TableFailure(Arc<OnceLock<String>>);

impl TableFailure {
    pub fn message(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

pub struct OutputTable {
    pub name: &'static str,
    pub columns: Vec<Column>,
    write_row: WriteNextRow,
    failure: TableFailure,
    /// Dropped with the table: after its last row, or when nobody reads on.
    _guard: Option<Box<dyn Any + Send>>,
}

impl OutputTable {
    /// `write_row` writes the next row, or returns false if there is none.
    pub fn new(
        name: &'static str,
        columns: Vec<Column>,
        write_row: impl FnMut(&mut dyn CellWriter) -> bool + Send + 'static,
    ) -> Self {
        Self { name, columns, write_row: Box::new(write_row), failure: TableFailure::default(), _guard: None }
    }

    /// A table whose rows can become unreadable. It ends there, so its writer asks for the failure afterwards.
    pub fn fallible(
        name: &'static str,
        columns: Vec<Column>,
        mut write_row: impl FnMut(&mut dyn CellWriter) -> Result<bool, String> + Send + 'static,
    ) -> Self {
        let failure = TableFailure::default();
        let reported = failure.clone();
        let table = Self::new(name, columns, move |cells| {
            write_row(cells).unwrap_or_else(|message| {
                let _ = reported.0.set(message);
                false
            })
        });
        Self { failure, ..table }
    }

    /// Empty as long as every row could be read.
    pub fn failure(&self) -> TableFailure {
        self.failure.clone()
    }

    /// A table of rows that are written one after another.
    pub fn from_rows<Row>(
        name: &'static str,
        columns: Vec<Column>,
        rows: impl IntoIterator<Item = Row, IntoIter: Send + 'static>,
        mut write: impl FnMut(&Row, &mut dyn CellWriter) + Send + 'static,
    ) -> Self {
        let mut rows = rows.into_iter();
        Self::new(name, columns, move |cells| rows.next().map(|row| write(&row, cells)).is_some())
    }

    pub fn with_guard(self, guard: Option<impl Send + 'static>) -> Self {
        Self { _guard: guard.map(|guard| Box::new(guard) as Box<dyn Any + Send>), ..self }
    }

    /// Writes the next row; false if there is none.
    pub fn write_next_row(&mut self, cells: &mut dyn CellWriter) -> bool {
        (self.write_row)(cells)
    }
}

/// `YYYY-MM-DD`, digit by digit for speed: a long table has millions of dates.
fn write_iso_date(day: NaiveDate, buffer: &mut Vec<u8>) {
    let year = u32::try_from(day.year()).unwrap_or(0);
    let digit = |number: u32| b'0' + (number % 10) as u8;
    buffer.extend([digit(year / 1000), digit(year / 100), digit(year / 10), digit(year), b'-']);
    buffer.extend([digit(day.month() / 10), digit(day.month()), b'-']);
    buffer.extend([digit(day.day() / 10), digit(day.day())]);
}

#[cfg(test)]
mod sample_tables {
    use super::*;

    pub fn table_with_every_column_type(rows: u32) -> OutputTable {
        let columns = vec![
            Column::text("id"),
            Column::text("name"),
            Column::text_list("tickers"),
            Column::integer("version"),
            Column::boolean("is_latest"),
            Column::date("reference_date"),
            Column::date_as_midnight("date"),
            Column::decimal("value", 6),
        ];
        let mut row = 0;
        OutputTable::new("samples", columns, move |cells| {
            row += 1;
            if row > rows {
                return false;
            }

            let day = NaiveDate::from_ymd_opt(2026, 2, 11);
            cells.write_code(row);
            cells.write_text("=Açúcar \"União\", S.A.");
            cells.write_text_list(&mut ["UNIA3", "UNIA4"].into_iter().take(row as usize % 3));
            cells.write_integer(-7);
            cells.write_boolean(row.is_multiple_of(2));
            cells.write_date(day.filter(|_| row != 1));
            cells.write_date_as_midnight(day.expect("a day of the calendar"));
            cells.write_decimal((row != 3).then(|| Decimal::new(-53_400, 6)));
            true
        })
    }
}
