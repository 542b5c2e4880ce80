//! The central bank's time series (SGS), as `api.bcb.gov.br` serves them.

use std::fmt::Write;

use chrono::{Months, NaiveDate, NaiveDateTime};
use http::{StatusCode, header};

use super::fake_response::{FakeResponse, HTML_CONTENT_TYPE, JSON_CONTENT_TYPE, parse_query};
use super::market_data::CDI_ANNUAL;
use super::plain_series::{find_by_code, period_ends};
use super::series_rows::SeriesRows;

pub const PATH_PREFIX: &str = "/dados/serie/";

pub const VALUES_NOT_FOUND_DETAIL: &str = "br.gov.bcb.pec.sgs.comum.excecoes.SGSNegocioException: Value(s) not found";
const TOO_MANY_VALUES_DETAIL: &str =
    "br.gov.bcb.pec.sgs.comum.excecoes.SGSNegocioException: A quantidade máxima de valores deve ser 20";
const INVALID_INITIAL_DATE_DETAIL: &str = "br.gov.bcb.pec.sgs.comum.excecoes.SGSNegocioException: Invalid initial date";
/// Never observed; inferred from the message for the initial date.
const INVALID_FINAL_DATE_DETAIL: &str = "br.gov.bcb.pec.sgs.comum.excecoes.SGSNegocioException: Invalid final date";

/// Unlike all other errors, this one uses `error` and not `erro`.
pub const WINDOW_TOO_WIDE_BODY: &str = concat!(
    r#"{"error":"O sistema aceita uma janela de consulta de, no máximo, 10 anos em séries de periodicidade diária","#,
    r#""message":"A consulta a séries diárias exige dataInicial e dataFinal, com no máximo 10 anos entre elas","#,
    r#""syntax":"/dados/serie/bcdata.sgs.{codigo}/dados?formato=json&dataInicial=dd/MM/aaaa&dataFinal=dd/MM/aaaa"}"#
);

/// Sent with status 200 for unknown codes and when the service's own backend times out.
pub const INVALID_REQUEST_PAGE: &str = concat!(
    r#"<?xml version="1.0" encoding="pt-br"?> <!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "#,
    r#""http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd"> <html xmlns="http://www.w3.org/1999/xhtml" lang="pt-br">"#,
    "<head><title>Requisição inválida!</title></head>",
    "<body><h1>Requisição inválida!</h1><p>A requisição não pôde ser atendida.</p></body></html>"
);

/// Applies to every periodicity.
const MAX_LAST_VALUES: usize = 20;

/// `rows` returns a series as published at `now`, including the test's changes.
pub fn respond(path: &str, query: &str, now: NaiveDateTime, rows: impl Fn(u32) -> Option<SeriesRows>) -> FakeResponse {
    let Some((code, rest)) = parse_path(path) else {
        return FakeResponse::new(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "endpoint not found!");
    };
    let code_and_rows = code.parse().ok().and_then(|code: u32| Some((code, rows(code)?)));
    let Some((code, rows)) = code_and_rows else {
        return FakeResponse::new(StatusCode::OK, HTML_CONTENT_TYPE, INVALID_REQUEST_PAGE);
    };

    let parameters = parse_query(query);
    let parameter = |name: &str| parameters.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
    let selected = match rest.strip_prefix("ultimos/") {
        Some(count) => select_last_rows(code, &rows, count),
        None => select_window(code, &rows, parameter("dataInicial"), parameter("dataFinal"), now.date()),
    };

    match selected {
        Err(error) => error,
        Ok(rows) if rows.is_empty() => values_not_found_response(),
        Ok(rows) if parameter("formato") == Some("csv") => {
            with_cache_control(FakeResponse::new(StatusCode::OK, "text/csv", render_csv(&rows)))
        }
        Ok(rows) => with_cache_control(FakeResponse::new(StatusCode::OK, JSON_CONTENT_TYPE, render_json(code, &rows))),
    }
}

pub fn values_not_found_response() -> FakeResponse {
    error_response(StatusCode::NOT_FOUND, VALUES_NOT_FOUND_DETAIL)
}

