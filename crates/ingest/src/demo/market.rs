//! Generates made-up rates: Selic, CDI, IPCA and exchange rates, shaped like Brazil's history without its real values.
//!
//! All values are integers in units of the last decimal place, so nothing is ever rounded.

use std::collections::HashMap;

use chrono::{Datelike, Days, Months, NaiveDate};
use rust_decimal::Decimal;
use vintem_domain::fx::BRL_START_DATE;
use vintem_domain::{Calendar, Currency, ParityBasis, Quote, Series, series};
use vintem_store::load::{BulletinKind, NewBulletin, Observation};

use super::plain_series::generate_plain_series;
use super::random_walk::MeanRevertingWalk;
use super::rng::DemoRng;

/// Year, month and the value of a curve on the first day of that month. Between two points the curve is linear.
type CurvePoint = (i32, u32, i64);

/// The observations of a series up to `until`.
pub fn generate_observations(series: &Series, until: NaiveDate) -> Vec<Observation> {
    let rows = match series.id {
        "selic" => generate_selic(series, until),
        "cdi" | "selic-effective" => generate_cdi(series, until),
        "cdi-daily" | "selic-daily" => daily_from_annual(&generate_cdi(series, until)),
        "ipca" => generate_ipca(series, until),
        "ipca-12m" => {
            compound_twelve_months(&series::find_series("ipca").map_or(Vec::new(), |ipca| generate_ipca(ipca, until)))
        }
        _ => return generate_plain_series(series, until),
    };

    let to_observation = |(date, value)| Observation::new(date, Decimal::new(value, series.decimals));
    rows.into_iter().map(to_observation).collect()
}

/// Whether banks settle on this day.
pub fn is_business_day(day: NaiveDate) -> bool {
    Calendar::Settlement.is_business_day(day)
}

/// Every calendar day, with both ends inclusive.
pub fn each_day(from: NaiveDate, until: NaiveDate) -> impl Iterator<Item = NaiveDate> {
    from.iter_days().take_while(move |day| *day <= until)
}

/// The rate that the target moves toward from each year on; later years get a random one.
const SELIC_GOALS_BY_YEAR: [(i32, i64); 13] = [
    (1999, 2000),
    (2004, 1600),
    (2006, 1100),
    (2008, 1350),
    (2009, 850),
    (2011, 1250),
    (2012, 750),
    (2014, 1400),
    (2017, 650),
    (2019, 225),
    (2021, 1350),
    (2024, 1050),
    (2025, 1475),
];

/// The target changes on the day after a meeting, a Thursday, every six or seven weeks.
fn generate_selic(series: &Series, until: NaiveDate) -> Vec<(NaiveDate, i64)> {
    let mut rng = DemoRng::new("selic");
    let mut rate = 4500;
    let mut next_change = ymd(1999, 3, 25);
    let mut weeks = [6, 7].into_iter().cycle();

    let mut rows = Vec::new();
    for date in each_day(series.starts_on, until) {
        if date == next_change {
            rate += selic_step(selic_goal_for_year(date.year()) - rate, &mut rng);
            next_change = date + Days::new(7 * weeks.next().unwrap_or(6));
        }
        rows.push((date, rate));
    }
    rows
}

fn selic_goal_for_year(year: i32) -> i64 {
    let (last_year, _) = SELIC_GOALS_BY_YEAR[SELIC_GOALS_BY_YEAR.len() - 1];
    if year > last_year {
        return DemoRng::new(&format!("selic {year}")).between(40, 60) * 25;
    }

    SELIC_GOALS_BY_YEAR
        .iter()
        .rev()
        .find(|(since, _)| *since <= year)
        .map_or(SELIC_GOALS_BY_YEAR[0].1, |(_, goal)| *goal)
}

/// In quarters of a point, never past the goal. Far from the goal, every meeting changes the rate.
fn selic_step(gap: i64, rng: &mut DemoRng) -> i64 {
    let step = match gap.abs() {
        301.. => 75,
        _ if rng.chance_per_thousand(250) => 0,
        near => near.min(rng.pick(&[25, 50, 75])),
    };
    step * gap.signum()
}

