//! Market data: exact decimals, the value on a day, accumulated rates, coverage, provenance, and `as_of`.

use rust_decimal::Decimal;
use serde_json::{Value, json};
use vintem_domain::dates::same_day_next_month;
use vintem_domain::series::{self, Shape};
use vintem_domain::{Currency, DataOrigin, Dataset};
use vintem_store::load::{BulletinKind, NewBulletin, NewFetch, Observation};
use vintem_testkit::{TestDatabase, TestReplica};

use crate::response_cache::decode_body;
use crate::{TestResult, friday};

/// A database with these values: series id → dates and values. Periods last a month.
pub async fn database_with_values(values: &[(&str, &[(&str, &str)])]) -> anyhow::Result<TestDatabase> {
    let database = TestDatabase::create_empty().await?;
    for (id, rows) in values {
        let series = series::find_series(id).expect("in the table of series");
        let rows = rows.iter().map(|(date, value)| -> anyhow::Result<Observation> {
            let row = Observation::new(date.parse()?, value.parse()?);
            let period_end = (series.shape == Shape::Period).then(|| same_day_next_month(row.date));
            Ok(Observation { period_end, ..row })
        });

        let fetch = NewFetch::without_response(format!("test:{id}"), friday(), [1; 32]);
        let mut load = database.open_store()?.begin_load(Dataset::Series(series), DataOrigin::Real, &fetch).await?;
        load.append_observations(series, &rows.collect::<Result<Vec<_>, _>>()?).await?;
        load.commit().await?;
    }

    Ok(database)
}

async fn database_with_bulletins(
    rows: &[(Currency, &str, BulletinKind, &str, &str, &str)],
) -> anyhow::Result<TestDatabase> {
    let database = TestDatabase::create_empty().await?;
    let fetch = NewFetch::without_response("test:fx".into(), friday(), [1; 32]);
    let rows =
        rows.iter().map(|(currency, published_at, kind, quote_currency, buy, sell)| -> anyhow::Result<NewBulletin> {
            let published_at: chrono::NaiveDateTime = published_at.parse()?;
            Ok(NewBulletin {
                currency: *currency,
                date: published_at.date(),
                kind: *kind,
                published_at,
                quote_currency: (*quote_currency).to_owned(),
                buy: buy.parse()?,
                sell: sell.parse()?,
                parity: None,
            })
        });

    let mut load = database.open_store()?.begin_load(Dataset::Fx, DataOrigin::Real, &fetch).await?;
    load.append_bulletins(&rows.collect::<Result<Vec<_>, _>>()?).await?;
    load.commit().await?;

    Ok(database)
}

pub async fn start_replica(database: &TestDatabase) -> anyhow::Result<TestReplica> {
    TestReplica::start_with_high_limits(database, friday()).await
}

pub async fn get_market(replica: &TestReplica, path: &str) -> anyhow::Result<Value> {
    let response = replica.get(&format!("/api/v1/market/{path}")).await?;
    anyhow::ensure!(response.status() == 200, "{path}: {} {}", response.status(), response.text().await?);
    Ok(response.json().await?)
}

#[tokio::test]
async fn the_value_on_a_day_is_the_latest_up_to_it_with_its_own_date() -> TestResult {
    let database = database_with_values(&[("cdi", &[("2026-11-10", "14.90"), ("2026-11-13", "14.65")])]).await?;
    let replica = start_replica(&database).await?;
    for (on, date) in [("2026-11-10", "2026-11-10"), ("2026-11-12", "2026-11-10"), ("2027-01-01", "2026-11-13")] {
        for path in ["cdi/current", "series/cdi/current"] {
            assert_eq!(get_market(&replica, &format!("{path}?on={on}")).await?["date"], date, "{path} {on}");
        }
    }

    let too_early = replica.get("/api/v1/market/cdi/current?on=2026-11-09").await?;
    assert_eq!(too_early.status(), 404);
    let body: Value = too_early.json().await?;
    assert!(body["message"].as_str().unwrap_or_default().contains("2026-11-10"), "{body}");

    Ok(())
}

