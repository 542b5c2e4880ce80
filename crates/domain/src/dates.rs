//! Dates: parsing, ranges, months, and the time zone of São Paulo.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use chrono::{DateTime, Datelike, Days, Months, NaiveDate, NaiveDateTime, Offset, TimeZone, Utc};
use chrono_tz::America::Sao_Paulo;

/// The first and the last date that parameters accept.
pub const MIN_DATE: NaiveDate = NaiveDate::from_ymd_opt(1900, 1, 1).expect("a day of the calendar");
pub const MAX_DATE: NaiveDate = NaiveDate::from_ymd_opt(2199, 12, 31).expect("a day of the calendar");

/// Days from `from` to `to`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DateRange {
    pub from: NaiveDate,
    pub to: NaiveDate,
}

impl DateRange {
    pub const ALL: Self = Self { from: MIN_DATE, to: MAX_DATE };

    /// All days of a year, or none if the calendar has no such year.
    pub fn for_year(year: i32) -> Self {
        let day = |month, day| NaiveDate::from_ymd_opt(year, month, day).unwrap_or_default();
        Self { from: day(1, 1), to: day(12, 31) }
    }

    pub fn contains(self, day: NaiveDate) -> bool {
        (self.from..=self.to).contains(&day)
    }

    /// The same range without the days after `end`. Callers pass today, because later dates are never served.
    pub fn capped_at(self, end: NaiveDate) -> Self {
        Self { from: self.from, to: self.to.min(end) }
    }
}

/// Parses `YYYY-MM-DD` and nothing else, from [`MIN_DATE`] to [`MAX_DATE`].
pub fn parse_date(text: &str) -> Option<NaiveDate> {
    let bytes = text.as_bytes();
    let is_well_formed = bytes.len() == 10
        && bytes.iter().enumerate().all(|(index, byte)| match index {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if !is_well_formed {
        return None;
    }

    let day = NaiveDate::from_ymd_opt(text[0..4].parse().ok()?, text[5..7].parse().ok()?, text[8..10].parse().ok()?)?;
    (MIN_DATE..=MAX_DATE).contains(&day).then_some(day)
}

/// The date in São Paulo at this instant.
pub fn sao_paulo_date(now: DateTime<Utc>) -> NaiveDate {
    now.with_timezone(&Sao_Paulo).date_naive()
}

/// The local time in São Paulo at this instant.
pub fn sao_paulo_datetime(instant: DateTime<Utc>) -> NaiveDateTime {
    instant.with_timezone(&Sao_Paulo).naive_local()
}

/// The instant at which a day ends in São Paulo.
pub fn sao_paulo_day_end(day: NaiveDate) -> DateTime<Utc> {
    let next = day.succ_opt().unwrap_or(day);
    sao_paulo_instant(next, (0, 0))
}

/// The instant of an hour and minute of a day in São Paulo.
pub fn sao_paulo_instant(day: NaiveDate, (hour, minute): (u32, u32)) -> DateTime<Utc> {
    let time = chrono::NaiveTime::from_hms_opt(hour, minute, 0).unwrap_or_default();
    day.and_time(time).and_utc() - chrono::TimeDelta::seconds(sao_paulo_offset_seconds(day).into())
}

/// São Paulo's offset from UTC on this day, taken at noon because on 16 days midnight did not exist.
pub fn sao_paulo_offset_seconds(day: NaiveDate) -> i32 {
    let noon = day.and_hms_opt(12, 0, 0).expect("noon exists");
    let local = Sao_Paulo.from_local_datetime(&noon).earliest().expect("noon is never skipped");
    local.offset().fix().local_minus_utc()
}

/// The start of a day, written with São Paulo's offset: `2026-02-11T00:00:00-03:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaoPauloMidnight(pub NaiveDate);

impl Display for SaoPauloMidnight {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let hours = sao_paulo_offset_seconds(self.0) / -3600;
        write!(f, "{}T00:00:00-{hours:02}:00", self.0)
    }
}

/// The same day of the next month, or the 1st of the month after it if the next month has no such day.
pub fn same_day_next_month(day: NaiveDate) -> NaiveDate {
    let clamped = day + Months::new(1);
    if clamped.day() == day.day() { clamped } else { clamped + Days::new(1) }
}

/// The first day of the month of `day`.
pub fn month_start(day: NaiveDate) -> NaiveDate {
    day.with_day(1).expect("every month has a first day")
}

/// The last day of the month of `day`.
pub fn month_end(day: NaiveDate) -> NaiveDate {
    month_start(day) + Months::new(1) - Days::new(1)
}

/// Parses a `Retry-After` header: seconds or a date.
pub fn parse_retry_after(text: &str, now: DateTime<Utc>) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let retry_at = DateTime::parse_from_rfc2822(text.trim()).ok()?;
    Some((retry_at.to_utc() - now).to_std().unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> NaiveDate {
        parse_date(text).unwrap()
    }

    #[test]
    fn midnight_is_written_with_sao_paulos_offset() {
        assert_eq!(SaoPauloMidnight("2026-02-11".parse().unwrap()).to_string(), "2026-02-11T00:00:00-03:00");
        assert_eq!(SaoPauloMidnight("2018-12-11".parse().unwrap()).to_string(), "2018-12-11T00:00:00-02:00");
    }

    #[test]
    fn only_iso_dates_within_bounds_are_parsed() {
        for text in [
            "2024-13-01",
            "2024-02-30",
            "yesterday",
            "2024-1-5",
            "1899-12-31",
            "2200-01-01",
            "+024-01-01",
            "",
            "2024-01-01 ",
        ] {
            assert_eq!(parse_date(text), None, "{text:?}");
        }
        assert_eq!(parse_date("2024-02-29").map(|day| day.to_string()).as_deref(), Some("2024-02-29"));
    }

    #[test]
    fn the_date_follows_sao_paulo_time() {
        let late = DateTime::parse_from_rfc3339("2026-11-15T02:59:59Z").unwrap().to_utc();
        assert_eq!(sao_paulo_date(late), day("2026-11-14"));
    }

    #[test]
    fn a_day_ends_at_midnight_in_sao_paulo() {
        assert_eq!(sao_paulo_day_end(day("2026-11-13")).to_rfc3339(), "2026-11-14T03:00:00+00:00");
        assert_eq!(sao_paulo_date(sao_paulo_day_end(day("2026-11-13"))), day("2026-11-14"));
    }

    #[test]
    fn the_offset_follows_daylight_saving() {
        assert_eq!(sao_paulo_offset_seconds(day("2026-02-11")), -3 * 3600);
        assert_eq!(sao_paulo_offset_seconds(day("2018-11-04")), -2 * 3600);
    }

    #[test]
    fn month_end_is_the_last_day_of_the_month() {
        assert_eq!(month_end(day("2024-02-01")), day("2024-02-29"));
        assert_eq!(month_end(day("2026-12-01")), day("2026-12-31"));
    }

    #[test]
    fn retry_after_parses_seconds_and_dates() {
        let now = DateTime::parse_from_rfc3339("2026-11-13T18:00:00Z").unwrap().to_utc();
        assert_eq!(parse_retry_after("7", now), Some(Duration::from_secs(7)));
        assert_eq!(parse_retry_after("Fri, 13 Nov 2026 18:00:09 GMT", now), Some(Duration::from_secs(9)));
        assert_eq!(parse_retry_after("Fri, 13 Nov 2026 17:00:00 GMT", now), Some(Duration::ZERO));
        assert_eq!(parse_retry_after("soon", now), None);
    }
}
