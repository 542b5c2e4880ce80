//! What the fuzz targets share.

use chrono::NaiveDate;
use vintem_ingest::parsers::ParsedRows;

/// The day of reading: readers know no clock.
pub const TODAY: NaiveDate = NaiveDate::from_ymd_opt(2026, 5, 29).expect("a day of the calendar");

/// Nothing is silently dropped.
pub fn assert_all_rows_counted<T>(read: &ParsedRows<T>) {
    let accounted = read.rows.len() as u64 + read.bad_rows.len() as u64 + read.merged + read.skipped;
    assert_eq!(accounted, read.total);
}
