//! Parser for the central bank's time series (SGS): classifies a response and parses its observations.
//!
//! Neither the status nor the content type can be trusted. Data may be labeled as HTML, an HTML page may have status
//! 200, and a window without observations is a 404. So only a JSON array is data, only one particular 404 means that
//! there is no data, and everything else is an error, never a value.

use chrono::NaiveDate;
use serde_json::value::RawValue;
use vintem_domain::Decimal;
use vintem_domain::dates::{MAX_DATE, MIN_DATE};
use vintem_store::load::Observation;

use super::dates::parse_brazilian_date;
use super::decimal::parse_exact_decimal;
use super::json::{JsonObject, checked_body_text, parse_array};
use super::text::{collapse_whitespace, decode_latin1, quote_truncated};
use super::{BadRow, BadRowKind, FormatAlert, FormatError, ParsedRows, RowError};

/// The whole history of a daily series is a tenth of this.
const MAX_BODY_BYTES: usize = 4 << 20;

const KNOWN_KEYS: [&str; 2] = ["data", "valor"];
/// The last day of a rate that covers a period. Clients have met both spellings: `dataFim` in saved responses of 2025
/// and 2026 (github.com/fabiobarretoadvogado/CalculosJuridicos), `datafim` in github.com/wilsonfreitas/python-bcb.
const PERIOD_END_KEY: &str = "datafim";

/// A response with a known meaning.
#[derive(Debug, PartialEq, Eq)]
pub enum SgsResponse {
    /// Oldest first, each day once.
    Rows(ParsedRows<Observation>),
    /// The window has no observations, which is normal.
    Empty,
    /// The API returns at most ten years of a daily series at once: request a shorter window.
    WindowTooWide,
}

/// Whether to retry after an unusable response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SgsError {
    /// A temporary problem of the upstream.
    #[error("{0}; worth another try")]
    Retry(String),
    /// The same request would get the same response.
    #[error("{0}; asking again would not help")]
    GiveUp(String),
}

/// Classifies a response by its status and body.
pub fn parse_response(status: u16, body: &[u8]) -> Result<SgsResponse, SgsError> {
    match status {
        404 if contains_text(body, "Value(s) not found") => Ok(SgsResponse::Empty),
        406 => Ok(SgsResponse::WindowTooWide),
        // This error sometimes comes with status 200.
        200 if is_json_object(body) && contains_text(body, "\"error\"") && contains_text(body, "10 anos") => {
            Ok(SgsResponse::WindowTooWide)
        }
        200 => parse_body(body).map(SgsResponse::Rows),
        400 => Err(SgsError::GiveUp(format!("the request was rejected as invalid: {}", body_excerpt(body)))),
        _ => Err(SgsError::Retry(format!("the answer has status {status}: {}", body_excerpt(body)))),
    }
}

fn parse_body(body: &[u8]) -> Result<ParsedRows<Observation>, SgsError> {
    let text = checked_body_text(body, "a JSON array", MAX_BODY_BYTES).map_err(|error| match error {
        FormatError::TooLarge { .. } => SgsError::GiveUp(error.to_string()),
        _ => SgsError::Retry(error.to_string()),
    })?;
    if !text.starts_with('[') {
        return Err(SgsError::Retry(format!("the answer is not a JSON array: {}", body_excerpt(body))));
    }

    let elements = parse_array(text).map_err(SgsError::Retry)?;
    parse_observations(&elements).map_err(|error| SgsError::GiveUp(error.to_string()))
}

fn parse_observations(elements: &[&RawValue]) -> Result<ParsedRows<Observation>, FormatError> {
    let mut parsed = ParsedRows::new(Vec::new());
    parsed.total = elements.len() as u64;

    let mut observations: Vec<(u64, &str, Observation)> = Vec::with_capacity(elements.len());
    for (line, element) in (1u64..).zip(elements) {
        match parse_observation(element.get(), &mut parsed.alerts) {
            Ok(observation) => observations.push((line, element.get(), observation)),
            Err(reason) => parsed.push_bad_row(BadRow::new(line, element.get(), reason))?,
        }
    }

    // The sort is stable, so that the first of equal rows stays.
    observations.sort_by_key(|(_, _, observation)| observation.date);
    for same_day in observations.chunk_by(|(_, _, left), (_, _, right)| left.date == right.date) {
        // The TR of some days is given twice: until the last day of the month, and until the 1st of the next. The longer
        // period is the month's rate; the shorter one is left out.
        let longest = same_day.iter().map(|(_, _, row)| row.period_end).max().flatten();
        let mut of_longest = same_day.iter().filter(|(_, _, row)| row.period_end == longest);
        let Some((_, _, first)) = of_longest.next() else { continue };
        if of_longest.clone().all(|(_, _, other)| is_same_decimal_text(first.value, other.value)) {
            parsed.rows.push(*first);
            parsed.merged += same_day.len() as u64 - 1;
            continue;
        }
        for (line, text, _) in same_day {
            let reason = format!("{} has more than one value", first.date);
            parsed.push_bad_row(BadRow::new(*line, text, RowError { kind: BadRowKind::Contradiction, reason }))?;
        }
    }

    parsed.bad_rows.sort_by_key(|bad| bad.line);
    Ok(parsed)
}

