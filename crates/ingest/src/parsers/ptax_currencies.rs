//! The list of currencies that PTAX quotes (`Moedas`), compared with the known ones.

use vintem_domain::{Currency, ParityBasis};

use super::json::{JsonObject, checked_body_text, parse_array};
use super::text::quote_truncated;
use super::{FormatAlert, FormatError};

/// The ten currencies take less than 1 kB.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Enough for an operator to see what changed.
const MAX_UNKNOWN_NAMED: usize = 8;

const EXPECTED_FORMAT: &str = "an object with the currencies under \"value\"";

/// Compares the list of currencies (`Moedas`) with the known ones. The list has had the same ten for years, in
/// github.com/GusFurtado/DadosAbertosBrasil for example; another one would be missed without this.
pub fn compare_currency_list(body: &[u8]) -> Result<Vec<FormatAlert>, FormatError> {
    let text = checked_body_text(body, EXPECTED_FORMAT, MAX_BODY_BYTES)?;
    let envelope = JsonObject::parse(text).map_err(unexpected_format)?;
    let elements = parse_array(envelope.raw_value("value").map_err(unexpected_format)?).map_err(unexpected_format)?;

    let mut listed = Vec::new();
    for element in elements {
        let fields = JsonObject::parse(element.get()).map_err(unexpected_format)?;
        let code = fields.string_value("simbolo").map_err(unexpected_format)?;
        let basis = match fields.string_value("tipoMoeda").map_err(unexpected_format)?.as_str() {
            "A" => ParityBasis::UnitsPerDollar,
            "B" => ParityBasis::DollarsPerUnit,
            other => return Err(unexpected_format(format!("its type of currency is {}", quote_truncated(other)))),
        };
        listed.push((code, basis));
    }

    let is_unknown = |code: &String| Currency::from_code(code).is_none();
    let unknown: Vec<String> = listed
        .iter()
        .map(|(code, _)| code)
        .filter(|code| is_unknown(code))
        .take(MAX_UNKNOWN_NAMED)
        .map(|code| quote_truncated(code))
        .collect();
    let is_as_known = |currency: &Currency| {
        listed.iter().any(|(code, basis)| code == currency.code() && *basis == currency.parity_basis())
    };
    let changed: Vec<&str> =
        Currency::ALL.iter().filter(|currency| !is_as_known(currency)).map(|currency| currency.code()).collect();

    let unknown = (!unknown.is_empty()).then_some(FormatAlert::UnknownCurrencies(unknown));
    let changed = (!changed.is_empty()).then_some(FormatAlert::ChangedCurrencies(changed));
    Ok(unknown.into_iter().chain(changed).collect())
}

fn unexpected_format(found: String) -> FormatError {
    FormatError::UnexpectedFormat { expected: EXPECTED_FORMAT, found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_currency_list_that_differs_from_the_known_one_is_reported() {
        let body = |rows: &[(&str, &str)]| {
            let rows = rows
                .iter()
                .map(|(code, kind)| format!(r#"{{"simbolo":"{code}","nomeFormatado":"x","tipoMoeda":"{kind}"}}"#));
            format!(r#"{{"value":[{}]}}"#, rows.collect::<Vec<_>>().join(","))
        };
        let known = [
            ("AUD", "B"),
            ("CAD", "A"),
            ("CHF", "A"),
            ("DKK", "A"),
            ("EUR", "B"),
            ("GBP", "B"),
            ("JPY", "A"),
            ("NOK", "A"),
            ("SEK", "A"),
            ("USD", "A"),
        ];
        assert_eq!(compare_currency_list(body(&known).as_bytes()).unwrap(), []);

        let changed: Vec<_> = known.into_iter().skip(1).chain([("CNY", "A"), ("AUD", "A")]).collect();
        let alerts = compare_currency_list(body(&changed).as_bytes()).unwrap();
        let expected =
            [FormatAlert::UnknownCurrencies(vec!["\"CNY\"".into()]), FormatAlert::ChangedCurrencies(vec!["AUD"])];
        assert_eq!(alerts, expected);
        assert!(compare_currency_list(body(&[("AUD", "C")]).as_bytes()).is_err());
        assert!(compare_currency_list(b"<html>").is_err());
    }
}