/// Splits `bcdata.sgs.432/dados/ultimos/5` into `432` and `ultimos/5`.
fn parse_path(path: &str) -> Option<(&str, &str)> {
    let (code, rest) = path.strip_prefix(PATH_PREFIX)?.strip_prefix("bcdata.sgs.")?.split_once("/dados")?;
    let rest = rest.trim_matches('/');
    (rest.is_empty() || rest.starts_with("ultimos/")).then_some((code, rest))
}

type SelectedRows<'a> = Vec<(NaiveDate, &'a str)>;

fn select_last_rows<'a>(code: u32, rows: &'a SeriesRows, count: &str) -> Result<SelectedRows<'a>, FakeResponse> {
    let count = count.parse().ok().filter(|count| (1..=MAX_LAST_VALUES).contains(count));
    let Some(count) = count else { return Err(error_response(StatusCode::BAD_REQUEST, TOO_MANY_VALUES_DETAIL)) };
    let mut selected: SelectedRows =
        rows.iter().rev().take(count).map(|(date, value)| (*date, value.as_str())).collect();
    // The real service guarantees no order; this series is known to come newest first.
    if code != CDI_ANNUAL {
        selected.reverse();
    }
    Ok(selected)
}

fn select_window<'a>(
    code: u32,
    rows: &'a SeriesRows,
    from: Option<&str>,
    to: Option<&str>,
    today: NaiveDate,
) -> Result<SelectedRows<'a>, FakeResponse> {
    let parse_day = |text: &str, detail| {
        NaiveDate::parse_from_str(text, "%d/%m/%Y").map_err(|_| error_response(StatusCode::BAD_REQUEST, detail))
    };
    let to = to.map_or(Ok(today), |text| parse_day(text, INVALID_FINAL_DATE_DETAIL))?;
    let from = from.map(|text| parse_day(text, INVALID_INITIAL_DATE_DETAIL)).transpose()?;

    let is_daily = find_by_code(code).is_none_or(|series| series.frequency.months().is_none());
    // Exactly ten years are allowed. Without a first day the window starts with the series, which is always older.
    let is_too_wide = from.is_none_or(|from| from + Months::new(120) < to);
    if is_daily && is_too_wide {
        return Err(FakeResponse::new(StatusCode::NOT_ACCEPTABLE, JSON_CONTENT_TYPE, WINDOW_TOO_WIDE_BODY));
    }

    let is_in_window = |date: NaiveDate| from.is_none_or(|from| from <= date) && date <= to;
    Ok(rows.iter().filter(|(date, _)| is_in_window(**date)).map(|(date, value)| (*date, value.as_str())).collect())
}

fn error_response(status: StatusCode, detail: &str) -> FakeResponse {
    let body = format!(r#"{{"erro":{{"statusCode":{},"detail":"{detail}"}}}}"#, status.as_u16());
    FakeResponse::new(status, JSON_CONTENT_TYPE, body)
}

fn with_cache_control(response: FakeResponse) -> FakeResponse {
    response.with_header(header::CACHE_CONTROL, "max-age=900")
}

fn render_json(code: u32, rows: &SelectedRows) -> String {
    let mut body = String::with_capacity(40 * rows.len());
    for (date, value) in rows {
        let day = date.format("%d/%m/%Y");
        let ends: Vec<String> = period_ends(code, *date)
            .into_iter()
            .map(|end| format!(r#""dataFim":"{}","#, end.format("%d/%m/%Y")))
            .collect();
        let ends = if ends.is_empty() { vec![String::new()] } else { ends };
        for (at, end) in ends.iter().enumerate() {
            let separator = if body.is_empty() { '[' } else { ',' };
            // The shorter of two periods has a lower rate.
            let value = if at + 1 == ends.len() { value } else { "0.0001" };
            let _ = write!(body, r#"{separator}{{"data":"{day}",{end}"valor":"{value}"}}"#);
        }
    }
    body + "]"
}

fn render_csv(rows: &SelectedRows) -> String {
    let mut body = String::from("\"data\";\"valor\"\r\n");
    for (date, value) in rows {
        let _ = write!(body, "\"{}\";\"{}\"\r\n", date.format("%d/%m/%Y"), value.replace('.', ","));
    }
    body
}
