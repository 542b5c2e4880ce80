//! The query parameters of accumulations: a period, and what to do with its rates.

use std::fmt::Display;

use chrono::{Days, Months, NaiveDate};
use vintem_domain::accumulation::{FixedDecimal, spread_factor};
use vintem_domain::dates::{month_end, parse_date};
use vintem_domain::fx::BRL_START_DATE;
use vintem_domain::{Decimal, LocalizedText, Problem};

use super::body::{AccumulatedResultBody, FactorDetailBody};
use crate::json_number::JsonNumber;
use crate::params::{DecimalBounds, QueryParams, invalid_param};

pub const AMOUNT_BOUNDS: DecimalBounds = DecimalBounds {
    min: 0,
    max: 1_000_000_000_000_000,
    max_decimals: 2,
    must: LocalizedText::new(
        "must be a number from 0 to 1000000000000000 with at most two decimals",
        "deve ser um número de 0 a 1000000000000000 com no máximo duas casas decimais",
    ),
};

pub const PERCENT_BOUNDS: DecimalBounds = DecimalBounds {
    min: 0,
    max: 1_000,
    max_decimals: 4,
    must: LocalizedText::new(
        "must be a number from 0 to 1000 with at most four decimals",
        "deve ser um número de 0 a 1000 com no máximo quatro casas decimais",
    ),
};

pub const SPREAD_BOUNDS: DecimalBounds = DecimalBounds {
    min: -50,
    max: 100,
    max_decimals: 4,
    must: LocalizedText::new(
        "must be a number from -50 to 100 with at most four decimals",
        "deve ser um número de -50 a 100 com no máximo quatro casas decimais",
    ),
};

/// Far more than all inflation since 1980: only a `percent` of many times the rate reaches it.
pub const FACTOR_TOO_LARGE: Problem = Problem::BadParameter {
    name: "percent",
    requirement: LocalizedText::new(
        "must be smaller for this period: the factor would have more than 22 digits",
        "deve ser menor para este período: o fator teria mais de 22 dígitos",
    ),
};

/// One end of a period: a day, or a whole month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeriodBound {
    Day(NaiveDate),
    /// Its first day.
    Month(NaiveDate),
}

/// The period of `from` and `to`, or of `year`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub from: PeriodBound,
    /// `None` for up to the newest value.
    pub to: Option<PeriodBound>,
}

impl Period {
    fn from_query(query: &QueryParams) -> Result<Self, Problem> {
        if let Some(year) = query.year()? {
            let month = |month| NaiveDate::from_ymd_opt(year, month, 1).unwrap_or_default();
            return Ok(Self { from: PeriodBound::Month(month(1)), to: Some(PeriodBound::Month(month(12))) });
        }

        let must = LocalizedText::new(
            "is required: a date (YYYY-MM-DD) or a month (YYYY-MM); or use `year` instead",
            "é obrigatório: uma data (AAAA-MM-DD) ou um mês (AAAA-MM); ou use `year`",
        );
        let from = match parse_bound(query, "from")? {
            Some(from) => from,
            None => return invalid_param("from", must),
        };
        let period = Self { from, to: parse_bound(query, "to")? };
        if period.end().is_some_and(|end| end < period.start()) {
            return invalid_param(
                "from",
                LocalizedText::new("must not be after `to`", "não pode ser posterior a `to`"),
            );
        }
        Ok(period)
    }

    /// The first day of the period.
    pub fn start(self) -> NaiveDate {
        match self.from {
            PeriodBound::Day(day) | PeriodBound::Month(day) => day,
        }
    }

    /// The first day after the period: a day given as `to` is not part of it, a month is.
    pub fn end(self) -> Option<NaiveDate> {
        self.to.map(|to| match to {
            PeriodBound::Day(day) => day,
            PeriodBound::Month(first) => first + Months::new(1),
        })
    }

    /// The days whose closing prices the period compares. Whole months are compared with the last close before them.
    pub fn closing_days(self) -> (NaiveDate, Option<NaiveDate>) {
        let from = match self.from {
            PeriodBound::Day(day) => day,
            PeriodBound::Month(first) => first - Days::new(1),
        };
        let to = self.to.map(|to| match to {
            PeriodBound::Day(day) => day,
            PeriodBound::Month(first) => month_end(first),
        });
        (from, to)
    }
}

fn parse_bound(query: &QueryParams, name: &'static str) -> Result<Option<PeriodBound>, Problem> {
    let Some(text) = query.single_value(name)? else { return Ok(None) };
    let bound = match text.len() {
        7 => parse_date(&format!("{text}-01")).map(PeriodBound::Month),
        _ => parse_date(text).map(PeriodBound::Day),
    };
    let must = LocalizedText::new(
        "must be a date (YYYY-MM-DD) or a month (YYYY-MM) from 1900 to 2199",
        "deve ser uma data (AAAA-MM-DD) ou um mês (AAAA-MM) de 1900 a 2199",
    );
    bound.map_or_else(|| invalid_param(name, must), |bound| Ok(Some(bound)))
}

fn parse_day_of_month(query: &QueryParams) -> Result<Option<u32>, Problem> {
    let Some(text) = query.single_value("day")? else { return Ok(None) };
    let must = LocalizedText::new(
        "must be a day of the month from 1 to 31; 29, 30 and 31 count as the 1st of the next month",
        "deve ser um dia do mês de 1 a 31; 29, 30 e 31 contam como o dia 1º do mês seguinte",
    );
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let day = text.parse().ok().filter(|day| is_plain && (1..=31).contains(day));
    day.map_or_else(|| invalid_param("day", must), |day| Ok(Some(day)))
}

