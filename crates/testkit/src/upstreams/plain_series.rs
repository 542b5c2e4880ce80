//! Every published series that is not computed from others: each wanders around a level of its own, in the shape that
//! the real one has.
//!
//! Shapes and their sources: one row for each start day, which names the end of its month as `dataFim`, for savings on the
//! days 1 to 28 alone (raw responses in github.com/fabiobarretoadvogado/CalculosJuridicos); two rows of the TR on the 1st
//! of long months (github.com/janjo1413/selicmvpfinal); a running month that grows (4390 was 0.10 on 2026-10-04); quarters
//! dated their first day (github.com/viniciusoike/realestatebr); amounts before July 1994 in the currency of their day.

use chrono::{Datelike, Days, NaiveDate, NaiveDateTime, NaiveTime};
use vintem_domain::dates::{month_end, same_day_next_month};
use vintem_domain::series::{Release, Shape, Unit, published_series};
use vintem_domain::{DateRange, Series};

use super::calendar::{LAST_GENERATED_DAY, business_day_on_or_after, ymd};
use super::seeded_random::SeededRandom;
use super::series_rows::{SeriesRows, format_f64};

/// Amounts begin in an earlier currency, so that a reader that takes them for reais is noticed.
const OLD_CURRENCY_SINCE: NaiveDate = ymd(1990, 1, 1);
const REAL_SINCE: NaiveDate = ymd(1994, 7, 1);
/// From September 2017 until November 2021 the TR was zero.
const ZERO_TR: (NaiveDate, NaiveDate) = (ymd(2017, 9, 8), ymd(2021, 11, 30));

pub fn find_by_code(code: u32) -> Option<&'static Series> {
    published_series().find(|series| series.sgs_code == Some(code))
}

/// All rows up to [`LAST_GENERATED_DAY`].
pub fn build_plain_series(series: &Series) -> SeriesRows {
    let is_amount = series.unit.is_in_reais();
    let from = if is_amount { series.starts_on.min(OLD_CURRENCY_SINCE) } else { series.starts_on };
    let dates = series.frequency.expected_dates(DateRange { from, to: LAST_GENERATED_DAY });
    let level = typical_level(series);
    let value = |date: NaiveDate| {
        if series.id == "tr" && (ZERO_TR.0..=ZERO_TR.1).contains(&date) {
            return format_f64(0.0, series.decimals);
        }
        let value = level * (1.0 + wobble(series, date));
        let in_old_currency = is_amount && date < REAL_SINCE;
        format_f64(if in_old_currency { value * 2_750.0 * 1_000.0 } else { value }, series.decimals)
    };
    dates.into_iter().map(|date| (date, value(date))).collect()
}

/// Changes slowly enough to pass for the next value, by more than a tenth only where a value may jump.
fn wobble(series: &Series, date: NaiveDate) -> f64 {
    let size = if series.plausible.may_jump { 0.6 } else { 0.02 };
    size * SeededRandom::for_day(series.id, date).signed_unit()
}

/// Well inside the plausible range.
fn typical_level(series: &Series) -> f64 {
    let max = series.plausible.max as f64;
    match series.unit {
        Unit::PercentPerMonth => 0.5,
        Unit::PercentInPeriod => 0.6,
        _ if series.plausible.min < 0 => max / 20.0,
        _ => (max * (series.plausible.min as f64).max(1.0)).sqrt(),
    }
}

/// A re-estimated series as its release of a month gives it: that of another month differs in the last decimals of every
/// value.
pub fn reestimate(series: &Series, rows: &mut SeriesRows, release_month: NaiveDate) {
    for (date, value) in rows {
        let label = format!("{} {release_month}", series.id);
        let change = 0.001 * SeededRandom::for_day(&label, *date).signed_unit();
        let number: f64 = value.parse().expect("a generated number");
        *value = format_f64(number * (1.0 + change), series.decimals);
    }
}

/// The last date whose value is published at this time in Brasília. The running month is published from its first day.
pub fn last_published_date(series: &Series, now: NaiveDateTime) -> NaiveDate {
    let today = now.date();
    if series.shape == Shape::RunningMonth {
        return today;
    }

    let time_of = |(hour, minute)| NaiveTime::from_hms_opt(hour, minute, 0).expect("a time of the day");
    let is_past = |day: NaiveDate| day < today || (day == today && now.time() >= time_of(series.release.time()));
    let mut date = today;
    loop {
        // A month is published on a business day, and a day in its evening.
        let published_on = series.schedule().published_on(date);
        let published_on = match series.release {
            Release::Monthly(_) => business_day_on_or_after(published_on),
            Release::InAdvance(_) | Release::Daily(_) | Release::RunningMonth(_) => published_on,
        };
        if is_past(published_on) {
            return date;
        }
        date = date - Days::new(1);
    }
}

/// The ends of the periods that begin on a day, as `dataFim` gives them; none for other shapes.
pub fn period_ends(code: u32, date: NaiveDate) -> Vec<NaiveDate> {
    let Some(series) = find_by_code(code).filter(|series| series.shape == Shape::Period) else { return Vec::new() };
    let end = same_day_next_month(date);
    let is_start_of_long_month = date.day() == 1 && month_end(date).day() == 31;
    match series.id {
        "tr" | "tbf" if is_start_of_long_month => vec![month_end(date), end],
        _ => vec![end],
    }
}
