//! Helpers shared by the fuzz targets.

use chrono::NaiveDate;
use vintem_ingest::parsers::ParsedRows;

/// The current date for parsers, which have no clock of their own.
pub const TODAY: NaiveDate = NaiveDate::from_ymd_opt(2026, 5, 29).expect("a day of the calendar");

/// Asserts that no row is silently dropped.
pub fn assert_all_rows_counted<T>(parsed: &ParsedRows<T>) {
    let counted = parsed.rows.len() as u64 + parsed.bad_rows.len() as u64 + parsed.merged + parsed.skipped;
    assert_eq!(counted, parsed.total);
}
