//! CSV with a header row: RFC 4180 in UTF-8. The Brazilian dialect has `;`, a decimal comma, and a byte order mark, without
//! which spreadsheets assume another encoding.

use std::io::Write;

use bytes::Bytes;
use chrono::NaiveDate;
use vintem_domain::Decimal;
use vintem_domain::dates::SaoPauloMidnight;

use super::{CellWriter, OutputTable, write_iso_date};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CsvDialect {
    Plain,
    Brazilian,
}

/// A chunk ends with the row that reaches this size.
const CHUNK_BYTES: usize = 64 * 1024;
/// The longest row, and so the most by which a chunk may exceed [`CHUNK_BYTES`].
const MAX_ROW_BYTES: usize = 4 * 1024;

/// A table as CSV in chunks, so that memory use does not depend on its length.
pub struct CsvChunks {
    table: OutputTable,
    dialect: CsvDialect,
    has_written_header: bool,
    is_done: bool,
    rows_written: u64,
}

impl CsvChunks {
    pub fn new(table: OutputTable, dialect: CsvDialect) -> Self {
        Self { table, dialect, has_written_header: false, is_done: false, rows_written: 0 }
    }

    /// How many rows were written so far.
    pub fn rows_written(&self) -> u64 {
        self.rows_written
    }
}

impl Iterator for CsvChunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_done {
            return None;
        }

        let mut cells = CsvCellWriter::new(self.dialect);
        if !self.has_written_header {
            self.has_written_header = true;
            cells.write_byte_order_mark();
            self.table.columns.iter().for_each(|column| cells.write_text(&column.name));
            cells.end_row();
        }

        while cells.buffer.len() < CHUNK_BYTES {
            if !self.table.write_next_row(&mut cells) {
                self.is_done = true;
                break;
            }
            debug_assert_eq!(cells.cells_in_row, self.table.columns.len(), "a cell for each column");
            cells.end_row();
            self.rows_written += 1;
        }

        Some(cells.buffer.into()).filter(|chunk: &Bytes| !chunk.is_empty())
    }
}

struct CsvCellWriter {
    buffer: Vec<u8>,
    separator: u8,
    dialect: CsvDialect,
    cells_in_row: usize,
}

impl CsvCellWriter {
    fn new(dialect: CsvDialect) -> Self {
        let separator = match dialect {
            CsvDialect::Plain => b',',
            CsvDialect::Brazilian => b';',
        };
        Self { buffer: Vec::with_capacity(CHUNK_BYTES + MAX_ROW_BYTES), separator, dialect, cells_in_row: 0 }
    }

    fn write_byte_order_mark(&mut self) {
        if self.dialect == CsvDialect::Brazilian {
            self.buffer.extend("\u{feff}".as_bytes());
        }
    }

    fn begin_cell(&mut self) {
        if self.cells_in_row > 0 {
            self.buffer.push(self.separator);
        }
        self.cells_in_row += 1;
    }

    fn end_row(&mut self) {
        self.buffer.extend(b"\r\n");
        self.cells_in_row = 0;
    }

    /// For values that never need quotes or escaping.
    fn write_unquoted(&mut self, value: impl std::fmt::Display) {
        self.begin_cell();
        write!(self.buffer, "{value}").expect("a Vec takes everything");
    }
}

impl CellWriter for CsvCellWriter {
    /// Spreadsheets evaluate text that begins like a formula, so an apostrophe marks it as text.
    fn write_text(&mut self, text: &str) {
        self.begin_cell();
        let bytes = text.as_bytes();
        let is_formula = matches!(bytes.first(), Some(b'=' | b'+' | b'-' | b'@' | b'\t' | b'\r'));
        let is_special = |byte: &u8| *byte == self.separator || matches!(byte, b'"' | b'\r' | b'\n');
        let is_quoted = bytes.iter().any(is_special);

        if is_quoted {
            self.buffer.push(b'"');
        }
        if is_formula {
            self.buffer.push(b'\'');
        }
        if is_quoted {
            for part in bytes.split_inclusive(|byte| *byte == b'"') {
                self.buffer.extend(part);
                if part.ends_with(b"\"") {
                    self.buffer.push(b'"');
                }
            }
            self.buffer.push(b'"');
        } else {
            self.buffer.extend(bytes);
        }
    }

    fn write_code(&mut self, code: u32) {
        self.write_unquoted(code);
    }

    fn write_text_list(&mut self, texts: &mut dyn Iterator<Item = &str>) {
        let texts: Vec<&str> = texts.collect();
        self.write_text(&texts.join(" | "));
    }

    fn write_integer(&mut self, number: i64) {
        self.write_unquoted(number);
    }

    fn write_boolean(&mut self, flag: bool) {
        self.write_unquoted(flag);
    }