#[tokio::test]
async fn latest_rates_list_all_pairs_and_bulletins_keep_their_quote_currency() -> TestResult {
    use BulletinKind::{Closing, Opening};
    let database = database_with_bulletins(&[
        (Currency::Usd, "1994-06-30T18:00:00", Closing, "CRR", "2747.00", "2750.00"),
        (Currency::Usd, "2026-11-12T10:08:18.114", Opening, "BRL", "5.41", "5.42"),
        (Currency::Usd, "2026-11-12T13:03:25.555", Closing, "BRL", "5.4321", "5.4327"),
        (Currency::Eur, "2026-11-11T13:03:25.555", Closing, "BRL", "6.2001", "6.2010"),
    ])
    .await?;
    let replica = start_replica(&database).await?;

    let latest = get_market(&replica, "fx/latest").await?;
    let pairs: Vec<(&Value, &Value)> =
        latest["data"].as_array().expect("rows").iter().map(|row| (&row["pair"], &row["date"])).collect();
    assert_eq!(pairs, [(&json!("EUR/BRL"), &json!("2026-11-11")), (&json!("USD/BRL"), &json!("2026-11-12"))]);
    assert_eq!(get_market(&replica, "fx/latest?on=2026-11-11").await?["total"], 1);

    let bulletins = get_market(&replica, "fx/bulletins").await?;
    assert_eq!((&bulletins["date"], &bulletins["total"]), (&json!("2026-11-12"), &json!(2)));
    assert_eq!(
        bulletins["data"][1],
        json!({"kind": "closing", "published_at": "2026-11-12T13:03:25.555-03:00", "quote_currency": "BRL",
               "buy": 5.4321, "sell": 5.4327})
    );

    let before_the_real = get_market(&replica, "fx/bulletins?date=1994-06-30").await?;
    assert_eq!(before_the_real["data"][0]["quote_currency"], "CRR");
    assert_eq!(get_market(&replica, "fx/bulletins?date=2026-11-14").await?["total"], 0);
    assert_eq!(replica.get("/api/v1/market/fx/bulletins?pair=EUR/USD").await?.status(), 400);

    Ok(())
}

#[tokio::test]
async fn rates_accumulate_between_dates_and_missing_days_are_listed() -> TestResult {
    let days = [("2026-11-09", "0.053400"), ("2026-11-10", "0.053400"), ("2026-11-12", "0.055131")];
    let database = database_with_values(&[("cdi-daily", &days)]).await?;
    let replica = start_replica(&database).await?;

    let two_days =
        get_market(&replica, "cdi/accumulated?from=2026-11-09&to=2026-11-11&amount=1000&detail=true").await?;
    assert_eq!((&two_days["factor"], &two_days["result"]), (&json!(1.00106829), &json!(1001.07)));
    assert_eq!((&two_days["business_days"], &two_days["observations"]), (&json!(2), &json!(2)));
    assert_eq!(two_days["series"]["code"], "12");
    assert_eq!(two_days["detail"][0], json!({"date": "2026-11-09", "value": 0.0534, "factor": 1.000534}));

    let as_strings =
        get_market(&replica, "cdi/accumulated?from=2026-11-09&to=2026-11-11&percent=110&spread=2.5&numbers=string");
    let as_strings = as_strings.await?;
    assert_eq!(as_strings["index_factor"], "1.00117515");
    assert_eq!(as_strings["spread_factor"], "1.000195992");
    assert_eq!(as_strings["factor"], "1.001371372");
    assert_eq!(as_strings["change_percent"], "0.1371372");

    let with_gap = get_market(&replica, "cdi/accumulated?from=2026-11-09&to=2026-11-13&amount=5").await?;
    assert_eq!((&with_gap["missing"], &with_gap["missing_total"]), (&json!(["2026-11-11"]), &json!(1)));
    assert!(with_gap.get("factor").is_none() && with_gap.get("result").is_none(), "{with_gap}");

    // A weekend accumulates nothing, and neither does an empty range.
    for path in ["cdi/accumulated?from=2026-11-07&to=2026-11-09", "cdi/accumulated?from=2026-11-10&to=2026-11-10"] {
        let unchanged = get_market(&replica, &format!("{path}&numbers=string")).await?;
        assert_eq!((&unchanged["factor"], &unchanged["observations"]), (&json!("1.00000000"), &json!(0)));
    }

    for query in ["", "?from=2026-11-10&to=2026-11-09", "?from=2026-11-09&percent=1001", "?from=2026-11-09&spread=1e2"]
    {
        assert_eq!(replica.get(&format!("/api/v1/market/cdi/accumulated{query}")).await?.status(), 400, "{query}");
    }

    Ok(())
}

