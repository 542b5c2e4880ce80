//! The series that we carry: one entry each, from which storage, endpoints and descriptions follow.

use chrono::{Datelike, Days, Months, NaiveDate};

use crate::Decimal;
use crate::calendar::Calendar;
use crate::dates::{DateRange, LAST_DAY, month_end, month_start};
use crate::decimal::compounded;
use crate::lang::Text;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Frequency {
    /// Every day of the calendar.
    Daily,
    /// Days on which banks settle.
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

    /// The day on which what follows `newest` is published.
    pub fn next_expected_on(self, newest: NaiveDate) -> NaiveDate {
        match self {
            Self::Daily => newest + Days::new(1),
            Self::BusinessDaily => Calendar::Settlement.add(newest, 1).unwrap_or(LAST_DAY),
            // The month after `newest`, on about the tenth of the month after that.
            Self::Monthly => newest + Months::new(2) + Days::new(9),
        }
    }

    /// The day by which a value is surely published: rather a day late than one early.
    pub fn published_on(self, date: NaiveDate) -> NaiveDate {
        match self {
            Self::Daily => date,
            Self::BusinessDaily => Calendar::Settlement.add(date, 1).unwrap_or(LAST_DAY),
            Self::Monthly => month_start(date) + Months::new(1) + Days::new(14),
        }
    }

    /// Whether a newer value is overdue.
    pub fn is_stale(self, newest: NaiveDate, today: NaiveDate) -> bool {
        match self {
            // Published for every business day, or renewed on one; four bridge what a publisher takes at worst.
            Self::Daily | Self::BusinessDaily => {
                Calendar::Settlement.count(newest + Days::new(1), today + Days::new(1)) > 4
            }
            // Published with a month's delay, on about the tenth.
            Self::Monthly => (today - month_end(newest)).num_days() > 45,
        }
    }

    /// The days within a range that have a value, in order.
    pub fn expected_days(self, days: DateRange) -> Vec<NaiveDate> {
        let within = |day: &NaiveDate| *day <= days.to;
        match self {
            Self::Daily => days.from.iter_days().take_while(within).collect(),
            Self::BusinessDaily => Calendar::Settlement.days(days).collect(),
            Self::Monthly => {
                let months = (0..).map(|month| month_start(days.from) + Months::new(month));
                months.take_while(within).filter(|first| *first >= days.from).collect()
            }
        }
    }
}

#[derive(Debug)]
pub struct Series {
    pub id: &'static str,
    /// The code in the central bank's time-series system (SGS); none where we compute it.
    pub code: Option<u32>,
    pub name: Text,
    pub unit: Text,
    pub basis: Text,
    /// What it is taken for and is not.
    pub is_not: Text,
    pub frequency: Frequency,
    /// Its first day, as far as we know; what lies before is looked for too.
    pub starts: NaiveDate,
    pub decimals: u32,
    /// The lowest and the highest value that it can have had, hyperinflation included. Beyond is a mistake.
    pub plausible: (i64, i64),
    /// The series of daily rates from which a day that this one lacks is computed.
    pub derived_from: Option<&'static str>,
    /// By what it is computed, where none of it is published.
    pub formula: Option<Formula>,
}

/// How a series follows from others.
#[derive(Debug)]
pub struct Formula {
    pub text: Text,
    /// The series that it is computed from.
    pub inputs: &'static [&'static str],
    /// From the values of each of them, oldest first.
    pub compute: fn(&[Vec<Dated>]) -> Vec<Dated>,
}

/// A value and its day.
pub type Dated = (NaiveDate, Decimal);

/// By identity: the table holds each series once.
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

