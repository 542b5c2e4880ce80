//! The time series.

use super::*;

#[tokio::test]
async fn sgs_windows_are_texts_in_an_array_by_rising_day() {
    let client = Client::new();
    let answer = client.get(&window(432, "01/06/2025", "03%2F06%2F2025")).await;
    assert_eq!(header(&answer, "cache-control"), "max-age=900");
    assert!(header(&answer, "content-type").starts_with("application/json"));
    let body = answer.text().await.unwrap();
    let value = &rows(&body)[0].1;
    let row = |day| format!(r#"{{"data":"0{day}/06/2025","valor":"{value}"}}"#);
    assert_eq!(body, format!("[{},{},{}]", row(1), row(2), row(3)));
    assert_eq!(value.rsplit_once('.').unwrap().1.len(), 2);
}

#[tokio::test]
async fn sgs_says_404_values_not_found_for_an_empty_window() {
    let client = Client::new();
    for (from, to) in [("08/11/2025", "09/11/2025"), ("01/01/2035", "02/01/2035"), ("10/11/2025", "01/11/2025")] {
        let answer = client.get(&window(11, from, to)).await;
        assert_eq!(answer.status(), 404);
        let detail = "br.gov.bcb.pec.sgs.comum.excecoes.SGSNegocioException: Value(s) not found";
        let body = answer.text().await.unwrap();
        assert_eq!(body, format!(r#"{{"erro":{{"statusCode":404,"detail":"{detail}"}}}}"#));
    }
}

#[tokio::test]
async fn sgs_refuses_more_than_ten_years_of_a_daily_series_with_406() {
    let client = Client::new();
    assert_eq!(client.series(432, "01/01/2016", "01/01/2026").await.len(), 3654);
    let without_first_day = "/dados/serie/bcdata.sgs.12/dados?formato=json&dataFinal=01/01/2026".to_owned();
    for path in [window(432, "01/01/2016", "02/01/2026"), window(1, "01/01/1985", "01/01/2026"), without_first_day] {
        let answer = client.get(&path).await;
        assert_eq!(answer.status(), 406, "{path}");
        let body: Value = answer.json().await.unwrap();
        assert!(body["error"].as_str().unwrap().contains("no máximo, 10 anos"));
    }
    assert_eq!(client.series(433, "01/01/1980", "01/12/2020").await.len(), 41 * 12);
    assert_eq!(rows(&client.text("/dados/serie/bcdata.sgs.433/dados?formato=json").await)[0].0, day("1980-01-01"));
}

#[tokio::test]
async fn sgs_gives_at_most_twenty_last_values_and_not_always_the_oldest_first() {
    let client = Client::new();
    let last = |code, count| format!("/dados/serie/bcdata.sgs.{code}/dados/ultimos/{count}?formato=json");
    for (code, is_newest_first) in [(4389, true), (12, false), (433, false)] {
        let rows = rows(&client.text(&last(code, 20)).await);
        assert_eq!(rows.len(), 20);
        assert_eq!(rows.is_sorted_by(|a, b| a.0 > b.0), is_newest_first, "{code}");
        assert_eq!(rows.is_sorted_by(|a, b| a.0 < b.0), !is_newest_first, "{code}");
        let refused = client.get(&last(code, 21)).await;
        assert_eq!(refused.status(), 400);
        let body: Value = refused.json().await.unwrap();
        assert!(body["erro"]["detail"].as_str().unwrap().ends_with("A quantidade máxima de valores deve ser 20"));
    }
}

#[tokio::test]
async fn the_target_is_there_for_every_day_and_into_the_future() {
    let client = Client::new();
    let today = day("2026-11-13");
    let last = rows(&client.text("/dados/serie/bcdata.sgs.432/dados/ultimos/1?formato=json").await);
    assert!(last[0].0 > today && last[0].0 <= today + Days::new(50), "{last:?}");
    let rows = client.series(432, "01/01/2020", "31/12/2026").await;
    assert!(rows.windows(2).all(|pair| pair[0].0 + Days::new(1) == pair[1].0));
    assert_eq!(rows.last().unwrap(), &last[0]);
    let until_today = client.series(432, "01/11/2026", "13/11/2026").await;
    assert_eq!(until_today.last().unwrap().0, today);
}

#[tokio::test]
async fn what_was_filled_in_ahead_is_what_the_day_brings() {
    let client = Client::new();
    let ahead = client.series(432, "13/11/2026", "31/12/2026").await;
    client.upstreams.set_today(day("2026-12-31"));
    assert!(client.series(432, "13/11/2026", "31/12/2026").await.starts_with(&ahead));
}

#[tokio::test]
async fn sgs_shows_a_page_with_200_for_unknown_codes_and_names_bad_dates() {
    let client = Client::new();
    let answer = client.get(&window(99_999, "01/01/2026", "02/01/2026")).await;
    assert_eq!(answer.status(), 200);
    assert!(header(&answer, "content-type").starts_with("text/html"));
    let page = answer.text().await.unwrap();
    assert!(page.starts_with(r#"<?xml version="1.0" encoding="pt-br"?> <!DOCTYPE html"#));
    assert!(page.contains("<title>Requisição inválida!</title>"));

    let answer = client.get(&window(11, "2026-01-01", "02/01/2026")).await;
    assert_eq!(answer.status(), 400);
    assert!(answer.text().await.unwrap().contains("SGSNegocioException: Invalid initial date"));

    let answer = client.get("/dados/serie/bcdata.sgs.11/metadados").await;
    assert_eq!(answer.status(), 404);
    assert_eq!(answer.text().await.unwrap(), "endpoint not found!");
}

#[tokio::test]
async fn sgs_has_csv_with_quotes_and_decimal_commas() {
    let client = Client::new();
    let path = window(11, "01/10/2026", "02/10/2026").replace("json", "csv");
    let csv = client.text(&path).await;
    let lines: Vec<&str> = csv.split("\r\n").collect();
    assert_eq!((lines[0], lines.len()), ("\"data\";\"valor\"", 4));
    assert!(lines[1].starts_with("\"01/10/2026\";\"0,0") && lines[1].ends_with('"'), "{csv}");
}

#[tokio::test]
async fn derived_series_follow_from_what_they_are_derived_from() {
    let client = Client::new();
    for (daily, annual) in [(12, 4389), (11, 1178)] {
        for from in [1986, 1995, 2004, 2013, 2022] {
            let (from, to) = (format!("01/01/{from}"), format!("31/12/{}", from + 8));
            let (daily, annual) = (client.series(daily, &from, &to).await, client.series(annual, &from, &to).await);
            assert!(daily.len() == annual.len() && daily.len() > 900);
            for ((day, rate), (same_day, yearly)) in daily.iter().zip(&annual) {
                let expected = ((1.0 + number(rate) / 100.0).powi(252) - 1.0) * 100.0;
                assert_eq!((day, format!("{expected:.2}")), (same_day, yearly.clone()));
                assert_eq!(rate.rsplit_once('.').unwrap().1.len(), 6);
            }
        }
    }
    let months = client.series(433, "01/01/1980", "01/10/2026").await;
    let years = client.series(13522, "01/01/1980", "01/10/2026").await;
    assert_eq!((months.len(), years[0].0), (years.len() + 11, day("1980-12-01")));
    for (window, (month, year)) in months.windows(12).zip(&years) {
        let expected = (window.iter().map(|(_, change)| 1.0 + number(change) / 100.0).product::<f64>() - 1.0) * 100.0;
        assert_eq!((window[11].0, format!("{expected:.2}")), (*month, year.clone()));
    }
}

#[tokio::test]
async fn both_overnight_rates_are_equal_since_october_2018_and_skip_weekends_and_carnival() {
    let client = Client::new();
    let (selic, cdi) =
        (client.series(11, "01/10/2018", "13/11/2026").await, client.series(12, "01/10/2018", "13/11/2026").await);
    assert_eq!(selic, cdi);
    assert!(!selic.iter().any(|(date, _)| [day("2024-02-12"), day("2024-03-29"), day("2026-11-07")].contains(date)));
    let (selic, cdi) =
        (client.series(11, "01/01/2016", "28/09/2018").await, client.series(12, "01/01/2016", "28/09/2018").await);
    assert_ne!(selic, cdi);
}

#[tokio::test]
async fn rates_of_the_day_come_in_the_evening_and_inflation_on_the_tenth() {
    let client = Client::new();
    let today = day("2026-11-10");
    let newest = async |code, hour| {
        client.upstreams.set_now(today.and_hms_opt(hour, 0, 0).unwrap());
        client.series(code, "01/08/2026", "31/12/2026").await.last().unwrap().0
    };
    assert_eq!((newest(12, 19).await, newest(12, 20).await), (day("2026-11-09"), today));
    assert_eq!((newest(1, 13).await, newest(1, 14).await), (day("2026-11-09"), today));
    assert_eq!((newest(433, 8).await, newest(433, 9).await), (day("2026-09-01"), day("2026-10-01")));
}

#[tokio::test]
async fn a_test_can_change_a_value_and_add_one() {
    let client = Client::new();
    let before = client.series(433, "01/08/2026", "01/10/2026").await;
    client.upstreams.override_sgs(433, day("2026-09-01"), "99.99");
    client.upstreams.override_sgs(433, day("2026-09-02"), "NaN");
    let after = client.series(433, "01/08/2026", "01/10/2026").await;
    assert_eq!((after[0].clone(), after[3].clone()), (before[0].clone(), before[2].clone()));
    assert_eq!((after[1].1.as_str(), after[2].1.as_str()), ("99.99", "NaN"));
}
