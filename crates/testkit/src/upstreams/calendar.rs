//! Brazil's bank days, as far as the upstreams keep to them.

use chrono::{Datelike, Days, NaiveDate, Weekday};

/// How far what is generated reaches; a stand-in's day may lie anywhere before.
pub const HORIZON: NaiveDate = day(2040, 12, 31);

pub const fn day(year: i32, month: u32, day: u32) -> NaiveDate {
    NaiveDate::from_ymd_opt(year, month, day).expect("a day of the calendar")
}

/// Every day of the calendar, both ends included.
pub fn days(from: NaiveDate, to: NaiveDate) -> impl Iterator<Item = NaiveDate> {
    from.iter_days().take_while(move |day| *day <= to)
}

pub fn is_business_day(date: NaiveDate) -> bool {
    const FIXED: [(u32, u32); 8] = [(1, 1), (4, 21), (5, 1), (9, 7), (10, 12), (11, 2), (11, 15), (12, 25)];
    /// Carnival's Monday and Tuesday, Good Friday, Corpus Christi.
    const AFTER_EASTER: [i64; 4] = [-48, -47, -2, 60];
    let is_weekend = matches!(date.weekday(), Weekday::Sat | Weekday::Sun);
    let is_fixed = FIXED.contains(&(date.month(), date.day()));
    // A holiday of the nation since 2024: on that day of 2023 there were quotes.
    let is_new = date.year() >= 2024 && (date.month(), date.day()) == (11, 20);
    let is_movable = AFTER_EASTER.contains(&(date - easter(date.year())).num_days());
    !(is_weekend || is_fixed || is_new || is_movable)
}

pub fn business_day_from(date: NaiveDate) -> NaiveDate {
    date.iter_days().find(|date| is_business_day(*date)).expect("holidays end")
}

/// The Sunday on or before: the regulator rewrites its archives on Sundays.
pub fn last_sunday(date: NaiveDate) -> NaiveDate {
    date - Days::new(date.weekday().num_days_from_sunday().into())
}

/// By the rule of Meeus, Jones and Butcher.
fn easter(year: i32) -> NaiveDate {
    let (a, b, c) = (year % 19, year / 100, year % 100);
    let g = (8 * b + 13) / 25;
    let h = (19 * a + b - b / 4 - g + 15) % 30;
    let l = (32 + 2 * (b % 4) + 2 * (c / 4) - h - c % 4) % 7;
    let m = (a + 11 * h + 19 * l) / 433;
    let month = (h + l - 7 * m + 90) / 25;
    let date = (h + l - 7 * m + 33 * month + 19) % 32;
    day(year, month.unsigned_abs(), date.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bank_days_skip_weekends_and_holidays_that_move() {
        for holiday in [day(2024, 2, 12), day(2024, 2, 13), day(2024, 3, 29), day(2025, 6, 19), day(2026, 11, 15)] {
            assert!(!is_business_day(holiday), "{holiday}");
        }
        assert!(is_business_day(day(2023, 11, 20)) && !is_business_day(day(2024, 11, 20)));
        assert_eq!(business_day_from(day(2026, 2, 14)), day(2026, 2, 18));
        assert_eq!(last_sunday(day(2026, 11, 13)), day(2026, 11, 8));
        assert_eq!(last_sunday(day(2026, 11, 8)), day(2026, 11, 8));
    }
}
