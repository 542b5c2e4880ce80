//! Writes rows in the text format of Postgres' COPY, which loads millions of rows in seconds.

use chrono::{NaiveDate, NaiveDateTime};
use rust_decimal::Decimal;

/// Builds rows field by field: `line.text("a").date(day).end_row()`.
#[derive(Debug, Default)]
pub struct CopyBuffer {
    bytes: Vec<u8>,
    row_started: bool,
}

impl CopyBuffer {
    pub fn text(&mut self, value: &str) -> &mut Self {
        self.write_separator();
        self.write_escaped(value);
        self
    }

    pub fn integer(&mut self, value: impl Into<i64>) -> &mut Self {
        let value: i64 = value.into();
        self.write_field(&value.to_string())
    }

    pub fn boolean(&mut self, value: bool) -> &mut Self {
        self.write_field(if value { "t" } else { "f" })
    }

    pub fn decimal(&mut self, value: Decimal) -> &mut Self {
        self.write_field(&value.to_string())
    }

    pub fn optional_decimal(&mut self, value: Option<Decimal>) -> &mut Self {
        match value {
            Some(value) => self.decimal(value),
            None => self.write_field("\\N"),
        }
    }

    pub fn date(&mut self, value: NaiveDate) -> &mut Self {
        self.write_field(&value.to_string())
    }

    pub fn date_time(&mut self, value: NaiveDateTime) -> &mut Self {
        self.write_field(&value.to_string())
    }

    pub fn optional_date(&mut self, value: Option<NaiveDate>) -> &mut Self {
        match value {
            Some(day) => self.date(day),
            None => self.write_field("\\N"),
        }
    }

    /// A `text[]` with each element in quotes.
    pub fn text_array(&mut self, values: &[String]) -> &mut Self {
        let quoted: Vec<String> =
            values.iter().map(|value| format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))).collect();
        self.text(&format!("{{{}}}", quoted.join(",")))
    }

    /// A `bytea`, in hexadecimal.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        self.text(&format!("\\x{digits}"))
    }

    pub fn end_row(&mut self) {
        self.bytes.push(b'\n');
        self.row_started = false;
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes the rows built so far and leaves the buffer empty.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    fn write_field(&mut self, value: &str) -> &mut Self {
        self.write_separator();
        self.bytes.extend_from_slice(value.as_bytes());
        self
    }

    fn write_separator(&mut self) {
        if self.row_started {
            self.bytes.push(b'\t');
        }
        self.row_started = true;
    }

    fn write_escaped(&mut self, value: &str) {
        for byte in value.bytes() {
            match byte {
                b'\\' => self.bytes.extend_from_slice(b"\\\\"),
                b'\t' => self.bytes.extend_from_slice(b"\\t"),
                b'\n' => self.bytes.extend_from_slice(b"\\n"),
                b'\r' => self.bytes.extend_from_slice(b"\\r"),
                // Postgres' text type cannot hold NUL.
                0 => {}
                _ => self.bytes.push(byte),
            }
        }
    }
}
