//! What the fuzz targets share.

use chrono::NaiveDate;
use vintem_ingest::read::Read;

/// The day of reading: readers know no clock.
pub const TODAY: NaiveDate = NaiveDate::from_ymd_opt(2026, 5, 29).expect("a day of the calendar");

/// Nothing is silently dropped.
pub fn all_rows_are_accounted_for<T>(read: &Read<T>) {
    let accounted = read.rows.len() as u64 + read.bad.len() as u64 + read.merged + read.passed_over;
    assert_eq!(accounted, read.total);
}
