//! A served replica under a steady load while filings are loaded: `just loads`.
//!
//! Each load brings one filing, newer than all before it. So the first row of the list tells how many loads an answer
//! knows of, and its total and its ETag must tell the same.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use chrono::Utc;
use clap::Parser;
use serde_json::Value;
use vintem_domain::{Dataset, Filing, FilingSet, Origin};
use vintem_store::load::Fetch;
use vintem_store::{Deadlines, Store};
use vintem_testkit::http_client;
use vintem_testkit::pace::{Shot, percentile, shoot};

const LIST: &str = "/api/v1/filings?limit=20";
/// What our ids begin with: after those of all others on the same day.
const ID: &str = "zz-load-";
/// A load is seen within this.
const MOST_SECONDS_UNSEEN: f64 = 2.0;

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
    most_p99_ratio: Option<f64>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let (http, store) = (http_client().build()?, Store::open(&arguments.database_url, 2, Deadlines::of_workers())?);
    let paths = paths();
    let time = Duration::from_secs(arguments.seconds);
    let shots = |time| shoot(&http, &arguments.address, &arguments.key, &paths, arguments.rate, time);
    let quiet = shots(time / 2).await;
    let base = quiet.iter().find_map(total).context("no list was answered")?;
    let swaps_before = swaps(&http, &arguments.admin_address).await?;
    let (busy, loaded) = tokio::join!(shots(time), load(&store, &arguments));
    let loaded = loaded?;
    let swaps = swaps(&http, &arguments.admin_address).await? - swaps_before;

    let failed = quiet.iter().chain(&busy).filter(|shot| shot.status != Some(200)).count();
    let mixed = mixed(&busy, base);
    let unseen = slowest_to_be_seen(&busy, base, &loaded);
    let (calm, under_load) =
        (percentile(quiet.iter().map(Shot::latency), 99), percentile(busy.iter().map(Shot::latency), 99));
    let ratio = under_load.as_secs_f64() / calm.as_secs_f64();
    println!("requests: {}", quiet.len() + busy.len());
    println!("loads: {}", loaded.len());
    println!("swaps: {swaps}");
    println!("p50_milliseconds: {:.2}", percentile(busy.iter().map(Shot::latency), 50).as_secs_f64() * 1e3);
    println!("p99_milliseconds_without_loads: {:.2}", calm.as_secs_f64() * 1e3);
    println!("p99_milliseconds: {:.2}", under_load.as_secs_f64() * 1e3);
    println!("seconds_until_seen: {unseen:.2}");
    println!("p99_ratio: {ratio:.2}");
    println!("failed: {failed}");
    println!("mixed: {mixed}");
    ensure!(failed == 0, "{failed} requests were not answered by 200");
    ensure!(mixed == 0, "{mixed} answers mix generations");
    ensure!(unseen <= MOST_SECONDS_UNSEEN, "a load was seen only after {unseen:.2} s");
    // A swap a second at most, and a third of that at least.
    let (least, most) = (arguments.seconds / 3, arguments.seconds);
    ensure!((least..=most).contains(&swaps), "{swaps} swaps are not between {least} and {most}");
    if let Some(most) = arguments.most_p99_ratio {
        ensure!(ratio <= most, "the slowest of a hundred take {ratio:.2} times as long");
    }
    Ok(())
}

/// Lists half of the time, and whatever else people ask for.
fn paths() -> Vec<String> {
    let others = [
        "/api/v1/market/overview",
        "/api/v1/companies?limit=20",
        "/api/v1/filings/search?q=dividendos",
        "/api/v1/filings?category=Fato%20Relevante&offset=1000",
        "/api/v1/companies/search?q=serra",
        "/api/v1/market/selic?limit=100",
    ];
    others.iter().flat_map(|other| [LIST.to_owned(), (*other).to_owned()]).collect()
}

/// When each load was committed.
async fn load(store: &Store, arguments: &Arguments) -> anyhow::Result<Vec<Instant>> {
    let mut ticks = tokio::time::interval(Duration::from_secs(arguments.seconds) / (arguments.loads + 1));
    let mut committed = Vec::new();
    for number in 1..=arguments.loads {
        ticks.tick().await;
        let fetch = Fetch::made_here(format!("load:{number}"), Utc::now(), [1; 32]);
        let mut load = store.begin_load(Dataset::Filings, Origin::Synthetic, &fetch).await?;
        load.append_filings(&[filing(number)]).await?;
        load.commit().await?;
        committed.push(Instant::now());
    }
    Ok(committed)
}

fn filing(number: u32) -> Filing {
    Filing {
        id: format!("{ID}{number:06}"),
        set: FilingSet::Ipe,
        company_id: 1,
        company_name: "CARGA S.A.".into(),
        category: "Fato Relevante".into(),
        doc_type: String::new(),
        kind: String::new(),
        subject: format!("Carga {number}"),
        delivered_on: vintem_domain::dates::sao_paulo_day(Utc::now()),
        reference_date: None,
        version: 1,
        protocol: String::new(),
        url: String::new(),
    }
}

fn total(shot: &Shot) -> Option<u64> {
    if shot.path != LIST {
        return None;
    }
    serde_json::from_slice::<Value>(&shot.body).ok()?["total"].as_u64()
}

/// How many loads an answer knows of, by its first row.
fn newest(shot: &Shot) -> Option<u64> {
    let body: Value = serde_json::from_slice(&shot.body).ok()?;
    let id = body["data"][0]["id"].as_str()?;
    Some(id.strip_prefix(ID).map_or(0, |number| number.parse().unwrap_or(0)))
}

/// Answers whose first row, total and ETag do not belong together.
fn mixed(shots: &[Shot], base: u64) -> usize {
    let mut by_etag: HashMap<&str, u64> = HashMap::new();
    let lists = shots.iter().filter_map(|shot| Some((shot, total(shot)?, newest(shot)?)));
    lists
        .filter(|(shot, total, newest)| {
            let of_etag = *by_etag.entry(&shot.etag).or_insert(*total);
            total - base != *newest || of_etag != *total
        })
        .count()
}

/// The longest time from a commit to the first answer that knows of it, in seconds.
fn slowest_to_be_seen(shots: &[Shot], base: u64, committed: &[Instant]) -> f64 {
    let mut seen: Vec<(Instant, u64)> =
        shots.iter().filter_map(|shot| Some((shot.answered, total(shot)? - base))).collect();
    seen.sort_unstable();
    let waited = (1u64..).zip(committed).map(|(number, committed)| {
        let first = seen.iter().find(|(_, known)| *known >= number);
        // The last loads may be seen after the last shot; two seconds before the end all must be.
        first.map_or(0.0, |(at, _)| at.saturating_duration_since(*committed).as_secs_f64())
    });
    let missing = committed.len() as u64 - seen.iter().map(|(_, known)| *known).max().unwrap_or(0);
    let ended = shots.iter().map(|shot| shot.answered).max();
    let unseen_at_the_end = committed.iter().rev().take(missing as usize).map(|committed| {
        ended.map_or(f64::INFINITY, |ended| ended.saturating_duration_since(*committed).as_secs_f64())
    });
    waited.chain(unseen_at_the_end).fold(0.0, f64::max)
}

/// How many snapshots were put in place.
async fn swaps(http: &reqwest::Client, admin_address: &str) -> anyhow::Result<u64> {
    let metrics = http.get(format!("http://{admin_address}/metrics")).send().await?.text().await?;
    let line = metrics.lines().find_map(|line| line.strip_prefix("vintem_snapshots_total "));
    Ok(line.context("no vintem_snapshots_total")?.trim().parse()?)
}
