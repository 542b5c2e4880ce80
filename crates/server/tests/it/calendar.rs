//! The business-day endpoints over HTTP.

use serde_json::{Value, json};
use vintem_testkit::{TestDatabase, TestReplica};

use crate::{TestResult, friday};

#[tokio::test]
async fn business_days_are_listed_added_and_checked() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let get = async |path: &str| -> anyhow::Result<Value> {
        let response = replica.get(&format!("/api/v1/calendar/{path}")).await?;
        anyhow::ensure!(response.status() == 200, "{path}: {}", response.status());
        Ok(response.json().await?)
    };

    let days = get("business-days?from=2026-11-19&to=2026-11-24").await?;
    assert_eq!(days["data"], json!(["2026-11-19", "2026-11-23", "2026-11-24"]));
    assert_eq!(get("business-days?from=2026-12-23&to=2026-12-25&calendar=exchange").await?["total"], 1);
    assert_eq!(get("business-days?from=1987-01-01&to=2026-12-31").await?["total"], 10_022);
    assert_eq!(get("add?date=2026-11-19&days=1").await?["result"], "2026-11-23");
    assert_eq!(get("add?date=2026-11-20&days=-1").await?["result"], "2026-11-19");
    assert_eq!(
        get("check?date=2026-11-20").await?,
        json!({"calendar": "settlement", "date": "2026-11-20", "business_day": false, "kind": "holiday",
               "previous": "2026-11-19", "next": "2026-11-23"})
    );

    for query in [
        "business-days",
        "business-days?from=2026-01-01",
        "business-days?from=1980-01-01&to=2020-01-02",
        "business-days?from=2026-01-02&to=2026-01-01",
        "business-days?from=2026-01-01&to=2026-01-02&calendar=lunar",
        "add?date=2026-11-19",
        "add?date=2026-11-19&days=1.5",
        "add?date=2026-11-19&days=10081",
        "add?date=2199-12-30&days=5",
        "check",
    ] {
        assert_eq!(replica.get(&format!("/api/v1/calendar/{query}")).await?.status(), 400, "{query}");
    }

    let tag = replica.get("/api/v1/calendar/check?date=2026-11-20").await?.headers()["etag"].clone();
    let conditional =
        replica.http.get(replica.url("/api/v1/calendar/check?date=2026-11-20")).header("If-None-Match", tag);
    assert_eq!(replica.send(conditional).await?.status(), 304);

    Ok(())
}
