//! Business days and holidays of banks and of the exchange: computed by rule, with overrides for the exceptions.

mod holiday_names;
mod overrides;

use std::sync::LazyLock;

use bdays::HolidayCalendar;
use bdays::calendars::WeekendsOnly;
use bdays::calendars::brazil::{BRSettlement, BrazilExchange};
use chrono::{Datelike, Days, NaiveDate};

use crate::dates::{DateRange, MAX_DATE, MIN_DATE};
use crate::lang::LocalizedText;
use holiday_names::holiday_name;
use overrides::parse_overrides;

/// Exceptions to the rules for banks, found by comparing the rules with the days that have a Selic rate.
const SETTLEMENT_OVERRIDES_CSV: &str = include_str!("settlement_overrides.csv");

/// Exceptions to the rules for the exchange. Each line names at least two sources that agree:
///
/// - `R-bizdays Brazil/B3`: github.com/wilsonfreitas/R-bizdays, `inst/extdata/Brazil_B3.json`, lists the days on which
///   the exchange was closed from 1990 to 2025.
/// - `Ibovespa has no value`: the daily history of the index from April 1993 to October 2018, as in
///   github.com/Krids/AnalyzingStocksWithMachineLearning, `data/^BVSP.csv`, has none for this day.
/// - `exchange_calendars BVMF`: github.com/gerrymanoim/exchange_calendars, `exchange_calendar_bvmf.py`, closes on
///   2014-06-12, and on November 20 since 2004.
/// - `pandas_market_calendars BMF`: github.com/rsheftel/pandas_market_calendars, `calendars/bmf.py`, closes on November
///   20 since 2004.
/// - `python-holidays BVMF`: github.com/vacanza/holidays, `financial/brasil_bolsa_balcao.py`, closes on Maundy Thursday
///   until 1999.
/// - `BCB SGS 11 has no value`: banks were closed, too.
const EXCHANGE_OVERRIDES_CSV: &str = include_str!("exchange_overrides.csv");

/// The first year in which the exchange closed on July 9, a holiday of the state of São Paulo since law 9.497 of March
/// 1997. The `bdays` rules also close the exchange on this day in all earlier years.
///
/// R-bizdays and pandas_market_calendars (see above) both begin in 1997. The Ibovespa has values on that day in 1993 and
/// 1996 but none in 1997. Only exchange_calendars begins in 1998.
const FIRST_CLOSED_JULY_9: i32 = 1997;

/// A fallback. Tests verify that every holiday has a name.
const UNNAMED_HOLIDAY: LocalizedText = LocalizedText::new("Holiday", "Feriado");

/// A business-day calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calendar {
    /// Banks: the days that have a Selic, a CDI and exchange rates.
    Settlement,
    /// The exchange, B3.
    Exchange,
}

/// A holiday of a calendar. It may fall on a weekend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holiday {
    pub date: NaiveDate,
    pub name: LocalizedText,
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

    /// The holiday on this day, even on a weekend.
    pub fn holiday(self, day: NaiveDate) -> Option<Holiday> {
        self.holidays(DateRange { from: day, to: day }).first().copied()
    }

    /// The holidays in a range, in order, including those on weekends.
    pub fn holidays(self, range: DateRange) -> &'static [Holiday] {
        let holidays = &self.business_day_table().holidays;
        let start = holidays.partition_point(|holiday| holiday.date < range.from);
        let end = holidays.partition_point(|holiday| holiday.date <= range.to);
        holidays.get(start..end).unwrap_or_default()
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
            LazyLock::new(|| BusinessDayTable::new(&BRSettlement, SETTLEMENT_OVERRIDES_CSV));
        static EXCHANGE: LazyLock<BusinessDayTable> =
            LazyLock::new(|| BusinessDayTable::new(&ExchangeRules, EXCHANGE_OVERRIDES_CSV));
        match self {
            Self::Settlement => &SETTLEMENT,
            Self::Exchange => &EXCHANGE,
        }
    }
}

/// The rules of the exchange, corrected for the years before July 9 became a holiday.
struct ExchangeRules;

impl HolidayCalendar<NaiveDate> for ExchangeRules {
    fn is_holiday(&self, day: NaiveDate) -> bool {
        let is_early_july_9 = (day.month(), day.day()) == (7, 9) && day.year() < FIRST_CLOSED_JULY_9;
        !is_early_july_9 && BrazilExchange.is_holiday(day)
    }
}

/// All business days and holidays from [`MIN_DATE`] to [`MAX_DATE`].
struct BusinessDayTable {
    days: Vec<NaiveDate>,
    holidays: Vec<Holiday>,
    /// The number of business days before each calendar day from [`MIN_DATE`], with one more entry than there are days.
    business_days_before: Vec<u32>,
}

