//! Served data follows stored data: never half a load, never before its day, and an error instead of an empty list
//! where nothing was loaded.

use std::time::Duration;

use chrono::NaiveDate;
use serde_json::{Value, json};
use vintem_domain::{DataOrigin, Dataset, Plan, series};
use vintem_store::load::{NewFetch, Observation};
use vintem_testkit::{TestDatabase, TestReplica, wait_until};

use crate::{TestResult, friday};

fn test_fetch() -> NewFetch {
    NewFetch::without_response("test:selic".into(), friday(), [7; 32])
}

fn observation(day: &str, value: &str) -> Observation {
    Observation::new(day.parse().expect("a day"), value.parse().expect("a decimal"))
}

#[tokio::test]
async fn a_source_that_was_never_loaded_is_503_and_not_an_empty_list() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;

    for path in [
        "/api/v1/market/selic",
        "/api/v1/market/fx/current",
        "/api/v1/market/overview",
        "/api/v1/companies",
        "/api/v1/companies/1",
        "/api/v1/filings",
        "/api/v1/filings/1",
        "/api/v1/search?q=a",
    ] {
        let response = replica.get_with_key(path, &key).await?;
        assert_eq!(response.status(), 503, "{path}");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert!(response.headers().contains_key("retry-after"));
        assert_eq!(response.json::<Value>().await?["error"], "data_unavailable", "{path}");
    }

    let health: Value = replica.get("/health").await?.json().await?;
    assert_eq!((&health["status"], &health["synthetic"]), (&json!("degraded"), &json!(false)));

    Ok(())
}

#[tokio::test]
async fn a_load_is_served_without_a_restart_and_changes_the_etag() -> TestResult {
    let database = TestDatabase::create_empty().await?;

    // High limits, because the test polls until it sees the load.
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let selic = series::find_series("selic").expect("in the table");
    let mut etags = Vec::new();

    for (generation, value) in [(1, "15.00"), (2, "14.75")] {
        let store = replica.open_store()?;
        let fetch = NewFetch { fetched_at: friday() + chrono::Duration::seconds(generation), ..test_fetch() };
        let mut load = store.begin_load(Dataset::Series(selic), DataOrigin::Real, &fetch).await?;
        load.append_observations(selic, &[observation("2026-11-13", value)]).await?;
        assert_eq!(load.commit().await?, 1);

        wait_until("the new value is served", Duration::from_secs(5), || async {
            let Ok(response) = replica.get("/api/v1/market/selic/current").await else { return false };
            response.text().await.is_ok_and(|body| body.contains(&format!("\"value\":{value},")))
        })
        .await;

        let response = replica.get("/api/v1/market/selic/current").await?;
        assert!(!response.headers().contains_key("x-data-source"), "real data is not called synthetic");
        etags.push(response.headers()["etag"].clone());
    }

    assert_ne!(etags[0], etags[1]);

    Ok(())
}

#[tokio::test]
async fn a_future_value_is_served_once_its_day_comes() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let selic = series::find_series("selic").expect("in the table");

    let mut load = store.begin_load(Dataset::Series(selic), DataOrigin::Real, &test_fetch()).await?;
    load.append_observations(selic, &[observation("2026-11-13", "15.00"), observation("2026-11-14", "14.50")]).await?;
    load.commit().await?;

    let replica = TestReplica::start(&database, friday()).await?;
    let current = || async { anyhow::Ok(replica.get("/api/v1/market/selic").await?.json::<Value>().await?) };

    let before = current().await?;
    assert_eq!((&before["total"], &before["data"][0]["date"]), (&json!(1), &json!("2026-11-13")));

    // Midnight in São Paulo is 03:00 UTC.
    replica.clock.set("2026-11-14T02:59:59Z".parse()?);
    assert_eq!(current().await?["total"], json!(1));

    replica.clock.set("2026-11-14T03:00:00Z".parse()?);
    let after = current().await?;
    assert_eq!((&after["total"], &after["data"][0]["date"]), (&json!(2), &json!("2026-11-14")));

    Ok(())
}

#[tokio::test]
async fn synthetic_data_is_marked_everywhere() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    for path in ["/api/v1/market/selic", "/api/v1/companies", "/api/v1/nothing", "/pricing", "/docs", "/", "/health"] {
        assert_eq!(replica.get(path).await?.headers()["x-data-source"], "synthetic", "{path}");
    }

    for path in ["/pricing", "/docs", "/"] {
        assert!(replica.get(path).await?.text().await?.to_lowercase().contains("synthetic"), "{path}");
    }

    let status: Value = replica.get("/api/v1/status").await?.json().await?;
    assert_eq!((&status["status"], &status["synthetic"]), (&json!("ok"), &json!(true)));

    let sources = status["sources"].as_array().expect("a list");
    assert_eq!(sources.len(), Dataset::all().count());
    assert!(sources.iter().all(|source| source["synthetic"] == json!(true) && source["rows"].as_u64() > Some(0)));

    Ok(())
}

