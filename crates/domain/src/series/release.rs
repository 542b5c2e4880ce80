//! When the values of a series are published, and when a missing one is overdue.

use chrono::{DateTime, Days, Months, NaiveDate, Utc};

use super::Frequency;
use crate::calendar::Calendar;
use crate::dates::{DateRange, MAX_DATE, month_end, month_start, sao_paulo_instant};

/// The dates of the values of a series, and when each of them is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    pub frequency: Frequency,
    pub release: Release,
}

/// The closing bulletin of each business day.
pub const FX_SCHEDULE: Schedule = Schedule {
    frequency: Frequency::BusinessDaily,
    release: Release::Daily(DailyRelease { time: (13, 5), grace_days: 1 }),
};

/// Hour and minute in São Paulo.
pub type TimeOfDay = (u32, u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Release {
    /// Before its date, on which it is expected at this time.
    InAdvance(DailyRelease),
    /// On its date at this time. On the next business day, if that date is none.
    Daily(DailyRelease),
    /// The value of a month appears on its first business day and grows on every further one, at this time.
    RunningMonth(DailyRelease),
    /// On about this day of a later month.
    Monthly(MonthlyRelease),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DailyRelease {
    pub time: TimeOfDay,
    /// Business days, from the one on which the value is expected, after which it counts as overdue: one for a publisher
    /// that is never late.
    pub grace_days: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MonthlyRelease {
    /// From the last month that a value stands for to the month in which it is published.
    pub months_after: u32,
    /// Months that have no such day: their last one.
    pub day: u32,
    pub time: TimeOfDay,
    /// Days after that day from which the value counts as overdue. Publishers shift their days by as much.
    pub grace_days: u32,
}

/// More than from the first day of a year to the release of its value.
const MAX_DAYS_UNTIL_RELEASE: u64 = 800;

impl Release {
    /// The time of day from which a value is expected.
    pub const fn time(self) -> TimeOfDay {
        match self {
            Self::InAdvance(release) | Self::Daily(release) | Self::RunningMonth(release) => release.time,
            Self::Monthly(release) => release.time,
        }
    }
}

impl Schedule {
    /// The day on which the value of a date is expected.
    pub fn published_on(self, date: NaiveDate) -> NaiveDate {
        match self.release {
            Release::InAdvance(_) => date,
            Release::Daily(_) | Release::RunningMonth(_) => business_day_after(date, 0),
            Release::Monthly(release) => release.day_for(self.frequency.period_end(date)),
        }
    }

    /// The day on which the value after `newest` is expected.
    pub fn next_expected_on(self, newest: NaiveDate) -> NaiveDate {
        self.published_on(self.frequency.date_after(newest))
    }

    /// The moment from which the value after `newest` is expected.
    pub fn next_expected_at(self, newest: NaiveDate) -> DateTime<Utc> {
        sao_paulo_instant(self.next_expected_on(newest), self.release.time())
    }

    /// Whether a value newer than `newest` is expected by now. Publishers are often some minutes late, so this means less
    /// than [`Schedule::is_stale`].
    pub fn is_late(self, newest: NaiveDate, now: DateTime<Utc>) -> bool {
        now >= self.next_expected_at(newest)
    }

    /// The day by which the final value of a date has certainly been published. It may be too late, but never too early.
    pub fn certainly_published_on(self, date: NaiveDate) -> NaiveDate {
        match self.release {
            Release::InAdvance(_) => date,
            Release::Daily(_) => business_day_after(date, 1),
            // The rate of the last day of a month may appear on the next business day.
            Release::RunningMonth(_) => business_day_after(self.frequency.period_end(date), 2),
            Release::Monthly(release) => self.published_on(date) + Days::new(release.grace_days.into()),
        }
    }

    /// The first date whose value may have been published on this day or later.
    pub fn first_date_published_since(self, day: NaiveDate) -> NaiveDate {
        if matches!(self.release, Release::InAdvance(_) | Release::Daily(_)) {
            return day;
        }

        let earlier = DateRange { from: day - Days::new(MAX_DAYS_UNTIL_RELEASE), to: day };
        let dates = self.frequency.expected_dates(earlier);
        dates.into_iter().find(|date| self.certainly_published_on(*date) >= day).unwrap_or(day)
    }

    /// Whether a value newer than `newest` is overdue.
    pub fn is_stale(self, newest: NaiveDate, today: NaiveDate) -> bool {
        match self.release {
            Release::InAdvance(release) | Release::Daily(release) | Release::RunningMonth(release) => {
                Calendar::Settlement.count_business_days(self.next_expected_on(newest), today + Days::new(1))
                    > release.grace_days
            }
            Release::Monthly(_) => today > self.certainly_published_on(self.frequency.date_after(newest)),
        }
    }
}

/// The business day that is this many after a day; with 0 the day itself, or the next business day.
fn business_day_after(day: NaiveDate, days: i64) -> NaiveDate {
    Calendar::Settlement.add_business_days(day, days).unwrap_or(MAX_DATE)
}

impl MonthlyRelease {
    /// `period_end` is the last day that a value stands for.
    fn day_for(self, period_end: NaiveDate) -> NaiveDate {
        let month = month_start(period_end) + Months::new(self.months_after);
        (month + Days::new((self.day - 1).into())).min(month_end(month))
    }
}

#[cfg(test)]
mod tests {
    use chrono::Weekday;

    use super::*;
    use crate::dates::parse_date;

    fn day(text: &str) -> NaiveDate {
        parse_date(text).unwrap()
    }

    fn monthly(months_after: u32, day: u32) -> Release {
        Release::Monthly(MonthlyRelease { months_after, day, time: (9, 0), grace_days: 5 })
    }

    #[test]
    fn a_release_is_a_day_of_a_later_month() {
        for (release, frequency, newest, expected) in [
            (monthly(1, 10), Frequency::Monthly, "2026-10-01", "2026-12-10"),
            (monthly(0, 25), Frequency::Monthly, "2026-10-01", "2026-11-25"),
            (monthly(1, 30), Frequency::Monthly, "2025-12-01", "2026-02-28"),
            (monthly(3, 2), Frequency::Quarterly, "2026-04-01", "2026-12-02"),
            (monthly(1, 31), Frequency::Annual, "2025-01-01", "2027-01-31"),
        ] {
            assert_eq!(Schedule { frequency, release }.next_expected_on(day(newest)), day(expected));
        }
    }

    #[test]
    fn a_value_is_overdue_after_its_days_of_grace() {
        let schedule = Schedule { frequency: Frequency::Monthly, release: monthly(1, 10) };
        assert!(!schedule.is_stale(day("2026-10-01"), day("2026-12-15")));
        assert!(schedule.is_stale(day("2026-10-01"), day("2026-12-16")));
        assert_eq!(schedule.certainly_published_on(day("2026-11-01")), day("2026-12-15"));

        assert_eq!(schedule.first_date_published_since(day("2026-10-11")), day("2026-09-01"));
        assert_eq!(schedule.first_date_published_since(day("2026-10-16")), day("2026-10-01"));
        assert_eq!(FX_SCHEDULE.first_date_published_since(day("2026-10-11")), day("2026-10-11"));

        // Friday's bulletin is missing: it is late on that afternoon, and stale on Monday.
        let thursday = day("2026-11-12");
        assert_eq!(FX_SCHEDULE.next_expected_at(thursday).to_rfc3339(), "2026-11-13T16:05:00+00:00");
        let is_late = |now: &str| FX_SCHEDULE.is_late(thursday, now.parse().unwrap());
        assert!(!is_late("2026-11-13T16:04:59Z") && is_late("2026-11-13T16:05:00Z"));
        assert!(!FX_SCHEDULE.is_stale(thursday, day("2026-11-15")));
        assert!(FX_SCHEDULE.is_stale(thursday, day("2026-11-16")));
    }

    #[test]
    fn days_without_values_do_not_make_a_series_overdue() {
        // The rate of Saturday, August 1, is published on Monday.
        let lagging = DailyRelease { time: (18, 0), grace_days: 4 };
        let savings = Schedule { frequency: Frequency::Anniversaries, release: Release::Daily(lagging) };
        assert_eq!(savings.next_expected_on(day("2026-07-28")), day("2026-08-03"));
        assert!(!savings.is_stale(day("2026-07-28"), day("2026-08-06")));
        assert!(savings.is_stale(day("2026-07-28"), day("2026-08-07")));

        let weekly = Schedule { frequency: Frequency::Weekly(Weekday::Fri), release: Release::Daily(lagging) };
        assert_eq!(weekly.next_expected_on(day("2026-11-06")), day("2026-11-13"));
        assert!(!weekly.is_stale(day("2026-11-06"), day("2026-11-18")));
        assert!(weekly.is_stale(day("2026-11-06"), day("2026-11-19")));

        let target = Schedule { frequency: Frequency::Annual, release: Release::InAdvance(lagging) };
        assert_eq!(target.next_expected_on(day("2026-01-01")), day("2027-01-01"));
        assert!(!target.is_stale(day("2026-01-01"), day("2026-12-31")));
        assert!(target.is_stale(day("2026-01-01"), day("2027-01-08")));
    }

    #[test]
    fn a_running_month_is_final_on_the_second_business_day_after_it() {
        let lagging = DailyRelease { time: (18, 0), grace_days: 4 };
        let schedule = Schedule { frequency: Frequency::Monthly, release: Release::RunningMonth(lagging) };
        assert_eq!(schedule.published_on(day("2026-11-01")), day("2026-11-03"));
        assert_eq!(schedule.certainly_published_on(day("2026-10-01")), day("2026-11-04"));
        assert_eq!(schedule.first_date_published_since(day("2026-11-04")), day("2026-10-01"));
        assert_eq!(schedule.first_date_published_since(day("2026-11-05")), day("2026-11-01"));
        assert!(!schedule.is_stale(day("2026-10-01"), day("2026-11-06")));
        assert!(schedule.is_stale(day("2026-10-01"), day("2026-11-09")));
    }
}
