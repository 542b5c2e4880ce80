//! A million filings as CSV through HTTP, beside a bare `COPY … TO STDOUT csv` of the same rows: `just bench-export`.
//!
//! The rows stand in a table of their own in the order in which the service gives them, so that COPY has nothing to do but
//! to write them. Both are read to their end by one client that keeps the bytes; what they hold is looked at afterwards.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use futures_util::TryStreamExt;
use sqlx::{Connection, PgConnection};
use vintem_testkit::http_client;

const LEAST_RATIO: f64 = 0.6;
const MOST_MEMORY_BYTES: u64 = 64 << 20;
const MOST_FIRST_BYTE: Duration = Duration::from_millis(200);

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

/// The rows that the service lists, as it lists them; the texts that it puts together are put together here as well.
const SAME_ROWS: &str = "
    create unlogged table exported as
    select id, cvm_code::text as company_id, company_name, category,
           to_char(delivered_on, 'YYYY-MM-DD') || 'T00:00:00-03:00' as date,
           case when subject <> '' then subject else doc_type || ' - ' || kind end as description,
           doc_type, kind, reference_date, version, true as is_latest, protocol, url, 'CVM ' || upper(filing_set) as source
    from filing_version
    where not absent
    order by delivered_on desc, id desc
    limit ";

/// What one of the two gave, and how fast.
struct Got {
    bytes: Vec<u8>,
    first_byte: Duration,
    whole: Duration,
}

impl Got {
    fn megabytes_a_second(&self) -> f64 {
        self.bytes.len() as f64 / 1e6 / self.whole.as_secs_f64()
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut database = PgConnection::connect(&arguments.database_url).await?;
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("{SAME_ROWS}{}", arguments.rows))).execute(&mut database).await?;
    let http = http_client().build()?;
    let exported = async || export(&http, &arguments).await;

    // Once for both, so that all is warm and the rows are seen to be the same.
    let (theirs, ours) = (copy(&mut database).await?, exported().await?);
    let ids = ids(&ours.bytes, true)?;
    ensure!(ids.len() == arguments.rows, "{} rows of {}", ids.len(), arguments.rows);
    ensure!(ids == self::ids(&theirs.bytes, false)?, "these are not the same rows in the same order");

    let (mut ratios, mut rates, mut first_byte, mut memory) = (Vec::new(), Vec::new(), Duration::ZERO, 0);
    for _ in 0..arguments.pairs {
        let theirs = copy(&mut database).await?.megabytes_a_second();
        let before = begin_to_watch_memory(arguments.process)?;
        let ours = exported().await?;
        memory = memory.max(status_bytes(arguments.process, "VmHWM")?.saturating_sub(before));
        first_byte = first_byte.max(ours.first_byte);
        rates.push((ours.megabytes_a_second(), theirs));
        ratios.push(ours.megabytes_a_second() / theirs);
    }
    ratios.sort_by(f64::total_cmp);
    rates.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (middle, ratio) = (rates[rates.len() / 2], ratios[ratios.len() / 2]);
    println!("rows: {}", ids.len());
    println!("megabytes: {:.0}", ours.bytes.len() as f64 / 1e6);
    println!("megabytes_a_second: {:.0}", middle.0);
    println!("copy_megabytes_a_second: {:.0}", middle.1);
    println!("first_byte_milliseconds: {:.1}", first_byte.as_secs_f64() * 1e3);
    println!("extra_memory_mib: {:.1}", memory as f64 / f64::from(1 << 20));
    println!("ratio_to_copy: {ratio:.2}");
    ensure!(memory < MOST_MEMORY_BYTES, "it took more memory than it may");
    ensure!(first_byte <= MOST_FIRST_BYTE, "the first byte came too late");
    ensure!(ratio >= LEAST_RATIO, "less than {LEAST_RATIO} of a bare COPY");
    Ok(())
}

async fn copy(database: &mut PgConnection) -> anyhow::Result<Got> {
    let (began, mut first_byte, mut bytes) = (Instant::now(), None, Vec::new());
    let mut rows = database.copy_out_raw("copy (select * from exported) to stdout csv").await?;
    while let Some(chunk) = rows.try_next().await? {
        first_byte.get_or_insert_with(|| began.elapsed());
        bytes.extend(chunk);
    }
    Ok(Got { bytes, first_byte: first_byte.context("no byte")?, whole: began.elapsed() })
}

async fn export(http: &reqwest::Client, arguments: &Arguments) -> anyhow::Result<Got> {
    let (began, mut first_byte, mut bytes) = (Instant::now(), None, Vec::new());
    let address = format!("{}/api/v1/filings?format=csv&limit={}", arguments.url, arguments.rows);
    let mut answer = http.get(address).header("X-API-Key", &arguments.key).send().await?.error_for_status()?;
    while let Some(chunk) = answer.chunk().await? {
        first_byte.get_or_insert_with(|| began.elapsed());
        bytes.extend(chunk);
    }
    Ok(Got { bytes, first_byte: first_byte.context("no byte")?, whole: began.elapsed() })
}

/// The first cell of each row.
fn ids(bytes: &[u8], has_headers: bool) -> anyhow::Result<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(has_headers).from_reader(bytes);
    reader.records().map(|row| Ok(row?.get(0).unwrap_or_default().to_owned())).collect()
}

/// What the process has now; its highest is reckoned anew from here on.
fn begin_to_watch_memory(process: u32) -> anyhow::Result<u64> {
    std::fs::write(format!("/proc/{process}/clear_refs"), "5")?;
    status_bytes(process, "VmRSS")
}

fn status_bytes(process: u32, name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
    let kibibytes: u64 = line.trim_start_matches(':').trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes << 10)
}
