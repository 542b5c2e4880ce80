//! SGS time series.

use super::*;

#[tokio::test]
async fn sgs_windows_are_arrays_of_texts_in_date_order() {
    let client = TestClient::new();
    let response = client.get(&sgs_window_path(432, "01/06/2025", "03%2F06%2F2025")).await;
    assert_eq!(header_text(&response, "cache-control"), "max-age=900");
    assert!(header_text(&response, "content-type").starts_with("application/json"));
    let body = response.text().await.unwrap();
    let value = &parse_sgs_rows(&body)[0].1;
    let row = |day| format!(r#"{{"data":"0{day}/06/2025","valor":"{value}"}}"#);
    assert_eq!(body, format!("[{},{},{}]", row(1), row(2), row(3)));
    assert_eq!(value.rsplit_once('.').unwrap().1.len(), 2);
}

#[tokio::test]
async fn sgs_answers_404_values_not_found_for_an_empty_window() {
    let client = TestClient::new();
    for (from, to) in [("08/11/2025", "09/11/2025"), ("01/01/2035", "02/01/2035"), ("10/11/2025", "01/11/2025")] {
        let response = client.get(&sgs_window_path(11, from, to)).await;
        assert_eq!(response.status(), 404);
        let detail = "br.gov.bcb.pec.sgs.comum.excecoes.SGSNegocioException: Value(s) not found";
        let body = response.text().await.unwrap();
        assert_eq!(body, format!(r#"{{"erro":{{"statusCode":404,"detail":"{detail}"}}}}"#));
    }
}

#[tokio::test]
async fn sgs_refuses_more_than_ten_years_of_a_daily_series_with_406() {
    let client = TestClient::new();
    assert_eq!(client.get_series(432, "01/01/2016", "01/01/2026").await.len(), 3654);

    let without_first_day = "/dados/serie/bcdata.sgs.12/dados?formato=json&dataFinal=01/01/2026".to_owned();
    for path in [
        sgs_window_path(432, "01/01/2016", "02/01/2026"),
        sgs_window_path(1, "01/01/1985", "01/01/2026"),
        without_first_day,
    ] {
        let response = client.get(&path).await;
        assert_eq!(response.status(), 406, "{path}");
        let body: Value = response.json().await.unwrap();
        assert!(body["error"].as_str().unwrap().contains("no máximo, 10 anos"));
    }

    assert_eq!(client.get_series(433, "01/01/1980", "01/12/2020").await.len(), 41 * 12);
    assert_eq!(
        parse_sgs_rows(&client.get_text("/dados/serie/bcdata.sgs.433/dados?formato=json").await)[0].0,
        parse_date("1980-01-01")
    );
}

#[tokio::test]
async fn sgs_gives_at_most_twenty_last_values_and_not_always_the_oldest_first() {
    let client = TestClient::new();
    let last_values_path = |code, count| format!("/dados/serie/bcdata.sgs.{code}/dados/ultimos/{count}?formato=json");
    for (code, is_newest_first) in [(4389, true), (12, false), (433, false)] {
        let rows = parse_sgs_rows(&client.get_text(&last_values_path(code, 20)).await);
        assert_eq!(rows.len(), 20);
        assert_eq!(rows.is_sorted_by(|a, b| a.0 > b.0), is_newest_first, "{code}");
        assert_eq!(rows.is_sorted_by(|a, b| a.0 < b.0), !is_newest_first, "{code}");
        let rejected = client.get(&last_values_path(code, 21)).await;
        assert_eq!(rejected.status(), 400);
        let body: Value = rejected.json().await.unwrap();
        assert!(body["erro"]["detail"].as_str().unwrap().ends_with("A quantidade máxima de valores deve ser 20"));
    }
}

#[tokio::test]
async fn the_selic_target_covers_every_day_and_some_future_days() {
    let client = TestClient::new();
    let today = parse_date("2026-11-13");
    let last = parse_sgs_rows(&client.get_text("/dados/serie/bcdata.sgs.432/dados/ultimos/1?formato=json").await);
    assert!(last[0].0 > today && last[0].0 <= today + Days::new(50), "{last:?}");
    let rows = client.get_series(432, "01/01/2020", "31/12/2026").await;
    assert!(rows.windows(2).all(|pair| pair[0].0 + Days::new(1) == pair[1].0));
    assert_eq!(rows.last().unwrap(), &last[0]);
    let until_today = client.get_series(432, "01/11/2026", "13/11/2026").await;
    assert_eq!(until_today.last().unwrap().0, today);
}

#[tokio::test]
async fn future_target_values_stay_the_same_when_their_day_comes() {
    let client = TestClient::new();
    let ahead = client.get_series(432, "13/11/2026", "31/12/2026").await;
    client.upstreams.set_today(parse_date("2026-12-31"));
    assert!(client.get_series(432, "13/11/2026", "31/12/2026").await.starts_with(&ahead));
}

#[tokio::test]
async fn sgs_answers_unknown_codes_with_an_html_200_and_bad_dates_with_400() {
    let client = TestClient::new();
    let response = client.get(&sgs_window_path(99_999, "01/01/2026", "02/01/2026")).await;
    assert_eq!(response.status(), 200);
    assert!(header_text(&response, "content-type").starts_with("text/html"));
    let page = response.text().await.unwrap();
    assert!(page.starts_with(r#"<?xml version="1.0" encoding="pt-br"?> <!DOCTYPE html"#));
    assert!(page.contains("<title>Requisição inválida!</title>"));

    let response = client.get(&sgs_window_path(11, "2026-01-01", "02/01/2026")).await;
    assert_eq!(response.status(), 400);
    assert!(response.text().await.unwrap().contains("SGSNegocioException: Invalid initial date"));

    let response = client.get("/dados/serie/bcdata.sgs.11/metadados").await;
    assert_eq!(response.status(), 404);
    assert_eq!(response.text().await.unwrap(), "endpoint not found!");
}

#[tokio::test]
async fn sgs_has_csv_with_quotes_and_decimal_commas() {
    let client = TestClient::new();
    let path = sgs_window_path(11, "01/10/2026", "02/10/2026").replace("json", "csv");
    let csv = client.get_text(&path).await;
    let lines: Vec<&str> = csv.split("\r\n").collect();
    assert_eq!((lines[0], lines.len()), ("\"data\";\"valor\"", 4));
    assert!(lines[1].starts_with("\"01/10/2026\";\"0,0") && lines[1].ends_with('"'), "{csv}");
}

#[tokio::test]
async fn derived_series_match_their_source_series() {
    let client = TestClient::new();
    for (daily, annual) in [(12, 4389), (11, 1178)] {
        for from in [1986, 1995, 2004, 2013, 2022] {
            let to = format!("31/12/{}", from + 8);
            let from = format!("01/01/{from}");
            let daily = client.get_series(daily, &from, &to).await;
            let annual = client.get_series(annual, &from, &to).await;
            assert!(daily.len() == annual.len() && daily.len() > 900);
            for ((day, rate), (annual_day, annual_rate)) in daily.iter().zip(&annual) {
                let expected = ((1.0 + parse_number(rate) / 100.0).powi(252) - 1.0) * 100.0;
                assert_eq!((day, format!("{expected:.2}")), (annual_day, annual_rate.clone()));
                assert_eq!(rate.rsplit_once('.').unwrap().1.len(), 6);
            }
        }
    }

    let months = client.get_series(433, "01/01/1980", "01/10/2026").await;
    let years = client.get_series(13522, "01/01/1980", "01/10/2026").await;
    assert_eq!((months.len(), years[0].0), (years.len() + 11, parse_date("1980-12-01")));
    for (window, (month, year)) in months.windows(12).zip(&years) {
        let expected =
            (window.iter().map(|(_, change)| 1.0 + parse_number(change) / 100.0).product::<f64>() - 1.0) * 100.0;
        assert_eq!((window[11].0, format!("{expected:.2}")), (*month, year.clone()));
    }
}

#[tokio::test]
async fn both_overnight_rates_are_equal_since_october_2018_and_skip_weekends_and_carnival() {
    let client = TestClient::new();
    let selic = client.get_series(11, "01/10/2018", "13/11/2026").await;
    let cdi = client.get_series(12, "01/10/2018", "13/11/2026").await;
    assert_eq!(selic, cdi);
    assert!(!selic.iter().any(|(date, _)| {
        [parse_date("2024-02-12"), parse_date("2024-03-29"), parse_date("2026-11-07")].contains(date)
    }));

    let selic = client.get_series(11, "01/01/2016", "28/09/2018").await;
    let cdi = client.get_series(12, "01/01/2016", "28/09/2018").await;
    assert_ne!(selic, cdi);
}

#[tokio::test]
async fn daily_rates_are_published_in_the_evening_and_inflation_on_the_tenth() {
    let client = TestClient::new();
    let today = parse_date("2026-11-10");
    let newest_date = async |code, hour| {
        client.upstreams.set_now(today.and_hms_opt(hour, 0, 0).unwrap());
        client.get_series(code, "01/08/2026", "31/12/2026").await.last().unwrap().0
    };

    assert_eq!((newest_date(12, 19).await, newest_date(12, 20).await), (parse_date("2026-11-09"), today));
    assert_eq!((newest_date(1, 13).await, newest_date(1, 14).await), (parse_date("2026-11-09"), today));
    assert_eq!(
        (newest_date(433, 8).await, newest_date(433, 9).await),
        (parse_date("2026-09-01"), parse_date("2026-10-01"))
    );
}

#[tokio::test]
async fn a_test_can_change_a_value_and_add_one() {
    let client = TestClient::new();
    let before = client.get_series(433, "01/08/2026", "01/10/2026").await;
    client.upstreams.override_sgs_value(433, parse_date("2026-09-01"), "99.99");
    client.upstreams.override_sgs_value(433, parse_date("2026-09-02"), "NaN");
    let after = client.get_series(433, "01/08/2026", "01/10/2026").await;
    assert_eq!((after[0].clone(), after[3].clone()), (before[0].clone(), before[2].clone()));
    assert_eq!((after[1].1.as_str(), after[2].1.as_str()), ("99.99", "NaN"));
}
