//! The time series of the central bank (SGS), as `api.bcb.gov.br` answers.

use std::fmt::Write;

use chrono::{Months, NaiveDate, NaiveDateTime};
use http::{StatusCode, header};

use super::answer::{Answer, HTML, JSON, parameters};
use super::market::{CDI_ANNUAL, IPCA_12_MONTHS, IPCA_MONTH, Market, Rows};

pub const PREFIX: &str = "/dados/serie/";

pub const VALUES_NOT_FOUND: &str = "br.gov.bcb.pec.sgs.comum.excecoes.SGSNegocioException: Value(s) not found";
const TOO_MANY_VALUES: &str =
    "br.gov.bcb.pec.sgs.comum.excecoes.SGSNegocioException: A quantidade máxima de valores deve ser 20";
const INVALID_INITIAL_DATE: &str = "br.gov.bcb.pec.sgs.comum.excecoes.SGSNegocioException: Invalid initial date";
/// Not seen, but for its sibling above.
const INVALID_FINAL_DATE: &str = "br.gov.bcb.pec.sgs.comum.excecoes.SGSNegocioException: Invalid final date";

/// Other than everywhere else its envelope is `error`, not `erro`.
pub const WINDOW_TOO_WIDE: &str = concat!(
    r#"{"error":"O sistema aceita uma janela de consulta de, no máximo, 10 anos em séries de periodicidade diária","#,
    r#""message":"A consulta a séries diárias exige dataInicial e dataFinal, com no máximo 10 anos entre elas","#,
    r#""syntax":"/dados/serie/bcdata.sgs.{codigo}/dados?formato=json&dataInicial=dd/MM/aaaa&dataFinal=dd/MM/aaaa"}"#
);

/// What it shows, with 200, for unknown codes and when its own backend does not answer in time.
pub const INVALID_REQUEST_PAGE: &str = concat!(
    r#"<?xml version="1.0" encoding="pt-br"?> <!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "#,
    r#""http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd"> <html xmlns="http://www.w3.org/1999/xhtml" lang="pt-br">"#,
    "<head><title>Requisição inválida!</title></head>",
    "<body><h1>Requisição inválida!</h1><p>A requisição não pôde ser atendida.</p></body></html>"
);

/// For every periodicity.
const MOST_LAST_VALUES: usize = 20;

/// `rows` are those of the market with what a test has changed, as published at `now`.
pub fn answer(path: &str, query: &str, now: NaiveDateTime, rows: impl Fn(u32) -> Option<Rows>) -> Answer {
    let Some((code, rest)) = code_and_rest(path) else {
        return Answer::new(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "endpoint not found!");
    };
    let rows = code.parse().ok().and_then(|code: u32| Some((code, rows(code)?)));
    let Some((code, rows)) = rows else { return Answer::new(StatusCode::OK, HTML, INVALID_REQUEST_PAGE) };
    let parameters = parameters(query);
    let parameter = |name: &str| parameters.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str());
    let chosen = match rest.strip_prefix("ultimos/") {
        Some(count) => last_values(code, &rows, count),
        None => window(code, &rows, parameter("dataInicial"), parameter("dataFinal"), now.date()),
    };
    match chosen {
        Err(refusal) => refusal,
        Ok(rows) if rows.is_empty() => not_found(),
        Ok(rows) if parameter("formato") == Some("csv") => fresh(Answer::new(StatusCode::OK, "text/csv", csv(&rows))),
        Ok(rows) => fresh(Answer::new(StatusCode::OK, JSON, json(&rows))),
    }
}

pub fn not_found() -> Answer {
    refusal(StatusCode::NOT_FOUND, VALUES_NOT_FOUND)
}

/// The rows of one series that are published at `now`.
pub fn published(market: &Market, code: u32, now: NaiveDateTime) -> Option<Rows> {
    let until = market.published_until(code, now);
    Some(market.rows(code)?.range(..=until).map(|(date, value)| (*date, value.clone())).collect())
}

/// `bcdata.sgs.432/dados/ultimos/5` is series 432 and `ultimos/5`.
fn code_and_rest(path: &str) -> Option<(&str, &str)> {
    let (code, rest) = path.strip_prefix(PREFIX)?.strip_prefix("bcdata.sgs.")?.split_once("/dados")?;
    let rest = rest.trim_matches('/');
    (rest.is_empty() || rest.starts_with("ultimos/")).then_some((code, rest))
}

type Chosen<'a> = Vec<(NaiveDate, &'a str)>;

fn last_values<'a>(code: u32, rows: &'a Rows, count: &str) -> Result<Chosen<'a>, Answer> {
    let count = count.parse().ok().filter(|count| (1..=MOST_LAST_VALUES).contains(count));
    let Some(count) = count else { return Err(refusal(StatusCode::BAD_REQUEST, TOO_MANY_VALUES)) };
    let mut chosen: Chosen = rows.iter().rev().take(count).map(|(date, value)| (*date, value.as_str())).collect();
    // Their order is not guaranteed; this one is known to come with the newest first.
    if code != CDI_ANNUAL {
        chosen.reverse();
    }
    Ok(chosen)
}

fn window<'a>(
    code: u32,
    rows: &'a Rows,
    from: Option<&str>,
    to: Option<&str>,
    today: NaiveDate,
) -> Result<Chosen<'a>, Answer> {
    let day = |text: &str, detail| {
        NaiveDate::parse_from_str(text, "%d/%m/%Y").map_err(|_| refusal(StatusCode::BAD_REQUEST, detail))
    };
    let to = to.map_or(Ok(today), |text| day(text, INVALID_FINAL_DATE))?;
    let from = from.map(|text| day(text, INVALID_INITIAL_DATE)).transpose()?;
    let is_daily = !matches!(code, IPCA_MONTH | IPCA_12_MONTHS);
    // Ten years to the day pass. Without a first day the window begins with the series, always longer ago.
    let is_too_wide = from.is_none_or(|from| from + Months::new(120) < to);
    if is_daily && is_too_wide {
        return Err(Answer::new(StatusCode::NOT_ACCEPTABLE, JSON, WINDOW_TOO_WIDE));
    }
    let within = |date: NaiveDate| from.is_none_or(|from| from <= date) && date <= to;
    Ok(rows.iter().filter(|(date, _)| within(**date)).map(|(date, value)| (*date, value.as_str())).collect())
}

fn refusal(status: StatusCode, detail: &str) -> Answer {
    let body = format!(r#"{{"erro":{{"statusCode":{},"detail":"{detail}"}}}}"#, status.as_u16());
    Answer::new(status, JSON, body)
}

fn fresh(answer: Answer) -> Answer {
    answer.with(header::CACHE_CONTROL, "max-age=900")
}

fn json(rows: &Chosen) -> String {
    let mut body = String::with_capacity(40 * rows.len());
    for (date, value) in rows {
        let before = if body.is_empty() { '[' } else { ',' };
        let _ = write!(body, r#"{before}{{"data":"{}","valor":"{value}"}}"#, date.format("%d/%m/%Y"));
    }
    body + "]"
}

fn csv(rows: &Chosen) -> String {
    let mut body = String::from("\"data\";\"valor\"\r\n");
    for (date, value) in rows {
        let _ = write!(body, "\"{}\";\"{}\"\r\n", date.format("%d/%m/%Y"), value.replace('.', ","));
    }
    body
}
