//! Lists as CSV: a header row, then a row for each; RFC 4180 in UTF-8. For Brazilian spreadsheets with `;`, a decimal comma
//! and a byte order mark, without which they take the text for another encoding.
//!
//! Rows are written while they are sent, so a list takes the same memory however long it is.

use std::convert::Infallible;
use std::fmt::Display;
use std::io::Write;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use chrono::{Datelike, NaiveDate};
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, header};
use vintem_domain::{Problem, Text};

use crate::caller::Caller;
use crate::few::OneOfFew;
use crate::params::{Query, refuse};

/// The parameter by which CSV is asked for, as the table of options has it.
pub const CSV: (&str, Option<&str>) = ("format", Some("csv"));

/// As what a list is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    Json,
    Csv(Style),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Style {
    is_brazilian: bool,
    /// Whether a browser is to save it as a file.
    is_download: bool,
}

impl Form {
    pub fn read(caller: &Caller, query: &Query) -> Result<Self, Problem> {
        let is_csv = match query.value("format")? {
            None => caller.prefers_csv,
            Some("json") => false,
            Some("csv") => true,
            Some(_) => return refuse("format", Text::new("be `json` or `csv`", "ser `json` ou `csv`")),
        };
        let is_brazilian = match query.value("locale")? {
            None | Some("en") => false,
            Some("pt-BR") => true,
            Some(_) => return refuse("locale", Text::new("be `en` or `pt-BR`", "ser `en` ou `pt-BR`")),
        };
        let is_download = match query.value("download")? {
            None | Some("0") => false,
            Some("1") => true,
            Some(_) => return refuse("download", Text::new("be `0` or `1`", "ser `0` ou `1`")),
        };
        Ok(if is_csv { Self::Csv(Style { is_brazilian, is_download }) } else { Self::Json })
    }

    /// The most rows of a page, which may be far more where they are written while they are sent.
    pub fn most(self, as_json: usize, as_csv: usize) -> usize {
        match self {
            Self::Json => as_json,
            Self::Csv(_) => as_csv,
        }
    }
}

/// Whether `Accept` names CSV and puts it before JSON.
pub fn prefers_csv(headers: &HeaderMap) -> bool {
    let mut said = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).peekable();
    if said.peek().is_none() {
        return false;
    }
    let (mut csv, mut json, mut json_exactness) = (0.0, 0.0, 0);
    for range in said.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or("").to_ascii_lowercase();
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let quality = quality.map_or(1.0, |text| text.parse::<f32>().unwrap_or(0.0));
        let exactness = match name.as_str() {
            "text/csv" => {
                csv = quality;
                continue;
            }
            "application/json" => 3,
            "application/*" => 2,
            "*/*" => 1,
            _ => 0,
        };
        if exactness > json_exactness {
            (json, json_exactness) = (quality, exactness);
        }
    }
    csv > json
}

/// A list: what it is called, its columns, and what writes one row after the other.
pub struct Table {
    name: &'static str,
    columns: Vec<String>,
    next: Box<dyn FnMut(&mut Cells) -> bool + Send>,
    /// What is kept until the last row is written, or nobody reads on.
    _held: Option<OneOfFew>,
}

impl Table {
    /// `next` writes the next row, or is false where there is none.
    pub fn new(
        name: &'static str,
        columns: impl IntoIterator<Item = impl Into<String>>,
        next: impl FnMut(&mut Cells) -> bool + Send + 'static,
    ) -> Self {
        let columns = columns.into_iter().map(Into::into).collect();
        Self { name, columns, next: Box::new(next), _held: None }
    }

    /// A long one has one of its caller's few places meanwhile.
    pub fn holding(self, place: Option<OneOfFew>) -> Self {
        Self { _held: place, ..self }
    }

    /// Of rows that are there already.
    pub fn of<Row: Send + 'static>(
        name: &'static str,
        columns: impl IntoIterator<Item = impl Into<String>>,
        rows: Vec<Row>,
        mut write: impl FnMut(&Row, &mut Cells) + Send + 'static,
    ) -> Self {
        let mut rows = rows.into_iter();
        Self::new(name, columns, move |cells| rows.next().map(|row| write(&row, cells)).is_some())
    }

    pub fn response(self, style: Style, today: NaiveDate) -> Response {
        let file = format!("attachment; filename=\"vintem-{}-{today}.csv\"", self.name);
        let chunks = stream::unfold(Chunks::new(self, style), async |mut chunks| {
            // Each in turn with what others ask for meanwhile.
            tokio::task::yield_now().await;
            Some((Ok::<_, Infallible>(chunks.next()?), chunks))
        });
        // Who compresses it asks once more after its end.
        let chunks = chunks.fuse();
        let mut response = Response::new(Body::from_stream(chunks));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8; header=present"));
        if style.is_download
            && let Ok(file) = HeaderValue::from_str(&file)
        {
            headers.insert(header::CONTENT_DISPOSITION, file);
        }
        response
    }
}

