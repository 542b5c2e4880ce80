//! How fast a year of filings enters the store, beside a bare COPY of the same rows into the same table with the same
//! indexes: `just bench-ingest`. Both in one run and in turns, so that what else the machine does meets both.

use std::time::{Duration, Instant};

use anyhow::ensure;
use chrono::Utc;
use clap::Parser;
use vintem_domain::{Dataset, Filing, FilingSet, Origin};
use vintem_ingest::upstreams::cvm::read_year;
use vintem_store::copy::CopyBuffer;
use vintem_store::load::{Fetch, Received};
use vintem_testkit::upstreams::{UpstreamOptions, Upstreams};
use vintem_testkit::{TestDatabase, http_client};

/// The least share of a bare COPY's speed.
const LEAST_RATIO: f64 = 0.4;
const PIECE_BYTES: usize = 1 << 20;

#[derive(Debug, Parser)]
struct Arguments {
    /// How many years
    #[arg(long, default_value_t = 8)]
    years: i32,

    /// Rows a year
    #[arg(long, default_value_t = 45_000)]
    rows: usize,
}

#[derive(Debug, Default)]
struct Times {
    rows: usize,
    reading: Duration,
    loading: Duration,
    copying: Duration,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let options = UpstreamOptions { ipe_rows_per_year: arguments.rows, companies: 2_500, ..UpstreamOptions::default() };
    let (upstreams, http) = (Upstreams::start(options)?, http_client().build()?);
    let (ours, bare) = (TestDatabase::empty().await?, TestDatabase::empty().await?);
    let mut times = Times::default();
    for year in (2025 - arguments.years + 1)..=2025 {
        let address = format!("{}/dados/CIA_ABERTA/DOC/IPE/DADOS/ipe_cia_aberta_{year}.zip", upstreams.cvm_url());
        let archive = http.get(&address).send().await?.error_for_status()?.bytes().await?;
        let began = Instant::now();
        let read = read_year(&archive, FilingSet::Ipe, year, Utc::now().date_naive())?.filings;
        times.reading += began.elapsed();
        times.rows += read.read.rows.len();
        let received = Received { status: 200, content_type: "application/zip".into(), body: read.kept };
        let fetch = Fetch { address, fetched_at: Utc::now(), sha256: read.sha256, received: Some(received) };
        // Whoever goes first finds the disk busier: they take turns.
        if year % 2 == 0 {
            times.loading += load(&ours, &fetch, &read.read.rows, year).await?;
            times.copying += copy(&bare, &read.read.rows).await?;
        } else {
            times.copying += copy(&bare, &read.read.rows).await?;
            times.loading += load(&ours, &fetch, &read.read.rows, year).await?;
        }
    }
    let per_second = |time: Duration| times.rows as f64 / time.as_secs_f64();
    let ratio = per_second(times.loading) / per_second(times.copying);
    println!("rows: {}", times.rows);
    println!("read_rows_a_second: {:.0}", per_second(times.reading));
    println!("load_rows_a_second: {:.0}", per_second(times.loading));
    println!("copy_rows_a_second: {:.0}", per_second(times.copying));
    println!("ratio_with_reading: {:.2}", per_second(times.loading + times.reading) / per_second(times.copying));
    println!("ratio: {ratio:.2}");
    ensure!(ratio >= LEAST_RATIO, "less than {LEAST_RATIO} of a bare COPY");
    Ok(())
}

/// As ingestion does it: staged, compared with what is there, appended, archived.
async fn load(database: &TestDatabase, fetch: &Fetch, rows: &[Filing], year: i32) -> anyhow::Result<Duration> {
    let store = database.store()?;
    store.ping().await?;
    let began = Instant::now();
    let mut load = store.begin_load(Dataset::Filings, Origin::Real, fetch).await?;
    load.append_whole_filings(rows, FilingSet::Ipe, year).await?;
    let appended = load.commit().await?;
    ensure!(appended == rows.len() as u64, "{appended} of {} rows were appended", rows.len());
    Ok(began.elapsed())
}

/// The same rows straight into the table.
async fn copy(database: &TestDatabase, rows: &[Filing]) -> anyhow::Result<Duration> {
    let mut connection = database.connect().await?;
    let fetch_id: i64 = sqlx::query_scalar(
        "insert into raw_fetch (dataset, address, fetched_at, sha256)
         values ('filings', gen_random_uuid()::text, now(), sha256('x'))
         returning id",
    )
    .fetch_one(&mut connection)
    .await?;
    let began = Instant::now();
    let mut sink = connection
        .copy_in_raw(
            "copy filing_version (id, known_at, filing_set, cvm_code, company_name, category, doc_type, kind, subject,
                                  delivered_on, reference_date, version, protocol, url, fetch_id)
             from stdin",
        )
        .await?;
    let (mut buffer, now) = (CopyBuffer::default(), Utc::now().naive_utc());
    for row in rows {
        buffer
            .text(&row.id)
            .date_time(now)
            .text(row.set.id())
            .integer(row.company_id)
            .text(&row.company_name)
            .text(&row.category)
            .text(&row.doc_type)
            .text(&row.kind)
            .text(&row.subject)
            .date(row.delivered_on)
            .optional_date(row.reference_date)
            .integer(row.version)
            .text(&row.protocol)
            .text(&row.url)
            .integer(fetch_id)
            .end();
        if buffer.len() >= PIECE_BYTES {
            sink.send(buffer.take()).await?;
        }
    }
    sink.send(buffer.take()).await?;
    sink.finish().await?;
    Ok(began.elapsed())
}
