//! However many replicas count, one of them stores what waits in a Redis server.

use std::time::{Duration, Instant};

use vintem_domain::Plan;
use vintem_testkit::{TestDatabase, TestReplica, TestReplicaOptions, random_redis_prefix, wait_until};

use crate::{TestResult, friday};

const TRAFFIC: Duration = Duration::from_secs(6);

#[tokio::test]
async fn the_ledger_grows_by_a_row_a_second_with_one_replica_and_with_four() -> TestResult {
    for replica_count in [1, 4] {
        let database = TestDatabase::create_demo(friday()).await?;
        let prefix = random_redis_prefix();
        let mut replicas = Vec::new();
        for _ in 0..replica_count {
            let options = TestReplicaOptions { redis_prefix: Some(&prefix), flags: &[] };
            replicas.push(TestReplica::start_with_options(&database, friday(), options).await?);
        }
        let (id, key) = replicas[0].create_key(Plan::Platinum).await?;

        let started = Instant::now();
        let mut sent = 0u64;
        while started.elapsed() < TRAFFIC {
            for replica in &replicas {
                replica.get_with_key("/api/v1/market/selic/current", &key).await?;
                sent += 1;
            }
        }
        let store = database.open_store()?;
        wait_until("everything is stored", Duration::from_secs(20), || async {
            let today = chrono::Utc::now().date_naive();
            let stored = store.key_usage(id, today - chrono::Days::new(1), today, &[]).await;
            stored.is_ok_and(|stored| stored.rows.iter().map(|row| row.counts.requests).sum::<u64>() == sent)
        })
        .await;

        let seconds = started.elapsed().as_secs() + 1;
        let mut connection = database.connect().await?;
        let rows: i64 = sqlx::query_scalar("select count(*) from usage_chunk").fetch_one(&mut connection).await?;
        println!("replicas: {replica_count}, seconds: {seconds}, ledger_rows: {rows}");
        assert!(rows.cast_unsigned() <= seconds + 1, "{rows} rows in {seconds} seconds with {replica_count} replicas");
    }
    Ok(())
}
