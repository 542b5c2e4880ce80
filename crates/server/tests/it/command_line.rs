//! The command-line interface, run as an operator would run it.

use std::time::Duration;

use serde_json::Value;
use vintem_domain::{DataOrigin, Dataset, series};
use vintem_store::load::{NewFetch, Observation};
use vintem_testkit::{
    DedicatedRedis, ServerProcess, TempDirectory, TestDatabase, http_client_builder, run_vintem, wait_until,
};

use crate::{TestResult, friday, vintem_binary};

#[tokio::test]
async fn demo_data_loads_once_and_is_removed_completely() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let demo_command = ["demo", "--filings", "500", "--companies", "50", "--until", "2026-11-13"];
    let (status, output, _) = run_vintem(vintem_binary(), &database.url(), &demo_command).await?;
    assert!(status.success() && output.contains("500 filings"), "{output}");

    let store = database.open_store()?;
    let states = store.dataset_states().await?;
    assert_eq!(states.len(), Dataset::all().count());
    assert!(states.values().all(|state| state.origin == DataOrigin::Synthetic));

    let (status, _, error) = run_vintem(vintem_binary(), &database.url(), &demo_command).await?;
    assert!(!status.success() && error.contains("vintem demo --remove"), "{error}");

    // Real data may not be mixed with synthetic data.
    let selic = series::find_series("selic").expect("in the table");
    let fetch = NewFetch::without_response("test:selic".into(), friday(), [7; 32]);
    assert!(store.begin_load(Dataset::Series(selic), DataOrigin::Real, &fetch).await.is_err());

    let (status, ..) = run_vintem(vintem_binary(), &database.url(), &["demo", "--remove"]).await?;
    assert!(status.success());
    assert!(store.dataset_states().await?.is_empty());
    assert!(store.begin_load(Dataset::Series(selic), DataOrigin::Real, &fetch).await.is_ok());

    Ok(())
}

#[tokio::test]
async fn demo_refuses_a_database_that_holds_real_data() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let selic = series::find_series("selic").expect("in the table");
    let fetch = NewFetch::without_response("test:selic".into(), friday(), [7; 32]);

    let mut load = store.begin_load(Dataset::Series(selic), DataOrigin::Real, &fetch).await?;
    let row = Observation::new("2026-11-13".parse()?, "15.00".parse()?);
    load.append_observations(selic, &[row]).await?;
    load.commit().await?;

    for arguments in [["demo", "--filings=10"].as_slice(), &["demo", "--remove"]] {
        let (status, _, error) = run_vintem(vintem_binary(), &database.url(), arguments).await?;
        assert!(!status.success() && error.contains("real data"), "{error}");
    }

    assert_eq!(store.dataset_states().await?.len(), 1);

    Ok(())
}

#[tokio::test]
async fn keys_are_created_listed_moved_to_another_plan_and_revoked() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let url = database.url();
    let run = async |arguments: &[&str]| run_vintem(vintem_binary(), &url, arguments).await;

    let create = ["keys", "create", "--plan", "gold", "--name", "Ana", "--email", "ana@example.com", "--json"];
    let created: Value = serde_json::from_str(&run(&create).await?.1)?;
    let id = created["id"].to_string();
    let key = created["api_key"].as_str().expect("a key");

    assert!(run(&["keys", "set-plan", &id, "platinum"]).await?.0.success());
    assert!(run(&["keys", "revoke", &id, "--json"]).await?.0.success());

    let listed = run(&["keys", "list", "--json"]).await?.1;
    assert!(!listed.contains(&key[12..]), "a list never shows a key");
    let listed: Value = serde_json::from_str(&listed)?;
    assert_eq!(listed["keys"][0]["plan"], "platinum");
    assert!(listed["keys"][0]["revoked_at"].is_string());

    assert!(!run(&["keys", "revoke", "4711"]).await?.0.success());
    assert!(!run(&["keys", "set-plan", &id, "diamond"]).await?.0.success());
    assert!(!run(&["keys", "create", "--plan", "gold", "--name", "Ana", "--email", "nope"]).await?.0.success());

    Ok(())
}

#[tokio::test]
async fn a_short_pepper_or_secret_key_is_refused_at_start() -> TestResult {
    let serve = ["serve", "--key-pepper", "short", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let (status, _, error) = run_vintem(vintem_binary(), "postgres://127.0.0.1/none", &serve).await?;
    assert!(!status.success() && error.contains("VINTEM_KEY_PEPPER"), "{error}");
    assert!(!error.contains("short"), "the pepper is not repeated");

    let serve = ["serve", "--secret-key", "short", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let (status, _, error) = run_vintem(vintem_binary(), "postgres://127.0.0.1/none", &serve).await?;
    assert!(!status.success() && error.contains("VINTEM_SECRET_KEY"), "{error}");
    assert!(!error.contains("short"), "the key is not repeated");

    Ok(())
}

/// Stored rows of a disabled series stay in the database, and in the copy on disk of a replica that served them.
#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_series_is_neither_served_nor_listed() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let redis = DedicatedRedis::start()?;
    let directory = TempDirectory::create()?;
    let data_dir = format!("--data-dir={}", directory.path().display());
    let http = http_client_builder().build()?;
    let status_of = async |process: &ServerProcess, id: &str| {
        let response = http.get(process.url(&format!("/api/v1/market/series/{id}/current"))).send().await?;
        anyhow::Ok(response.status().as_u16())
    };

    let process = ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &[&data_dir])?;
    for id in ["igp-m", "ipca-12m", "real-selic"] {
        assert_eq!(status_of(&process, id).await?, 200, "{id}");
    }
    let copy = directory.path().join("snapshot/served");
    wait_until("the copy is on disk", Duration::from_secs(20), || async { copy.exists() }).await;
    drop(process);

    // What is computed from a disabled series goes with it.
    let disabled = [("VINTEM_DISABLED_SERIES", "igp-m, ipca-12m")];
    let process =
        ServerProcess::start_with_env(vintem_binary(), &database.url(), &redis.url(), &[&data_dir], &disabled)?;
    for id in ["igp-m", "ipca-12m", "real-selic"] {
        assert_eq!(status_of(&process, id).await?, 404, "{id}");
    }
    assert_eq!(status_of(&process, "igp-di").await?, 200);
    let catalog: Value = http.get(process.url("/api/v1/market/series")).send().await?.json().await?;
    let ids: Vec<&str> =
        catalog["data"].as_array().into_iter().flatten().filter_map(|row| row["id"].as_str()).collect();
    assert!(
        ids.contains(&"igp-di") && !ids.iter().any(|id| ["igp-m", "ipca-12m", "real-selic"].contains(id)),
        "{ids:?}"
    );
    let page = http.get(process.url("/series/igp-m")).send().await?;
    assert_eq!(page.status(), 404);
    Ok(())
}
