//! The regulator's tables: ISO-8859-1, semicolons, one row a line, and no quoting at all.
//!
//! A `"` is a character like any other, which a usual CSV reader would take for the start of a quoted field. Columns
//! are found by their names, so their order does not matter; one that is missing or renamed refuses the table, since
//! what it held would silently be gone. Fields are borrowed from the file until somebody wants their text.

use std::borrow::Cow;

use chrono::NaiveDate;

use super::day::iso_day;
use super::text::{decode, quoted, tidy};
use super::{Alert, Refused};

/// The longest header seen has 700 bytes.
const MOST_HEADER_BYTES: usize = 16 << 10;

/// Additional columns are named in an alert up to this number: a header of rubbish is not to fill the log.
const MOST_NAMED_COLUMNS: usize = 20;

/// The longest field that is not free text has 100 bytes.
const MOST_FIELD_BYTES: usize = 1_000;

const EXPECTED: &str = "a table with semicolons";

/// A table whose header is as it should be, up to order and additional columns.
#[derive(Debug)]
pub struct Table<'f, const N: usize> {
    pub alerts: Vec<Alert>,
    columns: &'static [&'static str; N],
    /// Of every place in the header, which column stands there, if it is one that we know.
    places: Vec<Option<usize>>,
    header: &'f [u8],
    body: &'f [u8],
}

/// One line below the header.
#[derive(Debug)]
pub struct Line<'f, const N: usize> {
    /// From 1, the header being the first.
    pub number: u64,
    /// Without its end.
    pub bytes: &'f [u8],
    /// Whether it has an end. The last line of a file that was cut off has none.
    pub is_ended: bool,
    /// Its fields, or why it has none.
    pub row: Result<Row<'f, N>, String>,
}

/// The fields of one line, in the order of the columns that were asked for.
#[derive(Debug, Clone)]
pub struct Row<'f, const N: usize> {
    columns: &'static [&'static str; N],
    fields: [&'f [u8]; N],
}