#[tokio::test]
async fn inflation_accumulates_by_whole_months_and_exchange_rates_by_closes() -> TestResult {
    let months = [("2026-08-01", "-0.11"), ("2026-09-01", "0.48"), ("2026-10-01", "0.09")];
    let database = database_with_values(&[("ipca", &months)]).await?;
    let replica = start_replica(&database).await?;

    let two_months = get_market(&replica, "ipca/accumulated?from=2026-08-20&to=2026-10-02&numbers=string").await?;
    assert_eq!(
        (&two_months["from"], &two_months["to"], &two_months["observations"]),
        (&json!("2026-08-01"), &json!("2026-10-01"), &json!(2))
    );
    assert_eq!(two_months["factor"], "1.00369472");
    assert_eq!(get_market(&replica, "ipca/accumulated?from=2026-09-30").await?["to"], "2026-11-01");

    use BulletinKind::Closing;
    let database = database_with_bulletins(&[
        (Currency::Usd, "2026-11-06T13:00:00", Closing, "BRL", "4.9995", "5.0000"),
        (Currency::Usd, "2026-11-09T13:00:00", Closing, "BRL", "5.0995", "5.1000"),
        (Currency::Usd, "2026-11-11T13:00:00", Closing, "BRL", "5.2495", "5.2500"),
    ])
    .await?;
    let replica = start_replica(&database).await?;

    // The range starts on a Sunday, which uses Friday's close.
    let fx = get_market(&replica, "fx/accumulated?from=2026-11-08&to=2026-11-11&amount=100&numbers=string&detail=true")
        .await?;
    assert_eq!((&fx["factor"], &fx["result"]), (&json!("1.05000000"), &json!("105.00")));
    assert_eq!(fx["detail"][1]["factor"], "1.0294117647058823");

    let missing = get_market(&replica, "fx/accumulated?from=2026-11-10&to=2026-11-11").await?;
    assert_eq!(missing["missing"], json!(["2026-11-10"]));
    assert!(missing.get("factor").is_none());

    Ok(())
}

#[tokio::test]
async fn the_catalog_describes_each_series_in_both_languages() -> TestResult {
    let database = database_with_values(&[
        ("selic", &[("2026-10-31", "14.75"), ("2026-11-13", "14.75")]),
        ("ipca", &[("2026-01-01", "0.33"), ("2026-02-01", "0.70")]),
        ("ipca-12m", &[("2026-10-01", "4.68")]),
    ])
    .await?;
    let replica = start_replica(&database).await?;

    let catalog = get_market(&replica, "series").await?;
    assert_eq!(catalog["total"], series::served_series().count() + Currency::ALL.len());
    let ids: Vec<&str> =
        catalog["data"].as_array().expect("series").iter().filter_map(|row| row["id"].as_str()).collect();
    assert!(ids.windows(3).any(|ids| ids == ["ipca-ytd", "real-selic", "aud-brl"]), "{ids:?}");

    let find_cdi = |catalog: &Value| {
        let rows = catalog["data"].as_array().cloned().unwrap_or_default();
        rows.into_iter().find(|row| row["id"] == "cdi").expect("it is listed")
    };
    let cdi = find_cdi(&catalog);
    assert_eq!(cdi["names"], json!({"en": "CDI, annualized", "pt": "CDI, anualizado"}));
    assert!(cdi["is_not"].as_str().unwrap_or_default().contains("CDB"), "{cdi}");

    let in_portuguese = replica.http.get(replica.url("/api/v1/market/series")).header("Accept-Language", "pt-BR");
    let in_portuguese: Value = replica.send(in_portuguese).await?.json().await?;
    assert_eq!(find_cdi(&in_portuguese)["unit"], "% a.a.");

    let real = get_market(&replica, "series/real-selic").await?;
    assert_eq!(real["data"], json!([{"date": "2026-10-01", "value": 9.62, "derived": true}]));
    assert!(real["series"]["formula"].as_str().unwrap_or_default().contains("ipca-12m"), "{real}");
    assert_eq!(get_market(&replica, "series/ipca-ytd/current").await?["value"], 1.03);

    Ok(())
}

