//! Cross-checks: after a run that appended rows, compares series that publish the same facts in two ways. They correct
//! nothing: Vintém serves the data as published, and marks values that do not agree with others.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Days, Months, NaiveDate, Utc};
use vintem_domain::dates::{DateRange, month_start};
use vintem_domain::decimal::{annualize_daily_rate, compound_rates};
use vintem_domain::fx::BRL_START_DATE;
use vintem_domain::series::{find_series, published_series};
use vintem_domain::{Calendar, Currency, Decimal, ParityBasis, PublishedRates, Quote, Series};
use vintem_store::Store;
use vintem_store::sources::{CheckedValues, CrossCheck, CrossCheckFinding};

use crate::IngestError;

type ValuesByDate = BTreeMap<NaiveDate, Decimal>;

/// How much two values may differ.
#[derive(Debug, Clone, Copy)]
enum Tolerance {
    Absolute(Decimal),
    /// Of the expected value.
    Percent(Decimal),
}

/// Values that should be equal, or nearly so.
struct Comparison {
    id: String,
    /// What is disputed if they are not: both sides, if both are served with these dates.
    judged: Vec<CheckedValues>,
    actual: ValuesByDate,
    expected: ValuesByDate,
    tolerance: Tolerance,
}

/// Runs all comparisons that have data and stores the results.
pub async fn run_cross_checks(store: &Store, now: DateTime<Utc>) -> Result<Vec<CrossCheck>, IngestError> {
    let mut comparisons = compare_rates(store).await?;
    comparisons.extend(compare_exchange_rates(store).await?);

    let mut findings: Vec<CrossCheckFinding> = comparisons.iter().map(|comparison| comparison.run(now)).collect();
    for series in published_series() {
        let dates = store.observation_dates(series.id).await?;
        findings.extend(compare_with_calendar(series, &dates, now));
    }
    findings.retain(|finding| finding.check.compared_values > 0);
    store.save_cross_checks(&findings, now).await?;
    Ok(findings.into_iter().map(|finding| finding.check).collect())
}

/// Rates that follow from others.
async fn compare_rates(store: &Store) -> Result<Vec<Comparison>, IngestError> {
    let mut series = BTreeMap::new();
    for id in
        ["cdi", "cdi-daily", "cdi-month", "selic", "selic-effective", "selic-daily", "selic-month", "ipca", "ipca-12m"]
    {
        series.insert(id, load_series(store, id).await?);
    }
    // Both sides are rounded to two decimals, so the last digit may differ by one.
    let last_digit = Tolerance::Absolute(Decimal::new(1, 2));
    let compare = |id: &str, judged: &[&str], expected: ValuesByDate, tolerance| Comparison {
        id: id.to_owned(),
        judged: judged.iter().map(|id| CheckedValues::Series(find_series(id).expect("it is in the catalog"))).collect(),
        actual: series[judged[0]].clone(),
        expected,
        tolerance,
    };
    Ok(vec![
        compare("cdi-from-daily", &["cdi", "cdi-daily"], annualize_daily_rates(&series["cdi-daily"]), last_digit),
        compare(
            "selic-from-daily",
            &["selic-effective", "selic-daily"],
            annualize_daily_rates(&series["selic-daily"]),
            last_digit,
        ),
        compare("cdi-month-from-daily", &["cdi-month"], compound_months(&series["cdi-daily"]), last_digit),
        compare("selic-month-from-daily", &["selic-month"], compound_months(&series["selic-daily"]), last_digit),
        compare(
            "selic-near-target",
            &["selic-effective", "selic"],
            series["selic"].clone(),
            Tolerance::Absolute(Decimal::ONE),
        ),
        compare("ipca-12m-from-months", &["ipca-12m"], compound_twelve_months(&series["ipca"]), last_digit),
    ])
}

