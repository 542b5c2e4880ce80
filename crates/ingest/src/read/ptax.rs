//! The central bank's exchange rates (PTAX): the bulletins of one currency, as `CotacaoMoedaPeriodo` and
//! `CotacaoMoedaDia` give them.
//!
//! A row says when it was published, not which day it is of. Apart from the very first rows the two are the same day.
//! It also does not say in which currency it quotes: that is the Brazilian currency of its day.

use chrono::{NaiveDate, NaiveDateTime};
use vintem_domain::{Currency, Decimal};
use vintem_store::load::{Bulletin, BulletinKind};

use super::day::moment;
use super::decimal::exact;
use super::json::{Fields, body_text, elements};
use super::text::quoted;
use super::{Alert, BadRow, Read, Refused};

/// The whole history of one currency with all bulletins is some 12 MB.
const MOST_BODY_BYTES: usize = 16 << 20;

const EXPECTED: &str = "an object with the bulletins under \"value\"";

const KEYS: [&str; 6] =
    ["paridadeCompra", "paridadeVenda", "cotacaoCompra", "cotacaoVenda", "dataHoraCotacao", "tipoBoletim"];

/// Matched whole: "Fechamento Interbancário" is another rate than "Fechamento". The daily resource calls the same
/// close "Fechamento PTAX".
const LABELS: [(&str, BulletinKind); 5] = [
    ("Abertura", BulletinKind::Opening),
    ("Intermediário", BulletinKind::Intermediate),
    ("Fechamento", BulletinKind::Closing),
    ("Fechamento PTAX", BulletinKind::Closing),
    ("Fechamento Interbancário", BulletinKind::Interbank),
];

/// The first quotes of the dollar were published days late: moment of publication, day of the quote. The first two
/// are what the central bank answers for those days, the third follows from its series of daily rates.
const PUBLISHED_LATE: [(NaiveDateTime, NaiveDate); 3] = [
    (at(day(1984, 12, 3), 11, 29), day(1984, 11, 28)),
    (at(day(1984, 12, 3), 16, 38), day(1984, 11, 29)),
    (at(day(1984, 12, 4), 11, 17), day(1984, 11, 30)),
];

/// No quote is older than these.
const FIRST_QUOTES: NaiveDate = day(1984, 11, 28);

/// The currencies of the country, each with its first day.
const CURRENCIES_OF_THE_COUNTRY: [(NaiveDate, &str); 6] = [
    (NaiveDate::MIN, "BRB"),
    (day(1986, 2, 28), "BRC"),
    (day(1989, 1, 16), "BRN"),
    (day(1990, 3, 16), "BRE"),
    (day(1993, 8, 1), "BRR"),
    (vintem_domain::fx::REAL_SINCE, "BRL"),
];

/// The bulletins in an answer, in the order of publication. No row at all means that there was no quote, as on a
/// holiday. A day may keep two closes of different moments: the later one rules.
pub fn read(currency: Currency, body: &[u8], today: NaiveDate) -> Result<Read<Bulletin>, Refused> {
    let text = body_text(body, EXPECTED, MOST_BODY_BYTES)?;
    let envelope = Fields::parse(text).map_err(not_the_format)?;
    // Rows that stand on a further page would be missing, and nothing in the ones at hand would say so.
    if envelope.keys().any(|key| key == "@odata.nextLink") {
        return Err(not_the_format("it is one page of several".to_owned()));
    }
    let elements = elements(envelope.token("value").map_err(not_the_format)?).map_err(not_the_format)?;
    let mut read = Read::new(Vec::new());
    read.total = elements.len() as u64;
    let mut bulletins: Vec<(u64, &str, Bulletin)> = Vec::with_capacity(elements.len());
    for (line, element) in (1u64..).zip(elements) {
        match bulletin(currency, element.get(), today, &mut read.alerts) {
            Ok(bulletin) => bulletins.push((line, element.get(), bulletin)),
            Err(reason) => read.set_aside(BadRow::new(line, element.get(), reason))?,
        }
    }
    // The last intermediate bulletin and the close may share their moment.
    bulletins.sort_by_key(|(_, _, bulletin)| identity(bulletin));
    for of_one_identity in bulletins.chunk_by(|(_, _, one), (_, _, other)| identity(one) == identity(other)) {
        let (_, _, first) = &of_one_identity[0];
        if of_one_identity.iter().all(|(_, _, other)| same_rates(first, other)) {
            read.rows.push(first.clone());
            read.merged += of_one_identity.len() as u64 - 1;
            continue;
        }
        for (line, text, bulletin) in of_one_identity {
            let reason = format!("there are other rates of the same bulletin, published {}", bulletin.published_at);
            read.set_aside(BadRow::new(*line, text, reason))?;
        }
    }
    read.bad.sort_by_key(|bad| bad.line);
    Ok(read)
}

