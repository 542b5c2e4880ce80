//! The central bank's time series (SGS): what an answer means, and the observations in it.
//!
//! Neither its status nor its content type can be trusted. Data may come labelled as HTML, a page of HTML may come
//! with status 200, and a window without observations is a 404. So only a JSON array is data, only one particular 404
//! is emptiness, and all else is somebody's trouble and never a value.

use chrono::NaiveDate;
use serde_json::value::RawValue;
use vintem_domain::Decimal;
use vintem_domain::dates::{FIRST_DAY, LAST_DAY};
use vintem_store::load::Observation;

use super::day::brazilian_day;
use super::decimal::exact;
use super::json::{Fields, body_text, elements};
use super::text::{decode, quoted, tidy};
use super::{Alert, BadRow, Read, Refused};

/// The whole history of a daily series is a tenth of this.
const MOST_BODY_BYTES: usize = 4 << 20;

const KEYS: [&str; 2] = ["data", "valor"];

/// What an answer says.
#[derive(Debug, PartialEq, Eq)]
pub enum Sgs {
    /// Oldest first, each day once.
    Rows(Read<Observation>),
    /// There is no observation in the window, which is quite normal.
    Empty,
    /// Of a daily series no more than ten years are given at once: ask for less.
    WindowTooWide,
}

/// What an answer that says nothing asks of us.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SgsError {
    /// Trouble on the other side that tends to pass.
    #[error("{0}; worth another try")]
    Retry(String),
    /// The same question would get the same answer.
    #[error("{0}; asking again would not help")]
    GiveUp(String),
}

/// Judges an answer by its status and body.
pub fn judge(status: u16, body: &[u8]) -> Result<Sgs, SgsError> {
    match status {
        404 if contains(body, "Value(s) not found") => Ok(Sgs::Empty),
        406 => Ok(Sgs::WindowTooWide),
        // This refusal comes with status 200 at times.
        200 if is_object(body) && contains(body, "\"error\"") && contains(body, "10 anos") => Ok(Sgs::WindowTooWide),
        200 => rows(body).map(Sgs::Rows),
        400 => Err(SgsError::GiveUp(format!("the request was refused as wrong: {}", excerpt(body)))),
        _ => Err(SgsError::Retry(format!("the answer has status {status}: {}", excerpt(body)))),
    }
}

fn rows(body: &[u8]) -> Result<Read<Observation>, SgsError> {
    let text = body_text(body, "a JSON array", MOST_BODY_BYTES).map_err(|refused| match refused {
        Refused::TooLarge { .. } => SgsError::GiveUp(refused.to_string()),
        _ => SgsError::Retry(refused.to_string()),
    })?;
    if !text.starts_with('[') {
        return Err(SgsError::Retry(format!("the answer is not a JSON array: {}", excerpt(body))));
    }
    let elements = elements(text).map_err(SgsError::Retry)?;
    read_elements(&elements).map_err(|refused| SgsError::GiveUp(refused.to_string()))
}

fn read_elements(elements: &[&RawValue]) -> Result<Read<Observation>, Refused> {
    let mut read = Read::new(Vec::new());
    read.total = elements.len() as u64;
    let mut observed: Vec<(u64, &str, Observation)> = Vec::with_capacity(elements.len());
    for (line, element) in (1u64..).zip(elements) {
        match observation(element.get(), &mut read.alerts) {
            Ok(observation) => observed.push((line, element.get(), observation)),
            Err(reason) => read.set_aside(BadRow::new(line, element.get(), reason))?,
        }
    }
    // Stable, so that of equal rows the first in the answer stays.
    observed.sort_by_key(|(_, _, observation)| observation.date);
    for of_one_day in observed.chunk_by(|(_, _, one), (_, _, other)| one.date == other.date) {
        let (_, _, first) = of_one_day[0];
        if of_one_day.iter().all(|(_, _, other)| same_characters(first.value, other.value)) {
            read.rows.push(first);
            read.merged += of_one_day.len() as u64 - 1;
            continue;
        }
        for (line, text, _) in of_one_day {
            read.set_aside(BadRow::new(*line, text, format!("{} has more than one value", first.date)))?;
        }
    }
    read.bad.sort_by_key(|bad| bad.line);
    Ok(read)
}

fn observation(element: &str, alerts: &mut Vec<Alert>) -> Result<Observation, String> {
    let fields = Fields::parse(element)?;
    let date = date(&fields.string("data")?)?;
    // A number instead of a string is refused although it could be read: whoever writes 15 for "15.00" would have us
    // store a revision of every value.
    let valor = fields.string("valor")?;
    let value = exact(&valor).map_err(|error| format!("valor {} {error}", quoted(&valor)))?;
    let additional: Vec<String> = fields.keys().filter(|key| !KEYS.contains(key)).map(quoted).collect();
    // The first row speaks for all.
    if !additional.is_empty() && alerts.is_empty() {
        alerts.push(Alert::AdditionalColumns(additional));
    }
    Ok(Observation { date, value })
}