/// The place of a column, found by the compiler: a name that is not there does not compile.
pub const fn column<const N: usize>(columns: &[&str; N], name: &str) -> usize {
    let mut at = 0;
    while at < N {
        if is_same(columns[at].as_bytes(), name.as_bytes()) {
            return at;
        }
        at += 1;
    }
    panic!("there is no such column")
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

impl<'f, const N: usize> Table<'f, N> {
    pub fn open(bytes: &'f [u8], columns: &'static [&'static str; N], most_bytes: usize) -> Result<Self, Refused> {
        if bytes.len() > most_bytes {
            return Err(Refused::TooLarge { most_bytes });
        }
        if bytes.trim_ascii().is_empty() {
            return Err(Refused::Empty);
        }
        refuse_other_formats(bytes)?;
        let (header, body) = split_line(bytes);
        let names = header.trim_ascii_end();
        if names.len() > MOST_HEADER_BYTES {
            return Err(Refused::NotTheFormat { expected: EXPECTED, found: "its first line never ends".to_owned() });
        }
        if !names.contains(&b';') {
            return Err(Refused::WrongSeparator(decode(&names[..names.len().min(200)]).into_owned()));
        }
        let places: Vec<Option<usize>> = names
            .split(|byte| *byte == b';')
            .map(|name| columns.iter().position(|column| column.as_bytes() == name))
            .collect();
        refuse_missing_and_doubled(columns, &places)?;
        refuse_utf_8(bytes)?;
        Ok(Self { alerts: alerts(names, &places), columns, places, header, body })
    }

    /// The header as it stands in the file, with its line end.
    pub fn header(&self) -> &'f [u8] {
        self.header
    }

    /// The lines below the header, blank ones left out.
    pub fn lines(&self) -> impl Iterator<Item = Line<'f, N>> + '_ {
        let mut rest = self.body;
        let mut number = 1;
        std::iter::from_fn(move || {
            loop {
                if rest.is_empty() {
                    return None;
                }
                let (line, next) = split_line(rest);
                rest = next;
                number += 1;
                let bytes = without_end(line);
                if !bytes.trim_ascii().is_empty() {
                    return Some(Line { number, bytes, is_ended: line.ends_with(b"\n"), row: self.row(bytes) });
                }
            }
        })
    }

    /// Of every place in the header, which column stands there.
    pub fn places(&self) -> &[Option<usize>] {
        &self.places
    }

    /// All below the header.
    pub fn body(&self) -> &'f [u8] {
        self.body
    }

    fn row(&self, line: &'f [u8]) -> Result<Row<'f, N>, String> {
        let mut fields = [&line[..0]; N];
        let mut count = 0;
        for field in line.split(|byte| *byte == b';') {
            if let Some(Some(column)) = self.places.get(count) {
                fields[*column] = field;
            }
            count += 1;
        }
        if count != self.places.len() {
            return Err(format!("it has {count} fields, but the header has {}", self.places.len()));
        }
        Ok(Row { columns: self.columns, fields })
    }
}

impl<'f, const N: usize> Row<'f, N> {
    /// The line again, its columns in the order that we know.
    pub fn line(&self) -> Vec<u8> {
        self.fields.join(&b';')
    }

    /// As it stands, without spaces around.
    pub fn raw(&self, column: usize) -> Cow<'f, str> {
        decode(self.fields[column].trim_ascii())
    }

    /// Tidied text of a sane length.
    pub fn text(&self, column: usize) -> Result<String, String> {
        self.text_up_to(column, MOST_FIELD_BYTES)
    }

    pub fn text_up_to(&self, column: usize, most_bytes: usize) -> Result<String, String> {
        let field = self.fields[column];
        if field.len() > most_bytes {
            return Err(format!("{} is longer than {most_bytes} bytes", self.columns[column]));
        }
        Ok(tidy(&decode(field)))
    }

    /// Text that must be there.
    pub fn required_text(&self, column: usize) -> Result<String, String> {
        let text = self.text(column)?;
        if text.is_empty() { Err(format!("{} is empty", self.columns[column])) } else { Ok(text) }
    }

    /// A day, or none where the field is empty.
    pub fn day(&self, column: usize) -> Result<Option<NaiveDate>, String> {
        let text = self.raw(column);
        if text.is_empty() {
            return Ok(None);
        }
        iso_day(&text).map(Some).ok_or_else(|| self.complaint(column, "no day as yyyy-MM-dd"))
    }

    pub fn required_day(&self, column: usize) -> Result<NaiveDate, String> {
        self.day(column)?.ok_or_else(|| format!("{} is empty", self.columns[column]))
    }

    /// `"SIT is "x", which is …"`, for a reason.
    pub fn complaint(&self, column: usize, what: &str) -> String {
        format!("{} is {}, which is {what}", self.columns[column], quoted(&self.raw(column)))
    }
}

/// The first line with its end, and all after it.
fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
    bytes.split_at(end)
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// What comes in a table's stead is named, because "no semicolon" would send an operator the wrong way.
fn refuse_other_formats(bytes: &[u8]) -> Result<(), Refused> {
    if bytes.starts_with(b"\xEF\xBB\xBF") || bytes.starts_with(b"\xFF\xFE") || bytes.starts_with(b"\xFE\xFF") {
        return Err(Refused::WrongEncoding("it starts with a Unicode byte order mark"));
    }
    let found = match bytes.trim_ascii_start() {
        [b'<', ..] => "it is a page of HTML or XML",
        [b'{' | b'[', ..] => "it is JSON",
        [b'P', b'K', 3 | 5, ..] => "it is a ZIP archive",
        [0x1F, 0x8B, ..] => "it is gzip data",
        _ => return Ok(()),
    };
    Err(Refused::NotTheFormat { expected: EXPECTED, found: found.to_owned() })
}

fn refuse_missing_and_doubled<const N: usize>(
    columns: &'static [&'static str; N],
    places: &[Option<usize>],
) -> Result<(), Refused> {
    let mut found = [0usize; N];
    for column in places.iter().flatten() {
        found[*column] += 1;
    }
    let missing: Vec<&'static str> =
        columns.iter().zip(found).filter(|(_, times)| *times == 0).map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        return Err(Refused::ColumnsMissing(missing));
    }
    match columns.iter().zip(found).find(|(_, times)| *times > 1) {
        Some((name, _)) => Err(Refused::ColumnTwice(name)),
        None => Ok(()),
    }
}