fn bulletin(currency: Currency, element: &str, today: NaiveDate, alerts: &mut Vec<Alert>) -> Result<Bulletin, String> {
    let fields = Fields::parse(element)?;
    let label = fields.string("tipoBoletim")?;
    let kind = LABELS.iter().find(|(known, _)| *known == label).map(|(_, kind)| *kind);
    let kind = kind.ok_or_else(|| format!("tipoBoletim {} is unknown", quoted(&label)))?;
    let published = fields.string("dataHoraCotacao")?;
    let published_at =
        moment(&published).ok_or_else(|| format!("dataHoraCotacao {} is no moment", quoted(&published)))?;
    let date = day_of_quote(currency, published_at);
    if date < FIRST_QUOTES || date > today {
        return Err(format!("a quote of {date} cannot be: there are quotes from {FIRST_QUOTES} to {today}"));
    }
    let buy = rate(&fields, "cotacaoCompra")?;
    let sell = rate(&fields, "cotacaoVenda")?;
    let additional: Vec<String> = fields.keys().filter(|key| !KEYS.contains(key)).map(quoted).collect();
    // The first row speaks for all.
    if !additional.is_empty() && alerts.is_empty() {
        alerts.push(Alert::AdditionalColumns(additional));
    }
    let quote_currency = currency_of_the_country(date).to_owned();
    Ok(Bulletin { currency, date, kind, published_at, quote_currency, buy, sell })
}

/// A JSON number, read from its own characters.
fn rate(fields: &Fields<'_>, key: &str) -> Result<Decimal, String> {
    let token = fields.token(key)?;
    let rate = exact(token).map_err(|error| format!("{key} {} {error}", quoted(token)))?;
    if rate <= Decimal::ZERO {
        return Err(format!("{key} is {rate}, but nothing is sold for nothing"));
    }
    Ok(rate)
}

fn day_of_quote(currency: Currency, published_at: NaiveDateTime) -> NaiveDate {
    let late = PUBLISHED_LATE.iter().find(|(moment, _)| currency == Currency::Usd && *moment == published_at);
    late.map_or(published_at.date(), |(_, day)| *day)
}

/// The ISO code of the currency in which Brazil reckoned on this day.
fn currency_of_the_country(date: NaiveDate) -> &'static str {
    let current = CURRENCIES_OF_THE_COUNTRY.iter().rev().find(|(since, _)| *since <= date);
    current.map_or("BRB", |(_, code)| code)
}

fn identity(bulletin: &Bulletin) -> (NaiveDate, NaiveDateTime, BulletinKind) {
    (bulletin.date, bulletin.published_at, bulletin.kind)
}

/// Equal in value and in scale: 5.9 and 5.90 are served differently.
fn same_rates(one: &Bulletin, other: &Bulletin) -> bool {
    let characters = |bulletin: &Bulletin| (bulletin.buy, bulletin.buy.scale(), bulletin.sell, bulletin.sell.scale());
    characters(one) == characters(other)
}

fn not_the_format(found: String) -> Refused {
    Refused::NotTheFormat { expected: EXPECTED, found }
}

const fn day(year: i32, month: u32, day: u32) -> NaiveDate {
    NaiveDate::from_ymd_opt(year, month, day).expect("a day of the calendar")
}

