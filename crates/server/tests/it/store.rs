//! The store on a real PostgreSQL: rows are appended and never overwritten, and usage is never counted twice.

use std::collections::HashSet;

use anyhow::Context;
use chrono::{Duration, NaiveDate};
use vintem_domain::usage::{RouteGroup, UsageChunkId, UsageCounts, UsageRow};
use vintem_domain::{Cnpj, Company, DataOrigin, Dataset, Plan, series};
use vintem_store::Store;
use vintem_store::keys::{KeyChanges, KeyHistoryPosition, NewKey, NewSecret, PepperMark};
use vintem_store::load::{ListedSecurity, NewFetch, Observation};
use vintem_store::usage::{ChunkRecord, UsageGapReason};
use vintem_testkit::{TestDatabase, wait_until};

use crate::{TestResult, friday};

fn fetch_after_hours(hours: i64) -> NewFetch {
    NewFetch::without_response("test:".into(), friday() + Duration::hours(hours), [7; 32])
}

fn observation(day: &str, value: &str) -> Observation {
    Observation::new(day.parse().expect("a day"), value.parse().expect("a decimal"))
}

async fn load_selic(store: &Store, hours: i64, rows: &[Observation]) -> anyhow::Result<u64> {
    let selic = series::find_series("selic").expect("in the table");
    let mut load = store.begin_load(Dataset::Series(selic), DataOrigin::Real, &fetch_after_hours(hours)).await?;
    load.append_observations(selic, rows).await?;
    Ok(load.commit().await?)
}

#[tokio::test]
async fn only_what_changed_is_appended_and_raises_the_generation() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let selic = series::find_series("selic").expect("in the table");
    let rows = [observation("2026-11-12", "15.00"), observation("2026-11-13", "15.00")];
    let generation = || async {
        anyhow::Ok(store.dataset_states().await?.get(&Dataset::Series(selic)).map(|state| state.generation))
    };

    assert_eq!(load_selic(&store, 0, &rows).await?, 2);
    assert_eq!(generation().await?, Some(1));

    for hours in 1..4 {
        assert_eq!(load_selic(&store, hours, &rows).await?, 0, "the same again brings nothing");
    }

    assert_eq!(generation().await?, Some(1));

    // A revised value, and a value with another number of decimal places: both count as changes.
    let revised = [observation("2026-11-12", "14.75"), observation("2026-11-13", "15.0")];
    assert_eq!(load_selic(&store, 5, &revised).await?, 2);
    assert_eq!(generation().await?, Some(2));

    let current = store.open_reader().await?.observations(selic).await?;
    let current: Vec<Observation> = current.into_iter().map(|(row, _)| row).collect();
    assert_eq!(current, revised);
    assert_eq!(current[1].value.to_string(), "15.0");

    Ok(())
}

#[tokio::test]
async fn an_uncommitted_load_leaves_nothing() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let selic = series::find_series("selic").expect("in the table");

    let mut load = store.begin_load(Dataset::Series(selic), DataOrigin::Real, &fetch_after_hours(0)).await?;
    load.append_observations(selic, &[observation("2026-11-13", "15.00")]).await?;
    drop(load);

    assert!(store.dataset_states().await?.is_empty());
    assert!(store.open_reader().await?.observations(selic).await?.is_empty());

    Ok(())
}

#[tokio::test]
async fn a_renamed_company_keeps_its_former_names() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let company_named = |name: &str| Company {
        id: 123,
        name: name.into(),
        cnpj: Cnpj::parse("33.000.167/0001-01"),
        markets: vec!["BOLSA".into(), "with \"quotes\" and \\".into()],
        is_registered: true,
        ..Company::default()
    };

    for (hours, name) in ["Um S.A.", "Dois S.A.", "Três S.A.", "Dois S.A."].into_iter().enumerate() {
        let mut load = store.begin_load(Dataset::Companies, DataOrigin::Real, &fetch_after_hours(hours as i64)).await?;
        load.append_companies(&[company_named(name)]).await?;
        assert_eq!(load.commit().await?, 1);
    }

    let companies = store.open_reader().await?.companies().await?;
    let expected = Company { former_names: vec!["Três S.A.".into(), "Um S.A.".into()], ..company_named("Dois S.A.") };
    assert_eq!(companies.len(), 1);
    assert_eq!(companies[0].0, expected);

    Ok(())
}

