//! Data: which series is meant, from when on, and what always is there.

use serde_json::{Value, json};

use super::{field_values, start_demo};
use crate::TestResult;

#[tokio::test]
async fn every_market_response_identifies_its_series() -> TestResult {
    let served = start_demo().await?;
    for (name, code, unit_part) in [("selic", "432", "p.a."), ("cdi", "4389", "p.a."), ("ipca", "433", "month")] {
        let list = served.get_ok(&format!("/api/v1/market/{name}")).await?;
        let current = served.get_ok(&format!("/api/v1/market/{name}/current")).await?;
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
    let overview = served.get_ok("/api/v1/market/overview").await?;
    for name in ["selic", "cdi", "ipca", "fx"] {
        let item = &overview[name];
        assert!(item["unit"].is_string() && item["series"].is_object() && item["stale"].is_boolean(), "{item}");
    }
    Ok(())
}

#[tokio::test]
async fn months_are_dated_by_their_first_day() -> TestResult {
    let served = start_demo().await?;
    let dates = field_values(&served.get_ok("/api/v1/market/ipca?limit=20000").await?, "date");
    assert!(dates.len() > 100 && dates.iter().all(|date| date.ends_with("-01")));
    Ok(())
}

#[tokio::test]
async fn no_day_after_today_in_sao_paulo_is_served() -> TestResult {
    let served = start_demo().await?;
    // Still Thursday in São Paulo, Friday in Greenwich.
    served.replica.clock.set("2026-11-13T02:30:00Z".parse()?);
    for path in ["/api/v1/market/selic", "/api/v1/market/cdi", "/api/v1/market/fx"] {
        assert_eq!(field_values(&served.get_ok(path).await?, "date")[0], "2026-11-12", "{path}");
    }
    served.replica.clock.set("2026-11-13T03:00:00Z".parse()?);
    assert_eq!(field_values(&served.get_ok("/api/v1/market/selic").await?, "date")[0], "2026-11-13");
    Ok(())
}

#[tokio::test]
async fn pairs_with_the_real_begin_on_its_first_day() -> TestResult {
    let served = start_demo().await?;
    for pair in ["USD/BRL", "BRL/USD"] {
        let list = served.get_ok(&format!("/api/v1/market/fx?pair={pair}&order=asc&limit=1")).await?;
        assert!(field_values(&list, "date")[0].as_str() >= "1994-07-01", "{pair}: {list}");
        let before = served.get_ok(&format!("/api/v1/market/fx?pair={pair}&to=1994-06-30")).await?;
        assert_eq!((&before["total"], &before["data"]), (&json!(0), &json!([])));
    }
    Ok(())
}

#[tokio::test]
async fn numbers_as_strings_have_the_same_digits() -> TestResult {
    let served = start_demo().await?;
    for path in ["/api/v1/market/cdi?limit=500", "/api/v1/market/fx?limit=500"] {
        let get = |more: &str| {
            let (path, served) = (format!("{path}{more}"), &served);
            async move { anyhow::Ok(served.replica.get(&path).await?.text().await?) }
        };
        let (numbers, strings) = (get("").await?, get("&numbers=string").await?);
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
    let served = start_demo().await?;
    for offset in [0, 100, 200] {
        let page = served.get_ok(&format!("/api/v1/companies?limit=100&offset={offset}")).await?;
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
    let served = start_demo().await?;
    let page = served.get_ok("/api/v1/companies?limit=1&status=ativo").await?;
    let (id, cnpj) = (field_values(&page, "id").remove(0), field_values(&page, "cnpj").remove(0));
    let bare: String = cnpj.chars().filter(char::is_ascii_digit).collect();
    let padded = format!("{id:0>6}");
    for spelled in [id.as_str(), &padded, &bare, &cnpj.replace('/', "%2F")] {
        let answer = served.replica.get_with_key(&format!("/api/v1/companies/{spelled}"), &served.platinum_key).await?;
        assert_eq!(answer.status(), 200, "{spelled}");
        assert_eq!(answer.headers()["content-location"], format!("/api/v1/companies/{id}").as_str(), "{spelled}");
        assert_eq!(answer.json::<Value>().await?["id"], json!(id));
    }
    Ok(())
}

#[tokio::test]
async fn a_filing_is_dated_by_its_delivery_day_at_midnight_in_sao_paulo() -> TestResult {
    let served = start_demo().await?;
    let page = served.get_ok("/api/v1/filings?limit=100").await?;
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
    let served = start_demo().await?;
    let catalog = served.get_ok("/api/v1/market/series").await?;
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
        let newest = served.get_ok(&format!("/api/v1/market/series/{id}/current")).await?;
        let oldest = served.get_ok(&format!("/api/v1/market/series/{id}?order=asc&limit=1")).await?;
        assert_eq!((&entry["last_date"], &entry["first_date"]), (&newest["date"], &oldest["data"][0]["date"]), "{id}");
        assert_eq!(entry["unit"], newest["unit"]);
        assert!(entry["next_expected_on"].as_str() > entry["last_date"].as_str(), "{entry}");
    }
    for id in ["selic", "cdi", "ipca"] {
        let (own, by_id) = (format!("/api/v1/market/{id}"), format!("/api/v1/market/series/{id}"));
        assert_eq!(served.get_ok(&own).await?, served.get_ok(&by_id).await?);
    }
    assert_eq!(served.get_status_and_body("/api/v1/market/series/nothing").await?.0, 404);
    Ok(())
}
