//! The statements of the read model: they follow the archive by what it adds, survive restarts without PostgreSQL, and
//! are read again if the database went back in time.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::Duration as Span;
use sha2::{Digest, Sha256};
use vintem_domain::{CompanyId, DataOrigin, Dataset, StatementSet};
use vintem_snapshot::LiveSnapshot;
use vintem_store::load::{NewFetch, RawBody, StatementDocument};
use vintem_store::{Store, Timeouts};
use vintem_testkit::{TempDirectory, TestDatabase};

use crate::{TestResult, friday};

/// A document whose body has this text.
fn document(company_id: CompanyId, version: u16, text: &str) -> anyhow::Result<StatementDocument> {
    Ok(StatementDocument {
        set: StatementSet::Dfp,
        company_id,
        reference_date: "2025-12-31".parse()?,
        version,
        tables: vec!["DRE_con".to_owned()],
        row_count: 1,
        body: RawBody {
            sha256: Sha256::digest(text).into(),
            size: text.len(),
            compressed: zstd::bulk::compress(text.as_bytes(), 3)?,
        },
    })
}

async fn load(database: &TestDatabase, seconds: i64, documents: &[StatementDocument]) -> anyhow::Result<u64> {
    let fetch = NewFetch::without_response(format!("test:{seconds}"), friday() + Span::seconds(seconds), [7; 32]);
    let mut load = database.open_store()?.begin_load(Dataset::Statements, DataOrigin::Real, &fetch).await?;
    load.append_statements(documents).await?;
    Ok(load.commit().await?)
}

/// The bodies of each company, in the order of the index.
fn served_bodies(live: &LiveSnapshot) -> anyhow::Result<BTreeMap<CompanyId, Vec<String>>> {
    let snapshot = live.get().expect("a snapshot");
    let statements = snapshot.statements().expect("statements");
    let mut bodies = BTreeMap::new();
    for company_id in [5410, 9512] {
        let forms = statements.of_company(company_id).iter();
        let read = forms.map(|form| statements.read_body(form)).collect::<Result<Vec<_>, _>>()?;
        bodies.insert(company_id, read);
    }
    Ok(bodies)
}

fn expected(weg: &[&str], petrobras: &[&str]) -> BTreeMap<CompanyId, Vec<String>> {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    BTreeMap::from([(5410, texts(weg)), (9512, texts(petrobras))])
}

fn body_files(directory: &TempDirectory) -> Vec<String> {
    let entries = std::fs::read_dir(directory.path().join("snapshot")).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with("statement-bodies-")).collect()
}

fn open_live_snapshot(directory: &TempDirectory) -> LiveSnapshot {
    LiveSnapshot::with_disk_cache(directory.path().join("snapshot"))
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_follow_the_archive_and_start_without_postgresql() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let directory = TempDirectory::create()?;
    let store = database.open_store()?;
    let live = open_live_snapshot(&directory);
    load(&database, 1, &[document(5410, 1, "weg 1")?, document(9512, 1, "petrobras 1")?]).await?;
    live.refresh(&store).await?;
    assert_eq!(served_bodies(&live)?, expected(&["weg 1"], &["petrobras 1"]));
    assert!(live.save_disk_cache().await?);

    // Who reads everything again would fail on this.
    let mut connection = database.connect().await?;
    sqlx::query("update raw_body set compressed = 'nothing'").execute(&mut connection).await?;
    load(&database, 2, &[document(5410, 2, "weg 2")?, document(9512, 1, "petrobras 1")?]).await?;
    load(&database, 3, &[document(9512, 1, "petrobras 1 again")?]).await?;
    let both = expected(&["weg 1", "weg 2"], &["petrobras 1", "petrobras 1 again"]);
    live.refresh(&store).await?;
    assert_eq!(served_bodies(&live)?, both);
    assert!(live.save_disk_cache().await?);
    assert!(!live.save_disk_cache().await?);
    assert_eq!(body_files(&directory).len(), 1);
    drop(live);

    let nowhere = Store::open("postgres://127.0.0.1:1/nothing", 1, Timeouts::for_workers())?;
    let live = open_live_snapshot(&directory);
    assert!(live.refresh(&nowhere).await.is_err());
    assert_eq!(served_bodies(&live)?, both);

    // Started from its copy, it follows the archive from there.
    load(&database, 4, &[document(5410, 3, "weg 3")?]).await?;
    live.refresh(&store).await?;
    assert_eq!(served_bodies(&live)?[&5410], ["weg 1", "weg 2", "weg 3"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_read_again_when_the_database_went_back() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let directory = TempDirectory::create()?;
    let store = database.open_store()?;
    let live = open_live_snapshot(&directory);
    load(&database, 1, &[document(5410, 1, "weg 1")?]).await?;
    load(&database, 2, &[document(5410, 2, "never happened")?]).await?;
    live.refresh(&store).await?;
    live.save_disk_cache().await?;
    let first_files = body_files(&directory);

    let mut connection = database.connect().await?;
    for statement in [
        "delete from statement_document where version = 2",
        "update dataset set lineage = gen_random_uuid() where id = 'statements'",
    ] {
        sqlx::query(statement).execute(&mut connection).await?;
    }
    load(&database, 3, &[document(9512, 1, "petrobras 1")?]).await?;
    live.refresh(&store).await?;
    assert_eq!(served_bodies(&live)?, expected(&["weg 1"], &["petrobras 1"]));

    // The former file goes when its copy has been replaced.
    live.save_disk_cache().await?;
    let files = body_files(&directory);
    assert!(files.len() == 1 && files != first_files, "{first_files:?}, then {files:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_cannot_be_written_keeps_nothing_else_from_being_served() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let directory = TempDirectory::create()?;
    // A file where the directory should be.
    std::fs::write(directory.path().join("snapshot"), "")?;
    let store = database.open_store()?;
    load(&database, 1, &[document(5410, 1, "weg 1")?]).await?;

    // Each attempt reads all statements, so there is not one at every poll.
    let live = open_live_snapshot(&directory);
    assert!(live.refresh(&store).await?);
    assert!(live.get().expect("a snapshot").statements().is_none());
    assert!(!live.refresh(&store).await?);
    assert!(live.lacks_statements());

    let live = open_live_snapshot(&directory).retrying_statements_after(Duration::ZERO);
    live.refresh(&store).await?;
    std::fs::remove_file(directory.path().join("snapshot"))?;
    live.refresh(&store).await?;
    assert_eq!(served_bodies(&live)?, expected(&["weg 1"], &[]));
    assert!(!live.lacks_statements());
    Ok(())
}
