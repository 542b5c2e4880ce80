//! The central bank's series: real rows where files exist, synthetic rows in the gaps, all consistent with each
//! other.
//!
//! Rows from files are kept byte for byte. Generated rows are derived: overnight rates from the target, annual rates
//! from daily ones, twelve-month inflation from the months, and the dollar's buying rate from its selling rate. Floats
//! are good enough here, because everything is rounded to a few decimals; the product has none.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use chrono::{Datelike, Days, Months, NaiveDate, NaiveDateTime, NaiveTime};
use serde::Deserialize;
use vintem_domain::dates::month_start;
use vintem_domain::series::Shape;

use super::calendar::{LAST_GENERATED_DAY, business_day_on_or_after, date_range, is_business_day, ymd};
use super::plain_series::{build_plain_series, find_by_code, last_published_date, reestimate};
use super::seeded_random::{SeededRandom, smooth_noise};
use super::series_rows::{SeriesRows, format_f64, format_units, parse_number};

pub const SELIC_TARGET: u32 = 432;
pub const SELIC_DAILY: u32 = 11;
pub const SELIC_ANNUAL: u32 = 1178;
pub const CDI_DAILY: u32 = 12;
pub const CDI_ANNUAL: u32 = 4389;
pub const IPCA_MONTH: u32 = 433;
pub const IPCA_12_MONTHS: u32 = 13522;
pub const SELIC_MONTH: u32 = 4390;
pub const CDI_MONTH: u32 = 4391;
pub const DOLLAR_SELL: u32 = 1;
pub const DOLLAR_BUY: u32 = 10813;

const SELIC_TARGET_SINCE: NaiveDate = ymd(1999, 3, 5);
const SELIC_SINCE: NaiveDate = ymd(1986, 6, 4);
const CDI_SINCE: NaiveDate = ymd(1986, 3, 6);
const IPCA_SINCE: NaiveDate = ymd(1980, 1, 1);
const DOLLAR_SINCE: NaiveDate = ymd(1984, 11, 28);
const REAL_SINCE: NaiveDate = ymd(1994, 7, 1);
/// Since then both overnight rates are the same number.
const RATES_EQUAL_SINCE: NaiveDate = ymd(2018, 10, 1);

#[derive(Debug)]
pub struct MarketData {
    series: BTreeMap<u32, SeriesRows>,
    /// The series that depend on no other, built when somebody asks for them.
    plain: Mutex<BTreeMap<u32, SeriesRows>>,
}

impl MarketData {
    /// Uses the files in `directory`/sgs that exist.
    pub fn new(directory: Option<&Path>) -> anyhow::Result<Self> {
        let load_real = |code: u32| match directory {
            Some(directory) => load_real_rows(&directory.join(format!("sgs/{code}.json"))),
            None => Ok(SeriesRows::new()),
        };
        let real_selic = load_real(SELIC_DAILY)?;
        let target = build_target(&load_real(SELIC_TARGET)?, &real_selic);
        let selic = build_selic_daily(&real_selic, &target);
        let cdi = build_cdi_daily(&load_real(CDI_DAILY)?, &selic);
        let ipca = build_ipca(load_real(IPCA_MONTH)?);
        let (buy, sell) = build_dollar(load_real(DOLLAR_BUY)?, load_real(DOLLAR_SELL)?, &selic);

        let mut series = BTreeMap::from([
            (SELIC_ANNUAL, annualize_rates(&selic)),
            (CDI_ANNUAL, annualize_rates(&cdi)),
            (IPCA_12_MONTHS, build_ipca_12_months(&ipca)),
            (SELIC_TARGET, target),
            (SELIC_DAILY, selic),
            (CDI_DAILY, cdi),
            (IPCA_MONTH, ipca),
            (DOLLAR_BUY, buy),
            (DOLLAR_SELL, sell),
        ]);
        let months = |daily: u32| compound_months(&series[&daily], LAST_GENERATED_DAY);
        let (selic_month, cdi_month) = (months(SELIC_DAILY), months(CDI_DAILY));
        series.extend([(SELIC_MONTH, selic_month), (CDI_MONTH, cdi_month)]);
        Ok(Self { series, plain: Mutex::default() })
    }