pub struct AccumulationParams {
    pub period: Period,
    amount: Option<Decimal>,
    pub percent: Decimal,
    spread: Option<Decimal>,
    /// The day of the month on which months begin, for rates of the month ahead.
    pub day: Option<u32>,
    pub detail: bool,
    as_text: bool,
}

impl AccumulationParams {
    pub fn from_query(query: &QueryParams) -> Result<Self, Problem> {
        let period = Period::from_query(query)?;
        let amount = query.decimal("amount", AMOUNT_BOUNDS)?;
        if amount.is_some() && period.start() < BRL_START_DATE {
            let must = LocalizedText::new(
                "is not allowed for a period that begins before 1994-07-01, because of currency reforms. Omit it to get only the factor",
                "não é aceito em períodos que começam antes de 1994-07-01, por causa das reformas monetárias. Sem ele, você recebe o fator",
            );
            return invalid_param("amount", must);
        }

        Ok(Self {
            period,
            amount,
            percent: query.decimal("percent", PERCENT_BOUNDS)?.unwrap_or(Decimal::ONE_HUNDRED),
            spread: query.decimal("spread", SPREAD_BOUNDS)?,
            day: parse_day_of_month(query)?,
            detail: query.flag("detail")?,
            as_text: query.numbers_as_text()?,
        })
    }

    /// Refuses `day` for a series whose rates have no anniversaries.
    pub fn refuse_day(&self) -> Result<(), Problem> {
        let must = LocalizedText::new(
            "applies only to series whose rows cover a month: `tr`, `tbf`, `savings` and `savings-old`",
            "só vale para séries cujas linhas cobrem um mês: `tr`, `tbf`, `savings` e `savings-old`",
        );
        self.day.map_or(Ok(()), |_| invalid_param("day", must))
    }

    fn json_number<T>(&self, value: T) -> JsonNumber<T> {
        JsonNumber { value, as_text: self.as_text }
    }

    pub fn detail_body(&self, date: NaiveDate, value: Decimal, factor: impl Display) -> FactorDetailBody {
        FactorDetailBody { date, value: self.json_number(value), factor: self.json_number(factor.to_string()) }
    }

    /// Combines the index factor with the spread and applies the result to the amount. A factor without a spread has
    /// eight decimals, one with a spread has nine.
    pub fn result_body(
        &self,
        index_factor: Option<FixedDecimal>,
        business_days: u32,
    ) -> Result<AccumulatedResultBody, Problem> {
        let spread_factor = match self.spread {
            Some(spread) => Some(spread_factor(spread, business_days).ok_or(FACTOR_TOO_LARGE)?),
            None => None,
        };
        let factor = match (index_factor, spread_factor) {
            (Some(index), Some(spread)) => Some(index.checked_mul(spread, 9).ok_or(FACTOR_TOO_LARGE)?),
            (index, _) => index,
        };
        let result = match (self.amount.and_then(FixedDecimal::from_decimal), factor) {
            (Some(amount), Some(factor)) => Some(amount.checked_mul(factor, 2).ok_or(FACTOR_TOO_LARGE)?),
            _ => None,
        };

        Ok(AccumulatedResultBody {
            percent: self.json_number(self.percent),
            spread: self.spread.map(|spread| self.json_number(spread)),
            index_factor: index_factor.map(|factor| self.json_number(factor)),
            spread_factor: spread_factor.map(|factor| self.json_number(factor)),
            factor: factor.map(|factor| self.json_number(factor)),
            change_percent: factor.map(|factor| self.json_number(factor.gain_percent())),
            amount: self.amount.map(|amount| self.json_number(amount)),
            result: result.map(|result| self.json_number(result)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(query: &str) -> Result<(String, Option<String>), Problem> {
        let period = Period::from_query(&QueryParams::parse(query))?;
        Ok((period.start().to_string(), period.end().map(|end| end.to_string())))
    }

    #[test]
    fn years_and_months_are_whole_and_a_day_excludes_itself() {
        for (query, from, to) in [
            ("year=2025", "2025-01-01", "2026-01-01"),
            ("from=2025-01&to=2025-12", "2025-01-01", "2026-01-01"),
            ("from=2025-02&to=2025-02", "2025-02-01", "2025-03-01"),
            ("from=2025-01-01&to=2025-12-31", "2025-01-01", "2025-12-31"),
            ("from=2025-01-15&to=2025-01", "2025-01-15", "2025-02-01"),
        ] {
            assert_eq!(period(query), Ok((from.to_owned(), Some(to.to_owned()))), "{query}");
        }
        assert_eq!(period("from=2025-01"), Ok(("2025-01-01".to_owned(), None)));
        for query in
            ["", "to=2025-01", "from=2025-13", "from=2025-1", "from=2025-03&to=2025-01", "year=2025&to=2025-12"]
        {
            assert!(period(query).is_err(), "{query}");
        }
    }

    #[test]
    fn exchange_rates_compare_whole_months_with_the_close_before_them() {
        let closing_days = |query: &str| Period::from_query(&QueryParams::parse(query)).unwrap().closing_days();
        let day = |text: &str| text.parse::<NaiveDate>().unwrap();
        assert_eq!(closing_days("year=2024"), (day("2023-12-31"), Some(day("2024-12-31"))));
        assert_eq!(closing_days("from=2024-01-02&to=2024-12-31"), (day("2024-01-02"), Some(day("2024-12-31"))));
    }
}
