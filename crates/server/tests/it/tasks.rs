//! Everyday tasks, each done as a developer would try it first: one call, or one refusal that leads to the right call.

use chrono::NaiveDate;
use serde_json::{Value, json};
use vintem_domain::Decimal;

use crate::TestResult;
use crate::api_decisions::{DemoService, field_values, start_demo};

/// A decimal of an answer to a request with `numbers=string`.
fn decimal(body: &Value, name: &str) -> Decimal {
    let text = body[name].as_str().unwrap_or_else(|| panic!("{name} is no text in {body}"));
    text.parse().expect("a decimal")
}

/// A refused request: the parameter that it names, and the message.
async fn refusal(service: &DemoService, path: &str) -> anyhow::Result<(String, String)> {
    let (status, body) = service.get_status_and_body(path).await?;
    anyhow::ensure!(status == 400, "{path}: {status} {body}");
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    anyhow::ensure!(text("docs_url").starts_with("http"), "{body}");
    Ok((text("param"), text("message")))
}

#[tokio::test]
async fn interest_and_inflation() -> TestResult {
    let service = start_demo().await?;

    // 1. CDI accumulated in 2024, at 110 %.
    let year = service.get_ok("/api/v1/market/cdi/accumulated?year=2024&percent=110&numbers=string").await?;
    assert_eq!((&year["from"], &year["to"]), (&json!("2024-01-01"), &json!("2025-01-01")));
    assert_eq!((&year["interval"], &year["complete"]), (&json!("[from, to)"), &json!(true)));
    assert_eq!((&year["first_counted"], &year["last_counted"]), (&json!("2024-01-02"), &json!("2024-12-31")));
    assert_eq!((&year["series_id"], &year["unit_code"]), (&json!("cdi-daily"), &json!("percent_per_day")));
    assert!(decimal(&year, "factor") > Decimal::ONE);

    // 2. The same with the last day of the year as `to`: that day is not counted, and the answer says so.
    let until = "/api/v1/market/cdi/accumulated?from=2024-01-01&to=2024-12-31&percent=110&numbers=string";
    let short = service.get_ok(until).await?;
    assert_eq!(short["last_counted"], "2024-12-30");
    let message = short["message"].as_str().expect("a message");
    assert!(message.contains("2024-12-31") && message.contains("year=2024") && message.contains("to=2024-12"));
    assert_eq!(year.get("message"), None);

    // 11. IPCA of the last twelve months, by two routes.
    let published = service.get_ok("/api/v1/market/series/ipca-12m/current?numbers=string").await?;
    let month: NaiveDate = published["date"].as_str().expect("a month").parse()?;
    let first = month.checked_sub_months(chrono::Months::new(11)).expect("a month").format("%Y-%m");
    let path = format!("/api/v1/market/ipca/accumulated?from={first}&to={}&numbers=string", month.format("%Y-%m"));
    let accumulated = service.get_ok(&path).await?;
    assert_eq!(accumulated["months"], 12);
    assert_eq!(decimal(&accumulated, "change_percent").round_dp(2), decimal(&published, "value"));

    // 12. IPCA of 2025 by year, by months and by days.
    let by_year = service.get_ok("/api/v1/market/ipca/accumulated?year=2025").await?;
    assert_eq!((&by_year["months"], &by_year["complete"]), (&json!(12), &json!(true)));
    for query in ["from=2025-01&to=2025-12", "from=2025-01-01&to=2025-12-31", "from=2025-01-01&to=2026-01-01"] {
        let other = service.get_ok(&format!("/api/v1/market/ipca/accumulated?{query}")).await?;
        assert_eq!(other, by_year, "{query}");
    }
    let any_series = service.get_ok("/api/v1/market/series/ipca/accumulated?year=2025").await?;
    assert_eq!(any_series, by_year);

    // 16. The real return of Selic over IPCA in 2024: both factors, for the same year.
    let selic = service.get_ok("/api/v1/market/selic/accumulated?year=2024&numbers=string").await?;
    let ipca = service.get_ok("/api/v1/market/ipca/accumulated?year=2024&numbers=string").await?;
    assert_eq!((&selic["from"], &selic["to"]), (&ipca["from"], &ipca["to"]));
    assert_eq!((&selic["complete"], &ipca["complete"], &ipca["months"]), (&json!(true), &json!(true), &json!(12)));
    let real_return = (decimal(&selic, "factor") / decimal(&ipca, "factor") - Decimal::ONE) * Decimal::ONE_HUNDRED;
    assert!(real_return < decimal(&selic, "change_percent"), "inflation takes some of it: {real_return}");

    // 20. An amount from 1990 to 2025: refused, because reforms changed the currency; the factor is given.
    let (param, message) =
        refusal(&service, "/api/v1/market/ipca/accumulated?from=1990-01&to=2025-12&amount=1000").await?;
    assert_eq!(param, "amount");
    assert!(message.contains("1994-07-01"), "{message}");
    let factor = service.get_ok("/api/v1/market/ipca/accumulated?from=1990-01&to=2025-12").await?;
    assert!(factor["factor"].is_number(), "{factor}");

    Ok(())
}

