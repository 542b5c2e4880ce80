//! CSV: a header row, then a row for each; RFC 4180 in UTF-8. For Brazilian spreadsheets with `;`, a decimal comma and a
//! byte order mark, without which they take the text for another encoding.

use std::io::Write;

use bytes::Bytes;
use chrono::NaiveDate;
use vintem_domain::Decimal;
use vintem_domain::dates::SaoPauloMidnight;

use super::{Cells, Table, write_day};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Style {
    Plain,
    Brazilian,
}

/// What is written before it is handed on.
const CHUNK: usize = 64 * 1024;
/// The longest row: what a chunk may be longer than that.
const ROOM: usize = 4 * 1024;

/// A table as CSV, piece by piece, so that it takes the same memory however long it is.
pub struct CsvChunks {
    table: Table,
    style: Style,
    is_begun: bool,
    is_done: bool,
    rows: u64,
}

impl CsvChunks {
    pub fn new(table: Table, style: Style) -> Self {
        Self { table, style, is_begun: false, is_done: false, rows: 0 }
    }

    /// How many rows were written so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

impl Iterator for CsvChunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_done {
            return None;
        }
        let mut cells = CsvCells::new(self.style);
        if !self.is_begun {
            self.is_begun = true;
            cells.begin();
            self.table.columns.iter().for_each(|column| cells.text(&column.name));
            cells.end_row();
        }
        while cells.written.len() < CHUNK {
            if !self.table.write_next(&mut cells) {
                self.is_done = true;
                break;
            }
            debug_assert_eq!(cells.in_row, self.table.columns.len(), "a cell for each column");
            cells.end_row();
            self.rows += 1;
        }
        Some(cells.written.into()).filter(|chunk: &Bytes| !chunk.is_empty())
    }
}

struct CsvCells {
    written: Vec<u8>,
    separator: u8,
    style: Style,
    in_row: usize,
}

impl CsvCells {
    fn new(style: Style) -> Self {
        let separator = match style {
            Style::Plain => b',',
            Style::Brazilian => b';',
        };
        Self { written: Vec::with_capacity(CHUNK + ROOM), separator, style, in_row: 0 }
    }

    fn begin(&mut self) {
        if self.style == Style::Brazilian {
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

    /// What holds nothing that needs care.
    fn plain(&mut self, value: impl std::fmt::Display) {
        self.begin_cell();
        write!(self.written, "{value}").expect("a Vec takes everything");
    }
}

impl Cells for CsvCells {
    /// A spreadsheet would reckon what begins like a formula: an apostrophe makes it text.
    fn text(&mut self, text: &str) {
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

    fn code(&mut self, code: u32) {
        self.plain(code);
    }

    /// Several in one cell.
    fn texts(&mut self, texts: &mut dyn Iterator<Item = &str>) {
        let texts: Vec<&str> = texts.collect();
        self.text(&texts.join(" | "));
    }

    fn whole(&mut self, number: i64) {
        self.plain(number);
    }

    fn flag(&mut self, flag: bool) {
        self.plain(flag);
    }

    fn day(&mut self, day: Option<NaiveDate>) {
        self.begin_cell();
        if let Some(day) = day {
            write_day(day, &mut self.written);
        }
    }

    fn midnight(&mut self, day: NaiveDate) {
        self.plain(SaoPauloMidnight(day));
    }

    /// With the comma of the place.
    fn decimal(&mut self, value: Option<Decimal>) {
        let Some(value) = value else { return self.begin_cell() };
        let begins = self.written.len();
        self.plain(value);
        if self.style == Style::Brazilian
            && let Some(point) = self.written[begins..].iter().position(|byte| *byte == b'.')
        {
            self.written[begins + point] = b',';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Column, samples};
    use super::*;

    fn written(style: Style, row: impl Fn(&mut CsvCells)) -> String {
        let mut cells = CsvCells::new(style);
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
            assert_eq!(written(Style::Plain, |cells| cells.text(text)), cell);
        }
        let number = Some(Decimal::new(-23, 2));
        assert_eq!(written(Style::Plain, |cells| cells.decimal(number)), "-0.23");
        assert_eq!(written(Style::Brazilian, |cells| cells.decimal(number)), "-0,23");
    }

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let row = |cells: &mut CsvCells| {
            for text in ["a,b", "a;b", "say \"yes\"", "two\r\nlines", "\"", "ç"] {
                cells.text(text);
            }
            cells.decimal(None);
            cells.day(None);
            cells.flag(true);
            cells.day(NaiveDate::from_ymd_opt(1986, 6, 4));
            cells.texts(&mut ["x", "y"].into_iter());
        };
        assert_eq!(
            written(Style::Plain, row),
            "\"a,b\",a;b,\"say \"\"yes\"\"\",\"two\r\nlines\",\"\"\"\",ç,,,true,1986-06-04,x | y"
        );
        assert_eq!(
            written(Style::Brazilian, row),
            "a,b;\"a;b\";\"say \"\"yes\"\"\";\"two\r\nlines\";\"\"\"\";ç;;;true;1986-06-04;x | y"
        );
    }

    #[test]
    fn a_table_is_its_header_and_its_rows_in_chunks() {
        let table = |rows: i64| {
            let columns = vec![Column::whole("number"), Column::text("text")];
            Table::of("numbers", columns, (0..rows).collect(), |row, cells| {
                cells.whole(*row);
                cells.text("=text");
            })
        };
        let whole = |rows: i64, style: Style| -> (usize, Vec<u8>) {
            let mut chunks = CsvChunks::new(table(rows), style);
            let pieces: Vec<Bytes> = chunks.by_ref().collect();
            assert!(pieces.iter().all(|chunk| chunk.len() < CHUNK + ROOM));
            assert_eq!(chunks.rows(), rows as u64);
            (pieces.len(), pieces.concat())
        };
        assert_eq!(whole(0, Style::Plain), (1, b"number,text\r\n".to_vec()));
        assert_eq!(whole(1, Style::Brazilian), (1, "\u{feff}number;text\r\n0;'=text\r\n".as_bytes().to_vec()));
        let (chunks, many) = whole(20_000, Style::Plain);
        assert!(chunks > 3);
        let lines: Vec<String> = String::from_utf8(many).unwrap().split_terminator("\r\n").map(str::to_owned).collect();
        let expected = (0..20_000).map(|number| format!("{number},'=text"));
        assert!(lines.iter().skip(1).cloned().eq(expected));
    }

    #[test]
    fn every_kind_has_its_characters() {
        let chunks: Vec<Bytes> = CsvChunks::new(samples::of_every_kind(2), Style::Plain).collect();
        assert_eq!(
            String::from_utf8(chunks.concat()).unwrap(),
            "id,name,tickers,version,is_latest,reference_date,date,value\r\n\
             1,\"'=Açúcar \"\"União\"\", S.A.\",UNIA3,-7,false,,2026-02-11T00:00:00-03:00,-0.053400\r\n\
             2,\"'=Açúcar \"\"União\"\", S.A.\",UNIA3 | UNIA4,-7,true,2026-02-11,2026-02-11T00:00:00-03:00,-0.053400\r\n"
        );
    }
}
