//! The files of the bulk export as they are served. What is in them is held to readers that are not ours by
//! `checks/exports`.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use http::header;
use serde_json::Value;
use sha2::{Digest, Sha256};
use vintem_domain::{Company, Dataset, Origin, Plan, series};
use vintem_store::load::Fetch;
use vintem_testkit::{TestDatabase, TestReplica, eventually};

use crate::{Outcome, friday};

const LIST: &str = "/api/v1/export";

async fn listed(replica: &TestReplica, key: &str) -> anyhow::Result<Vec<Value>> {
    let body: Value = replica.get_with(LIST, key).await?.json().await?;
    let data = body["data"].as_array().cloned().unwrap_or_default();
    assert_eq!(body["total"], data.len());
    Ok(data)
}

fn entry<'l>(listed: &'l [Value], name: &str) -> &'l Value {
    listed.iter().find(|entry| entry["name"] == name).unwrap_or_else(|| panic!("no export is called {name}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_dataset_is_listed_with_files_of_the_bytes_that_it_says() -> Outcome {
    let database = TestDatabase::demo(friday()).await?;
    let replica = TestReplica::start_roomy(&database, friday()).await?;
    let (_, gold) = replica.create_key(Plan::Gold).await?;
    assert!(listed(&replica, &gold).await?.is_empty(), "no file was made yet");
    assert_eq!(replica.get_with("/api/v1/export/selic.csv.gz", &gold).await?.status(), 404);

    replica.make_exports()?;
    let listed = listed(&replica, &gold).await?;
    let names: BTreeSet<&str> = listed.iter().filter_map(|entry| entry["name"].as_str()).collect();
    let whole = ["fx", "companies", "filings", "filings-2026"].into_iter();
    for name in series::served().map(|series| series.id).chain(whole) {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
    for entry in &listed {
        let files = entry["files"].as_array().into_iter().flatten().chain([&entry["sidecar"]]);
        for file in files {
            let name = file["name"].as_str().unwrap_or_default();
            let request = replica.http.get(replica.url(&format!("{LIST}/{name}"))).header("X-API-Key", &gold);
            let answer = replica.send(request.header("Accept-Encoding", "gzip, br, zstd")).await?;
            assert_eq!(answer.status(), 200, "{name}");
            let headers = answer.headers().clone();
            assert!(!headers.contains_key(header::CONTENT_ENCODING), "{name} is sent as it is");
            assert_eq!(headers[header::ETAG], format!("\"{}\"", file["sha256"].as_str().unwrap_or_default()));
            assert_eq!(headers[header::CONTENT_TYPE], file["media_type"].as_str().unwrap_or_default());
            assert_eq!(headers[header::CONTENT_DISPOSITION], format!("attachment; filename=\"vintem-{name}\""));
            assert_eq!(headers[header::ACCEPT_RANGES], "bytes");
            let body = answer.bytes().await?;
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
async fn a_file_is_asked_for_whole_in_part_and_only_if_it_is_another() -> Outcome {
    let database = TestDatabase::demo(friday()).await?;
    let replica = TestReplica::start_roomy(&database, friday()).await?;
    let (_, gold) = replica.create_key(Plan::Gold).await?;
    replica.make_exports()?;
    let path = format!("{LIST}/companies.parquet");
    let ask = async |headers: &[(&str, &str)]| {
        let request = replica.http.get(replica.url(&path)).header("X-API-Key", &gold);
        replica.send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
    };
    let whole = ask(&[]).await?;
    let etag = whole.headers()[header::ETAG].to_str()?.to_owned();
    let whole = whole.bytes().await?;
    for (range, first, last) in
        [("bytes=0-9", 0, 9), ("bytes=7-", 7, whole.len() - 1), ("bytes=-5", whole.len() - 5, whole.len() - 1)]
    {
        for headers in [vec![("Range", range)], vec![("Range", range), ("If-Range", etag.as_str())]] {
            let answer = ask(&headers).await?;
            assert_eq!(answer.status(), 206, "{range}");
            assert_eq!(answer.headers()[header::CONTENT_RANGE], format!("bytes {first}-{last}/{}", whole.len()));
            assert_eq!(answer.bytes().await?, whole.slice(first..=last), "{range}");
        }
    }
    for headers in
        [[("Range", "bytes=0-9"), ("If-Range", "\"another\"")], [("Range", "bytes=0-1,4-5"), ("Accept", "*/*")]]
    {
        let answer = ask(&headers).await?;
        assert_eq!((answer.status().as_u16(), answer.bytes().await?), (200, whole.clone()), "{headers:?}");
    }
    let behind = ask(&[("Range", &format!("bytes={}-", whole.len()))]).await?;
    assert_eq!(behind.status(), 416);
    assert_eq!(behind.headers()[header::CONTENT_RANGE], format!("bytes */{}", whole.len()));
    let body: Value = behind.json().await?;
    assert_eq!(body["error"], "bad_request");

    let held = ask(&[("If-None-Match", &etag)]).await?;
    assert_eq!((held.status().as_u16(), held.bytes().await?.len()), (304, 0));
    let head = replica.send(replica.http.head(replica.url(&path)).header("X-API-Key", &gold)).await?;
    assert_eq!(head.headers()[header::CONTENT_LENGTH], whole.len().to_string());
    for nothing in ["nothing.parquet", "manifest.json", "..%2fmanifest.json", "companies", "COMPANIES.parquet"] {
        let answer = replica.get_with(&format!("{LIST}/{nothing}"), &gold).await?;
        assert_eq!(answer.status(), 404, "{nothing}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_made_anew_when_their_dataset_changed_and_an_hour_has_passed() -> Outcome {
    let database = TestDatabase::empty().await?;
    let store = database.store()?;
    let load = async |name: &str, turn: i64| -> Outcome {
        let fetch = Fetch::made_here(format!("test:{turn}"), friday() + TimeDelta::minutes(turn), [turn as u8; 32]);
        let company = Company { id: 1, name: name.to_owned(), registered: true, ..Company::default() };
        let mut into = store.begin_load(Dataset::Companies, Origin::Real, &fetch).await?;
        into.append_companies(&[company]).await?;
        into.commit().await?;
        Ok(())
    };
    load("PRIMEIRA S.A.", 0).await?;
    let replica = TestReplica::start_roomy(&database, friday()).await?;
    let (_, gold) = replica.create_key(Plan::Gold).await?;
    assert_eq!(replica.make_exports()?.made, ["companies"]);
    let first = listed(&replica, &gold).await?;
    let list_tag = replica.get_with(LIST, &gold).await?.headers()[header::ETAG].clone();

    load("SEGUNDA S.A.", 1).await?;
    eventually("the change is served", std::time::Duration::from_secs(10), || async {
        let answer = replica.get_with("/api/v1/companies/1", &gold).await;
        match answer {
            Ok(answer) => answer.text().await.is_ok_and(|text| text.contains("SEGUNDA")),
            Err(_) => false,
        }
    })
    .await;
    let within_the_hour = replica.make_exports()?;
    assert_eq!((within_the_hour.made.len(), within_the_hour.waiting), (0, 1));
    assert_eq!(listed(&replica, &gold).await?, first);

    replica.clock.set(friday() + TimeDelta::hours(1));
    assert_eq!(replica.make_exports()?.made, ["companies"]);
    let second = listed(&replica, &gold).await?;
    let generation = |listed: &[Value]| entry(listed, "companies")["generation"].as_i64();
    assert!(generation(&second) > generation(&first));
    assert_ne!(entry(&second, "companies")["sidecar"], entry(&first, "companies")["sidecar"]);
    assert_ne!(replica.get_with(LIST, &gold).await?.headers()[header::ETAG], list_tag);
    let sidecar: Value = replica.get_with(&format!("{LIST}/companies.json"), &gold).await?.json().await?;
    assert_eq!((&sidecar["licence"], &sidecar["synthetic"]), (&"ODbL-1.0".into(), &false.into()));
    assert_eq!(sidecar["sources"][0]["address"], "test:1");
    assert_eq!(replica.make_exports()?.made.len(), 0, "nothing changed");
    Ok(())
}