/// In hundredths of a point, like all rate curves here.
const CDI_CURVE_BEFORE_REAL: [CurvePoint; 8] = [
    (1986, 3, 25_000),
    (1987, 1, 60_000),
    (1988, 6, 220_000),
    (1989, 12, 2_800_000),
    (1990, 3, 4_500_000),
    (1990, 5, 70_000),
    (1993, 1, 350_000),
    (1994, 6, 1_200_000),
];

const CDI_CURVE_BEFORE_TARGET: [CurvePoint; 6] =
    [(1994, 7, 5800), (1995, 6, 5200), (1996, 6, 2600), (1997, 9, 2100), (1998, 10, 3600), (1999, 2, 3900)];

/// A tenth of a point below the target since the target exists.
fn generate_cdi(series: &Series, until: NaiveDate) -> Vec<(NaiveDate, i64)> {
    let mut rng = DemoRng::new("cdi");
    let target = series::find_series("selic").map_or(Vec::new(), |selic| generate_selic(selic, until));
    let target_since = target.first().map(|(date, _)| *date);

    let mut rows = Vec::new();
    for date in each_day(series.starts_on, until).filter(|date| is_business_day(*date)) {
        let days_since_target =
            target_since.map(|since| (date - since).num_days()).and_then(|days| usize::try_from(days).ok());
        let rate = match days_since_target.and_then(|days| target.get(days)) {
            Some((_, target)) => target - 10,
            None if date >= BRL_START_DATE => {
                add_noise(interpolate_curve(&CDI_CURVE_BEFORE_TARGET, date), 20, &mut rng)
            }
            None => add_noise(interpolate_curve(&CDI_CURVE_BEFORE_REAL, date), 30, &mut rng),
        };
        rows.push((date, rate));
    }
    rows
}

const IPCA_CURVE_BEFORE_REAL: [CurvePoint; 13] = [
    (1980, 1, 600),
    (1983, 6, 950),
    (1985, 12, 1300),
    (1986, 4, 320),
    (1987, 5, 2200),
    (1987, 9, 700),
    (1988, 12, 2800),
    (1989, 12, 5200),
    (1990, 3, 8000),
    (1990, 5, 800),
    (1991, 6, 1200),
    (1992, 12, 2500),
    (1994, 6, 4600),
];

/// Dated the first of its month and known from the tenth of the next.
fn generate_ipca(series: &Series, until: NaiveDate) -> Vec<(NaiveDate, i64)> {
    let mut rng = DemoRng::new("ipca");
    let mut rows = Vec::new();
    let mut month = series.starts_on;
    while month + Months::new(1) + Days::new(9) <= until {
        let change = if month < BRL_START_DATE {
            add_noise(interpolate_curve(&IPCA_CURVE_BEFORE_REAL, month), 20, &mut rng).clamp(300, 8200)
        } else {
            // Food is more expensive in the rainy season.
            let season = if matches!(month.month(), 11 | 12 | 1 | 2) { 20 } else { 0 };
            (season + rng.between(5, 85) + rng.between(-45, 25)).clamp(-30, 130)
        };

        rows.push((month, change));
        month = month + Months::new(1);
    }
    rows
}

/// One, in the fixed-point format used for compounding.
const FIXED_POINT_ONE: i128 = 1_000_000_000_000_000;

/// `base` to the power of `exponent`; `base` and the result are in fixed point.
fn fixed_point_pow(base: i128, exponent: u32) -> i128 {
    (0..exponent).fold(FIXED_POINT_ONE, |product, _| product * base / FIXED_POINT_ONE)
}

/// The daily rate, in millionths of a point, that compounds over 252 days to each annual rate.
fn daily_from_annual(annual: &[(NaiveDate, i64)]) -> Vec<(NaiveDate, i64)> {
    let mut daily_by_annual = HashMap::new();
    let mut daily_rate = |rate: i64| {
        *daily_by_annual.entry(rate).or_insert_with(|| {
            let goal = FIXED_POINT_ONE + i128::from(rate) * FIXED_POINT_ONE / 10_000;

            // 4% a day compounds to about forty times the highest annual rate; more would not fit the fixed point.
            let mut low = 0_i64;
            let mut high = 4_000_000;
            while low < high {
                let middle = low + (high - low) / 2;
                let annual_factor =
                    fixed_point_pow(FIXED_POINT_ONE + i128::from(middle) * FIXED_POINT_ONE / 100_000_000, 252);
                if annual_factor < goal { low = middle + 1 } else { high = middle }
            }
            low
        })
    };
    annual.iter().map(|(date, rate)| (*date, daily_rate(*rate))).collect()
}

