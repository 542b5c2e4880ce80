//! Measures a replica under steady traffic while filings are loaded: `just loads`.
//!
//! Each load adds one filing, newer than all before it. So the first row of the list shows how many loads a response
//! includes, and its total and its ETag must agree.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use chrono::Utc;
use clap::Parser;
use serde_json::Value;
use vintem_domain::{CvmDataset, DataOrigin, Dataset};
use vintem_store::load::{Filing, NewFetch};
use vintem_store::{Store, Timeouts};
use vintem_testkit::timed_requests::{TimedRequest, get_at_rate, percentile};
use vintem_testkit::{QuietClock, http_client_builder};

const LIST_PATH: &str = "/api/v1/filings?limit=20";
/// Prefix of our filing ids; it sorts after all other ids of the same day.
const ID_PREFIX: &str = "zz-load-";
/// A load is seen within this.
const MAX_VISIBILITY_SECONDS: f64 = 2.0;

#[derive(Debug, Parser)]
struct Arguments {
    /// Where the replica serves, and where its operator's port is
    #[arg(long)]
    address: String,
    #[arg(long)]
    admin_address: String,
    #[arg(long)]
    key: String,
    #[arg(long)]
    database_url: String,
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    #[arg(long, default_value_t = 200)]
    loads: u32,
    /// Requests a second
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// How much slower the slowest of a hundred may be while filings are loaded; not judged where it is not given
    #[arg(long)]
    max_p99_ratio: Option<f64>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let http = http_client_builder().build()?;
    let store = Store::open(&arguments.database_url, 2, Timeouts::for_workers())?;
    let paths = request_paths();
    let time = Duration::from_secs(arguments.seconds);

    let send_requests = |time| get_at_rate(&http, &arguments.address, &arguments.key, &paths, arguments.rate, time);
    let quiet = send_requests(time / 2).await;
    let base = quiet.iter().find_map(list_total).context("no list was answered")?;
    let swaps_before = fetch_swap_count(&http, &arguments.admin_address).await?;
    let started = Instant::now();
    let quiet_clock = QuietClock::start();
    let (busy, loaded) = tokio::join!(send_requests(time), load_filings(&store, &arguments));
    let slowdown = started.elapsed().as_secs_f64() / quiet_clock.elapsed().as_secs_f64();
    let loaded = loaded?;
    let swaps = fetch_swap_count(&http, &arguments.admin_address).await? - swaps_before;

    let failed = quiet.iter().chain(&busy).filter(|request| request.status != Some(200)).count();
    let mixed = count_mixed_responses(&busy, base);
    let unseen = max_visibility_delay(&busy, base, &loaded);
    let calm = percentile(quiet.iter().map(TimedRequest::latency), 99);
    let under_load = percentile(busy.iter().map(TimedRequest::latency), 99);
    let ratio = under_load.as_secs_f64() / calm.as_secs_f64();

    println!("requests: {}", quiet.len() + busy.len());
    println!("loads: {}", loaded.len());
    println!("swaps: {swaps}");
    println!("p50_milliseconds: {:.2}", percentile(busy.iter().map(TimedRequest::latency), 50).as_secs_f64() * 1e3);
    println!("p99_milliseconds_without_loads: {:.2}", calm.as_secs_f64() * 1e3);
    println!("p99_milliseconds: {:.2}", under_load.as_secs_f64() * 1e3);
    println!("machine_slowdown: {slowdown:.2}");
    println!("seconds_until_seen: {unseen:.2}");
    println!("p99_ratio: {ratio:.2}");
    println!("failed: {failed}");
    println!("mixed: {mixed}");

    ensure!(failed == 0, "{failed} requests were not answered by 200");
    ensure!(mixed == 0, "{mixed} answers mix generations");
    ensure!(unseen <= MAX_VISIBILITY_SECONDS * slowdown, "a load was seen only after {unseen:.2} s");
    // A swap a second at most, and a third of that at least.
    let min_swaps = (arguments.seconds as f64 / 3.0 / slowdown) as u64;
    let max_swaps = arguments.seconds;
    ensure!((min_swaps..=max_swaps).contains(&swaps), "{swaps} swaps are not between {min_swaps} and {max_swaps}");
    if let Some(max_ratio) = arguments.max_p99_ratio {
        ensure!(ratio <= max_ratio, "the slowest of a hundred take {ratio:.2} times as long");
    }
    Ok(())
}

