//! Business days of banks and of the exchange: computed by rule, with overrides for days that broke the rules.

use std::sync::LazyLock;

use bdays::HolidayCalendar;
use bdays::calendars::WeekendsOnly;
use bdays::calendars::brazil::{BRSettlement, BrazilExchange};
use chrono::{Days, NaiveDate};

use crate::dates::{DateRange, MAX_DATE, MIN_DATE, parse_date};

/// Days on which banks were closed or open against the rules, found by comparing the rules with the days that have a
/// Selic. They apply to banks only; we don't know what the exchange did on these days.
const OVERRIDES_CSV: &str = include_str!("overrides.csv");

/// Whose business days count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calendar {
    /// Banks: the days that have a Selic, a CDI and exchange rates.
    Settlement,
    /// The exchange, B3.
    Exchange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DayKind {
    BusinessDay,
    Weekend,
    Holiday,
}

impl DayKind {
    pub const fn id(self) -> &'static str {
        match self {
            Self::BusinessDay => "business-day",
            Self::Weekend => "weekend",
            Self::Holiday => "holiday",
        }
    }
}

impl Calendar {
    pub const ALL: [Self; 2] = [Self::Settlement, Self::Exchange];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Settlement => "settlement",
            Self::Exchange => "exchange",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|calendar| calendar.id() == id)
    }

    pub fn day_kind(self, day: NaiveDate) -> DayKind {
        match (self.business_day_table().is_business_day(day), WeekendsOnly.is_bday(day)) {
            (true, _) => DayKind::BusinessDay,
            (false, true) => DayKind::Holiday,
            (false, false) => DayKind::Weekend,
        }
    }

    pub fn is_business_day(self, day: NaiveDate) -> bool {
        self.business_day_table().is_business_day(day)
    }

    /// Counts the business days from `from`, included, to `to`, excluded.
    pub fn count_business_days(self, from: NaiveDate, to: NaiveDate) -> u32 {
        let table = self.business_day_table();
        table.count_before(to).saturating_sub(table.count_before(from))
    }

    /// The business days in a range, in order.
    pub fn business_days(self, range: DateRange) -> impl Iterator<Item = NaiveDate> {
        let table = self.business_day_table();
        let start = table.count_before(range.from);
        let end = table.count_before(range.to.succ_opt().unwrap_or(range.to));
        (start..end).map(|index| table.days[index as usize])
    }

    /// Adds business days to a day, or subtracts them if `days` is negative. Adding 0 gives the day itself or the next
    /// business day. `None` if the result is before [`MIN_DATE`] or after [`MAX_DATE`].
    pub fn add_business_days(self, day: NaiveDate, days: i64) -> Option<NaiveDate> {
        let table = self.business_day_table();
        let start = i64::from(table.count_before(if days > 0 { day.succ_opt()? } else { day }));
        let index = if days > 0 { start + days - 1 } else { start + days };
        table.days.get(usize::try_from(index).ok()?).copied()
    }

    fn business_day_table(self) -> &'static BusinessDayTable {
        static SETTLEMENT: LazyLock<BusinessDayTable> =
            LazyLock::new(|| BusinessDayTable::new(&BRSettlement, OVERRIDES_CSV));
        static EXCHANGE: LazyLock<BusinessDayTable> = LazyLock::new(|| BusinessDayTable::new(&BrazilExchange, ""));
        match self {
            Self::Settlement => &SETTLEMENT,
            Self::Exchange => &EXCHANGE,
        }
    }
}

/// All business days from [`MIN_DATE`] to [`MAX_DATE`].
struct BusinessDayTable {
    days: Vec<NaiveDate>,
    /// The number of business days before each calendar day from [`MIN_DATE`], with one more entry than there are days.
    business_days_before: Vec<u32>,
}

