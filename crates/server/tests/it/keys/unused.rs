//! Free keys that nobody uses expire, and personal data goes with them.

use chrono::{Days, Utc};
use vintem_domain::key::UNUSED_KEY_DAYS;
use vintem_domain::{KeyActor, KeyChange, Plan};
use vintem_testkit::{TestDatabase, TestReplica, wait_until};

use super::SELIC_PATH;
use crate::{TestResult, friday};

#[tokio::test(flavor = "multi_thread")]
async fn a_free_key_expires_ninety_days_after_its_last_use() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let store = replica.replica.store();
    let (unused, unused_key) = replica.create_key(Plan::Free).await?;
    let (used, _) = replica.create_key(Plan::Free).await?;
    let (paid, _) = replica.create_key(Plan::Gold).await?;
    let (downgraded, _) = replica.create_key(Plan::Gold).await?;

    // As if they had been created long ago, and one used since.
    let now = Utc::now();
    let days_ago = |days: u32| now.date_naive() - Days::new(days.into());
    let set = "update api_key set unused_since = $2, last_used_on = $3 where id = $1";
    let mut connection = database.connect().await?;
    for (id, last_used_on) in [
        (unused, Some(days_ago(UNUSED_KEY_DAYS))),
        (used, Some(days_ago(UNUSED_KEY_DAYS - 1))),
        (paid, None),
        (downgraded, None),
    ] {
        sqlx::query(set).bind(id).bind(days_ago(400)).bind(last_used_on).execute(&mut connection).await?;
    }
    store.set_key_plan(downgraded, Plan::Free).await?;

    assert_eq!(store.expire_unused_keys(now).await?, [unused]);
    assert_eq!(store.expire_unused_keys(now).await?, [0; 0]);

    let details = store.key_details(unused).await?.expect("the key");
    assert_eq!((details.name.as_str(), details.email.as_str(), details.label.as_str()), ("", "", ""));
    assert!(details.expires_at.is_some_and(|at| (at - now).num_milliseconds() == 0));
    let history = store.key_history(unused).await?;
    let changes: Vec<_> = history.iter().map(|change| (change.kind, change.actor)).collect();
    assert_eq!(
        changes,
        [
            (KeyChange::Created, KeyActor::Operator),
            (KeyChange::ExpiryChanged, KeyActor::Service),
            (KeyChange::Erased, KeyActor::Service),
        ]
    );
    assert_eq!(history[1].new_value, Some(now.format("%Y-%m-%dT%H:%M:%SZ").to_string()));

    replica.clock.set(now);
    wait_until("the key is refused", std::time::Duration::from_secs(10), || async {
        replica.get_with_key(SELIC_PATH, &unused_key).await.is_ok_and(|response| response.status() == 401)
    })
    .await;
    Ok(())
}
