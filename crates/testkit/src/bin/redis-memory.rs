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
use vintem_domain::Plan;
use vintem_domain::usage::RouteGroup;
use vintem_meter::{Charge, Meter, MeterSettings, Visit, Visitor};
use vintem_testkit::load::{ask, keyed_get};
use vintem_testkit::{OwnRedis, ServedProcess, TestDatabase, create_key};

const PATH: &str = "/api/v1/market/selic/current";
/// The most bytes of Redis' memory that the log of a key with a used-up limit takes.
const MOST_OF_PLATINUM: u64 = 24 * 1024;
const MOST_OF_FREE: u64 = 600;

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
    let platinum = of_a_full_key(&arguments, Plan::Platinum).await?;
    let free = of_a_full_key(&arguments, Plan::Free).await?;
    let of_many = of_many_keys(&arguments).await?;
    println!("active_keys: {}", arguments.keys);
    println!("admissions_a_key: {}", arguments.admissions);
    println!("bytes_an_active_key: {of_many:.0}");
    println!("free_log_bytes: {free}");
    println!("platinum_log_bytes: {platinum}");
    ensure!(platinum <= MOST_OF_PLATINUM, "the log of a Platinum key takes more than {MOST_OF_PLATINUM} bytes");
    ensure!(free <= MOST_OF_FREE, "the log of a Free key takes more than {MOST_OF_FREE} bytes");
    Ok(())
}

/// The largest log in a Redis of its own after one key has used up its limit.
async fn of_a_full_key(arguments: &Arguments, plan: Plan) -> anyhow::Result<u64> {
    let (redis, database) = (OwnRedis::start()?, TestDatabase::demo(Utc::now()).await?);
    let (_, key) = create_key(&database.store()?, plan).await?;
    let service = ServedProcess::start(&arguments.vintem, &database.url(), &redis.url(), &[])?;
    let address: SocketAddr = service.address.parse()?;
    let request = keyed_get(PATH, &key);
    let mut admitted = 0;
    while ask(address, &request).await?.status() == Some(200) {
        admitted += 1;
    }
    ensure!(admitted == plan.default_limit(), "{admitted} were admitted on {}", plan.name());
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
async fn of_many_keys(arguments: &Arguments) -> anyhow::Result<f64> {
    const AT_ONCE: i64 = 256;
    let redis = OwnRedis::start()?;
    let url = redis.url();
    let settings = MeterSettings {
        redis_urls: vec![&url],
        prefix: "vintem:",
        // Long enough that nothing is forgotten while all of them are admitted.
        window: Duration::from_secs(3600),
        budget: Duration::from_secs(10),
        assumed_replicas: 1,
    };
    let meter = Arc::new(Meter::open(&settings)?);
    let mut commands = redis::Client::open(redis.url())?.get_connection()?;
    let before = used_memory(&mut commands)?;
    let mut tasks = JoinSet::new();
    for first in 1..=AT_ONCE {
        let (meter, last, admissions) = (meter.clone(), arguments.keys, arguments.admissions);
        tasks.spawn(async move {
            for id in (first..=last).step_by(AT_ONCE as usize) {
                for _ in 0..admissions {
                    let visitor = Visitor::Key(id);
                    let visit =
                        Visit { visitor, limit: 2000, charge: Charge::Quota, counted: Some(RouteGroup::Market) };
                    ensure!(meter.admit(&visit).await.admitted, "not admitted");
                }
            }
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    ensure!(meter.are_shared().all(|is_shared| is_shared), "Redis was away");
    Ok((used_memory(&mut commands)? - before) as f64 / arguments.keys as f64)
}

fn used_memory(redis: &mut redis::Connection) -> anyhow::Result<u64> {
    let told: String = redis::cmd("INFO").arg("memory").query(redis)?;
    let found = told.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap_or_default();
    Ok(found.trim().parse()?)
}