#[tokio::test]
async fn overdue_data_is_marked_stale() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let get_stale = || async {
        anyhow::Ok(replica.get("/api/v1/market/cdi/current").await?.json::<Value>().await?["stale"].clone())
    };

    assert_eq!(get_stale().await?, json!(false));
    replica.clock.set(friday() + chrono::Duration::days(14));
    assert_eq!(get_stale().await?, json!(true));
    assert_eq!(replica.get("/health").await?.json::<Value>().await?["status"], "degraded");

    Ok(())
}

#[tokio::test]
async fn every_company_with_a_filing_can_be_looked_up() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;
    let mut unregistered = 0;

    for offset in (0..3000).step_by(100) {
        let page: Value =
            replica.get_with_key(&format!("/api/v1/filings?limit=100&offset={offset}"), &key).await?.json().await?;
        let mut ids: Vec<&str> = page["data"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|filing| filing["company_id"].as_str())
            .collect();
        ids.sort_unstable();
        ids.dedup();

        for id in ids.iter().take(12).chain(ids.iter().filter(|id| id.starts_with("800"))) {
            let company: Value = replica.get_with_key(&format!("/api/v1/companies/{id}"), &key).await?.json().await?;
            assert_eq!(company["id"], json!(id));
            unregistered += usize::from(company["registered"] == json!(false));
        }
    }

    assert!(unregistered > 0, "some issuers are known by their filings alone");

    Ok(())
}

#[tokio::test]
async fn filters_combine_with_exact_totals() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;
    let get = |path: String| {
        let replica = &replica;
        let key = &key;
        async move { anyhow::Ok(replica.get_with_key(&path, key).await?.json::<Value>().await?) }
    };

    let mut all = Vec::new();
    for offset in (0..3000).step_by(100) {
        all.extend(
            get(format!("/api/v1/filings?limit=100&offset={offset}")).await?["data"]
                .as_array()
                .expect("a list")
                .clone(),
        );
    }

    assert_eq!(all.len(), 3000);
    let company = all[10]["company_id"].as_str().expect("text");
    let category = all[10]["category"].as_str().expect("text");
    let from = &all[2000]["date"].as_str().expect("text")[..10];
    let to = &all[5]["date"].as_str().expect("text")[..10];

    let encoded = category.replace(' ', "%20");
    let page =
        get(format!("/api/v1/companies/{company}/filings?category={encoded}&from={from}&to={to}&limit=100")).await?;

    let expected: Vec<&Value> = all
        .iter()
        .filter(|filing| filing["company_id"] == company && filing["category"] == category)
        .filter(|filing| (from..=to).contains(&&filing["date"].as_str().expect("text")[..10]))
        .collect();

    assert_eq!(page["total"], json!(expected.len()));
    assert_eq!(page["data"].as_array().expect("a list").iter().collect::<Vec<_>>(), expected);

    let long_ago: NaiveDate = "1990-01-01".parse()?;
    let empty_page = get(format!("/api/v1/filings?to={long_ago}")).await?;
    assert_eq!((&empty_page["total"], &empty_page["data"]), (&json!(0), &json!([])));

    Ok(())
}

#[tokio::test]
async fn a_day_missing_from_the_annual_series_is_derived_from_the_daily_one_and_marked() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let rows = [
        ("cdi", vec![observation("2026-11-11", "13.66"), observation("2026-11-13", "13.65")]),
        ("cdi-daily", vec![observation("2026-11-11", "0.055131"), observation("2026-11-12", "0.050788")]),
    ];

    for (id, rows) in &rows {
        let series = series::find_series(id).expect("in the table");
        let mut load = store.begin_load(Dataset::Series(series), DataOrigin::Real, &test_fetch()).await?;
        load.append_observations(series, rows).await?;
        load.commit().await?;
    }

    let replica = TestReplica::start(&database, friday()).await?;
    let list: Value = replica.get("/api/v1/market/cdi?numbers=string").await?.json().await?;

    let expected = json!([
        {"date": "2026-11-13", "value": "13.65"},
        {"date": "2026-11-12", "value": "13.65", "derived": true},
        {"date": "2026-11-11", "value": "13.66"},
    ]);
    assert_eq!(list["data"], expected);

    Ok(())
}
