//! Time and size of every compression level on responses of the service: `just compression-levels`.
//!
//! A response is compressed once and sent many times, but an attacker can make every request a new one. So the level that
//! counts is the last one that still saves bytes in proportion to its time: the next higher level must save less than a
//! tenth, or take more than twice as long.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::ensure;
use chrono::Utc;
use clap::Parser;
use vintem_api::{ContentEncoding, Encoder};
use vintem_bench::closed_loop::send_once;
use vintem_domain::Plan;
use vintem_testkit::{DedicatedRedis, HIGH_LIMIT_FLAGS, ServerProcess, TestDatabase, build_keyed_get, create_key};

const MIN_SAVING: f64 = 0.1;
const MAX_TIME_RATIO: f64 = 2.0;
/// Each level is repeated for this long; the fastest run counts.
const TIME_PER_LEVEL: Duration = Duration::from_millis(200);

const TARGETS: [&str; 4] = [
    "/api/v1/market/selic?limit=20",
    "/api/v1/filings?limit=100",
    "/api/v1/market/selic?limit=20000",
    "/api/v1/companies?limit=100",
];

const LEVELS: [(ContentEncoding, &[u8]); 3] = [
    (ContentEncoding::Gzip, &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
    (ContentEncoding::Brotli, &[1, 2, 3, 4, 5, 6, 7]),
    (ContentEncoding::Zstd, &[1, 2, 3, 4, 5, 6, 7, 9]),
];

#[derive(Debug, Parser)]
struct Arguments {
    /// The service's binary
    #[arg(long, default_value = "target/release/vintem")]
    vintem: PathBuf,
}

/// All responses together, compressed at one level.
struct LevelCost {
    level: u8,
    time: Duration,
    bytes: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(Utc::now()).await?;
    let key = create_key(&database.open_store()?, Plan::Platinum).await?.1;
    let service = ServerProcess::start(&arguments.vintem, &database.url(), &redis.url(), &HIGH_LIMIT_FLAGS)?;

    let mut bodies = Vec::new();
    for target in TARGETS {
        bodies.push(send_once(service.address.parse()?, &build_keyed_get(target, &key)).await?.body);
    }
    println!("uncompressed_bytes: {}", bodies.iter().map(Vec::len).sum::<usize>());

    let mut unfit = Vec::new();
    for (encoding, levels) in LEVELS {
        let costs: Vec<LevelCost> = levels.iter().map(|level| measure_level(encoding, *level, &bodies)).collect();
        for cost in &costs {
            let (id, level) = (encoding.id(), cost.level);
            println!("{id}_{level}_microseconds: {:.0}", cost.time.as_secs_f64() * 1e6);
            println!("{id}_{level}_bytes: {}", cost.bytes);
        }
        if !is_fit(encoding.level(), &costs) {
            unfit.push(encoding.id());
        }
    }
    println!("unfit_levels: {}", unfit.len());
    ensure!(unfit.is_empty(), "another level is better for {unfit:?}");
    Ok(())
}

fn measure_level(encoding: ContentEncoding, level: u8, bodies: &[Vec<u8>]) -> LevelCost {
    let mut time = Duration::MAX;
    let mut bytes = 0;
    let started = Instant::now();
    while started.elapsed() < TIME_PER_LEVEL {
        let run_started = Instant::now();
        bytes = bodies.iter().map(|body| compressed_length(encoding, level, body)).sum();
        time = time.min(run_started.elapsed());
    }
    LevelCost { level, time, bytes }
}

fn compressed_length(encoding: ContentEncoding, level: u8, body: &[u8]) -> usize {
    let mut encoder = Encoder::with_level(encoding, level).expect("it compresses");
    encoder.write(body).len() + encoder.finish().len()
}

/// Whether no other level saves a tenth of the bytes in less than twice the time, or takes half the time for a tenth more.
fn is_fit(level: u8, costs: &[LevelCost]) -> bool {
    let Some(chosen) = costs.iter().find(|cost| cost.level == level) else { return false };
    costs.iter().all(|other| {
        let time_ratio = other.time.as_secs_f64() / chosen.time.as_secs_f64();
        let byte_ratio = other.bytes as f64 / chosen.bytes as f64;
        let is_smaller_and_affordable = byte_ratio < 1.0 - MIN_SAVING && time_ratio < MAX_TIME_RATIO;
        let is_faster_and_almost_as_small = time_ratio < 1.0 / MAX_TIME_RATIO && byte_ratio < 1.0 + MIN_SAVING;
        !is_smaller_and_affordable && !is_faster_and_almost_as_small
    })
}
