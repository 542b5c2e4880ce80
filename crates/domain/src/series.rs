//! The series that we carry: one entry each, from which storage, endpoints and descriptions follow.

use chrono::NaiveDate;

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
}

#[derive(Debug)]
pub struct Series {
    pub id: &'static str,
    /// The code in the central bank's time-series system (SGS).
    pub code: u32,
    pub name: Text,
    pub unit: Text,
    pub basis: Text,
    pub frequency: Frequency,
    /// Its first day, as far as we know; what lies before is looked for too.
    pub starts: NaiveDate,
    pub decimals: u32,
    /// The lowest and the highest value that it can have had, hyperinflation included. Beyond is a mistake.
    pub plausible: (i64, i64),
    /// The series of daily rates from which a day that this one lacks is computed.
    pub derived_from: Option<&'static str>,
}

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
        code: 432,
        name: Text::new("Selic target set by Copom", "Meta Selic definida pelo Copom"),
        unit: Text::new("% p.a.", "% a.a."),
        basis: Text::new("annual rate, 252 business days", "taxa anual, 252 dias úteis"),
        frequency: Frequency::Daily,
        starts: day(1999, 3, 5),
        decimals: 2,
        plausible: (0, 100),
        derived_from: None,
    },
    Series {
        id: "cdi",
        code: 4389,
        name: Text::new("CDI, annualised", "CDI, anualizado"),
        unit: Text::new("% p.a.", "% a.a."),
        basis: Text::new("annual rate, 252 business days", "taxa anual, 252 dias úteis"),
        frequency: Frequency::BusinessDaily,
        starts: day(1986, 3, 6),
        decimals: 2,
        plausible: (0, 1_000_000),
        derived_from: Some("cdi-daily"),
    },
    Series {
        id: "ipca",
        code: 433,
        name: Text::new("IPCA, monthly change", "IPCA, variação mensal"),
        unit: Text::new("% per month", "% ao mês"),
        basis: Text::new("change on the previous month", "variação sobre o mês anterior"),
        frequency: Frequency::Monthly,
        starts: day(1980, 1, 1),
        decimals: 2,
        plausible: (-5, 100),
        derived_from: None,
    },
    Series {
        id: "selic-effective",
        code: 1178,
        name: Text::new("Selic as traded, annualised", "Selic efetiva, anualizada"),
        unit: Text::new("% p.a.", "% a.a."),
        basis: Text::new("annual rate, 252 business days", "taxa anual, 252 dias úteis"),
        frequency: Frequency::BusinessDaily,
        starts: day(1986, 6, 4),
        decimals: 2,
        plausible: (0, 1_000_000),
        derived_from: None,
    },
    Series {
        id: "selic-daily",
        code: 11,
        name: Text::new("Selic as traded, per day", "Selic efetiva, ao dia"),
        unit: Text::new("% per day", "% ao dia"),
        basis: Text::new("rate of one business day", "taxa de um dia útil"),
        frequency: Frequency::BusinessDaily,
        starts: day(1986, 6, 4),
        decimals: 6,
        plausible: (0, 5),
        derived_from: None,
    },
    Series {
        id: "cdi-daily",
        code: 12,
        name: Text::new("CDI, per day", "CDI, ao dia"),
        unit: Text::new("% per day", "% ao dia"),
        basis: Text::new("rate of one business day", "taxa de um dia útil"),
        frequency: Frequency::BusinessDaily,
        starts: day(1986, 3, 6),
        decimals: 6,
        plausible: (0, 5),
        derived_from: None,
    },
    Series {
        id: "ipca-12m",
        code: 13522,
        name: Text::new("IPCA, change in twelve months", "IPCA, variação em doze meses"),
        unit: Text::new("% in 12 months", "% em 12 meses"),
        basis: Text::new("change on the same month a year before", "variação sobre o mesmo mês do ano anterior"),
        frequency: Frequency::Monthly,
        starts: day(1980, 12, 1),
        decimals: 2,
        plausible: (-10, 100_000),
        derived_from: None,
    },
];

/// Series that are stored to check others by, and never served.
pub static CHECK_SERIES: [Series; 2] = [
    Series {
        id: "check-usd-sell",
        code: 1,
        name: Text::new("Dollar, PTAX sell, for comparison", "Dólar, PTAX venda, para comparação"),
        unit: Text::new("BRL per USD", "BRL por USD"),
        basis: Text::new("closing bulletin", "boletim de fechamento"),
        frequency: Frequency::BusinessDaily,
        starts: day(1984, 11, 28),
        decimals: 4,
        plausible: (0, 1_000_000),
        derived_from: None,
    },
    Series {
        id: "check-usd-buy",
        code: 10813,
        name: Text::new("Dollar, PTAX buy, for comparison", "Dólar, PTAX compra, para comparação"),
        unit: Text::new("BRL per USD", "BRL por USD"),
        basis: Text::new("closing bulletin", "boletim de fechamento"),
        frequency: Frequency::BusinessDaily,
        starts: day(1984, 11, 28),
        decimals: 4,
        plausible: (0, 1_000_000),
        derived_from: None,
    },
];

pub fn by_id(id: &str) -> Option<&'static Series> {
    SERIES.iter().find(|series| series.id == id)
}