fn parse_observation(element: &str, alerts: &mut Vec<FormatAlert>) -> Result<Observation, String> {
    let fields = JsonObject::parse(element)?;
    let date = parse_date(&fields.string_value("data")?)?;
    // A number instead of a string is rejected although it could be parsed: if the upstream wrote 15 for "15.00", we
    // would store a revision of every value.
    let valor = fields.string_value("valor")?;
    let value = parse_exact_decimal(&valor).map_err(|error| format!("valor {} {error}", quote_truncated(&valor)))?;

    let is_period_end = |key: &str| key.eq_ignore_ascii_case(PERIOD_END_KEY);
    let period_end_key = fields.keys().find(|key| is_period_end(key));
    let period_end = match period_end_key {
        Some(key) => Some(parse_date(&fields.string_value(key)?)?),
        None => None,
    };
    if period_end.is_some_and(|end| end <= date) {
        return Err(format!("its period does not end after {date}"));
    }

    let is_known = |key: &str| KNOWN_KEYS.contains(&key) || is_period_end(key);
    let additional: Vec<String> = fields.keys().filter(|key| !is_known(key)).map(quote_truncated).collect();
    // The first row is enough for an alert: the others have the same keys.
    if !additional.is_empty() && alerts.is_empty() {
        alerts.push(FormatAlert::AdditionalColumns(additional));
    }

    Ok(Observation { period_end, ..Observation::new(date, value) })
}

fn parse_date(text: &str) -> Result<NaiveDate, String> {
    let date = parse_brazilian_date(text)
        .ok_or_else(|| format!("data {} is not a date as dd/MM/yyyy", quote_truncated(text)))?;
    if !(MIN_DATE..=MAX_DATE).contains(&date) {
        return Err(format!("data {text:?} is outside the supported dates"));
    }
    Ok(date)
}

/// Equal in value and scale: 15.0 and 15.00 are served differently.
fn is_same_decimal_text(left: Decimal, right: Decimal) -> bool {
    left == right && left.scale() == right.scale()
}

fn is_json_object(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    body.trim_ascii_start().starts_with(b"{")
}

/// Searches the bytes, because the encoding of an error response is unknown.
fn contains_text(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|window| window == text.as_bytes())
}