pub static SERIES: [Series; 7] = [
    Series {
        id: "selic",
        code: Some(432),
        name: Text::new("Selic target set by Copom", "Meta Selic definida pelo Copom"),
        unit: Text::new("% p.a.", "% a.a."),
        basis: Text::new("annual rate, 252 business days", "taxa anual, 252 dias úteis"),
        is_not: Text::new(
            "not what a day of trading came to, which is `selic-effective`; not the rate of a public bond",
            "não é o que os negócios do dia renderam, que é `selic-effective`; não é a taxa de um título público",
        ),
        frequency: Frequency::Daily,
        starts: day(1999, 3, 5),
        decimals: 2,
        plausible: (0, 100),
        derived_from: None,
        formula: None,
    },
    Series {
        id: "cdi",
        code: Some(4389),
        name: Text::new("CDI, annualised", "CDI, anualizado"),
        unit: Text::new("% p.a.", "% a.a."),
        basis: Text::new("annual rate, 252 business days", "taxa anual, 252 dias úteis"),
        is_not: Text::new(
            "not the rate of a CDB, which is a percentage of it",
            "não é a taxa de um CDB, que é um percentual dela",
        ),
        frequency: Frequency::BusinessDaily,
        starts: day(1986, 3, 6),
        decimals: 2,
        plausible: (0, 1_000_000),
        derived_from: Some("cdi-daily"),
        formula: None,
    },
    Series {
        id: "ipca",
        code: Some(433),
        name: Text::new("IPCA, monthly change", "IPCA, variação mensal"),
        unit: Text::new("% per month", "% ao mês"),
        basis: Text::new("change on the previous month", "variação sobre o mês anterior"),
        is_not: Text::new(
            "not the index itself, and not the change in twelve months, which is `ipca-12m`",
            "não é o número-índice, nem a variação em doze meses, que é `ipca-12m`",
        ),
        frequency: Frequency::Monthly,
        starts: day(1980, 1, 1),
        decimals: 2,
        plausible: (-5, 100),
        derived_from: None,
        formula: None,
    },
    Series {
        id: "selic-effective",
        code: Some(1178),
        name: Text::new("Selic as traded, annualised", "Selic efetiva, anualizada"),
        unit: Text::new("% p.a.", "% a.a."),
        basis: Text::new("annual rate, 252 business days", "taxa anual, 252 dias úteis"),
        is_not: Text::new("not Copom's target, which is `selic`", "não é a meta do Copom, que é `selic`"),
        frequency: Frequency::BusinessDaily,
        starts: day(1986, 6, 4),
        decimals: 2,
        plausible: (0, 1_000_000),
        derived_from: None,
        formula: None,
    },
    Series {
        id: "selic-daily",
        code: Some(11),
        name: Text::new("Selic as traded, per day", "Selic efetiva, ao dia"),
        unit: Text::new("% per day", "% ao dia"),
        basis: Text::new("rate of one business day", "taxa de um dia útil"),
        is_not: Text::new(
            "not an annual rate: one business day's, to be compounded",
            "não é uma taxa anual: é a de um dia útil, a ser capitalizada",
        ),
        frequency: Frequency::BusinessDaily,
        starts: day(1986, 6, 4),
        decimals: 6,
        plausible: (0, 5),
        derived_from: None,
        formula: None,
    },
    Series {
        id: "cdi-daily",
        code: Some(12),
        name: Text::new("CDI, per day", "CDI, ao dia"),
        unit: Text::new("% per day", "% ao dia"),
        basis: Text::new("rate of one business day", "taxa de um dia útil"),
        is_not: Text::new(
            "not an annual rate: one business day's, to be compounded",
            "não é uma taxa anual: é a de um dia útil, a ser capitalizada",
        ),
        frequency: Frequency::BusinessDaily,
        starts: day(1986, 3, 6),
        decimals: 6,
        plausible: (0, 5),
        derived_from: None,
        formula: None,
    },
    Series {
        id: "ipca-12m",
        code: Some(13522),
        name: Text::new("IPCA, change in twelve months", "IPCA, variação em doze meses"),
        unit: Text::new("% in 12 months", "% em 12 meses"),
        basis: Text::new("change on the same month a year before", "variação sobre o mesmo mês do ano anterior"),
        is_not: Text::new("not the change of a month, which is `ipca`", "não é a variação de um mês, que é `ipca`"),
        frequency: Frequency::Monthly,
        starts: day(1980, 12, 1),
        decimals: 2,
        plausible: (-10, 100_000),
        derived_from: None,
        formula: None,
    },
];

