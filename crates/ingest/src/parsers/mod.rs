//! Parsers: turn the bytes of an upstream into typed rows. They are pure: no network, no storage, no clock.
//!
//! There are three kinds of problems. A file in the wrong format is rejected as a whole with a [`FormatError`], so that
//! it can never replace a good one. A single invalid row becomes a [`BadRow`] with its reason, and the rest is parsed.
//! An unusual but harmless change, such as an additional column, is a [`FormatAlert`].
//!
//! The caller decides how many bad rows of each [`BadRowKind`] are too many for a load, as a share of
//! [`ParsedRows::total`].

pub mod company_registry;
pub mod csv;
pub mod dates;
pub mod decimal;
pub mod fca_securities;
mod filing_rows;
pub mod ipe;
mod json;
pub mod ptax;
pub mod ptax_currencies;
pub mod sgs;
pub mod statements;
pub mod structured_filings;
mod text;
pub mod zip;
pub mod zip_directory;

use std::collections::BTreeMap;
use std::fmt;

/// Bounds memory only. Validation rejects a file long before it has this many bad rows, unless they are of a kind that
/// never rejects a file: of those, further ones are counted alone.
pub const MAX_COLLECTED_BAD_ROWS: usize = 1_000;

/// Enough to recognize a row in the upstream's file.
const MAX_BAD_ROW_CHARS: usize = 500;

/// The rows of a file. `total` is the sum of `rows`, `bad_rows`, `uncollected_bad_rows`, `merged` and `skipped`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedRows<T> {
    pub rows: Vec<T>,
    pub bad_rows: Vec<BadRow>,
    /// Further bad rows, of kinds that never reject a file.
    pub uncollected_bad_rows: BTreeMap<BadRowKind, u64>,
    pub alerts: Vec<FormatAlert>,
    /// All rows of the file.
    pub total: u64,
    /// Rows merged into another one: exact duplicates and, in the registry, further markets of a company.
    pub merged: u64,
    /// Valid rows that we don't need, such as a security without a ticker.
    pub skipped: u64,
    /// How many rows have nothing in a column, for each column of the file's tables.
    pub blanks: BTreeMap<String, ColumnBlanks>,
}

/// How many rows have nothing in a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ColumnBlanks {
    pub blank: u64,
    pub total: u64,
}

/// A row that is rejected, to be quarantined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// The line number in a file, with the header as line 1, or the position in an array, from 1. Rows whose line is not
    /// known have numbers after the last line.
    pub line: u64,
    /// The row as text, cut to 500 characters. It never contains personal data.
    pub text: String,
    pub kind: BadRowKind,
    pub reason: String,
}

/// What is wrong with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BadRowKind {
    /// A field cannot be read, or its value cannot be.
    Unreadable,
    /// Another row states something else of the same thing.
    Contradiction,
    /// Another filing has the same id. The regulator reuses its numbers.
    SharedId,
    /// A label that we don't know. The upstream may add one at any time.
    UnknownLabel,
    /// It belongs to a document that no other table has.
    UnknownDocument,
    /// A row of an archived document whose value cannot be read.
    UnreadableAccount,
    /// A row of an archived document, which states another value of the same account.
    ContradictoryAccount,
}

/// Why a row is bad. A plain text means that it is unreadable.
pub(crate) struct RowError {
    pub(crate) kind: BadRowKind,
    pub(crate) reason: String,
}

/// A change that an operator should look at, although the file was parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormatAlert {
    ReorderedColumns,
    AdditionalColumns(Vec<String>),
    /// Rows with this label are quarantined.
    UnknownLabel(String),
    /// Many rows of archived documents have no value that can be served.
    WithheldRows {
        withheld: u64,
        total: u64,
    },
    /// PTAX lists these currencies, which this version does not know.
    UnknownCurrencies(Vec<String>),
    /// PTAX does not list these currencies any more, or quotes them the other way round.
    ChangedCurrencies(Vec<&'static str>),
}

