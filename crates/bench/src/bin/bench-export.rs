//! Compares a CSV export of a million filings over HTTP with a bare `COPY … TO STDOUT csv` of the same rows:
//! `just bench-export`.
//!
//! The rows are in a table of their own in the order in which the service lists them, so that COPY only has to write
//! them. One client reads both to the end and keeps the bytes; their contents are compared afterwards.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use futures_util::TryStreamExt;
use sqlx::{Connection, PgConnection};
use vintem_bench::process_memory::read_proc_status_bytes;
use vintem_testkit::http_client_builder;

const MIN_RATIO_TO_COPY: f64 = 0.6;
const MAX_EXTRA_MEMORY_BYTES: u64 = 64 << 20;
const MAX_TIME_TO_FIRST_BYTE: Duration = Duration::from_millis(200);

#[derive(Debug, Parser)]
struct Arguments {
    /// Where the service is
    #[arg(long)]
    url: String,

    /// Its process
    #[arg(long)]
    process: u32,

    /// A Platinum key
    #[arg(long)]
    key: String,

    #[arg(long)]
    database_url: String,

    #[arg(long, default_value_t = 1_000_000)]
    rows: usize,

    /// How often each is measured, in turns
    #[arg(long, default_value_t = 5)]
    pairs: usize,
}

/// The rows that the service lists, in the same order; texts that it composes are composed here as well.
const CREATE_EXPORTED_TABLE: &str = "
    create unlogged table exported as
    select id, cvm_code::text as company_id, company_name, category,
           to_char(delivered_on, 'YYYY-MM-DD') || 'T00:00:00-03:00' as date,
           case when subject <> '' then subject else doc_type || ' - ' || kind end as description,
           doc_type, kind, reference_date, version, true as is_latest, protocol, url, 'CVM ' || upper(filing_set) as source
    from filing_version
    where not absent
    order by delivered_on desc, id desc
    limit ";

/// The bytes of one download and its times.
struct Download {
    bytes: Vec<u8>,
    time_to_first_byte: Duration,
    total_time: Duration,
}

impl Download {
    fn megabytes_per_second(&self) -> f64 {
        self.bytes.len() as f64 / 1e6 / self.total_time.as_secs_f64()
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut database = PgConnection::connect(&arguments.database_url).await?;
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("{CREATE_EXPORTED_TABLE}{}", arguments.rows)))
        .execute(&mut database)
        .await?;
    let http = http_client_builder().build()?;
    let download = async || download_by_http(&http, &arguments).await;

    // One unmeasured run of each warms both up and shows that the rows are the same.
    let theirs = download_by_copy(&mut database).await?;
    let ours = download().await?;
    let ids = parse_ids(&ours.bytes, true)?;
    ensure!(ids.len() == arguments.rows, "{} rows of {}", ids.len(), arguments.rows);
    ensure!(ids == parse_ids(&theirs.bytes, false)?, "these are not the same rows in the same order");

    let mut ratios = Vec::new();
    let mut rates = Vec::new();
    let mut max_first_byte = Duration::ZERO;
    let mut max_memory = 0;
    for _ in 0..arguments.pairs {
        let theirs = download_by_copy(&mut database).await?.megabytes_per_second();
        let before = reset_peak_memory(arguments.process)?;
        let ours = download().await?;
        max_memory = max_memory.max(read_proc_status_bytes(arguments.process, "VmHWM")?.saturating_sub(before));
        max_first_byte = max_first_byte.max(ours.time_to_first_byte);
        rates.push((ours.megabytes_per_second(), theirs));
        ratios.push(ours.megabytes_per_second() / theirs);
    }
    ratios.sort_by(f64::total_cmp);
    rates.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (rate, copy_rate) = rates[rates.len() / 2];
    let ratio = ratios[ratios.len() / 2];

    println!("rows: {}", ids.len());
    println!("megabytes: {:.0}", ours.bytes.len() as f64 / 1e6);
    println!("megabytes_a_second: {rate:.0}");
    println!("copy_megabytes_a_second: {copy_rate:.0}");
    println!("first_byte_milliseconds: {:.1}", max_first_byte.as_secs_f64() * 1e3);
    println!("extra_memory_mib: {:.1}", max_memory as f64 / f64::from(1 << 20));
    println!("ratio_to_copy: {ratio:.2}");

    ensure!(max_memory < MAX_EXTRA_MEMORY_BYTES, "it took more memory than it may");
    ensure!(max_first_byte <= MAX_TIME_TO_FIRST_BYTE, "the first byte came too late");
    ensure!(ratio >= MIN_RATIO_TO_COPY, "less than {MIN_RATIO_TO_COPY} of a bare COPY");
    Ok(())
}

async fn download_by_copy(database: &mut PgConnection) -> anyhow::Result<Download> {
    let started = Instant::now();
    let mut first_byte = None;
    let mut bytes = Vec::new();
    let mut rows = database.copy_out_raw("copy (select * from exported) to stdout csv").await?;
    while let Some(chunk) = rows.try_next().await? {
        first_byte.get_or_insert_with(|| started.elapsed());
        bytes.extend(chunk);
    }
    Ok(Download { bytes, time_to_first_byte: first_byte.context("no byte")?, total_time: started.elapsed() })
}

async fn download_by_http(http: &reqwest::Client, arguments: &Arguments) -> anyhow::Result<Download> {
    let started = Instant::now();
    let mut first_byte = None;
    let mut bytes = Vec::new();

    let url = format!("{}/api/v1/filings?format=csv&limit={}", arguments.url, arguments.rows);
    let mut response = http.get(url).header("X-API-Key", &arguments.key).send().await?.error_for_status()?;
    while let Some(chunk) = response.chunk().await? {
        first_byte.get_or_insert_with(|| started.elapsed());
        bytes.extend(chunk);
    }
    Ok(Download { bytes, time_to_first_byte: first_byte.context("no byte")?, total_time: started.elapsed() })
}

/// Reads the first cell of each row.
fn parse_ids(bytes: &[u8], has_headers: bool) -> anyhow::Result<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(has_headers).from_reader(bytes);
    reader.records().map(|row| Ok(row?.get(0).unwrap_or_default().to_owned())).collect()
}

/// Resets the peak memory of a process and returns its current memory.
fn reset_peak_memory(pid: u32) -> anyhow::Result<u64> {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
    read_proc_status_bytes(pid, "VmRSS")
}