#[tokio::test]
async fn compared_series_carry_their_last_value_forward_and_mark_it() -> TestResult {
    let database = database_with_values(&[
        ("cdi", &[("2026-10-30", "14.90"), ("2026-11-12", "14.65"), ("2026-11-13", "14.65")]),
        ("ipca", &[("2026-10-01", "0.09"), ("2026-11-01", "0.20")]),
    ])
    .await?;
    let replica = start_replica(&database).await?;

    let by_day = get_market(&replica, "compare?ids=cdi,ipca&order=asc").await?;
    assert_eq!(by_day["total"], 5);
    assert_eq!(by_day["data"][0]["values"], json!({"ipca": {"value": 0.09, "date": "2026-10-01", "carried": false}}));
    assert_eq!(by_day["data"][2]["values"]["cdi"], json!({"value": 14.90, "date": "2026-10-30", "carried": true}));

    let by_month = get_market(&replica, "compare?ids=cdi,ipca&align=month").await?;
    assert_eq!(by_month["total"], 2);
    assert_eq!(by_month["data"][0]["date"], "2026-11-01");
    assert_eq!(by_month["data"][0]["values"]["cdi"], json!({"value": 14.65, "date": "2026-11-13", "carried": false}));

    for query in ["", "?ids=", "?ids=cdi,nothing", "?ids=cdi&align=year"] {
        assert_eq!(replica.get(&format!("/api/v1/market/compare{query}")).await?.status(), 400, "{query}");
    }

    Ok(())
}

#[tokio::test]
async fn a_long_comparison_is_a_stream_of_the_same_rows() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let ids = "selic,cdi,ipca,selic-effective,selic-daily,cdi-daily,ipca-12m,ipca-ytd,real-selic,usd-brl,eur-brl";

    // 11 series: 200,000 values are 18,181 rows.
    let url = replica.url(&format!("/api/v1/market/compare?ids={ids}&limit=20000"));
    for encoding in ["identity", "gzip", "br", "zstd"] {
        let request = replica.http.get(&url).header("Accept-Encoding", encoding);
        let response = replica.send_unchecked(request).await?;
        assert!(!response.headers.contains_key("content-length"), "{encoding}");
        let encoding_used = response.headers.get("content-encoding").and_then(|value| value.to_str().ok());
        assert_eq!(encoding_used, Some(encoding).filter(|encoding| *encoding != "identity"));
        let etag = response.headers["etag"].to_str()?.to_owned();
        let body: Value = serde_json::from_slice(&decode_body(encoding_used, response.body)?)?;
        assert_eq!(body["limit"], 18_181, "{encoding}");
        let rows = body["data"].as_array().expect("rows");
        assert_eq!(rows.len() as u64, body["total"].as_u64().expect("a total").min(18_181), "{encoding}");

        let unchanged = replica.http.get(&url).header("Accept-Encoding", encoding).header("If-None-Match", &etag);
        let head = replica.http.head(&url).header("Accept-Encoding", encoding);
        for (request, status) in [(unchanged, 304), (head, 200)] {
            let response = replica.send_unchecked(request).await?;
            assert_eq!((response.status, response.body.len()), (status, 0), "{encoding}");
            assert!(!response.headers.contains_key("transfer-encoding"), "{encoding}: {status}");
        }

        // The same as on a page that is not a stream.
        let offset = rows.len() - 20;
        let page = get_market(&replica, &format!("compare?ids={ids}&limit=20&offset={offset}")).await?;
        assert_eq!(page["data"].as_array().expect("rows"), &rows[offset..], "{encoding}");
    }
    Ok(())
}

