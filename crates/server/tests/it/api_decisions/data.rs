//! Data: how series are identified, the range of dates served, and the fields that are always present.

use serde_json::{Value, json};

use super::{field_values, start_demo};
use crate::TestResult;

#[tokio::test]
async fn every_market_response_identifies_its_series() -> TestResult {
    let service = start_demo().await?;
    for (name, code, unit_part) in [("selic", "432", "p.a."), ("cdi", "4389", "p.a."), ("ipca", "433", "month")] {
        let list = service.get_ok(&format!("/api/v1/market/{name}")).await?;
        let current = service.get_ok(&format!("/api/v1/market/{name}/current")).await?;
        for series in [&list["series"], &current["series"]] {
            assert_eq!((&series["id"], &series["code"]), (&json!(name), &json!(code)));
            for field in ["source", "name", "unit", "basis", "frequency"] {
                assert!(series.get(field).is_some(), "{field} of {name}");
            }
            assert!(series["unit"].as_str().is_some_and(|unit| unit.contains(unit_part)), "{series}");
        }
        for field in ["as_of", "stale", "total", "limit"] {
            assert!(list.get(field).is_some(), "{field} of {name}");
        }
        assert!(current["unit"].is_string() && current["stale"].is_boolean(), "{current}");
    }

    let overview = service.get_ok("/api/v1/market/overview").await?;
    for name in ["selic", "cdi", "ipca", "fx"] {
        let item = &overview[name];
        assert!(item["unit"].is_string() && item["series"].is_object() && item["stale"].is_boolean(), "{item}");
    }

    Ok(())
}

#[tokio::test]
async fn months_are_dated_by_their_first_day() -> TestResult {
    let service = start_demo().await?;
    let dates = field_values(&service.get_ok("/api/v1/market/ipca?limit=20000").await?, "date");
    assert!(dates.len() > 100 && dates.iter().all(|date| date.ends_with("-01")));
    Ok(())
}

#[tokio::test]
async fn no_day_after_today_in_sao_paulo_is_served() -> TestResult {
    let service = start_demo().await?;

    // Still Thursday in São Paulo, already Friday in UTC.
    service.replica.clock.set("2026-11-13T02:30:00Z".parse()?);
    for path in ["/api/v1/market/selic", "/api/v1/market/cdi", "/api/v1/market/fx"] {
        assert_eq!(field_values(&service.get_ok(path).await?, "date")[0], "2026-11-12", "{path}");
    }

    service.replica.clock.set("2026-11-13T03:00:00Z".parse()?);
    assert_eq!(field_values(&service.get_ok("/api/v1/market/selic").await?, "date")[0], "2026-11-13");

    Ok(())
}

#[tokio::test]
async fn pairs_with_the_real_begin_on_its_first_day() -> TestResult {
    let service = start_demo().await?;
    for pair in ["USD/BRL", "BRL/USD"] {
        let list = service.get_ok(&format!("/api/v1/market/fx?pair={pair}&order=asc&limit=1")).await?;
        assert!(field_values(&list, "date")[0].as_str() >= "1994-07-01", "{pair}: {list}");
        let before = service.get_ok(&format!("/api/v1/market/fx?pair={pair}&to=1994-06-30")).await?;
        assert_eq!((&before["total"], &before["data"]), (&json!(0), &json!([])));
    }
    Ok(())
}

#[tokio::test]
async fn numbers_as_strings_have_the_same_digits() -> TestResult {
    let service = start_demo().await?;
    for path in ["/api/v1/market/cdi?limit=500", "/api/v1/market/fx?limit=500"] {
        let get = |extra_query: &str| {
            let path = format!("{path}{extra_query}");
            let service = &service;
            async move { anyhow::Ok(service.replica.get(&path).await?.text().await?) }
        };

        let numbers = get("").await?;
        let strings = get("&numbers=string").await?;
        let unquoted = |text: &str| text.replace('"', "");
        let rows = |text: &str| text[text.find("\"data\"").expect("rows")..text.rfind("}]").expect("rows")].to_owned();

        assert!(strings.len() > numbers.len());
        assert_eq!(unquoted(&rows(&numbers)), unquoted(&rows(&strings)), "{path}");

        let has_exponent =
            rows(&numbers).as_bytes().windows(2).any(|pair| pair[0].is_ascii_digit() && matches!(pair[1], b'e' | b'E'));
        assert!(!has_exponent, "{path}");
    }

    Ok(())
}