/// What is written before it is sent.
const CHUNK: usize = 64 * 1024;
/// The longest row: what a chunk may be longer than that.
const ROOM: usize = 4 * 1024;

struct Chunks {
    table: Table,
    style: Style,
    is_begun: bool,
    is_done: bool,
}

impl Chunks {
    fn new(table: Table, style: Style) -> Self {
        Self { table, style, is_begun: false, is_done: false }
    }
}

impl Iterator for Chunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_done {
            return None;
        }
        let mut cells = Cells::new(self.style);
        if !self.is_begun {
            self.is_begun = true;
            cells.begin();
            self.table.columns.iter().for_each(|name| cells.text(name));
            cells.end_row();
        }
        while cells.written.len() < CHUNK {
            if !(self.table.next)(&mut cells) {
                self.is_done = true;
                break;
            }
            debug_assert_eq!(cells.in_row, self.table.columns.len(), "a cell for each column");
            cells.end_row();
        }
        Some(cells.written.into()).filter(|chunk: &Bytes| !chunk.is_empty())
    }
}

/// What rows are written into, cell by cell.
pub struct Cells {
    written: Vec<u8>,
    separator: u8,
    is_brazilian: bool,
    in_row: usize,
}

impl Cells {
    fn new(style: Style) -> Self {
        let separator = if style.is_brazilian { b';' } else { b',' };
        Self { written: Vec::with_capacity(CHUNK + ROOM), separator, is_brazilian: style.is_brazilian, in_row: 0 }
    }

    fn begin(&mut self) {
        if self.is_brazilian {
            self.written.extend("\u{feff}".as_bytes());
        }
    }

    fn begin_cell(&mut self) {
        if self.in_row > 0 {
            self.written.push(self.separator);
        }
        self.in_row += 1;
    }

    fn end_row(&mut self) {
        self.written.extend(b"\r\n");
        self.in_row = 0;
    }

    pub fn empty(&mut self) {
        self.begin_cell();
    }

    /// What people wrote. A spreadsheet would reckon what begins like a formula: an apostrophe makes it text.
    pub fn text(&mut self, text: &str) {
        self.begin_cell();
        let bytes = text.as_bytes();
        let is_formula = matches!(bytes.first(), Some(b'=' | b'+' | b'-' | b'@' | b'\t' | b'\r'));
        let is_special = |byte: &u8| *byte == self.separator || matches!(byte, b'"' | b'\r' | b'\n');
        let is_quoted = bytes.iter().any(is_special);
        if is_quoted {
            self.written.push(b'"');
        }
        if is_formula {
            self.written.push(b'\'');
        }
        if is_quoted {
            for part in bytes.split_inclusive(|byte| *byte == b'"') {
                self.written.extend(part);
                if part.ends_with(b"\"") {
                    self.written.push(b'"');
                }
            }
            self.written.push(b'"');
        } else {
            self.written.extend(bytes);
        }
    }

    /// Several in one cell.
    pub fn texts(&mut self, texts: &[impl AsRef<str>]) {
        let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        self.text(&texts.join(" | "));
    }

    /// An exact decimal, with the comma of the place.
    pub fn decimal(&mut self, value: impl Display) {
        self.begin_cell();
        let begins = self.written.len();
        self.write(value);
        if self.is_brazilian
            && let Some(point) = self.written[begins..].iter().position(|byte| *byte == b'.')
        {
            self.written[begins + point] = b',';
        }
    }

    /// What holds nothing that needs care: whole numbers, days, instants, `true` and `false`.
    pub fn plain(&mut self, value: impl Display) {
        self.begin_cell();
        self.write(value);
    }

    /// A day, or an empty cell. Digit by digit: a long list has millions of them.
    pub fn day(&mut self, day: Option<NaiveDate>) {
        self.begin_cell();
        let Some(day) = day else { return };
        let year = u32::try_from(day.year()).unwrap_or(0);
        let digit = |number: u32| b'0' + (number % 10) as u8;
        self.written.extend([digit(year / 1000), digit(year / 100), digit(year / 10), digit(year), b'-']);
        self.written.extend([digit(day.month() / 10), digit(day.month()), b'-']);
        self.written.extend([digit(day.day() / 10), digit(day.day())]);
    }

