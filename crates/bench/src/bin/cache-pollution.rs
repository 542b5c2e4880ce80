//! One address sends a million distinct queries while others repeat popular requests: `just cache-pollution`. The
//! responses to the others must still come from the cache, and the cache must stay within its memory.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::ensure;
use chrono::Utc;
use clap::Parser;
use vintem_bench::closed_loop::KeepAliveConnection;
use vintem_bench::process_memory::read_proc_status_bytes;
use vintem_domain::Plan;
use vintem_testkit::{
    DedicatedRedis, HIGH_LIMIT_FLAGS, ServerProcess, TestDatabase, build_keyed_get, create_key, http_client_builder,
};

/// Minimum share of the others' responses that come from the cache.
const MIN_HIT_RATE: f64 = 0.9;
/// Memory that the process may take beyond the cache's budget: buffers, and what the allocator keeps.
const MAX_OTHER_GROWTH_MIB: f64 = 64.0;
const CACHE_BUDGET_MIB: f64 = 64.0;
/// Connections of the address with the many queries, and of the others.
const POLLUTING_CONNECTIONS: usize = 32;
const OTHER_CONNECTIONS: usize = 4;
/// What `Retry-After` asks for when a request is shed.
const SHED_PAUSE: Duration = Duration::from_secs(1);
/// For each popular response there are this many distinct queries.
const PAGES: usize = 40;

#[derive(Debug, Parser)]
struct Arguments {
    /// The service's binary
    #[arg(long, default_value = "target/release/vintem")]
    vintem: PathBuf,

    /// Distinct queries of one address
    #[arg(long, default_value_t = 1_000_000)]
    queries: usize,
}

/// What everybody requests: current values and first pages, on routes that the many queries do not use.
fn popular_targets() -> Vec<String> {
    let mut targets: Vec<String> = ["selic", "cdi", "ipca", "usd-brl", "selic-daily"]
        .iter()
        .map(|id| format!("/api/v1/market/series/{id}/current"))
        .collect();
    targets.extend((0..PAGES).map(|page| format!("/api/v1/companies?limit=20&offset={}", page * 20)));
    targets.extend((0..PAGES).map(|page| format!("/api/v1/filings?limit=20&offset={}", page * 20)));
    targets
}

const POPULAR_OPERATIONS: [&str; 3] = ["get_observation", "list_companies", "list_filings"];

/// A query that no other number has, about as long as popular responses.
fn distinct_target(number: usize) -> String {
    format!("/api/v1/market/selic?limit={}&offset={}", 1 + number % 50, number / 50)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(Utc::now()).await?;
    let (_, key) = create_key(&database.open_store()?, Plan::Platinum).await?;
    let service = ServerProcess::start(&arguments.vintem, &database.url(), &redis.url(), &HIGH_LIMIT_FLAGS)?;
    let address: SocketAddr = service.address.parse()?;

    let is_done = Arc::new(AtomicBool::new(false));
    let popular: Arc<Vec<Vec<u8>>> =
        Arc::new(popular_targets().iter().map(|target| build_keyed_get(target, &key)).collect());
    send_popular_once(address, &popular).await?;
    let memory_before = memory_mib(service.pid())?;
    let before = CacheCounts::fetch(&service).await?;

    let mut others = tokio::task::JoinSet::new();
    for first in 0..OTHER_CONNECTIONS {
        others.spawn(repeat_popular(address, popular.clone(), first, is_done.clone()));
    }
    let next_query = Arc::new(AtomicUsize::new(0));
    let mut polluters = tokio::task::JoinSet::new();
    for _ in 0..POLLUTING_CONNECTIONS {
        polluters.spawn(send_distinct(address, next_query.clone(), arguments.queries));
    }
    while let Some(ended) = polluters.join_next().await {
        ended??;
    }
    is_done.store(true, Ordering::Relaxed);
    let mut sent = 0;
    while let Some(ended) = others.join_next().await {
        sent += ended??;
    }

    let after = CacheCounts::fetch(&service).await?;
    let hits = after.hits - before.hits;
    let misses = after.misses - before.misses;
    let hit_rate = hits / (hits + misses);
    let growth = memory_mib(service.pid())? - memory_before;
    println!("distinct_queries: {}", arguments.queries);
    println!("requests_of_others: {sent}");
    println!("memory_before_mib: {memory_before:.0}");
    println!("memory_growth_mib: {growth:.0}");
    println!("hit_rate_of_others: {hit_rate:.3}");
    ensure!(growth <= CACHE_BUDGET_MIB + MAX_OTHER_GROWTH_MIB, "the cache takes more memory than its budget");
    ensure!(hit_rate >= MIN_HIT_RATE, "less than {MIN_HIT_RATE} of the responses to others came from the cache");
    Ok(())
}

async fn send_popular_once(address: SocketAddr, popular: &[Vec<u8>]) -> anyhow::Result<()> {
    let mut connection = KeepAliveConnection::open(address).await?;
    for request in popular {
        let response = connection.send(request).await?;
        ensure!(response.status() == Some(200), "{}", response.head);
    }
    Ok(())
}

async fn repeat_popular(
    address: SocketAddr,
    popular: Arc<Vec<Vec<u8>>>,
    first: usize,
    is_done: Arc<AtomicBool>,
) -> anyhow::Result<usize> {
    let mut connection = KeepAliveConnection::open(address).await?;
    let mut sent = 0;
    for request in popular.iter().cycle().skip(first * popular.len() / OTHER_CONNECTIONS) {
        if is_done.load(Ordering::Relaxed) {
            break;
        }
        let response = connection.send(request).await?;
        ensure!(response.status() == Some(200), "{}", response.head);
        sent += 1;
    }
    Ok(sent)
}

async fn send_distinct(address: SocketAddr, next_query: Arc<AtomicUsize>, count: usize) -> anyhow::Result<()> {
    let mut connection = KeepAliveConnection::open(address).await?;
    loop {
        let number = next_query.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            return Ok(());
        }
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: vintem.example\r\nAccept-Encoding: gzip\r\n\r\n",
            distinct_target(number)
        );
        // Such a caller may be shed: then it has to send the query again.
        loop {
            let response = connection.send(request.as_bytes()).await?;
            if response.status() == Some(200) {
                break;
            }
            ensure!(response.status() == Some(503), "{}", response.head);
            tokio::time::sleep(SHED_PAUSE).await;
        }
    }
}

/// How often the cache had the responses of popular operations.
struct CacheCounts {
    hits: f64,
    misses: f64,
}

impl CacheCounts {
    async fn fetch(service: &ServerProcess) -> anyhow::Result<Self> {
        let http = http_client_builder().build()?;
        let mut counts = Self { hits: 0.0, misses: 0.0 };
        for operation in POPULAR_OPERATIONS {
            let name =
                |result: &str| format!("vintem_response_cache_total{{route=\"{operation}\",result=\"{result}\"}}");
            counts.hits += service.fetch_metric(&http, &name("hit")).await?.unwrap_or(0.0);
            counts.misses += service.fetch_metric(&http, &name("miss")).await?.unwrap_or(0.0);
        }
        Ok(counts)
    }
}

fn memory_mib(pid: u32) -> anyhow::Result<f64> {
    Ok(read_proc_status_bytes(pid, "VmRSS")? as f64 / f64::from(1 << 20))
}
