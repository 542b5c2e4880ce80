//! Cross-checks: after a run that appended rows, compares series that publish the same facts in two ways and reports
//! the result. They correct nothing: Vintém serves the data as published.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use vintem_domain::decimal::{annualize_daily_rate, compound_rates};
use vintem_domain::{Currency, Decimal};
use vintem_store::Store;
use vintem_store::sources::CrossCheck;

use crate::IngestError;

type ValuesByDate = BTreeMap<NaiveDate, Decimal>;

/// Runs all comparisons that have data and stores the results.
pub async fn run_cross_checks(store: &Store, now: DateTime<Utc>) -> Result<Vec<CrossCheck>, IngestError> {
    let mut series = BTreeMap::new();
    for id in
        ["cdi", "cdi-daily", "selic-effective", "selic-daily", "ipca", "ipca-12m", "check-usd-sell", "check-usd-buy"]
    {
        let values: ValuesByDate =
            store.current_observations(id).await?.into_iter().map(|row| (row.date, row.value)).collect();
        series.insert(id, values);
    }

    let closes = store.current_closing_rates(Currency::Usd).await?;
    let buys: ValuesByDate = closes.iter().map(|(date, buy, _)| (*date, *buy)).collect();
    let sells: ValuesByDate = closes.iter().map(|(date, _, sell)| (*date, *sell)).collect();

    let hundredth = Decimal::new(1, 2);
    let pairs = [
        // Both sides are rounded to two decimals, so the last digit may differ by one.
        ("cdi-from-daily", &series["cdi"], &annualize_daily_rates(&series["cdi-daily"]), hundredth),
        ("selic-from-daily", &series["selic-effective"], &annualize_daily_rates(&series["selic-daily"]), hundredth),
        ("ipca-12m-from-months", &series["ipca-12m"], &compound_twelve_months(&series["ipca"]), hundredth),
        ("usd-sell", &sells, &series["check-usd-sell"], Decimal::ZERO),
        ("usd-buy", &buys, &series["check-usd-buy"], Decimal::ZERO),
    ];

    let mut checks = Vec::new();
    for (id, actual, expected, tolerance) in pairs {
        let check = compare_series(id, actual, expected, tolerance, now);
        if check.compared_values > 0 {
            store.save_cross_check(&check).await?;
            checks.push(check);
        }
    }
    Ok(checks)
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

fn compare_series(
    id: &str,
    actual: &ValuesByDate,
    expected: &ValuesByDate,
    tolerance: Decimal,
    now: DateTime<Utc>,
) -> CrossCheck {
    let mut check = CrossCheck {
        id: id.to_owned(),
        checked_at: now,
        compared_values: 0,
        differing_values: 0,
        largest_difference: Decimal::ZERO,
        worst_date: None,
    };

    for (date, value) in actual {
        let Some(expected_value) = expected.get(date) else { continue };
        check.compared_values += 1;

        let difference = (*value - *expected_value).abs();
        if difference > check.largest_difference {
            check.largest_difference = difference;
            check.worst_date = Some(*date);
        }
        check.differing_values += u64::from(difference > tolerance);
    }

    check
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

        let check = compare_series("usd", &actual, &expected, Decimal::ZERO, Utc::now());
        assert_eq!((check.compared_values, check.differing_values), (2, 1));
        assert_eq!(
            (check.largest_difference.to_string().as_str(), check.worst_date),
            ("0.05", "2026-01-05".parse().ok())
        );
    }
}
