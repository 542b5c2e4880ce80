//! What the central bank knows: nine series, from files of the real ones where they are given, made up where they are
//! silent, and in agreement with each other.
//!
//! Rows of files stay byte for byte. Generated ones follow: the overnight rates from the target, the annual rates from
//! the daily ones, twelve months of inflation from the months, and the dollar's buying rate from its selling rate.
//! Floats are good enough here, for everything is rounded to a few decimals; the product has none.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use chrono::{Datelike, Days, Months, NaiveDate, NaiveDateTime, NaiveTime};
use rust_decimal::Decimal;
use serde::Deserialize;

use super::calendar::{HORIZON, business_day_from, day, days, is_business_day};
use super::dice::{Dice, wandering};

/// Values as texts, by day.
pub type Rows = BTreeMap<NaiveDate, String>;

pub const TARGET: u32 = 432;
pub const SELIC_DAILY: u32 = 11;
pub const SELIC_ANNUAL: u32 = 1178;
pub const CDI_DAILY: u32 = 12;
pub const CDI_ANNUAL: u32 = 4389;
pub const IPCA_MONTH: u32 = 433;
pub const IPCA_12_MONTHS: u32 = 13522;
pub const DOLLAR_SELL: u32 = 1;
pub const DOLLAR_BUY: u32 = 10813;

const TARGET_SINCE: NaiveDate = day(1999, 3, 5);
const SELIC_SINCE: NaiveDate = day(1986, 6, 4);
const CDI_SINCE: NaiveDate = day(1986, 3, 6);
const IPCA_SINCE: NaiveDate = day(1980, 1, 1);
const DOLLAR_SINCE: NaiveDate = day(1984, 11, 28);
const REAL_SINCE: NaiveDate = day(1994, 7, 1);
/// From here on both overnight rates are the same number.
const RATES_EQUAL_SINCE: NaiveDate = day(2018, 10, 1);

#[derive(Debug)]
pub struct Market {
    series: BTreeMap<u32, Rows>,
}

impl Market {
    /// With the files of `directory`/sgs, as far as they are there.
    pub fn new(directory: Option<&Path>) -> anyhow::Result<Self> {
        let real = |code: u32| match directory {
            Some(directory) => real_rows(&directory.join(format!("sgs/{code}.json"))),
            None => Ok(Rows::new()),
        };
        let known_selic = real(SELIC_DAILY)?;
        let target = target(&real(TARGET)?, &known_selic);
        let selic = selic_daily(&known_selic, &target);
        let cdi = cdi_daily(&real(CDI_DAILY)?, &selic);
        let ipca = ipca(real(IPCA_MONTH)?);
        let (buy, sell) = dollar(real(DOLLAR_BUY)?, real(DOLLAR_SELL)?, &selic);
        let series = BTreeMap::from([
            (SELIC_ANNUAL, annualised(&selic)),
            (CDI_ANNUAL, annualised(&cdi)),
            (IPCA_12_MONTHS, twelve_months(&ipca)),
            (TARGET, target),
            (SELIC_DAILY, selic),
            (CDI_DAILY, cdi),
            (IPCA_MONTH, ipca),
            (DOLLAR_BUY, buy),
            (DOLLAR_SELL, sell),
        ]);
        Ok(Self { series })
    }

    /// All rows of a series up to the horizon; nothing for codes that the stand-in does not carry.
    pub fn rows(&self, code: u32) -> Option<&Rows> {
        self.series.get(&code)
    }

    /// The last day that is published at this moment in Brasília.
    pub fn published_until(&self, code: u32, now: NaiveDateTime) -> NaiveDate {
        let today = now.date();
        let once_it_is = |hour, minute| {
            let time = NaiveTime::from_hms_opt(hour, minute, 0).expect("a time of the day");
            if now.time() >= time { today } else { today - Days::new(1) }
        };
        match code {
            TARGET => self.target_known_until(today),
            IPCA_MONTH | IPCA_12_MONTHS => last_published_month(now),
            DOLLAR_BUY | DOLLAR_SELL => once_it_is(13, 30),
            _ => once_it_is(20, 0),
        }
    }

