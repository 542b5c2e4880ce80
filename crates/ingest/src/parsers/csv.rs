//! Parser for the regulator's tables: ISO-8859-1, semicolons, one row per line, and no quoting.
//!
//! A `"` is an ordinary character here, which a standard CSV parser would take for the start of a quoted field. Columns
//! are found by name, so their order does not matter. A missing or renamed column rejects the table, because its data
//! would otherwise disappear silently. Fields borrow from the file until their text is needed.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;

use chrono::NaiveDate;

use super::dates::parse_iso_date;
use super::text::{collapse_whitespace, decode_latin1, quote_truncated};
use super::{ColumnBlanks, FormatAlert, FormatError};

/// The longest header seen has 700 bytes.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// An alert names at most this many additional columns, so that a garbage header does not fill the log.
const MAX_REPORTED_COLUMNS: usize = 20;

/// The longest field that is not free text has 100 bytes.
const MAX_FIELD_BYTES: usize = 1_000;

const EXPECTED_FORMAT: &str = "a table with semicolons";

/// A table that has all expected columns, in any order and possibly with additional ones.
#[derive(Debug)]
pub struct CsvTable<'f, const N: usize> {
    pub alerts: Vec<FormatAlert>,
    columns: &'static [&'static str; N],
    /// For each column of the header, its index in `columns` if we know it.
    header_columns: Vec<Option<usize>>,
    header: &'f [u8],
    body: &'f [u8],
    row_count: Cell<u64>,
    /// How many of the rows that were read have nothing in a column.
    blank_counts: [Cell<u64>; N],
}

/// One line below the header.
#[derive(Debug)]
pub struct CsvLine<'f, const N: usize> {
    /// Counted from 1, which is the header.
    pub number: u64,
    /// Without the line end.
    pub bytes: &'f [u8],
    /// The last line of a truncated file has no line end.
    pub has_line_end: bool,
    /// The fields, or why the line is invalid.
    pub row: Result<CsvRow<'f, N>, String>,
}

/// The fields of one line, in the order of the expected columns.
#[derive(Debug, Clone)]
pub struct CsvRow<'f, const N: usize> {
    columns: &'static [&'static str; N],
    fields: [&'f [u8]; N],
}

/// The index of a column, for use in constants: an unknown name does not compile.
pub const fn column_index<const N: usize>(columns: &[&str; N], name: &str) -> usize {
    let mut index = 0;
    while index < N {
        if is_equal(columns[index].as_bytes(), name.as_bytes()) {
            return index;
        }
        index += 1;
    }
    panic!("there is no such column")
}

