//! How often a series has a value, and on which dates.

use chrono::{Datelike, Days, Months, NaiveDate, Weekday};

use crate::calendar::Calendar;
use crate::dates::{DateRange, MAX_DATE, month_end, month_start};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Frequency {
    /// Every day of the calendar.
    Daily,
    /// Days on which banks are open.
    BusinessDaily,
    /// The days 1 to 28 of every month, on which savings accounts have their anniversary.
    Anniversaries,
    /// Dated this day of the week.
    Weekly(Weekday),
    /// Dated the first day of the reference month.
    Monthly,
    /// Dated the first day of the quarter.
    Quarterly,
    /// Dated January 1.
    Annual,
}

/// The last anniversary of a month: shorter months have no later day.
pub const LAST_ANNIVERSARY_DAY: u32 = 28;

impl Frequency {
    pub const fn id(self) -> &'static str {
        match self {
            Self::Daily => "daily",
            Self::BusinessDaily => "business-daily",
            Self::Anniversaries => "days-1-to-28",
            Self::Weekly(_) => "weekly",
            Self::Monthly => "monthly",
            Self::Quarterly => "quarterly",
            Self::Annual => "annual",
        }
    }

    /// The months that a value stands for, if it is dated the first day of its first month.
    pub const fn months(self) -> Option<u32> {
        match self {
            Self::Daily | Self::BusinessDaily | Self::Anniversaries | Self::Weekly(_) => None,
            Self::Monthly => Some(1),
            Self::Quarterly => Some(3),
            Self::Annual => Some(12),
        }
    }

    /// The date of the value after the one of `date`.
    pub fn date_after(self, date: NaiveDate) -> NaiveDate {
        match self {
            Self::Daily => date + Days::new(1),
            Self::BusinessDaily => Calendar::Settlement.add_business_days(date, 1).unwrap_or(MAX_DATE),
            Self::Anniversaries if date.day() < LAST_ANNIVERSARY_DAY => date + Days::new(1),
            Self::Anniversaries => month_end(date) + Days::new(1),
            Self::Weekly(_) => date + Days::new(7),
            Self::Monthly | Self::Quarterly | Self::Annual => {
                self.period_start(date) + Months::new(self.months().unwrap_or(1))
            }
        }
    }

    /// The last day that the value of `date` stands for.
    pub fn period_end(self, date: NaiveDate) -> NaiveDate {
        match self.months() {
            Some(months) => self.period_start(date) + Months::new(months) - Days::new(1),
            None => date,
        }
    }

    /// The days in a range that should have a value, in order.
    pub fn expected_dates(self, range: DateRange) -> Vec<NaiveDate> {
        if self == Self::BusinessDaily {
            return Calendar::Settlement.business_days(range).collect();
        }

        let mut dates = Vec::new();
        let mut date = self.first_date_from(range.from);
        while date <= range.to {
            dates.push(date);
            date = self.date_after(date);
        }
        dates
    }

    /// The first date of a value on or after a day; business days are left to their calendar.
    fn first_date_from(self, day: NaiveDate) -> NaiveDate {
        match self {
            Self::Daily | Self::BusinessDaily => day,
            Self::Anniversaries if day.day() <= LAST_ANNIVERSARY_DAY => day,
            Self::Anniversaries => month_end(day) + Days::new(1),
            Self::Weekly(weekday) => day + Days::new(weekday.days_since(day.weekday()).into()),
            Self::Monthly | Self::Quarterly | Self::Annual if self.period_start(day) == day => day,
            Self::Monthly | Self::Quarterly | Self::Annual => self.date_after(day),
        }
    }

    /// The first day of the month, quarter or year of a day.
    fn period_start(self, day: NaiveDate) -> NaiveDate {
        let months = self.months().unwrap_or(1);
        month_start(day) - Months::new(day.month0() % months)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dates::parse_date;

    fn day(text: &str) -> NaiveDate {
        parse_date(text).unwrap()
    }

    #[test]
    fn each_frequency_expects_its_own_dates() {
        let dates = |frequency: Frequency, from: &str, to: &str| {
            let expected = frequency.expected_dates(DateRange { from: day(from), to: day(to) });
            let text = |date: Option<&NaiveDate>| date.map(ToString::to_string).unwrap_or_default();
            (expected.len(), text(expected.first()), text(expected.last()))
        };
        let row = |count, first: &str, last: &str| (count, first.to_owned(), last.to_owned());

        assert_eq!(dates(Frequency::Daily, "2024-02-09", "2024-04-01"), row(53, "2024-02-09", "2024-04-01"));
        assert_eq!(dates(Frequency::BusinessDaily, "2024-02-09", "2024-04-01"), row(34, "2024-02-09", "2024-04-01"));
        assert_eq!(dates(Frequency::Anniversaries, "2024-02-27", "2024-03-02"), row(4, "2024-02-27", "2024-03-02"));
        assert_eq!(dates(Frequency::Anniversaries, "2024-02-29", "2024-03-31"), row(28, "2024-03-01", "2024-03-28"));
        let fridays = Frequency::Weekly(Weekday::Fri);
        assert_eq!(dates(fridays, "2024-02-09", "2024-02-23"), row(3, "2024-02-09", "2024-02-23"));
        assert_eq!(dates(fridays, "2024-02-10", "2024-02-22"), row(1, "2024-02-16", "2024-02-16"));
        assert_eq!(dates(Frequency::Monthly, "2024-02-09", "2024-04-01"), row(2, "2024-03-01", "2024-04-01"));
        assert_eq!(dates(Frequency::Quarterly, "2024-01-01", "2024-12-31"), row(4, "2024-01-01", "2024-10-01"));
        assert_eq!(dates(Frequency::Quarterly, "2024-01-02", "2024-06-30"), row(1, "2024-04-01", "2024-04-01"));
        assert_eq!(dates(Frequency::Annual, "2023-06-01", "2026-01-01"), row(3, "2024-01-01", "2026-01-01"));
    }

    #[test]
    fn a_value_stands_for_its_day_month_quarter_or_year() {
        for (frequency, date, end) in [
            (Frequency::Daily, "2024-02-09", "2024-02-09"),
            (Frequency::Monthly, "2024-02-01", "2024-02-29"),
            (Frequency::Quarterly, "2024-10-01", "2024-12-31"),
            (Frequency::Annual, "2024-01-01", "2024-12-31"),
        ] {
            assert_eq!(frequency.period_end(day(date)), day(end), "{frequency:?}");
        }
    }
}