    /// The target is filled in up to the next meeting, hence into the future. On the evening of a meeting its
    /// outcome is known, up to the meeting after that.
    fn target_known_until(&self, today: NaiveDate) -> NaiveDate {
        let tomorrow = today + Days::new(1);
        let rows = &self.series[&TARGET];
        let is_first_of_another =
            |date: &NaiveDate| is_change_day(*date) || rows.get(date) != rows.get(&(*date - Days::new(1)));
        let next_change = days(tomorrow + Days::new(1), HORIZON).find(is_first_of_another);
        next_change.map_or(HORIZON, |date| date - Days::new(1))
    }
}

#[derive(Deserialize)]
struct SgsRow {
    data: String,
    valor: String,
}

/// A file as the central bank answers; a file that is not there holds nothing.
fn real_rows(file: &Path) -> anyhow::Result<Rows> {
    if !file.exists() {
        return Ok(Rows::new());
    }
    let read = || -> anyhow::Result<Rows> {
        let rows: Vec<SgsRow> = serde_json::from_slice(&std::fs::read(file)?)?;
        rows.into_iter().map(|row| Ok((NaiveDate::parse_from_str(&row.data, "%d/%m/%Y")?, row.valor))).collect()
    };
    read().with_context(|| format!("reading {}", file.display()))
}

/// Meetings end every six or seven weeks on a Wednesday; what they decide holds from the next day.
fn is_change_day(date: NaiveDate) -> bool {
    const ONE_OF_THEM: NaiveDate = day(2026, 3, 19);
    matches!((date - ONE_OF_THEM).num_days().rem_euclid(91), 0 | 42)
}

/// For every day of the calendar. Where the file is silent the overnight rate tells the target, then meetings do.
fn target(known: &Rows, known_selic: &Rows) -> Rows {
    let mut hundredths = 4500;
    let mut rows = Rows::new();
    for date in days(TARGET_SINCE, HORIZON) {
        let text = if let Some(text) = known.get(&date) {
            hundredths = (number(text) * 100.0).round() as i64;
            text.clone()
        } else {
            if let Some(rate) = known_selic.get(&date) {
                // The market lends a tenth of a point below the target, which moves in quarters of a point.
                hundredths = ((annual(number(rate)) + 0.10) * 4.0).round() as i64 * 25;
            } else if is_change_day(date) {
                hundredths += step_towards(goal(date.year()) - hundredths, date);
            }
            fixed(hundredths, 2)
        };
        rows.insert(date, text);
    }
    rows
}

/// Where the target is heading from each year on, in hundredths; later years draw their own.
const GOALS: [(i32, i64); 10] = [
    (1999, 2000),
    (2004, 1600),
    (2006, 1100),
    (2008, 1000),
    (2011, 850),
    (2014, 1400),
    (2017, 650),
    (2019, 200),
    (2021, 1350),
    (2024, 1375),
];

fn goal(year: i32) -> i64 {
    if year > 2026 {
        return 25 * Dice::new(&format!("goal of {year}")).between(36, 60);
    }
    GOALS.iter().rev().find(|(since, _)| *since <= year).map_or(GOALS[0].1, |(_, goal)| *goal)
}

fn step_towards(gap: i64, date: NaiveDate) -> i64 {
    let mut dice = Dice::of_day("meeting", date);
    let step = match gap.abs() {
        301.. => 75,
        _ if dice.chance(250) => 0,
        near => near.min(*dice.pick(&[25, 25, 50])),
    };
    step * gap.signum()
}

/// Percent a year, on the first day of the month, before there was a target.
const ANNUAL_RATES: [(NaiveDate, f64); 15] = [
    (day(1986, 3, 1), 18.0),
    (day(1986, 10, 1), 40.0),
    (day(1987, 2, 1), 600.0),
    (day(1988, 6, 1), 2_200.0),
    (day(1989, 12, 1), 28_000.0),
    (day(1990, 3, 1), 45_000.0),
    (day(1990, 5, 1), 700.0),
    (day(1993, 1, 1), 3_500.0),
    (day(1994, 6, 30), 12_000.0),
    (day(1994, 7, 1), 85.0),
    (day(1995, 6, 1), 52.0),
    (day(1996, 6, 1), 26.0),
    (day(1997, 9, 1), 21.0),
    (day(1998, 10, 1), 36.0),
    (day(1999, 3, 4), 39.0),
];

