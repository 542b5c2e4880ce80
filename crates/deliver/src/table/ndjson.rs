//! NDJSON: an object a line, with the names and values that the API's own JSON has.

use std::io::{self, Write};

use chrono::NaiveDate;
use vintem_domain::Decimal;
use vintem_domain::dates::SaoPauloMidnight;

use super::{Cells, Table, write_day};

/// Writes every row, and says how many there were.
pub fn write_ndjson(mut table: Table, mut into: impl Write) -> io::Result<u64> {
    let names = table.columns.iter().map(|column| serde_json::to_vec(&column.name)).collect::<Result<_, _>>()?;
    let mut cells = JsonCells { names, at: 0, line: Vec::new() };
    let mut rows = 0;
    while table.write_next(&mut cells) {
        debug_assert_eq!(cells.at, cells.names.len(), "a cell for each column");
        cells.line.extend(b"}\n");
        into.write_all(&cells.line)?;
        cells.line.clear();
        cells.at = 0;
        rows += 1;
    }
    Ok(rows)
}

struct JsonCells {
    /// With their quotes.
    names: Vec<Vec<u8>>,
    at: usize,
    line: Vec<u8>,
}

impl JsonCells {
    fn begin_cell(&mut self) {
        self.line.push(if self.at == 0 { b'{' } else { b',' });
        self.line.extend(&self.names[self.at]);
        self.line.push(b':');
        self.at += 1;
    }

    fn put_text(&mut self, text: &str) {
        serde_json::to_writer(&mut self.line, text).expect("a Vec takes everything");
    }

    fn put(&mut self, value: impl std::fmt::Display) {
        write!(self.line, "{value}").expect("a Vec takes everything");
    }
}

impl Cells for JsonCells {
    fn text(&mut self, text: &str) {
        self.begin_cell();
        self.put_text(text);
    }

    fn code(&mut self, code: u32) {
        self.begin_cell();
        self.put(format_args!("\"{code}\""));
    }

    fn texts(&mut self, texts: &mut dyn Iterator<Item = &str>) {
        self.begin_cell();
        self.line.push(b'[');
        for (at, text) in texts.enumerate() {
            if at > 0 {
                self.line.push(b',');
            }
            self.put_text(text);
        }
        self.line.push(b']');
    }

    fn whole(&mut self, number: i64) {
        self.begin_cell();
        self.put(number);
    }

    fn flag(&mut self, flag: bool) {
        self.begin_cell();
        self.put(flag);
    }

    fn day(&mut self, day: Option<NaiveDate>) {
        self.begin_cell();
        let Some(day) = day else { return self.line.extend(b"null") };
        self.line.push(b'"');
        write_day(day, &mut self.line);
        self.line.push(b'"');
    }

    fn midnight(&mut self, day: NaiveDate) {
        self.begin_cell();
        self.put(format_args!("\"{}\"", SaoPauloMidnight(day)));
    }

    /// Its own characters: it passes through no float.
    fn decimal(&mut self, value: Option<Decimal>) {
        self.begin_cell();
        match value {
            Some(value) => self.put(value),
            None => self.line.extend(b"null"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn a_row_is_a_line_and_every_kind_has_its_characters() {
        let mut written = Vec::new();
        assert_eq!(write_ndjson(samples::of_every_kind(3), &mut written).unwrap(), 3);
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