/// Portuguese in ISO-8859-1 hardly ever happens to be valid UTF-8 beyond ASCII, and Portuguese in UTF-8 always is.
/// The majority decides, so that one text that somebody encoded twice does not refuse the file.
fn refuse_utf_8(bytes: &[u8]) -> Result<(), Refused> {
    let (mut sequences, mut strays) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        sequences += chunk.valid().chars().filter(|character| !character.is_ascii()).count();
        strays += chunk.invalid().len();
    }
    if sequences > strays {
        return Err(Refused::WrongEncoding("its accents are UTF-8"));
    }
    Ok(())
}

fn alerts(names: &[u8], places: &[Option<usize>]) -> Vec<Alert> {
    let mut alerts = Vec::new();
    let additional: Vec<String> = names
        .split(|byte| *byte == b';')
        .zip(places)
        .filter(|(_, place)| place.is_none())
        .map(|(name, _)| quoted(&decode(name)))
        .take(MOST_NAMED_COLUMNS)
        .collect();
    if !additional.is_empty() {
        alerts.push(Alert::AdditionalColumns(additional));
    }
    if !places.iter().flatten().is_sorted() {
        alerts.push(Alert::ReorderedColumns);
    }
    alerts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COLUMNS: [&str; 3] = ["CODE", "NAME", "SINCE"];
    const CODE: usize = column(&COLUMNS, "CODE");
    const NAME: usize = column(&COLUMNS, "NAME");
    const SINCE: usize = column(&COLUMNS, "SINCE");

    fn open(bytes: &[u8]) -> Result<Table<'_, 3>, Refused> {
        Table::open(bytes, &COLUMNS, 1 << 20)
    }

    fn names(bytes: &[u8]) -> Vec<String> {
        open(bytes)
            .unwrap()
            .lines()
            .map(|line| line.row.map_or_else(|reason| reason, |row| row.raw(NAME).into_owned()))
            .collect()
    }

    #[test]
    fn lines_end_with_or_without_a_carriage_return() {
        let windows = b"CODE;NAME;SINCE\r\n1;a;\r\n2;b;\r\n";
        let unix = b"CODE;NAME;SINCE\n1;a;\n2;b;\n";
        let blank = b"CODE;NAME;SINCE\r\n1;a;\r\n\r\n2;b;\r\n\r\n";
        let unended = b"CODE;NAME;SINCE\r\n1;a;\r\n2;b;";
        for table in [&windows[..], unix, blank, unended] {
            assert_eq!(names(table), ["a", "b"]);
        }
        let lines: Vec<(u64, bool)> = open(unended).unwrap().lines().map(|line| (line.number, line.is_ended)).collect();
        assert_eq!(lines, [(2, true), (3, false)]);
        assert_eq!(open(blank).unwrap().lines().map(|line| line.number).collect::<Vec<_>>(), [2, 4]);
    }

    #[test]
    fn a_quote_is_a_character() {
        assert_eq!(names(b"CODE;NAME;SINCE\r\n1;BLOCO \"C\";\r\n2;\"x;\r\n"), ["BLOCO \"C\"", "\"x"]);
    }

    #[test]
    fn fields_are_decoded_and_borrowed_where_they_can_be() {
        let table = open(b"CODE;NAME;SINCE\r\n1; PETR\xD3LEO  S.A. ;2020-02-29\r\n").unwrap();
        let row = table.lines().next().unwrap().row.unwrap();
        assert!(matches!(row.raw(CODE), Cow::Borrowed("1")));
        assert_eq!(row.raw(NAME), "PETRÓLEO  S.A.");
        assert_eq!(row.text(NAME).unwrap(), "PETRÓLEO S.A.");
        assert_eq!(row.required_day(SINCE).unwrap().to_string(), "2020-02-29");
        assert_eq!(row.text_up_to(NAME, 5).unwrap_err(), "NAME is longer than 5 bytes");
    }

    #[test]
    fn what_a_field_lacks_is_said() {
        let table = open(b"CODE;NAME;SINCE\r\n1;;29/02/2020\r\n2;x;\r\n").unwrap();
        let rows: Vec<_> = table.lines().map(|line| line.row.unwrap()).collect();
        assert_eq!(rows[0].required_text(NAME).unwrap_err(), "NAME is empty");
        assert_eq!(rows[0].day(SINCE).unwrap_err(), "SINCE is \"29/02/2020\", which is no day as yyyy-MM-dd");
        assert_eq!(rows[1].day(SINCE).unwrap(), None);
        assert_eq!(rows[1].required_day(SINCE).unwrap_err(), "SINCE is empty");
    }

    #[test]
    fn columns_are_found_by_name() {
        let table = open(b"SINCE;NEW;NAME;CODE\r\n2020-01-01;?;x;7\r\n").unwrap();
        assert_eq!(table.alerts, [Alert::AdditionalColumns(vec!["\"NEW\"".to_owned()]), Alert::ReorderedColumns]);
        let row = table.lines().next().unwrap().row.unwrap();
        assert_eq!((row.raw(CODE), row.raw(NAME), row.raw(SINCE)), ("7".into(), "x".into(), "2020-01-01".into()));
        assert!(open(b"CODE;NAME;SINCE\n").unwrap().alerts.is_empty());
    }

    #[test]
    fn a_missing_renamed_or_doubled_column_refuses_the_table() {
        assert_eq!(open(b"CODE;NAME\r\n").unwrap_err(), Refused::ColumnsMissing(vec!["SINCE"]));
        assert_eq!(open(b"Code;NAME;SINCE\r\n").unwrap_err(), Refused::ColumnsMissing(vec!["CODE"]));
        assert_eq!(open(b"CODE;NAME;SINCE;NAME\r\n").unwrap_err(), Refused::ColumnTwice("NAME"));
    }

    #[test]
    fn a_row_of_another_width_is_no_row() {
        assert_eq!(
            names(b"CODE;NAME;SINCE\r\n1;a\r\n2;b;;\r\n3;c;\r\n"),
            ["it has 2 fields, but the header has 3", "it has 4 fields, but the header has 3", "c"]
        );
    }

    #[test]
    fn another_separator_is_told() {
        let refused = open(b"CODE,NAME,SINCE\r\n1,a,\r\n").unwrap_err();
        assert_eq!(refused.to_string(), "its header has no semicolon: \"CODE,NAME,SINCE\"");
    }

    #[test]
    fn utf_8_is_refused_and_one_text_encoded_twice_is_not() {
        let utf_8 = "CODE;NAME;SINCE\r\n1;PETRÓLEO;\r\n";
        assert_eq!(open(utf_8.as_bytes()).unwrap_err(), Refused::WrongEncoding("its accents are UTF-8"));
        assert_eq!(
            open("\u{feff}CODE;NAME;SINCE\r\n".as_bytes()).unwrap_err(),
            Refused::WrongEncoding("it starts with a Unicode byte order mark")
        );
        assert!(open(b"CODE;NAME;SINCE\r\n1;A\xC7\xC3O;\r\n2;S\xC3\xA3o;\r\n").is_ok());
    }

    #[test]
    fn what_is_no_table_is_named() {
        for (bytes, found) in [
            (&b"<!DOCTYPE html>; <html>"[..], "it is a page of HTML or XML"),
            (b" {\"error\":\"x\"}", "it is JSON"),
            (b"PK\x03\x04;", "it is a ZIP archive"),
            (b"\x1F\x8B\x08;", "it is gzip data"),
        ] {
            assert_eq!(open(bytes).unwrap_err(), Refused::NotTheFormat { expected: EXPECTED, found: found.to_owned() });
        }
        assert_eq!(open(b"").unwrap_err(), Refused::Empty);
        assert_eq!(open(b" \r\n").unwrap_err(), Refused::Empty);
        assert!(matches!(open(&vec![b';'; 1 << 19]), Err(Refused::NotTheFormat { .. })));
        assert_eq!(open(&vec![b';'; (1 << 20) + 1]).unwrap_err(), Refused::TooLarge { most_bytes: 1 << 20 });
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let table = [b"CODE;NAME;SINCE;\xC3\n", bytes.as_slice()].concat();
            for file in [bytes.as_slice(), table.as_slice()] {
                for line in open(file).iter().flat_map(Table::lines) {
                    if let Ok(row) = line.row {
                        let _ = (row.text(NAME), row.day(SINCE), row.required_text(CODE));
                    }
                }
            }
        }
    }
}
