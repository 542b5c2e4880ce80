//! The exchange rates.

use super::*;

#[tokio::test]
async fn a_day_has_five_bulletins_and_the_close_is_named_by_the_resource() {
    let client = Client::new();
    let of_period = client.quotes("EUR", "11-13-2026", "11-13-2026").await;
    let labels: Vec<&str> = of_period.iter().map(|quote| quote.label.as_str()).collect();
    assert_eq!(labels, ["Abertura", "Intermediário", "Intermediário", "Intermediário", "Fechamento"]);
    assert!(of_period.is_sorted_by(|a, b| a.stamp < b.stamp));
    // The last survey and the close share the minute.
    assert_eq!(of_period[3].stamp[..16], of_period[4].stamp[..16]);
    let path = "/olinda/servico/PTAX/versao/v1/odata/CotacaoMoedaDia(moeda=@moeda,dataCotacao=@dataCotacao)\
                ?@moeda='EUR'&@dataCotacao='11-13-2026'&$format=json";
    let body = client.text(path).await;
    assert!(
        body.starts_with(r#"{"@odata.context":"https://was-p.bcnet.bcb.gov.br/olinda/servico/PTAX/versao/v1/odata$"#)
    );
    let of_day = quotes(&body);
    assert_eq!(of_day.last().unwrap().label, "Fechamento PTAX");
    assert_eq!(of_day.last().unwrap().sell, of_period[4].sell);
    assert_eq!(of_day[..4], of_period[..4]);
}

#[tokio::test]
async fn ptax_takes_percent_encodings_and_leaves_a_plus_alone() {
    let client = Client::new();
    let plain = period("USD", "11-09-2026", "11-13-2026");
    let encoded = plain.replace('@', "%40").replace('\'', "%27").replace('$', "%24");
    assert_eq!(client.text(&plain).await, client.text(&encoded).await);
    assert_eq!(client.quotes("USD", "11-09-2026", "11-13-2026").await.len(), 25);
    assert!(client.quotes("USD+", "11-09-2026", "11-13-2026").await.is_empty());
    // Without quotes there is no parameter.
    assert_eq!(client.get(&plain.replace('\'', "")).await.status(), 400);
}

#[tokio::test]
async fn ptax_answers_200_with_nothing_for_weekends_other_dates_and_other_currencies() {
    let client = Client::new();
    for (currency, from, to) in [
        ("USD", "11-07-2026", "11-08-2026"),
        ("USD", "7/13/2026", "7/17/2026"),
        ("USD", "11/09/2026", "11/13/2026"),
        ("USD", "2026-11-09", "2026-11-13"),
        ("ARS", "11-09-2026", "11-13-2026"),
        ("EUR", "01-02-1998", "12-30-1998"),
        ("USD", "11-16-2026", "11-30-2026"),
    ] {
        let body = client.text(&period(currency, from, to)).await;
        assert!(body.ends_with(r##"#_CotacaoMoedaPeriodo","value":[]}"##), "{currency} {from}: {body}");
    }
}

#[tokio::test]
async fn stamps_have_one_three_or_six_digits_by_era_and_no_zeros_at_their_end() {
    let client = Client::new();
    let longest = async |from: &str, to: &str| {
        let quotes = client.quotes("USD", from, to).await;
        let fractions: Vec<&str> = quotes.iter().map(Quote::fraction).collect();
        assert!(fractions.iter().all(|fraction| *fraction == "0" || !fraction.ends_with('0')));
        let lengths: BTreeSet<usize> = fractions.iter().map(|fraction| fraction.len()).collect();
        (lengths.first().copied().unwrap(), lengths.last().copied().unwrap())
    };
    assert_eq!(longest("01-02-1985", "12-31-1985").await, (1, 1));
    assert_eq!(longest("01-02-2020", "12-31-2020").await, (1, 3));
    assert_eq!(longest("06-08-2026", "11-13-2026").await.1, 6);
}

#[tokio::test]
async fn the_first_quotes_are_stamped_days_later() {
    let client = Client::new();
    let quotes = client.quotes("USD", "11-28-1984", "12-03-1984").await;
    let stamps: Vec<&str> = quotes.iter().map(|quote| quote.stamp.as_str()).collect();
    assert_eq!(stamps[..3], ["1984-12-03 11:29:00.0", "1984-12-03 16:38:00.0", "1984-12-04 11:17:00.0"]);
    assert!(stamps.len() == 4 && stamps[3].starts_with("1984-12-03 18:10"));
    assert!(number(&quotes[0].sell) > 2000.0);
    assert_eq!(client.quotes("GBP", "11-28-1984", "12-03-1984").await.len(), 3);
}

#[tokio::test]
async fn old_days_have_only_closes_and_nine_of_them_two() {
    let client = Client::new();
    let mut of_day: BTreeMap<NaiveDate, usize> = BTreeMap::new();
    for year in 1985..1999 {
        for quote in client.quotes("USD", &format!("01-01-{year}"), &format!("12-31-{year}")).await {
            assert_eq!(quote.label, "Fechamento");
            *of_day.entry(quote.date()).or_default() += 1;
        }
    }
    assert_eq!(of_day.values().filter(|count| **count == 2).count(), 9);
    assert!(of_day.len() > 3_400 && of_day.values().all(|count| *count <= 2));
}

#[tokio::test]
async fn interbank_closes_exist_from_october_1999_to_june_2011() {
    let client = Client::new();
    let interbank = async |from: &str, to: &str| {
        let quotes = client.quotes("USD", from, to).await;
        let days: BTreeSet<NaiveDate> = quotes.iter().map(Quote::date).collect();
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
async fn odd_days_of_the_dollar_are_odd() {
    let client = Client::new();
    let closes = async |day: &str| -> Vec<Quote> {
        let quotes = client.quotes("USD", day, day).await;
        quotes.into_iter().filter(|quote| quote.label == "Fechamento").collect()
    };
    let twice = closes("04-23-2025").await;
    assert_eq!(twice.len(), 2);
    assert!(twice[0].sell == twice[1].sell && twice[0].stamp < twice[1].stamp);
    assert_eq!(closes("12-30-2025").await[0].sell, closes("12-31-2025").await[0].sell);
    assert_eq!(client.quotes("USD", "12-24-2025", "12-24-2025").await.len(), 3);
}

#[tokio::test]
async fn the_dollar_closes_at_what_sgs_says() {
    let client = Client::new();
    for year in [1984, 1989, 1994, 2003, 2011, 2025, 2026] {
        let quotes = client.quotes("USD", &format!("01-01-{year}"), &format!("12-31-{year}")).await;
        // The last close of a day counts; those of 1984 that are stamped later are left out.
        let closes: BTreeMap<NaiveDate, Quote> =
            quotes.into_iter().filter(|quote| quote.label == "Fechamento").map(|quote| (quote.date(), quote)).collect();
        let (from, to) = (format!("01/01/{year}"), format!("31/12/{year}"));
        let sell = client.series(1, &from, &to).await;
        let buy = client.series(10813, &from, &to).await;
        assert!(sell.len() > 20 && sell.len() == buy.len());
        for ((date, sell), (_, buy)) in sell.iter().zip(&buy).filter(|((date, _), _)| *date > day("1984-11-30")) {
            let quote = &closes[date];
            assert_eq!((number(&quote.buy), number(&quote.sell)), (number(buy), number(sell)), "{date}");
            assert!(number(buy) < number(sell));
        }
    }
}

#[tokio::test]
async fn rates_are_json_numbers_that_keep_their_zeros() {
    let client = Client::new();
    let dollar = &client.quotes("USD", "11-13-2026", "11-13-2026").await[4];
    assert!(dollar.buy.ends_with('0') && dollar.buy.rsplit_once('.').unwrap().1.len() == 5, "{dollar:?}");
    let yen = &client.quotes("JPY", "11-12-2025", "11-12-2025").await[4];
    assert!(yen.buy.starts_with("0.0") && yen.buy.rsplit_once('.').unwrap().1.len() == 5, "{yen:?}");
    let body = client.text(&period("USD", "11-13-2026", "11-13-2026")).await;
    assert!(body.contains(r#""paridadeCompra":1.0000,"paridadeVenda":1.0000,"cotacaoCompra":"#));
}

#[tokio::test]
async fn there_are_ten_currencies_of_two_types() {
    let client = Client::new();
    let body: Value =
        client.get("/olinda/servico/PTAX/versao/v1/odata/Moedas?$format=json").await.json().await.unwrap();
    let known: Vec<String> = body["value"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| format!("{}{}", row["simbolo"].as_str().unwrap(), row["tipoMoeda"].as_str().unwrap()))
        .collect();
    assert_eq!(known, ["AUDB", "CADA", "CHFA", "DKKA", "EURB", "GBPB", "JPYA", "NOKA", "SEKA", "USDA"]);
    for currency in &known {
        let quotes = client.quotes(&currency[..3], "11-13-2026", "11-13-2026").await;
        assert!(quotes.len() == 5 && quotes.iter().all(|quote| number(&quote.buy) < number(&quote.sell)));
    }
}

#[tokio::test]
async fn top_and_skip_cut_and_what_is_not_known_is_refused() {
    let client = Client::new();
    let all = client.quotes("CHF", "11-09-2026", "11-13-2026").await;
    let path = period("CHF", "11-09-2026", "11-13-2026");
    assert_eq!(quotes(&client.text(&path.replace("$top=10000", "$top=7&$skip=3")).await), all[3..10]);
    assert_eq!(client.get(&format!("{path}&$filter=tipoBoletim%20eq%20'Fechamento'")).await.status(), 400);
}

#[tokio::test]
async fn bulletins_of_today_come_one_after_the_other() {
    let client = Client::new();
    let count = async |hour| {
        client.upstreams.set_now(day("2026-11-13").and_hms_opt(hour, 0, 0).unwrap());
        client.quotes("EUR", "11-13-2026", "11-13-2026").await.len()
    };
    assert_eq!((count(9).await, count(11).await, count(13).await, count(14).await), (0, 1, 3, 5));
}