/// Why a whole file is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("the response is empty")]
    Empty,
    #[error("it should be {expected}, but {found}")]
    UnexpectedFormat { expected: &'static str, found: String },
    #[error("it is larger than the {max_bytes} bytes that are read")]
    TooLarge { max_bytes: usize },
    #[error("it is not in ISO-8859-1: {0}")]
    WrongEncoding(&'static str),
    #[error("its header has no semicolon: {0:?}")]
    WrongSeparator(String),
    #[error("it lacks the columns {}", .0.join(", "))]
    MissingColumns(Vec<&'static str>),
    #[error("it has the column {0} more than once")]
    DuplicateColumn(&'static str),
    #[error("more than {MAX_COLLECTED_BAD_ROWS} of its rows are bad, the first in line {line}: {reason}")]
    TooManyBadRows { line: u64, reason: String },
    #[error("the archive is damaged: {0}")]
    CorruptArchive(String),
    #[error("the archive holds a member whose name leads out of it: {0:?}")]
    UnsafeMemberName(String),
    #[error("the archive has no member {0}")]
    MissingMember(String),
    #[error("the member {name} inflates to more than {max_bytes} bytes")]
    MemberTooLarge { name: String, max_bytes: u64 },
    #[error("the member {name} inflates to more than {max_ratio} times its size")]
    CompressionRatioTooHigh { name: String, max_ratio: u64 },
    #[error("{name}: {error}")]
    InMember { name: String, error: Box<FormatError> },
}

impl<T> ParsedRows<T> {
    pub(crate) fn new(alerts: Vec<FormatAlert>) -> Self {
        Self {
            rows: Vec::new(),
            bad_rows: Vec::new(),
            uncollected_bad_rows: BTreeMap::new(),
            alerts,
            total: 0,
            merged: 0,
            skipped: 0,
            blanks: BTreeMap::new(),
        }
    }

    /// Rejects the file once there are too many bad rows that may reject it.
    fn push_bad_row(&mut self, row: BadRow) -> Result<(), FormatError> {
        if self.bad_rows.len() < MAX_COLLECTED_BAD_ROWS {
            self.bad_rows.push(row);
            Ok(())
        } else if row.kind.may_reject_file() {
            let first = self.bad_rows.iter().find(|bad| bad.kind == row.kind).unwrap_or(&row);
            Err(FormatError::TooManyBadRows { line: first.line, reason: first.reason.clone() })
        } else {
            *self.uncollected_bad_rows.entry(row.kind).or_default() += 1;
            Ok(())
        }
    }

    /// The rows that count when a file is compared with the one before: also those that are bad for a reason that says
    /// nothing about the file.
    pub fn comparable_row_count(&self) -> u64 {
        let tolerated = self.count_bad_rows().into_iter().filter(|(kind, _)| !kind.may_reject_file());
        self.rows.len() as u64 + tolerated.map(|(_, count)| count).sum::<u64>()
    }

    /// All bad rows, also those that are only counted.
    pub fn bad_row_count(&self) -> u64 {
        self.count_bad_rows().values().sum()
    }

    /// All bad rows by what is wrong with them.
    pub fn count_bad_rows(&self) -> BTreeMap<BadRowKind, u64> {
        let mut counts = self.uncollected_bad_rows.clone();
        for row in &self.bad_rows {
            *counts.entry(row.kind).or_default() += 1;
        }
        counts
    }
}

impl BadRowKind {
    pub const ALL: [Self; 7] = [
        Self::Unreadable,
        Self::Contradiction,
        Self::SharedId,
        Self::UnknownLabel,
        Self::UnknownDocument,
        Self::UnreadableAccount,
        Self::ContradictoryAccount,
    ];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Contradiction => "contradiction",
            Self::SharedId => "shared_id",
            Self::UnknownLabel => "unknown_label",
            Self::UnknownDocument => "unknown_document",
            Self::UnreadableAccount => "unreadable_account",
            Self::ContradictoryAccount => "contradictory_account",
        }
    }

    /// Whether such a row is archived with its document, although it has no value that can be served.
    pub const fn is_of_archived_row(self) -> bool {
        matches!(self, Self::UnreadableAccount | Self::ContradictoryAccount)
    }

    /// Whether many such rows mean that the file is not what we expect. The others say nothing about the rest of it.
    pub const fn may_reject_file(self) -> bool {
        matches!(self, Self::Unreadable | Self::Contradiction)
    }
}

impl BadRow {
    pub(crate) fn new(line: u64, text: &str, error: impl Into<RowError>) -> Self {
        let RowError { kind, reason } = error.into();
        Self { line, text: text.chars().take(MAX_BAD_ROW_CHARS).collect(), kind, reason }
    }

    /// For a line of a table; decodes only the part that is kept.
    fn from_line(line: u64, bytes: &[u8], error: impl Into<RowError>) -> Self {
        Self::new(line, &text::decode_latin1(&bytes[..bytes.len().min(MAX_BAD_ROW_CHARS)]), error)
    }
}

impl From<String> for RowError {
    fn from(reason: String) -> Self {
        Self { kind: BadRowKind::Unreadable, reason }
    }
}

impl fmt::Display for FormatAlert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReorderedColumns => f.write_str("the order of the columns changed"),
            Self::AdditionalColumns(names) => write!(f, "there are additional columns: {}", names.join(", ")),
            Self::UnknownLabel(label) => write!(f, "rows with the unknown label {label} were not loaded"),
            Self::WithheldRows { withheld, total } => {
                write!(f, "{withheld} of {total} rows were archived, but have no value that can be served")
            }
            Self::UnknownCurrencies(codes) => {
                write!(f, "PTAX lists currencies that this version does not load: {}", codes.join(", "))
            }
            Self::ChangedCurrencies(codes) => {
                write!(f, "PTAX no longer lists these currencies, or quotes them otherwise: {}", codes.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_row_keeps_no_more_than_five_hundred_characters() {
        let long = "é".repeat(2_000);
        assert_eq!(BadRow::new(1, &long, "long".to_owned()).text, "é".repeat(500));
        assert_eq!(BadRow::from_line(1, &[0xE9; 2_000], "long".to_owned()).text, "é".repeat(500));
    }

    #[test]
    fn too_many_bad_rows_reject_the_file_and_name_the_first() {
        let mut parsed: ParsedRows<()> = ParsedRows::new(Vec::new());
        for line in 1..=1_000 {
            parsed.push_bad_row(BadRow::new(line, "x", format!("reason {line}"))).unwrap();
        }
        let unknown = RowError { kind: BadRowKind::UnknownLabel, reason: "a new label".to_owned() };
        parsed.push_bad_row(BadRow::new(1_001, "x", unknown)).unwrap();
        let error = parsed.push_bad_row(BadRow::new(1_002, "x", "one more".to_owned())).unwrap_err();
        assert_eq!(error.to_string(), "more than 1000 of its rows are bad, the first in line 1: reason 1");
        assert_eq!(parsed.bad_row_count(), 1_001);
    }

    #[test]
    fn format_errors_read_as_sentences() {
        let missing = FormatError::MissingColumns(vec!["CD_CVM", "SIT"]);
        assert_eq!(missing.to_string(), "it lacks the columns CD_CVM, SIT");
        let page = FormatError::UnexpectedFormat { expected: "a table", found: "it is a page".to_owned() };
        assert_eq!(page.to_string(), "it should be a table, but it is a page");
    }
}
