//! What entries of the catalog have in common.

use chrono::NaiveDate;

use super::{
    Accumulation, DailyRelease, Frequency, License, MonthlyRelease, PlausibleRange, Publisher, Release, Series,
    SeriesGroup, Shape,
};
use crate::lang::LocalizedText;
use crate::unit::Unit;

/// What most monthly series of the central bank have in common.
pub const MONTHLY: Series = Series {
    id: "",
    sgs_code: None,
    name: text("", ""),
    group: SeriesGroup::Interest,
    tags: &[],
    unit: Unit::PercentPerMonth,
    basis: text("", ""),
    is_not: text("", ""),
    publisher: Publisher::Bcb,
    license: License::OpenDatabase,
    evidence: &[],
    frequency: Frequency::Monthly,
    release: LATE_NEXT_MONTH,
    shape: Shape::Value,
    starts_on: NaiveDate::MIN,
    decimals: 2,
    plausible: PlausibleRange { min: 0, max: 0, may_jump: false, reason: "" },
    accumulation: Accumulation::Refused { instead: None },
    gap_fill_series: None,
    formula: None,
};

/// The central bank's monthly notes on credit, money and public debt. A strike has delayed them by weeks.
pub const LATE_NEXT_MONTH: Release =
    Release::Monthly(MonthlyRelease { months_after: 1, day: 28, time: (8, 30), grace_days: 15 });

/// In the evening of the day, or on the morning of the next business day.
pub const EVENING: DailyRelease = DailyRelease { time: (18, 0), grace_days: 2 };

/// Some business days later. How many is not documented.
pub const SOME_DAYS_LATER: DailyRelease = DailyRelease { time: (18, 0), grace_days: 4 };

/// Known before the day begins.
pub const BEFORE_THE_DAY: DailyRelease = DailyRelease { time: (0, 5), grace_days: 1 };

/// A release on about this day of the month, in the month after the one that the value stands for, or in a later one.
pub const fn release(months_after: u32, day: u32, time: (u32, u32), grace_days: u32) -> Release {
    Release::Monthly(MonthlyRelease { months_after, day, time, grace_days })
}

pub const fn text(en: &'static str, pt: &'static str) -> LocalizedText {
    LocalizedText::new(en, pt)
}

pub const fn day(year: i32, month: u32, day: u32) -> NaiveDate {
    NaiveDate::from_ymd_opt(year, month, day).expect("a day of the calendar")
}

pub const fn plausible(min: i64, max: i64, reason: &'static str) -> PlausibleRange {
    PlausibleRange { min, max, may_jump: min < 0, reason }
}
