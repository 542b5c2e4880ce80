//! Query parameters, sort order and errors.

use serde_json::{Value, json};
use vintem_domain::{Currency, Decimal};

use super::{field_values, start_demo, start_demo_with};
use crate::TestResult;

#[tokio::test]
async fn limits_default_to_20_and_are_clamped_and_echoed() -> TestResult {
    let service = start_demo().await?;
    for (path, max_limit) in [
        ("/api/v1/companies?", 100),
        ("/api/v1/filings?", 100),
        ("/api/v1/companies/search?q=companhia&", 100),
        ("/api/v1/filings/search?q=assembleia&", 100),
        ("/api/v1/market/selic?", 20_000),
        ("/api/v1/market/fx?", 20_000),
    ] {
        assert_eq!(service.get_ok(path).await?["limit"], json!(20), "{path}");
        assert_eq!(service.get_ok(&format!("{path}limit=7")).await?["limit"], json!(7), "{path}");
        assert_eq!(service.get_ok(&format!("{path}limit=99999999")).await?["limit"], json!(max_limit), "{path}");
    }

    let found = service.get_ok("/api/v1/search?q=companhia&limit=500").await?;
    assert!(found["companies"].as_array().is_some_and(|companies| companies.len() <= 20), "it finds, it does not list");

    Ok(())
}

#[tokio::test]
async fn an_invalid_parameter_is_refused_by_name() -> TestResult {
    let service = start_demo().await?;
    let too_long = format!("/api/v1/companies/search?q={}", "a".repeat(201));
    for (path, name) in [
        ("/api/v1/companies?limit=0", "limit"),
        ("/api/v1/companies?limit=many", "limit"),
        ("/api/v1/companies?offset=-1", "offset"),
        ("/api/v1/filings?from=2024-02-30", "from"),
        ("/api/v1/filings?to=2200-01-01", "to"),
        ("/api/v1/filings?from=1899-12-31", "from"),
        ("/api/v1/market/cdi?from=2024-02-02&to=2024-02-01", "from"),
        ("/api/v1/search", "q"),
        ("/api/v1/search?q=", "q"),
        ("/api/v1/filings/search?q=%20%20", "q"),
        (&too_long, "q"),
        ("/api/v1/companies?status=ativo&status=ativo", "status"),
    ] {
        let (status, body) = service.get_status_and_body(path).await?;
        assert_eq!((status, &body["error"]), (400, &json!("bad_request")), "{path}");
        assert!(body["message"].as_str().expect("text").contains(&format!("`{name}`")), "{body}");
        assert_eq!(body["param"], json!(name), "{path}");
    }

    Ok(())
}

#[tokio::test]
async fn an_unknown_parameter_is_refused_with_the_closest_name_and_the_full_list() -> TestResult {
    let service = start_demo().await?;
    let (status, body) = service.get_status_and_body("/api/v1/filings?limit=3&catgory=Fato+Relevante").await?;
    assert_eq!((status, &body["error"], &body["param"]), (400, &json!("bad_request"), &json!("catgory")));
    assert!(body["docs_url"].as_str().is_some_and(|url| url.starts_with("http") && url.ends_with("/docs")), "{body}");

    let message = body["message"].as_str().expect("text");
    assert!(message.contains("Did you mean `category`?"), "{message}");
    for name in ["company_id", "ticker", "type", "year", "q", "limit"] {
        assert!(message.contains(&format!("`{name}`")), "{message}");
    }

    let (status, body) = service.get_status_and_body("/api/v1/export?limit=3").await?;
    assert_eq!((status, &body["param"]), (400, &json!("limit")));
    assert_eq!(body["message"], json!("Unknown parameter `limit`. This endpoint accepts no parameters."));

    Ok(())
}

