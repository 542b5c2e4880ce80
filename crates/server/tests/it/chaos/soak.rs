//! Memory, descriptors and usage stay in order for a long time at half of the peak rate, with a fault every minute. `just
//! soak` runs this for an hour.
//!
//! The faults are those of Redis and PostgreSQL, and kills of the last replica. The others live throughout, and their memory
//! and descriptors are recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use vintem_testkit::background_load::RequestRecord;
use vintem_testkit::parse_env_var;

use super::{
    ChaosHarness, KeyTally, LIMITED_KEYS, REPLICA_COUNT, REQUEST_PATHS, UNLIMITED_KEYS, add_to_tallies,
    total_sent_and_answered,
};
use crate::TestResult;

const PEAK_CONNECTIONS: usize = 64;
/// Memory may grow by this share of it in an hour. A leak would go on after the warm-up.
const MAX_GROWTH_PER_HOUR: f64 = 0.01;
/// Connections come and go, so the number of descriptors is never quite the same.
const MAX_MORE_FILES: f64 = 16.0;
/// How many of the rounds fill caches and pools.
const WARM_UP_SHARE: f64 = 0.25;

/// What a replica uses at the end of a round.
#[derive(Debug, Clone, Copy)]
struct Footprint {
    at: Duration,
    memory_bytes: f64,
    open_files: f64,
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_descriptors_and_usage_stay_in_order_while_backends_fail() -> TestResult {
    let minutes: Option<u32> = parse_env_var("VINTEM_SOAK_MINUTES");
    let rounds = minutes.unwrap_or(4);
    let round = if minutes.is_some() { Duration::from_secs(60) } else { Duration::from_secs(5) };

    let mut harness = ChaosHarness::start_cluster(0).await?;
    let peak = measure_peak(&harness, round / 4).await?;
    // In CI other tests run beside this one.
    harness.requests_per_second = if minutes.is_some() { (peak / 2).max(1) } else { 200_u32.min(peak / 2).max(1) };
    println!("peak_requests_per_second: {peak}");
    println!("requests_per_second: {}", harness.requests_per_second);

    let mut tallies = vec![KeyTally::default(); UNLIMITED_KEYS + LIMITED_KEYS];
    let mut footprints = vec![Vec::new(); REPLICA_COUNT - 1];
    let mut latencies = Vec::new();
    let started = Instant::now();
    for number in 0..rounds {
        let round_ends = Instant::now() + round;
        let load = harness.start_load();
        if number % 3 == 2 {
            harness.kill_and_restart(REPLICA_COUNT - 1).await?;
        } else {
            harness.inject_backend_fault().await?;
        }
        tokio::time::sleep(round_ends.saturating_duration_since(Instant::now())).await;
        let records = load.stop().await?;
        latencies.push(p99(records.iter().map(RequestRecord::latency).collect()));
        add_to_tallies(&mut tallies, &records);

        for (replica, footprints) in footprints.iter_mut().enumerate() {
            footprints.push(read_footprint(&harness, replica, started.elapsed()).await?);
        }
    }

    let (lost, doubled) = harness.count_lost_and_doubled(&mut tallies).await?;
    let (sent, answered) = total_sent_and_answered(&tallies);
    let panics = harness.replicas.iter().filter(|replica| replica.log().contains("panicked")).count();
    let growths: Vec<f64> = footprints.iter().map(|footprints| growth_per_hour(after_warm_up(footprints))).collect();
    let more_files: Vec<f64> = footprints.iter().map(|footprints| added_files(after_warm_up(footprints))).collect();
    println!("rounds: {rounds}");
    println!("faults: {:?}", harness.fault_counts);
    println!("sent: {sent}");
    println!("not_answered: {}", sent - answered);
    println!("first_round_p99_ms: {:.1}", latencies.first().copied().unwrap_or_default());
    println!("last_round_p99_ms: {:.1}", latencies.last().copied().unwrap_or_default());
    println!("memory_mib: {:?}", last_memory_mib(&footprints));
    println!("added_files: {more_files:?}");
    println!("panics: {panics}");
    println!("lost: {lost}");
    println!("doubled: {doubled}");
    println!("memory_growth_per_hour: {growths:.4?}");

    assert_eq!((lost, doubled, panics), (0, 0, 0));
    assert!(more_files.iter().all(|more| *more <= MAX_MORE_FILES), "descriptors grow: {more_files:?}");
    // A slope needs more than a few points.
    if minutes.is_some() {
        assert!(growths.iter().all(|growth| *growth < MAX_GROWTH_PER_HOUR), "memory grows: {growths:?}");
    }
    Ok(())
}

/// How many requests per second the cluster answers when it is asked without a pause. They are sent with a key of their
/// own, because nothing records them.
async fn measure_peak(harness: &ChaosHarness, duration: Duration) -> anyhow::Result<u32> {
    let addresses: Arc<[String]> = harness.replicas.iter().map(|replica| replica.url("")).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU64::new(0));
    let send = |connection: usize| {
        let (addresses, is_over, answered) = (addresses.clone(), is_over.clone(), answered.clone());
        let http = harness.http.clone();
        let key = harness.peak_key.clone();
        async move {
            let mut number = connection;
            while !is_over.load(Ordering::Relaxed) {
                let path = REQUEST_PATHS[number % REQUEST_PATHS.len()];
                let url = format!("{}{path}", addresses[number % REPLICA_COUNT]);
                http.get(url).header("X-API-Key", &key).send().await?.bytes().await?;
                answered.fetch_add(1, Ordering::Relaxed);
                number += 1;
            }
            anyhow::Ok(())
        }
    };

