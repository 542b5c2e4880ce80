//! NDJSON: one object per line, with the same names and values as the JSON of the API.

use std::io::{self, Write};

use chrono::NaiveDate;
use vintem_domain::Decimal;
use vintem_domain::dates::SaoPauloMidnight;

use super::{CellWriter, OutputTable, write_iso_date};

/// Writes every row and returns their number.
pub fn write_ndjson(mut table: OutputTable, mut writer: impl Write) -> io::Result<u64> {
    let names = table.columns.iter().map(|column| serde_json::to_vec(&column.name)).collect::<Result<_, _>>()?;
    let mut cells = JsonCellWriter { quoted_names: names, column_index: 0, line: Vec::new() };

    let mut rows = 0;
    while table.write_next_row(&mut cells) {
        debug_assert_eq!(cells.column_index, cells.quoted_names.len(), "a cell for each column");
        cells.line.extend(b"}\n");
        writer.write_all(&cells.line)?;
        cells.line.clear();
        cells.column_index = 0;
        rows += 1;
    }
    Ok(rows)
}

struct JsonCellWriter {
    quoted_names: Vec<Vec<u8>>,
    column_index: usize,
    line: Vec<u8>,
}

impl JsonCellWriter {
    fn begin_cell(&mut self) {
        self.line.push(if self.column_index == 0 { b'{' } else { b',' });
        self.line.extend(&self.quoted_names[self.column_index]);
        self.line.push(b':');
        self.column_index += 1;
    }

    fn push_json_string(&mut self, text: &str) {
        serde_json::to_writer(&mut self.line, text).expect("a Vec takes everything");
    }

    fn push_display(&mut self, value: impl std::fmt::Display) {
        write!(self.line, "{value}").expect("a Vec takes everything");
    }
}

impl CellWriter for JsonCellWriter {
    fn write_text(&mut self, text: &str) {
        self.begin_cell();
        self.push_json_string(text);
    }

    fn write_code(&mut self, code: u32) {
        self.begin_cell();
        self.push_display(format_args!("\"{code}\""));
    }

    fn write_text_list(&mut self, texts: &mut dyn Iterator<Item = &str>) {
        self.begin_cell();
        self.line.push(b'[');
        for (index, text) in texts.enumerate() {
            if index > 0 {
                self.line.push(b',');
            }
            self.push_json_string(text);
        }
        self.line.push(b']');
    }

    fn write_integer(&mut self, number: i64) {
        self.begin_cell();
        self.push_display(number);
    }

    fn write_boolean(&mut self, flag: bool) {
        self.begin_cell();
        self.push_display(flag);
    }

    fn write_date(&mut self, day: Option<NaiveDate>) {
        self.begin_cell();
        let Some(day) = day else { return self.line.extend(b"null") };
        self.line.push(b'"');
        write_iso_date(day, &mut self.line);
        self.line.push(b'"');
    }

    fn write_date_as_midnight(&mut self, day: NaiveDate) {
        self.begin_cell();
        self.push_display(format_args!("\"{}\"", SaoPauloMidnight(day)));
    }

    /// The exact digits: no float is involved.
    fn write_decimal(&mut self, value: Option<Decimal>) {
        self.begin_cell();
        match value {
            Some(value) => self.push_display(value),
            None => self.line.extend(b"null"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample_tables;
    use super::*;

    #[test]
    fn each_row_is_a_json_line_with_every_column_type() {
        let mut written = Vec::new();
        assert_eq!(write_ndjson(sample_tables::table_with_every_column_type(3), &mut written).unwrap(), 3);
        let lines: Vec<&str> = std::str::from_utf8(&written).unwrap().split_terminator('\n').collect();
        assert_eq!(
            lines,
            [
                r#"{"id":"1","name":"=Açúcar \"União\", S.A.","tickers":["UNIA3"],"version":-7,"is_latest":false,"reference_date":null,"date":"2026-02-11T00:00:00-03:00","value":-0.053400}"#,
                r#"{"id":"2","name":"=Açúcar \"União\", S.A.","tickers":["UNIA3","UNIA4"],"version":-7,"is_latest":true,"reference_date":"2026-02-11","date":"2026-02-11T00:00:00-03:00","value":-0.053400}"#,
                r#"{"id":"3","name":"=Açúcar \"União\", S.A.","tickers":[],"version":-7,"is_latest":false,"reference_date":"2026-02-11","date":"2026-02-11T00:00:00-03:00","value":null}"#,
            ]
        );
    }
}