/// Closing rates against the same rates in SGS, and those of other currencies against the dollar and their parity.
async fn compare_exchange_rates(store: &Store) -> Result<Vec<Comparison>, IngestError> {
    let equal = Tolerance::Absolute(Decimal::ZERO);
    let mut comparisons = Vec::new();
    let dollar: BTreeMap<NaiveDate, PublishedRates> =
        store.current_closing_rates(Currency::Usd).await?.into_iter().collect();
    let (buys, sells) = split_quotes(dollar.iter().map(|(date, rates)| (*date, rates.quote)));
    for (id, actual, expected) in [("usd-buy", buys, "check-usd-buy"), ("usd-sell", sells, "check-usd-sell")] {
        let expected = load_series(store, expected).await?;
        let judged = vec![CheckedValues::ClosingRates(Currency::Usd)];
        comparisons.push(Comparison { id: id.to_owned(), judged, actual, expected, tolerance: equal });
    }

    for currency in Currency::ALL.into_iter().filter(|currency| *currency != Currency::Usd) {
        let closes = store.current_closing_rates(currency).await?;
        if currency == Currency::Eur {
            let (buys, sells) = split_quotes(closes.iter().map(|(date, rates)| (*date, rates.quote)));
            let published =
                [load_series(store, "check-eur-21619").await?, load_series(store, "check-eur-21620").await?];
            let [buy, sell] = assign_sides(&buys, published);
            for (id, actual, expected) in [("eur-buy", buys, buy), ("eur-sell", sells, sell)] {
                let judged = vec![CheckedValues::ClosingRates(currency)];
                comparisons.push(Comparison { id: id.to_owned(), judged, actual, expected, tolerance: equal });
            }
        }
        comparisons.push(compare_with_parity(currency, &closes, &dollar));
    }
    Ok(comparisons)
}

/// Of two series of which nobody can say for sure which holds the buy rates: first those that agree with them more often.
fn assign_sides(buys: &ValuesByDate, [first, second]: [ValuesByDate; 2]) -> [ValuesByDate; 2] {
    let agreements = |series: &ValuesByDate| buys.iter().filter(|(date, buy)| series.get(date) == Some(buy)).count();
    if agreements(&first) > agreements(&second) { [first, second] } else { [second, first] }
}

/// Middle rates in reais against those of the dollar and the parity. Each is rounded by itself, so they differ a little.
/// Before the real, rates had too few digits to compare.
fn compare_with_parity(
    currency: Currency,
    closes: &[(NaiveDate, PublishedRates)],
    dollar: &BTreeMap<NaiveDate, PublishedRates>,
) -> Comparison {
    let middle = |quote: Quote| (quote.buy + quote.sell) / Decimal::TWO;
    let of_parity = |date: &NaiveDate, rates: &PublishedRates| {
        let (parity, dollar) = (middle(rates.parity?), middle(dollar.get(date)?.quote));
        match currency.parity_basis() {
            ParityBasis::DollarsPerUnit => dollar.checked_mul(parity),
            ParityBasis::UnitsPerDollar => dollar.checked_div(parity),
        }
    };
    let in_reais = closes.iter().filter(|(date, _)| *date >= BRL_START_DATE);
    Comparison {
        id: format!("{}-from-parity", currency.code().to_lowercase()),
        judged: vec![CheckedValues::ClosingRates(currency), CheckedValues::Parities(currency)],
        actual: in_reais.clone().map(|(date, rates)| (*date, middle(rates.quote))).collect(),
        expected: in_reais.filter_map(|(date, rates)| Some((*date, of_parity(date, rates)?))).collect(),
        tolerance: Tolerance::Percent(Decimal::new(2, 1)),
    }
}

/// The values of the last year against the days that should have one. Older days are asked for again as gaps.
fn compare_with_calendar(
    series: &'static Series,
    dates: &[NaiveDate],
    now: DateTime<Utc>,
) -> Option<CrossCheckFinding> {
    let last = *dates.last()?;
    let first = (*dates.first()?).max(last - Days::new(365));
    let actual: BTreeSet<NaiveDate> = dates.iter().copied().filter(|date| *date >= first).collect();
    let expected: BTreeSet<NaiveDate> =
        series.frequency.expected_dates(DateRange { from: first, to: last }).into_iter().collect();
    let check = CrossCheck {
        compared_values: expected.union(&actual).count() as u64,
        differing_values: expected.symmetric_difference(&actual).count() as u64,
        worst_date: expected.symmetric_difference(&actual).max().copied(),
        ..CrossCheck::new(format!("calendar-{}", series.id), now)
    };
    let disputed_days = actual.difference(&expected).copied().collect();
    Some(CrossCheckFinding { check, judged: vec![CheckedValues::Series(series)], disputed_days })
}

