//! Erasure: no personal data is left in the database or the logs, and usage stays under the key's number.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vintem_domain::{KeyActor, KeyChange, Plan};
use vintem_testkit::{DedicatedRedis, QuietClock, ServerProcess, TestDatabase, TestReplica, run_vintem, wait_until};

use super::SELIC_PATH;
use crate::{TestResult, friday, vintem_binary};

#[tokio::test(flavor = "multi_thread")]
async fn erasing_a_person_removes_every_trace_and_ends_their_keys_within_a_second() -> TestResult {
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(friday()).await?;
    let mut process = ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &["--log", "trace"])?;
    let http = vintem_testkit::http_client_builder().build()?;
    let url = |path: &str| format!("http://{}{path}", process.address);

    // One person with two spellings of the same address, and another person.
    let mut keys = Vec::new();
    for (name, email) in [
        ("Anastásia Quixadá", "anastasia.quixada@example.com"),
        ("Anastásia Quixadá", "Anastasia.Quixada@EXAMPLE.com"),
        ("Beatriz Xavantina", "beatriz.xavantina@example.com"),
    ] {
        let request = http.post(url("/api/v1/plans/register")).json(&json!({"name": name, "email": email}));
        let registered: Value = request.send().await?.json().await?;
        keys.push(registered["api_key"].as_str().expect("a key").to_owned());
    }

    let label = http
        .patch(url(super::OWN_KEY_PATH))
        .header("X-API-Key", &keys[0])
        .json(&json!({"label": "chave da Anastásia"}));
    assert_eq!(label.send().await?.status(), 200);
    let rotated: Value = http.post(url(super::ROTATE_PATH)).header("X-API-Key", &keys[0]).send().await?.json().await?;
    keys.push(rotated["api_key"].as_str().expect("a key").to_owned());
    for key in &keys {
        assert_eq!(http.get(url(SELIC_PATH)).header("X-API-Key", key).send().await?.status(), 200);
    }

    let store = database.open_store()?;
    let listed = store.list_keys(i64::MAX, 10).await?;
    let [other, second, first] = listed.as_slice() else { panic!("three keys, not {}", listed.len()) };
    let today = chrono::Utc::now().date_naive();
    let stored_requests = async || {
        let stored = store.key_usage(first.id, today.pred_opt().expect("a day"), today, &[]).await?;
        anyhow::Ok(stored.rows.iter().map(|row| row.counts.requests).sum::<u64>())
    };
    // A label, a rotation, and a request with each of the two secrets.
    wait_until("the usage is stored", Duration::from_secs(10), || async {
        stored_requests().await.is_ok_and(|requests| requests == 4)
    })
    .await;

    let words = ["anast", "quixad", "ANAST"];
    let dump_database = || -> anyhow::Result<String> {
        let output = std::process::Command::new("pg_dump").arg(database.url()).output()?;
        anyhow::ensure!(output.status.success(), "pg_dump");
        Ok(String::from_utf8(output.stdout)?)
    };
    let count_hits =
        |text: &str| words.iter().map(|word| text.to_lowercase().matches(&word.to_lowercase()).count()).sum::<usize>();
    assert!(count_hits(&dump_database()?) > 4, "the person is there to be forgotten");

    let erasure_start = Instant::now();
    let (status, printed, error) =
        run_vintem(vintem_binary(), &database.url(), &["keys", "erase", "--email", "ANASTASIA.quixada@example.com"])
            .await?;
    assert!(status.success() && printed == "Keys erased: 2\n", "{printed}{error}");

    let clock = QuietClock::start();
    let mut late_requests = 0;
    for (key, is_first) in [(&keys[0], true), (&keys[1], false), (&keys[3], true)] {
        while http.get(url(SELIC_PATH)).header("X-API-Key", key).send().await?.status() != 401 {
            late_requests += u64::from(is_first);
            assert!(clock.elapsed() < Duration::from_secs(1), "still good");
        }
    }
    println!("refused_after_seconds: {:.2}", erasure_start.elapsed().as_secs_f64());
    assert_eq!(http.get(url(SELIC_PATH)).header("X-API-Key", &keys[2]).send().await?.status(), 200, "nobody else's");

    let dump = dump_database()?;
    println!("hits_in_dump: {}", count_hits(&dump));
    assert_eq!(count_hits(&dump), 0);
    assert!(dump.contains("beatriz.xavantina@example.com"));
    wait_until("usage stays under the key's number", Duration::from_secs(10), || async {
        stored_requests().await.is_ok_and(|requests| requests == 4 + late_requests)
    })
    .await;

    for key in [first, second] {
        let changes: Vec<_> =
            store.key_history(key.id).await?.iter().map(|change| (change.kind, change.actor)).collect();
        let last = changes[changes.len() - 1];
        let second_last = changes[changes.len() - 2];
        assert_eq!(last, (KeyChange::Erased, KeyActor::Operator));
        assert_eq!(second_last, (KeyChange::Revoked, KeyActor::Operator));
    }
    assert_eq!(store.key_history(other.id).await?.len(), 1);

    process.terminate()?;
    assert!(process.wait_timeout(Duration::from_secs(10))?.is_some());
    let log = process.log();
    assert!(log.contains("\"message\":\"request\""), "requests are logged");
    println!("hits_in_log: {}", count_hits(&log));
    assert_eq!(count_hits(&log), 0);
    Ok(())
}

#[tokio::test]
async fn erasing_twice_or_an_unknown_email_changes_nothing() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let store = replica.open_store()?;
    let (id, _) = replica.create_key(Plan::Gold).await?;
    assert!(store.revoke_key(id).await?);

    let erase = async |email: &str| {
        let command = ["keys", "erase", "--email", email, "--json"];
        let (status, printed, error) = run_vintem(vintem_binary(), &database.url(), &command).await?;
        anyhow::ensure!(status.success(), "{error}");
        Ok(serde_json::from_str::<Value>(&printed)?)
    };

    assert_eq!(erase("nobody@example.com").await?, json!({"erased": 0, "ids": []}));
    assert_eq!(erase("Teste@Example.com").await?, json!({"erased": 1, "ids": [id]}));
    assert_eq!(erase("teste@example.com").await?, json!({"erased": 0, "ids": []}));
    assert!(erase("").await.is_err(), "erased keys have no address, and are not found by that");

    let changes: Vec<_> = store.key_history(id).await?.iter().map(|change| change.kind).collect();
    assert_eq!(changes, [KeyChange::Created, KeyChange::Revoked, KeyChange::Erased], "revoked once");
    let key = store.key_details(id).await?.expect("the key is still there");
    assert_eq!((key.name.as_str(), key.email.as_str(), key.plan), ("", "", Plan::Gold));
    Ok(())
}
