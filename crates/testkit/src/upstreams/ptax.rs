//! The central bank's exchange rates (PTAX), as `olinda.bcb.gov.br` serves them.
//!
//! The dollar's closing rates are those of SGS 1 and 10813. The other currencies' rates in dollars are synthetic, and so
//! are the bulletins before the close. Days covered by a real sample are served unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use chrono::{Datelike, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike};
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::calendar::ymd;
use super::fake_response::{FakeResponse, parse_query};
use super::market_data::{DOLLAR_BUY, DOLLAR_SELL, MarketData};
use super::seeded_random::{SeededRandom, smooth_noise};
use super::series_rows::{SeriesRows, format_f64, format_units, parse_number};

pub const PATH_PREFIX: &str = "/olinda/servico/PTAX/versao/v1/odata/";

const ODATA_CONTENT_TYPE: &str = "application/json;charset=UTF-8;odata.metadata=minimal";
const PERIOD_RESOURCE: &str =
    "CotacaoMoedaPeriodo(moeda=@moeda,dataInicial=@dataInicial,dataFinalCotacao=@dataFinalCotacao)";
const DAY_RESOURCE: &str = "CotacaoMoedaDia(moeda=@moeda,dataCotacao=@dataCotacao)";

/// The codes of the euro's closing rates in SGS.
const EURO_SELL: u32 = 21619;
const EURO_BUY: u32 = 21620;

const CLOSE_LABEL: &str = "Fechamento";
/// The label that `CotacaoMoedaDia` uses for the same bulletin.
const DAY_RESOURCE_CLOSE_LABEL: &str = "Fechamento PTAX";
const INTERBANK_CLOSE_LABEL: &str = "Fechamento Interbancário";

/// Type A is quoted in units per dollar, type B in dollars per unit.
struct PtaxCurrency {
    code: &'static str,
    name: &'static str,
    quote_type: char,
    /// Its approximate long-run rate to the dollar, quoted by its type.
    typical_parity: f64,
    quoted_since: NaiveDate,
}

const fn new_currency(code: &'static str, name: &'static str, quote_type: char, typical_parity: f64) -> PtaxCurrency {
    PtaxCurrency { code, name, quote_type, typical_parity, quoted_since: ymd(1984, 11, 29) }
}

const CURRENCIES: [PtaxCurrency; 10] = [
    new_currency("AUD", "Dólar australiano", 'B', 0.66),
    new_currency("CAD", "Dólar canadense", 'A', 1.38),
    new_currency("CHF", "Franco suíço", 'A', 0.9),
    new_currency("DKK", "Coroa dinamarquesa", 'A', 6.8),
    PtaxCurrency { quoted_since: ymd(1998, 12, 31), ..new_currency("EUR", "Euro", 'B', 1.1) },
    new_currency("GBP", "Libra Esterlina", 'B', 1.28),
    new_currency("JPY", "Iene", 'A', 148.0),
    new_currency("NOK", "Coroa norueguesa", 'A', 10.5),
    new_currency("SEK", "Coroa sueca", 'A', 10.3),
    PtaxCurrency { quoted_since: FIRST_QUOTE_DATE, ..new_currency("USD", "Dólar dos Estados Unidos", 'A', 1.0) },
];

const FIRST_QUOTE_DATE: NaiveDate = ymd(1984, 11, 28);
/// Quotes of the first three days have timestamps some days later.
const FIRST_TIMESTAMPS: [(NaiveDate, NaiveDate, u32, u32); 3] = [
    (FIRST_QUOTE_DATE, ymd(1984, 12, 3), 11, 29),
    (ymd(1984, 11, 29), ymd(1984, 12, 3), 16, 38),
    (ymd(1984, 11, 30), ymd(1984, 12, 4), 11, 17),
];
const INTERBANK_SINCE: NaiveDate = ymd(1999, 10, 1);
/// Since then four surveys a day and their mean; before, a bulletin every half hour.
const FOUR_SURVEYS_SINCE: NaiveDate = ymd(2011, 7, 1);
const MICROSECONDS_SINCE: NaiveDate = ymd(2026, 6, 8);
/// Since then rates have a fifth decimal, mostly zero.
const FIVE_DECIMALS_SINCE: NaiveDate = ymd(2026, 6, 1);
const DOUBLE_CLOSE_DATE: NaiveDate = ymd(2025, 4, 23);