fn selic_daily(known: &Rows, target: &Rows) -> Rows {
    let candidates = days(SELIC_SINCE, HORIZON).filter(|date| is_business_day(*date));
    filled(known, candidates, |date| fixed_f64(daily(overnight(date, target)), 6))
}

fn overnight(date: NaiveDate, target: &Rows) -> f64 {
    match target.get(&date) {
        Some(target) => number(target) - 0.10,
        None => curve(&ANNUAL_RATES, date) * (1.0 + wandering("overnight", date)),
    }
}

/// Interbank loans on the same days as the Selic, at nearly and by now at exactly its rate.
fn cdi_daily(known: &Rows, selic: &Rows) -> Rows {
    let before = days(CDI_SINCE, SELIC_SINCE - Days::new(1)).filter(|date| is_business_day(*date));
    filled(known, before.chain(selic.keys().copied()), |date| match selic.get(&date) {
        Some(rate) if date >= RATES_EQUAL_SINCE => rate.clone(),
        Some(rate) => fixed_f64(number(rate) * (1.0 - 0.001 * Dice::of_day("cdi", date).swing().abs()), 6),
        None => fixed_f64(daily(curve(&ANNUAL_RATES, date)), 6),
    })
}

fn annualised(daily_rates: &Rows) -> Rows {
    daily_rates.iter().map(|(date, rate)| (*date, fixed_f64(annual(number(rate)), 2))).collect()
}

/// Percent a year from percent a day: 252 business days.
fn annual(percent_a_day: f64) -> f64 {
    ((1.0 + percent_a_day / 100.0).powi(252) - 1.0) * 100.0
}

fn daily(percent_a_year: f64) -> f64 {
    ((1.0 + percent_a_year / 100.0).powf(1.0 / 252.0) - 1.0) * 100.0
}

const MONTHLY_INFLATION: [(NaiveDate, f64); 13] = [
    (day(1980, 1, 1), 6.0),
    (day(1983, 6, 1), 9.5),
    (day(1985, 12, 1), 13.0),
    (day(1986, 4, 1), 1.2),
    (day(1987, 5, 1), 22.0),
    (day(1987, 9, 1), 7.0),
    (day(1988, 12, 1), 28.0),
    (day(1989, 12, 1), 52.0),
    (day(1990, 3, 1), 79.0),
    (day(1990, 5, 1), 8.0),
    (day(1991, 6, 1), 12.0),
    (day(1992, 12, 1), 25.0),
    (day(1994, 6, 1), 46.0),
];

fn ipca(mut rows: Rows) -> Rows {
    let mut month = IPCA_SINCE;
    while month <= HORIZON {
        rows.entry(month).or_insert_with(|| {
            let mut dice = Dice::of_day("ipca", month);
            if month < REAL_SINCE {
                return fixed_f64(curve(&MONTHLY_INFLATION, month) * (1.0 + 0.02 * dice.swing()), 2);
            }
            // Food is dearer in the rains.
            let season = if matches!(month.month(), 11 | 12 | 1 | 2) { 20 } else { 0 };
            fixed((season + dice.between(5, 85) + dice.between(-45, 25)).clamp(-30, 130), 2)
        });
        month = month + Months::new(1);
    }
    rows
}

fn twelve_months(months: &Rows) -> Rows {
    let months: Vec<(NaiveDate, f64)> = months.iter().map(|(month, change)| (*month, number(change))).collect();
    let chained = |window: &[(NaiveDate, f64)]| {
        let factor: f64 = window.iter().map(|(_, change)| 1.0 + change / 100.0).product();
        (window[window.len() - 1].0, fixed_f64((factor - 1.0) * 100.0, 2))
    };
    months.windows(12).map(chained).collect()
}

/// A month is published on the tenth of the next at nine, or on the first business day after.
fn last_published_month(now: NaiveDateTime) -> NaiveDate {
    let nine = NaiveTime::from_hms_opt(9, 0, 0).expect("a time of the day");
    let this_month = now.date().with_day(1).expect("every month has a first day");
    let published_at = business_day_from(this_month + Days::new(9)).and_time(nine);
    this_month - Months::new(if now >= published_at { 1 } else { 2 })
}