#[tokio::test]
async fn tickers_are_those_of_the_newest_form_that_are_still_traded() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let cnpj = Cnpj::parse("33.000.167/0001-01").expect("a CNPJ");
    let company =
        Company { id: 123, name: "Um S.A.".into(), cnpj: Some(cnpj), is_registered: true, ..Company::default() };
    let security = |document_id: u64, ticker: &str, year: i32, has_ended: bool| ListedSecurity {
        document_id,
        cnpj,
        ticker: ticker.into(),
        reference_date: NaiveDate::from_ymd_opt(year, 1, 1).expect("a day"),
        version: 1,
        market: "Bolsa".into(),
        segment: String::new(),
        traded_from: None,
        traded_until: has_ended.then(|| friday().date_naive()),
    };

    // The older form is loaded last, because years may arrive in any order.
    let forms = [
        vec![security(2, "UMSA4", 2026, false), security(2, "UMSA3", 2026, true)],
        vec![security(1, "UMSA11", 2020, false)],
    ];

    for (hours, form) in forms.iter().enumerate() {
        let mut load = store.begin_load(Dataset::Companies, DataOrigin::Real, &fetch_after_hours(hours as i64)).await?;
        load.append_companies(std::slice::from_ref(&company)).await?;
        load.append_securities(form).await?;
        load.commit().await?;
    }

    assert_eq!(store.open_reader().await?.companies().await?[0].0.tickers, ["UMSA4"]);

    Ok(())
}

#[tokio::test]
async fn a_chunk_of_usage_is_stored_once() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let key = NewKey {
        secret: NewSecret { hmac: [1; 32], pepper: &test_pepper(), display_prefix: "vtm_aaaaaaaa" },
        plan: Plan::Free,
        name: "Ana",
        email: "a@example.com",
    };
    let key = store.create_key(&key).await?;

    let day: NaiveDate = "2026-11-13".parse()?;
    let counts = UsageCounts { requests: 5, successful: 3, client_errors: 1, server_errors: 0, rate_limited: 1 };
    let row = |key_id, group| UsageRow { key_id, day, group, counts };
    let rows = [row(key.id, RouteGroup::Market), row(key.id, RouteGroup::Plans), row(key.id + 1, RouteGroup::Market)];

    // Eight processes with the same chunk at once, as after one of them crashed. Its day has no partition yet. Like those
    // who drain, they repeat what failed; an attempt without an answer may have stored the chunk.
    let chunk_id = |number: u32| UsageChunkId::new(format!("1400000000000000-run-process/2:{number}"));
    let processes = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut failures = 0;
            loop {
                match store.record_usage_chunk(&chunk_id(0), &rows).await {
                    Ok(record) => return Ok((record, failures)),
                    Err(error) if failures == 10 => return Err(error),
                    Err(error) => println!("repeated: {error}"),
                }
                failures += 1;
            }
        })
    });
    let mut records = Vec::new();
    for process in processes.collect::<Vec<_>>() {
        records.push(process.await??);
    }
    let stored = records.iter().filter(|(record, _)| *record == ChunkRecord::Stored).count();
    let has_failures = records.iter().any(|(_, failures)| *failures > 0);
    assert!(stored == 1 || stored == 0 && has_failures, "{records:?}");
    assert!(records.iter().all(|(record, _)| *record != ChunkRecord::Conflict), "{records:?}");

    // A batch of an earlier version has a ledger of its own.
    let former_id = UsageChunkId::new("1400000000000000-process".into());
    for expected in [ChunkRecord::Stored, ChunkRecord::WasStored] {
        assert_eq!(store.record_usage_chunk(&former_id, &rows).await?, expected);
    }

    // The same id with other counts is not stored, and reported.
    assert_eq!(store.record_usage_chunk(&chunk_id(0), &rows[..2]).await?, ChunkRecord::Conflict);

    let stored = store.key_usage(key.id, day, day, &[chunk_id(0), chunk_id(1), former_id.clone()]).await?;
    let mut doubled = counts;
    doubled.add(&counts);
    let mut rows = stored.rows;
    rows.sort_by_key(|row| row.group);

    let expected =
        [RouteGroup::Market, RouteGroup::Plans].map(|group| UsageRow { counts: doubled, ..row(key.id, group) });
    assert_eq!(rows, expected);
    assert_eq!(stored.stored_chunks, HashSet::from([chunk_id(0), former_id]));
    assert!(!stored.has_gaps);

    store.record_usage_gap(day, day, UsageGapReason::ChunkConflict).await?;
    assert!(store.key_usage(key.id, day, day, &[]).await?.has_gaps);
    assert!(
        !store
            .key_usage(key.id, day.pred_opt().context("a day")?, day.pred_opt().context("a day")?, &[])
            .await?
            .has_gaps
    );

    let keys = store.list_keys(i64::MAX, 10).await?;
    assert_eq!(keys[0].last_used_on, Some(day));

    Ok(())
}

