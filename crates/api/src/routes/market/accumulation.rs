//! Accumulates rates between two dates with exact decimals, and compares the exchange rates of two dates.

use std::fmt::Display;

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use chrono::{Days, Months, NaiveDate};
use serde::Serialize;
use vintem_domain::accumulation::{FixedDecimal, GrowthFactor, spread_factor};
use vintem_domain::dates::month_start;
use vintem_domain::series::{DatedValue, Frequency};
use vintem_domain::{Calendar, Dataset, DateRange, Decimal, LocalizedText, Problem, Quote};

use super::rates::format_loaded_at;
use crate::api_error::ApiError;
use crate::app::{App, AppState, Handlers};
use crate::bodies::market::{RateSource, fx_source, series_source};
use crate::bodies::series::SeriesBody;
use crate::caller::Caller;
use crate::json_number::JsonNumber;
use crate::params::{DecimalBounds, QueryParams, ordered_date_range};
use crate::responses::EtagResponder;

/// At most this many missing days are listed; `missing_total` counts all of them.
const MAX_MISSING_LISTED: usize = 100;

pub const AMOUNT_BOUNDS: DecimalBounds = DecimalBounds {
    min: 0,
    max: 1_000_000_000_000_000,
    max_decimals: 2,
    must: LocalizedText::new(
        "be a number from 0 to 1000000000000000 with at most two decimals",
        "ser um número de 0 a 1000000000000000 com no máximo duas casas decimais",
    ),
};

pub const PERCENT_BOUNDS: DecimalBounds = DecimalBounds {
    min: 0,
    max: 1_000,
    max_decimals: 4,
    must: LocalizedText::new(
        "be a number from 0 to 1000 with at most four decimals",
        "ser um número de 0 a 1000 com no máximo quatro casas decimais",
    ),
};

pub const SPREAD_BOUNDS: DecimalBounds = DecimalBounds {
    min: -50,
    max: 100,
    max_decimals: 4,
    must: LocalizedText::new(
        "be a number from -50 to 100 with at most four decimals",
        "ser um número de -50 a 100 com no máximo quatro casas decimais",
    ),
};

#[derive(Serialize)]
struct AccumulatedBody {
    series: SeriesBody,
    as_of: String,
    from: NaiveDate,
    /// The first day that is not included; for exchange rates, the day of the second rate.
    to: NaiveDate,
    business_days: u32,
    /// The rates that were multiplied, or the exchange rates that were compared.
    observations: usize,
    #[serde(flatten)]
    outcome: AccumulatedResultBody,
    missing: Vec<NaiveDate>,
    missing_total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<Vec<FactorDetailBody>>,
}

/// The factors and the result are absent if a day has no value.
#[derive(Serialize)]
struct AccumulatedResultBody {
    percent: JsonNumber,
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<JsonNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index_factor: Option<JsonNumber<FixedDecimal>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spread_factor: Option<JsonNumber<FixedDecimal>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    factor: Option<JsonNumber<FixedDecimal>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change_percent: Option<JsonNumber<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<JsonNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<JsonNumber<FixedDecimal>>,
}

#[derive(Serialize)]
struct FactorDetailBody {
    date: NaiveDate,
    value: JsonNumber,
    factor: JsonNumber<String>,
}

/// The query parameters of all accumulations.
struct AccumulationParams {
    from: NaiveDate,
    to: Option<NaiveDate>,
    amount: Option<Decimal>,
    percent: Decimal,
    spread: Option<Decimal>,
    detail: bool,
    as_text: bool,
}

impl AccumulationParams {
    fn from_query(query: &QueryParams) -> Result<Self, Problem> {
        let from = query.required_date("from")?;
        let to = query.date("to")?;
        to.map(|to| ordered_date_range(from, to)).transpose()?;

        Ok(Self {
            from,
            to,
            amount: query.decimal("amount", AMOUNT_BOUNDS)?,
            percent: query.decimal("percent", PERCENT_BOUNDS)?.unwrap_or(Decimal::ONE_HUNDRED),
            spread: query.decimal("spread", SPREAD_BOUNDS)?,
            detail: query.flag("detail")?,
            as_text: query.numbers_as_text()?,
        })
    }

    fn json_number<T>(&self, value: T) -> JsonNumber<T> {
        JsonNumber { value, as_text: self.as_text }
    }

    fn detail_body(&self, date: NaiveDate, value: Decimal, factor: impl Display) -> FactorDetailBody {
        FactorDetailBody { date, value: self.json_number(value), factor: self.json_number(factor.to_string()) }
    }

