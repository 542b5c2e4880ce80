//! Parser for the central bank's exchange rates (PTAX): the bulletins of one currency, as returned by
//! `CotacaoMoedaPeriodo` and `CotacaoMoedaDia`.
//!
//! A row states when it was published, not the date of its quote. Apart from the very first rows, both are the same
//! day. A row also does not state its quote currency, which is the Brazilian currency of that day.

use chrono::{NaiveDate, NaiveDateTime};
use vintem_domain::{Currency, Decimal, Quote};
use vintem_store::load::{BulletinKind, NewBulletin};

use super::dates::parse_timestamp;
use super::decimal::parse_exact_decimal;
use super::json::{JsonObject, checked_body_text, parse_array};
use super::text::quote_truncated;
use super::{BadRow, BadRowKind, FormatAlert, FormatError, ParsedRows, RowError};

/// The whole history of one currency with all bulletins is about 12 MB.
const MAX_BODY_BYTES: usize = 16 << 20;

/// Enough for an operator to see what changed. A response may have any number of labels.
const MAX_ALERTS: usize = 8;

const EXPECTED_FORMAT: &str = "an object with the bulletins under \"value\"";

const KNOWN_KEYS: [&str; 6] =
    ["paridadeCompra", "paridadeVenda", "cotacaoCompra", "cotacaoVenda", "dataHoraCotacao", "tipoBoletim"];

/// Labels must match exactly: "Fechamento Interbancário" is a different rate from "Fechamento". The daily resource
/// calls the same close "Fechamento PTAX".
const BULLETIN_LABELS: [(&str, BulletinKind); 5] = [
    ("Abertura", BulletinKind::Opening),
    ("Intermediário", BulletinKind::Intermediate),
    ("Fechamento", BulletinKind::Closing),
    ("Fechamento PTAX", BulletinKind::Closing),
    ("Fechamento Interbancário", BulletinKind::Interbank),
];

/// The first dollar quotes were published days late: time of publication, date of the quote. The first two are what the
/// central bank returns for those dates; the third follows from its series of daily rates.
const LATE_PUBLICATIONS: [(NaiveDateTime, NaiveDate); 3] = [
    (at_time(ymd(1984, 12, 3), 11, 29), ymd(1984, 11, 28)),
    (at_time(ymd(1984, 12, 3), 16, 38), ymd(1984, 11, 29)),
    (at_time(ymd(1984, 12, 4), 11, 17), ymd(1984, 11, 30)),
];

/// No quote is older.
const FIRST_QUOTE_DATE: NaiveDate = ymd(1984, 11, 28);

/// The currencies of Brazil, each with its first day.
const BRAZILIAN_CURRENCIES: [(NaiveDate, &str); 6] = [
    (NaiveDate::MIN, "BRB"),
    (ymd(1986, 2, 28), "BRC"),
    (ymd(1989, 1, 16), "BRN"),
    (ymd(1990, 3, 16), "BRE"),
    (ymd(1993, 8, 1), "BRR"),
    (vintem_domain::fx::BRL_START_DATE, "BRL"),
];

