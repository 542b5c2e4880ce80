//! A backlog, as after a long outage of PostgreSQL. `just backlog` runs this with five million counts and fifty kills.

use std::time::{Duration, Instant, SystemTime};

use sqlx::{Connection, PgConnection};
use vintem_domain::usage::{RequestOutcome, RouteGroup};
use vintem_meter::{Meter, MeterSettings};
use vintem_server::replica::REDIS_PREFIX;
use vintem_testkit::cpu_stalls::{CpuStalls, StallMonitor};
use vintem_testkit::{
    DedicatedPostgres, DedicatedRedis, ServerProcess, SlowRedisCall, http_client_builder, parse_env_var, run_vintem,
    wait_until,
};

use super::{count_fields_in_redis, insert_keys};
use crate::{TestResult, vintem_binary};

const OUTCOMES: [RequestOutcome; 4] =
    [RequestOutcome::Successful, RequestOutcome::ClientError, RequestOutcome::ServerError, RequestOutcome::RateLimited];
/// Every count is this high: one that was lost or stored twice differs.
const COUNT: u64 = 3;
const REPLICA_COUNT: usize = 2;
/// Keys whose counts are sent together.
const KEYS_PER_FLUSH: usize = 2_000;
const MAX_REDIS_CALL: Duration = Duration::from_millis(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_stored_exactly_once_while_replicas_are_killed() -> TestResult {
    let wanted_fields: Option<u32> = parse_env_var("VINTEM_BACKLOG_FIELDS");
    let is_measured = wanted_fields.is_some();
    let key_count = wanted_fields.unwrap_or(60_000) / OUTCOMES.len() as u32;
    let kills = parse_env_var("VINTEM_BACKLOG_KILLS").unwrap_or(5);

    let redis = DedicatedRedis::start()?;
    let postgres = DedicatedPostgres::start()?;
    let database = format!("{}/postgres", postgres.url());
    let (status, _, error) = run_vintem(vintem_binary(), &database, &["migrate"]).await?;
    anyhow::ensure!(status.success(), "{error}");
    let mut connection = PgConnection::connect(&database).await?;
    let key_ids = insert_keys(&mut connection, key_count).await?;

    let fields = write_backlog(&redis, &key_ids).await?;
    println!("fields: {fields}");
    assert_eq!(fields, u64::from(key_count) * OUTCOMES.len() as u64);
    let closed: Vec<String> = redis.run_command(&["LRANGE", &format!("{REDIS_PREFIX}usage:closed"), "0", "-1"])?;
    println!("batches: {}", closed.len() + 1);

    // Redis measures from the start of a call to its end, also while another process had the core.
    let stall_monitor = if is_measured {
        redis.prioritize()?;
        Some(StallMonitor::start_above_all()?)
    } else {
        None
    };
    let slowest_us = MAX_REDIS_CALL.as_micros().to_string();
    redis.run_command::<String>(&["CONFIG", "SET", "slowlog-log-slower-than", &slowest_us])?;
    redis.run_command::<String>(&["SLOWLOG", "RESET"])?;
    let http = http_client_builder().build()?;
    let start = || ServerProcess::start(vintem_binary(), &database, &redis.url(), &[]);
    let mut replicas = Vec::new();
    for _ in 0..REPLICA_COUNT {
        replicas.push(start()?);
    }

    let started = Instant::now();
    let mut killed = 0;
    let mut unshared_samples = 0;
    while count_fields_in_redis(&redis)? > 0 {
        anyhow::ensure!(started.elapsed() < Duration::from_secs(600), "the backlog is not stored");
        if killed < kills {
            let victim = rand::random_range(0..REPLICA_COUNT);
            replicas[victim].kill()?;
            replicas[victim] = start()?;
            killed += 1;
        }
        for replica in &replicas {
            let shared = replica.fetch_metric(&http, "vintem_meter_shared{server=\"0\"}").await;
            unshared_samples += u32::from(matches!(shared, Ok(Some(0.0))));
        }
        tokio::time::sleep(Duration::from_secs_f64(rand::random_range(0.1..0.8))).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    wait_until("no batch is left", Duration::from_secs(20), || async {
        redis.run_command::<Vec<String>>(&["KEYS", "*usage:closed"]).is_ok_and(|left| left.is_empty())
    })
    .await;

    let (rows, wrong_rows): (i64, i64) = sqlx::query_as(
        "select count(*), count(*) filter (where (successful, client_errors, server_errors, rate_limited) <> ($1, $1, $1, $1))
         from usage_day",
    )
    .bind(COUNT.cast_signed())
    .fetch_one(&mut connection)
    .await?;
    let chunks: i64 = sqlx::query_scalar("select count(*) from usage_chunk").fetch_one(&mut connection).await?;
    let gaps: i64 = sqlx::query_scalar("select count(*) from usage_gap").fetch_one(&mut connection).await?;
    let slow_calls = redis.slow_calls()?;
    if let Some(stalls) = stall_monitor.map(StallMonitor::stop).transpose()? {
        describe_slow_calls(&slow_calls, &stalls);
    }

    println!("kills: {killed}");
    println!("chunks: {chunks}");
    println!("seconds: {seconds:.1}");
    println!("unshared_samples: {unshared_samples}");
    println!("redis_calls_above_10_ms: {}", slow_calls.len());
    println!("wrong_counts: {}", wrong_rows + (i64::from(key_count) - rows).abs());
    assert_eq!((rows, wrong_rows, gaps), (i64::from(key_count), 0, 0));
    if is_measured {
        assert_eq!((slow_calls.len(), unshared_samples), (0, 0));
    }
    Ok(())
}

/// Shows whether the machine itself stood still about then; the log of Redis tells the end of a call to the second.
fn describe_slow_calls(calls: &[SlowRedisCall], stalls: &CpuStalls) {
    for call in calls {
        let since = SystemTime::now().duration_since(call.ended_at).unwrap_or_default();
        let Some(ended_at) = Instant::now().checked_sub(since) else { continue };
        let stall = stalls.longest_between(ended_at - Duration::from_secs(1), ended_at + Duration::from_secs(1));
        println!("slow call: {call:?}; longest stall of the machine at that time: {stall:?}");
    }
}

/// Counts as a replica does, and returns the number of counts in Redis.
async fn write_backlog(redis: &DedicatedRedis, key_ids: &[i64]) -> anyhow::Result<u64> {
    let url = redis.url();
    let settings = MeterSettings {
        redis_urls: vec![&url],
        redis_certificates: None,
        prefix: REDIS_PREFIX,
        window: Duration::from_secs(60),
        redis_timeout: Duration::from_secs(5),
        assumed_replicas: 1,
    };
    let meter = Meter::open(&settings)?;
    let now_us = chrono::Utc::now().timestamp_micros().cast_unsigned();
    for key_ids in key_ids.chunks(KEYS_PER_FLUSH) {
        for key_id in key_ids {
            for outcome in OUTCOMES {
                for _ in 0..COUNT {
                    meter.record_outcome(*key_id, RouteGroup::Market, now_us, outcome);
                }
            }
        }
        meter.flush_outcomes().await;
    }
    meter.shutdown().await;
    anyhow::ensure!(meter.local_usage_count() == 0, "some counts did not reach Redis");
    count_fields_in_redis(redis)
}