fn date(text: &str) -> Result<NaiveDate, String> {
    let date = brazilian_day(text).ok_or_else(|| format!("data {} is no day as dd/MM/yyyy", quoted(text)))?;
    if !(FIRST_DAY..=LAST_DAY).contains(&date) {
        return Err(format!("data {text:?} is a day that nobody can ask for"));
    }
    Ok(date)
}

/// Equal in value and in scale: 15.0 and 15.00 are served differently.
fn same_characters(one: Decimal, other: Decimal) -> bool {
    one == other && one.scale() == other.scale()
}

fn is_object(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    body.trim_ascii_start().starts_with(b"{")
}

/// In the bytes, because the encoding of an error is anybody's guess.
fn contains(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|window| window == text.as_bytes())
}

fn excerpt(body: &[u8]) -> String {
    let beginning = &body[..body.len().min(300)];
    match std::str::from_utf8(beginning) {
        _ if beginning.is_empty() => "without a body".to_owned(),
        Ok(text) => quoted(&tidy(text)),
        Err(_) => quoted(&tidy(&decode(beginning))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOT_FOUND: &[u8] =
        br#"{"erro":{"statusCode":404,"detail":"br.gov.bcb.SGSNegocioException: Value(s) not found"}}"#;
    const TOO_WIDE: &str =
        r#"{"error":"O sistema aceita uma janela de, no máximo, 10 anos","message":"x","syntax":"y"}"#;
    const PAGE: &str =
        r#"<?xml version="1.0" encoding="pt-br"?> <!DOCTYPE html><html><title>Requisição inválida!</title></html>"#;

    fn read(body: &str) -> Read<Observation> {
        match judge(200, body.as_bytes()).unwrap() {
            Sgs::Rows(read) => read,
            other => panic!("{other:?}"),
        }
    }

    /// An array of these days and values.
    fn array(rows: &[(&str, &str)]) -> String {
        let rows: Vec<String> =
            rows.iter().map(|(data, valor)| format!(r#"{{"data":"{data}","valor":"{valor}"}}"#)).collect();
        format!("[{}]", rows.join(","))
    }

    fn shown(read: &Read<Observation>) -> Vec<String> {
        read.rows.iter().map(|row| format!("{} {}", row.date, row.value)).collect()
    }

    #[test]
    fn values_keep_their_characters() {
        let read = read(&array(&[("01/06/2025", "15.00"), ("02/06/2025", "0.053400"), ("03/06/2025", "-0.23")]));
        assert_eq!(shown(&read), ["2025-06-01 15.00", "2025-06-02 0.053400", "2025-06-03 -0.23"]);
        assert!(read.bad.is_empty() && read.alerts.is_empty() && read.total == 3);
    }

    #[test]
    fn a_mark_before_the_array_and_spaces_do_no_harm() {
        let read = read("\u{feff} \n[{\"data\":\"01/06/2025\",\"valor\":\"14.75\"}]\r\n");
        assert_eq!(shown(&read), ["2025-06-01 14.75"]);
    }

    #[test]
    fn only_one_particular_404_is_emptiness() {
        assert_eq!(judge(404, NOT_FOUND), Ok(Sgs::Empty));
        for body in [&b""[..], br#"{"message":"endpoint not found!"}"#, PAGE.as_bytes()] {
            assert!(matches!(judge(404, body), Err(SgsError::Retry(_))));
        }
        // The words alone, with another status, say nothing.
        assert!(matches!(judge(200, NOT_FOUND), Err(SgsError::Retry(_))));
        assert!(matches!(judge(500, NOT_FOUND), Err(SgsError::Retry(_))));
    }

    #[test]
    fn a_window_too_wide_is_told_from_trouble() {
        assert_eq!(judge(406, TOO_WIDE.as_bytes()), Ok(Sgs::WindowTooWide));
        assert_eq!(judge(406, b""), Ok(Sgs::WindowTooWide));
        assert_eq!(judge(200, TOO_WIDE.as_bytes()), Ok(Sgs::WindowTooWide));
        let latin_1: Vec<u8> = TOO_WIDE.chars().map(|character| u8::try_from(character).unwrap()).collect();
        assert_eq!(judge(200, &latin_1), Ok(Sgs::WindowTooWide));
        assert!(matches!(judge(200, br#"{"error":"another one"}"#), Err(SgsError::Retry(_))));
        // Even these words within data are data.
        let read = read(r#"[{"data":"01/06/2025","valor":"1","error":"10 anos"}]"#);
        assert_eq!(shown(&read), ["2025-06-01 1"]);
    }

    #[test]
    fn trouble_is_retried_and_our_own_mistakes_are_not() {
        let error = judge(200, PAGE.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with("it should be a JSON array, but it is a page: \"<?xml"), "{error}");
        assert!(matches!(error, SgsError::Retry(_)));
        for status in [301, 403, 429, 500, 502, 503, 504] {
            assert!(matches!(judge(status, PAGE.as_bytes()), Err(SgsError::Retry(_))), "{status}");
        }
        for body in ["", "   ", "null", "{}", "14.75", "[", r#"[{"data":"01/06/2025","valor":"14.75"}"#] {
            assert!(matches!(judge(200, body.as_bytes()), Err(SgsError::Retry(_))), "{body}");
        }
        let wrong = br#"{"erro":{"statusCode":400,"detail":"SGSNegocioException: Invalid initial date"}}"#;
        assert!(matches!(judge(400, wrong), Err(SgsError::GiveUp(_))));
        let large = vec![b' '; MOST_BODY_BYTES + 1];
        assert!(matches!(judge(200, &large), Err(SgsError::GiveUp(_))));
    }

    #[test]
    fn an_empty_array_has_no_rows() {
        assert_eq!(read("[]").total, 0);
    }

    #[test]
    fn rows_are_sorted_and_repetitions_are_one() {
        let read = read(&array(&[("03/06/2025", "1.0"), ("01/06/2025", "2.0"), ("03/06/2025", "1.0")]));
        assert_eq!(shown(&read), ["2025-06-01 2.0", "2025-06-03 1.0"]);
        assert_eq!((read.total, read.merged, read.bad.len()), (3, 1, 0));
    }

    #[test]
    fn a_day_with_two_values_has_none() {
        let read = read(&array(&[("01/06/2025", "1.0"), ("02/06/2025", "2.0"), ("01/06/2025", "1.00")]));
        assert_eq!(shown(&read), ["2025-06-02 2.0"]);
        let bad: Vec<(u64, &str)> = read.bad.iter().map(|bad| (bad.line, bad.reason.as_str())).collect();
        assert_eq!(bad, [(1, "2025-06-01 has more than one value"), (3, "2025-06-01 has more than one value")]);
        assert_eq!(read.bad[0].text, r#"{"data":"01/06/2025","valor":"1.0"}"#);
    }

    #[test]
    fn one_bad_row_leaves_the_others() {
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
            (r#"{"data":"2025-06-02","valor":"1"}"#, "data \"2025-06-02\" is no day as dd/MM/yyyy"),
            (r#"{"data":"31/02/2025","valor":"1"}"#, "data \"31/02/2025\" is no day as dd/MM/yyyy"),
            (r#"{"data":"31/12/1899","valor":"1"}"#, "data \"31/12/1899\" is a day that nobody can ask for"),
            (r#"{"valor":"1"}"#, "it has no data"),
            (r#"{"data":"02/06/2025"}"#, "it has no valor"),
            (r#"{"data":"02/06/2025","valor":"1","valor":"2"}"#, "it has valor twice"),
        ] {
            let read = read(&format!(r#"[{{"data":"01/06/2025","valor":"1"}},{row}]"#));
            assert_eq!(shown(&read), ["2025-06-01 1"]);
            assert_eq!(read.bad, [BadRow { line: 2, text: row.to_owned(), reason: reason.to_owned() }]);
        }
        assert_eq!(read("[7,[],null]").bad.len(), 3);
    }

    #[test]
    fn a_further_key_is_told_once() {
        let read = read(
            r#"[{"data":"01/06/2025","valor":"1","datafim":"x"},{"data":"02/06/2025","valor":"1","datafim":"x"}]"#,
        );
        assert_eq!(read.alerts, [Alert::AdditionalColumns(vec!["\"datafim\"".to_owned()])]);
        assert_eq!(read.rows.len(), 2);
    }

    #[test]
    fn an_array_of_rubbish_is_given_up() {
        let body = format!("[{}0]", "0,".repeat(2_000));
        assert!(matches!(judge(200, body.as_bytes()), Err(SgsError::GiveUp(_))));
    }

    proptest! {
        #[test]
        fn nothing_panics(status in 0u16..600, body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = judge(status, &body);
        }

        #[test]
        fn every_row_is_accounted_for(
            rows in proptest::collection::vec(("(0[1-3]/01/2020|x)", "([1-2]\\.0|)"), 0..12),
        ) {
            let rows: Vec<(&str, &str)> = rows.iter().map(|(data, valor)| (data.as_str(), valor.as_str())).collect();
            let read = read(&array(&rows));
            prop_assert_eq!(read.total, read.rows.len() as u64 + read.bad.len() as u64 + read.merged);
            prop_assert!(read.rows.is_sorted_by(|a, b| a.date < b.date));
        }
    }
}
