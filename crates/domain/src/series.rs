//! The table of series. Storage, endpoints and documentation of a series are derived from its entry here.

use chrono::{Datelike, Days, Months, NaiveDate};

use crate::Decimal;
use crate::calendar::Calendar;
use crate::dates::{DateRange, MAX_DATE, month_end, month_start};
use crate::decimal::compound_rates;
use crate::lang::LocalizedText;
use crate::unit::Unit;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Frequency {
    /// Every day of the calendar.
    Daily,
    /// Days on which banks are open.
    BusinessDaily,
    /// Dated the first day of the reference month.
    Monthly,
}

impl Frequency {
    pub const fn id(self) -> &'static str {
        match self {
            Self::Daily => "daily",
            Self::BusinessDaily => "business-daily",
            Self::Monthly => "monthly",
        }
    }

    /// The day on which the value after `newest` is expected.
    pub fn next_expected_on(self, newest: NaiveDate) -> NaiveDate {
        match self {
            Self::Daily => newest + Days::new(1),
            Self::BusinessDaily => Calendar::Settlement.add_business_days(newest, 1).unwrap_or(MAX_DATE),
            // The next month's value is published on about the tenth of the month after it.
            Self::Monthly => newest + Months::new(2) + Days::new(9),
        }
    }

    /// The day by which a value has certainly been published. It may be too late, but never too early.
    pub fn assumed_publication_date(self, date: NaiveDate) -> NaiveDate {
        match self {
            Self::Daily => date,
            Self::BusinessDaily => Calendar::Settlement.add_business_days(date, 1).unwrap_or(MAX_DATE),
            Self::Monthly => month_start(date) + Months::new(1) + Days::new(14),
        }
    }

    /// Whether a newer value is overdue.
    pub fn is_stale(self, newest: NaiveDate, today: NaiveDate) -> bool {
        match self {
            // New values appear on every business day; the slowest source lags by four business days.
            Self::Daily | Self::BusinessDaily => {
                Calendar::Settlement.count_business_days(newest + Days::new(1), today + Days::new(1)) > 4
            }
            // Published a month later, on about the tenth.
            Self::Monthly => (today - month_end(newest)).num_days() > 45,
        }
    }

    /// The days in a range that should have a value, in order.
    pub fn expected_dates(self, range: DateRange) -> Vec<NaiveDate> {
        let is_not_after_end = |day: &NaiveDate| *day <= range.to;
        match self {
            Self::Daily => range.from.iter_days().take_while(is_not_after_end).collect(),
            Self::BusinessDaily => Calendar::Settlement.business_days(range).collect(),
            Self::Monthly => {
                let months = (0..).map(|month| month_start(range.from) + Months::new(month));
                months.take_while(is_not_after_end).filter(|first| *first >= range.from).collect()
            }
        }
    }
}

#[derive(Debug)]
pub struct Series {
    pub id: &'static str,
    /// The code in the central bank's time-series system (SGS); `None` if we compute the series.
    pub sgs_code: Option<u32>,
    pub name: LocalizedText,
    pub unit: Unit,
    pub basis: LocalizedText,
    /// Says what the series is not, to prevent common mix-ups.
    pub is_not: LocalizedText,
    pub frequency: Frequency,
    /// The first known date. Ingestion also looks for earlier values.
    pub starts_on: NaiveDate,
    pub decimals: u32,
    /// The lowest and the highest plausible value, hyperinflation included. Anything outside is an error.
    pub plausible_range: (i64, i64),
    pub accumulation: Accumulation,
    /// The daily series from which we compute missing values of this series.
    pub gap_fill_series: Option<&'static str>,
    /// How we compute the series, if the central bank does not publish it.
    pub formula: Option<Formula>,
}