    /// All rows of a series up to [`LAST_GENERATED_DAY`]; `None` for codes that the fake does not have.
    pub fn rows(&self, code: u32) -> Option<Cow<'_, SeriesRows>> {
        if let Some(rows) = self.series.get(&code) {
            return Some(Cow::Borrowed(rows));
        }
        let series = find_by_code(code)?;
        let mut plain = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Cow::Owned(plain.entry(code).or_insert_with(|| build_plain_series(series)).clone()))
    }

    /// The rows of a series that are published at this time in Brasília.
    pub fn published_rows(&self, code: u32, now: NaiveDateTime) -> Option<SeriesRows> {
        let until = self.last_published_day(code, now);
        let mut rows: SeriesRows =
            self.rows(code)?.range(..=until).map(|(date, value)| (*date, value.clone())).collect();

        // The running month has the days that are published so far.
        if let Some(daily) =
            [(SELIC_MONTH, SELIC_DAILY), (CDI_MONTH, CDI_DAILY)].iter().find(|(month, _)| *month == code)
        {
            let published = self.last_published_day(daily.1, now);
            rows.extend(compound_months(&self.series[&daily.1], published).split_off(&month_start(published)));
            rows.retain(|month, _| *month <= month_start(published));
        }
        if let Some(series) = find_by_code(code).filter(|series| series.shape == Shape::Reestimated) {
            reestimate(series, &mut rows, month_start(until));
        }
        Some(rows)
    }

    /// The last day published at this time in Brasília.
    pub fn last_published_day(&self, code: u32, now: NaiveDateTime) -> NaiveDate {
        let today = now.date();
        let today_from = |hour, minute| {
            let time = NaiveTime::from_hms_opt(hour, minute, 0).expect("a time of the day");
            if now.time() >= time { today } else { today - Days::new(1) }
        };
        match code {
            SELIC_TARGET => self.last_known_target_day(today),
            IPCA_MONTH | IPCA_12_MONTHS => last_published_month(now),
            DOLLAR_BUY | DOLLAR_SELL => today_from(13, 30),
            SELIC_DAILY | SELIC_ANNUAL | CDI_DAILY | CDI_ANNUAL => today_from(20, 0),
            _ => find_by_code(code).map_or(today, |series| last_published_date(series, now)),
        }
    }

    /// The target is published up to the next meeting, so it reaches into the future. On the evening of a meeting its
    /// outcome is published, up to the meeting after it.
    fn last_known_target_day(&self, today: NaiveDate) -> NaiveDate {
        let tomorrow = today + Days::new(1);
        let rows = &self.series[&SELIC_TARGET];
        let is_change =
            |date: &NaiveDate| is_target_change_day(*date) || rows.get(date) != rows.get(&(*date - Days::new(1)));
        let next_change = date_range(tomorrow + Days::new(1), LAST_GENERATED_DAY).find(is_change);
        next_change.map_or(LAST_GENERATED_DAY, |date| date - Days::new(1))
    }
}

#[derive(Deserialize)]
struct SgsFileRow {
    data: String,
    valor: String,
}

/// Reads a file in the central bank's JSON format; a missing file is an empty series.
fn load_real_rows(file: &Path) -> anyhow::Result<SeriesRows> {
    if !file.exists() {
        return Ok(SeriesRows::new());
    }
    let read = || -> anyhow::Result<SeriesRows> {
        let rows: Vec<SgsFileRow> = serde_json::from_slice(&std::fs::read(file)?)?;
        rows.into_iter().map(|row| Ok((NaiveDate::parse_from_str(&row.data, "%d/%m/%Y")?, row.valor))).collect()
    };
    read().with_context(|| format!("reading {}", file.display()))
}

/// Meetings end every six or seven weeks on a Wednesday; their decision takes effect the next day.
fn is_target_change_day(date: NaiveDate) -> bool {
    const KNOWN_CHANGE_DAY: NaiveDate = ymd(2026, 3, 19);
    matches!((date - KNOWN_CHANGE_DAY).num_days().rem_euclid(91), 0 | 42)
}

