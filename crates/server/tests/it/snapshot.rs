//! The in-memory snapshot: it follows changes in the store incrementally and starts from its copy on disk.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chrono::{Duration as Span, NaiveDate};
use serde_json::Value;
use vintem_domain::series::find_series;
use vintem_domain::{CvmDataset, DataOrigin, Dataset, Plan, Series};
use vintem_snapshot::LiveSnapshot;
use vintem_store::load::{Filing, LoadTransaction, NewFetch, Observation};
use vintem_testkit::{TempDirectory, TestDatabase, TestReplica, TestReplicaOptions, wait_until};

use crate::{TestResult, friday};

fn filing(id: &str, subject: &str) -> Filing {
    Filing {
        id: id.to_owned(),
        cvm_dataset: CvmDataset::Ipe,
        company_id: 1,
        company_name: "CERÂMICA SERRA S.A.".to_owned(),
        category: "Fato Relevante".to_owned(),
        subject: subject.to_owned(),
        delivered_on: "2026-11-12".parse().expect("a day"),
        version: 1,
        ..Filing::default()
    }
}

/// Loads filings, fetched this many seconds after `friday()`.
async fn load_filings(database: &TestDatabase, seconds: i64, rows: &[Filing]) -> anyhow::Result<u64> {
    let fetch = NewFetch::without_response(format!("test:{seconds}"), friday() + Span::seconds(seconds), [7; 32]);
    let store = database.open_store()?;
    let mut load = store.begin_load(Dataset::Filings, DataOrigin::Real, &fetch).await?;
    load.append_filings(rows).await?;
    Ok(load.commit().await?)
}

/// The `total` of the list, and the descriptions of all filings in list order.
async fn get_filings(replica: &TestReplica, key: &str) -> anyhow::Result<(u64, Vec<String>)> {
    let body: Value = replica.get_with_key("/api/v1/filings?limit=100", key).await?.json().await?;
    let rows = body["data"].as_array().expect("a list");
    let descriptions = rows.iter().map(|row| row["description"].as_str().expect("text").to_owned()).collect();
    Ok((body["total"].as_u64().expect("a number"), descriptions))
}

async fn wait_until_served(replica: &TestReplica, key: &str, expected: &[&str]) {
    wait_until("what was loaded is served", Duration::from_secs(10), || async {
        get_filings(replica, key).await.is_ok_and(|(total, rows)| total == rows.len() as u64 && rows == expected)
    })
    .await;
}

/// The layer files and the file that lists them.
fn snapshot_files(directory: &TempDirectory) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.path().join("snapshot")).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| !path.ends_with("unfinished")).collect()
}

async fn start_with_data_dir(
    database: &TestDatabase,
    directory: &TempDirectory,
) -> anyhow::Result<(TestReplica, String)> {
    let flags = ["--data-dir", directory.path().to_str().expect("a path of ours is text")];
    let options = TestReplicaOptions { flags: &flags, redis_prefix: None };
    let replica = TestReplica::start_with_options(database, friday() + Span::days(1), options).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;
    Ok((replica, key))
}

async fn wait_until_saved(directory: &TempDirectory) {
    let is_served = |path: &PathBuf| path.file_name() == Some(Path::new("served").as_os_str());
    wait_until("the copy is on disk", Duration::from_secs(20), || async {
        snapshot_files(directory).iter().any(is_served)
    })
    .await;
}