/// The bulletins of a response, in order of publication. No rows mean that there was no quote, as on a holiday. A day
/// may have two closes published at different times; the later one is valid.
pub fn parse_bulletins(
    currency: Currency,
    body: &[u8],
    today: NaiveDate,
) -> Result<ParsedRows<NewBulletin>, FormatError> {
    let text = checked_body_text(body, EXPECTED_FORMAT, MAX_BODY_BYTES)?;
    let envelope = JsonObject::parse(text).map_err(unexpected_format)?;
    // Rows on further pages would be missing without any sign of it in the rows at hand.
    if envelope.keys().any(|key| key == "@odata.nextLink") {
        return Err(unexpected_format("it is one page of several".to_owned()));
    }

    let elements = parse_array(envelope.raw_value("value").map_err(unexpected_format)?).map_err(unexpected_format)?;
    let mut parsed = ParsedRows::new(Vec::new());
    parsed.total = elements.len() as u64;

    let mut bulletins: Vec<(u64, &str, NewBulletin)> = Vec::with_capacity(elements.len());
    for (line, element) in (1u64..).zip(elements) {
        match parse_bulletin(currency, element.get(), today, &mut parsed.alerts) {
            Ok(bulletin) => bulletins.push((line, element.get(), bulletin)),
            Err(error) => parsed.push_bad_row(BadRow::new(line, element.get(), error))?,
        }
    }

    // The key includes the kind, because the last intermediate bulletin and the close may have the same timestamp.
    bulletins.sort_by_key(|(_, _, bulletin)| bulletin_key(bulletin));
    for same_bulletin in bulletins.chunk_by(|(_, _, left), (_, _, right)| bulletin_key(left) == bulletin_key(right)) {
        let (_, _, first) = &same_bulletin[0];
        if same_bulletin.iter().all(|(_, _, other)| has_same_rates(first, other)) {
            parsed.rows.push(first.clone());
            parsed.merged += same_bulletin.len() as u64 - 1;
            continue;
        }
        for (line, text, bulletin) in same_bulletin {
            let reason = format!("there are other rates of the same bulletin, published {}", bulletin.published_at);
            parsed.push_bad_row(BadRow::new(*line, text, RowError { kind: BadRowKind::Contradiction, reason }))?;
        }
    }

    parsed.bad_rows.sort_by_key(|bad| bad.line);
    Ok(parsed)
}

fn parse_bulletin(
    currency: Currency,
    element: &str,
    today: NaiveDate,
    alerts: &mut Vec<FormatAlert>,
) -> Result<NewBulletin, RowError> {
    let fields = JsonObject::parse(element)?;
    let label = fields.string_value("tipoBoletim")?;
    let Some((_, kind)) = BULLETIN_LABELS.iter().find(|(name, _)| *name == label) else {
        let label = quote_truncated(&label);
        let reason = format!("tipoBoletim {label} is unknown");
        let alert = FormatAlert::UnknownLabel(label);
        if alerts.len() < MAX_ALERTS && !alerts.contains(&alert) {
            alerts.push(alert);
        }
        return Err(RowError { kind: BadRowKind::UnknownLabel, reason });
    };

    let published = fields.string_value("dataHoraCotacao")?;
    let published_at = parse_timestamp(&published)
        .ok_or_else(|| format!("dataHoraCotacao {} is no moment", quote_truncated(&published)))?;
    let date = quote_date(currency, published_at);
    if date < FIRST_QUOTE_DATE || date > today {
        return Err(format!("a quote of {date} cannot be: there are quotes from {FIRST_QUOTE_DATE} to {today}").into());
    }

    let buy = parse_rate(&fields, "cotacaoCompra")?;
    let sell = parse_rate(&fields, "cotacaoVenda")?;
    let parity = parse_parity(&fields)?;

    let additional: Vec<String> = fields.keys().filter(|key| !KNOWN_KEYS.contains(key)).map(quote_truncated).collect();
    // The first row is enough for an alert: the others have the same keys.
    let is_known = alerts.iter().any(|alert| matches!(alert, FormatAlert::AdditionalColumns(_)));
    if !additional.is_empty() && !is_known {
        alerts.push(FormatAlert::AdditionalColumns(additional));
    }

    let quote_currency = brazilian_currency_on(date).to_owned();
    Ok(NewBulletin { currency, date, kind: *kind, published_at, quote_currency, buy, sell, parity })
}

/// Parses a rate from the characters of a JSON number.
fn parse_rate(fields: &JsonObject<'_>, key: &str) -> Result<Decimal, String> {
    let token = fields.raw_value(key)?;
    let rate = parse_exact_decimal(token).map_err(|error| format!("{key} {} {error}", quote_truncated(token)))?;
    if rate <= Decimal::ZERO {
        return Err(format!("{key} is {rate}, but nothing is sold for nothing"));
    }
    Ok(rate)
}

/// The rate against the dollar. Bulletins without one lack the keys, or state zero or null; half a parity is none.
fn parse_parity(fields: &JsonObject<'_>) -> Result<Option<Quote>, String> {
    let buy = parse_parity_side(fields, "paridadeCompra")?;
    let sell = parse_parity_side(fields, "paridadeVenda")?;
    Ok(buy.zip(sell).map(|(buy, sell)| Quote { buy, sell }))
}