const fn at(day: NaiveDate, hour: u32, minute: u32) -> NaiveDateTime {
    day.and_hms_opt(hour, minute, 0).expect("a time of the day")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TODAY: NaiveDate = day(2026, 11, 15);

    fn envelope(rows: &[&str]) -> String {
        format!(r#"{{"@odata.context":"https://example.org/odata$metadata#x","value":[{}]}}"#, rows.join(","))
    }

    fn row(rates: (&str, &str), published: &str, label: &str) -> String {
        let rates = format!(r#""cotacaoCompra":{},"cotacaoVenda":{}"#, rates.0, rates.1);
        let moment_and_label = format!(r#""dataHoraCotacao":"{published}","tipoBoletim":"{label}""#);
        format!(r#"{{"paridadeCompra":1,"paridadeVenda":1,{rates},{moment_and_label}}}"#)
    }

    fn read_rows(currency: Currency, rows: &[String]) -> Read<Bulletin> {
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        read(currency, envelope(&rows).as_bytes(), TODAY).unwrap()
    }

    fn read_one(published: &str, label: &str) -> Read<Bulletin> {
        read_rows(Currency::Usd, &[row(("5.1000", "5.2000"), published, label)])
    }

    #[test]
    fn rates_keep_their_characters() {
        let read = read_rows(Currency::Eur, &[row(("5.90880", "5.91000"), "2026-06-05 13:03:38.306", "Fechamento")]);
        let bulletin = &read.rows[0];
        assert_eq!((bulletin.buy.to_string(), bulletin.sell.to_string()), ("5.90880".into(), "5.91000".into()));
        assert_eq!(bulletin.date, day(2026, 6, 5));
        assert_eq!(bulletin.published_at.to_string(), "2026-06-05 13:03:38.306");
        assert_eq!((bulletin.kind, bulletin.quote_currency.as_str()), (BulletinKind::Closing, "BRL"));
        assert!(read.alerts.is_empty());
    }

    #[test]
    fn labels_are_matched_whole() {
        for (label, kind) in [
            ("Abertura", BulletinKind::Opening),
            ("Intermediário", BulletinKind::Intermediate),
            ("Fechamento", BulletinKind::Closing),
            ("Fechamento PTAX", BulletinKind::Closing),
            ("Fechamento Interbancário", BulletinKind::Interbank),
        ] {
            assert_eq!(read_one("2010-06-01 13:03:38.3", label).rows[0].kind, kind, "{label}");
        }
        for label in ["", "fechamento", "Fechamento ", "Fechamento Especial", "Intermediario"] {
            let read = read_one("2010-06-01 13:03:38.3", label);
            assert_eq!(read.bad[0].reason, format!("tipoBoletim {label:?} is unknown"));
            assert!(read.rows.is_empty());
        }
    }

    #[test]
    fn no_rows_are_no_quote_and_no_value_is_an_error() {
        assert_eq!(read(Currency::Usd, envelope(&[]).as_bytes(), TODAY).unwrap().total, 0);
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
            assert!(read(Currency::Usd, body.as_bytes(), TODAY).is_err(), "{body}");
        }
        let large = vec![b' '; MOST_BODY_BYTES + 1];
        assert_eq!(read(Currency::Usd, &large, TODAY), Err(Refused::TooLarge { most_bytes: MOST_BODY_BYTES }));
    }

    #[test]
    fn rows_without_parities_are_rows() {
        let whole = row(("4.0207", "4.0213"), "2020-01-02 13:11:10.762", "Fechamento PTAX");
        let short = whole.replace(r#""paridadeCompra":1,"paridadeVenda":1,"#, "");
        assert!(short.len() < whole.len());
        assert_eq!(read_rows(Currency::Usd, &[short]).rows.len(), 1);
    }

    #[test]
    fn values_before_the_real_are_in_the_currency_of_the_day() {
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
            assert_eq!(read_one(published, "Fechamento").rows[0].quote_currency, code, "{published}");
        }
    }

    #[test]
    fn the_first_quotes_of_the_dollar_are_of_the_days_before_their_publication() {
        for (published, date) in [
            ("1984-12-03 11:29:00.0", day(1984, 11, 28)),
            ("1984-12-03 16:38:00.0", day(1984, 11, 29)),
            ("1984-12-04 11:17:00.0", day(1984, 11, 30)),
            ("1984-12-04 11:18:00.0", day(1984, 12, 4)),
        ] {
            assert_eq!(read_one(published, "Fechamento").rows[0].date, date, "{published}");
        }
        let mark = read_rows(Currency::Gbp, &[row(("1", "2"), "1984-12-03 11:29:00.0", "Fechamento")]);
        assert_eq!(mark.rows[0].date, day(1984, 12, 3));
    }

    #[test]
    fn rows_are_in_the_order_of_publication_and_then_of_the_day() {
        let read = read_rows(
            Currency::Aud,
            &[
                row(("4.0459", "4.0475"), "2022-01-03 13:11:50.35", "Fechamento"),
                row(("4.0704", "4.0719"), "2022-01-03 13:11:50.350", "Intermediário"),
                row(("4.0477", "4.0487"), "2022-01-03 10:04:22.186", "Abertura"),
            ],
        );
        let kinds: Vec<BulletinKind> = read.rows.iter().map(|row| row.kind).collect();
        assert_eq!(kinds, [BulletinKind::Opening, BulletinKind::Intermediate, BulletinKind::Closing]);
    }

    #[test]
    fn a_bulletin_that_stands_twice_is_one_and_two_closes_of_a_day_are_two() {
        let early = row(("5.6874", "5.6880"), "2025-04-23 13:06:30.416", "Fechamento");
        let late = row(("5.6874", "5.6880"), "2025-04-23 13:06:30.443", "Fechamento");
        let read = read_rows(Currency::Usd, &[late.clone(), early.clone(), early, late]);
        assert_eq!((read.rows.len(), read.merged, read.total, read.bad.len()), (2, 2, 4, 0));
        assert!(read.rows[0].published_at < read.rows[1].published_at);
    }

    #[test]
    fn a_bulletin_with_two_rates_has_none() {
        let read = read_rows(
            Currency::Usd,
            &[
                row(("5.6874", "5.6880"), "2025-04-23 13:06:30.416", "Fechamento"),
                row(("5.6800", "5.6880"), "2025-04-24 13:06:30.416", "Fechamento"),
                row(("5.6874", "5.6881"), "2025-04-23 13:06:30.416", "Fechamento PTAX"),
            ],
        );
        assert_eq!(read.rows.len(), 1);
        assert_eq!(read.bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), [1, 3]);
        assert!(read.bad[0].reason.starts_with("there are other rates of the same bulletin"));
    }

    #[test]
    fn one_bad_row_leaves_the_others() {
        let good = row(("5.1", "5.2"), "2020-01-02 13:11:10.762", "Fechamento");
        for (bad, reason) in [
            (row(("1e3", "5.2"), "2020-01-03 13:11:10.7", "Fechamento"), "cotacaoCompra \"1e3\" is not a plain"),
            (row(("\"5.1\"", "5.2"), "2020-01-03 13:11:10.7", "Fechamento"), "cotacaoCompra \"\\\"5.1\\\"\" is not"),
            (row(("null", "5.2"), "2020-01-03 13:11:10.7", "Fechamento"), "cotacaoCompra \"null\" is not"),
            (row(("5.1", "0.00"), "2020-01-03 13:11:10.7", "Fechamento"), "cotacaoVenda is 0.00"),
            (row(("-5.1", "5.2"), "2020-01-03 13:11:10.7", "Fechamento"), "cotacaoCompra is -5.1"),
            (
                row(("5.1234567890123", "6"), "2020-01-03 13:11:10.7", "Fechamento"),
                "cotacaoCompra \"5.1234567890123\" has more than 12",
            ),
            (
                row(("5.1", "5.2"), "03/01/2020 13:11", "Fechamento"),
                "dataHoraCotacao \"03/01/2020 13:11\" is no moment",
            ),
            (row(("5.1", "5.2"), "2026-11-16 10:00:00.0", "Abertura"), "a quote of 2026-11-16 cannot be"),
            (row(("5.1", "5.2"), "1900-01-02 10:00:00.0", "Abertura"), "a quote of 1900-01-02 cannot be"),
            (
                r#"{"cotacaoCompra":5.1,"cotacaoVenda":5.2,"dataHoraCotacao":"2020-01-02 13:11:10.762"}"#.to_owned(),
                "it has no tipoBoletim",
            ),
            ("7".to_owned(), "it is not an object"),
        ] {
            let read = read_rows(Currency::Usd, &[good.clone(), bad.clone()]);
            assert_eq!((read.rows.len(), read.bad.len()), (1, 1), "{bad}");
            assert!(read.bad[0].reason.starts_with(reason), "{}", read.bad[0].reason);
            assert_eq!((read.bad[0].line, &read.bad[0].text), (2, &bad));
        }
    }

    #[test]
    fn a_further_key_is_told() {
        let further = row(("5.1", "5.2"), "2020-01-02 13:11:10.7", "Abertura").replace("paridadeVenda", "nova");
        let read = read_rows(Currency::Usd, &[further]);
        assert_eq!(read.alerts, [Alert::AdditionalColumns(vec!["\"nova\"".to_owned()])]);
    }

    proptest! {
        #[test]
        fn nothing_panics(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(Currency::Usd, &body, TODAY);
        }

        #[test]
        fn every_row_is_accounted_for(
            rows in proptest::collection::vec(
                ("[01]\\.[01]", "202[0-1]-01-01 10:00:00\\.[01]", "(Abertura|Fechamento|x)"),
                0..12,
            ),
        ) {
            let rows: Vec<String> =
                rows.iter().map(|(rate, published, label)| row((rate, "2"), published, label)).collect();
            let read = read_rows(Currency::Usd, &rows);
            prop_assert_eq!(read.total, read.rows.len() as u64 + read.bad.len() as u64 + read.merged);
        }
    }
}