/// The target of every calendar day: from the file, else from the real overnight rate, else from generated meetings.
fn build_target(real_target: &SeriesRows, real_selic: &SeriesRows) -> SeriesRows {
    let mut hundredths = 4500;
    let mut rows = SeriesRows::new();
    for date in date_range(SELIC_TARGET_SINCE, LAST_GENERATED_DAY) {
        let text = if let Some(text) = real_target.get(&date) {
            hundredths = (parse_number(text) * 100.0).round() as i64;
            text.clone()
        } else {
            if let Some(rate) = real_selic.get(&date) {
                // The overnight rate is a tenth of a point below the target, which moves in quarters of a point.
                hundredths = ((daily_to_annual(parse_number(rate)) + 0.10) * 4.0).round() as i64 * 25;
            } else if is_target_change_day(date) {
                hundredths += target_step(target_goal(date.year()) - hundredths, date);
            }
            format_units(hundredths, 2)
        };
        rows.insert(date, text);
    }
    rows
}

/// The level that the target moves towards from each year on, in hundredths; years after 2026 draw their own.
const SELIC_GOALS_BY_YEAR: [(i32, i64); 10] = [
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

fn target_goal(year: i32) -> i64 {
    if year > 2026 {
        return 25 * SeededRandom::new(&format!("goal of {year}")).in_range(36, 60);
    }
    SELIC_GOALS_BY_YEAR
        .iter()
        .rev()
        .find(|(since, _)| *since <= year)
        .map_or(SELIC_GOALS_BY_YEAR[0].1, |(_, goal)| *goal)
}

fn target_step(gap: i64, date: NaiveDate) -> i64 {
    let mut random = SeededRandom::for_day("meeting", date);
    let step = match gap.abs() {
        301.. => 75,
        _ if random.chance_per_thousand(250) => 0,
        near => near.min(*random.pick(&[25, 25, 50])),
    };
    step * gap.signum()
}

/// Percent per year, before there was a target.
const EARLY_ANNUAL_RATES: [(NaiveDate, f64); 15] = [
    (ymd(1986, 3, 1), 18.0),
    (ymd(1986, 10, 1), 40.0),
    (ymd(1987, 2, 1), 600.0),
    (ymd(1988, 6, 1), 2_200.0),
    (ymd(1989, 12, 1), 28_000.0),
    (ymd(1990, 3, 1), 45_000.0),
    (ymd(1990, 5, 1), 700.0),
    (ymd(1993, 1, 1), 3_500.0),
    (ymd(1994, 6, 30), 12_000.0),
    (ymd(1994, 7, 1), 85.0),
    (ymd(1995, 6, 1), 52.0),
    (ymd(1996, 6, 1), 26.0),
    (ymd(1997, 9, 1), 21.0),
    (ymd(1998, 10, 1), 36.0),
    (ymd(1999, 3, 4), 39.0),
];

fn build_selic_daily(real_rows: &SeriesRows, target: &SeriesRows) -> SeriesRows {
    let candidates = date_range(SELIC_SINCE, LAST_GENERATED_DAY).filter(|date| is_business_day(*date));
    fill_gaps(real_rows, candidates, |date| format_f64(annual_to_daily(overnight_rate(date, target)), 6))
}

fn overnight_rate(date: NaiveDate, target: &SeriesRows) -> f64 {
    match target.get(&date) {
        Some(target) => parse_number(target) - 0.10,
        None => interpolate(&EARLY_ANNUAL_RATES, date) * (1.0 + smooth_noise("overnight", date)),
    }
}

/// Interbank loans on the same days as the Selic: first at nearly its rate, since 2018 at exactly its rate.
fn build_cdi_daily(real_rows: &SeriesRows, selic: &SeriesRows) -> SeriesRows {
    let days_before_selic = date_range(CDI_SINCE, SELIC_SINCE - Days::new(1)).filter(|date| is_business_day(*date));
    fill_gaps(real_rows, days_before_selic.chain(selic.keys().copied()), |date| match selic.get(&date) {
        Some(rate) if date >= RATES_EQUAL_SINCE => rate.clone(),
        Some(rate) => {
            format_f64(parse_number(rate) * (1.0 - 0.001 * SeededRandom::for_day("cdi", date).signed_unit().abs()), 6)
        }
        None => format_f64(annual_to_daily(interpolate(&EARLY_ANNUAL_RATES, date)), 6),
    })
}

fn annualize_rates(daily_rates: &SeriesRows) -> SeriesRows {
    daily_rates.iter().map(|(date, rate)| (*date, format_f64(daily_to_annual(parse_number(rate)), 2))).collect()
}

/// Percent per year from percent per day, compounded over 252 business days.
fn daily_to_annual(percent_per_day: f64) -> f64 {
    ((1.0 + percent_per_day / 100.0).powi(252) - 1.0) * 100.0
}

fn annual_to_daily(percent_per_year: f64) -> f64 {
    ((1.0 + percent_per_year / 100.0).powf(1.0 / 252.0) - 1.0) * 100.0
}

const EARLY_MONTHLY_INFLATION: [(NaiveDate, f64); 13] = [
    (ymd(1980, 1, 1), 6.0),
    (ymd(1983, 6, 1), 9.5),
    (ymd(1985, 12, 1), 13.0),
    (ymd(1986, 4, 1), 1.2),
    (ymd(1987, 5, 1), 22.0),
    (ymd(1987, 9, 1), 7.0),
    (ymd(1988, 12, 1), 28.0),
    (ymd(1989, 12, 1), 52.0),
    (ymd(1990, 3, 1), 79.0),
    (ymd(1990, 5, 1), 8.0),
    (ymd(1991, 6, 1), 12.0),
    (ymd(1992, 12, 1), 25.0),
    (ymd(1994, 6, 1), 46.0),
];

fn build_ipca(mut rows: SeriesRows) -> SeriesRows {
    let mut month = IPCA_SINCE;
    while month <= LAST_GENERATED_DAY {
        rows.entry(month).or_insert_with(|| {
            let mut random = SeededRandom::for_day("ipca", month);
            if month < REAL_SINCE {
                return format_f64(
                    interpolate(&EARLY_MONTHLY_INFLATION, month) * (1.0 + 0.02 * random.signed_unit()),
                    2,
                );
            }
            // Food prices rise in the rainy season.
            let season = if matches!(month.month(), 11 | 12 | 1 | 2) { 20 } else { 0 };
            format_units((season + random.in_range(5, 85) + random.in_range(-45, 25)).clamp(-30, 130), 2)
        });
        month = month + Months::new(1);
    }
    rows
}

fn build_ipca_12_months(months: &SeriesRows) -> SeriesRows {
    let months: Vec<(NaiveDate, f64)> = months.iter().map(|(month, change)| (*month, parse_number(change))).collect();
    let chained = |window: &[(NaiveDate, f64)]| {
        let factor: f64 = window.iter().map(|(_, change)| 1.0 + change / 100.0).product();
        (window[window.len() - 1].0, format_f64((factor - 1.0) * 100.0, 2))
    };
    months.windows(12).map(chained).collect()
}

/// The rates of each month compounded, up to the last published day.
fn compound_months(daily_rates: &SeriesRows, until: NaiveDate) -> SeriesRows {
    let mut factors: BTreeMap<NaiveDate, f64> = BTreeMap::new();
    for (date, rate) in daily_rates.range(..=until) {
        *factors.entry(month_start(*date)).or_insert(1.0) *= 1.0 + parse_number(rate) / 100.0;
    }
    factors.into_iter().map(|(month, factor)| (month, format_f64((factor - 1.0) * 100.0, 2))).collect()
}

/// A month is published at 09:00 on the tenth of the next month, or on the first business day after it.
fn last_published_month(now: NaiveDateTime) -> NaiveDate {
    let nine = NaiveTime::from_hms_opt(9, 0, 0).expect("a time of the day");
    let this_month = now.date().with_day(1).expect("every month has a first day");
    let published_at = business_day_on_or_after(this_month + Days::new(9)).and_time(nine);
    this_month - Months::new(if now >= published_at { 1 } else { 2 })
}

/// The price of a dollar in the currency of the day. Two entries on consecutive days mark a new currency.
const DOLLAR_CURVE: [(NaiveDate, f64); 28] = [
    (DOLLAR_SINCE, 2_800.0),
    (ymd(1986, 2, 27), 13_700.0),
    (ymd(1986, 2, 28), 13.7),
    (ymd(1987, 5, 1), 27.0),
    (ymd(1988, 1, 1), 75.0),
    (ymd(1989, 1, 15), 900.0),
    (ymd(1989, 1, 16), 1.0),
    (ymd(1990, 3, 15), 40.0),
    (ymd(1991, 1, 1), 170.0),
    (ymd(1992, 1, 1), 1_080.0),
    (ymd(1993, 7, 31), 70_000.0),
    (ymd(1993, 8, 1), 70.0),
    (ymd(1994, 6, 30), 2_700.0),
    (REAL_SINCE, 0.93),
    (ymd(1995, 3, 1), 0.9),
    (ymd(1998, 12, 1), 1.2),
    (ymd(1999, 2, 1), 1.9),
    (ymd(2002, 10, 1), 3.6),
    (ymd(2005, 8, 1), 2.35),
    (ymd(2008, 7, 1), 1.6),
    (ymd(2008, 12, 1), 2.35),
    (ymd(2011, 7, 1), 1.6),
    (ymd(2015, 9, 1), 3.85),
    (ymd(2017, 2, 1), 3.15),
    (ymd(2020, 5, 1), 5.45),
    (ymd(2022, 4, 1), 4.85),
    (ymd(2024, 12, 1), 5.9),
    (ymd(2026, 9, 1), 5.3),
];

/// Buying and selling rates, with values on the same days.
fn build_dollar(real_buy: SeriesRows, real_sell: SeriesRows, selic: &SeriesRows) -> (SeriesRows, SeriesRows) {
    let real_rates: BTreeMap<NaiveDate, f64> =
        real_sell.iter().chain(&real_buy).map(|(date, rate)| (*date, parse_number(rate))).collect();
    let business_days = date_range(DOLLAR_SINCE, SELIC_SINCE - Days::new(1)).filter(|date| is_business_day(*date));
    let candidates = business_days.chain(selic.keys().copied()).filter(|date| *date >= DOLLAR_SINCE);
    let missing: Vec<NaiveDate> = candidates.filter(|date| is_in_gap(&real_rates, *date)).collect();

    let mut buy = real_buy;
    let mut sell = real_sell;
    for date in real_rates.keys().copied() {
        match (buy.get(&date), sell.get(&date)) {
            (Some(buy_rate), None) => _ = sell.insert(date, sell_rate(buy_rate, date)),
            (None, Some(sell_rate)) => _ = buy.insert(date, add_ten_thousandths(sell_rate, -6)),
            _ => {}
        }
    }

    for date in missing {
        // On the year's last day the surveys don't count: its close is that of the day before.
        let previous = buy.range(..date).next_back().map(|(_, rate)| rate.clone());
        let buy_rate = match previous {
            Some(previous) if (date.month(), date.day()) == (12, 31) => previous,
            _ => format_f64(synthetic_dollar_rate(&real_rates, date), 4),
        };
        sell.insert(date, sell_rate(&buy_rate, date));
        buy.insert(date, buy_rate);
    }
    (buy, sell)
}

/// Interpolates between the real rates around a gap, and returns to the long-run curve after the last real rate.
fn synthetic_dollar_rate(real_rates: &BTreeMap<NaiveDate, f64>, date: NaiveDate) -> f64 {
    let long_run_rate = |date| interpolate(&DOLLAR_CURVE, date);
    // The noise grows with the distance, so that days near a real rate stay near its value.
    let noise_weight = |from: NaiveDate| ((date - from).num_days().abs() as f64 / 60.0).min(1.0);
    let before = real_rates.range(..date).next_back();
    let after = real_rates.range(date..).next();

    let (level, weight) = match (before, after) {
        (None, _) => (long_run_rate(date), if date < REAL_SINCE { 0.1 } else { 1.0 }),
        (Some((from, from_rate)), None) => {
            let distance =
                (from_rate / long_run_rate(*from)).ln() * (-((date - *from).num_days() as f64) / 250.0).exp();
            (long_run_rate(date) * distance.exp(), noise_weight(*from))
        }
        (Some((from, from_rate)), Some((to, to_rate))) => {
            let level = interpolate(&[(*from, *from_rate), (*to, *to_rate)], date);
            (level, noise_weight(*from).min(noise_weight(*to)))
        }
    };
    level * (1.0 + weight * smooth_noise("dollar", date))
}

/// The buying rate plus six ten-thousandths; before the real, in times of high inflation, plus half a percent.
fn sell_rate(buy_rate: &str, date: NaiveDate) -> String {
    if date < REAL_SINCE { format_f64(parse_number(buy_rate) * 1.005, 4) } else { add_ten_thousandths(buy_rate, 6) }
}

fn add_ten_thousandths(rate: &str, ten_thousandths: i64) -> String {
    format_units((parse_number(rate) * 10_000.0).round() as i64 + ten_thousandths, 4)
}

/// The real rows, plus generated rows on the candidate days in their gaps.
fn fill_gaps(
    real_rows: &SeriesRows,
    candidates: impl Iterator<Item = NaiveDate>,
    generate: impl Fn(NaiveDate) -> String,
) -> SeriesRows {
    let mut rows = real_rows.clone();
    rows.extend(candidates.filter(|date| is_in_gap(real_rows, *date)).map(|date| (date, generate(date))));
    rows
}

/// Adjacent rows at most this far apart have holidays between them, not a gap; no run of holidays was longer.
const MAX_HOLIDAY_GAP_DAYS: i64 = 10;

fn is_in_gap<V>(real_rows: &BTreeMap<NaiveDate, V>, date: NaiveDate) -> bool {
    let before = real_rows.range(..=date).next_back().map(|(date, _)| *date);
    let after = real_rows.range(date..).next().map(|(date, _)| *date);
    match (before, after) {
        (Some(before), Some(after)) => before != date && (after - before).num_days() > MAX_HOLIDAY_GAP_DAYS,
        _ => true,
    }
}

/// Interpolates with constant growth between two points; flat before the first and after the last.
fn interpolate(points: &[(NaiveDate, f64)], date: NaiveDate) -> f64 {
    let after = points.partition_point(|(point, _)| *point <= date);
    if after == 0 {
        return points[0].1;
    }

    let (from, from_value) = points[after - 1];
    let Some((to, to_value)) = points.get(after) else { return from_value };
    let fraction = (date - from).num_days() as f64 / (*to - from).num_days() as f64;
    from_value * (to_value / from_value).powf(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_but_holidays_are_not() {
        let real_rows = SeriesRows::from([(ymd(2024, 12, 31), "1".to_owned()), (ymd(2025, 6, 2), "2".to_owned())]);
        assert!(is_in_gap(&real_rows, ymd(2025, 1, 2)) && is_in_gap(&real_rows, ymd(2025, 6, 3)));
        assert!(!is_in_gap(&real_rows, ymd(2025, 6, 2)));
        let real_rows = SeriesRows::from([(ymd(2024, 2, 9), "1".to_owned()), (ymd(2024, 2, 14), "2".to_owned())]);
        assert!(!is_in_gap(&real_rows, ymd(2024, 2, 12)));
    }

    #[test]
    fn inflation_is_published_on_the_tenth_at_nine() {
        let published_month_at = |date: NaiveDate, hour| last_published_month(date.and_hms_opt(hour, 0, 0).unwrap());
        assert_eq!(published_month_at(ymd(2026, 11, 10), 8), ymd(2026, 9, 1));
        assert_eq!(published_month_at(ymd(2026, 11, 10), 9), ymd(2026, 10, 1));
        // October 10, 2026 is a Saturday, and October 12 a holiday.
        assert_eq!(published_month_at(ymd(2026, 10, 12), 23), ymd(2026, 8, 1));
        assert_eq!(published_month_at(ymd(2026, 10, 13), 9), ymd(2026, 9, 1));
    }

    #[test]
    fn the_target_moves_in_quarters_of_a_point_and_only_after_meetings() {
        let market = MarketData::new(None).unwrap();
        let target = market.rows(SELIC_TARGET).unwrap();
        let rows: Vec<_> = target.iter().collect();
        for pair in rows.windows(2) {
            let step = (parse_number(pair[1].1) - parse_number(pair[0].1)).abs();
            assert!(step == 0.0 || (step <= 0.75 && is_target_change_day(*pair[1].0)), "{pair:?}");
        }

        let today = ymd(2026, 11, 13);
        let published_until = market.last_published_day(SELIC_TARGET, today.and_hms_opt(23, 0, 0).unwrap());
        assert!(published_until > today && published_until <= today + Days::new(49), "{published_until}");
        assert!(is_target_change_day(published_until + Days::new(1)));
    }
}
