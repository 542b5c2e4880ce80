//! Cross-checks: series that say the same in two ways are compared after each load, and the outcome is reported. Nothing
//! is corrected by them: what was published is what is served.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use vintem_domain::decimal::{annualize_daily_rate, compound_rates};
use vintem_domain::{Currency, Decimal};
use vintem_store::Store;
use vintem_store::sources::CrossCheck;

use crate::IngestError;

type ValuesByDate = BTreeMap<NaiveDate, Decimal>;

/// Compares all that can be compared, and stores how it agrees.
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
        // Both sides are rounded to two decimals, so the last one may differ by one.
        ("cdi-from-daily", &series["cdi"], &annualize_daily_rates(&series["cdi-daily"]), hundredth),
        ("selic-from-daily", &series["selic-effective"], &annualize_daily_rates(&series["selic-daily"]), hundredth),
        ("ipca-12m-from-months", &series["ipca-12m"], &compound_twelve_months(&series["ipca"]), hundredth),
        ("usd-sell", &sells, &series["check-usd-sell"], Decimal::ZERO),
        ("usd-buy", &buys, &series["check-usd-buy"], Decimal::ZERO),
    ];
    let mut checks = Vec::new();
    for (id, one, other, tolerance) in pairs {
        let check = compare_series(id, one, other, tolerance, now);
        if check.compared_values > 0 {
            store.save_cross_check(&check).await?;
            checks.push(check);
        }
    }
    Ok(checks)
}

/// The rate of a year that each daily rate compounds to.
fn annualize_daily_rates(daily: &ValuesByDate) -> ValuesByDate {
    let mut known = BTreeMap::new();
    let mut annual = |rate: Decimal| *known.entry(rate).or_insert_with(|| annualize_daily_rate(rate));
    daily.iter().filter_map(|(date, rate)| annual(*rate).map(|annual| (*date, annual))).collect()
}

/// Twelve months chained, dated by the last, where all twelve are there.
fn compound_twelve_months(monthly: &ValuesByDate) -> ValuesByDate {
    let months: Vec<(&NaiveDate, &Decimal)> = monthly.iter().collect();
    let year = |window: &[(&NaiveDate, &Decimal)]| {
        let is_whole = (*window[11].0 - *window[0].0).num_days() < 340;
        let change = compound_rates(window.iter().map(|(_, change)| **change)).filter(|_| is_whole);
        change.map(|change| (*window[11].0, change))
    };
    months.windows(12).filter_map(year).collect()
}

fn compare_series(
    id: &str,
    one: &ValuesByDate,
    other: &ValuesByDate,
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
    for (date, value) in one {
        let Some(expected) = other.get(date) else { continue };
        check.compared_values += 1;
        let difference = (*value - *expected).abs();
        if difference > check.largest_difference {
            (check.largest_difference, check.worst_date) = (difference, Some(*date));
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
        let month = |at: u32| NaiveDate::from_ymd_opt(2025, at, 1).unwrap();
        let mut months: ValuesByDate = (1..=12).map(|at| (month(at), Decimal::ONE)).collect();
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
        let one = parse_values(&[("2026-01-02", "5.10"), ("2026-01-05", "5.20"), ("2026-01-06", "5.30")]);
        let other = parse_values(&[("2026-01-02", "5.10"), ("2026-01-05", "5.25")]);
        let check = compare_series("usd", &one, &other, Decimal::ZERO, Utc::now());
        assert_eq!((check.compared_values, check.differing_values), (2, 1));
        assert_eq!(
            (check.largest_difference.to_string().as_str(), check.worst_date),
            ("0.05", "2026-01-05".parse().ok())
        );
    }
}
