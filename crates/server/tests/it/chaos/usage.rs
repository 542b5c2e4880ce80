//! Usage is neither lost nor counted twice when replicas, Redis or PostgreSQL are killed, stopped or cut off. `just
//! chaos` runs this for ten minutes.
//!
//! An answered request must be counted; a request without a response, because its replica was killed, may be counted.

use std::time::{Duration, Instant};

use serde_json::Value;
use vintem_testkit::parse_env_var;

use super::{
    ChaosHarness, KeyTally, LIMITED_KEYS, OUTCOME_FIELDS, UNLIMITED_KEYS, add_to_tallies, matches_every_outcome,
    total_sent_and_answered,
};
use crate::TestResult;

#[tokio::test(flavor = "multi_thread")]
async fn killing_replicas_redis_and_postgres_neither_loses_nor_doubles_usage() -> TestResult {
    let minutes: Option<u64> = parse_env_var("VINTEM_CHAOS_MINUTES");
    let duration = minutes.map_or(Duration::from_secs(56), |minutes| Duration::from_secs(60 * minutes));
    let rate = if minutes.is_some() { 1_500 } else { 200 };

    let mut harness = ChaosHarness::start_cluster(rate).await?;
    let mut tallies = vec![KeyTally::default(); UNLIMITED_KEYS + LIMITED_KEYS];

    // While no replica is killed, every request is answered and counted under its outcome.
    let load = harness.start_load();
    let until = Instant::now() + duration / 4;
    while Instant::now() < until {
        harness.inject_backend_fault().await?;
    }
    add_to_tallies(&mut tallies, &load.stop().await?);
    let (sent, answered) = total_sent_and_answered(&tallies);
    println!("sent_while_replicas_live: {sent}");
    assert_eq!(sent, answered, "some were not answered although no replica was killed");

    let deadline = harness.wait_until_drained().await;
    for (key, tally) in tallies.iter_mut().enumerate() {
        let usage = harness.poll_usage_until(key, tally, matches_every_outcome, deadline).await?;
        let counted = OUTCOME_FIELDS.map(|field| usage[field].as_u64().unwrap_or_default());
        assert_eq!(counted, tally.answered_by_outcome, "key {key}: {OUTCOME_FIELDS:?}, {usage}");
        assert_eq!(
            (&usage["requests"], &usage["unfinished"]),
            (&Value::from(tally.sent), &Value::from(0)),
            "key {key}"
        );
    }

    let load = harness.start_load();
    let min_kills = minutes.map_or(10, |minutes| 20 * minutes as u32);
    let until = Instant::now() + duration * 3 / 4;
    // On a slow machine a kill takes longer, so there it goes on for longer.
    while Instant::now() < until || harness.kill_count() < min_kills {
        for _ in 0..3 {
            harness.inject_backend_fault().await?;
        }
        harness.wait_until_counts_shared().await;
        for _ in 0..3 {
            harness.kill_and_restart_replica().await?;
        }
    }
    add_to_tallies(&mut tallies, &load.stop().await?);

    let (lost, doubled) = harness.count_lost_and_doubled(&mut tallies).await?;

    let (sent, answered) = total_sent_and_answered(&tallies);
    let answered_with = |outcome: usize| tallies.iter().map(|tally| tally.answered_by_outcome[outcome]).sum::<u64>();
    println!("sent: {sent}");
    println!("answered: {answered}");
    println!("not_answered: {}", sent - answered);
    for (outcome, name) in OUTCOME_FIELDS.iter().enumerate() {
        println!("answered_{name}: {}", answered_with(outcome));
    }
    println!("chunks_stored: {}", harness.stored_chunk_count().await?);
    println!("faults: {:?}", harness.fault_counts);
    println!("kills: {}", harness.kill_count());
    println!("lost: {lost}");
    println!("doubled: {doubled}");

    assert_eq!((lost, doubled), (0, 0));
    Ok(())
}