/// Updates a row without raising the generation: only a replica that rereads everything sees the change.
async fn change_subject_unnoticed(database: &TestDatabase, subject: &str) -> TestResult {
    let mut connection = database.connect().await?;
    sqlx::query("update filing_version set subject = $1 where id = '1'").bind(subject).execute(&mut connection).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_snapshot_follows_changes_without_rereading_everything() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    load_filings(&database, 1, &[filing("1", "um"), filing("2", "dois"), filing("3", "três")]).await?;
    let replica = TestReplica::start(&database, friday() + Span::days(1)).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;
    wait_until_served(&replica, &key, &["três", "dois", "um"]).await;

    change_subject_unnoticed(&database, "nobody reads this").await?;
    load_filings(&database, 2, &[filing("2", "dois outra vez"), filing("4", "quatro")]).await?;
    wait_until_served(&replica, &key, &["quatro", "três", "dois outra vez", "um"]).await;

    // A full file without one of the filings, twice. The load accepts this because it is less than one row in twenty.
    let many: Vec<Filing> = (100..200).map(|id| filing(&id.to_string(), "muitos")).collect();
    let store = database.open_store()?;
    for (seconds, sha256) in [(3, [3; 32]), (4, [4; 32])] {
        let fetch = NewFetch::without_response("test:year".into(), friday() + Span::seconds(seconds), sha256);
        let mut load = store.begin_load(Dataset::Filings, DataOrigin::Real, &fetch).await?;
        let rows: Vec<Filing> = [filing("1", "um"), filing("3", "três"), filing("4", "quatro")]
            .into_iter()
            .chain(many.iter().cloned())
            .collect();
        load.append_full_filings(&rows, CvmDataset::Ipe, 2026).await?;
        load.commit().await?;
    }

    wait_until("the vanished one is served no more", Duration::from_secs(10), || async {
        replica.get_with_key("/api/v1/filings/2", &key).await.is_ok_and(|response| response.status() == 404)
    })
    .await;

    let (total, _) = get_filings(&replica, &key).await?;
    assert_eq!(total, 103);

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_starts_from_its_disk_copy_and_catches_up() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let directory = TempDirectory::create()?;

    load_filings(&database, 1, &[filing("1", "um"), filing("2", "dois")]).await?;
    let (replica, key) = start_with_data_dir(&database, &directory).await?;
    wait_until_served(&replica, &key, &["dois", "um"]).await;
    wait_until_saved(&directory).await;
    drop(replica);

    change_subject_unnoticed(&database, "only who reads all of it sees this").await?;
    load_filings(&database, 2, &[filing("3", "três")]).await?;

    let (replica, key) = start_with_data_dir(&database, &directory).await?;
    wait_until_served(&replica, &key, &["três", "dois", "um"]).await;

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_disk_copy_is_ignored() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let directory = TempDirectory::create()?;

    load_filings(&database, 1, &[filing("1", "um")]).await?;
    let (replica, _) = start_with_data_dir(&database, &directory).await?;
    wait_until_saved(&directory).await;
    drop(replica);

    change_subject_unnoticed(&database, "outro").await?;
    for file in snapshot_files(&directory) {
        let mut content = std::fs::read(&file)?;
        let middle = content.len() / 2;
        content[middle] ^= 1;
        std::fs::write(&file, content)?;
    }

    let (replica, key) = start_with_data_dir(&database, &directory).await?;
    wait_until_served(&replica, &key, &["outro"]).await;

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_copy_of_another_database_is_ignored() -> TestResult {
    let directory = TempDirectory::create()?;
    for subject in ["daqui", "dali"] {
        let database = TestDatabase::create_empty().await?;
        load_filings(&database, 1, &[filing("1", subject)]).await?;
        let (replica, key) = start_with_data_dir(&database, &directory).await?;
        wait_until_served(&replica, &key, &[subject]).await;
        wait_until_saved(&directory).await;
        drop(replica);
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_generation_is_found_by_polling_without_notifications() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    load_filings(&database, 1, &[filing("1", "um")]).await?;
    let replica = TestReplica::start(&database, friday() + Span::days(1)).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;

    // Rows and generation as a load leaves them, without its notification.
    let mut connection = database.connect().await?;
    for statement in [
        "insert into filing_version (id, known_at, filing_set, cvm_code, company_name, category, doc_type, kind, subject,
                                     delivered_on, version, protocol, url, fetch_id, generation)
         select '2', known_at, filing_set, cvm_code, company_name, category, doc_type, kind, 'dois', delivered_on,
                version, protocol, url, fetch_id, 2
         from filing_version",
        "update dataset set generation = 2",
    ] {
        sqlx::query(statement).execute(&mut connection).await?;
    }

    wait_until_served(&replica, &key, &["dois", "um"]).await;

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_origin_of_a_load_that_commits_late_is_known() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let (selic, cdi) = (find_series("selic").expect("ours"), find_series("cdi").expect("ours"));
    let load = async |series: &'static Series| -> anyhow::Result<LoadTransaction> {
        let fetch = NewFetch::without_response(format!("test:{}", series.id), friday(), [7; 32]);
        let mut load = store.begin_load(Dataset::Series(series), DataOrigin::Real, &fetch).await?;
        load.append_observations(series, &[Observation::new("2026-11-12".parse()?, 14.into())]).await?;
        Ok(load)
    };

    // The first one has the lower id, and commits when the other one is served already.
    let live = LiveSnapshot::default();
    let late = load(selic).await?;
    load(cdi).await?.commit().await?;
    live.refresh(&store).await?;
    late.commit().await?;
    live.refresh(&store).await?;

    let snapshot = live.get().expect("a snapshot");
    let origin = |series| snapshot.find_fetch(snapshot.series(series)?.provenance(0)).map(|fetch| &*fetch.source_url);
    assert_eq!((origin(selic), origin(cdi)), (Some("test:selic"), Some("test:cdi")));
    Ok(())
}

/// Two documents under one number take a step of their own, after which the rest of the load must be as fast as ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_number_of_two_documents_does_not_slow_a_load_down() -> TestResult {
    const ROWS: u32 = 15_000;
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let mut seconds = Vec::new();
    for (year, shared) in [(2024, 0), (2025, 1), (2026, 1)] {
        let mut rows: Vec<Filing> =
            (0..ROWS + shared).map(|row| filing(&(year * 100_000 + row).to_string(), "um")).collect();
        for row in &mut rows {
            row.delivered_on = NaiveDate::from_ymd_opt(year.cast_signed(), 6, 1).expect("a day");
        }
        if shared > 0 {
            let number = rows[0].id.clone();
            rows[1] = Filing { id: number, kind: "outro".to_owned(), ..rows[1].clone() };
        }

        let started = Instant::now();
        let fetch = NewFetch::without_response("test:year".into(), friday(), [year as u8; 32]);
        let mut load = store.begin_load(Dataset::Filings, DataOrigin::Real, &fetch).await?;
        load.append_full_filings(&rows, CvmDataset::Ipe, year.cast_signed()).await?;
        load.commit().await?;
        seconds.push(started.elapsed().as_secs_f64());
    }
    println!("seconds: {seconds:.2?}");
    assert!(seconds[1].min(seconds[2]) < 4.0 * seconds[0], "{seconds:.2?}");
    Ok(())
}
