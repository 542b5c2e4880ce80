//! Generates made-up values for every series without a generator of its own: walks around a typical level.

use chrono::NaiveDate;
use vintem_domain::dates::{DateRange, same_day_next_month};
use vintem_domain::series::{Shape, Unit};
use vintem_domain::{Decimal, Series};
use vintem_store::load::Observation;

use super::random_walk::MeanRevertingWalk;

/// The yield that savings accounts add to the TR, in ten-thousandths of a percent.
const SAVINGS_INTEREST: i64 = 5_000;

/// The values known on the last day.
pub fn generate_plain_series(series: &Series, until: NaiveDate) -> Vec<Observation> {
    let days = DateRange { from: series.starts_on, to: until };
    let dates = series.frequency.expected_dates(days).into_iter().filter(|date| is_known(series, *date, until));

    // Savings accounts pay the TR of the same day.
    let is_savings = series.id.starts_with("savings");
    let (mean, size) = if is_savings { (1_000, 600) } else { typical_level(series) };
    let mut walk = MeanRevertingWalk::new(if is_savings { "tr" } else { series.id }, mean);
    let offset = if series.plausible.min < 0 { size } else { 0 };
    dates
        .map(|date| {
            let step = walk.step(mean, step_ten_thousandths(series));
            let value = if is_savings { SAVINGS_INTEREST + step * 1_005 / 1_000 } else { step - offset };
            let period_end = (series.shape == Shape::Period).then(|| same_day_next_month(date));
            Observation { period_end, ..Observation::new(date, Decimal::new(value, series.decimals)) }
        })
        .collect()
}

/// The running month is known from its first day.
fn is_known(series: &Series, date: NaiveDate, until: NaiveDate) -> bool {
    series.shape == Shape::RunningMonth || series.schedule().published_on(date) <= until
}

/// The level around which a series moves, and what is taken from it if the series can be negative; in units of its last
/// decimal.
fn typical_level(series: &Series) -> (i64, i64) {
    let unit = 10_i64.pow(series.decimals);
    let hundredths = |level: i64| level * unit / 100;
    match series.unit {
        Unit::PercentPerMonth if series.plausible.min < 0 => (hundredths(145), hundredths(100)),
        Unit::PercentPerMonth | Unit::PercentInTwelveMonths | Unit::PercentSinceJanuary => (hundredths(90), 0),
        Unit::PercentInPeriod if series.id == "tr" => (hundredths(10), 0),
        Unit::PercentInPeriod => (hundredths(85), 0),
        Unit::PercentPerDay => (hundredths(5), 0),
        Unit::PercentPerYear if series.id == "inflation-target" => (hundredths(350), 0),
        Unit::PercentPerYear => (hundredths(1_200), 0),
        Unit::Percent => (hundredths(800), 0),
        Unit::PercentOfGdp if series.plausible.min < 0 => (hundredths(1_200), hundredths(1_000)),
        Unit::PercentOfGdp => (hundredths(6_000), 0),
        Unit::PercentOfIncome => (hundredths(3_000), 0),
        Unit::PercentOfPortfolio => (hundredths(350), 0),
        Unit::Index => (hundredths(12_000), 0),
        Unit::Jobs => (45_000_000 * unit, 0),
        Unit::Brl => (1_500 * unit, 0),
        Unit::BrlThousand => (600_000_000 * unit, 0),
        Unit::BrlMillion => (5_000_000 * unit, 0),
        Unit::UsdMillion if series.plausible.min < 0 => (10_000 * unit, 9_000 * unit),
        Unit::UsdMillion => (350_000 * unit, 0),
        Unit::BrlPerUsd | Unit::BrlPerEur => (5 * unit, 0),
    }
}

/// Stocks move slowly, rates of change by half.
fn step_ten_thousandths(series: &Series) -> i64 {
    match series.unit {
        Unit::PercentPerMonth => 2_000,
        Unit::PercentInPeriod => 20,
        _ => 100,
    }
}
