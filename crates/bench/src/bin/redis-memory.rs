//! Measures how much Redis memory callers use: `just redis-memory`.
//!
//! A Platinum and a Free key use up their limit through the real binary, and Redis reports the size of each one's log.
//! Then the meter itself admits many keys a few times each, and Redis reports how much its memory has grown.

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
/// Maximum memory for the log of a key that has used up its limit.
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
    let bytes_per_key = measure_bytes_per_key(&arguments).await?;

    println!("active_keys: {}", arguments.keys);
    println!("admissions_a_key: {}", arguments.admissions);
    println!("bytes_an_active_key: {bytes_per_key:.0}");
    println!("free_log_bytes: {free}");
    println!("platinum_log_bytes: {platinum}");

    ensure!(
        platinum <= MAX_PLATINUM_LOG_BYTES,
        "the log of a Platinum key takes more than {MAX_PLATINUM_LOG_BYTES} bytes"
    );
    ensure!(free <= MAX_FREE_LOG_BYTES, "the log of a Free key takes more than {MAX_FREE_LOG_BYTES} bytes");
    Ok(())
}

/// The size of the largest log in a dedicated Redis after one key has used up its limit.
async fn measure_full_log_bytes(arguments: &Arguments, plan: Plan) -> anyhow::Result<u64> {
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(Utc::now()).await?;
    let (_, key) = create_key(&database.open_store()?, plan).await?;
    let service = ServerProcess::start(&arguments.vintem, &database.url(), &redis.url(), &[])?;
    let address: SocketAddr = service.address.parse()?;

    let request = build_keyed_get(REQUEST_PATH, &key);
    let mut admitted = 0;
    while send_once(address, &request).await?.status() == Some(200) {
        admitted += 1;
    }
    ensure!(admitted == plan.default_requests_per_minute(), "{admitted} were admitted on {}", plan.name());

    let mut connection = redis::Client::open(redis.url())?.get_connection()?;
    let names: Vec<String> = redis::cmd("KEYS").arg("*:k:*").query(&mut connection)?;
    let mut largest = 0;
    for name in names {
        let bytes: u64 = redis::cmd("MEMORY").arg("USAGE").arg(name).arg("SAMPLES").arg(0).query(&mut connection)?;
        largest = largest.max(bytes);
    }
    ensure!(largest > 0, "no log was found");
    Ok(largest)
}

/// How much memory Redis uses for each of many keys, logs and usage included.
async fn measure_bytes_per_key(arguments: &Arguments) -> anyhow::Result<f64> {
    const CONCURRENCY: i64 = 256;

    let redis = DedicatedRedis::start()?;
    let url = redis.url();
    let settings = MeterSettings {
        redis_urls: vec![&url],
        redis_certificates: None,
        prefix: "vintem:",
        // Long enough that nothing expires while all keys are being admitted.
        window: Duration::from_secs(3600),
        redis_timeout: Duration::from_secs(10),
        assumed_replicas: 1,
    };
    let meter = Arc::new(Meter::open(&settings)?);
    let mut connection = redis::Client::open(redis.url())?.get_connection()?;
    let before = redis_used_memory(&mut connection)?;

    let mut tasks = JoinSet::new();
    for first in 1..=CONCURRENCY {
        let meter = meter.clone();
        let last = arguments.keys;
        let admissions = arguments.admissions;
        tasks.spawn(async move {
            for id in (first..=last).step_by(CONCURRENCY as usize) {
                for _ in 0..admissions {
                    let request = AdmissionRequest {
                        quota_owner: QuotaOwner::Key(id),
                        limit: 2000,
                        charge: AdmissionCharge::OwnQuota,
                        usage_group: Some(RouteGroup::Market),
                    };
                    ensure!(meter.admit(&request).await.admitted, "not admitted");
                }
            }
            Ok(())
        });
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }

    ensure!(meter.redis_availability().all(|is_available| is_available), "Redis was away");
    Ok((redis_used_memory(&mut connection)? - before) as f64 / arguments.keys as f64)
}

fn redis_used_memory(redis: &mut redis::Connection) -> anyhow::Result<u64> {
    let info: String = redis::cmd("INFO").arg("memory").query(redis)?;
    let value = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap_or_default();
    Ok(value.trim().parse()?)
}