/// Twelve months compounded, from the first month that has eleven before it.
fn compound_twelve_months(monthly: &[(NaiveDate, i64)]) -> Vec<(NaiveDate, i64)> {
    let compound_window = |window: &[(NaiveDate, i64)]| {
        let product =
            window.iter().fold(FIXED_POINT_ONE, |product, (_, change)| product * i128::from(10_000 + change) / 10_000);
        let change = (product - FIXED_POINT_ONE + FIXED_POINT_ONE / 20_000) / (FIXED_POINT_ONE / 10_000);
        (window[11].0, i64::try_from(change).unwrap_or(i64::MAX))
    };
    monthly.windows(12).map(compound_window).collect()
}

/// Millionths of a real per dollar.
const DOLLAR_CURVE: [CurvePoint; 17] = [
    (1994, 7, 930_000),
    (1995, 3, 900_000),
    (1998, 12, 1_205_000),
    (1999, 2, 1_900_000),
    (2001, 1, 1_970_000),
    (2002, 10, 3_600_000),
    (2005, 8, 2_350_000),
    (2008, 7, 1_620_000),
    (2008, 12, 2_350_000),
    (2011, 7, 1_600_000),
    (2015, 9, 3_850_000),
    (2017, 2, 3_150_000),
    (2020, 5, 5_450_000),
    (2022, 4, 4_850_000),
    (2024, 12, 5_400_000),
    (2026, 1, 5_200_000),
    (2032, 1, 4_900_000),
];

const EURO_FIRST_DATE: NaiveDate = ymd(1999, 1, 4);

/// Closing bulletins of all ten currencies for every business day since the real was introduced, in order of date.
pub fn generate_bulletins(until: NaiveDate) -> Vec<NewBulletin> {
    let mut dollar = MeanRevertingWalk::new("USD", interpolate_curve(&DOLLAR_CURVE, BRL_START_DATE));
    let mut crosses =
        Currency::ALL.map(|currency| MeanRevertingWalk::new(currency.code(), long_run_dollar_billionths(currency)));
    let mut seconds = DemoRng::new("ptax seconds");

    let mut rows = Vec::new();
    for date in each_day(BRL_START_DATE, until).filter(|date| is_business_day(*date)) {
        let dollar = dollar.step(interpolate_curve(&DOLLAR_CURVE, date), 60);
        let second = seconds.below(60) as u32;
        let published_at = date.and_hms_opt(13, 10, second).expect("a time of the day");
        for (currency, cross) in Currency::ALL.into_iter().zip(&mut crosses) {
            if currency == Currency::Eur && date < EURO_FIRST_DATE {
                continue;
            }

            let spread_ten_thousandths = cross.rng.between(1, 3);
            let cross = match currency {
                Currency::Usd => long_run_dollar_billionths(currency),
                _ => cross.step(long_run_dollar_billionths(currency), 40),
            };

            let decimals = if currency == Currency::Jpy { 5 } else { 4 };
            let buy = dollar * cross / 10_i64.pow(6 + 9 - decimals);
            let sell = buy + (buy * spread_ten_thousandths / 10_000).max(1);

            rows.push(NewBulletin {
                currency,
                date,
                kind: BulletinKind::Closing,
                published_at,
                quote_currency: "BRL".to_owned(),
                buy: Decimal::new(buy, decimals),
                sell: Decimal::new(sell, decimals),
                parity: Some(generate_parity(currency, cross)),
            });
        }
    }
    rows
}