    let connections: Vec<_> = (0..PEAK_CONNECTIONS).map(|connection| tokio::spawn(send(connection))).collect();
    tokio::time::sleep(duration).await;
    is_over.store(true, Ordering::Relaxed);
    for connection in connections {
        connection.await??;
    }
    Ok((answered.load(Ordering::Relaxed) as f64 / duration.as_secs_f64()) as u32)
}

async fn read_footprint(harness: &ChaosHarness, replica: usize, at: Duration) -> anyhow::Result<Footprint> {
    let metric = async |name| {
        let value = harness.replicas[replica].fetch_metric(&harness.http, name).await?;
        value.ok_or_else(|| anyhow::anyhow!("{name} is not exported"))
    };
    let memory_bytes = metric("process_resident_memory_bytes").await?;
    let open_files = metric("process_open_fds").await?;
    Ok(Footprint { at, memory_bytes, open_files })
}

fn after_warm_up(footprints: &[Footprint]) -> &[Footprint] {
    let warm_up = (footprints.len() as f64 * WARM_UP_SHARE) as usize;
    &footprints[warm_up..]
}

/// The slope of a straight line through the memory, as a share of its mean.
fn growth_per_hour(footprints: &[Footprint]) -> f64 {
    let count = footprints.len() as f64;
    let hours = |footprint: &Footprint| footprint.at.as_secs_f64() / 3_600.0;
    let mean_hours = footprints.iter().map(hours).sum::<f64>() / count;
    let mean_memory = footprints.iter().map(|footprint| footprint.memory_bytes).sum::<f64>() / count;

    let mut covariance = 0.0;
    let mut variance = 0.0;
    for footprint in footprints {
        let offset = hours(footprint) - mean_hours;
        covariance += offset * (footprint.memory_bytes - mean_memory);
        variance += offset * offset;
    }
    covariance / variance / mean_memory
}

/// How many more files are open in the second half than in the first, on average.
fn added_files(footprints: &[Footprint]) -> f64 {
    let (first, second) = footprints.split_at(footprints.len() / 2);
    let mean =
        |half: &[Footprint]| half.iter().map(|footprint| footprint.open_files).sum::<f64>() / half.len().max(1) as f64;
    mean(second) - mean(first)
}

fn last_memory_mib(footprints: &[Vec<Footprint>]) -> Vec<u64> {
    let last = footprints.iter().filter_map(|footprints| footprints.last());
    last.map(|footprint| (footprint.memory_bytes / 1_048_576.0) as u64).collect()
}

fn p99(mut latencies: Vec<Duration>) -> f64 {
    latencies.sort_unstable();
    let position = latencies.len() * 99 / 100;
    latencies.get(position).copied().unwrap_or_default().as_secs_f64() * 1_000.0
}