#[tokio::test]
async fn cache_busters_and_link_trackers_are_ignored_and_pages_ignore_everything() -> TestResult {
    let service = start_demo().await?;
    let plain = service.get_ok("/api/v1/companies?limit=3").await?;
    assert_eq!(service.get_ok("/api/v1/companies?limit=3&_=17&utm_source=a&utm_source=b").await?, plain);

    for path in ["/pricing?colour=blue", "/docs?colour=blue", "/health?colour=blue", "/?colour=blue"] {
        assert_eq!(service.replica.get(path).await?.status(), 200, "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn an_option_of_a_higher_plan_is_unknown_where_no_plan_has_it() -> TestResult {
    let service = start_demo().await?;
    for (path, status, param) in [
        ("/api/v1/market/fx/latest?as_of=2026-01-01", 400, json!("as_of")),
        ("/api/v1/market/overview?format=csv", 400, json!("format")),
        ("/api/v1/market/selic?as_of=2026-01-01", 403, Value::Null),
        ("/api/v1/market/selic?locale=pt-BR", 400, json!("locale")),
        ("/api/v1/market/selic?download=1", 400, json!("download")),
    ] {
        let response = service.replica.get(path).await?;
        assert_eq!(response.status(), status, "{path}");
        let body: Value = response.json().await?;
        assert_eq!(body["param"], param, "{path}");
    }

    let request = service.replica.http.get(service.replica.url("/api/v1/market/overview")).header("Accept", "text/csv");
    let response = service.replica.send(request).await?;
    assert_eq!(response.headers()["content-type"], "application/json", "a route without CSV gives JSON");

    Ok(())
}

#[tokio::test]
async fn filters_of_filings_are_combined_and_keep_the_order_by_date() -> TestResult {
    let service = start_demo().await?;
    let company = service.listed_company().await?;
    let ticker = company["tickers"][0].as_str().expect("a ticker").to_owned();
    let id = company["id"].as_str().expect("an id").to_owned();

    let by_path = service.get_ok(&format!("/api/v1/companies/{id}/filings?limit=100")).await?;
    assert!(by_path["total"].as_u64() > Some(0), "the company has filings");
    for query in [format!("ticker={ticker}"), format!("ticker={}", ticker.to_lowercase()), format!("company_id={id}")] {
        assert_eq!(service.get_ok(&format!("/api/v1/filings?{query}&limit=100")).await?, by_path, "{query}");
    }

    let year_of = |date: &String| date[..4].to_owned();
    let year = field_values(&by_path, "date").first().map(year_of).expect("a filing");
    let of_year = service.get_ok(&format!("/api/v1/filings?ticker={ticker}&year={year}&limit=100")).await?;
    let expected =
        service.get_ok(&format!("/api/v1/filings?ticker={ticker}&from={year}-01-01&to={year}-12-31&limit=100")).await?;
    assert_eq!(of_year, expected);
    assert!(field_values(&of_year, "date").iter().all(|date| year_of(date) == year));

    let with_words = service.get_ok("/api/v1/filings?q=dividendos&limit=100").await?;
    let found = service.get_ok("/api/v1/filings/search?q=dividendos&limit=1").await?;
    assert_eq!(with_words["total"], found["total"], "it finds the same as the search");
    assert!(field_values(&with_words, "date").is_sorted_by(|newer, older| newer >= older), "by date");

    let kind = field_values(&service.get_ok("/api/v1/filings?limit=100").await?, "type");
    let kind = kind.into_iter().find(|kind| !kind.is_empty()).expect("a type");
    let of_type = service.get_ok(&format!("/api/v1/filings?type={}&limit=100", kind.to_uppercase())).await?;
    assert!(of_type["total"].as_u64() > Some(0));
    assert!(field_values(&of_type, "type").iter().all(|other| *other == kind));

    for (query, param) in [
        ("year=2025&from=2025-01-01", "from"),
        ("year=20250", "year"),
        ("ticker=NOSUCH99", "ticker"),
        ("company_id=1&ticker=X", "ticker"),
        ("company_id=nothing", "company_id"),
        ("q=", "q"),
    ] {
        let (status, body) = service.get_status_and_body(&format!("/api/v1/filings?{query}")).await?;
        assert_eq!((status, &body["param"]), (400, &json!(param)), "{query}");
    }

    Ok(())
}

#[tokio::test]
async fn companies_are_filtered_by_state_ticker_and_words_in_the_order_of_names() -> TestResult {
    let service = start_demo().await?;
    let all = service.get_ok("/api/v1/companies?limit=100&status=ativo").await?;
    let state = field_values(&all, "state").into_iter().find(|state| !state.is_empty()).expect("a state");
    let of_state = service.get_ok(&format!("/api/v1/companies?state={}&limit=100", state.to_lowercase())).await?;
    assert!(field_values(&of_state, "state").iter().all(|other| *other == state));
    assert!(of_state["total"].as_u64() < all["total"].as_u64().max(Some(100)), "not all of them");

    let listed = service.listed_company().await?;
    let prefix = &listed["tickers"][0].as_str().expect("a ticker")[..2];
    let path = format!("/api/v1/companies?ticker={}&limit=100", prefix.to_lowercase());
    let with_ticker = service.get_ok(&path).await?;
    let rows = with_ticker["data"].as_array().expect("a list");
    assert!(!rows.is_empty());
    for company in rows {
        let tickers = company["tickers"].as_array().expect("a list");
        assert!(
            tickers.iter().any(|ticker| ticker.as_str().is_some_and(|ticker| ticker.starts_with(prefix))),
            "{company}"
        );
    }

    let with_words = service.get_ok("/api/v1/companies?q=energia&limit=100").await?;
    let found = service.get_ok("/api/v1/companies/search?q=energia&limit=1").await?;
    assert!(found["total"].as_u64() > Some(1));
    assert_eq!(with_words["total"], found["total"]);
    let names: Vec<String> =
        field_values(&with_words, "name").iter().map(|name| vintem_domain::text::normalize_text(name)).collect();
    assert!(names.is_sorted(), "{names:?}");

    Ok(())
}

#[tokio::test]
async fn past_the_end_the_list_is_empty_and_the_total_correct() -> TestResult {
    let service = start_demo().await?;
    for path in
        ["/api/v1/companies?", "/api/v1/filings?", "/api/v1/filings/search?q=assembleia&", "/api/v1/market/selic?"]
    {
        let total = service.get_ok(path).await?["total"].clone();
        assert!(total.as_u64() > Some(20), "{path}");
        let past_the_end = service.get_ok(&format!("{path}offset=100000000")).await?;
        assert_eq!((&past_the_end["data"], &past_the_end["total"]), (&json!([]), &total), "{path}");
    }

    Ok(())
}

#[tokio::test]
async fn market_lists_are_newest_first_and_the_limit_cuts_after_ordering() -> TestResult {
    let service = start_demo().await?;
    let range = "/api/v1/market/cdi?from=2026-01-01&to=2026-06-30";
    let all = field_values(&service.get_ok(&format!("{range}&limit=20000")).await?, "date");
    assert!(all.len() > 100 && all.is_sorted_by(|newer, older| newer > older));

    let newest = field_values(&service.get_ok(&format!("{range}&limit=3&order=desc")).await?, "date");
    assert_eq!(newest, all[..3]);

    let oldest = field_values(&service.get_ok(&format!("{range}&limit=3&order=asc")).await?, "date");
    assert_eq!(oldest, all.iter().rev().take(3).cloned().collect::<Vec<_>>());

    Ok(())
}

#[tokio::test]
async fn filings_are_by_date_then_id_newest_first_and_companies_by_folded_name() -> TestResult {
    let service = start_demo().await?;
    let mut filings: Vec<(String, String)> = Vec::new();
    for offset in [0, 100, 200] {
        let page = service.get_ok(&format!("/api/v1/filings?limit=100&offset={offset}")).await?;
        filings.extend(field_values(&page, "date").into_iter().zip(field_values(&page, "id")));
    }

    assert!(filings.is_sorted_by(|newer, older| newer.0 >= older.0), "by date");

    let mut ids: Vec<&String> = filings.iter().map(|(_, id)| id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 300, "no row twice and none left out: the order has a tie-breaker");

    let recent = service.get_ok("/api/v1/filings/recent").await?;
    assert_eq!(field_values(&recent, "id"), filings.iter().take(20).map(|(_, id)| id.clone()).collect::<Vec<_>>());

    let names = field_values(&service.get_ok("/api/v1/companies?limit=100").await?, "name");
    let folded: Vec<String> = names.iter().map(|name| vintem_domain::text::normalize_text(name)).collect();
    assert!(folded.is_sorted(), "{folded:?}");

    Ok(())
}

#[tokio::test]
async fn filters_match_whole_values_ignoring_case_and_accents() -> TestResult {
    let service = start_demo().await?;
    let categories =
        [("Reunião da Administração", "REUNIAO%20DA%20ADMINISTRACAO"), ("Fato Relevante", "fato%20relevante")];
    for (category, spelling) in categories {
        let list = service.get_ok(&format!("/api/v1/filings?category={spelling}&limit=100")).await?;
        assert!(list["total"].as_u64() > Some(0), "{category}");
        assert!(field_values(&list, "category").iter().all(|value| value == category));
    }

    assert_eq!(service.get_ok("/api/v1/filings?category=fato").await?["total"], json!(0), "equality, not a part");
    let first = service.get_ok("/api/v1/companies?limit=1&status=ativo").await?;
    assert_eq!(field_values(&first, "status"), ["ATIVO"]);

    Ok(())
}

#[tokio::test]
async fn every_error_has_its_code_a_message_and_the_id_of_the_request() -> TestResult {
    let service = start_demo_with(&["--limit-free=6"]).await?;
    let cases = [
        (service.replica.get("/api/v1/nothing").await?, 404, "not_found"),
        (service.replica.get("/api/v1/companies").await?, 403, "upgrade_required"),
        (service.replica.get("/api/v1/plans/usage").await?, 401, "unauthorized"),
        (service.replica.get_with_key("/api/v1/plans", "x").await?, 401, "invalid_api_key"),
        (service.replica.get("/api/v1/plans/register").await?, 405, "method_not_allowed"),
        (service.replica.get("/api/v1/market/selic?limit=x").await?, 400, "bad_request"),
        (service.replica.get("/api/v1/market/selic").await?, 429, "rate_limited"),
    ];
    for (response, status, code) in cases {
        assert_eq!(response.status(), status, "{code}");
        assert_eq!(response.headers().get("allow").is_some(), status == 405);
        let id = response.headers()["x-request-id"].to_str()?.to_owned();
        let body: Value = response.json().await?;
        assert_eq!((&body["error"], &body["request_id"]), (&json!(code), &json!(id)));
        assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()));
    }

    Ok(())
}

