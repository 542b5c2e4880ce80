//! Series that we compute from published ones.

use chrono::{Datelike, NaiveDate};

use super::base::{day, text};
use super::{
    Accumulation, DatedValue, Formula, Frequency, License, MonthlyRelease, PlausibleRange, Publisher, Release, Series,
    SeriesGroup, Shape,
};
use crate::Decimal;
use crate::dates::month_end;
use crate::decimal::compound_rates;
use crate::unit::Unit;

/// Published on the day of the IPCA, which both need.
const COMPUTED: Series = Series {
    id: "",
    sgs_code: None,
    name: text("", ""),
    group: SeriesGroup::InflationDetails,
    tags: &[],
    unit: Unit::PercentPerYear,
    basis: text("", ""),
    is_not: text("", ""),
    publisher: Publisher::Vintem,
    license: License::OfInputs,
    evidence: &[],
    frequency: Frequency::Monthly,
    release: Release::Monthly(MonthlyRelease { months_after: 1, day: 10, time: (9, 0), grace_days: 5 }),
    shape: Shape::Value,
    starts_on: NaiveDate::MIN,
    decimals: 2,
    plausible: PlausibleRange { min: -100, max: 100_000, may_jump: true, reason: "follows from the inputs" },
    accumulation: Accumulation::Refused { instead: None },
    gap_fill_series: None,
    formula: None,
};

pub static DERIVED_SERIES: [Series; 2] = [
    Series {
        id: "ipca-ytd",
        name: text("IPCA, year-to-date change", "IPCA, variação acumulada no ano"),
        tags: &["inflation", "inflação", "acumulado"],
        unit: Unit::PercentSinceJanuary,
        basis: text("change from December of the previous year", "variação em relação a dezembro do ano anterior"),
        is_not: text("not the 12-month change (`ipca-12m`)", "não é a variação em 12 meses (`ipca-12m`)"),
        starts_on: day(1980, 1, 1),
        accumulation: Accumulation::Refused { instead: Some("ipca") },
        formula: Some(Formula {
            description: text(
                "product of (1 + ipca/100) from January through the reference month, minus 1, in percent",
                "produto de (1 + ipca/100) de janeiro até o mês de referência, menos 1, em percentual",
            ),
            inputs: &["ipca"],
            compute: compute_year_to_date,
        }),
        ..COMPUTED
    },
    Series {
        id: "real-selic",
        name: text(
            "Real Selic: target deflated by 12-month IPCA",
            "Selic real: meta deflacionada pelo IPCA de 12 meses",
        ),
        group: SeriesGroup::Interest,
        tags: &["real interest rate", "juro real"],
        basis: text(
            "month-end target, deflated by the 12-month IPCA of the same month",
            "meta no fim do mês, deflacionada pelo IPCA dos 12 meses até esse mês",
        ),
        is_not: text(
            "not an expectation: it uses past inflation, while the market's real rate uses expected inflation",
            "não é uma expectativa: usa a inflação passada, enquanto o juro real do mercado usa a inflação esperada",
        ),
        starts_on: day(1999, 3, 1),
        accumulation: Accumulation::Refused { instead: Some("selic-daily") },
        formula: Some(Formula {
            description: text(
                "(1 + selic/100) / (1 + ipca-12m/100) − 1, in percent",
                "(1 + selic/100) / (1 + ipca-12m/100) − 1, em percentual",
            ),
            inputs: &["selic", "ipca-12m"],
            compute: compute_real_rate,
        }),
        ..COMPUTED
    },
];

/// Compounds the monthly changes of each year, from January to each month. A missing month leaves the rest of its year
/// without values.
fn compute_year_to_date(inputs: &[Vec<DatedValue>]) -> Vec<DatedValue> {
    let [monthly] = inputs else { return Vec::new() };
    let mut values = Vec::new();
    for year in monthly.chunk_by(|(month, _), (next, _)| month.year() == next.year()) {
        let months = year.iter().map(|(month, _)| *month).enumerate();
        for (index, month) in months.take_while(|(index, month)| month.month0() as usize == *index) {
            let rates = year[..=index].iter().map(|(_, rate)| *rate);
            values.extend(compound_rates(rates).map(|value| (month, value)));
        }
    }
    values
}

/// Deflates the annual rate at the end of each month by the inflation of the last twelve months.
fn compute_real_rate(inputs: &[Vec<DatedValue>]) -> Vec<DatedValue> {
    let [rates, inflation] = inputs else { return Vec::new() };
    let real_rate = |(month, inflation): &DatedValue| -> Option<DatedValue> {
        let index = rates.partition_point(|(day, _)| *day <= month_end(*month)).checked_sub(1)?;
        let hundred = Decimal::ONE_HUNDRED;
        let ratio = (hundred + rates[index].1).checked_div(hundred + inflation)?;
        let mut percent = ((ratio - Decimal::ONE) * hundred).round_dp(2);
        percent.rescale(2);
        Some((*month, percent))
    };
    inflation.iter().filter_map(real_rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_dated_values(rows: &[(NaiveDate, &str)]) -> Vec<DatedValue> {
        rows.iter().map(|(day, value)| (*day, value.parse().unwrap())).collect()
    }

    #[test]
    fn year_to_date_starts_in_january_and_stops_at_a_gap() {
        let ipca = [
            (day(2023, 12, 1), "0.56"),
            (day(2024, 1, 1), "0.42"),
            (day(2024, 2, 1), "0.83"),
            (day(2024, 4, 1), "0.38"),
            (day(2025, 1, 1), "0.16"),
        ];
        let expected = [(day(2024, 1, 1), "0.42"), (day(2024, 2, 1), "1.25"), (day(2025, 1, 1), "0.16")];
        assert_eq!(compute_year_to_date(&[parse_dated_values(&ipca)]), parse_dated_values(&expected));
    }

    #[test]
    fn the_real_rate_is_the_month_end_rate_deflated_by_inflation() {
        let selic =
            parse_dated_values(&[(day(2024, 3, 1), "11.25"), (day(2024, 3, 21), "10.75"), (day(2024, 4, 1), "10.75")]);
        let inflation =
            parse_dated_values(&[(day(2024, 2, 1), "4.50"), (day(2024, 3, 1), "3.93"), (day(2024, 5, 1), "3.93")]);
        let expected = [(day(2024, 3, 1), "6.56"), (day(2024, 5, 1), "6.56")];
        assert_eq!(compute_real_rate(&[selic, inflation]), parse_dated_values(&expected));
    }
}