/// Series that we compute from those above. They are served like them, and nothing of them is stored.
pub static DERIVED: [Series; 2] = [
    Series {
        id: "ipca-ytd",
        code: None,
        name: Text::new("IPCA, change since the year began", "IPCA, variação acumulada no ano"),
        unit: Text::new("% in the year", "% no ano"),
        basis: Text::new("change on December of the year before", "variação sobre dezembro do ano anterior"),
        is_not: Text::new(
            "not the change in twelve months, which is `ipca-12m`",
            "não é a variação em doze meses, que é `ipca-12m`",
        ),
        frequency: Frequency::Monthly,
        starts: day(1980, 1, 1),
        decimals: 2,
        plausible: (-10, 100_000),
        derived_from: None,
        formula: Some(Formula {
            text: Text::new(
                "the product of (1 + ipca/100) from January to the month, less 1, in percent",
                "o produto de (1 + ipca/100) de janeiro até o mês, menos 1, em percentual",
            ),
            inputs: &["ipca"],
            compute: year_to_date,
        }),
    },
    Series {
        id: "real-selic",
        code: None,
        name: Text::new(
            "Selic target less the inflation of twelve months",
            "Meta Selic descontada a inflação de doze meses",
        ),
        unit: Text::new("% p.a.", "% a.a."),
        basis: Text::new(
            "target at the end of the month, on the IPCA of the twelve months until then",
            "meta no fim do mês, sobre o IPCA dos doze meses até ele",
        ),
        is_not: Text::new(
            "not what is expected: it looks back, where the market's real rate looks ahead",
            "não é uma expectativa: olha para trás, e o juro real do mercado olha para a frente",
        ),
        frequency: Frequency::Monthly,
        starts: day(1999, 3, 1),
        decimals: 2,
        plausible: (-100, 100),
        derived_from: None,
        formula: Some(Formula {
            text: Text::new(
                "(1 + selic/100) / (1 + ipca-12m/100) − 1, in percent",
                "(1 + selic/100) / (1 + ipca-12m/100) − 1, em percentual",
            ),
            inputs: &["selic", "ipca-12m"],
            compute: real_rate,
        }),
    },
];

/// Series that are stored to check others by, and never served.
pub static CHECK_SERIES: [Series; 2] = [
    Series {
        id: "check-usd-sell",
        code: Some(1),
        name: Text::new("Dollar, PTAX sell, for comparison", "Dólar, PTAX venda, para comparação"),
        unit: Text::new("BRL per USD", "BRL por USD"),
        basis: Text::new("closing bulletin", "boletim de fechamento"),
        is_not: Text::new("not served", "não é servida"),
        frequency: Frequency::BusinessDaily,
        starts: day(1984, 11, 28),
        decimals: 4,
        plausible: (0, 1_000_000),
        derived_from: None,
        formula: None,
    },
    Series {
        id: "check-usd-buy",
        code: Some(10813),
        name: Text::new("Dollar, PTAX buy, for comparison", "Dólar, PTAX compra, para comparação"),
        unit: Text::new("BRL per USD", "BRL por USD"),
        basis: Text::new("closing bulletin", "boletim de fechamento"),
        is_not: Text::new("not served", "não é servida"),
        frequency: Frequency::BusinessDaily,
        starts: day(1984, 11, 28),
        decimals: 4,
        plausible: (0, 1_000_000),
        derived_from: None,
        formula: None,
    },
];

/// Of monthly changes: what those of a year come to until each month. After a month that is missing nothing can be said
/// until the next year.
fn year_to_date(inputs: &[Vec<Dated>]) -> Vec<Dated> {
    let [monthly] = inputs else { return Vec::new() };
    let mut values = Vec::new();
    for of_year in monthly.chunk_by(|(one, _), (other, _)| one.year() == other.year()) {
        for (at, (month, _)) in of_year.iter().enumerate().take_while(|(at, (month, _))| month.month0() as usize == *at)
        {
            let rates = of_year[..=at].iter().map(|(_, rate)| *rate);
            values.extend(compounded(rates).map(|value| (*month, value)));
        }
    }
    values
}