#[tokio::test]
async fn coverage_lists_every_gap_between_the_first_value_and_the_last() -> TestResult {
    // November 2 is All Souls' Day, a holiday, but has a value.
    let days = ["2026-10-29", "2026-10-30", "2026-11-02", "2026-11-05", "2026-11-06", "2026-11-10"];
    let rows = days.map(|day| (day, "0.053400"));
    let database = database_with_values(&[("cdi-daily", &rows)]).await?;
    let replica = start_replica(&database).await?;

    let coverage = get_market(&replica, "series/cdi-daily/coverage").await?;
    let count = |name: &str| coverage[name].as_u64().unwrap_or(u64::MAX);
    assert_eq!((count("expected"), count("stored"), count("missing"), count("unexpected")), (8, 6, 3, 1), "{coverage}");
    assert_eq!(
        coverage["gaps"],
        json!([{"from": "2026-11-03", "to": "2026-11-04", "missing": 2},
               {"from": "2026-11-09", "to": "2026-11-09", "missing": 1}])
    );

    let two_days = get_market(&replica, "series/cdi-daily/coverage?from=2026-11-05&to=2026-11-06").await?;
    assert_eq!((&two_days["expected"], &two_days["missing"]), (&json!(2), &json!(0)));

    Ok(())
}

#[tokio::test]
async fn rows_have_provenance_and_are_filtered_by_updated_since() -> TestResult {
    let database = database_with_values(&[("cdi", &[("2026-11-10", "14.90"), ("2026-11-11", "14.90")])]).await?;
    let cdi = series::find_series("cdi").expect("in the table of series");
    let later = friday() + chrono::TimeDelta::hours(2);
    let fetch = NewFetch::without_response("test:later".into(), later, [2; 32]);
    let mut load = database.open_store()?.begin_load(Dataset::Series(cdi), DataOrigin::Real, &fetch).await?;
    let row = |date: &str, value: &str| -> anyhow::Result<Observation> {
        Ok(Observation::new(date.parse()?, value.parse()?))
    };

    load.append_observations(cdi, &[row("2026-11-11", "14.65")?, row("2026-11-12", "14.65")?]).await?;
    load.commit().await?;

    let replica = start_replica(&database).await?;
    let with_provenance = get_market(&replica, "cdi?provenance=true").await?;
    assert_eq!(
        with_provenance["data"][2]["provenance"],
        json!([{"source": "BCB SGS", "address": "test:cdi", "fetched_at": "2026-11-13T18:00:00Z",
                "known_at": "2026-11-13T18:00:00Z", "sha256": "01".repeat(32)}])
    );
    assert_eq!(with_provenance["data"][1]["provenance"][0]["address"], "test:later");
    assert_eq!(get_market(&replica, "cdi/current?provenance=true").await?["provenance"][0]["sha256"], "02".repeat(32));
    assert!(get_market(&replica, "cdi").await?["data"][0].get("provenance").is_none());

    for (since, total) in [("2026-11-13", 3), ("2026-11-13T18:00:01Z", 2), ("2026-11-14", 0)] {
        assert_eq!(get_market(&replica, &format!("cdi?updated_since={since}")).await?["total"], total, "{since}");
    }

    assert_eq!(replica.get("/api/v1/market/cdi?updated_since=yesterday").await?.status(), 400);

    Ok(())
}

