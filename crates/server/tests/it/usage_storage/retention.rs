//! Old usage disappears by whole months. `just retention` runs this with a million keys.

use std::time::Instant;

use chrono::{Months, NaiveDate};
use vintem_testkit::{TestDatabase, parse_env_var};

use super::insert_keys;
use crate::TestResult;

const KEPT_MONTHS: u32 = 25;
const EXPIRED_MONTHS: u32 = 2;

#[tokio::test]
async fn expired_months_are_dropped_and_all_others_stay() -> TestResult {
    let key_count: u32 = parse_env_var("VINTEM_RETENTION_KEYS").unwrap_or(1_000);
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let mut connection = database.connect().await?;
    insert_keys(&mut connection, key_count).await?;

    // Each month as if it were the current one: the service adds its partition, and every key has a row in it.
    let first_month: NaiveDate = "2027-06-01".parse()?;
    for number in 0..KEPT_MONTHS + EXPIRED_MONTHS {
        let month = first_month + Months::new(number);
        store.maintain_partitions(month).await?;
        sqlx::query(
            "insert into usage_day (key_id, day, route_group, requests) select id, $1, 'market', 1 from api_key",
        )
        .bind(month)
        .execute(&mut connection)
        .await?;
    }

    let today = first_month + Months::new(KEPT_MONTHS + EXPIRED_MONTHS);
    let started = Instant::now();
    let dropped = store.maintain_partitions(today).await?;
    let seconds = started.elapsed().as_secs_f64();

    let (rows, first_day): (i64, NaiveDate) =
        sqlx::query_as("select count(*), min(day) from usage_day").fetch_one(&mut connection).await?;
    println!("keys: {key_count}");
    println!("rows_before: {}", u64::from(key_count) * u64::from(KEPT_MONTHS + EXPIRED_MONTHS));
    println!("dropped: {dropped:?}");
    println!("rows_left: {rows}");
    println!("seconds: {seconds:.2}");
    assert_eq!(rows, i64::from(key_count) * i64::from(KEPT_MONTHS));
    assert_eq!(first_day, first_month + Months::new(EXPIRED_MONTHS));
    assert!(seconds < 10.0, "{seconds} seconds");
    Ok(())
}
