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
               "holiday": {"name": "National Day of Zumbi and Black Awareness",
                           "names": {"en": "National Day of Zumbi and Black Awareness",
                                     "pt": "Dia Nacional de Zumbi e da Consciência Negra"}},
               "previous": "2026-11-19", "next": "2026-11-23"})
    );
    assert_eq!(get("check?date=2026-11-19").await?["holiday"], Value::Null);
    let sunday = get("check?date=2026-11-15").await?;
    assert_eq!((&sunday["kind"], &sunday["holiday"]["name"]), (&json!("weekend"), &json!("Republic Proclamation Day")));

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
        "holidays",
        "holidays?year=27",
        "holidays?year=1899",
        "holidays?year=2027&calendar=lunar",
        "holidays?from=2027-01-01&to=2027-12-31",
        "holidays.ics",
        "holidays.ics?year=2200",
        "holidays.ics?year=2027&format=csv",
    ] {
        assert_eq!(replica.get(&format!("/api/v1/calendar/{query}")).await?.status(), 400, "{query}");
    }

    let tag = replica.get("/api/v1/calendar/check?date=2026-11-20").await?.headers()["etag"].clone();
    let conditional =
        replica.http.get(replica.url("/api/v1/calendar/check?date=2026-11-20")).header("If-None-Match", tag);
    assert_eq!(replica.send(conditional).await?.status(), 304);

    Ok(())
}

#[tokio::test]
async fn holidays_have_names_in_both_languages() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;

    let banks: Value = replica.get("/api/v1/calendar/holidays?year=2027").await?.json().await?;
    assert_eq!((&banks["calendar"], &banks["year"]), (&json!("settlement"), &json!(2027)));
    assert_eq!(banks["total"], 13);
    assert_eq!(banks["data"].as_array().map(Vec::len), Some(13));
    assert_eq!(
        banks["data"][0],
        json!({"date": "2027-01-01", "weekday": "friday", "name": "New Year's Day",
               "names": {"en": "New Year's Day", "pt": "Confraternização Universal"}})
    );
    assert_eq!(banks["data"][5]["weekday"], "saturday", "May 1 is listed, though it is a Saturday");

    let exchange: Value = replica.get("/api/v1/calendar/holidays?year=2027&calendar=exchange").await?.json().await?;
    assert_eq!(exchange["total"], 15);
    assert_eq!(exchange["data"][12]["name"], "Christmas Eve");

    let url = replica.url("/api/v1/calendar/holidays?year=2027");
    let portuguese: Value =
        replica.send(replica.http.get(url).header("Accept-Language", "pt-BR")).await?.json().await?;
    assert_eq!(portuguese["data"][3]["name"], "Sexta-feira Santa");
    assert_eq!(portuguese["data"][3]["names"], banks["data"][3]["names"]);

    for row in banks["data"].as_array().into_iter().flatten() {
        let date = row["date"].as_str().unwrap_or_default();
        let day: Value = replica.get(&format!("/api/v1/calendar/check?date={date}")).await?.json().await?;
        assert_eq!(day["business_day"], false, "{date}");
        assert_eq!(day["holiday"]["name"], row["name"], "{date}");
    }

    Ok(())
}

#[tokio::test]
async fn the_icalendar_file_has_the_holidays_of_the_list() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;

    for query in ["year=2027", "year=2027&calendar=exchange", "year=1988", "year=1994&calendar=exchange"] {
        let list: Value = replica.get(&format!("/api/v1/calendar/holidays?{query}")).await?.json().await?;
        let response = replica.get(&format!("/api/v1/calendar/holidays.ics?{query}")).await?;
        assert_eq!(response.status(), 200, "{query}");
        assert_eq!(response.headers()["content-type"], "text/calendar; charset=utf-8");
        assert!(response.headers().contains_key("etag"), "{query}");

        let file = response.text().await?;
        assert!(file.ends_with("\r\n"), "{query}");
        let lines: Vec<&str> = file.trim_end_matches("\r\n").split("\r\n").collect();
        assert!(lines.iter().all(|line| line.len() <= 75 && !line.contains(['\r', '\n'])), "{file}");
        assert_eq!((lines[0], lines[lines.len() - 1]), ("BEGIN:VCALENDAR", "END:VCALENDAR"));

        let unfolded = file.replace("\r\n ", "");
        let values = |prefix: &str| -> Vec<String> {
            unfolded.split("\r\n").filter_map(|line| line.strip_prefix(prefix)).map(str::to_owned).collect()
        };
        let listed = |name: &str| -> Vec<String> {
            let rows = list["data"].as_array().into_iter().flatten();
            rows.map(|row| row[name].as_str().unwrap_or_default().to_owned()).collect()
        };
        let dates: Vec<String> = listed("date").iter().map(|date| date.replace('-', "")).collect();
        assert_eq!(values("DTSTART;VALUE=DATE:"), dates, "{query}");
        assert_eq!(values("SUMMARY:"), listed("name"), "{query}");
        assert_eq!(values("BEGIN:VEVENT").len(), dates.len(), "{query}");
        assert_eq!(values("END:VEVENT").len(), dates.len(), "{query}");

        let mut uids = values("UID:");
        uids.dedup();
        assert_eq!(uids.len(), dates.len(), "{query}");

        let again = replica.get(&format!("/api/v1/calendar/holidays.ics?{query}")).await?.text().await?;
        assert_eq!(again, file, "{query}");
    }

    Ok(())
}