#[tokio::test]
async fn a_company_always_has_its_five_fields_and_never_null() -> TestResult {
    let service = start_demo().await?;
    for offset in [0, 100, 200] {
        let page = service.get_ok(&format!("/api/v1/companies?limit=100&offset={offset}")).await?;
        for company in page["data"].as_array().expect("a list") {
            for key in ["id", "name", "cnpj", "status", "sector"] {
                assert!(company[key].is_string(), "{key} of {company}");
            }
            assert!(!company["id"].as_str().expect("text").starts_with('0'), "{company}");
        }
    }

    Ok(())
}

#[tokio::test]
async fn a_company_is_found_by_its_code_with_zeros_and_by_its_cnpj_in_any_spelling() -> TestResult {
    let service = start_demo().await?;
    let page = service.get_ok("/api/v1/companies?limit=1&status=ativo").await?;
    let id = field_values(&page, "id").remove(0);
    let cnpj = field_values(&page, "cnpj").remove(0);
    let cnpj_digits: String = cnpj.chars().filter(char::is_ascii_digit).collect();
    let padded = format!("{id:0>6}");

    for spelling in [id.as_str(), &padded, &cnpj_digits, &cnpj.replace('/', "%2F")] {
        let response =
            service.replica.get_with_key(&format!("/api/v1/companies/{spelling}"), &service.platinum_key).await?;
        assert_eq!(response.status(), 200, "{spelling}");
        assert_eq!(response.headers()["content-location"], format!("/api/v1/companies/{id}").as_str(), "{spelling}");
        assert_eq!(response.json::<Value>().await?["id"], json!(id));
    }

    Ok(())
}

#[tokio::test]
async fn a_filing_is_dated_by_its_delivery_day_at_midnight_in_sao_paulo() -> TestResult {
    let service = start_demo().await?;
    let page = service.get_ok("/api/v1/filings?limit=100").await?;
    for filing in page["data"].as_array().expect("a list") {
        let date = filing["date"].as_str().expect("text");
        assert_eq!(date.len(), 25, "{date}");
        assert!(date.ends_with("T00:00:00-03:00"), "{date}");
        for field in ["type", "kind", "reference_date", "version", "is_latest", "protocol", "url", "source"] {
            assert!(filing.get(field).is_some(), "{field} of {filing}");
        }
        assert!(filing["description"].as_str().is_some_and(|text| !text.is_empty()), "{filing}");
    }

    Ok(())
}

#[tokio::test]
async fn the_catalog_lists_every_series_and_each_is_served_by_its_id() -> TestResult {
    let service = start_demo().await?;
    let catalog = service.get_ok("/api/v1/market/series").await?;
    let listed: Vec<(String, String)> =
        field_values(&catalog, "id").into_iter().zip(field_values(&catalog, "code")).collect();

    for (id, code) in [
        ("selic", "432"),
        ("cdi", "4389"),
        ("ipca", "433"),
        ("selic-effective", "1178"),
        ("selic-daily", "11"),
        ("cdi-daily", "12"),
        ("ipca-12m", "13522"),
    ] {
        assert!(listed.contains(&(id.to_owned(), code.to_owned())), "{id} {code}");
    }

    for entry in catalog["data"].as_array().expect("a list") {
        let id = entry["id"].as_str().expect("text");
        let newest = service.get_ok(&format!("/api/v1/market/series/{id}/current")).await?;
        let oldest = service.get_ok(&format!("/api/v1/market/series/{id}?order=asc&limit=1")).await?;
        assert_eq!((&entry["last_date"], &entry["first_date"]), (&newest["date"], &oldest["data"][0]["date"]), "{id}");
        assert_eq!(entry["unit"], newest["unit"]);
        assert!(entry["next_expected_on"].as_str() > entry["last_date"].as_str(), "{entry}");
    }

    for id in ["selic", "cdi", "ipca"] {
        let own = format!("/api/v1/market/{id}");
        let by_id = format!("/api/v1/market/series/{id}");
        assert_eq!(service.get_ok(&own).await?, service.get_ok(&by_id).await?);
    }

    assert_eq!(service.get_status_and_body("/api/v1/market/series/nothing").await?.0, 404);

    Ok(())
}