#[tokio::test]
async fn as_of_returns_a_series_as_known_on_that_day() -> TestResult {
    // History loaded on Friday the 13th, revised on Monday the 16th.
    let ipca = [("2026-08-01", "-0.11"), ("2026-09-01", "0.47")];
    let daily = [("2026-11-12", "0.0551"), ("2026-11-13", "0.0551")];
    let database = database_with_values(&[("ipca", &ipca), ("cdi-daily", &daily)]).await?;

    let series = series::find_series("ipca").expect("in the table of series");
    let monday = friday() + chrono::TimeDelta::days(3);
    let fetch = NewFetch::without_response("test:revised".into(), monday, [2; 32]);
    let mut load = database.open_store()?.begin_load(Dataset::Series(series), DataOrigin::Real, &fetch).await?;
    load.append_observations(series, &[Observation::new("2026-09-01".parse()?, "0.48".parse()?)]).await?;
    load.commit().await?;

    let replica = TestReplica::start_with_high_limits(&database, monday + chrono::TimeDelta::days(1)).await?;
    let (_, gold) = replica.create_key(vintem_domain::Plan::Gold).await?;
    let get = async |path: &str| -> anyhow::Result<Value> {
        Ok(replica.get_with_key(&format!("/api/v1/market/{path}"), &gold).await?.json().await?)
    };

    let row = |date: &str, value: f64, known: &str| json!({"date": date, "value": value, "known": known});
    let august = row("2026-08-01", -0.11, "estimated");
    let september = row("2026-09-01", 0.47, "estimated");
    for (as_of, expected) in [
        ("2026-09-14", json!([])),
        ("2026-09-15", json!([august])),
        ("2026-10-14", json!([august])),
        ("2026-10-15", json!([september, august])),
        ("2026-11-15", json!([september, august])),
        ("2026-11-16", json!([row("2026-09-01", 0.48, "observed"), august])),
        ("2027-01-01", json!([row("2026-09-01", 0.48, "observed"), august])),
    ] {
        assert_eq!(get(&format!("ipca?as_of={as_of}")).await?["data"], expected, "{as_of}");
    }

    assert_eq!(get("ipca/current?as_of=2026-11-15").await?["value"], 0.47);
    assert_eq!(get("ipca/current?as_of=1950-01-01").await?["error"], "not_found");
    assert_eq!(get("series/ipca-ytd?as_of=2026-11-16").await?["total"], 0, "January is missing");

    // A daily rate from history counts as known on the next business day, unless it was loaded earlier than that.
    assert_eq!(get("series/cdi-daily?as_of=2026-11-12").await?["total"], 0);
    assert_eq!(get("series/cdi-daily?as_of=2026-11-13").await?["total"], 2);
    assert_eq!(get("cdi?as_of=2026-11-13").await?["error"], "data_unavailable");

    assert_eq!(
        get("series/ipca/revisions").await?["data"],
        json!([{"series": "ipca", "date": "2026-09-01", "old": 0.47, "new": 0.48, "known_at": "2026-11-16T18:00:00Z"}])
    );
    assert_eq!(get("series/cdi-daily/revisions").await?["total"], 0);

    let refused = replica.get("/api/v1/market/ipca?as_of=2026-10-15").await?;
    assert_eq!(
        (refused.status().as_u16(), refused.json::<Value>().await?["required_plan"].clone()),
        (403, json!("gold"))
    );

    Ok(())
}

#[tokio::test]
async fn as_of_returns_exchange_rates_as_known_on_that_day() -> TestResult {
    use BulletinKind::Closing;
    let database = database_with_bulletins(&[
        (Currency::Usd, "2026-11-11T13:00:00", Closing, "BRL", "5.2495", "5.2500"),
        (Currency::Usd, "2026-11-12T13:00:00", Closing, "BRL", "5.2995", "5.3000"),
        // A second close on the same day replaces the first.
        (Currency::Usd, "2026-11-12T14:00:00", Closing, "BRL", "5.2990", "5.2996"),
    ])
    .await?;

    let replica = start_replica(&database).await?;
    let (_, gold) = replica.create_key(vintem_domain::Plan::Gold).await?;

    let current: Value =
        replica.get_with_key("/api/v1/market/fx/current?as_of=2026-11-12", &gold).await?.json().await?;
    assert_eq!((&current["sell"], &current["known"]), (&json!(5.2996), &json!("estimated")));
    let too_early: Value =
        replica.get_with_key("/api/v1/market/fx/current?as_of=1950-01-01", &gold).await?.json().await?;
    assert_eq!(too_early["error"], "not_found");

    for (as_of, total) in [("2026-11-10", 0), ("2026-11-11", 1), ("2026-11-12", 2)] {
        for pair in ["USD/BRL", "BRL/USD"] {
            let path = format!("/api/v1/market/fx?pair={pair}&as_of={as_of}");
            let body: Value = replica.get_with_key(&path, &gold).await?.json().await?;
            assert_eq!(body["total"], total, "{path}");
            assert!(body["data"].as_array().expect("rows").iter().all(|row| row["known"] == "estimated"), "{body}");
        }
    }

    Ok(())
}

