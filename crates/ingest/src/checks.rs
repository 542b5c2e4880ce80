//! Cross-checks: series that say the same in two ways are compared after each load, and the outcome is reported. Nothing
//! is corrected by them: what was published is what is served.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use vintem_domain::decimal::{annualised, compounded};
use vintem_domain::{Currency, Decimal};
use vintem_store::Store;
use vintem_store::sources::CrossCheck;

use crate::IngestError;

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
        ("cdi-from-daily", &series["cdi"], &annual(&series["cdi-daily"]), hundredth),
        ("selic-from-daily", &series["selic-effective"], &annual(&series["selic-daily"]), hundredth),
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

/// The rate of a year that each daily rate compounds to.
fn annual(daily: &Values) -> Values {
    let mut known = BTreeMap::new();
    let mut annual = |rate: Decimal| *known.entry(rate).or_insert_with(|| annualised(rate));
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
