//! Finding one's way: the indexes of the API, paths with a slash at their end, and companies by their ticker.

use serde_json::{Value, json};
use vintem_domain::route::{ROUTES, Route};
use vintem_domain::{Currency, Plan, series};
use vintem_testkit::{RawResponse, TestDatabase, TestReplica, send_raw_request};

use crate::{TestResult, friday};

/// Sends the target byte for byte, which a client library would normalize.
async fn send_raw(replica: &TestReplica, method: &str, target: &str) -> anyhow::Result<RawResponse> {
    let request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    send_raw_request(replica.replica.address, request.as_bytes()).await
}

#[tokio::test]
async fn an_index_lists_every_operation_below_it() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;

    for (path, prefix) in [("/api/v1", "/api/v1/"), ("/api/v1/market", "/api/v1/market/")] {
        let response = replica.get(path).await?;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.headers()["cache-control"], "public, max-age=60, s-maxage=0", "{path}");
        let index: Value = response.json().await?;

        let operation = |route: &Route| {
            json!({
                "path": route.path,
                "method": route.method.as_str(),
                "operation": route.operation,
                "plan": route.plan.id(),
                "params": route.param_names().collect::<Vec<_>>(),
            })
        };
        let expected: Vec<Value> =
            ROUTES.iter().filter(|route| route.path.starts_with(prefix)).map(operation).collect();
        assert_eq!(index["data"], json!(expected), "{path}");
        assert!(expected.len() > 20, "{path}");

        assert_eq!(
            (&index["total"], &index["limit"], &index["offset"]),
            (&json!(expected.len()), &json!(expected.len()), &json!(0)),
            "{path}"
        );
        for (field, linked) in
            [("docs_url", "/docs"), ("openapi_url", "/docs/openapi.yaml"), ("plans_url", "/api/v1/plans")]
        {
            assert_eq!(index[field], replica.url(linked), "{path}");
            assert_eq!(replica.get(linked).await?.status(), 200, "{linked}");
        }
    }

    Ok(())
}

#[tokio::test]
async fn the_market_index_links_to_every_series() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let index: Value = replica.get("/api/v1/market").await?.json().await?;
    let links = index["series"].as_array().expect("a list");

    let ids: Vec<&str> = links.iter().filter_map(|link| link["id"].as_str()).collect();
    let rates = Currency::ALL.into_iter().map(Currency::series_id);
    assert_eq!(ids, series::served_series().map(|series| series.id).chain(rates).collect::<Vec<_>>());
    for link in links {
        let url = link["url"].as_str().expect("text");
        let list: Value = replica.send(replica.http.get(url)).await?.json().await?;
        assert_eq!(list["series"]["id"], link["id"], "{url}");
    }

    Ok(())
}

#[tokio::test]
async fn a_slash_at_the_end_of_a_path_redirects_to_the_path_without_it() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;

    for (method, target, location) in [
        ("GET", "/pricing/", "/pricing"),
        ("HEAD", "/docs/guides/limits/?lang=pt", "/docs/guides/limits?lang=pt"),
        ("GET", "/api/v1/", "/api/v1"),
        ("GET", "/api/v1/market/selic/?limit=3&&x=%c3%a9+/", "/api/v1/market/selic?limit=3&&x=%c3%a9+/"),
        ("GET", "/api/v1/filings/search/?q=a", "/api/v1/filings/search?q=a"),
        ("POST", "/api/v1/plans/register/", "/api/v1/plans/register"),
    ] {
        let response = send_raw(&replica, method, target).await?;
        assert_eq!(response.status, 308, "{method} {target}");
        assert_eq!(response.header("location"), Some(location), "{method} {target}");
        assert_eq!(response.header("access-control-allow-origin"), Some("*"), "{method} {target}");
        assert!(response.body.is_empty(), "{method} {target}");
    }

    let remaining = send_raw(&replica, "GET", "/pricing/").await?;
    assert_eq!(remaining.header("x-ratelimit-remaining"), Some("23"), "each counts as a request");

    Ok(())
}