#[tokio::test]
async fn filing_versions_are_listed_highest_first() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = start_replica(&database).await?;
    let (_, gold) = replica.create_key(vintem_domain::Plan::Gold).await?;
    let get =
        async |path: String| -> anyhow::Result<Value> { Ok(replica.get_with_key(&path, &gold).await?.json().await?) };

    let all = get("/api/v1/filings?limit=100".into()).await?;
    let rows = all["data"].as_array().expect("rows");
    let later_version =
        rows.iter().find(|row| row["version"].as_u64() > Some(1)).expect("demo data has later versions");
    let id = later_version["id"].as_str().unwrap_or_default();

    let versions = get(format!("/api/v1/filings/{id}/versions")).await?;
    let column = |name: &str| -> Vec<Value> {
        versions["data"].as_array().expect("rows").iter().map(|row| row[name].clone()).collect()
    };

    assert!(versions["total"].as_u64() >= Some(2), "{versions}");
    let numbers: Vec<u64> = column("version").iter().filter_map(Value::as_u64).collect();
    assert!(numbers.is_sorted_by(|newer, older| newer > older), "{numbers:?}");

    let latest: Vec<Value> = column("is_latest");
    assert_eq!(latest.iter().filter(|is_latest| **is_latest == json!(true)).count(), 1);
    assert_eq!(latest[0], json!(true));
    assert!(column("description").iter().all(|description| *description == later_version["description"]));

    Ok(())
}

#[tokio::test]
async fn as_of_returns_filings_as_known_on_that_day() -> TestResult {
    use vintem_domain::CvmDataset;
    use vintem_store::load::Filing;
    let database = TestDatabase::create_empty().await?;
    let filing = |id: &str, delivered_on: &str, subject: &str, version: u16| -> anyhow::Result<Filing> {
        Ok(Filing {
            id: id.to_owned(),
            cvm_dataset: CvmDataset::Ipe,
            company_id: 7,
            company_name: "COMPANHIA SETE".to_owned(),
            category: "Fato Relevante".to_owned(),
            subject: subject.to_owned(),
            delivered_on: delivered_on.parse()?,
            reference_date: Some("2026-01-05".parse()?),
            version,
            ..Filing::default()
        })
    };

    // History on Friday the 13th; on Monday one filing changes and a later version appears.
    for (days, rows) in [
        (0, vec![filing("1", "2026-01-05", "Aviso", 1)?, filing("2", "2026-02-05", "Aviso", 2)?]),
        (3, vec![filing("1", "2026-01-05", "Aviso corrigido", 1)?, filing("3", "2026-11-16", "Aviso", 3)?]),
    ] {
        let fetch = NewFetch::without_response(
            format!("test:{days}"),
            friday() + chrono::TimeDelta::days(days),
            [days as u8; 32],
        );
        let mut load = database.open_store()?.begin_load(Dataset::Filings, DataOrigin::Real, &fetch).await?;
        load.append_filings(&rows).await?;
        load.commit().await?;
    }

    let registry = NewFetch::without_response("test:companies".into(), friday(), [9; 32]);
    let mut load = database.open_store()?.begin_load(Dataset::Companies, DataOrigin::Real, &registry).await?;
    load.append_companies(&[vintem_domain::Company { id: 8, name: "OITO".into(), ..Default::default() }]).await?;
    load.commit().await?;

    let replica = TestReplica::start_with_high_limits(&database, friday() + chrono::TimeDelta::days(4)).await?;
    let (_, gold) = replica.create_key(vintem_domain::Plan::Gold).await?;
    let get = async |path: &str| -> anyhow::Result<Value> {
        Ok(replica.get_with_key(&format!("/api/v1/{path}"), &gold).await?.json().await?)
    };
    let expect = |rows: &[(&str, &str, bool, &str)]| -> Vec<Value> {
        rows.iter().map(|(id, description, is_latest, known)| json!([id, description, is_latest, known])).collect()
    };

    for (as_of, expected) in [
        ("2026-01-04", expect(&[])),
        ("2026-01-05", expect(&[("1", "Aviso", true, "estimated")])),
        ("2026-02-05", expect(&[("2", "Aviso", true, "estimated"), ("1", "Aviso", false, "estimated")])),
        ("2026-11-13", expect(&[("2", "Aviso", true, "observed"), ("1", "Aviso", false, "observed")])),
        (
            "2026-11-16",
            expect(&[
                ("3", "Aviso", true, "observed"),
                ("2", "Aviso", false, "observed"),
                ("1", "Aviso corrigido", true, "observed"),
            ]),
        ),
    ] {
        for path in ["filings", "companies/7/filings"] {
            let list = get(&format!("{path}?as_of={as_of}")).await?;
            let rows: Vec<Value> = list["data"]
                .as_array()
                .expect("rows")
                .iter()
                .map(|row| json!([row["id"], row["description"], row["is_latest"], row["known"]]))
                .collect();
            assert_eq!((rows, &list["total"]), (expected.clone(), &json!(expected.len())), "{path} {as_of}");
        }
    }

    assert_eq!(get("filings/1?as_of=2026-11-15").await?["description"], "Aviso");
    assert_eq!(get("filings/1").await?["description"], "Aviso corrigido");
    assert_eq!(get("filings/3?as_of=2026-11-15").await?["error"], "not_found");
    assert_eq!(get("companies/7?as_of=2026-01-05").await?["known"], "estimated");
    assert_eq!(get("companies/7?as_of=2026-01-04").await?["error"], "not_found");

    Ok(())
}