/// One bulletin of one currency, with numbers as JSON text.
#[derive(Debug, Clone)]
struct PtaxBulletin {
    parity_buy: String,
    parity_sell: String,
    buy: String,
    sell: String,
    timestamp: String,
    published_at: NaiveDateTime,
    label: String,
}

/// Complete days of bulletins from real response bodies.
#[derive(Debug, Default)]
pub struct PtaxSamples {
    bulletins_by_day: BTreeMap<(String, NaiveDate), Vec<PtaxBulletin>>,
}

pub fn respond(
    path: &str,
    query: &str,
    now: NaiveDateTime,
    market: &MarketData,
    samples: &PtaxSamples,
) -> FakeResponse {
    let resource = path.strip_prefix(PATH_PREFIX).unwrap_or_default();
    let parameters = parse_query(query);
    let parameter = |name: &str| parameters.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());

    // An error is better than a response that differs from the real service's.
    if ["$filter", "$orderby", "$select"].iter().any(|name| parameter(name).is_some()) {
        return bad_request("o substituto não conhece $filter, $orderby e $select");
    }
    if parameter("$format").is_some_and(|format| format != "json") {
        return bad_request("o substituto só conhece $format=json");
    }

    let quoted_text = |name: &str| parameter(name).and_then(|value| value.strip_prefix('\'')?.strip_suffix('\''));
    let top = parse_count(parameter("$top"), usize::MAX);
    let skip = parse_count(parameter("$skip"), 0);
    let bulletins = |first: &str, last: &str| -> Option<Vec<PtaxBulletin>> {
        let code = quoted_text("@moeda")?;
        let first = quoted_text(first)?;
        let last = quoted_text(last)?;
        Some(published_bulletins(market, samples, code, parse_quote_date(first), parse_quote_date(last), now))
    };

    match resource {
        "Moedas" => currencies_response(top, skip),
        PERIOD_RESOURCE => match bulletins("@dataInicial", "@dataFinalCotacao") {
            Some(bulletins) => odata_response("_CotacaoMoedaPeriodo", &render_rows(&bulletins, CLOSE_LABEL, top, skip)),
            None => bad_request("parâmetro ausente"),
        },
        DAY_RESOURCE => match bulletins("@dataCotacao", "@dataCotacao") {
            Some(bulletins) => {
                odata_response("_CotacaoMoedaDia", &render_rows(&bulletins, DAY_RESOURCE_CLOSE_LABEL, top, skip))
            }
            None => bad_request("parâmetro ausente"),
        },
        _ => FakeResponse::new(
            StatusCode::NOT_FOUND,
            ODATA_CONTENT_TYPE,
            r#"/*{"codigo":404,"mensagem":"Recurso não encontrado"}*/"#,
        ),
    }
}

