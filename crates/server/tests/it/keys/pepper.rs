//! A wrong pepper is noticed before it does harm: with it, no key would be recognized.

use std::time::Duration;

use vintem_domain::Plan;
use vintem_testkit::{TestDatabase, TestReplica, redis_url, run_vintem, wait_until};

use crate::{TestResult, friday, vintem_binary};

const OTHER_PEPPER: &str = "another pepper, long enough to be taken too";
const MESSAGE: &str = "VINTEM_KEY_PEPPER is not the pepper that the keys in the database were created with.";

async fn stored_verifiers(database: &TestDatabase) -> anyhow::Result<i64> {
    let mut connection = database.connect().await?;
    Ok(sqlx::query_scalar("select count(*) from pepper_verifier").fetch_one(&mut connection).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn with_another_pepper_nothing_starts_and_no_key_is_created() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let redis = redis_url();
    let serve = ["serve", "--key-pepper", OTHER_PEPPER, "--redis-url", &redis, "--listen", "127.0.0.1:0"];
    let serve = [&serve[..], &["--admin-listen", "127.0.0.1:0"]].concat();
    let create = ["keys", "create", "--plan", "gold", "--name", "Ana", "--email", "ana@example.com"];
    let create_with_other = [&create[..], &["--key-pepper", OTHER_PEPPER]].concat();
    let doctor = ["doctor", "--key-pepper", OTHER_PEPPER, "--redis-url", &redis];

    let (_, report, _) = run_vintem(vintem_binary(), &database.url(), &doctor).await?;
    assert!(report.contains("ok    keys: no key has been used with this pepper yet"), "{report}");

    let (status, _, error) = run_vintem(vintem_binary(), &database.url(), &create).await?;
    assert!(status.success(), "{error}");
    assert_eq!(stored_verifiers(&database).await?, 1);

    for command in [&serve, &create_with_other] {
        let (status, _, error) = run_vintem(vintem_binary(), &database.url(), command).await?;
        assert!(!status.success() && error.contains(MESSAGE), "{command:?}: {error}");
        assert!(!error.contains(OTHER_PEPPER), "the pepper is not repeated");
    }
    let (status, report, _) = run_vintem(vintem_binary(), &database.url(), &doctor).await?;
    assert!(!status.success() && report.contains(&format!("FAIL  keys: {MESSAGE}")), "{report}");
    Ok(())
}

/// A database of an earlier version has keys but no verifier.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_key_that_is_recognized_confirms_the_pepper() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let key = replica.create_key(Plan::Gold).await?.1;
    sqlx::query("delete from pepper_verifier").execute(&mut database.connect().await?).await?;
    drop(replica);

    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    replica.get("/health").await?;
    assert_eq!(stored_verifiers(&database).await?, 0, "nobody has shown a key yet");
    assert_eq!(replica.get_with_key("/api/v1/market/selic/current", &key).await?.status(), 200);
    wait_until("the pepper is confirmed", Duration::from_secs(3), || async {
        stored_verifiers(&database).await.is_ok_and(|count| count == 1)
    })
    .await;
    Ok(())
}
