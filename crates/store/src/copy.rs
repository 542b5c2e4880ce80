//! Rows in the text format of Postgres' COPY, which takes millions of them in seconds.

use chrono::{NaiveDate, NaiveDateTime};
use rust_decimal::Decimal;

/// Lines under construction: `line.text("a").date(day).end()`.
#[derive(Debug, Default)]
pub struct CopyBuffer {
    bytes: Vec<u8>,
    in_line: bool,
}

impl CopyBuffer {
    pub fn text(&mut self, value: &str) -> &mut Self {
        self.separate();
        self.escaped(value);
        self
    }

    pub fn integer(&mut self, value: impl Into<i64>) -> &mut Self {
        let value: i64 = value.into();
        self.plain(&value.to_string())
    }

    pub fn decimal(&mut self, value: Decimal) -> &mut Self {
        self.plain(&value.to_string())
    }

    pub fn date(&mut self, value: NaiveDate) -> &mut Self {
        self.plain(&value.to_string())
    }

    pub fn date_time(&mut self, value: NaiveDateTime) -> &mut Self {
        self.plain(&value.to_string())
    }

    pub fn optional_date(&mut self, value: Option<NaiveDate>) -> &mut Self {
        match value {
            Some(day) => self.date(day),
            None => self.plain("\\N"),
        }
    }

    /// `text[]`, each element in quotes.
    pub fn texts(&mut self, values: &[String]) -> &mut Self {
        let quoted: Vec<String> =
            values.iter().map(|value| format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))).collect();
        self.text(&format!("{{{}}}", quoted.join(",")))
    }

    pub fn end(&mut self) {
        self.bytes.push(b'\n');
        self.in_line = false;
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What was built so far; the buffer is empty afterwards.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    fn plain(&mut self, value: &str) -> &mut Self {
        self.separate();
        self.bytes.extend_from_slice(value.as_bytes());
        self
    }

    fn separate(&mut self) {
        if self.in_line {
            self.bytes.push(b'\t');
        }
        self.in_line = true;
    }

    fn escaped(&mut self, value: &str) {
        for byte in value.bytes() {
            match byte {
                b'\\' => self.bytes.extend_from_slice(b"\\\\"),
                b'\t' => self.bytes.extend_from_slice(b"\\t"),
                b'\n' => self.bytes.extend_from_slice(b"\\n"),
                b'\r' => self.bytes.extend_from_slice(b"\\r"),
                // Postgres' text has no NUL.
                0 => {}
                _ => self.bytes.push(byte),
            }
        }
    }
}