fn parse_parity_side(fields: &JsonObject<'_>, key: &str) -> Result<Option<Decimal>, String> {
    if !fields.keys().any(|name| name == key) {
        return Ok(None);
    }

    let token = fields.raw_value(key)?;
    if token == "null" {
        return Ok(None);
    }

    let side = parse_exact_decimal(token).map_err(|error| format!("{key} {} {error}", quote_truncated(token)))?;
    if side < Decimal::ZERO {
        return Err(format!("{key} is {side}, but nothing is sold for less than nothing"));
    }
    Ok(Some(side).filter(|side| !side.is_zero()))
}

fn quote_date(currency: Currency, published_at: NaiveDateTime) -> NaiveDate {
    let late = LATE_PUBLICATIONS.iter().find(|(time, _)| currency == Currency::Usd && *time == published_at);
    late.map_or(published_at.date(), |(_, date)| *date)
}

/// The ISO code of the Brazilian currency on this date.
fn brazilian_currency_on(date: NaiveDate) -> &'static str {
    let current = BRAZILIAN_CURRENCIES.iter().rev().find(|(since, _)| *since <= date);
    current.map_or("BRB", |(_, code)| code)
}

fn bulletin_key(bulletin: &NewBulletin) -> (NaiveDate, NaiveDateTime, BulletinKind) {
    (bulletin.date, bulletin.published_at, bulletin.kind)
}

/// Equal in value and scale: 5.9 and 5.90 are served differently.
fn has_same_rates(left: &NewBulletin, right: &NewBulletin) -> bool {
    let with_scale = |rate: Decimal| (rate, rate.scale());
    let rates = |bulletin: &NewBulletin| (with_scale(bulletin.buy), with_scale(bulletin.sell));
    let parity =
        |bulletin: &NewBulletin| bulletin.parity.map(|parity| (with_scale(parity.buy), with_scale(parity.sell)));
    rates(left) == rates(right) && parity(left) == parity(right)
}

fn unexpected_format(found: String) -> FormatError {
    FormatError::UnexpectedFormat { expected: EXPECTED_FORMAT, found }
}

const fn ymd(year: i32, month: u32, day: u32) -> NaiveDate {
    NaiveDate::from_ymd_opt(year, month, day).expect("a day of the calendar")
}