#[tokio::test]
async fn companies_and_filings_have_provenance_and_updated_since() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = start_replica(&database).await?;
    let (_, key) = replica.create_key(vintem_domain::Plan::Gold).await?;
    for path in ["companies", "filings"] {
        let get = async |query: &str| -> anyhow::Result<Value> {
            Ok(replica.get_with_key(&format!("/api/v1/{path}?{query}"), &key).await?.json().await?)
        };
        let list = get("limit=1&provenance=true").await?;
        let provenance = &list["data"][0]["provenance"][0];
        assert!(provenance["address"].as_str().is_some_and(|address| !address.is_empty()), "{list}");

        let id = list["data"][0]["id"].as_str().unwrap_or_default();
        let single: Value =
            replica.get_with_key(&format!("/api/v1/{path}/{id}?provenance=true"), &key).await?.json().await?;
        assert_eq!(&single["provenance"][0], provenance);
        assert_eq!(get("updated_since=2026-11-13T18:00:00Z").await?["total"], list["total"]);
        assert_eq!(get("updated_since=2026-11-13T18:00:01Z").await?["total"], 0);
    }

    Ok(())
}

#[tokio::test]
async fn decimals_keep_every_digit_from_load_to_response() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let decimals = [
        "15.00",
        "0.053400",
        "-0.23",
        "438898.12",
        "0.000000000001",
        "1234567890123456789012345678",
        "82.39",
        "0",
        "0.00",
        "0.10",
        "9999999999999999.999999999999",
    ];

    let cdi = series::find_series("cdi").expect("in the table");
    let first_date: chrono::NaiveDate = "2026-10-01".parse()?;
    let rows = decimals.iter().enumerate().map(|(index, text)| -> anyhow::Result<Observation> {
        Ok(Observation::new(first_date + chrono::Days::new(index as u64), text.parse::<Decimal>()?))
    });
    let rows = rows.collect::<Result<Vec<_>, _>>()?;

    let fetch = NewFetch::without_response("test:cdi".into(), friday(), [1; 32]);
    let mut load = database.open_store()?.begin_load(Dataset::Series(cdi), DataOrigin::Real, &fetch).await?;
    load.append_observations(cdi, &rows).await?;
    load.commit().await?;

    let replica = TestReplica::start(&database, friday()).await?;
    let numbers = replica.get("/api/v1/market/cdi?order=asc").await?.text().await?;
    let strings = replica.get("/api/v1/market/cdi?order=asc&numbers=string").await?.text().await?;

    for (row, text) in rows.iter().zip(decimals) {
        let date = row.date;
        assert!(numbers.contains(&format!("{{\"date\":\"{date}\",\"value\":{text}}}")), "{text} in {numbers}");
        assert!(strings.contains(&format!("{{\"date\":\"{date}\",\"value\":\"{text}\"}}")), "{text} in {strings}");
    }

    Ok(())
}