/// What a dollar costs, in the currency of its day; the two dates of a pair of consecutive days are a new currency.
const DOLLAR: [(NaiveDate, f64); 28] = [
    (DOLLAR_SINCE, 2_800.0),
    (day(1986, 2, 27), 13_700.0),
    (day(1986, 2, 28), 13.7),
    (day(1987, 5, 1), 27.0),
    (day(1988, 1, 1), 75.0),
    (day(1989, 1, 15), 900.0),
    (day(1989, 1, 16), 1.0),
    (day(1990, 3, 15), 40.0),
    (day(1991, 1, 1), 170.0),
    (day(1992, 1, 1), 1_080.0),
    (day(1993, 7, 31), 70_000.0),
    (day(1993, 8, 1), 70.0),
    (day(1994, 6, 30), 2_700.0),
    (REAL_SINCE, 0.93),
    (day(1995, 3, 1), 0.9),
    (day(1998, 12, 1), 1.2),
    (day(1999, 2, 1), 1.9),
    (day(2002, 10, 1), 3.6),
    (day(2005, 8, 1), 2.35),
    (day(2008, 7, 1), 1.6),
    (day(2008, 12, 1), 2.35),
    (day(2011, 7, 1), 1.6),
    (day(2015, 9, 1), 3.85),
    (day(2017, 2, 1), 3.15),
    (day(2020, 5, 1), 5.45),
    (day(2022, 4, 1), 4.85),
    (day(2024, 12, 1), 5.9),
    (day(2026, 9, 1), 5.3),
];

/// Buying and selling rates on the same days.
fn dollar(known_buy: Rows, known_sell: Rows, selic: &Rows) -> (Rows, Rows) {
    let known_days: BTreeMap<NaiveDate, f64> =
        known_sell.iter().chain(&known_buy).map(|(date, rate)| (*date, number(rate))).collect();
    let business_days = days(DOLLAR_SINCE, SELIC_SINCE - Days::new(1)).filter(|date| is_business_day(*date));
    let candidates = business_days.chain(selic.keys().copied()).filter(|date| *date >= DOLLAR_SINCE);
    let missing: Vec<NaiveDate> = candidates.filter(|date| lies_in_a_hole(&known_days, *date)).collect();

    let (mut buy, mut sell) = (known_buy, known_sell);
    for date in known_days.keys().copied() {
        match (buy.get(&date), sell.get(&date)) {
            (Some(bought), None) => _ = sell.insert(date, sold_at(bought, date)),
            (None, Some(sold)) => _ = buy.insert(date, ten_thousandths_off(sold, -6)),
            _ => {}
        }
    }
    for date in missing {
        // The surveys of the year's last day do not count: its close is that of the day before.
        let before = buy.range(..date).next_back().map(|(_, rate)| rate.clone());
        let bought = match before {
            Some(before) if (date.month(), date.day()) == (12, 31) => before,
            _ => fixed_f64(made_up_dollar(&known_days, date), 4),
        };
        sell.insert(date, sold_at(&bought, date));
        buy.insert(date, bought);
    }
    (buy, sell)
}

/// Passes through what is known on both sides of a hole, and returns to the long-run curve after the last known day.
fn made_up_dollar(known: &BTreeMap<NaiveDate, f64>, date: NaiveDate) -> f64 {
    let home = |date| curve(&DOLLAR, date);
    // What is near a known day stays near its value.
    let freedom = |from: NaiveDate| ((date - from).num_days().abs() as f64 / 60.0).min(1.0);
    let before = known.range(..date).next_back();
    let after = known.range(date..).next();
    let (level, freedom) = match (before, after) {
        (None, _) => (home(date), if date < REAL_SINCE { 0.1 } else { 1.0 }),
        (Some((from, was)), None) => {
            let distance = (was / home(*from)).ln() * (-((date - *from).num_days() as f64) / 250.0).exp();
            (home(date) * distance.exp(), freedom(*from))
        }
        (Some((from, was)), Some((to, will_be))) => {
            (curve(&[(*from, *was), (*to, *will_be)], date), freedom(*from).min(freedom(*to)))
        }
    };
    level * (1.0 + freedom * wandering("dollar", date))
}

/// A few ten-thousandths dearer, and half a percent in the times of high inflation.
fn sold_at(bought: &str, date: NaiveDate) -> String {
    if date < REAL_SINCE { fixed_f64(number(bought) * 1.005, 4) } else { ten_thousandths_off(bought, 6) }
}