/// Half of the requests are for the list, the rest a mix of other endpoints.
fn request_paths() -> Vec<String> {
    let others = [
        "/api/v1/market/overview",
        "/api/v1/companies?limit=20",
        "/api/v1/filings/search?q=dividendos",
        "/api/v1/filings?category=Fato%20Relevante&offset=1000",
        "/api/v1/companies/search?q=serra",
        "/api/v1/market/selic?limit=100",
    ];
    others.iter().flat_map(|other| [LIST_PATH.to_owned(), (*other).to_owned()]).collect()
}

/// Loads the filings at a steady rate and returns when each was committed.
async fn load_filings(store: &Store, arguments: &Arguments) -> anyhow::Result<Vec<Instant>> {
    let mut ticks = tokio::time::interval(Duration::from_secs(arguments.seconds) / (arguments.loads + 1));
    let mut committed = Vec::new();
    for number in 1..=arguments.loads {
        ticks.tick().await;
        let fetch = NewFetch::without_response(format!("load:{number}"), Utc::now(), [1; 32]);
        let mut load = store.begin_load(Dataset::Filings, DataOrigin::Synthetic, &fetch).await?;
        load.append_filings(&[build_filing(number)]).await?;
        load.commit().await?;
        committed.push(Instant::now());
    }
    Ok(committed)
}

fn build_filing(number: u32) -> Filing {
    Filing {
        id: format!("{ID_PREFIX}{number:06}"),
        cvm_dataset: CvmDataset::Ipe,
        company_id: 1,
        company_name: "CARGA S.A.".into(),
        category: "Fato Relevante".into(),
        subject: format!("Carga {number}"),
        delivered_on: vintem_domain::dates::sao_paulo_date(Utc::now()),
        version: 1,
        ..Filing::default()
    }
}

fn list_total(request: &TimedRequest) -> Option<u64> {
    if request.path != LIST_PATH {
        return None;
    }
    serde_json::from_slice::<Value>(&request.body).ok()?["total"].as_u64()
}

/// How many loads a response includes, by its first row.
fn newest_load_number(request: &TimedRequest) -> Option<u64> {
    let body: Value = serde_json::from_slice(&request.body).ok()?;
    let id = body["data"][0]["id"].as_str()?;
    Some(id.strip_prefix(ID_PREFIX).map_or(0, |number| number.parse().unwrap_or(0)))
}

/// Counts responses whose first row, total and ETag belong to different snapshots.
fn count_mixed_responses(requests: &[TimedRequest], base: u64) -> usize {
    let mut total_by_etag: HashMap<&str, u64> = HashMap::new();
    let lists =
        requests.iter().filter_map(|request| Some((request, list_total(request)?, newest_load_number(request)?)));
    lists
        .filter(|(request, total, newest)| {
            let etag_total = *total_by_etag.entry(&request.etag).or_insert(*total);
            total - base != *newest || etag_total != *total
        })
        .count()
}

/// The longest time from a commit to the first answer that knows of it, in seconds.
fn max_visibility_delay(shots: &[TimedRequest], base: u64, committed: &[Instant]) -> f64 {
    let mut seen: Vec<(Instant, u64)> =
        shots.iter().filter_map(|shot| Some((shot.answered_at, list_total(shot)? - base))).collect();
    seen.sort_unstable();
    let waited = (1u64..).zip(committed).map(|(number, committed)| {
        let first = seen.iter().find(|(_, known)| *known >= number);
        // The last loads may be seen after the last shot; two seconds before the end all must be.
        first.map_or(0.0, |(at, _)| at.saturating_duration_since(*committed).as_secs_f64())
    });
    let missing = committed.len() as u64 - seen.iter().map(|(_, known)| *known).max().unwrap_or(0);
    let ended = shots.iter().map(|shot| shot.answered_at).max();
    let unseen_at_the_end = committed.iter().rev().take(missing as usize).map(|committed| {
        ended.map_or(f64::INFINITY, |ended| ended.saturating_duration_since(*committed).as_secs_f64())
    });
    waited.chain(unseen_at_the_end).fold(0.0, f64::max)
}

/// How many snapshots the replica has swapped in.
async fn fetch_swap_count(http: &reqwest::Client, admin_address: &str) -> anyhow::Result<u64> {
    let metrics = http.get(format!("http://{admin_address}/metrics")).send().await?.text().await?;
    let line = metrics.lines().find_map(|line| line.strip_prefix("vintem_snapshots_total "));
    Ok(line.context("no vintem_snapshots_total")?.trim().parse()?)
}
