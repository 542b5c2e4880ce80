//! PTAX exchange rates.

use super::*;

#[tokio::test]
async fn a_day_has_five_bulletins_and_each_resource_labels_the_close_its_own_way() {
    let client = TestClient::new();
    let period_quotes = client.get_quotes("EUR", "11-13-2026", "11-13-2026").await;
    let labels: Vec<&str> = period_quotes.iter().map(|quote| quote.label.as_str()).collect();
    assert_eq!(labels, ["Abertura", "Intermediário", "Intermediário", "Intermediário", "Fechamento"]);
    assert!(period_quotes.is_sorted_by(|a, b| a.timestamp < b.timestamp));
    // The last survey and the close are in the same minute.
    assert_eq!(period_quotes[3].timestamp[..16], period_quotes[4].timestamp[..16]);

    let path = "/olinda/servico/PTAX/versao/v1/odata/CotacaoMoedaDia(moeda=@moeda,dataCotacao=@dataCotacao)\
                ?@moeda='EUR'&@dataCotacao='11-13-2026'&$format=json";
    let body = client.get_text(path).await;
    assert!(
        body.starts_with(r#"{"@odata.context":"https://was-p.bcnet.bcb.gov.br/olinda/servico/PTAX/versao/v1/odata$"#)
    );
    let day_quotes = parse_quotes(&body);
    assert_eq!(day_quotes.last().unwrap().label, "Fechamento PTAX");
    assert_eq!(day_quotes.last().unwrap().sell, period_quotes[4].sell);
    assert_eq!(day_quotes[..4], period_quotes[..4]);
}

#[tokio::test]
async fn ptax_decodes_percent_encoding_but_not_plus() {
    let client = TestClient::new();
    let plain = ptax_period_path("USD", "11-09-2026", "11-13-2026");
    let encoded = plain.replace('@', "%40").replace('\'', "%27").replace('$', "%24");
    assert_eq!(client.get_text(&plain).await, client.get_text(&encoded).await);
    assert_eq!(client.get_quotes("USD", "11-09-2026", "11-13-2026").await.len(), 25);
    assert!(client.get_quotes("USD+", "11-09-2026", "11-13-2026").await.is_empty());
    // A value without quotes counts as missing.
    assert_eq!(client.get(&plain.replace('\'', "")).await.status(), 400);
}

#[tokio::test]
async fn ptax_answers_200_without_rows_for_weekends_bad_dates_and_unknown_currencies() {
    let client = TestClient::new();
    for (currency, from, to) in [
        ("USD", "11-07-2026", "11-08-2026"),
        ("USD", "7/13/2026", "7/17/2026"),
        ("USD", "11/09/2026", "11/13/2026"),
        ("USD", "2026-11-09", "2026-11-13"),
        ("ARS", "11-09-2026", "11-13-2026"),
        ("EUR", "01-02-1998", "12-30-1998"),
        ("USD", "11-16-2026", "11-30-2026"),
    ] {
        let body = client.get_text(&ptax_period_path(currency, from, to)).await;
        assert!(body.ends_with(r##"#_CotacaoMoedaPeriodo","value":[]}"##), "{currency} {from}: {body}");
    }
}

#[tokio::test]
async fn timestamps_have_up_to_one_three_or_six_fraction_digits_by_era() {
    let client = TestClient::new();
    let fraction_lengths = async |from: &str, to: &str| {
        let quotes = client.get_quotes("USD", from, to).await;
        let fractions: Vec<&str> = quotes.iter().map(PtaxQuote::second_fraction).collect();
        assert!(fractions.iter().all(|fraction| *fraction == "0" || !fraction.ends_with('0')));
        let lengths: BTreeSet<usize> = fractions.iter().map(|fraction| fraction.len()).collect();
        (lengths.first().copied().unwrap(), lengths.last().copied().unwrap())
    };

    assert_eq!(fraction_lengths("01-02-1985", "12-31-1985").await, (1, 1));
    assert_eq!(fraction_lengths("01-02-2020", "12-31-2020").await, (1, 3));
    assert_eq!(fraction_lengths("06-08-2026", "11-13-2026").await.1, 6);
}

#[tokio::test]
async fn the_first_quotes_have_timestamps_days_later() {
    let client = TestClient::new();
    let quotes = client.get_quotes("USD", "11-28-1984", "12-03-1984").await;
    let timestamps: Vec<&str> = quotes.iter().map(|quote| quote.timestamp.as_str()).collect();
    assert_eq!(timestamps[..3], ["1984-12-03 11:29:00.0", "1984-12-03 16:38:00.0", "1984-12-04 11:17:00.0"]);
    assert!(timestamps.len() == 4 && timestamps[3].starts_with("1984-12-03 18:10"));
    assert!(parse_number(&quotes[0].sell) > 2000.0);
    assert_eq!(client.get_quotes("GBP", "11-28-1984", "12-03-1984").await.len(), 3);
}

#[tokio::test]
async fn old_days_have_only_closes_and_nine_days_have_two() {
    let client = TestClient::new();
    let mut closes_per_day: BTreeMap<NaiveDate, usize> = BTreeMap::new();
    for year in 1985..1999 {
        for quote in client.get_quotes("USD", &format!("01-01-{year}"), &format!("12-31-{year}")).await {
            assert_eq!(quote.label, "Fechamento");
            *closes_per_day.entry(quote.date()).or_default() += 1;
        }
    }

    assert_eq!(closes_per_day.values().filter(|count| **count == 2).count(), 9);
    assert!(closes_per_day.len() > 3_400 && closes_per_day.values().all(|count| *count <= 2));
}

#[tokio::test]
async fn interbank_closes_exist_from_october_1999_to_june_2011() {
    let client = TestClient::new();
    let interbank = async |from: &str, to: &str| {
        let quotes = client.get_quotes("USD", from, to).await;
        let days: BTreeSet<NaiveDate> = quotes.iter().map(PtaxQuote::date).collect();
        let closes = quotes.iter().filter(|quote| quote.label == "Fechamento").count();
        assert_eq!(closes, days.len());
        (quotes.iter().filter(|quote| quote.label == "Fechamento Interbancário").count(), days.len())
    };

    assert_eq!(interbank("09-01-1999", "09-30-1999").await.0, 0);
    for (from, to) in [("10-01-1999", "10-31-1999"), ("06-01-2011", "06-30-2011")] {
        let (interbank, days) = interbank(from, to).await;
        assert_eq!(interbank, days);
    }
    assert_eq!(interbank("07-01-2011", "07-29-2011").await.0, 0);
}

#[tokio::test]
async fn known_irregular_dollar_days_are_reproduced() {
    let client = TestClient::new();
    let closes = async |day: &str| -> Vec<PtaxQuote> {
        let quotes = client.get_quotes("USD", day, day).await;
        quotes.into_iter().filter(|quote| quote.label == "Fechamento").collect()
    };

    let double_close = closes("04-23-2025").await;
    assert_eq!(double_close.len(), 2);
    assert!(double_close[0].sell == double_close[1].sell && double_close[0].timestamp < double_close[1].timestamp);
    assert_eq!(closes("12-30-2025").await[0].sell, closes("12-31-2025").await[0].sell);
    assert_eq!(client.get_quotes("USD", "12-24-2025", "12-24-2025").await.len(), 3);
}

#[tokio::test]
async fn the_dollar_close_equals_the_sgs_rate() {
    let client = TestClient::new();
    for year in [1984, 1989, 1994, 2003, 2011, 2025, 2026] {
        let quotes = client.get_quotes("USD", &format!("01-01-{year}"), &format!("12-31-{year}")).await;
        // The last close of a day counts. The closes of 1984 with later timestamps are skipped below.
        let closes: BTreeMap<NaiveDate, PtaxQuote> =
            quotes.into_iter().filter(|quote| quote.label == "Fechamento").map(|quote| (quote.date(), quote)).collect();

        let from = format!("01/01/{year}");
        let to = format!("31/12/{year}");
        let sell = client.get_series(1, &from, &to).await;
        let buy = client.get_series(10813, &from, &to).await;
        assert!(sell.len() > 20 && sell.len() == buy.len());
        for ((date, sell), (_, buy)) in sell.iter().zip(&buy).filter(|((date, _), _)| *date > parse_date("1984-11-30"))
        {
            let quote = &closes[date];
            assert_eq!(
                (parse_number(&quote.buy), parse_number(&quote.sell)),
                (parse_number(buy), parse_number(sell)),
                "{date}"
            );
            assert!(parse_number(buy) < parse_number(sell));
        }
    }
}

#[tokio::test]
async fn rates_are_json_numbers_with_trailing_zeros() {
    let client = TestClient::new();
    let dollar = &client.get_quotes("USD", "11-13-2026", "11-13-2026").await[4];
    assert!(dollar.buy.ends_with('0') && dollar.buy.rsplit_once('.').unwrap().1.len() == 5, "{dollar:?}");
    let yen = &client.get_quotes("JPY", "11-12-2025", "11-12-2025").await[4];
    assert!(yen.buy.starts_with("0.0") && yen.buy.rsplit_once('.').unwrap().1.len() == 5, "{yen:?}");
    let body = client.get_text(&ptax_period_path("USD", "11-13-2026", "11-13-2026")).await;
    assert!(body.contains(r#""paridadeCompra":1.0000,"paridadeVenda":1.0000,"cotacaoCompra":"#));
}

#[tokio::test]
async fn there_are_ten_currencies_of_two_types() {
    let client = TestClient::new();
    let body: Value =
        client.get("/olinda/servico/PTAX/versao/v1/odata/Moedas?$format=json").await.json().await.unwrap();
    let codes: Vec<String> = body["value"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| format!("{}{}", row["simbolo"].as_str().unwrap(), row["tipoMoeda"].as_str().unwrap()))
        .collect();

    assert_eq!(codes, ["AUDB", "CADA", "CHFA", "DKKA", "EURB", "GBPB", "JPYA", "NOKA", "SEKA", "USDA"]);
    for code in &codes {
        let quotes = client.get_quotes(&code[..3], "11-13-2026", "11-13-2026").await;
        assert!(quotes.len() == 5 && quotes.iter().all(|quote| parse_number(&quote.buy) < parse_number(&quote.sell)));
    }
}

#[tokio::test]
async fn top_and_skip_paginate_and_unsupported_options_are_refused() {
    let client = TestClient::new();
    let all = client.get_quotes("CHF", "11-09-2026", "11-13-2026").await;
    let path = ptax_period_path("CHF", "11-09-2026", "11-13-2026");
    assert_eq!(parse_quotes(&client.get_text(&path.replace("$top=10000", "$top=7&$skip=3")).await), all[3..10]);
    assert_eq!(client.get(&format!("{path}&$filter=tipoBoletim%20eq%20'Fechamento'")).await.status(), 400);
}

#[tokio::test]
async fn bulletins_of_today_appear_as_the_day_passes() {
    let client = TestClient::new();
    let count = async |hour| {
        client.upstreams.set_now(parse_date("2026-11-13").and_hms_opt(hour, 0, 0).unwrap());
        client.get_quotes("EUR", "11-13-2026", "11-13-2026").await.len()
    };
    assert_eq!((count(9).await, count(11).await, count(13).await, count(14).await), (0, 1, 3, 5));
}