    /// Combines the index factor with the spread and applies the result to the amount. A factor without a spread has
    /// eight decimals, one with a spread has nine.
    fn result_body(
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

pub fn handlers() -> Handlers {
    vec![
        ("accumulate_selic", get(accumulate_selic)),
        ("accumulate_cdi", get(accumulate_cdi)),
        ("accumulate_ipca", get(accumulate_ipca)),
        ("accumulate_fx", get(accumulate_fx)),
    ]
}

// Accumulates the daily rates, never the annual ones.
async fn accumulate_selic(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    accumulate_series(&caller, &app, &query, "selic-daily")
}

async fn accumulate_cdi(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    accumulate_series(&caller, &app, &query, "cdi-daily")
}

async fn accumulate_ipca(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    accumulate_series(&caller, &app, &query, "ipca")
}

fn accumulate_series(caller: &Caller, app: &App, query: &QueryParams, id: &str) -> Result<Response, ApiError> {
    let params = AccumulationParams::from_query(query)?;
    let snapshot = app.current_snapshot()?;
    let today = app.today();
    let source = series_source(&snapshot, id)?;
    let latest_date = source.latest_row_until(today).map(|at| source.values.get(at).0);
    let latest_date = latest_date.ok_or_else(|| source.no_data_error(today))?;

    let (from, to) = match source.frequency() {
        // Whole months, from the month of `from` up to and excluding the month of `to`.
        Frequency::Monthly => {
            let to = params.to.unwrap_or(latest_date + Months::new(1));
            (month_start(params.from), month_start(to).max(month_start(params.from)))
        }
        Frequency::Daily | Frequency::BusinessDaily => {
            (params.from, params.to.unwrap_or(latest_date + Days::new(1)).max(params.from))
        }
    };

    let days = (from < to).then(|| DateRange { from, to: to - Days::new(1) });
    let rows: Vec<DatedValue> =
        days.map_or(0..0, |days| source.row_range(days.capped_at(today))).map(|at| source.values.get(at)).collect();
    let expected = days.map(|days| source.frequency().expected_dates(days)).unwrap_or_default();
    let missing = missing_days(&expected, &rows);
    let business_days = Calendar::Settlement.count_business_days(from, to);

    let mut product = GrowthFactor::ONE;
    let mut detail = Vec::new();
    for (date, value) in &rows {
        let factor = GrowthFactor::from_rate(*value, params.percent).ok_or(FACTOR_TOO_LARGE)?;
        product = product.checked_mul(factor).ok_or(FACTOR_TOO_LARGE)?;
        if params.detail {
            detail.push(params.detail_body(*date, *value, factor));
        }
    }
    let index_factor = missing.is_empty().then(|| product.round_half_up(8));
    let outcome = params.result_body(index_factor, business_days)?;

    let responder = EtagResponder::new(caller, app, &snapshot, &source.datasets(), today);
    Ok(responder.respond_json(|| AccumulatedBody {
        series: source.describe(caller.lang),
        as_of: format_loaded_at(&snapshot, &source),
        from,
        to,
        business_days,
        observations: rows.len(),
        outcome,
        missing_total: missing.len(),
        missing: missing.into_iter().take(MAX_MISSING_LISTED).collect(),
        detail: params.detail.then_some(detail),
    }))
}

/// Compares the closing sell rates of two dates. A date without a close uses the last one before it.
async fn accumulate_fx(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let pair = query.currency_pair()?;
    let params = AccumulationParams::from_query(&query)?;
    let snapshot = app.current_snapshot()?;
    let today = app.today();
    let source = fx_source(&snapshot, pair)?;

    let close = |day: NaiveDate| source.latest_row_until(day.min(today)).and_then(|at| source.rates.get(at));
    let (latest_date, _) = close(today).ok_or_else(|| source.no_data_error(today))?;
    let from = params.from;
    let to = params.to.unwrap_or(latest_date).max(params.from);
    let first = close(from);
    let second = close(to);

    // Every settlement day must have a close of its own.
    let lacks_close = |(day, close): &(NaiveDate, Option<(NaiveDate, Quote)>)| {
        close.is_none_or(|(date, _)| date != *day && Calendar::Settlement.is_business_day(*day))
    };
    let mut missing: Vec<NaiveDate> =
        [(from, first), (to, second)].into_iter().filter(lacks_close).map(|(day, _)| day).collect();
    missing.dedup();

    let index_factor = match (first, second) {
        (Some((_, first)), Some((_, second))) if missing.is_empty() => Some(
            GrowthFactor::from_prices(first.sell, second.sell, params.percent)
                .ok_or(FACTOR_TOO_LARGE)?
                .round_half_up(8),
        ),
        _ => None,
    };
    let business_days = Calendar::Settlement.count_business_days(from, to);
    let outcome = params.result_body(index_factor, business_days)?;

    let first_date = first.map_or(from, |(date, _)| date);
    let rows: Vec<(NaiveDate, Quote)> = source
        .row_range(DateRange { from: first_date, to }.capped_at(today))
        .filter_map(|at| source.rates.get(at))
        .collect();

    let responder = EtagResponder::new(&caller, &app, &snapshot, &[Dataset::Fx], today);
    Ok(responder.respond_json(|| {
        let daily_factor = |pair: &[(NaiveDate, Quote)]| {
            let [(_, previous), (date, close)] = pair else { return None };
            let factor = GrowthFactor::from_prices(previous.sell, close.sell, Decimal::ONE_HUNDRED)?;
            Some(params.detail_body(*date, close.sell, factor))
        };
        AccumulatedBody {
            series: source.describe(caller.lang),
            as_of: format_loaded_at(&snapshot, &source),
            from,
            to,
            business_days,
            observations: rows.len(),
            outcome,
            missing_total: missing.len(),
            missing,
            detail: params.detail.then(|| rows.windows(2).filter_map(daily_factor).collect()),
        }
    }))
}

/// Far more than all inflation since 1980: only a `percent` of many times the rate reaches it.
const FACTOR_TOO_LARGE: Problem = Problem::BadParameter {
    name: "percent",
    requirement: LocalizedText::new(
        "be smaller for so long a time: the factor has more than 22 digits",
        "ser menor para um período tão longo: o fator tem mais de 22 dígitos",
    ),
};

/// The expected days without a value. Both lists must be sorted by date.
fn missing_days(expected: &[NaiveDate], rows: &[DatedValue]) -> Vec<NaiveDate> {
    let mut rows = rows.iter().map(|(date, _)| *date).peekable();
    let mut missing = Vec::new();
    for day in expected {
        while rows.next_if(|date| date < day).is_some() {}
        if rows.next_if(|date| date == day).is_none() {
            missing.push(*day);
        }
    }
    missing
}