const fn is_equal(left: &[u8], right: &[u8]) -> bool {
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

impl<'f, const N: usize> CsvTable<'f, N> {
    pub fn open(bytes: &'f [u8], columns: &'static [&'static str; N], max_bytes: usize) -> Result<Self, FormatError> {
        if bytes.len() > max_bytes {
            return Err(FormatError::TooLarge { max_bytes });
        }
        if bytes.trim_ascii().is_empty() {
            return Err(FormatError::Empty);
        }
        reject_other_formats(bytes)?;

        let (header, body) = split_first_line(bytes);
        let names = header.trim_ascii_end();
        if names.len() > MAX_HEADER_BYTES {
            return Err(FormatError::UnexpectedFormat {
                expected: EXPECTED_FORMAT,
                found: "its first line never ends".to_owned(),
            });
        }
        if !names.contains(&b';') {
            return Err(FormatError::WrongSeparator(decode_latin1(&names[..names.len().min(200)]).into_owned()));
        }

        let header_columns: Vec<Option<usize>> = names
            .split(|byte| *byte == b';')
            .map(|name| columns.iter().position(|column| column.as_bytes() == name))
            .collect();

        reject_missing_or_duplicate_columns(columns, &header_columns)?;
        reject_utf8(bytes)?;
        Ok(Self {
            alerts: header_alerts(names, &header_columns),
            columns,
            header_columns,
            header,
            body,
            row_count: Cell::new(0),
            blank_counts: [const { Cell::new(0) }; N],
        })
    }

    /// The header line with its line end.
    pub fn header(&self) -> &'f [u8] {
        self.header
    }

    /// The lines below the header, without blank ones.
    pub fn lines(&self) -> impl Iterator<Item = CsvLine<'f, N>> + '_ {
        let mut rest = self.body;
        let mut number = 1;
        std::iter::from_fn(move || {
            loop {
                if rest.is_empty() {
                    return None;
                }
                let (line, next) = split_first_line(rest);
                rest = next;
                number += 1;

                let bytes = trim_line_end(line);
                if !bytes.trim_ascii().is_empty() {
                    return Some(CsvLine {
                        number,
                        bytes,
                        has_line_end: line.ends_with(b"\n"),
                        row: self.parse_row(bytes),
                    });
                }
            }
        })
    }

    /// For each column of the header, its index in the expected columns if we know it.
    pub fn header_columns(&self) -> &[Option<usize>] {
        &self.header_columns
    }

    /// Everything below the header.
    pub fn body(&self) -> &'f [u8] {
        self.body
    }

    fn parse_row(&self, line: &'f [u8]) -> Result<CsvRow<'f, N>, String> {
        let row = self.split_line(line)?;
        self.row_count.update(|rows| rows + 1);
        for (field, blanks) in row.fields.iter().zip(&self.blank_counts) {
            blanks.update(|blanks| blanks + u64::from(field.trim_ascii().is_empty()));
        }
        Ok(row)
    }

    /// The fields of a line, which [`column_blanks`](Self::column_blanks) does not count.
    pub fn split_line(&self, line: &'f [u8]) -> Result<CsvRow<'f, N>, String> {
        let mut fields = [&line[..0]; N];
        let mut count = 0;
        for field in line.split(|byte| *byte == b';') {
            if let Some(Some(column)) = self.header_columns.get(count) {
                fields[*column] = field;
            }
            count += 1;
        }
        if count != self.header_columns.len() {
            return Err(format!("it has {count} fields, but the header has {}", self.header_columns.len()));
        }
        Ok(CsvRow { columns: self.columns, fields })
    }

    /// How many of the rows that were read have nothing in each column. `prefix` tells the tables of an archive apart.
    pub fn column_blanks(&self, prefix: &str) -> BTreeMap<String, ColumnBlanks> {
        let blanks_of = |blanks: &Cell<u64>| ColumnBlanks { blank: blanks.get(), total: self.row_count.get() };
        let names = self.columns.iter().map(|name| format!("{prefix}{name}"));
        names.zip(self.blank_counts.iter().map(blanks_of)).collect()
    }
}

impl<'f, const N: usize> CsvRow<'f, N> {
    /// The line, with its columns in the expected order.
    pub fn to_line(&self) -> Vec<u8> {
        self.fields.join(&b';')
    }

    /// The fields of these columns, as they are.
    pub fn raw_fields(&self, columns: std::ops::Range<usize>) -> &[&'f [u8]] {
        &self.fields[columns]
    }

    /// The decoded field without surrounding whitespace.
    pub fn trimmed(&self, column: usize) -> Cow<'f, str> {
        decode_latin1(self.fields[column].trim_ascii())
    }

    /// The field with collapsed whitespace, up to the usual length limit.
    pub fn text(&self, column: usize) -> Result<String, String> {
        self.text_with_limit(column, MAX_FIELD_BYTES)
    }

    pub fn text_with_limit(&self, column: usize, max_bytes: usize) -> Result<String, String> {
        let field = self.fields[column];
        if field.len() > max_bytes {
            return Err(format!("{} is longer than {max_bytes} bytes", self.columns[column]));
        }
        Ok(collapse_whitespace(&decode_latin1(field)))
    }

    /// Text that must not be empty.
    pub fn required_text(&self, column: usize) -> Result<String, String> {
        let text = self.text(column)?;
        if text.is_empty() { Err(format!("{} is empty", self.columns[column])) } else { Ok(text) }
    }

    /// A date, or `None` if the field is empty.
    pub fn date(&self, column: usize) -> Result<Option<NaiveDate>, String> {
        let text = self.trimmed(column);
        if text.is_empty() {
            return Ok(None);
        }
        parse_iso_date(&text).map(Some).ok_or_else(|| self.invalid_field_reason(column, "not a date as yyyy-MM-dd"))
    }

    pub fn required_date(&self, column: usize) -> Result<NaiveDate, String> {
        self.date(column)?.ok_or_else(|| format!("{} is empty", self.columns[column]))
    }

    /// `SIT is "x", which is …`, for the reason of a bad row.
    pub fn invalid_field_reason(&self, column: usize, problem: &str) -> String {
        format!("{} is {}, which is {problem}", self.columns[column], quote_truncated(&self.trimmed(column)))
    }
}

/// The first line with its line end, and the rest.
fn split_first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
    bytes.split_at(end)
}