#[tokio::test]
async fn no_redirect_leads_to_another_host_or_repeats_a_key() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;

    for target in ["//", "//evil.example/", "//evil.example/pricing/", "/pricing//", "/nothing/", "/api/v1/nothing/"] {
        let response = send_raw(&replica, "GET", target).await?;
        assert_eq!((response.status, response.header("location")), (404, None), "{target}");
    }
    assert_eq!(send_raw(&replica, "DELETE", "/api/v1/market/selic/").await?.status, 404);

    let (_, key) = replica.create_key(Plan::Free).await?;
    let response = send_raw(&replica, "GET", &format!("/api/v1/market/selic/?api_key={key}")).await?;
    assert_eq!((response.status, response.header("location")), (400, None));

    let unknown = vintem_api::generate_key().reveal().to_owned();
    assert_eq!(replica.get_with_key("/api/v1/market/selic/", &unknown).await?.status(), 401);

    Ok(())
}

#[tokio::test]
async fn a_company_is_found_by_its_ticker_in_any_case() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (_, gold) = replica.create_key(Plan::Gold).await?;

    let path = "/api/v1/companies?status=ativo&limit=100";
    let list: Value = replica.get_with_key(path, &gold).await?.json().await?;
    let companies = list["data"].as_array().expect("a list");
    let company = companies.iter().find(|company| company["tickers"][0].is_string()).expect("a listed company");
    let id = company["id"].as_str().expect("an id");
    let ticker = company["tickers"][0].as_str().expect("a ticker");

    for spelling in [ticker.to_owned(), ticker.to_lowercase(), id.to_owned()] {
        for (below, canonical) in [
            (String::new(), format!("/api/v1/companies/{id}")),
            ("/filings?limit=2".to_owned(), format!("/api/v1/companies/{id}/filings")),
        ] {
            let path = format!("/api/v1/companies/{spelling}{below}");
            let response = replica.get_with_key(&path, &gold).await?;
            assert_eq!(response.status(), 200, "{path}");
            assert_eq!(response.headers()["content-location"], canonical.as_str(), "{path}");

            let body: Value = response.json().await?;
            let found_id = if below.is_empty() { &body["id"] } else { &body["data"][0]["company_id"] };
            assert_eq!(found_id, id, "{path}");
        }

        let page = replica.get(&format!("/companies/{spelling}")).await?;
        assert_eq!(page.status(), 200, "{spelling}");
        assert!(page.text().await?.contains(&format!("/companies/{id}\"")), "the canonical link of {spelling}");
    }

    // Only a whole ticker names a company.
    let part = &ticker[..ticker.len() - 1];
    assert_eq!(replica.get_with_key(&format!("/api/v1/companies/{part}"), &gold).await?.status(), 404);

    Ok(())
}

#[tokio::test]
async fn a_ticker_of_several_companies_names_none_of_them() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let mut connection = database.connect().await?;
    let renamed = sqlx::query(
        "update security_version set ticker = 'TWIN3'
         where (document_id, ticker) in (
             select document_id, min(ticker) from security_version group by document_id order by document_id limit 2
         )",
    )
    .execute(&mut connection)
    .await?;
    assert_eq!(renamed.rows_affected(), 2);

    let replica = TestReplica::start(&database, friday()).await?;
    let (_, gold) = replica.create_key(Plan::Gold).await?;
    for path in ["/api/v1/companies/twin3", "/api/v1/companies/TWIN3/filings"] {
        let response = replica.get_with_key(path, &gold).await?;
        assert_eq!(response.status(), 404, "{path}");
        let body: Value = response.json().await?;
        assert_eq!(body["error"], "not_found", "{path}");
        let message = body["message"].as_str().expect("text");
        assert!(message.contains("/api/v1/companies/resolve?ticker="), "{message}");
    }
    assert_eq!(replica.get("/companies/twin3").await?.status(), 404);

    Ok(())
}
