//! What rates come to between two days, to the last digit, and the exchange rate of one day against another's.

use std::fmt::Display;

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use chrono::{Days, Months, NaiveDate};
use serde::Serialize;
use vintem_domain::accumulation::{Factor, Fixed, spread_factor};
use vintem_domain::dates::month_start;
use vintem_domain::series::{Dated, Frequency};
use vintem_domain::{Calendar, Dataset, DateRange, Decimal, Problem, Quote, Text};

use super::source::{SeriesBody, Source, fx_source, series_source};
use super::{AppState, Handlers, as_of, today};
use crate::App;
use crate::answer::Tag;
use crate::caller::Caller;
use crate::number::Number;
use crate::params::{DecimalBounds, Query, ordered};
use crate::problem::Refusal;

/// The first so many days without a value are named; the number of all is given beside them.
const MOST_NAMED: usize = 100;

const AMOUNT: DecimalBounds = DecimalBounds {
    least: 0,
    most: 1_000_000_000_000_000,
    decimals: 2,
    must: Text::new(
        "be a number from 0 to 1000000000000000 with at most two decimals",
        "ser um número de 0 a 1000000000000000 com no máximo duas casas decimais",
    ),
};

const PERCENT: DecimalBounds = DecimalBounds {
    least: 0,
    most: 1_000,
    decimals: 4,
    must: Text::new(
        "be a number from 0 to 1000 with at most four decimals",
        "ser um número de 0 a 1000 com no máximo quatro casas decimais",
    ),
};

const SPREAD: DecimalBounds = DecimalBounds {
    least: -50,
    most: 100,
    decimals: 4,
    must: Text::new(
        "be a number from -50 to 100 with at most four decimals",
        "ser um número de -50 a 100 com no máximo quatro casas decimais",
    ),
};

#[derive(Serialize)]
struct AccumulatedBody {
    series: SeriesBody,
    as_of: String,
    from: NaiveDate,
    /// The first day that no longer counts; of exchange rates the day of the second rate.
    to: NaiveDate,
    business_days: u32,
    /// The rates that were multiplied, or the exchange rates that were compared.
    observations: usize,
    #[serde(flatten)]
    outcome: OutcomeBody,
    missing: Vec<NaiveDate>,
    missing_total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<Vec<DetailBody>>,
}

/// Nothing where a day has no value.
#[derive(Serialize)]
struct OutcomeBody {
    percent: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index_factor: Option<Number<Fixed>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spread_factor: Option<Number<Fixed>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    factor: Option<Number<Fixed>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change_percent: Option<Number<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Number<Fixed>>,
}

#[derive(Serialize)]
struct DetailBody {
    date: NaiveDate,
    value: Number,
    factor: Number<String>,
}

/// What an accumulation can be asked for, whatever accumulates.
struct AccumulatedParams {
    from: NaiveDate,
    to: Option<NaiveDate>,
    amount: Option<Decimal>,
    percent: Decimal,
    spread: Option<Decimal>,
    detail: bool,
    as_text: bool,
}

impl AccumulatedParams {
    fn read(query: &Query) -> Result<Self, Problem> {
        let (from, to) = (query.required_day("from")?, query.day("to")?);
        to.map(|to| ordered(from, to)).transpose()?;
        Ok(Self {
            from,
            to,
            amount: query.decimal("amount", AMOUNT)?,
            percent: query.decimal("percent", PERCENT)?.unwrap_or(Decimal::ONE_HUNDRED),
            spread: query.decimal("spread", SPREAD)?,
            detail: query.flag("detail")?,
            as_text: query.numbers_as_text()?,
        })
    }

    fn number<T>(&self, value: T) -> Number<T> {
        Number { value, as_text: self.as_text }
    }

    fn detail(&self, date: NaiveDate, value: Decimal, factor: impl Display) -> DetailBody {
        DetailBody { date, value: self.number(value), factor: self.number(factor.to_string()) }
    }

    /// What the index and the spread come to together, and what they make of the amount. A factor without a spread has
    /// eight decimals, one with a spread nine.
    fn outcome(&self, index_factor: Option<Fixed>, business_days: u32) -> Result<OutcomeBody, Problem> {
        let spread_factor = match self.spread {
            Some(spread) => Some(spread_factor(spread, business_days).ok_or(TOO_LARGE)?),
            None => None,
        };
        let factor = match (index_factor, spread_factor) {
            (Some(index), Some(spread)) => Some(index.times(spread, 9).ok_or(TOO_LARGE)?),
            (index, _) => index,
        };
        let result = match (self.amount.and_then(Fixed::from_decimal), factor) {
            (Some(amount), Some(factor)) => Some(amount.times(factor, 2).ok_or(TOO_LARGE)?),
            _ => None,
        };
        Ok(OutcomeBody {
            percent: self.number(self.percent),
            spread: self.spread.map(|spread| self.number(spread)),
            index_factor: index_factor.map(|factor| self.number(factor)),
            spread_factor: spread_factor.map(|factor| self.number(factor)),
            factor: factor.map(|factor| self.number(factor)),
            change_percent: factor.map(|factor| self.number(factor.gain_percent())),
            amount: self.amount.map(|amount| self.number(amount)),
            result: result.map(|result| self.number(result)),
        })
    }
}

pub fn handlers() -> Handlers {
    vec![
        ("accumulate_selic", get(accumulate_selic)),
        ("accumulate_cdi", get(accumulate_cdi)),
        ("accumulate_ipca", get(accumulate_ipca)),
        ("accumulate_fx", get(accumulate_fx)),
    ]
}

// Of the rates of single days, never of the annual ones.
async fn accumulate_selic(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    accumulate(&caller, &app, &query, "selic-daily")
}