#[tokio::test]
async fn currency_pairs_accept_three_spellings_and_mark_derived_rates() -> TestResult {
    let service = start_demo().await?;
    let current = |pair: &str| {
        let path = format!("/api/v1/market/fx/current?pair={pair}&numbers=string");
        let service = &service;
        async move { service.get_ok(&path).await }
    };

    let usd = current("USD/BRL").await?;
    for spelling in ["USD-BRL", "USDBRL", "usd/brl", "usdbrl"] {
        assert_eq!(current(spelling).await?, usd, "{spelling}");
    }

    let parse_side =
        |quote: &Value, side: &str| quote[side].as_str().expect("text").parse::<Decimal>().expect("a decimal");
    let ratio = |numerator: Decimal, denominator: Decimal| (numerator / denominator).round_dp(8);
    let inverse = current("BRL/USD").await?;

    assert_eq!(usd.get("derived"), None);
    assert_eq!(inverse["derived"], json!(true));
    assert_eq!(parse_side(&inverse, "buy"), ratio(Decimal::ONE, parse_side(&usd, "sell")));
    assert_eq!(parse_side(&inverse, "sell"), ratio(Decimal::ONE, parse_side(&usd, "buy")));

    // Crosses go through the parities: dollars per euro, and yen per dollar.
    let parity = |pair: &str| {
        let path = format!("/api/v1/market/fx/bulletins?pair={pair}&numbers=string");
        let service = &service;
        async move { anyhow::Ok(service.get_ok(&path).await?["data"][0].clone()) }
    };
    let eur = parity("EUR/BRL").await?;
    let jpy = parity("JPY/BRL").await?;
    for (pair, buy, sell) in [
        ("EUR/USD", parse_side(&eur, "parity_buy"), parse_side(&eur, "parity_sell")),
        ("USD/JPY", parse_side(&jpy, "parity_buy"), parse_side(&jpy, "parity_sell")),
        (
            "JPY/USD",
            ratio(Decimal::ONE, parse_side(&jpy, "parity_sell")),
            ratio(Decimal::ONE, parse_side(&jpy, "parity_buy")),
        ),
        (
            "EUR/JPY",
            parse_side(&eur, "parity_buy") * parse_side(&jpy, "parity_buy"),
            parse_side(&eur, "parity_sell") * parse_side(&jpy, "parity_sell"),
        ),
    ] {
        let cross = current(pair).await?;
        assert_eq!((parse_side(&cross, "buy"), parse_side(&cross, "sell")), (buy, sell), "{pair}");
        assert_eq!(cross["derived"], json!(true), "{pair}");
    }

    let (status, body) = service.get_status_and_body("/api/v1/market/fx?pair=XYZ/BRL").await?;
    assert_eq!(status, 400);
    let message = body["message"].as_str().expect("text");
    for currency in Currency::ALL {
        assert!(message.contains(&format!("{}/BRL", currency.code())), "{message}");
    }

    Ok(())
}
