//! Readers: from the bytes of an upstream to typed rows. They fetch nothing, store nothing and know no clock.
//!
//! What comes in is judged in three ways. A file that is not what it should be is [`Refused`] whole, so that it can
//! never take the place of a good one. A single row that makes no sense is set aside as a [`BadRow`] with its reason,
//! and the rest is read. What is odd but harmless, such as a further column, is an [`Alert`].
//!
//! How many bad rows are too many for a load is for the caller to say: [`Read::total`] is what shares are taken of.

pub mod csv;
pub mod day;
pub mod decimal;
pub mod fca;
mod filings;
pub mod index;
pub mod ipe;
mod json;
pub mod ptax;
pub mod registry;
pub mod sgs;
mod text;
pub mod zip;

use std::fmt;

/// A file is set aside long before this: so many bad rows are kept only so that memory has a bound.
pub const MOST_BAD_ROWS: usize = 1_000;

/// Enough to recognise a row in the upstream's file.
const BAD_ROW_CHARACTERS: usize = 500;

/// What a file held. `total` is the sum of `rows`, `bad`, `merged` and `passed_over`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read<T> {
    pub rows: Vec<T>,
    pub bad: Vec<BadRow>,
    pub alerts: Vec<Alert>,
    /// All rows of the file.
    pub total: u64,
    /// Rows that went into another one: exact repetitions and, in the registry, further markets of a company.
    pub merged: u64,
    /// Rows that are fine but of no interest, such as a security without a ticker.
    pub passed_over: u64,
}

/// A row that is set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// The line of a file, its header being the first, or the place in an array, from 1.
    pub line: u64,
    /// The row as text, cut to 500 characters. Never anything about a natural person.
    pub text: String,
    pub reason: String,
}

/// Something that an operator should look at, although the file is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alert {
    ReorderedColumns,
    AdditionalColumns(Vec<String>),
}

/// Why nothing of a file is taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("nothing was received: it is empty")]
    Empty,
    #[error("it should be {expected}, but {found}")]
    NotTheFormat { expected: &'static str, found: String },
    #[error("it is larger than the {most_bytes} bytes that are read")]
    TooLarge { most_bytes: usize },
    #[error("it is not in ISO-8859-1: {0}")]
    WrongEncoding(&'static str),
    #[error("its header has no semicolon: {0:?}")]
    WrongSeparator(String),
    #[error("it lacks the columns {}", .0.join(", "))]
    ColumnsMissing(Vec<&'static str>),
    #[error("it has the column {0} more than once")]
    ColumnTwice(&'static str),
    #[error("more than {MOST_BAD_ROWS} of its rows are bad, the first in line {line}: {reason}")]
    TooManyBadRows { line: u64, reason: String },
    #[error("the archive is damaged: {0}")]
    ArchiveDamaged(String),
    #[error("the archive holds a member whose name leads out of it: {0:?}")]
    UnsafeMemberName(String),
    #[error("the archive has no member {0}")]
    MemberMissing(String),
    #[error("the member {name} inflates to more than {most_bytes} bytes")]
    MemberTooLarge { name: String, most_bytes: u64 },
    #[error("the member {name} inflates to more than {most_ratio} times its size")]
    MemberTooDense { name: String, most_ratio: u64 },
}

impl<T> Read<T> {
    fn new(alerts: Vec<Alert>) -> Self {
        Self { rows: Vec::new(), bad: Vec::new(), alerts, total: 0, merged: 0, passed_over: 0 }
    }

    /// Sets a row aside.
    fn set_aside(&mut self, bad: BadRow) -> Result<(), Refused> {
        self.bad.push(bad);
        match self.bad.first() {
            Some(first) if self.bad.len() > MOST_BAD_ROWS => {
                Err(Refused::TooManyBadRows { line: first.line, reason: first.reason.clone() })
            }
            _ => Ok(()),
        }
    }
}

impl BadRow {
    fn new(line: u64, text: &str, reason: impl Into<String>) -> Self {
        Self { line, text: text.chars().take(BAD_ROW_CHARACTERS).collect(), reason: reason.into() }
    }

    /// Of a line of a table, of which no more is decoded than is kept.
    fn of_line(line: u64, bytes: &[u8], reason: impl Into<String>) -> Self {
        let text = text::decode(&bytes[..bytes.len().min(BAD_ROW_CHARACTERS)]);
        Self { line, text: text.into_owned(), reason: reason.into() }
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReorderedColumns => f.write_str("the columns stand in another order than before"),
            Self::AdditionalColumns(names) => write!(f, "there are additional columns: {}", names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_row_keeps_no_more_than_five_hundred_characters() {
        let long = "é".repeat(2_000);
        assert_eq!(BadRow::new(1, &long, "long").text, "é".repeat(500));
        assert_eq!(BadRow::of_line(1, &[0xE9; 2_000], "long").text, "é".repeat(500));
    }

    #[test]
    fn bad_rows_have_a_bound_and_the_first_of_them_is_named() {
        let mut read: Read<()> = Read::new(Vec::new());
        for line in 1..=1_000 {
            read.set_aside(BadRow::new(line, "x", format!("reason {line}"))).unwrap();
        }
        let refused = read.set_aside(BadRow::new(1_001, "x", "one more")).unwrap_err();
        assert_eq!(refused.to_string(), "more than 1000 of its rows are bad, the first in line 1: reason 1");
    }

    #[test]
    fn refusals_are_sentences_for_an_operator() {
        let missing = Refused::ColumnsMissing(vec!["CD_CVM", "SIT"]);
        assert_eq!(missing.to_string(), "it lacks the columns CD_CVM, SIT");
        let page = Refused::NotTheFormat { expected: "a table", found: "it is a page".to_owned() };
        assert_eq!(page.to_string(), "it should be a table, but it is a page");
    }
}