/// The parity that goes with a currency's value in billionths of a dollar: four decimals, two ticks wide. A tick is the
/// last decimal, or a hundredth for the yen.
fn generate_parity(currency: Currency, dollar_billionths: i64) -> Quote {
    let tick = if currency == Currency::Jpy { 100 } else { 1 };
    let to_ticks = |ten_thousandths: i64| ten_thousandths / tick * tick;
    let (buy, sell) = match currency.parity_basis() {
        _ if currency == Currency::Usd => (10_000, 10_000),
        ParityBasis::DollarsPerUnit => {
            let buy = to_ticks(dollar_billionths / 100_000);
            (buy, buy + 2 * tick)
        }
        // The bank buys the currency at the parity that gives the most units for a dollar.
        ParityBasis::UnitsPerDollar => {
            let sell = to_ticks(10_000_000_000_000 / dollar_billionths);
            (sell - 2 * tick, sell)
        }
    };
    Quote { buy: Decimal::new(buy, 4), sell: Decimal::new(sell, 4) }
}

/// The long-run value of each currency, in billionths of a dollar.
const fn long_run_dollar_billionths(currency: Currency) -> i64 {
    match currency {
        Currency::Aud => 660_000_000,
        Currency::Cad => 720_000_000,
        Currency::Chf => 1_100_000_000,
        Currency::Dkk => 145_000_000,
        Currency::Eur => 1_100_000_000,
        Currency::Gbp => 1_300_000_000,
        Currency::Jpy => 6_800_000,
        Currency::Nok => 95_000_000,
        Currency::Sek => 97_000_000,
        Currency::Usd => 1_000_000_000,
    }
}

/// The value of a curve on a day; constant before its first point and after its last.
fn interpolate_curve(points: &[CurvePoint], date: NaiveDate) -> i64 {
    let next_index = points.partition_point(|(year, month, _)| ymd(*year, *month, 1) <= date);
    let next = points.get(next_index);
    let previous = next_index.checked_sub(1).and_then(|index| points.get(index));
    let (Some(left), Some(right)) = (previous, next) else {
        return if next_index == 0 { points[0].2 } else { points[points.len() - 1].2 };
    };

    let from = ymd(left.0, left.1, 1);
    let to = ymd(right.0, right.1, 1);
    left.2 + (right.2 - left.2) * (date - from).num_days() / (to - from).num_days()
}

fn add_noise(value: i64, thousandths: i64, rng: &mut DemoRng) -> i64 {
    value + value * rng.between(-thousandths, thousandths) / 1000
}

const fn ymd(year: i32, month: u32, day: u32) -> NaiveDate {
    NaiveDate::from_ymd_opt(year, month, day).expect("a day of the calendar")
}

#[cfg(test)]
mod tests {
    use super::*;
    use vintem_domain::series::{Shape, published_series};

    const UNTIL: NaiveDate = ymd(2026, 11, 13);

    fn rows_of_series(id: &str, until: NaiveDate) -> Vec<Observation> {
        generate_observations(series::find_series(id).unwrap(), until)
    }

    fn assert_values_within(rows: &[Observation], low: i64, high: i64) {
        for row in rows {
            assert!(row.value >= low.into() && row.value <= high.into(), "{row:?}");
            assert_eq!(row.value.scale(), 2);
        }
    }

    #[test]
    fn every_series_has_rows_from_its_start_and_none_after_the_last_day() {
        for series in published_series() {
            let rows = generate_observations(series, UNTIL);
            assert_eq!(rows[0].date, series.starts_on, "{}", series.id);
            let (min, max) = (Decimal::from(series.plausible.min), Decimal::from(series.plausible.max));
            assert!(rows.iter().all(|row| (min..=max).contains(&row.value)), "{}", series.id);
            assert!(rows.iter().all(|row| row.period_end.is_some() == (series.shape == Shape::Period)));
            assert!(rows.is_sorted_by(|a, b| a.date < b.date));
            assert!(rows.iter().all(|row| row.date <= UNTIL));
            assert_eq!(rows, generate_observations(series, UNTIL));
        }
    }

    #[test]
    fn a_later_last_day_only_adds_rows() {
        for series in published_series() {
            let shorter = generate_observations(series, ymd(2025, 2, 3));
            let longer = generate_observations(series, UNTIL);
            assert!(longer.starts_with(&shorter), "{}", series.id);
        }
        assert!(generate_bulletins(ymd(2026, 11, 13)).starts_with(&generate_bulletins(ymd(2026, 11, 12))));
    }