const fn at_time(day: NaiveDate, hour: u32, minute: u32) -> NaiveDateTime {
    day.and_hms_opt(hour, minute, 0).expect("a time of the day")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TODAY: NaiveDate = ymd(2026, 11, 15);

    fn json_envelope(rows: &[&str]) -> String {
        format!(r#"{{"@odata.context":"https://example.org/odata$metadata#x","value":[{}]}}"#, rows.join(","))
    }

    fn json_row(rates: (&str, &str), published: &str, label: &str) -> String {
        let rates = format!(r#""cotacaoCompra":{},"cotacaoVenda":{}"#, rates.0, rates.1);
        let moment_and_label = format!(r#""dataHoraCotacao":"{published}","tipoBoletim":"{label}""#);
        format!(r#"{{"paridadeCompra":1,"paridadeVenda":1,{rates},{moment_and_label}}}"#)
    }

    fn parse_rows(currency: Currency, rows: &[String]) -> ParsedRows<NewBulletin> {
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        parse_bulletins(currency, json_envelope(&rows).as_bytes(), TODAY).unwrap()
    }

    fn parse_one(published: &str, label: &str) -> ParsedRows<NewBulletin> {
        parse_rows(Currency::Usd, &[json_row(("5.1000", "5.2000"), published, label)])
    }

    #[test]
    fn rates_keep_their_exact_digits() {
        let parsed =
            parse_rows(Currency::Eur, &[json_row(("5.90880", "5.91000"), "2026-06-05 13:03:38.306", "Fechamento")]);
        let bulletin = &parsed.rows[0];
        assert_eq!((bulletin.buy.to_string(), bulletin.sell.to_string()), ("5.90880".into(), "5.91000".into()));
        assert_eq!(bulletin.date, ymd(2026, 6, 5));
        assert_eq!(bulletin.published_at.to_string(), "2026-06-05 13:03:38.306");
        assert_eq!((bulletin.kind, bulletin.quote_currency.as_str()), (BulletinKind::Closing, "BRL"));
        assert!(parsed.alerts.is_empty());
    }

    #[test]
    fn bulletin_labels_must_match_exactly() {
        for (label, kind) in [
            ("Abertura", BulletinKind::Opening),
            ("Intermediário", BulletinKind::Intermediate),
            ("Fechamento", BulletinKind::Closing),
            ("Fechamento PTAX", BulletinKind::Closing),
            ("Fechamento Interbancário", BulletinKind::Interbank),
        ] {
            assert_eq!(parse_one("2010-06-01 13:03:38.3", label).rows[0].kind, kind, "{label}");
        }

        for label in ["", "fechamento", "Fechamento ", "Fechamento Especial", "Intermediario"] {
            let parsed = parse_one("2010-06-01 13:03:38.3", label);
            assert_eq!(parsed.bad_rows[0].reason, format!("tipoBoletim {label:?} is unknown"));
            assert_eq!(parsed.alerts, [FormatAlert::UnknownLabel(format!("{label:?}"))]);
            assert!(parsed.rows.is_empty());
            assert_eq!(crate::validation::validate_bad_row_count(&parsed), Ok(()), "other rows can be loaded");
        }
    }

    #[test]
    fn no_rows_mean_no_quotes_and_a_missing_array_is_an_error() {
        assert_eq!(parse_bulletins(Currency::Usd, json_envelope(&[]).as_bytes(), TODAY).unwrap().total, 0);

        for body in [
            r#"{"@odata.context":"x"}"#,
            r#"{"value":null}"#,
            r#"{"value":{}}"#,
            r#"{"value":[],"value":[]}"#,
            r#"{"value":[],"@odata.nextLink":"x"}"#,
            r#"{"value":[]"#,
            "[]",
            "<html><body>500 Internal Server Error</body></html>",
            "",
            "\u{feff}",
        ] {
            assert!(parse_bulletins(Currency::Usd, body.as_bytes(), TODAY).is_err(), "{body}");
        }

        let large = vec![b' '; MAX_BODY_BYTES + 1];
        assert_eq!(
            parse_bulletins(Currency::Usd, &large, TODAY),
            Err(FormatError::TooLarge { max_bytes: MAX_BODY_BYTES })
        );
    }

    #[test]
    fn rows_without_parities_are_accepted() {
        let whole = json_row(("4.0207", "4.0213"), "2020-01-02 13:11:10.762", "Fechamento PTAX");
        let short = whole.replace(r#""paridadeCompra":1,"paridadeVenda":1,"#, "");
        assert!(short.len() < whole.len());
        assert_eq!(parse_rows(Currency::Usd, &[short]).rows[0].parity, None);
    }

    #[test]
    fn parities_keep_their_exact_digits_and_zero_is_none() {
        let row = json_row(("4.0459", "4.0475"), "2022-01-03 13:11:50.357", "Fechamento");
        let with_parity = |buy: &str, sell: &str| {
            let parity = format!(r#""paridadeCompra":{buy},"paridadeVenda":{sell},"#);
            row.replace(r#""paridadeCompra":1,"paridadeVenda":1,"#, &parity)
        };

        let parsed = parse_rows(Currency::Aud, &[with_parity("0.7186", "0.7190")]);
        let parity = parsed.rows[0].parity.unwrap();
        assert_eq!((parity.buy.to_string(), parity.sell.to_string()), ("0.7186".into(), "0.7190".into()));

        for (buy, sell) in [("0", "0"), ("0.0000", "0.0000"), ("null", "null"), ("0", "0.7188"), ("0.7186", "null")] {
            let parsed = parse_rows(Currency::Aud, &[with_parity(buy, sell)]);
            assert_eq!((parsed.rows[0].parity, parsed.bad_rows.len()), (None, 0), "{buy} {sell}");
        }

        for (buy, sell, reason) in [
            ("-0.7186", "0.7188", "paridadeCompra is -0.7186"),
            ("0.7186", "7e-1", "paridadeVenda \"7e-1\" is not a plain"),
            ("\"0.7186\"", "0.7188", "paridadeCompra \"\\\"0.7186\\\"\" is not"),
        ] {
            let parsed = parse_rows(Currency::Aud, &[with_parity(buy, sell)]);
            assert_eq!((parsed.rows.len(), parsed.bad_rows.len()), (0, 1), "{buy} {sell}");
            assert!(parsed.bad_rows[0].reason.starts_with(reason), "{}", parsed.bad_rows[0].reason);
        }

        let parsed = parse_rows(Currency::Aud, &[with_parity("0.7186", "0.7188"), with_parity("0.7186", "0.7189")]);
        assert_eq!((parsed.rows.len(), parsed.bad_rows.len()), (0, 2), "two parities of one bulletin");
    }

    #[test]
    fn quotes_before_the_real_use_the_currency_of_their_day() {
        for (published, code) in [
            ("1986-02-27 11:00:00.0", "BRB"),
            ("1986-02-28 11:00:00.0", "BRC"),
            ("1989-01-13 11:00:00.0", "BRC"),
            ("1989-01-16 11:00:00.0", "BRN"),
            ("1990-03-15 11:00:00.0", "BRN"),
            ("1990-03-16 11:00:00.0", "BRE"),
            ("1993-07-30 11:00:00.0", "BRE"),
            ("1993-08-02 11:00:00.0", "BRR"),
            ("1994-06-30 11:00:00.0", "BRR"),
            ("1994-07-01 11:00:00.0", "BRL"),
        ] {
            assert_eq!(parse_one(published, "Fechamento").rows[0].quote_currency, code, "{published}");
        }
    }

    #[test]
    fn the_first_dollar_quotes_are_dated_before_publication() {
        for (published, date) in [
            ("1984-12-03 11:29:00.0", ymd(1984, 11, 28)),
            ("1984-12-03 16:38:00.0", ymd(1984, 11, 29)),
            ("1984-12-04 11:17:00.0", ymd(1984, 11, 30)),
            ("1984-12-04 11:18:00.0", ymd(1984, 12, 4)),
        ] {
            assert_eq!(parse_one(published, "Fechamento").rows[0].date, date, "{published}");
        }
        let pound = parse_rows(Currency::Gbp, &[json_row(("1", "2"), "1984-12-03 11:29:00.0", "Fechamento")]);
        assert_eq!(pound.rows[0].date, ymd(1984, 12, 3));
    }

    #[test]
    fn rows_are_sorted_by_publication_then_kind() {
        let parsed = parse_rows(
            Currency::Aud,
            &[
                json_row(("4.0459", "4.0475"), "2022-01-03 13:11:50.35", "Fechamento"),
                json_row(("4.0704", "4.0719"), "2022-01-03 13:11:50.350", "Intermediário"),
                json_row(("4.0477", "4.0487"), "2022-01-03 10:04:22.186", "Abertura"),
            ],
        );
        let kinds: Vec<BulletinKind> = parsed.rows.iter().map(|row| row.kind).collect();
        assert_eq!(kinds, [BulletinKind::Opening, BulletinKind::Intermediate, BulletinKind::Closing]);
    }

    #[test]
    fn duplicate_bulletins_are_merged_and_two_closes_a_day_are_kept() {
        let early = json_row(("5.6874", "5.6880"), "2025-04-23 13:06:30.416", "Fechamento");
        let late = json_row(("5.6874", "5.6880"), "2025-04-23 13:06:30.443", "Fechamento");
        let parsed = parse_rows(Currency::Usd, &[late.clone(), early.clone(), early, late]);
        assert_eq!((parsed.rows.len(), parsed.merged, parsed.total, parsed.bad_rows.len()), (2, 2, 4, 0));
        assert!(parsed.rows[0].published_at < parsed.rows[1].published_at);
    }

    #[test]
    fn a_bulletin_with_conflicting_rates_is_rejected() {
        let parsed = parse_rows(
            Currency::Usd,
            &[
                json_row(("5.6874", "5.6880"), "2025-04-23 13:06:30.416", "Fechamento"),
                json_row(("5.6800", "5.6880"), "2025-04-24 13:06:30.416", "Fechamento"),
                json_row(("5.6874", "5.6881"), "2025-04-23 13:06:30.416", "Fechamento PTAX"),
            ],
        );
        assert_eq!(parsed.rows.len(), 1);
        assert_eq!(parsed.bad_rows.iter().map(|bad| bad.line).collect::<Vec<_>>(), [1, 3]);
        assert!(parsed.bad_rows[0].reason.starts_with("there are other rates of the same bulletin"));
    }

    #[test]
    fn one_bad_row_does_not_affect_the_others() {
        let good = json_row(("5.1", "5.2"), "2020-01-02 13:11:10.762", "Fechamento");
        for (bad, reason) in [
            (json_row(("1e3", "5.2"), "2020-01-03 13:11:10.7", "Fechamento"), "cotacaoCompra \"1e3\" is not a plain"),
            (
                json_row(("\"5.1\"", "5.2"), "2020-01-03 13:11:10.7", "Fechamento"),
                "cotacaoCompra \"\\\"5.1\\\"\" is not",
            ),
            (json_row(("null", "5.2"), "2020-01-03 13:11:10.7", "Fechamento"), "cotacaoCompra \"null\" is not"),
            (json_row(("5.1", "0.00"), "2020-01-03 13:11:10.7", "Fechamento"), "cotacaoVenda is 0.00"),
            (json_row(("-5.1", "5.2"), "2020-01-03 13:11:10.7", "Fechamento"), "cotacaoCompra is -5.1"),
            (
                json_row(("5.1234567890123", "6"), "2020-01-03 13:11:10.7", "Fechamento"),
                "cotacaoCompra \"5.1234567890123\" has more than 12",
            ),
            (
                json_row(("5.1", "5.2"), "03/01/2020 13:11", "Fechamento"),
                "dataHoraCotacao \"03/01/2020 13:11\" is no moment",
            ),
            (json_row(("5.1", "5.2"), "2026-11-16 10:00:00.0", "Abertura"), "a quote of 2026-11-16 cannot be"),
            (json_row(("5.1", "5.2"), "1900-01-02 10:00:00.0", "Abertura"), "a quote of 1900-01-02 cannot be"),
            (
                r#"{"cotacaoCompra":5.1,"cotacaoVenda":5.2,"dataHoraCotacao":"2020-01-02 13:11:10.762"}"#.to_owned(),
                "it has no tipoBoletim",
            ),
            ("7".to_owned(), "it is not an object"),
        ] {
            let parsed = parse_rows(Currency::Usd, &[good.clone(), bad.clone()]);
            assert_eq!((parsed.rows.len(), parsed.bad_rows.len()), (1, 1), "{bad}");
            assert!(parsed.bad_rows[0].reason.starts_with(reason), "{}", parsed.bad_rows[0].reason);
            assert_eq!((parsed.bad_rows[0].line, &parsed.bad_rows[0].text), (2, &bad));
        }
    }

    #[test]
    fn an_unknown_key_is_reported() {
        let with_unknown_key =
            json_row(("5.1", "5.2"), "2020-01-02 13:11:10.7", "Abertura").replace("paridadeVenda", "nova");
        let parsed = parse_rows(Currency::Usd, &[with_unknown_key]);
        assert_eq!(parsed.alerts, [FormatAlert::AdditionalColumns(vec!["\"nova\"".to_owned()])]);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_bulletins(Currency::Usd, &body, TODAY);
        }

        #[test]
        fn every_row_is_accounted_for(
            rows in proptest::collection::vec(
                ("[01]\\.[01]", "202[0-1]-01-01 10:00:00\\.[01]", "(Abertura|Fechamento|x)"),
                0..12,
            ),
        ) {
            let rows: Vec<String> =
                rows.iter().map(|(rate, published, label)| json_row((rate, "2"), published, label)).collect();
            let parsed = parse_rows(Currency::Usd, &rows);
            prop_assert_eq!(parsed.total, parsed.rows.len() as u64 + parsed.bad_rows.len() as u64 + parsed.merged);
        }
    }
}