fn body_excerpt(body: &[u8]) -> String {
    let start = &body[..body.len().min(300)];
    match std::str::from_utf8(start) {
        _ if start.is_empty() => "without a body".to_owned(),
        Ok(text) => quote_truncated(&collapse_whitespace(text)),
        Err(_) => quote_truncated(&collapse_whitespace(&decode_latin1(start))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOT_FOUND_BODY: &[u8] =
        br#"{"erro":{"statusCode":404,"detail":"br.gov.bcb.SGSNegocioException: Value(s) not found"}}"#;
    const WINDOW_TOO_WIDE_BODY: &str =
        r#"{"error":"O sistema aceita uma janela de, no máximo, 10 anos","message":"x","syntax":"y"}"#;
    const HTML_PAGE: &str =
        r#"<?xml version="1.0" encoding="pt-br"?> <!DOCTYPE html><html><title>Requisição inválida!</title></html>"#;

    fn parse_ok(body: &str) -> ParsedRows<Observation> {
        match parse_response(200, body.as_bytes()).unwrap() {
            SgsResponse::Rows(parsed) => parsed,
            other => panic!("{other:?}"),
        }
    }

    /// A JSON array of these dates and values.
    fn json_array(rows: &[(&str, &str)]) -> String {
        let rows: Vec<String> =
            rows.iter().map(|(data, valor)| format!(r#"{{"data":"{data}","valor":"{valor}"}}"#)).collect();
        format!("[{}]", rows.join(","))
    }

    fn format_rows(parsed: &ParsedRows<Observation>) -> Vec<String> {
        parsed.rows.iter().map(|row| format!("{} {}", row.date, row.value)).collect()
    }

    #[test]
    fn values_keep_their_exact_digits() {
        let parsed =
            parse_ok(&json_array(&[("01/06/2025", "15.00"), ("02/06/2025", "0.053400"), ("03/06/2025", "-0.23")]));
        assert_eq!(format_rows(&parsed), ["2025-06-01 15.00", "2025-06-02 0.053400", "2025-06-03 -0.23"]);
        assert!(parsed.bad_rows.is_empty() && parsed.alerts.is_empty() && parsed.total == 3);
    }

    #[test]
    fn a_byte_order_mark_and_white_space_are_ignored() {
        let parsed = parse_ok("\u{feff} \n[{\"data\":\"01/06/2025\",\"valor\":\"14.75\"}]\r\n");
        assert_eq!(format_rows(&parsed), ["2025-06-01 14.75"]);
    }

    #[test]
    fn only_the_known_404_body_means_no_data() {
        assert_eq!(parse_response(404, NOT_FOUND_BODY), Ok(SgsResponse::Empty));
        for body in [&b""[..], br#"{"message":"endpoint not found!"}"#, HTML_PAGE.as_bytes()] {
            assert!(matches!(parse_response(404, body), Err(SgsError::Retry(_))));
        }
        // With another status the same body is an error.
        assert!(matches!(parse_response(200, NOT_FOUND_BODY), Err(SgsError::Retry(_))));
        assert!(matches!(parse_response(500, NOT_FOUND_BODY), Err(SgsError::Retry(_))));
    }

    #[test]
    fn a_window_too_wide_is_not_a_server_error() {
        assert_eq!(parse_response(406, WINDOW_TOO_WIDE_BODY.as_bytes()), Ok(SgsResponse::WindowTooWide));
        assert_eq!(parse_response(406, b""), Ok(SgsResponse::WindowTooWide));
        assert_eq!(parse_response(200, WINDOW_TOO_WIDE_BODY.as_bytes()), Ok(SgsResponse::WindowTooWide));

        let latin_1: Vec<u8> = WINDOW_TOO_WIDE_BODY.chars().map(|character| u8::try_from(character).unwrap()).collect();
        assert_eq!(parse_response(200, &latin_1), Ok(SgsResponse::WindowTooWide));
        assert!(matches!(parse_response(200, br#"{"error":"another one"}"#), Err(SgsError::Retry(_))));

        // The same words inside an array are data.
        let parsed = parse_ok(r#"[{"data":"01/06/2025","valor":"1","error":"10 anos"}]"#);
        assert_eq!(format_rows(&parsed), ["2025-06-01 1"]);
    }

    #[test]
    fn server_errors_are_retried_and_bad_requests_are_not() {
        let error = parse_response(200, HTML_PAGE.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with("it should be a JSON array, but it is a page: \"<?xml"), "{error}");
        assert!(matches!(error, SgsError::Retry(_)));

        for status in [301, 403, 429, 500, 502, 503, 504] {
            assert!(matches!(parse_response(status, HTML_PAGE.as_bytes()), Err(SgsError::Retry(_))), "{status}");
        }

        for body in ["", "   ", "null", "{}", "14.75", "[", r#"[{"data":"01/06/2025","valor":"14.75"}"#] {
            assert!(matches!(parse_response(200, body.as_bytes()), Err(SgsError::Retry(_))), "{body}");
        }

        let bad_request = br#"{"erro":{"statusCode":400,"detail":"SGSNegocioException: Invalid initial date"}}"#;
        assert!(matches!(parse_response(400, bad_request), Err(SgsError::GiveUp(_))));
        let too_large = vec![b' '; MAX_BODY_BYTES + 1];
        assert!(matches!(parse_response(200, &too_large), Err(SgsError::GiveUp(_))));
    }

    #[test]
    fn an_empty_array_has_no_rows() {
        assert_eq!(parse_ok("[]").total, 0);
    }

    #[test]
    fn rows_are_sorted_and_duplicates_are_merged() {
        let parsed = parse_ok(&json_array(&[("03/06/2025", "1.0"), ("01/06/2025", "2.0"), ("03/06/2025", "1.0")]));
        assert_eq!(format_rows(&parsed), ["2025-06-01 2.0", "2025-06-03 1.0"]);
        assert_eq!((parsed.total, parsed.merged, parsed.bad_rows.len()), (3, 1, 0));
    }

    #[test]
    fn a_day_with_conflicting_values_is_rejected() {
        let parsed = parse_ok(&json_array(&[("01/06/2025", "1.0"), ("02/06/2025", "2.0"), ("01/06/2025", "1.00")]));
        assert_eq!(format_rows(&parsed), ["2025-06-02 2.0"]);
        let bad: Vec<(u64, &str)> = parsed.bad_rows.iter().map(|bad| (bad.line, bad.reason.as_str())).collect();
        assert_eq!(bad, [(1, "2025-06-01 has more than one value"), (3, "2025-06-01 has more than one value")]);
        assert_eq!(parsed.bad_rows[0].text, r#"{"data":"01/06/2025","valor":"1.0"}"#);
    }

    #[test]
    fn one_bad_row_does_not_affect_the_others() {
        for (row, reason) in [
            (r#"{"data":"02/06/2025","valor":null}"#, "valor is \"null\", not a string"),
            (r#"{"data":"02/06/2025","valor":""}"#, "valor \"\" is empty"),
            (r#"{"data":"02/06/2025","valor":14.75}"#, "valor is \"14.75\", not a string"),
            (r#"{"data":"02/06/2025","valor":"14,75"}"#, "valor \"14,75\" is not a plain decimal number with a point"),
            (r#"{"data":"02/06/2025","valor":"NaN"}"#, "valor \"NaN\" is not a plain decimal number with a point"),
            (r#"{"data":"02/06/2025","valor":"1e308"}"#, "valor \"1e308\" is not a plain decimal number with a point"),
            (
                r#"{"data":"02/06/2025","valor":"1.1234567890123"}"#,
                "valor \"1.1234567890123\" has more than 12 decimals",
            ),
            (r#"{"data":"2025-06-02","valor":"1"}"#, "data \"2025-06-02\" is not a date as dd/MM/yyyy"),
            (r#"{"data":"31/02/2025","valor":"1"}"#, "data \"31/02/2025\" is not a date as dd/MM/yyyy"),
            (r#"{"data":"31/12/1899","valor":"1"}"#, "data \"31/12/1899\" is outside the supported dates"),
            (r#"{"valor":"1"}"#, "it has no data"),
            (r#"{"data":"02/06/2025"}"#, "it has no valor"),
            (r#"{"data":"02/06/2025","valor":"1","valor":"2"}"#, "it has valor twice"),
        ] {
            let parsed = parse_ok(&format!(r#"[{{"data":"01/06/2025","valor":"1"}},{row}]"#));
            assert_eq!(format_rows(&parsed), ["2025-06-01 1"]);
            assert_eq!(parsed.bad_rows, [BadRow::new(2, row, reason.to_owned())]);
        }
        assert_eq!(parse_ok("[7,[],null]").bad_rows.len(), 3);
    }

    #[test]
    fn an_unknown_key_is_reported_once() {
        let parsed =
            parse_ok(r#"[{"data":"01/06/2025","valor":"1","nota":"x"},{"data":"02/06/2025","valor":"1","nota":"x"}]"#);
        assert_eq!(parsed.alerts, [FormatAlert::AdditionalColumns(vec!["\"nota\"".to_owned()])]);
        assert_eq!(parsed.rows.len(), 2);
    }

    #[test]
    fn a_rate_of_a_period_names_its_last_day() {
        for key in ["dataFim", "datafim"] {
            let body = format!(r#"[{{"data":"09/12/2021","{key}":"09/01/2022","valor":"0.5655"}}]"#);
            let parsed = parse_ok(&body);
            assert_eq!(parsed.rows[0].period_end.map(|end| end.to_string()).as_deref(), Some("2022-01-09"));
            assert!(parsed.alerts.is_empty());
        }
        for end in ["09/12/2021", "x", ""] {
            let body = format!(r#"[{{"data":"09/12/2021","dataFim":"{end}","valor":"0.5655"}}]"#);
            assert_eq!(parse_ok(&body).bad_rows.len(), 1, "{end}");
        }
    }

    #[test]
    fn of_two_periods_that_begin_on_a_day_the_longer_one_counts() {
        // The TR of October 2024, as saved in github.com/janjo1413/selicmvpfinal.
        let parsed = parse_ok(
            r#"[{"data":"01/10/2024","dataFim":"31/10/2024","valor":"0.0741"},
                {"data":"01/10/2024","dataFim":"01/11/2024","valor":"0.0977"}]"#,
        );
        assert_eq!(format_rows(&parsed), ["2024-10-01 0.0977"]);
        assert_eq!((parsed.merged, parsed.bad_rows.len()), (1, 0));
    }

    #[test]
    fn an_array_without_valid_rows_is_not_retried() {
        let body = format!("[{}0]", "0,".repeat(2_000));
        assert!(matches!(parse_response(200, body.as_bytes()), Err(SgsError::GiveUp(_))));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(status in 0u16..600, body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_response(status, &body);
        }

        #[test]
        fn every_row_is_accounted_for(
            rows in proptest::collection::vec(("(0[1-3]/01/2020|x)", "([1-2]\\.0|)"), 0..12),
        ) {
            let rows: Vec<(&str, &str)> = rows.iter().map(|(data, valor)| (data.as_str(), valor.as_str())).collect();
            let parsed = parse_ok(&json_array(&rows));
            prop_assert_eq!(parsed.total, parsed.rows.len() as u64 + parsed.bad_rows.len() as u64 + parsed.merged);
            prop_assert!(parsed.rows.is_sorted_by(|a, b| a.date < b.date));
        }
    }
}
