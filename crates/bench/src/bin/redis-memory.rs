//! What callers take of Redis' memory: `just redis-memory`.
//!
//! A Platinum and a Free key use up their limit through the served binary, and Redis says what the log of each takes.
//! Then many keys are each admitted a few times, by the meter itself, and Redis says how much more it holds.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use chrono::Utc;
use clap::Parser;
use tokio::task::JoinSet;
use vintem_bench::closed_loop::send_once;
use vintem_domain::Plan;
use vintem_domain::usage::RouteGroup;
use vintem_meter::{AdmissionCharge, AdmissionRequest, Meter, MeterSettings, QuotaOwner};
use vintem_testkit::build_keyed_get;
use vintem_testkit::{DedicatedRedis, ServerProcess, TestDatabase, create_key};

const REQUEST_PATH: &str = "/api/v1/market/selic/current";
/// The most bytes of Redis' memory that the log of a key with a used-up limit takes.
const MAX_PLATINUM_LOG_BYTES: u64 = 24 * 1024;
const MAX_FREE_LOG_BYTES: u64 = 600;

#[derive(Debug, Parser)]
struct Arguments {
    /// The service's binary
    #[arg(long, default_value = "target/release/vintem")]
    vintem: PathBuf,

    /// Keys that are active at once
    #[arg(long, default_value_t = 100_000)]
    keys: i64,

    /// How often each of them is admitted
    #[arg(long, default_value_t = 10)]
    admissions: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let platinum = measure_full_log_bytes(&arguments, Plan::Platinum).await?;
    let free = measure_full_log_bytes(&arguments, Plan::Free).await?;
    let of_many = measure_bytes_per_key(&arguments).await?;
    println!("active_keys: {}", arguments.keys);
    println!("admissions_a_key: {}", arguments.admissions);
    println!("bytes_an_active_key: {of_many:.0}");
    println!("free_log_bytes: {free}");
    println!("platinum_log_bytes: {platinum}");
    ensure!(
        platinum <= MAX_PLATINUM_LOG_BYTES,
        "the log of a Platinum key takes more than {MAX_PLATINUM_LOG_BYTES} bytes"
    );
    ensure!(free <= MAX_FREE_LOG_BYTES, "the log of a Free key takes more than {MAX_FREE_LOG_BYTES} bytes");
    Ok(())
}

/// The largest log in a Redis of its own after one key has used up its limit.
async fn measure_full_log_bytes(arguments: &Arguments, plan: Plan) -> anyhow::Result<u64> {
    let (redis, database) = (DedicatedRedis::start()?, TestDatabase::create_demo(Utc::now()).await?);
    let (_, key) = create_key(&database.open_store()?, plan).await?;
    let service = ServerProcess::start(&arguments.vintem, &database.url(), &redis.url(), &[])?;
    let address: SocketAddr = service.address.parse()?;
    let request = build_keyed_get(REQUEST_PATH, &key);
    let mut admitted = 0;
    while send_once(address, &request).await?.status() == Some(200) {
        admitted += 1;
    }
    ensure!(admitted == plan.default_requests_per_minute(), "{admitted} were admitted on {}", plan.name());
    let mut commands = redis::Client::open(redis.url())?.get_connection()?;
    let names: Vec<String> = redis::cmd("KEYS").arg("*:k:*").query(&mut commands)?;
    let mut largest = 0;
    for name in names {
        let bytes: u64 = redis::cmd("MEMORY").arg("USAGE").arg(name).arg("SAMPLES").arg(0).query(&mut commands)?;
        largest = largest.max(bytes);
    }
    ensure!(largest > 0, "no log was found");
    Ok(largest)
}

/// How much more Redis holds for each of many keys, all that belongs to it counted: logs and usage.
async fn measure_bytes_per_key(arguments: &Arguments) -> anyhow::Result<f64> {
    const CONCURRENCY: i64 = 256;
    let redis = DedicatedRedis::start()?;
    let url = redis.url();
    let settings = MeterSettings {
        redis_urls: vec![&url],
        prefix: "vintem:",
        // Long enough that nothing is forgotten while all of them are admitted.
        window: Duration::from_secs(3600),
        redis_timeout: Duration::from_secs(10),
        assumed_replicas: 1,
    };
    let meter = Arc::new(Meter::open(&settings)?);
    let mut commands = redis::Client::open(redis.url())?.get_connection()?;
    let before = redis_used_memory(&mut commands)?;
    let mut tasks = JoinSet::new();
    for first in 1..=CONCURRENCY {
        let (meter, last, admissions) = (meter.clone(), arguments.keys, arguments.admissions);
        tasks.spawn(async move {
            for id in (first..=last).step_by(CONCURRENCY as usize) {
                for _ in 0..admissions {
                    let visitor = QuotaOwner::Key(id);
                    let visit = AdmissionRequest {
                        quota_owner: visitor,
                        limit: 2000,
                        charge: AdmissionCharge::OwnQuota,
                        usage_group: Some(RouteGroup::Market),
                    };
                    ensure!(meter.admit(&visit).await.admitted, "not admitted");
                }
            }
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    ensure!(meter.redis_availability().all(|is_shared| is_shared), "Redis was away");
    Ok((redis_used_memory(&mut commands)? - before) as f64 / arguments.keys as f64)
}

fn redis_used_memory(redis: &mut redis::Connection) -> anyhow::Result<u64> {
    let told: String = redis::cmd("INFO").arg("memory").query(redis)?;
    let found = told.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap_or_default();
    Ok(found.trim().parse()?)
}