async fn accumulate_cdi(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    accumulate(&caller, &app, &query, "cdi-daily")
}

async fn accumulate_ipca(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    accumulate(&caller, &app, &query, "ipca")
}

fn accumulate(caller: &Caller, app: &App, query: &Query, id: &str) -> Result<Response, Refusal> {
    let params = AccumulatedParams::read(query)?;
    let (snapshot, today) = (app.snapshot()?, today(app));
    let source = series_source(&snapshot, id)?;
    let newest = source.newest(today).map(|at| source.values.get(at).0);
    let newest = newest.ok_or_else(|| source.nothing_until(today))?;
    let (from, to) = match source.frequency() {
        // Whole months: that of the first day, up to that of the last, which no longer counts.
        Frequency::Monthly => {
            let to = params.to.unwrap_or(newest + Months::new(1));
            (month_start(params.from), month_start(to).max(month_start(params.from)))
        }
        Frequency::Daily | Frequency::BusinessDaily => {
            (params.from, params.to.unwrap_or(newest + Days::new(1)).max(params.from))
        }
    };
    let counted = (from < to).then(|| DateRange { from, to: to - Days::new(1) });
    let rows: Vec<Dated> =
        counted.map_or(0..0, |days| source.range(days.until(today))).map(|at| source.values.get(at)).collect();
    let expected = counted.map(|days| source.frequency().expected_days(days)).unwrap_or_default();
    let missing = lacking(&expected, &rows);
    let business_days = Calendar::Settlement.count(from, to);
    let mut product = Factor::ONE;
    let mut detail = Vec::new();
    for (date, value) in &rows {
        let factor = Factor::of_rate(*value, params.percent).ok_or(TOO_LARGE)?;
        product = product.then(factor).ok_or(TOO_LARGE)?;
        if params.detail {
            detail.push(params.detail(*date, *value, factor));
        }
    }
    let index_factor = missing.is_empty().then(|| product.rounded(8));
    let outcome = params.outcome(index_factor, business_days)?;
    let tag = Tag::new(caller, app, &snapshot, &source.datasets(), today);
    Ok(tag.answer(|| AccumulatedBody {
        series: source.describe(caller.lang),
        as_of: as_of(&snapshot, &source),
        from,
        to,
        business_days,
        observations: rows.len(),
        outcome,
        missing_total: missing.len(),
        missing: missing.into_iter().take(MOST_NAMED).collect(),
        detail: params.detail.then_some(detail),
    }))
}

/// The sell rate of one close against that of another: of each day, or of the last close before it.
async fn accumulate_fx(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (pair, params) = (query.pair()?, AccumulatedParams::read(&query)?);
    let (snapshot, today) = (app.snapshot()?, today(&app));
    let source = fx_source(&snapshot, pair)?;
    let close = |day: NaiveDate| source.newest(day.min(today)).and_then(|at| source.rates.get(at));
    let (newest, _) = close(today).ok_or_else(|| source.nothing_until(today))?;
    let (from, to) = (params.from, params.to.unwrap_or(newest).max(params.from));
    let (first, second) = (close(from), close(to));
    // A day on which banks settle has a close of its own.
    let lacks_close = |(day, close): &(NaiveDate, Option<(NaiveDate, Quote)>)| {
        close.is_none_or(|(date, _)| date != *day && Calendar::Settlement.is_business_day(*day))
    };
    let mut missing: Vec<NaiveDate> =
        [(from, first), (to, second)].into_iter().filter(lacks_close).map(|(day, _)| day).collect();
    missing.dedup();
    let index_factor = match (first, second) {
        (Some((_, first)), Some((_, second))) if missing.is_empty() => {
            Some(Factor::of_prices(first.sell, second.sell, params.percent).ok_or(TOO_LARGE)?.rounded(8))
        }
        _ => None,
    };
    let business_days = Calendar::Settlement.count(from, to);
    let outcome = params.outcome(index_factor, business_days)?;
    let since = first.map_or(from, |(date, _)| date);
    let rows: Vec<(NaiveDate, Quote)> =
        source.range(DateRange { from: since, to }.until(today)).filter_map(|at| source.rates.get(at)).collect();
    let tag = Tag::new(&caller, &app, &snapshot, &[Dataset::Fx], today);
    Ok(tag.answer(|| {
        let against_the_one_before = |pair: &[(NaiveDate, Quote)]| {
            let [(_, before), (date, close)] = pair else { return None };
            let factor = Factor::of_prices(before.sell, close.sell, Decimal::ONE_HUNDRED)?;
            Some(params.detail(*date, close.sell, factor))
        };
        AccumulatedBody {
            series: source.describe(caller.lang),
            as_of: as_of(&snapshot, &source),
            from,
            to,
            business_days,
            observations: rows.len(),
            outcome,
            missing_total: missing.len(),
            missing,
            detail: params.detail.then(|| rows.windows(2).filter_map(against_the_one_before).collect()),
        }
    }))
}

/// More than all inflation since 1980 by far: only a percentage of many times the rate comes to it.
const TOO_LARGE: Problem = Problem::BadParameter {
    name: "percent",
    must: Text::new(
        "be smaller for so long a time: the factor has more than 22 digits",
        "ser menor para um período tão longo: o fator tem mais de 22 dígitos",
    ),
};

/// The days that should have a value and have none. Both are in order.
fn lacking(expected: &[NaiveDate], rows: &[Dated]) -> Vec<NaiveDate> {
    let mut rows = rows.iter().map(|(date, _)| *date).peekable();
    let mut lacking = Vec::new();
    for day in expected {
        while rows.next_if(|date| date < day).is_some() {}
        if rows.next_if(|date| date == day).is_none() {
            lacking.push(*day);
        }
    }
    lacking
}
