//! A list: its columns, and what writes one row after the other, whatever it is written as.

pub mod csv;
pub mod ndjson;
pub mod parquet;

use std::any::Any;
use std::borrow::Cow;

use chrono::{Datelike, NaiveDate};
use vintem_domain::Decimal;

/// What the cells of a column hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// Any number of texts.
    Texts,
    Whole,
    Flag,
    /// A day, or nothing.
    Day,
    /// A day told as the instant at which it began in São Paulo.
    Midnight,
    /// An exact decimal with at most so many decimals, or nothing.
    Decimal(u32),
}

impl Kind {
    /// As a description of the columns says it.
    pub fn id(self) -> Cow<'static, str> {
        match self {
            Self::Text => "text".into(),
            Self::Texts => "list of text".into(),
            Self::Whole => "integer".into(),
            Self::Flag => "boolean".into(),
            Self::Day | Self::Midnight => "date".into(),
            Self::Decimal(scale) => format!("decimal({PRECISION},{scale})").into(),
        }
    }
}

/// How many digits a decimal has at most, which is as many as fit into 64 bits.
pub const PRECISION: u32 = 18;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: Cow<'static, str>,
    pub kind: Kind,
}

impl Column {
    pub const fn new(name: &'static str, kind: Kind) -> Self {
        Self { name: Cow::Borrowed(name), kind }
    }

    pub const fn text(name: &'static str) -> Self {
        Self::new(name, Kind::Text)
    }

    pub const fn texts(name: &'static str) -> Self {
        Self::new(name, Kind::Texts)
    }

    pub const fn whole(name: &'static str) -> Self {
        Self::new(name, Kind::Whole)
    }

    pub const fn flag(name: &'static str) -> Self {
        Self::new(name, Kind::Flag)
    }

    pub const fn day(name: &'static str) -> Self {
        Self::new(name, Kind::Day)
    }

    pub const fn midnight(name: &'static str) -> Self {
        Self::new(name, Kind::Midnight)
    }

    pub const fn decimal(name: &'static str, scale: u32) -> Self {
        Self::new(name, Kind::Decimal(scale))
    }
}

/// What a row is written into, cell by cell, in the order and of the kinds of the columns.
pub trait Cells {
    /// What people wrote.
    fn text(&mut self, text: &str);
    /// A number that is a name: in a column of text.
    fn code(&mut self, code: u32);
    fn texts(&mut self, texts: &mut dyn Iterator<Item = &str>);
    fn whole(&mut self, number: i64);
    fn flag(&mut self, flag: bool);
    fn day(&mut self, day: Option<NaiveDate>);
    fn midnight(&mut self, day: NaiveDate);
    fn decimal(&mut self, value: Option<Decimal>);
}

/// Writes the next row, or is false where there is none.
type WriteNext = Box<dyn FnMut(&mut dyn Cells) -> bool + Send>;

pub struct Table {
    pub name: &'static str,
    pub columns: Vec<Column>,
    next: WriteNext,
    /// What is kept until the last row is written, or nobody reads on.
    _held: Option<Box<dyn Any + Send>>,
}

impl Table {
    /// `next` writes the next row, or is false where there is none.
    pub fn new(
        name: &'static str,
        columns: Vec<Column>,
        next: impl FnMut(&mut dyn Cells) -> bool + Send + 'static,
    ) -> Self {
        Self { name, columns, next: Box::new(next), _held: None }
    }

    /// Of rows that are there already.
    pub fn of<Row: Send + 'static>(
        name: &'static str,
        columns: Vec<Column>,
        rows: Vec<Row>,
        mut write: impl FnMut(&Row, &mut dyn Cells) + Send + 'static,
    ) -> Self {
        let mut rows = rows.into_iter();
        Self::new(name, columns, move |cells| rows.next().map(|row| write(&row, cells)).is_some())
    }

    pub fn holding(self, held: Option<impl Send + 'static>) -> Self {
        Self { _held: held.map(|held| Box::new(held) as Box<dyn Any + Send>), ..self }
    }

    /// Writes the next row, or is false where there is none.
    pub fn write_next(&mut self, cells: &mut dyn Cells) -> bool {
        (self.next)(cells)
    }
}

/// `YYYY-MM-DD`, digit by digit: a long list has millions of them.
fn write_day(day: NaiveDate, into: &mut Vec<u8>) {
    let year = u32::try_from(day.year()).unwrap_or(0);
    let digit = |number: u32| b'0' + (number % 10) as u8;
    into.extend([digit(year / 1000), digit(year / 100), digit(year / 10), digit(year), b'-']);
    into.extend([digit(day.month() / 10), digit(day.month()), b'-']);
    into.extend([digit(day.day() / 10), digit(day.day())]);
}

#[cfg(test)]
mod samples {
    use super::*;

    /// A table with a column of each kind.
    pub fn of_every_kind(rows: u32) -> Table {
        let columns = vec![
            Column::text("id"),
            Column::text("name"),
            Column::texts("tickers"),
            Column::whole("version"),
            Column::flag("is_latest"),
            Column::day("reference_date"),
            Column::midnight("date"),
            Column::decimal("value", 6),
        ];
        let mut row = 0;
        Table::new("samples", columns, move |cells| {
            row += 1;
            if row > rows {
                return false;
            }
            let day = NaiveDate::from_ymd_opt(2026, 2, 11);
            cells.code(row);
            cells.text("=Açúcar \"União\", S.A.");
            cells.texts(&mut ["UNIA3", "UNIA4"].into_iter().take(row as usize % 3));
            cells.whole(-7);
            cells.flag(row.is_multiple_of(2));
            cells.day(day.filter(|_| row != 1));
            cells.midnight(day.expect("a day of the calendar"));
            cells.decimal((row != 3).then(|| Decimal::new(-53_400, 6)));
            true
        })
    }
}