async fn load_series(store: &Store, id: &str) -> Result<ValuesByDate, IngestError> {
    let rows = store.current_observations(id).await?;
    Ok(rows.into_iter().filter(|row| !row.is_provisional).map(|row| (row.date, row.value)).collect())
}

fn split_quotes(quotes: impl Iterator<Item = (NaiveDate, Quote)>) -> (ValuesByDate, ValuesByDate) {
    quotes.map(|(date, quote)| ((date, quote.buy), (date, quote.sell))).unzip()
}

/// What the daily rates of each month compound to, dated by its first day. A month with a missing day gives no value.
fn compound_months(daily: &ValuesByDate) -> ValuesByDate {
    let mut months: BTreeMap<NaiveDate, Vec<Decimal>> = BTreeMap::new();
    for (date, rate) in daily {
        months.entry(month_start(*date)).or_default().push(*rate);
    }
    let compound = |(month, rates): (NaiveDate, Vec<Decimal>)| {
        let business_days = Calendar::Settlement.count_business_days(month, month + Months::new(1));
        let is_complete = rates.len() == usize::try_from(business_days).ok()?;
        Some((month, compound_rates(rates.into_iter()).filter(|_| is_complete)?))
    };
    months.into_iter().filter_map(compound).collect()
}

/// The annual rate that each daily rate compounds to.
fn annualize_daily_rates(daily: &ValuesByDate) -> ValuesByDate {
    let mut annual_by_daily = BTreeMap::new();
    let mut annualize = |rate: Decimal| *annual_by_daily.entry(rate).or_insert_with(|| annualize_daily_rate(rate));
    daily.iter().filter_map(|(date, rate)| annualize(*rate).map(|annual| (*date, annual))).collect()
}

/// Compounds each window of twelve months, dated by its last month. A window with a missing month gives no value.
fn compound_twelve_months(monthly: &ValuesByDate) -> ValuesByDate {
    let months: Vec<(&NaiveDate, &Decimal)> = monthly.iter().collect();
    let compound_window = |window: &[(&NaiveDate, &Decimal)]| {
        let has_all_months = (*window[11].0 - *window[0].0).num_days() < 340;
        let change = compound_rates(window.iter().map(|(_, change)| **change)).filter(|_| has_all_months);
        change.map(|change| (*window[11].0, change))
    };
    months.windows(12).filter_map(compound_window).collect()
}

impl Comparison {
    fn run(&self, now: DateTime<Utc>) -> CrossCheckFinding {
        let mut check = CrossCheck::new(self.id.clone(), now);
        let mut disputed_days = Vec::new();
        for (date, value) in &self.actual {
            let Some(expected) = self.expected.get(date) else { continue };
            check.compared_values += 1;

            let difference = (*value - *expected).abs();
            if difference > check.largest_difference {
                check.largest_difference = difference;
                check.worst_date = Some(*date);
            }
            if !self.tolerance.allows(difference, *expected) {
                disputed_days.push(*date);
            }
        }
        check.differing_values = disputed_days.len() as u64;
        CrossCheckFinding { check, judged: self.judged.clone(), disputed_days }
    }
}