impl BusinessDayTable {
    fn new(rules: &impl HolidayCalendar<NaiveDate>, overrides: &str) -> Self {
        let overrides: Vec<(NaiveDate, bool)> = overrides.lines().skip(1).map(parse_override).collect();
        let mut table = Self { days: Vec::new(), business_days_before: vec![0] };

        let mut day = MIN_DATE;
        while day <= MAX_DATE {
            let overridden = overrides.iter().find(|(date, _)| *date == day).map(|(_, is_open)| *is_open);
            if overridden.unwrap_or_else(|| rules.is_bday(day)) {
                table.days.push(day);
            }
            table.business_days_before.push(table.days.len() as u32);
            day = day + Days::new(1);
        }
        table
    }

    fn count_before(&self, day: NaiveDate) -> u32 {
        let index = (day - MIN_DATE).num_days().clamp(0, self.business_days_before.len() as i64 - 1);
        self.business_days_before[index as usize]
    }

    fn is_business_day(&self, day: NaiveDate) -> bool {
        day.succ_opt().is_some_and(|next| self.count_before(next) > self.count_before(day))
    }
}

fn parse_override(line: &str) -> (NaiveDate, bool) {
    let mut columns = line.split(',');
    let date = columns.next().and_then(parse_date).expect("each line begins with a day");
    (date, columns.next() == Some("open"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> NaiveDate {
        parse_date(text).unwrap()
    }

    #[test]
    fn every_override_contradicts_the_rules_and_says_why() {
        let lines: Vec<&str> = OVERRIDES_CSV.lines().skip(1).collect();
        assert_eq!(lines.len(), 39);
        for line in lines {
            let (date, is_open) = parse_override(line);
            assert_eq!(BRSettlement.is_bday(date), !is_open, "{line}");
            assert_eq!(Calendar::Settlement.is_business_day(date), is_open, "{line}");
            let columns: Vec<&str> = line.split(',').collect();
            assert!(columns.len() == 4 && columns.iter().all(|column| !column.is_empty()), "{line}");
        }
    }

    #[test]
    fn november_20_is_a_holiday_since_2024() {
        for (date, kind) in [
            ("2023-11-20", DayKind::BusinessDay),
            ("2024-11-20", DayKind::Holiday),
            ("2026-02-16", DayKind::Holiday),
            ("2026-11-14", DayKind::Weekend),
            ("2026-11-16", DayKind::BusinessDay),
            ("1994-07-01", DayKind::Holiday),
        ] {
            assert_eq!(Calendar::Settlement.day_kind(day(date)), kind, "{date}");
        }
        assert_eq!(Calendar::Exchange.day_kind(day("2026-12-24")), DayKind::Holiday);
        assert_eq!(Calendar::Settlement.day_kind(day("2026-12-24")), DayKind::BusinessDay);
    }

    #[test]
    fn the_count_includes_the_start_and_excludes_the_end() {
        let count = |from, to| Calendar::Settlement.count_business_days(day(from), day(to));
        assert_eq!(count("2026-11-13", "2026-11-13"), 0);
        assert_eq!(count("2026-11-13", "2026-11-16"), 1);
        assert_eq!(count("2024-01-01", "2025-01-01"), 253);
        assert_eq!(count("2026-11-16", "2026-11-13"), 0);
        assert_eq!(
            count("1900-01-01", "2199-12-31") as usize,
            Calendar::Settlement.business_days(DateRange::ALL).count() - 1
        );
    }

    #[test]
    fn business_days_can_be_added_and_subtracted() {
        let add = |date, days| Calendar::Settlement.add_business_days(day(date), days).map(|day| day.to_string());
        let some = |date: &str| Some(date.to_owned());
        assert_eq!(add("2026-11-13", 1), some("2026-11-16"));
        assert_eq!(add("2026-11-14", 1), some("2026-11-16"));
        assert_eq!(add("2026-11-16", 4), some("2026-11-23"));
        assert_eq!(add("2026-11-14", 0), some("2026-11-16"));
        assert_eq!(add("2026-11-13", 0), some("2026-11-13"));
        assert_eq!(add("2026-11-16", -1), some("2026-11-13"));
        assert_eq!(add("2026-11-15", -1), some("2026-11-13"));
        assert_eq!(add("2199-12-31", 1), None);
        assert_eq!(add("1900-01-02", -5), None);
    }
}