fn ten_thousandths_off(rate: &str, ten_thousandths: i64) -> String {
    fixed((number(rate) * 10_000.0).round() as i64 + ten_thousandths, 4)
}

/// What is known, and made-up rows on the candidates where it has holes.
fn filled(known: &Rows, candidates: impl Iterator<Item = NaiveDate>, make_up: impl Fn(NaiveDate) -> String) -> Rows {
    let mut rows = known.clone();
    rows.extend(candidates.filter(|date| lies_in_a_hole(known, *date)).map(|date| (date, make_up(date))));
    rows
}

/// Neighbours that are at most this far apart have holidays between them; no run of holidays was longer.
const LONGEST_HOLIDAYS: i64 = 10;

fn lies_in_a_hole<V>(known: &BTreeMap<NaiveDate, V>, date: NaiveDate) -> bool {
    let before = known.range(..=date).next_back().map(|(date, _)| *date);
    let after = known.range(date..).next().map(|(date, _)| *date);
    match (before, after) {
        (Some(before), Some(after)) => before != date && (after - before).num_days() > LONGEST_HOLIDAYS,
        _ => true,
    }
}

/// Through all points, with a constant growth between two; flat before the first and after the last.
fn curve(points: &[(NaiveDate, f64)], date: NaiveDate) -> f64 {
    let after = points.partition_point(|(point, _)| *point <= date);
    if after == 0 {
        return points[0].1;
    }
    let (from, was) = points[after - 1];
    let Some((to, will_be)) = points.get(after) else { return was };
    let along = (date - from).num_days() as f64 / (*to - from).num_days() as f64;
    was * (will_be / was).powf(along)
}

pub fn number(text: &str) -> f64 {
    text.parse().expect("a value of a series is a number")
}

/// `1475` with two decimals is `14.75`.
pub fn fixed(units: i64, decimals: u32) -> String {
    Decimal::new(units, decimals).to_string()
}

pub fn fixed_f64(value: f64, decimals: u32) -> String {
    fixed((value * 10f64.powi(decimals.cast_signed())).round() as i64, decimals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_filled_and_holidays_are_not() {
        let known = Rows::from([(day(2024, 12, 31), "1".to_owned()), (day(2025, 6, 2), "2".to_owned())]);
        assert!(lies_in_a_hole(&known, day(2025, 1, 2)) && lies_in_a_hole(&known, day(2025, 6, 3)));
        assert!(!lies_in_a_hole(&known, day(2025, 6, 2)));
        let known = Rows::from([(day(2024, 2, 9), "1".to_owned()), (day(2024, 2, 14), "2".to_owned())]);
        assert!(!lies_in_a_hole(&known, day(2024, 2, 12)));
    }

    #[test]
    fn inflation_is_published_on_the_tenth_at_nine() {
        let at = |date: NaiveDate, hour| last_published_month(date.and_hms_opt(hour, 0, 0).unwrap());
        assert_eq!(at(day(2026, 11, 10), 8), day(2026, 9, 1));
        assert_eq!(at(day(2026, 11, 10), 9), day(2026, 10, 1));
        // The tenth of October 2026 is a Saturday, and the twelfth a holiday.
        assert_eq!(at(day(2026, 10, 12), 23), day(2026, 8, 1));
        assert_eq!(at(day(2026, 10, 13), 9), day(2026, 9, 1));
    }

    #[test]
    fn the_target_moves_in_quarters_of_a_point_and_only_after_meetings() {
        let market = Market::new(None).unwrap();
        let target = market.rows(TARGET).unwrap();
        let rows: Vec<_> = target.iter().collect();
        for pair in rows.windows(2) {
            let step = (number(pair[1].1) - number(pair[0].1)).abs();
            assert!(step == 0.0 || (step <= 0.75 && is_change_day(*pair[1].0)), "{pair:?}");
        }
        let today = day(2026, 11, 13);
        let known_until = market.published_until(TARGET, today.and_hms_opt(23, 0, 0).unwrap());
        assert!(known_until > today && known_until <= today + Days::new(49), "{known_until}");
        assert!(is_change_day(known_until + Days::new(1)));
    }
}
