//! The JSON of an accumulation.

use chrono::NaiveDate;
use serde::Serialize;
use vintem_domain::Lang;
use vintem_domain::accumulation::FixedDecimal;
use vintem_domain::series::DatedValue;

use crate::bodies::market::SeriesHeaderBody;
use crate::json_number::JsonNumber;

#[derive(Serialize)]
pub struct AccumulatedBody {
    #[serde(flatten)]
    pub series: SeriesHeaderBody,
    pub as_of: String,
    pub from: NaiveDate,
    /// The first day that is not included; for exchange rates, the day of the second rate.
    pub to: NaiveDate,
    /// Whether `to` is included.
    pub interval: &'static str,
    #[serde(flatten)]
    pub counted: CountedBody,
    /// Whether there is a value for all of the period.
    pub complete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub business_days: u32,
    /// The rates that were multiplied, or the exchange rates that were compared.
    pub observations: usize,
    #[serde(flatten)]
    pub outcome: AccumulatedResultBody,
    pub missing: Vec<NaiveDate>,
    pub missing_total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Vec<FactorDetailBody>>,
}

/// The counted days or months. The dates are absent if nothing was counted.
#[derive(Serialize)]
pub struct CountedBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_counted: Option<NaiveDate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_counted: Option<NaiveDate>,
    /// For daily rates and exchange rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub days: Option<usize>,
    /// For monthly rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub months: Option<usize>,
}

impl CountedBody {
    pub fn of_rows(rows: &[DatedValue], is_monthly: bool) -> Self {
        Self {
            first_counted: rows.first().map(|(date, _)| *date),
            last_counted: rows.last().map(|(date, _)| *date),
            days: (!is_monthly).then_some(rows.len()),
            months: is_monthly.then_some(rows.len()),
        }
    }
}

/// The factors and the result are absent if a day has no value.
#[derive(Serialize)]
pub struct AccumulatedResultBody {
    pub percent: JsonNumber,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<JsonNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_factor: Option<JsonNumber<FixedDecimal>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_factor: Option<JsonNumber<FixedDecimal>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<JsonNumber<FixedDecimal>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_percent: Option<JsonNumber<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<JsonNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<JsonNumber<FixedDecimal>>,
}

#[derive(Serialize)]
pub struct FactorDetailBody {
    pub date: NaiveDate,
    pub value: JsonNumber,
    pub factor: JsonNumber<String>,
}

/// The notes about the counted days, if there are any.
pub fn describe_counting(
    counted: &CountedBody,
    is_complete: bool,
    excluded_day: Option<NaiveDate>,
    lang: Lang,
) -> Option<String> {
    let incomplete = (!is_complete).then(|| incomplete_message(counted.last_counted, lang));
    let excluded = excluded_day.map(|day| excluded_day_message(day, lang));
    let messages: Vec<String> = incomplete.into_iter().chain(excluded).collect();
    (!messages.is_empty()).then(|| messages.join(" "))
}

/// Says that the period reaches past the newest value.
pub fn incomplete_message(last_counted: Option<NaiveDate>, lang: Lang) -> String {
    match (last_counted, lang) {
        (Some(day), Lang::En) => {
            format!("The period extends past the newest value; the factor covers values up to {day}.")
        }
        (Some(day), Lang::Pt) => {
            format!("O período vai além do valor mais recente; o fator considera os valores até {day}.")
        }
        (None, Lang::En) => "The period begins after the newest value, so there is no factor yet.".to_owned(),
        (None, Lang::Pt) => "O período começa depois do valor mais recente; ainda não há fator.".to_owned(),
    }
}

/// Says that the last business day of a month, given as `to`, is not counted.
fn excluded_day_message(day: NaiveDate, lang: Lang) -> String {
    let month = day.format("%Y-%m");
    let year = day.format("%Y");
    match lang {
        Lang::En => format!(
            "{day} is not counted, because the period excludes `to`. To include the whole month, use `to={month}`; for the whole year, use `year={year}`."
        ),
        Lang::Pt => format!(
            "O dia {day} não entra no cálculo, porque o período exclui `to`. Para incluir o mês inteiro, use `to={month}`; para o ano inteiro, use `year={year}`."
        ),
    }
}