    #[test]
    fn selic_is_daily_and_moves_in_quarter_points() {
        let rows = rows_of_series("selic", ymd(2030, 12, 31));
        assert_eq!(rows[0].value.to_string(), "45.00");
        assert_values_within(&rows, 2, 45);
        assert_values_within(&rows[rows.len() - 5 * 365..], 9, 16);
        for pair in rows.windows(2) {
            let step = (pair[1].value - pair[0].value).abs().to_string();
            assert!(["0.00", "0.25", "0.50", "0.75"].contains(&step.as_str()), "{step}");
            assert_eq!(pair[0].date.succ_opt(), Some(pair[1].date));
        }
    }

    #[test]
    fn cdi_follows_the_target_on_business_days() {
        let cdi = rows_of_series("cdi", UNTIL);
        let selic = rows_of_series("selic", UNTIL);
        assert!(cdi.iter().all(|row| is_business_day(row.date)));
        assert_eq!(selic.last().unwrap().value - cdi.last().unwrap().value, Decimal::new(10, 2));
        let first_real_row = cdi.partition_point(|row| row.date < BRL_START_DATE);
        assert_values_within(&cdi[..first_real_row], 200, 50_000);
        assert_values_within(&cdi[first_real_row..], 1, 60);
    }

    #[test]
    fn ipca_is_known_from_the_tenth_of_the_next_month() {
        assert_eq!(rows_of_series("ipca", ymd(2026, 11, 9)).last().unwrap().date, ymd(2026, 9, 1));
        assert_eq!(rows_of_series("ipca", ymd(2026, 11, 10)).last().unwrap().date, ymd(2026, 10, 1));
        let rows = rows_of_series("ipca", UNTIL);
        let first_real_row = rows.partition_point(|row| row.date < BRL_START_DATE);
        assert_values_within(&rows[..first_real_row], 3, 82);
        assert_values_within(&rows[first_real_row..], -1, 2);
    }

    #[test]
    fn all_currencies_are_quoted_on_the_last_business_day() {
        // The last day is a Sunday, so the last business day is two days earlier.
        let rows = generate_bulletins(ymd(2026, 11, 15));
        let last: Vec<&NewBulletin> = rows.iter().filter(|row| row.date == UNTIL).collect();
        assert_eq!(last.iter().map(|row| row.currency).collect::<Vec<_>>(), Currency::ALL);
        assert!(rows.iter().all(|row| row.date <= UNTIL && row.buy < row.sell && row.buy > Decimal::ZERO));
        for row in last {
            assert_eq!(row.buy.scale(), if row.currency == Currency::Jpy { 5 } else { 4 });
            if row.currency == Currency::Usd {
                assert!(row.buy > 4.into() && row.sell < 6.into(), "{row:?}");
            }
        }
        let euros = rows.iter().find(|row| row.currency == Currency::Eur).unwrap();
        assert_eq!(euros.date, EURO_FIRST_DATE);
    }

    #[test]
    fn parities_agree_with_the_rates_in_reais() {
        let rows = generate_bulletins(UNTIL);
        let mut dollar = Decimal::ONE;
        // The dollar is the last currency of a day, so each day is read from its end.
        for row in rows.iter().rev() {
            let parity = row.parity.unwrap();
            if row.currency == Currency::Usd {
                dollar = row.buy;
                assert_eq!((parity.buy.to_string(), parity.sell.to_string()), ("1.0000".into(), "1.0000".into()));
                continue;
            }

            assert!(parity.buy < parity.sell && parity.buy > Decimal::ZERO, "{row:?}");
            let in_reais = match row.currency.parity_basis() {
                ParityBasis::DollarsPerUnit => dollar * parity.buy,
                ParityBasis::UnitsPerDollar => dollar / parity.sell,
            };
            let difference = (in_reais / row.buy - Decimal::ONE).abs();
            assert!(difference < Decimal::new(1, 2), "{row:?}, {in_reais}");
        }
    }
}