/// Of an annual rate and the inflation of twelve months: what the one at the end of a month leaves above the other.
fn real_rate(inputs: &[Vec<Dated>]) -> Vec<Dated> {
    let [rates, inflation] = inputs else { return Vec::new() };
    let of_month = |(month, inflation): &Dated| -> Option<Dated> {
        let at = rates.partition_point(|(day, _)| *day <= month_end(*month)).checked_sub(1)?;
        let hundred = Decimal::ONE_HUNDRED;
        let ratio = (hundred + rates[at].1).checked_div(hundred + inflation)?;
        let mut percent = ((ratio - Decimal::ONE) * hundred).round_dp(2);
        percent.rescale(2);
        Some((*month, percent))
    };
    inflation.iter().filter_map(of_month).collect()
}

/// All that are served, those that we compute last.
pub fn served() -> impl Iterator<Item = &'static Series> {
    SERIES.iter().chain(&DERIVED)
}

pub fn by_id(id: &str) -> Option<&'static Series> {
    served().find(|series| series.id == id)
}

impl Series {
    /// The series that its values are made of: itself where it is published.
    pub fn made_of(&self) -> Vec<&'static Series> {
        let itself = [self.id];
        let inputs = self.formula.as_ref().map_or(&itself[..], |formula| formula.inputs);
        inputs.iter().copied().filter_map(by_id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_published_or_computed_from_others_that_are() {
        for series in served() {
            assert_eq!(series.code.is_none(), series.formula.is_some(), "{}", series.id);
            assert!(series.made_of().iter().all(|input| input.code.is_some()), "{}", series.id);
        }
    }

    fn dated(rows: &[(NaiveDate, &str)]) -> Vec<Dated> {
        rows.iter().map(|(day, value)| (*day, value.parse().unwrap())).collect()
    }

    #[test]
    fn a_year_to_date_begins_in_january_and_ends_at_a_gap() {
        let ipca = [
            (day(2023, 12, 1), "0.56"),
            (day(2024, 1, 1), "0.42"),
            (day(2024, 2, 1), "0.83"),
            (day(2024, 4, 1), "0.38"),
            (day(2025, 1, 1), "0.16"),
        ];
        let expected = [(day(2024, 1, 1), "0.42"), (day(2024, 2, 1), "1.25"), (day(2025, 1, 1), "0.16")];
        assert_eq!(year_to_date(&[dated(&ipca)]), dated(&expected));
    }

    #[test]
    fn a_real_rate_is_what_the_months_end_leaves_above_inflation() {
        let selic = dated(&[(day(2024, 3, 1), "11.25"), (day(2024, 3, 21), "10.75"), (day(2024, 4, 1), "10.75")]);
        let inflation = dated(&[(day(2024, 2, 1), "4.50"), (day(2024, 3, 1), "3.93"), (day(2024, 5, 1), "3.93")]);
        let expected = [(day(2024, 3, 1), "6.56"), (day(2024, 5, 1), "6.56")];
        assert_eq!(real_rate(&[selic, inflation]), dated(&expected));
    }

    #[test]
    fn each_rhythm_expects_its_days() {
        let days = |frequency: Frequency| {
            let range = DateRange { from: day(2024, 2, 9), to: day(2024, 4, 1) };
            let expected = frequency.expected_days(range);
            (expected.len(), expected.first().copied(), expected.last().copied())
        };
        assert_eq!(days(Frequency::Daily), (53, Some(day(2024, 2, 9)), Some(day(2024, 4, 1))));
        assert_eq!(days(Frequency::BusinessDaily), (34, Some(day(2024, 2, 9)), Some(day(2024, 4, 1))));
        assert_eq!(days(Frequency::Monthly), (2, Some(day(2024, 3, 1)), Some(day(2024, 4, 1))));
    }
}
