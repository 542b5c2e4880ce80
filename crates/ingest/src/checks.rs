//! Cross-checks: series that say the same in two ways are compared after each load, and the outcome is reported. Nothing
//! is corrected by them: what was published is what is served.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use vintem_domain::{Currency, Decimal};
use vintem_store::Store;
use vintem_store::sources::CrossCheck;

use crate::IngestError;

/// Business days of a year, as the central bank counts them.
const YEAR_DAYS: u32 = 252;

type Values = BTreeMap<NaiveDate, Decimal>;

/// Compares all that can be compared, and stores how it agrees.
pub async fn cross_check(store: &Store, now: DateTime<Utc>) -> Result<Vec<CrossCheck>, IngestError> {
    let mut series = BTreeMap::new();
    for id in
        ["cdi", "cdi-daily", "selic-effective", "selic-daily", "ipca", "ipca-12m", "check-usd-sell", "check-usd-buy"]
    {
        let values: Values = store.current_values(id).await?.into_iter().map(|row| (row.date, row.value)).collect();
        series.insert(id, values);
    }
    let closes = store.current_closes(Currency::Usd).await?;
    let buys: Values = closes.iter().map(|(date, buy, _)| (*date, *buy)).collect();
    let sells: Values = closes.iter().map(|(date, _, sell)| (*date, *sell)).collect();

    let hundredth = Decimal::new(1, 2);
    let pairs = [
        // Both sides are rounded to two decimals, so the last one may differ by one.
        ("cdi-from-daily", &series["cdi"], &annualised(&series["cdi-daily"]), hundredth),
        ("selic-from-daily", &series["selic-effective"], &annualised(&series["selic-daily"]), hundredth),
        ("ipca-12m-from-months", &series["ipca-12m"], &chained(&series["ipca"]), hundredth),
        ("usd-sell", &sells, &series["check-usd-sell"], Decimal::ZERO),
        ("usd-buy", &buys, &series["check-usd-buy"], Decimal::ZERO),
    ];
    let mut checks = Vec::new();
    for (id, one, other, tolerance) in pairs {
        let check = compare(id, one, other, tolerance, now);
        if check.compared > 0 {
            store.save_cross_check(&check).await?;
            checks.push(check);
        }
    }
    Ok(checks)
}

/// The rate of a year that each daily rate compounds to, in percent with two decimals.
fn annualised(daily: &Values) -> Values {
    let mut known = BTreeMap::new();
    let mut annual =
        |rate: Decimal| *known.entry(rate).or_insert_with(|| compounded(std::iter::repeat_n(rate, YEAR_DAYS as usize)));
    daily.iter().filter_map(|(date, rate)| annual(*rate).map(|annual| (*date, annual))).collect()
}

/// Twelve months chained, dated by the last, where all twelve are there.
fn chained(monthly: &Values) -> Values {
    let months: Vec<(&NaiveDate, &Decimal)> = monthly.iter().collect();
    let year = |window: &[(&NaiveDate, &Decimal)]| {
        let is_whole = (*window[11].0 - *window[0].0).num_days() < 340;
        let change = compounded(window.iter().map(|(_, change)| **change)).filter(|_| is_whole);
        change.map(|change| (*window[11].0, change))
    };
    months.windows(12).filter_map(year).collect()
}

/// Percentages one after the other, in percent with two decimals; nothing where it grows beyond all numbers.
fn compounded(mut rates: impl Iterator<Item = Decimal>) -> Option<Decimal> {
    let product = rates.try_fold(Decimal::ONE, |product, rate| {
        let factor = Decimal::ONE.checked_add(rate.checked_div(Decimal::ONE_HUNDRED)?)?;
        // More digits than these change nothing in the second decimal, and would not fit.
        Some(product.checked_mul(factor)?.round_dp(18))
    })?;
    Some(((product - Decimal::ONE) * Decimal::ONE_HUNDRED).round_dp(2))
}

fn compare(id: &str, one: &Values, other: &Values, tolerance: Decimal, now: DateTime<Utc>) -> CrossCheck {
    let mut check = CrossCheck {
        id: id.to_owned(),
        checked_at: now,
        compared: 0,
        differing: 0,
        largest_difference: Decimal::ZERO,
        worst_date: None,
    };
    for (date, value) in one {
        let Some(expected) = other.get(date) else { continue };
        check.compared += 1;
        let difference = (*value - *expected).abs();
        if difference > check.largest_difference {
            (check.largest_difference, check.worst_date) = (difference, Some(*date));
        }
        check.differing += u64::from(difference > tolerance);
    }
    check
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(rows: &[(&str, &str)]) -> Values {
        rows.iter().map(|(date, value)| (date.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn daily_rates_compound_to_the_published_annual_ones() {
        let daily = values(&[
            ("2026-10-01", "0.050788"),
            ("2026-10-02", "0.052531"),
            ("2026-10-05", "0.053400"),
            ("2026-10-06", "0.055131"),
        ]);
        let annual: Vec<String> = annualised(&daily).values().map(Decimal::to_string).collect();
        assert_eq!(annual, ["13.65", "14.15", "14.40", "14.90"]);
        assert_eq!(annualised(&values(&[("1990-02-19", "3.626")])).len(), 1, "hyperinflation fits");
    }

    #[test]
    fn twelve_months_are_chained_only_where_all_are_there() {
        let month = |at: u32| NaiveDate::from_ymd_opt(2025, at, 1).unwrap();
        let mut months: Values = (1..=12).map(|at| (month(at), Decimal::ONE)).collect();
        assert_eq!(chained(&months).into_iter().collect::<Vec<_>>(), [(month(12), "12.68".parse().unwrap())]);
        months.remove(&month(5));
        months.insert(NaiveDate::from_ymd_opt(2026, 1, 1).unwrap(), Decimal::ONE);
        assert!(chained(&months).is_empty());
    }

    #[test]
    fn what_differs_is_counted_and_the_worst_is_named() {
        let one = values(&[("2026-01-02", "5.10"), ("2026-01-05", "5.20"), ("2026-01-06", "5.30")]);
        let other = values(&[("2026-01-02", "5.10"), ("2026-01-05", "5.25")]);
        let check = compare("usd", &one, &other, Decimal::ZERO, Utc::now());
        assert_eq!((check.compared, check.differing), (2, 1));
        assert_eq!(
            (check.largest_difference.to_string().as_str(), check.worst_date),
            ("0.05", "2026-01-05".parse().ok())
        );
    }
}