/// The rates that are multiplied when a series is accumulated over a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accumulation {
    /// Its own values: each is the rate of one day or month.
    OwnValues,
    /// The daily rates behind its annual rates, as the id of their series.
    DailyTwin(&'static str),
    /// None: each value already covers several months, or is not a rate. `instead` is the series to accumulate.
    Refused { instead: &'static str },
}

/// How a series is computed from others.
#[derive(Debug)]
pub struct Formula {
    pub description: LocalizedText,
    /// The ids of the input series.
    pub inputs: &'static [&'static str],
    /// Takes the values of each input, oldest first.
    pub compute: fn(&[Vec<DatedValue>]) -> Vec<DatedValue>,
}

/// A date and its value.
pub type DatedValue = (NaiveDate, Decimal);

/// Compares ids, because the tables hold each series once.
impl PartialEq for Series {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Series {}

impl std::hash::Hash for Series {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

const fn day(year: i32, month: u32, day: u32) -> NaiveDate {
    NaiveDate::from_ymd_opt(year, month, day).expect("a day of the calendar")
}

pub static PUBLISHED_SERIES: [Series; 7] = [
    Series {
        id: "selic",
        sgs_code: Some(432),
        name: LocalizedText::new("Selic target set by Copom", "Meta Selic definida pelo Copom"),
        unit: Unit::PercentPerYear,
        basis: LocalizedText::new("annual rate, 252 business days", "taxa anual, 252 dias úteis"),
        is_not: LocalizedText::new(
            "not the effective rate of the day's trades (`selic-effective`), and not the yield of a government bond",
            "não é a taxa efetiva dos negócios do dia (`selic-effective`) nem a taxa de um título público",
        ),
        frequency: Frequency::Daily,
        starts_on: day(1999, 3, 5),
        decimals: 2,
        plausible_range: (0, 100),
        accumulation: Accumulation::DailyTwin("selic-daily"),
        gap_fill_series: None,
        formula: None,
    },
    Series {
        id: "cdi",
        sgs_code: Some(4389),
        name: LocalizedText::new("CDI, annualized", "CDI, anualizado"),
        unit: Unit::PercentPerYear,
        basis: LocalizedText::new("annual rate, 252 business days", "taxa anual, 252 dias úteis"),
        is_not: LocalizedText::new(
            "not the rate of a CDB, which pays a percentage of the CDI",
            "não é a taxa de um CDB, que paga um percentual do CDI",
        ),
        frequency: Frequency::BusinessDaily,
        starts_on: day(1986, 3, 6),
        decimals: 2,
        plausible_range: (0, 100_000_000),
        accumulation: Accumulation::DailyTwin("cdi-daily"),
        gap_fill_series: Some("cdi-daily"),
        formula: None,
    },
    Series {
        id: "ipca",
        sgs_code: Some(433),
        name: LocalizedText::new("IPCA, monthly change", "IPCA, variação mensal"),
        unit: Unit::PercentPerMonth,
        basis: LocalizedText::new("change from the previous month", "variação em relação ao mês anterior"),
        is_not: LocalizedText::new(
            "not the index level, and not the 12-month change (`ipca-12m`)",
            "não é o número-índice nem a variação em 12 meses (`ipca-12m`)",
        ),
        frequency: Frequency::Monthly,
        starts_on: day(1980, 1, 1),
        decimals: 2,
        plausible_range: (-5, 100),
        accumulation: Accumulation::OwnValues,
        gap_fill_series: None,
        formula: None,
    },
    Series {
        id: "selic-effective",
        sgs_code: Some(1178),
        name: LocalizedText::new("Effective Selic, annualized", "Selic efetiva, anualizada"),
        unit: Unit::PercentPerYear,
        basis: LocalizedText::new("annual rate, 252 business days", "taxa anual, 252 dias úteis"),
        is_not: LocalizedText::new("not the Copom target (`selic`)", "não é a meta do Copom (`selic`)"),
        frequency: Frequency::BusinessDaily,
        starts_on: day(1986, 6, 4),
        decimals: 2,
        plausible_range: (0, 100_000_000),
        accumulation: Accumulation::DailyTwin("selic-daily"),
        gap_fill_series: None,
        formula: None,
    },
    Series {
        id: "selic-daily",
        sgs_code: Some(11),
        name: LocalizedText::new("Effective Selic, daily rate", "Selic efetiva, taxa diária"),
        unit: Unit::PercentPerDay,
        basis: LocalizedText::new("rate for one business day", "taxa de um dia útil"),
        is_not: LocalizedText::new(
            "not an annual rate: compound it over business days",
            "não é uma taxa anual: capitalize-a pelos dias úteis",
        ),
        frequency: Frequency::BusinessDaily,
        starts_on: day(1986, 6, 4),
        decimals: 6,
        plausible_range: (0, 10),
        accumulation: Accumulation::OwnValues,
        gap_fill_series: None,
        formula: None,
    },
    Series {
        id: "cdi-daily",
        sgs_code: Some(12),
        name: LocalizedText::new("CDI, daily rate", "CDI, taxa diária"),
        unit: Unit::PercentPerDay,
        basis: LocalizedText::new("rate for one business day", "taxa de um dia útil"),
        is_not: LocalizedText::new(
            "not an annual rate: compound it over business days",
            "não é uma taxa anual: capitalize-a pelos dias úteis",
        ),
        frequency: Frequency::BusinessDaily,
        starts_on: day(1986, 3, 6),
        decimals: 6,
        plausible_range: (0, 10),
        accumulation: Accumulation::OwnValues,
        gap_fill_series: None,
        formula: None,
    },
    Series {
        id: "ipca-12m",
        sgs_code: Some(13522),
        name: LocalizedText::new("IPCA, 12-month change", "IPCA, variação em 12 meses"),
        unit: Unit::PercentInTwelveMonths,
        basis: LocalizedText::new(
            "change from the same month a year earlier",
            "variação em relação ao mesmo mês do ano anterior",
        ),
        is_not: LocalizedText::new("not the monthly change (`ipca`)", "não é a variação mensal (`ipca`)"),
        frequency: Frequency::Monthly,
        starts_on: day(1980, 12, 1),
        decimals: 2,
        plausible_range: (-10, 100_000),
        accumulation: Accumulation::Refused { instead: "ipca" },
        gap_fill_series: None,
        formula: None,
    },
];

/// Series that we compute from the published ones. They are served like the others, but never stored.
pub static DERIVED_SERIES: [Series; 2] = [
    Series {
        id: "ipca-ytd",
        sgs_code: None,
        name: LocalizedText::new("IPCA, year-to-date change", "IPCA, variação acumulada no ano"),
        unit: Unit::PercentSinceJanuary,
        basis: LocalizedText::new(
            "change from December of the previous year",
            "variação em relação a dezembro do ano anterior",
        ),
        is_not: LocalizedText::new("not the 12-month change (`ipca-12m`)", "não é a variação em 12 meses (`ipca-12m`)"),
        frequency: Frequency::Monthly,
        starts_on: day(1980, 1, 1),
        decimals: 2,
        plausible_range: (-10, 100_000),
        accumulation: Accumulation::Refused { instead: "ipca" },
        gap_fill_series: None,
        formula: Some(Formula {
            description: LocalizedText::new(
                "product of (1 + ipca/100) from January through the reference month, minus 1, in percent",
                "produto de (1 + ipca/100) de janeiro até o mês de referência, menos 1, em percentual",
            ),
            inputs: &["ipca"],
            compute: compute_year_to_date,
        }),
    },
    Series {
        id: "real-selic",
        sgs_code: None,
        name: LocalizedText::new(
            "Real Selic: target deflated by 12-month IPCA",
            "Selic real: meta deflacionada pelo IPCA de 12 meses",
        ),
        unit: Unit::PercentPerYear,
        basis: LocalizedText::new(
            "month-end target, deflated by the 12-month IPCA of the same month",
            "meta no fim do mês, deflacionada pelo IPCA dos 12 meses até esse mês",
        ),
        is_not: LocalizedText::new(
            "not an expectation: it uses past inflation, while the market's real rate uses expected inflation",
            "não é uma expectativa: usa a inflação passada, enquanto o juro real do mercado usa a inflação esperada",
        ),
        frequency: Frequency::Monthly,
        starts_on: day(1999, 3, 1),
        decimals: 2,
        plausible_range: (-100, 100),
        accumulation: Accumulation::Refused { instead: "selic-daily" },
        gap_fill_series: None,
        formula: Some(Formula {
            description: LocalizedText::new(
                "(1 + selic/100) / (1 + ipca-12m/100) − 1, in percent",
                "(1 + selic/100) / (1 + ipca-12m/100) − 1, em percentual",
            ),
            inputs: &["selic", "ipca-12m"],
            compute: compute_real_rate,
        }),
    },
];

/// Series that are stored only to cross-check others and are never served.
pub static CROSS_CHECK_SERIES: [Series; 2] = [
    Series {
        id: "check-usd-sell",
        sgs_code: Some(1),
        name: LocalizedText::new("Dollar, PTAX sell, for comparison", "Dólar, PTAX venda, para comparação"),
        unit: Unit::BrlPerUsd,
        basis: LocalizedText::new("closing bulletin", "boletim de fechamento"),
        is_not: LocalizedText::new("not served", "não é oferecida na API"),
        frequency: Frequency::BusinessDaily,
        starts_on: day(1984, 11, 28),
        decimals: 4,
        plausible_range: (0, 1_000_000),
        accumulation: Accumulation::Refused { instead: "usd-brl" },
        gap_fill_series: None,
        formula: None,
    },
    Series {
        id: "check-usd-buy",
        sgs_code: Some(10813),
        name: LocalizedText::new("Dollar, PTAX buy, for comparison", "Dólar, PTAX compra, para comparação"),
        unit: Unit::BrlPerUsd,
        basis: LocalizedText::new("closing bulletin", "boletim de fechamento"),
        is_not: LocalizedText::new("not served", "não é oferecida na API"),
        frequency: Frequency::BusinessDaily,
        starts_on: day(1984, 11, 28),
        decimals: 4,
        plausible_range: (0, 1_000_000),
        accumulation: Accumulation::Refused { instead: "usd-brl" },
        gap_fill_series: None,
        formula: None,
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

/// All served series, with derived ones last.
pub fn served_series() -> impl Iterator<Item = &'static Series> {
    PUBLISHED_SERIES.iter().chain(&DERIVED_SERIES)
}

pub fn find_series(id: &str) -> Option<&'static Series> {
    served_series().find(|series| series.id == id)
}

impl Series {
    /// The published series that its values come from: itself, or the inputs of its formula.
    pub fn source_series(&self) -> Vec<&'static Series> {
        let own_id = [self.id];
        let inputs = self.formula.as_ref().map_or(&own_id[..], |formula| formula.inputs);
        inputs.iter().copied().filter_map(find_series).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_is_published_or_computed_from_published_ones() {
        for series in served_series() {
            assert_eq!(series.sgs_code.is_none(), series.formula.is_some(), "{}", series.id);
            assert!(series.source_series().iter().all(|input| input.sgs_code.is_some()), "{}", series.id);
            if let Accumulation::DailyTwin(id) | Accumulation::Refused { instead: id } = series.accumulation {
                let accumulated = find_series(id).expect("a series");
                assert_eq!(accumulated.accumulation, Accumulation::OwnValues, "{}", series.id);
            }
        }
    }

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

    #[test]
    fn each_frequency_expects_its_own_dates() {
        let days = |frequency: Frequency| {
            let range = DateRange { from: day(2024, 2, 9), to: day(2024, 4, 1) };
            let expected = frequency.expected_dates(range);
            (expected.len(), expected.first().copied(), expected.last().copied())
        };
        assert_eq!(days(Frequency::Daily), (53, Some(day(2024, 2, 9)), Some(day(2024, 4, 1))));
        assert_eq!(days(Frequency::BusinessDaily), (34, Some(day(2024, 2, 9)), Some(day(2024, 4, 1))));
        assert_eq!(days(Frequency::Monthly), (2, Some(day(2024, 3, 1)), Some(day(2024, 4, 1))));
    }
}