impl BusinessDayTable {
    /// A business day is a weekday that is not a holiday, so the two lists cannot contradict each other.
    fn new(rules: &impl HolidayCalendar<NaiveDate>, overrides_csv: &'static str) -> Self {
        let overrides = parse_overrides(overrides_csv);
        let mut table = Self { days: Vec::new(), holidays: Vec::new(), business_days_before: vec![0] };

        let mut day = MIN_DATE;
        while day <= MAX_DATE {
            let name = match overrides.iter().find(|entry| entry.date == day) {
                Some(entry) => entry.holiday,
                None => rules.is_holiday(day).then(|| holiday_name(day).unwrap_or(UNNAMED_HOLIDAY)),
            };
            match name {
                Some(name) => table.holidays.push(Holiday { date: day, name }),
                None if WeekendsOnly.is_bday(day) => table.days.push(day),
                None => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dates::parse_date;

    fn day(text: &str) -> NaiveDate {
        parse_date(text).unwrap()
    }

    #[test]
    fn every_override_contradicts_the_rules_and_says_why() {
        check_overrides(Calendar::Settlement, &BRSettlement, SETTLEMENT_OVERRIDES_CSV, 39);
        check_overrides(Calendar::Exchange, &ExchangeRules, EXCHANGE_OVERRIDES_CSV, 20);
    }

    fn check_overrides(
        calendar: Calendar,
        rules: &impl HolidayCalendar<NaiveDate>,
        overrides_csv: &'static str,
        count: usize,
    ) {
        let lines: Vec<&str> = overrides_csv.lines().skip(1).collect();
        assert_eq!(lines.len(), count);

        for (line, entry) in lines.into_iter().zip(parse_overrides(overrides_csv)) {
            let is_open = entry.holiday.is_none();
            assert_eq!(rules.is_bday(entry.date), !is_open, "{line}");
            assert_eq!(calendar.is_business_day(entry.date), is_open, "{line}");

            let columns: Vec<&str> = line.split(',').collect();
            let (reasons, names) = columns.split_at(4);
            assert_eq!(reasons[1], if is_open { "open" } else { "closed" }, "{line}");
            assert!(reasons.iter().all(|column| !column.is_empty()), "{line}");
            assert!(names.iter().all(|name| name.is_empty() == is_open), "{line}");
        }
    }

    #[test]
    fn every_closed_weekday_is_a_named_holiday_and_every_holiday_is_closed() {
        for calendar in Calendar::ALL {
            let mut day = MIN_DATE;
            while day <= MAX_DATE {
                let holiday = calendar.holiday(day);
                let is_weekday = WeekendsOnly.is_bday(day);
                assert_eq!(calendar.is_business_day(day), is_weekday && holiday.is_none(), "{calendar:?} {day}");

                if let Some(holiday) = holiday {
                    assert_eq!(holiday.date, day);
                    assert_ne!(holiday.name, UNNAMED_HOLIDAY, "{calendar:?} {day}");
                    assert!(!holiday.name.en.is_empty() && !holiday.name.pt.is_empty(), "{calendar:?} {day}");
                }
                day = day + Days::new(1);
            }

            let listed = (1900..=2199).map(|year| calendar.holidays(DateRange::for_year(year)).len()).sum::<usize>();
            assert_eq!(listed, calendar.holidays(DateRange::ALL).len());
        }
    }

    #[test]
    fn the_holidays_of_a_year_are_in_order_and_include_weekends() {
        let dates = |calendar: Calendar| {
            let holidays = calendar.holidays(DateRange::for_year(2027));
            holidays.iter().map(|holiday| holiday.date.format("%m-%d").to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            dates(Calendar::Settlement),
            "01-01 02-08 02-09 03-26 04-21 05-01 05-27 09-07 10-12 11-02 11-15 11-20 12-25"
        );
        assert_eq!(
            dates(Calendar::Exchange),
            "01-01 02-08 02-09 03-26 04-21 05-01 05-27 09-07 10-12 11-02 11-15 11-20 12-24 12-25 12-31"
        );
    }

    #[test]
    fn the_exchange_observes_holidays_of_sao_paulo_in_some_years_only() {
        for (date, kind) in [
            ("1987-07-09", DayKind::BusinessDay),
            ("1996-07-09", DayKind::BusinessDay),
            ("1997-07-09", DayKind::Holiday),
            ("2020-07-09", DayKind::BusinessDay),
            ("2021-07-09", DayKind::Holiday),
            ("2022-01-25", DayKind::BusinessDay),
            ("2003-11-20", DayKind::BusinessDay),
            ("2006-11-20", DayKind::Holiday),
            ("2014-06-12", DayKind::Holiday),
        ] {
            assert_eq!(Calendar::Exchange.day_kind(day(date)), kind, "{date}");
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