fn bad_request(message: &str) -> FakeResponse {
    FakeResponse::new(
        StatusCode::BAD_REQUEST,
        ODATA_CONTENT_TYPE,
        format!(r#"/*{{"codigo":400,"mensagem":"{message}"}}*/"#),
    )
}

fn parse_count(parameter: Option<&str>, default: usize) -> usize {
    parameter.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Parses zero-padded `MM-DD-YYYY`. Anything else is accepted without an error and matches no bulletin.
fn parse_quote_date(text: &str) -> Option<NaiveDate> {
    if text.len() != 10 { None } else { NaiveDate::parse_from_str(text, "%m-%d-%Y").ok() }
}

fn odata_response(context: &str, rows: &[String]) -> FakeResponse {
    let service = "https://was-p.bcnet.bcb.gov.br/olinda/servico/PTAX/versao/v1/odata";
    let rows = rows.join(",");
    FakeResponse::new(
        StatusCode::OK,
        ODATA_CONTENT_TYPE,
        format!(r#"{{"@odata.context":"{service}$metadata#{context}","value":[{rows}]}}"#),
    )
}

fn currencies_response(top: usize, skip: usize) -> FakeResponse {
    let row = |currency: &PtaxCurrency| {
        let PtaxCurrency { code, name, quote_type, .. } = currency;
        format!(r#"{{"simbolo":"{code}","nomeFormatado":"{name}","tipoMoeda":"{quote_type}"}}"#)
    };
    odata_response("Moedas", &CURRENCIES.iter().skip(skip).take(top).map(row).collect::<Vec<_>>())
}

fn render_rows(bulletins: &[PtaxBulletin], close_label: &str, top: usize, skip: usize) -> Vec<String> {
    let row = |bulletin: &PtaxBulletin| {
        let PtaxBulletin { parity_buy, parity_sell, buy, sell, timestamp, label, .. } = bulletin;
        let label = if label == CLOSE_LABEL { close_label } else { label };
        let mut row = String::with_capacity(180);
        let _ = write!(row, r#"{{"paridadeCompra":{parity_buy},"paridadeVenda":{parity_sell},"#);
        let _ = write!(row, r#""cotacaoCompra":{buy},"cotacaoVenda":{sell},"#);
        let _ = write!(row, r#""dataHoraCotacao":"{timestamp}","tipoBoletim":"{label}"}}"#);
        row
    };
    bulletins.iter().skip(skip).take(top).map(row).collect()
}

/// All bulletins published by `now` on days that have a quote, by day and time.
fn published_bulletins(
    market: &MarketData,
    samples: &PtaxSamples,
    code: &str,
    first: Option<NaiveDate>,
    last: Option<NaiveDate>,
    now: NaiveDateTime,
) -> Vec<PtaxBulletin> {
    let currency = CURRENCIES.iter().find(|currency| currency.code == code);
    let (Some(currency), Some(first), Some(last)) = (currency, first, last) else { return Vec::new() };
    let first = first.max(currency.quoted_since);
    let last = last.min(now.date());
    let (Some(buy), Some(sell)) = (market.rows(DOLLAR_BUY), market.rows(DOLLAR_SELL)) else { return Vec::new() };
    if first > last {
        return Vec::new();
    }

    let double_close_days = days_with_two_closes(&buy);
    let mut bulletins = Vec::new();
    for (date, buy_rate) in buy.range(first..=last) {
        let bulletins_of_day = match samples.bulletins_by_day.get(&(code.to_owned(), *date)) {
            Some(sample) => sample.clone(),
            None => generate_bulletins(
                currency,
                *date,
                parse_number(buy_rate),
                parse_number(&sell[date]),
                double_close_days.contains(date),
            ),
        };
        bulletins.extend(bulletins_of_day);
    }
    bulletins.retain(|bulletin| bulletin.published_at <= now);
    bulletins
}

/// The euro's closing rates as SGS repeats them, with four decimals; `None` for other codes.
pub fn euro_closing_rates(
    market: &MarketData,
    samples: &PtaxSamples,
    code: u32,
    now: NaiveDateTime,
) -> Option<SeriesRows> {
    let side: fn(&PtaxBulletin) -> &str = match code {
        EURO_SELL => |bulletin| &bulletin.sell,
        EURO_BUY => |bulletin| &bulletin.buy,
        _ => return None,
    };
    let euro = CURRENCIES.iter().find(|currency| currency.code == "EUR")?;
    let until = market.last_published_day(DOLLAR_SELL, now);
    let (buy, sell) = (market.rows(DOLLAR_BUY)?, market.rows(DOLLAR_SELL)?);
    let to_row = |(date, buy): (&NaiveDate, &String)| {
        let sample = samples.bulletins_by_day.get(&(euro.code.to_owned(), *date));
        let close = match sample.and_then(|bulletins| bulletins.iter().rfind(|bulletin| bulletin.label == CLOSE_LABEL))
        {
            Some(close) => close.clone(),
            None => {
                let (buy, sell) = (parse_number(buy), parse_number(&sell[date]));
                build_bulletin(euro, *date, buy, sell, date.and_time(NaiveTime::MIN), CLOSE_LABEL)
            }
        };
        (*date, format_f64(parse_number(side(&close)), 4))
    };
    Some(buy.range(euro.quoted_since..=until).map(to_row).collect())
}

/// The real nine days with two closes are not known, so one day in each of nine years represents them.
fn days_with_two_closes(quoted: &SeriesRows) -> BTreeSet<NaiveDate> {
    let first_from = |date: NaiveDate| quoted.range(date..).next().map(|(date, _)| *date);
    (1985..1994).filter_map(|year| first_from(ymd(year, 5, 15))).collect()
}

fn generate_bulletins(
    currency: &PtaxCurrency,
    date: NaiveDate,
    dollar_buy: f64,
    dollar_sell: f64,
    closes_twice: bool,
) -> Vec<PtaxBulletin> {
    let mut random = SeededRandom::for_day("bulletin times", date);
    let times = bulletin_times(date, closes_twice, &mut random);
    let bulletin = |(number, (published_at, label)): (usize, (NaiveDateTime, &str))| {
        // All closes of a day are equal, except on the old days with two, where the last one is correct.
        let is_final = label == CLOSE_LABEL && !(closes_twice && number == 0);
        let drift =
            if is_final { 0.0 } else { 0.002 * SeededRandom::for_day(&format!("drift {number}"), date).signed_unit() };
        let dollar_buy = dollar_buy * (1.0 + drift);
        let dollar_sell = dollar_sell * (1.0 + drift);
        build_bulletin(currency, date, dollar_buy, dollar_sell, published_at, label)
    };
    times.into_iter().enumerate().map(bulletin).collect()
}

fn bulletin_times(
    date: NaiveDate,
    closes_twice: bool,
    random: &mut SeededRandom,
) -> Vec<(NaiveDateTime, &'static str)> {
    let at = |hour, minute, random: &mut SeededRandom| {
        let time = NaiveTime::from_hms_opt(hour, minute, 0).expect("a time of the day");
        date.and_time(time) + TimeDelta::seconds(random.in_range(0, 59)) + random_second_fraction(date, random)
    };

    if let Some((_, stamped_on, hour, minute)) = FIRST_TIMESTAMPS.iter().find(|(quoted, ..)| *quoted == date) {
        let time = NaiveTime::from_hms_opt(*hour, *minute, 0).expect("a time of the day");
        return vec![(stamped_on.and_time(time), CLOSE_LABEL)];
    }
    if date < INTERBANK_SINCE {
        let close = (at(18, 10, random), CLOSE_LABEL);
        return if closes_twice { vec![(at(12, 20, random), CLOSE_LABEL), close] } else { vec![close] };
    }
    if date < FOUR_SURVEYS_SINCE {
        // This number of bulletins a day reproduces the row count of one real download of all years.
        let mut times = vec![(at(10, 2, random), "Abertura")];
        times.extend(
            (1..13).map(|half_hour| (at(10 + half_hour / 2, 30 * (half_hour % 2) + 1, random), "Intermediário")),
        );
        times.extend([(at(17, 20, random), INTERBANK_CLOSE_LABEL), (at(18, 5, random), CLOSE_LABEL)]);
        return times;
    }
    if (date.month(), date.day()) == (12, 31) {
        return vec![(at(13, 5, random), CLOSE_LABEL)];
    }

    let minute = |random: &mut SeededRandom| random.in_range(3, 11) as u32;
    let mut times =
        vec![(at(10, minute(random), random), "Abertura"), (at(11, minute(random), random), "Intermediário")];
    let last_survey = if (date.month(), date.day()) == (12, 24) {
        times[1].0
    } else {
        let last = at(13, random.in_range(3, 24) as u32, random);
        times.extend([(at(12, minute(random), random), "Intermediário"), (last, "Intermediário")]);
        last
    };

    // The close comes some milliseconds after the last survey.
    let close = last_survey + TimeDelta::milliseconds(random.in_range(4, 11));
    times.push((close, CLOSE_LABEL));
    if date == DOUBLE_CLOSE_DATE {
        times.push((close + TimeDelta::minutes(9), CLOSE_LABEL));
    }
    times
}

fn random_second_fraction(date: NaiveDate, random: &mut SeededRandom) -> TimeDelta {
    match date {
        date if date < INTERBANK_SINCE => TimeDelta::zero(),
        date if date < MICROSECONDS_SINCE => TimeDelta::milliseconds(random.in_range(0, 990)),
        _ => TimeDelta::microseconds(random.in_range(0, 988_999)),
    }
}

fn build_bulletin(
    currency: &PtaxCurrency,
    date: NaiveDate,
    dollar_buy: f64,
    dollar_sell: f64,
    published_at: NaiveDateTime,
    label: &str,
) -> PtaxBulletin {
    let is_dollar = currency.code == "USD";
    let tick = if currency.code == "JPY" { 0.01 } else { 0.0001 };
    let parity =
        if is_dollar { 1.0 } else { currency.typical_parity * (1.0 + 4.0 * smooth_noise(currency.code, date)) };
    let parity_buy = (parity / tick).round() * tick;
    let parity_sell = if is_dollar { 1.0 } else { parity_buy + 2.0 * tick };

    let (buy, sell) = match currency.quote_type {
        'B' => (dollar_buy * parity_buy, dollar_sell * parity_sell),
        _ => (dollar_buy / parity_sell, dollar_sell / parity_buy),
    };
    let decimals = if currency.code == "JPY" { 5 } else { 4 };
    let units = |value: f64| (value * 10f64.powi(decimals)).round() as i64;
    let buy_units = units(buy);
    let sell_units = units(sell).max(buy_units + 1);
    // With five decimals the last one is zero, except for the yen.
    let price = |units: i64| {
        let text = format_units(units, decimals.unsigned_abs());
        if date >= FIVE_DECIMALS_SINCE && decimals == 4 { text + "0" } else { text }
    };

    PtaxBulletin {
        parity_buy: format_f64(parity_buy, 4),
        parity_sell: format_f64(parity_sell, 4),
        buy: price(buy_units),
        sell: price(sell_units),
        timestamp: format_timestamp(published_at),
        published_at,
        label: label.to_owned(),
    }
}

/// `2022-01-03 12:09:19.76`: at least one fraction digit, and no trailing zeros beyond it.
fn format_timestamp(time: NaiveDateTime) -> String {
    let micros = format!("{:06}", time.nanosecond() / 1000);
    let fraction = match micros.trim_end_matches('0') {
        "" => "0",
        digits => digits,
    };
    format!("{}.{fraction}", time.format("%Y-%m-%d %H:%M:%S"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PtaxSampleRow<'a> {
    #[serde(borrow)]
    paridade_compra: Option<&'a RawValue>,
    #[serde(borrow)]
    paridade_venda: Option<&'a RawValue>,
    #[serde(borrow)]
    cotacao_compra: Option<&'a RawValue>,
    #[serde(borrow)]
    cotacao_venda: Option<&'a RawValue>,
    data_hora_cotacao: Option<String>,
    tipo_boletim: Option<String>,
}

#[derive(Deserialize)]
struct PtaxSampleBody<'a> {
    #[serde(borrow)]
    value: Vec<PtaxSampleRow<'a>>,
}

impl PtaxSamples {
    /// Loads `directory`/ptax/ptax_samples.json: bodies under names such as `CotacaoMoedaDia_AUD_2022-01-31`.
    pub fn load(directory: Option<&Path>) -> anyhow::Result<Self> {
        let file = directory.map(|directory| directory.join("ptax/ptax_samples.json")).filter(|file| file.exists());
        let Some(file) = file else { return Ok(Self::default()) };
        let text = std::fs::read_to_string(&file)?;
        Self::parse(&text).with_context(|| format!("reading {}", file.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let bodies: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
        let mut bulletins_by_day: BTreeMap<(String, NaiveDate), Vec<PtaxBulletin>> = BTreeMap::new();
        for (name, body) in bodies {
            let mut words = name.split('_');
            let has_bulletins = words.next().is_some_and(|resource| resource.starts_with("CotacaoMoeda"));
            let Some(code) = words.next().filter(|_| has_bulletins) else { continue };
            let body: PtaxSampleBody = serde_json::from_str(body.get())?;
            for bulletin in body.value.iter().filter_map(|row| row.to_bulletin(code)) {
                bulletins_by_day.entry((code.to_owned(), bulletin.published_at.date())).or_default().push(bulletin);
            }
        }

        // A day without its open or its close is incomplete; a generated day replaces it.
        let is_complete = |bulletins: &Vec<PtaxBulletin>| {
            let has = |label| bulletins.iter().any(|bulletin| bulletin.label == label);
            has("Abertura") && has(CLOSE_LABEL)
        };
        bulletins_by_day.retain(|_, bulletins| is_complete(bulletins));
        Ok(Self { bulletins_by_day })
    }
}

impl PtaxSampleRow<'_> {
    /// `None` for rows of other resources, which have fewer fields. The dollar's parity is always one.
    fn to_bulletin(&self, code: &str) -> Option<PtaxBulletin> {
        let token = |value: Option<&RawValue>| value.map(|value| value.get().to_owned());
        let parity = |value| token(value).or_else(|| (code == "USD").then(|| "1.0000".to_owned()));
        let timestamp = self.data_hora_cotacao.clone()?;
        let published_at = NaiveDateTime::parse_from_str(&timestamp, "%Y-%m-%d %H:%M:%S%.f").ok()?;
        let label = self.tipo_boletim.clone()?;

        Some(PtaxBulletin {
            parity_buy: parity(self.paridade_compra)?,
            parity_sell: parity(self.paridade_venda)?,
            buy: token(self.cotacao_compra)?,
            sell: token(self.cotacao_venda)?,
            timestamp,
            published_at,
            label: if label == DAY_RESOURCE_CLOSE_LABEL { CLOSE_LABEL.to_owned() } else { label },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_drop_trailing_zeros_but_keep_one_digit() {
        let at = |text: &str| format_timestamp(NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").unwrap());
        assert_eq!(at("1984-12-03 11:29:00"), "1984-12-03 11:29:00.0");
        assert_eq!(at("2022-01-03 12:09:19.760"), "2022-01-03 12:09:19.76");
        assert_eq!(at("2026-07-01 13:03:38.302145"), "2026-07-01 13:03:38.302145");
    }

    #[test]
    fn complete_sample_days_keep_their_exact_number_texts() {
        let body = r#"{"_note": "n", "CotacaoMoedaDia_AUD_2031-01-30": {"value": [
            {"paridadeCompra":0.7050,"paridadeVenda":0.7053,"cotacaoCompra":3.80010,"cotacaoVenda":3.8016,
             "dataHoraCotacao":"2031-01-30 10:11:20.5","tipoBoletim":"Abertura"},
            {"paridadeCompra":0.7051,"paridadeVenda":0.7052,"cotacaoCompra":3.7771,"cotacaoVenda":3.7780,
             "dataHoraCotacao":"2031-01-30 13:07:02.511","tipoBoletim":"Fechamento PTAX"},
            {"paridadeCompra":0.7,"paridadeVenda":0.8,"cotacaoCompra":3.7,"cotacaoVenda":3.8,
             "dataHoraCotacao":"2031-01-31 10:07:02.511","tipoBoletim":"Abertura"}]}}"#;

        let samples = PtaxSamples::parse(body).unwrap();
        assert_eq!(samples.bulletins_by_day.len(), 1);
        let bulletins = &samples.bulletins_by_day[&("AUD".to_owned(), ymd(2031, 1, 30))];
        assert_eq!((bulletins[0].parity_buy.as_str(), bulletins[0].buy.as_str()), ("0.7050", "3.80010"));
        assert_eq!(bulletins[1].label, CLOSE_LABEL);
    }
}