#[tokio::test]
async fn exchange_rates() -> TestResult {
    let service = start_demo().await?;

    // 3. PTAX of 2024-12-31.
    let last = service.get_ok("/api/v1/market/fx/current?pair=USD/BRL&on=2024-12-31").await?;
    assert_eq!((&last["date"], &last["series_id"]), (&json!("2024-12-31"), &json!("usd-brl")));
    let as_series = service.get_ok("/api/v1/market/series/usd-brl/current?on=2024-12-31").await?;
    assert_eq!((&as_series["value"], &as_series["buy"]), (&last["sell"], &last["buy"]));

    // 4. Of a Sunday: the close of the Friday before, with its own date.
    let sunday = service.get_ok("/api/v1/market/fx/current?on=2024-12-29").await?;
    assert_eq!(sunday["date"], "2024-12-27");

    // 5. With `date=`: refused, with the name that does it.
    let (param, message) = refusal(&service, "/api/v1/market/fx/current?pair=USD/BRL&date=2024-12-31").await?;
    assert_eq!(param, "date");
    assert!(message.contains("Did you mean `on`?"), "{message}");

    // 13. 1,000 dollars in reais on 2020-03-31.
    let path = "/api/v1/market/fx/convert?amount=1000&pair=USD/BRL&on=2020-03-31&numbers=string";
    let reais = service.get_ok(path).await?;
    assert_eq!((&reais["date"], &reais["side"]), (&json!("2020-03-31"), &json!("sell")));
    assert_eq!(decimal(&reais, "result"), (decimal(&reais, "rate") * Decimal::from(1000)).round_dp(2));
    assert_eq!(reais["rate"], reais["sell"]);
    assert!(reais["provenance"][0]["sha256"].is_string(), "{reais}");
    let mid = service.get_ok(&format!("{path}&side=mid")).await?;
    assert_eq!(decimal(&mid, "rate"), (decimal(&mid, "buy") + decimal(&mid, "sell")) / Decimal::TWO);
    let sunday = service.get_ok("/api/v1/market/fx/convert?amount=1&pair=USD/BRL&on=2024-12-29").await?;
    assert_eq!(sunday["date"], "2024-12-27");

    // 14. 1,000 reais in euros.
    let euros = service.get_ok("/api/v1/market/fx/convert?amount=1000&pair=BRL/EUR&numbers=string").await?;
    assert_eq!((&euros["unit_code"], &euros["derived"]), (&json!("eur_per_brl"), &json!(true)));
    assert!(decimal(&euros, "result") < Decimal::from(1000));

    // 15. AUD/USD.
    let cross = service.get_ok("/api/v1/market/fx/current?pair=AUD/USD&numbers=string").await?;
    assert_eq!((&cross["pair"], &cross["derived"]), (&json!("AUD/USD"), &json!(true)));
    assert!(decimal(&cross, "buy") <= decimal(&cross, "sell"));

    // 17. CDI against the dollar.
    let compared = service.get_ok("/api/v1/market/compare?ids=cdi,usd-brl&limit=1").await?;
    assert!(compared["data"][0]["values"]["usd-brl"]["value"].is_number(), "{compared}");
    let (param, message) = refusal(&service, "/api/v1/market/compare?ids=cdi,usdbrl").await?;
    assert_eq!(param, "ids");
    assert!(message.contains("`usdbrl`"), "{message}");
    let cdi = service.get_ok("/api/v1/market/series/cdi/accumulated?year=2024").await?;
    let dollar = service.get_ok("/api/v1/market/series/usd-brl/accumulated?year=2024").await?;
    assert!(cdi["factor"].is_number() && dollar["factor"].is_number());
    assert_eq!((&dollar["first_counted"], &dollar["last_counted"]), (&json!("2023-12-29"), &json!("2024-12-31")));

    Ok(())
}

