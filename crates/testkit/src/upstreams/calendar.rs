//! Brazil's banking days, as far as the upstreams follow them.

use chrono::{Datelike, Days, NaiveDate, NaiveDateTime, NaiveTime};
use vintem_domain::Calendar;

/// The end of the generated data; the fakes' current day may be any day up to it.
pub const LAST_GENERATED_DAY: NaiveDate = ymd(2040, 12, 31);

pub const fn ymd(year: i32, month: u32, day: u32) -> NaiveDate {
    NaiveDate::from_ymd_opt(year, month, day).expect("a day of the calendar")
}

/// Every calendar day, both ends included.
pub fn date_range(from: NaiveDate, to: NaiveDate) -> impl Iterator<Item = NaiveDate> {
    from.iter_days().take_while(move |day| *day <= to)
}

pub fn is_business_day(date: NaiveDate) -> bool {
    Calendar::Settlement.is_business_day(date)
}

pub fn business_day_on_or_after(date: NaiveDate) -> NaiveDate {
    date.iter_days().find(|date| is_business_day(*date)).expect("holidays end")
}

/// CVM rewrites its archives on Sundays.
pub fn sunday_on_or_before(date: NaiveDate) -> NaiveDate {
    date - Days::new(date.weekday().num_days_from_sunday().into())
}

/// When everything of a day is published.
pub fn end_of_day(day: NaiveDate) -> NaiveDateTime {
    day.and_time(NaiveTime::from_hms_opt(23, 59, 59).expect("a time of the day"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn business_days_skip_weekends_and_movable_holidays() {
        for holiday in [ymd(2024, 2, 12), ymd(2024, 2, 13), ymd(2024, 3, 29), ymd(2025, 6, 19), ymd(2026, 11, 15)] {
            assert!(!is_business_day(holiday), "{holiday}");
        }
        assert!(is_business_day(ymd(2023, 11, 20)) && !is_business_day(ymd(2024, 11, 20)));
        assert_eq!(business_day_on_or_after(ymd(2026, 2, 14)), ymd(2026, 2, 18));
        assert_eq!(sunday_on_or_before(ymd(2026, 11, 13)), ymd(2026, 11, 8));
        assert_eq!(sunday_on_or_before(ymd(2026, 11, 8)), ymd(2026, 11, 8));
    }
}