impl Tolerance {
    fn allows(self, difference: Decimal, expected: Decimal) -> bool {
        match self {
            Self::Absolute(most) => difference <= most,
            Self::Percent(percent) => {
                let most = expected.abs().checked_mul(percent).map(|product| product / Decimal::ONE_HUNDRED);
                most.is_some_and(|most| difference <= most)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_values(rows: &[(&str, &str)]) -> ValuesByDate {
        rows.iter().map(|(date, value)| (date.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn twelve_months_are_compounded_only_if_none_is_missing() {
        let month = |number: u32| NaiveDate::from_ymd_opt(2025, number, 1).unwrap();
        let mut months: ValuesByDate = (1..=12).map(|number| (month(number), Decimal::ONE)).collect();
        assert_eq!(
            compound_twelve_months(&months).into_iter().collect::<Vec<_>>(),
            [(month(12), "12.68".parse().unwrap())]
        );

        months.remove(&month(5));
        months.insert(NaiveDate::from_ymd_opt(2026, 1, 1).unwrap(), Decimal::ONE);
        assert!(compound_twelve_months(&months).is_empty());
    }

    #[test]
    fn differences_are_counted_and_the_worst_date_is_reported() {
        let actual = parse_values(&[("2026-01-02", "5.10"), ("2026-01-05", "5.20"), ("2026-01-06", "5.30")]);
        let expected = parse_values(&[("2026-01-02", "5.10"), ("2026-01-05", "5.25")]);

        let tolerance = Tolerance::Absolute(Decimal::ZERO);
        let judged = vec![CheckedValues::ClosingRates(Currency::Usd)];
        let comparison = Comparison { id: "usd".to_owned(), judged, actual, expected, tolerance };
        let CrossCheckFinding { check, disputed_days, .. } = comparison.run(Utc::now());
        assert_eq!(disputed_days, ["2026-01-05".parse().unwrap()]);
        assert_eq!((check.compared_values, check.differing_values), (2, 1));
        assert_eq!(
            (check.largest_difference.to_string().as_str(), check.worst_date),
            ("0.05", "2026-01-05".parse().ok())
        );
    }

    #[test]
    fn the_euro_series_that_agrees_with_the_buy_rates_is_taken_for_them() {
        let buys = parse_values(&[("2026-01-02", "6.10"), ("2026-01-05", "6.20")]);
        let sells = parse_values(&[("2026-01-02", "6.11"), ("2026-01-05", "6.21")]);
        assert_eq!(assign_sides(&buys, [sells.clone(), buys.clone()]), [buys.clone(), sells.clone()]);
        assert_eq!(assign_sides(&buys, [buys.clone(), sells.clone()]), [buys, sells]);
    }

    #[test]
    fn a_month_is_compounded_once_it_has_all_its_business_days() {
        let days = "2025-11-03".parse::<NaiveDate>().unwrap().iter_days().take(28);
        let mut november: ValuesByDate = days
            .filter(|day| Calendar::Settlement.is_business_day(*day))
            .map(|day| (day, "0.055131".parse().unwrap()))
            .collect();
        // 19 business days: the 20th is a holiday.
        assert_eq!(compound_months(&november), parse_values(&[("2025-11-01", "1.05")]));
        november.pop_last();
        assert!(compound_months(&november).is_empty());
    }

    #[test]
    fn a_missing_business_day_and_a_value_of_a_sunday_differ_from_the_calendar() {
        let cdi = find_series("cdi").unwrap();
        let dates = ["2026-11-12", "2026-11-15", "2026-11-16"].map(|day| day.parse().unwrap());
        let CrossCheckFinding { check, disputed_days, .. } = compare_with_calendar(cdi, &dates, Utc::now()).unwrap();
        assert_eq!(disputed_days, [dates[1]], "there is no value to mark on the day that has none");
        assert_eq!((check.compared_values, check.differing_values), (4, 2));
        assert_eq!((check.id.as_str(), check.worst_date), ("calendar-cdi", "2026-11-15".parse().ok()));
    }

    #[test]
    fn a_percentage_tolerates_in_proportion() {
        let decimal = |text: &str| text.parse::<Decimal>().unwrap();
        let tolerance = Tolerance::Percent(decimal("0.2"));
        assert!(tolerance.allows(decimal("0.01"), decimal("5")) && !tolerance.allows(decimal("0.011"), decimal("5")));
    }
}