fn trim_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Names the format that was received instead, because "no semicolon" would mislead an operator.
fn reject_other_formats(bytes: &[u8]) -> Result<(), FormatError> {
    if bytes.starts_with(b"\xEF\xBB\xBF") || bytes.starts_with(b"\xFF\xFE") || bytes.starts_with(b"\xFE\xFF") {
        return Err(FormatError::WrongEncoding("it starts with a Unicode byte order mark"));
    }
    let found = match bytes.trim_ascii_start() {
        [b'<', ..] => "it is a page of HTML or XML",
        [b'{' | b'[', ..] => "it is JSON",
        [b'P', b'K', 3 | 5, ..] => "it is a ZIP archive",
        [0x1F, 0x8B, ..] => "it is gzip data",
        _ => return Ok(()),
    };
    Err(FormatError::UnexpectedFormat { expected: EXPECTED_FORMAT, found: found.to_owned() })
}

fn reject_missing_or_duplicate_columns<const N: usize>(
    columns: &'static [&'static str; N],
    header_columns: &[Option<usize>],
) -> Result<(), FormatError> {
    let mut counts = [0usize; N];
    for column in header_columns.iter().flatten() {
        counts[*column] += 1;
    }

    let missing: Vec<&'static str> =
        columns.iter().zip(counts).filter(|(_, count)| *count == 0).map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        return Err(FormatError::MissingColumns(missing));
    }

    match columns.iter().zip(counts).find(|(_, count)| *count > 1) {
        Some((name, _)) => Err(FormatError::DuplicateColumn(name)),
        None => Ok(()),
    }
}

/// Non-ASCII Portuguese text in ISO-8859-1 is almost never valid UTF-8, while in UTF-8 it always is. The majority
/// decides, so that one double-encoded field does not reject the file.
fn reject_utf8(bytes: &[u8]) -> Result<(), FormatError> {
    let mut utf8_chars = 0;
    let mut invalid_bytes = 0;
    for chunk in bytes.utf8_chunks() {
        utf8_chars += chunk.valid().chars().filter(|character| !character.is_ascii()).count();
        invalid_bytes += chunk.invalid().len();
    }

    if utf8_chars > invalid_bytes {
        return Err(FormatError::WrongEncoding("its accents are UTF-8"));
    }
    Ok(())
}

