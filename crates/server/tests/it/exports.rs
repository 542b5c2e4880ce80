//! Bulk export files as they are served. `checks/exports` reads their contents with third-party readers.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use http::header;
use serde_json::Value;
use sha2::{Digest, Sha256};
use vintem_domain::{Company, DataOrigin, Dataset, Plan, series};
use vintem_store::load::NewFetch;
use vintem_testkit::{TestDatabase, TestReplica, wait_until};

use crate::{TestResult, friday};

const EXPORT_PATH: &str = "/api/v1/export";

async fn list_exports(replica: &TestReplica, key: &str) -> anyhow::Result<Vec<Value>> {
    let body: Value = replica.get_with_key(EXPORT_PATH, key).await?.json().await?;
    let data = body["data"].as_array().cloned().unwrap_or_default();
    assert_eq!(body["total"], data.len());
    Ok(data)
}

fn find_export<'l>(exports: &'l [Value], name: &str) -> &'l Value {
    exports.iter().find(|entry| entry["name"] == name).unwrap_or_else(|| panic!("no export is called {name}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_export_is_listed_with_correct_sizes_and_hashes() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let (_, gold) = replica.create_key(Plan::Gold).await?;
    assert!(list_exports(&replica, &gold).await?.is_empty(), "no file was made yet");
    assert_eq!(replica.get_with_key("/api/v1/export/selic.csv.gz", &gold).await?.status(), 404);

    replica.build_exports()?;
    let exports = list_exports(&replica, &gold).await?;
    let names: BTreeSet<&str> = exports.iter().filter_map(|entry| entry["name"].as_str()).collect();
    let other_datasets = ["fx", "companies", "filings", "filings-2026"].into_iter();

    for name in series::served_series().map(|series| series.id).chain(other_datasets) {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }

    for entry in &exports {
        let files = entry["files"].as_array().into_iter().flatten().chain([&entry["sidecar"]]);
        for file in files {
            let name = file["name"].as_str().unwrap_or_default();
            let request = replica.http.get(replica.url(&format!("{EXPORT_PATH}/{name}"))).header("X-API-Key", &gold);
            let response = replica.send(request.header("Accept-Encoding", "gzip, br, zstd")).await?;
            assert_eq!(response.status(), 200, "{name}");

            let headers = response.headers().clone();
            assert!(!headers.contains_key(header::CONTENT_ENCODING), "{name} is sent as it is");
            assert_eq!(headers[header::ETAG], format!("\"{}\"", file["sha256"].as_str().unwrap_or_default()));
            assert_eq!(headers[header::CONTENT_TYPE], file["media_type"].as_str().unwrap_or_default());
            assert_eq!(headers[header::CONTENT_DISPOSITION], format!("attachment; filename=\"vintem-{name}\""));
            assert_eq!(headers[header::ACCEPT_RANGES], "bytes");

            let body = response.bytes().await?;
            let sha256: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(
                (sha256.as_str(), body.len()),
                (file["sha256"].as_str().unwrap_or_default(), file["bytes"].as_u64().unwrap_or_default() as usize)
            );
        }
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn export_files_support_range_and_conditional_requests() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let (_, gold) = replica.create_key(Plan::Gold).await?;
    replica.build_exports()?;

    let path = format!("{EXPORT_PATH}/companies.parquet");
    let get = async |headers: &[(&str, &str)]| {
        let request = replica.http.get(replica.url(&path)).header("X-API-Key", &gold);
        replica.send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
    };

    let whole = get(&[]).await?;
    let etag = whole.headers()[header::ETAG].to_str()?.to_owned();
    let whole = whole.bytes().await?;

    for (range, first, last) in
        [("bytes=0-9", 0, 9), ("bytes=7-", 7, whole.len() - 1), ("bytes=-5", whole.len() - 5, whole.len() - 1)]
    {
        for headers in [vec![("Range", range)], vec![("Range", range), ("If-Range", etag.as_str())]] {
            let response = get(&headers).await?;
            assert_eq!(response.status(), 206, "{range}");
            assert_eq!(response.headers()[header::CONTENT_RANGE], format!("bytes {first}-{last}/{}", whole.len()));
            assert_eq!(response.bytes().await?, whole.slice(first..=last), "{range}");
        }
    }

    for headers in
        [[("Range", "bytes=0-9"), ("If-Range", "\"another\"")], [("Range", "bytes=0-1,4-5"), ("Accept", "*/*")]]
    {
        let response = get(&headers).await?;
        assert_eq!((response.status().as_u16(), response.bytes().await?), (200, whole.clone()), "{headers:?}");
    }

    let past_the_end = get(&[("Range", &format!("bytes={}-", whole.len()))]).await?;
    assert_eq!(past_the_end.status(), 416);
    assert_eq!(past_the_end.headers()[header::CONTENT_RANGE], format!("bytes */{}", whole.len()));
    let body: Value = past_the_end.json().await?;
    assert_eq!(body["error"], "bad_request");

    let not_modified = get(&[("If-None-Match", &etag)]).await?;
    assert_eq!((not_modified.status().as_u16(), not_modified.bytes().await?.len()), (304, 0));

    let head = replica.send(replica.http.head(replica.url(&path)).header("X-API-Key", &gold)).await?;
    assert_eq!(head.headers()[header::CONTENT_LENGTH], whole.len().to_string());

    for unknown_name in ["nothing.parquet", "manifest.json", "..%2fmanifest.json", "companies", "COMPANIES.parquet"] {
        let response = replica.get_with_key(&format!("{EXPORT_PATH}/{unknown_name}"), &gold).await?;
        assert_eq!(response.status(), 404, "{unknown_name}");
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_are_rebuilt_after_a_change_but_at_most_hourly() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let load = async |name: &str, minute: i64| -> TestResult {
        let fetch = NewFetch::without_response(
            format!("test:{minute}"),
            friday() + TimeDelta::minutes(minute),
            [minute as u8; 32],
        );

        let company = Company { id: 1, name: name.to_owned(), is_registered: true, ..Company::default() };
        let mut load = store.begin_load(Dataset::Companies, DataOrigin::Real, &fetch).await?;
        load.append_companies(&[company]).await?;
        load.commit().await?;
        Ok(())
    };

    load("PRIMEIRA S.A.", 0).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let (_, gold) = replica.create_key(Plan::Gold).await?;

    assert_eq!(replica.build_exports()?.built_datasets, ["companies"]);
    let first = list_exports(&replica, &gold).await?;
    let list_tag = replica.get_with_key(EXPORT_PATH, &gold).await?.headers()[header::ETAG].clone();

    load("SEGUNDA S.A.", 1).await?;
    wait_until("the change is served", std::time::Duration::from_secs(10), || async {
        let response = replica.get_with_key("/api/v1/companies/1", &gold).await;
        match response {
            Ok(response) => response.text().await.is_ok_and(|text| text.contains("SEGUNDA")),
            Err(_) => false,
        }
    })
    .await;

    let within_the_hour = replica.build_exports()?;
    assert_eq!((within_the_hour.built_datasets.len(), within_the_hour.postponed_count), (0, 1));
    assert_eq!(list_exports(&replica, &gold).await?, first);

    replica.clock.set(friday() + TimeDelta::hours(1));
    assert_eq!(replica.build_exports()?.built_datasets, ["companies"]);
    let second = list_exports(&replica, &gold).await?;

    let generation = |exports: &[Value]| find_export(exports, "companies")["generation"].as_i64();
    assert!(generation(&second) > generation(&first));
    assert_ne!(find_export(&second, "companies")["sidecar"], find_export(&first, "companies")["sidecar"]);
    assert_ne!(replica.get_with_key(EXPORT_PATH, &gold).await?.headers()[header::ETAG], list_tag);

    let sidecar: Value = replica.get_with_key(&format!("{EXPORT_PATH}/companies.json"), &gold).await?.json().await?;
    assert_eq!((&sidecar["licence"], &sidecar["synthetic"]), (&"ODbL-1.0".into(), &false.into()));
    assert_eq!(sidecar["sources"][0]["address"], "test:1");
    assert_eq!(replica.build_exports()?.built_datasets.len(), 0, "nothing changed");

    Ok(())
}