    fn write(&mut self, value: impl Display) {
        write!(self.written, "{value}").expect("a Vec takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { is_brazilian: false, is_download: false };
    const BRAZILIAN: Style = Style { is_brazilian: true, is_download: false };

    fn written(style: Style, row: impl Fn(&mut Cells)) -> String {
        let mut cells = Cells::new(style);
        row(&mut cells);
        String::from_utf8(cells.written).unwrap()
    }

    #[test]
    fn what_begins_like_a_formula_is_text_and_numbers_stay_numbers() {
        for (text, cell) in [
            ("=1+1", "'=1+1"),
            ("+55 11", "'+55 11"),
            ("-2", "'-2"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("=\"a\",b", "\"'=\"\"a\"\",b\""),
            ("a=1", "a=1"),
            ("", ""),
        ] {
            assert_eq!(written(PLAIN, |cells| cells.text(text)), cell);
        }
        assert_eq!(written(PLAIN, |cells| cells.decimal("-0.23")), "-0.23");
        assert_eq!(written(BRAZILIAN, |cells| cells.decimal("-0.23")), "-0,23");
    }

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let row = |cells: &mut Cells| {
            for text in ["a,b", "a;b", "say \"yes\"", "two\r\nlines", "\"", "ç"] {
                cells.text(text);
            }
            cells.empty();
            cells.day(None);
            cells.plain(true);
            cells.day(NaiveDate::from_ymd_opt(1986, 6, 4));
            cells.texts(&["x", "y"]);
        };
        assert_eq!(
            written(PLAIN, row),
            "\"a,b\",a;b,\"say \"\"yes\"\"\",\"two\r\nlines\",\"\"\"\",ç,,,true,1986-06-04,x | y"
        );
        assert_eq!(
            written(BRAZILIAN, row),
            "a,b;\"a;b\";\"say \"\"yes\"\"\";\"two\r\nlines\";\"\"\"\";ç;;;true;1986-06-04;x | y"
        );
    }

    #[test]
    fn a_table_is_its_header_and_its_rows_in_chunks() {
        let table = |rows: usize| {
            let rows: Vec<usize> = (0..rows).collect();
            Table::of("numbers", ["number", "text"], rows, |row, cells| {
                cells.plain(row);
                cells.text("=text");
            })
        };
        let whole = |rows: usize, style: Style| -> (usize, Vec<u8>) {
            let chunks: Vec<Bytes> = Chunks::new(table(rows), style).collect();
            assert!(chunks.iter().all(|chunk| chunk.len() < CHUNK + ROOM));
            (chunks.len(), chunks.concat())
        };
        assert_eq!(whole(0, PLAIN), (1, b"number,text\r\n".to_vec()));
        assert_eq!(whole(1, BRAZILIAN), (1, "\u{feff}number;text\r\n0;'=text\r\n".as_bytes().to_vec()));
        let (chunks, many) = whole(20_000, PLAIN);
        assert!(chunks > 3);
        let lines: Vec<String> = String::from_utf8(many).unwrap().split_terminator("\r\n").map(str::to_owned).collect();
        let expected = (0..20_000).map(|number| format!("{number},'=text"));
        assert!(lines.iter().skip(1).cloned().eq(expected));
    }

    #[test]
    fn accept_prefers_csv_only_where_it_says_so() {
        let prefers = |accept: &str| {
            let value = HeaderValue::from_str(accept).unwrap();
            prefers_csv(&HeaderMap::from_iter([(header::ACCEPT, value)]))
        };
        for accept in [
            "text/csv",
            "TEXT/CSV; charset=utf-8",
            "text/csv, application/json;q=0.9",
            "text/csv, */*;q=0.1",
            "application/json;q=0, text/csv;q=0.1, */*",
        ] {
            assert!(prefers(accept), "{accept}");
        }
        for accept in [
            "*/*",
            "text/*",
            "application/json",
            "text/csv, application/json",
            "text/csv;q=0.5, application/json",
            "text/csv;q=0",
            "text/csv;q=0.2, */*;q=0.8",
            "text/html, */*;q=0.8",
            "text/csv;q=nonsense",
            "",
        ] {
            assert!(!prefers(accept), "{accept}");
        }
        assert!(!prefers_csv(&HeaderMap::new()));
    }
}
