//! The values of a series as SGS sends them: numbers as texts with a fixed number of decimals.

use std::collections::BTreeMap;

use chrono::NaiveDate;
use rust_decimal::Decimal;

/// Values as text, by day.
pub type SeriesRows = BTreeMap<NaiveDate, String>;

pub fn format_f64(value: f64, decimals: u32) -> String {
    format_units((value * 10f64.powi(decimals.cast_signed())).round() as i64, decimals)
}

/// `1475` with two decimals is `14.75`.
pub fn format_units(units: i64, decimals: u32) -> String {
    Decimal::new(units, decimals).to_string()
}

pub fn parse_number(text: &str) -> f64 {
    text.parse().expect("a value of a series is a number")
}