fn header_alerts(names: &[u8], header_columns: &[Option<usize>]) -> Vec<FormatAlert> {
    let additional: Vec<String> = names
        .split(|byte| *byte == b';')
        .zip(header_columns)
        .filter(|(_, column)| column.is_none())
        .map(|(name, _)| quote_truncated(&decode_latin1(name)))
        .take(MAX_REPORTED_COLUMNS)
        .collect();

    let mut alerts = Vec::new();
    if !additional.is_empty() {
        alerts.push(FormatAlert::AdditionalColumns(additional));
    }

    if !header_columns.iter().flatten().is_sorted() {
        alerts.push(FormatAlert::ReorderedColumns);
    }
    alerts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COLUMNS: [&str; 3] = ["CODE", "NAME", "SINCE"];
    const CODE_COLUMN: usize = column_index(&COLUMNS, "CODE");
    const NAME_COLUMN: usize = column_index(&COLUMNS, "NAME");
    const SINCE_COLUMN: usize = column_index(&COLUMNS, "SINCE");

    fn open_table(bytes: &[u8]) -> Result<CsvTable<'_, 3>, FormatError> {
        CsvTable::open(bytes, &COLUMNS, 1 << 20)
    }

    fn read_names(bytes: &[u8]) -> Vec<String> {
        open_table(bytes)
            .unwrap()
            .lines()
            .map(|line| line.row.map_or_else(|reason| reason, |row| row.trimmed(NAME_COLUMN).into_owned()))
            .collect()
    }

    #[test]
    fn lines_end_with_or_without_a_carriage_return() {
        let windows = b"CODE;NAME;SINCE\r\n1;a;\r\n2;b;\r\n";
        let unix = b"CODE;NAME;SINCE\n1;a;\n2;b;\n";
        let blank = b"CODE;NAME;SINCE\r\n1;a;\r\n\r\n2;b;\r\n\r\n";
        let truncated = b"CODE;NAME;SINCE\r\n1;a;\r\n2;b;";
        for table in [&windows[..], unix, blank, truncated] {
            assert_eq!(read_names(table), ["a", "b"]);
        }

        let lines: Vec<(u64, bool)> =
            open_table(truncated).unwrap().lines().map(|line| (line.number, line.has_line_end)).collect();
        assert_eq!(lines, [(2, true), (3, false)]);
        assert_eq!(open_table(blank).unwrap().lines().map(|line| line.number).collect::<Vec<_>>(), [2, 4]);
    }

    #[test]
    fn a_quote_is_an_ordinary_character() {
        assert_eq!(read_names(b"CODE;NAME;SINCE\r\n1;BLOCO \"C\";\r\n2;\"x;\r\n"), ["BLOCO \"C\"", "\"x"]);
    }

    #[test]
    fn fields_are_decoded_and_borrowed_when_possible() {
        let table = open_table(b"CODE;NAME;SINCE\r\n1; PETR\xD3LEO  S.A. ;2020-02-29\r\n").unwrap();
        let row = table.lines().next().unwrap().row.unwrap();
        assert!(matches!(row.trimmed(CODE_COLUMN), Cow::Borrowed("1")));
        assert_eq!(row.trimmed(NAME_COLUMN), "PETRÓLEO  S.A.");
        assert_eq!(row.text(NAME_COLUMN).unwrap(), "PETRÓLEO S.A.");
        assert_eq!(row.required_date(SINCE_COLUMN).unwrap().to_string(), "2020-02-29");
        assert_eq!(row.text_with_limit(NAME_COLUMN, 5).unwrap_err(), "NAME is longer than 5 bytes");
    }

    #[test]
    fn missing_and_invalid_fields_are_reported() {
        let table = open_table(b"CODE;NAME;SINCE\r\n1;;29/02/2020\r\n2;x;\r\n").unwrap();
        let rows: Vec<_> = table.lines().map(|line| line.row.unwrap()).collect();
        assert_eq!(rows[0].required_text(NAME_COLUMN).unwrap_err(), "NAME is empty");
        assert_eq!(
            rows[0].date(SINCE_COLUMN).unwrap_err(),
            "SINCE is \"29/02/2020\", which is not a date as yyyy-MM-dd"
        );
        assert_eq!(rows[1].date(SINCE_COLUMN).unwrap(), None);
        assert_eq!(rows[1].required_date(SINCE_COLUMN).unwrap_err(), "SINCE is empty");
    }

    #[test]
    fn columns_are_found_by_name() {
        let table = open_table(b"SINCE;NEW;NAME;CODE\r\n2020-01-01;?;x;7\r\n").unwrap();
        assert_eq!(
            table.alerts,
            [FormatAlert::AdditionalColumns(vec!["\"NEW\"".to_owned()]), FormatAlert::ReorderedColumns]
        );

        let row = table.lines().next().unwrap().row.unwrap();
        assert_eq!(
            (row.trimmed(CODE_COLUMN), row.trimmed(NAME_COLUMN), row.trimmed(SINCE_COLUMN)),
            ("7".into(), "x".into(), "2020-01-01".into())
        );
        assert!(open_table(b"CODE;NAME;SINCE\n").unwrap().alerts.is_empty());
    }

    #[test]
    fn missing_renamed_or_duplicate_columns_reject_the_table() {
        assert_eq!(open_table(b"CODE;NAME\r\n").unwrap_err(), FormatError::MissingColumns(vec!["SINCE"]));
        assert_eq!(open_table(b"Code;NAME;SINCE\r\n").unwrap_err(), FormatError::MissingColumns(vec!["CODE"]));
        assert_eq!(open_table(b"CODE;NAME;SINCE;NAME\r\n").unwrap_err(), FormatError::DuplicateColumn("NAME"));
    }

    #[test]
    fn a_row_with_a_wrong_field_count_is_rejected() {
        assert_eq!(
            read_names(b"CODE;NAME;SINCE\r\n1;a\r\n2;b;;\r\n3;c;\r\n"),
            ["it has 2 fields, but the header has 3", "it has 4 fields, but the header has 3", "c"]
        );
    }

    #[test]
    fn a_wrong_separator_is_reported() {
        let error = open_table(b"CODE,NAME,SINCE\r\n1,a,\r\n").unwrap_err();
        assert_eq!(error.to_string(), "its header has no semicolon: \"CODE,NAME,SINCE\"");
    }

    #[test]
    fn utf8_is_rejected_but_one_double_encoded_field_is_not() {
        let utf_8 = "CODE;NAME;SINCE\r\n1;PETRÓLEO;\r\n";
        assert_eq!(open_table(utf_8.as_bytes()).unwrap_err(), FormatError::WrongEncoding("its accents are UTF-8"));
        assert_eq!(
            open_table("\u{feff}CODE;NAME;SINCE\r\n".as_bytes()).unwrap_err(),
            FormatError::WrongEncoding("it starts with a Unicode byte order mark")
        );
        assert!(open_table(b"CODE;NAME;SINCE\r\n1;A\xC7\xC3O;\r\n2;S\xC3\xA3o;\r\n").is_ok());
    }

    #[test]
    fn other_formats_are_rejected_by_name() {
        for (bytes, found) in [
            (&b"<!DOCTYPE html>; <html>"[..], "it is a page of HTML or XML"),
            (b" {\"error\":\"x\"}", "it is JSON"),
            (b"PK\x03\x04;", "it is a ZIP archive"),
            (b"\x1F\x8B\x08;", "it is gzip data"),
        ] {
            assert_eq!(
                open_table(bytes).unwrap_err(),
                FormatError::UnexpectedFormat { expected: EXPECTED_FORMAT, found: found.to_owned() }
            );
        }

        assert_eq!(open_table(b"").unwrap_err(), FormatError::Empty);
        assert_eq!(open_table(b" \r\n").unwrap_err(), FormatError::Empty);
        assert!(matches!(open_table(&vec![b';'; 1 << 19]), Err(FormatError::UnexpectedFormat { .. })));
        assert_eq!(open_table(&vec![b';'; (1 << 20) + 1]).unwrap_err(), FormatError::TooLarge { max_bytes: 1 << 20 });
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let table = [b"CODE;NAME;SINCE;\xC3\n", bytes.as_slice()].concat();
            for file in [bytes.as_slice(), table.as_slice()] {
                for line in open_table(file).iter().flat_map(CsvTable::lines) {
                    if let Ok(row) = line.row {
                        let _ = (row.text(NAME_COLUMN), row.date(SINCE_COLUMN), row.required_text(CODE_COLUMN));
                    }
                }
            }
        }
    }
}