#[tokio::test]
async fn key_changes_are_returned_in_order() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;

    let mut ids = Vec::new();
    for number in 0..5u8 {
        let key = NewKey {
            secret: NewSecret { hmac: [number; 32], pepper: &test_pepper(), display_prefix: "vtm_aaaaaaaa" },
            plan: Plan::Free,
            name: "Ana",
            email: "a@example.com",
        };
        ids.push(store.create_key(&key).await?.id);
    }

    assert!(store.revoke_key(ids[1]).await?);
    assert!(store.set_key_plan(ids[0], Plan::Gold).await?);

    let start = KeyHistoryPosition::default();
    let KeyChanges::Next { rows: changed, .. } = store.key_changes(&start, 100).await? else {
        panic!("the first read")
    };
    assert_eq!(changed.iter().map(|key| key.id).collect::<Vec<_>>(), [ids[2], ids[3], ids[4], ids[1], ids[0]]);
    assert!(changed[3].is_revoked && changed[4].plan == Plan::Gold);
    let KeyChanges::Next { rows: first_page, position } = store.key_changes(&start, 4).await? else { panic!("again") };
    let KeyChanges::Next { rows: rest, position } = store.key_changes(&position, 100).await? else { panic!("further") };
    assert_eq!([first_page, rest].concat(), changed);
    let KeyChanges::Next { rows, position: same } = store.key_changes(&position, 100).await? else { panic!("no more") };
    assert_eq!((rows, same), (Vec::new(), position));
    assert_eq!(store.find_key_by_hmac(&[2; 32]).await?.map(|key| key.id), Some(ids[2]));
    assert_eq!(store.find_key_by_hmac(&[9; 32]).await?, None);

    Ok(())
}

fn test_pepper() -> PepperMark {
    PepperMark { id: "test".to_owned(), verifier: [0; 32] }
}

#[tokio::test]
async fn a_migration_that_cannot_get_its_locks_gives_way_and_is_repeated() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let mut connection = database.connect().await?;
    sqlx::raw_sql(
        "alter table event drop column dataset, drop column generation;
         delete from _sqlx_migrations where version = 14",
    )
    .execute(&mut connection)
    .await?;
    let count_waiting = "select count(*) from pg_locks where relation = 'event'::regclass and not granted";

    let reader = database.lock_table("event").await?;
    let store = database.open_store()?;
    let watch_it_wait = async {
        for expected in [1, 0, 1] {
            let limit = std::time::Duration::from_secs(20);
            wait_until("the migration to wait, to give way and to wait again", limit, || async {
                let Ok(mut observer) = database.connect().await else { return false };
                let waiting: i64 = sqlx::query_scalar(count_waiting).fetch_one(&mut observer).await.unwrap_or(-1);
                waiting == expected
            })
            .await;
        }
        drop(reader);
    };
    let (change, ()) = tokio::join!(store.migrate(), watch_it_wait);
    let change = change?;
    assert_eq!(change.before, change.after);
    let columns: i64 = sqlx::query_scalar(
        "select count(*) from information_schema.columns
         where table_name = 'event' and column_name in ('dataset', 'generation')",
    )
    .fetch_one(&mut connection)
    .await?;
    assert_eq!(columns, 2);
    Ok(())
}