#[tokio::test]
async fn companies_and_filings() -> TestResult {
    let service = start_demo().await?;
    let listed = service.listed_company().await?;
    let ticker = listed["tickers"][0].as_str().expect("a ticker").to_owned();

    // 6. A company's Fato Relevante filings of a year, by ticker: the demo data decides which company and year.
    let notices = service.get_ok("/api/v1/filings?category=Fato+Relevante&limit=100").await?;
    let mut notice = Value::Null;
    let mut issuer = Value::Null;
    for filing in notices["data"].as_array().into_iter().flatten() {
        let id = filing["company_id"].as_str().expect("an id");
        issuer = service.get_ok(&format!("/api/v1/companies/{id}")).await?;
        if issuer["tickers"][0].is_string() {
            notice = filing.clone();
            break;
        }
    }
    let year = notice["filed_on"].as_str().expect("a listed company has such a filing")[..4].to_owned();
    let issuer_ticker = issuer["tickers"][0].as_str().expect("a ticker");
    let path = format!("/api/v1/filings?ticker={issuer_ticker}&category=Fato+Relevante&year={year}&limit=100");
    let filings = service.get_ok(&path).await?;
    assert!(field_values(&filings, "id").iter().any(|id| notice["id"] == id.as_str()), "{filings}");
    for filing in filings["data"].as_array().expect("a list") {
        assert_eq!((&filing["company_id"], &filing["category"]), (&issuer["id"], &json!("Fato Relevante")));
        assert!(filing["filed_on"].as_str().is_some_and(|day| day.starts_with(&year)), "{filing}");
    }

    // 7. A misspelled filter.
    let (param, message) = refusal(&service, "/api/v1/filings?catgory=Fato+Relevante").await?;
    assert_eq!(param, "catgory");
    assert!(message.contains("Did you mean `category`?"), "{message}");

    // 8. The companies of one state.
    let of_state = service.get_ok("/api/v1/companies?state=SP&limit=100").await?;
    assert!(of_state["total"].as_u64() > Some(0));
    assert!(field_values(&of_state, "state").iter().all(|state| state == "SP"));

    // 9. A company by a part of its ticker.
    let fragment = &ticker[..4];
    let found = service.get_ok(&format!("/api/v1/companies?ticker={fragment}&limit=100")).await?;
    assert!(field_values(&found, "id").iter().any(|id| listed["id"] == id.as_str()), "{found}");

    // 10. A company by its CNPJ, as it is written on an invoice.
    let with_cnpj = service.get_ok("/api/v1/companies?limit=1").await?["data"][0].clone();
    let cnpj = with_cnpj["cnpj"].as_str().expect("a CNPJ").replace(['.', '-', '/'], "");
    let company = service.get_ok(&format!("/api/v1/companies/{cnpj}")).await?;
    assert_eq!(company["id"], with_cnpj["id"]);

    Ok(())
}

#[tokio::test]
async fn business_days_and_holidays() -> TestResult {
    let service = start_demo().await?;

    // 18. Is 2026-11-20 a business day, and why?
    let day = service.get_ok("/api/v1/calendar/check?date=2026-11-20").await?;
    assert_eq!((&day["business_day"], &day["kind"]), (&json!(false), &json!("holiday")));
    assert!(day["holiday"]["names"]["pt"].as_str().is_some_and(|name| name.contains("Consciência Negra")), "{day}");

    // 19. The holidays of 2027.
    let holidays = service.get_ok("/api/v1/calendar/holidays?year=2027").await?;
    assert_eq!(holidays["total"], json!(holidays["data"].as_array().map(Vec::len)));
    assert!(field_values(&holidays, "date").contains(&"2027-12-25".to_owned()), "{holidays}");

    Ok(())
}