    fn write_date(&mut self, day: Option<NaiveDate>) {
        self.begin_cell();
        if let Some(day) = day {
            write_iso_date(day, &mut self.buffer);
        }
    }

    fn write_date_as_midnight(&mut self, day: NaiveDate) {
        self.write_unquoted(SaoPauloMidnight(day));
    }

    /// Uses a decimal comma in the Brazilian dialect.
    fn write_decimal(&mut self, value: Option<Decimal>) {
        let Some(value) = value else { return self.begin_cell() };
        let start = self.buffer.len();
        self.write_unquoted(value);
        if self.dialect == CsvDialect::Brazilian
            && let Some(point) = self.buffer[start..].iter().position(|byte| *byte == b'.')
        {
            self.buffer[start + point] = b',';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Column, sample_tables};
    use super::*;

    fn render_row(dialect: CsvDialect, row: impl Fn(&mut CsvCellWriter)) -> String {
        let mut cells = CsvCellWriter::new(dialect);
        row(&mut cells);
        String::from_utf8(cells.buffer).unwrap()
    }

    #[test]
    fn formulas_are_escaped_and_numbers_stay_numbers() {
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
            assert_eq!(render_row(CsvDialect::Plain, |cells| cells.write_text(text)), cell);
        }
        let number = Some(Decimal::new(-23, 2));
        assert_eq!(render_row(CsvDialect::Plain, |cells| cells.write_decimal(number)), "-0.23");
        assert_eq!(render_row(CsvDialect::Brazilian, |cells| cells.write_decimal(number)), "-0,23");
    }

    #[test]
    fn cells_are_quoted_only_when_needed() {
        let row = |cells: &mut CsvCellWriter| {
            for text in ["a,b", "a;b", "say \"yes\"", "two\r\nlines", "\"", "ç"] {
                cells.write_text(text);
            }
            cells.write_decimal(None);
            cells.write_date(None);
            cells.write_boolean(true);
            cells.write_date(NaiveDate::from_ymd_opt(1986, 6, 4));
            cells.write_text_list(&mut ["x", "y"].into_iter());
        };
        assert_eq!(
            render_row(CsvDialect::Plain, row),
            "\"a,b\",a;b,\"say \"\"yes\"\"\",\"two\r\nlines\",\"\"\"\",ç,,,true,1986-06-04,x | y"
        );
        assert_eq!(
            render_row(CsvDialect::Brazilian, row),
            "a,b;\"a;b\";\"say \"\"yes\"\"\";\"two\r\nlines\";\"\"\"\";ç;;;true;1986-06-04;x | y"
        );
    }

    #[test]
    fn chunks_join_into_the_header_and_all_rows() {
        let table = |rows: i64| {
            let columns = vec![Column::integer("number"), Column::text("text")];
            OutputTable::from_rows("numbers", columns, 0..rows, |row, cells| {
                cells.write_integer(*row);
                cells.write_text("=text");
            })
        };
        let write_all = |rows: i64, dialect: CsvDialect| -> (usize, Vec<u8>) {
            let mut chunks = CsvChunks::new(table(rows), dialect);
            let written: Vec<Bytes> = chunks.by_ref().collect();
            assert!(written.iter().all(|chunk| chunk.len() < CHUNK_BYTES + MAX_ROW_BYTES));
            assert_eq!(chunks.rows_written(), rows as u64);
            (written.len(), written.concat())
        };
        assert_eq!(write_all(0, CsvDialect::Plain), (1, b"number,text\r\n".to_vec()));
        assert_eq!(write_all(1, CsvDialect::Brazilian), (1, "\u{feff}number;text\r\n0;'=text\r\n".as_bytes().to_vec()));

        let (chunk_count, csv) = write_all(20_000, CsvDialect::Plain);
        assert!(chunk_count > 3);
        let lines: Vec<String> = String::from_utf8(csv).unwrap().split_terminator("\r\n").map(str::to_owned).collect();
        let expected = (0..20_000).map(|number| format!("{number},'=text"));
        assert!(lines.iter().skip(1).cloned().eq(expected));
    }

    #[test]
    fn every_column_type_is_written_as_csv() {
        let chunks: Vec<Bytes> =
            CsvChunks::new(sample_tables::table_with_every_column_type(2), CsvDialect::Plain).collect();
        assert_eq!(
            String::from_utf8(chunks.concat()).unwrap(),
            "id,name,tickers,version,is_latest,reference_date,date,value\r\n\
             1,\"'=Açúcar \"\"União\"\", S.A.\",UNIA3,-7,false,,2026-02-11T00:00:00-03:00,-0.053400\r\n\
             2,\"'=Açúcar \"\"União\"\", S.A.\",UNIA3 | UNIA4,-7,true,2026-02-11,2026-02-11T00:00:00-03:00,-0.053400\r\n"
        );
    }
}
