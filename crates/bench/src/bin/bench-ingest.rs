//! Compares loading a year of filings into the store with a bare COPY of the same rows into the same table with the same
//! indexes: `just bench-ingest`. Both run alternately in one process, so that other load on the machine affects both.

use std::time::{Duration, Instant};

use anyhow::ensure;
use chrono::Utc;
use clap::Parser;
use vintem_domain::{CvmDataset, DataOrigin, Dataset};
use vintem_ingest::upstreams::cvm::parse_whole_archive;
use vintem_store::copy_buffer::CopyBuffer;
use vintem_store::load::{ArchivedResponse, Filing, NewFetch};
use vintem_store::tables::filing::FILING_TABLE;
use vintem_testkit::upstreams::{FakeUpstreamOptions, FakeUpstreams};
use vintem_testkit::{TestDatabase, http_client_builder};

/// Minimum share of a bare COPY's speed.
const MIN_RATIO_TO_COPY: f64 = 0.4;
const COPY_CHUNK_BYTES: usize = 1 << 20;

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
struct IngestTimes {
    rows: usize,
    reading: Duration,
    loading: Duration,
    copying: Duration,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let options =
        FakeUpstreamOptions { ipe_rows_per_year: arguments.rows, companies: 2_500, ..FakeUpstreamOptions::default() };
    let upstreams = FakeUpstreams::start(options)?;
    let http = http_client_builder().build()?;
    let load_database = TestDatabase::create_empty().await?;
    let copy_database = TestDatabase::create_empty().await?;

    let mut times = IngestTimes::default();
    for year in (2025 - arguments.years + 1)..=2025 {
        let source_url = format!("{}/dados/CIA_ABERTA/DOC/IPE/DADOS/ipe_cia_aberta_{year}.zip", upstreams.cvm_url());
        let archive = http.get(&source_url).send().await?.error_for_status()?.bytes().await?;

        let started = Instant::now();
        let filings = parse_whole_archive(&archive, CvmDataset::Ipe, year, Utc::now().date_naive())?.filings;
        times.reading += started.elapsed();
        times.rows += filings.parsed.rows.len();

        let response =
            ArchivedResponse { status: 200, content_type: "application/zip".into(), body: filings.archived_body };
        let fetch = NewFetch { source_url, fetched_at: Utc::now(), sha256: filings.sha256, response: Some(response) };
        let rows = &filings.parsed.rows;
        // The first of the two finds the disk busier, so they take turns.
        if year % 2 == 0 {
            times.loading += time_load(&load_database, &fetch, rows, year).await?;
            times.copying += time_bare_copy(&copy_database, rows).await?;
        } else {
            times.copying += time_bare_copy(&copy_database, rows).await?;
            times.loading += time_load(&load_database, &fetch, rows, year).await?;
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
    ensure!(ratio >= MIN_RATIO_TO_COPY, "less than {MIN_RATIO_TO_COPY} of a bare COPY");
    Ok(())
}

/// Loads as ingestion does: stage, compare with the existing rows, append, archive.
async fn time_load(database: &TestDatabase, fetch: &NewFetch, rows: &[Filing], year: i32) -> anyhow::Result<Duration> {
    let store = database.open_store()?;
    store.ping().await?;

    let started = Instant::now();
    let mut load = store.begin_load(Dataset::Filings, DataOrigin::Real, fetch).await?;
    load.append_full_filings(rows, CvmDataset::Ipe, year).await?;
    let appended = load.commit().await?;
    ensure!(appended == rows.len() as u64, "{appended} of {} rows were appended", rows.len());
    Ok(started.elapsed())
}

/// Copies the same rows straight into the table.
async fn time_bare_copy(database: &TestDatabase, rows: &[Filing]) -> anyhow::Result<Duration> {
    let mut connection = database.connect().await?;
    let fetch_id: i64 = sqlx::query_scalar(
        "insert into raw_fetch (dataset, address, fetched_at, sha256)
         values ('filings', gen_random_uuid()::text, now(), sha256('x'))
         returning id",
    )
    .fetch_one(&mut connection)
    .await?;

    let started = Instant::now();
    let copy = format!("copy filing_version ({}, known_at, fetch_id) from stdin", FILING_TABLE.column_names());
    let mut sink = connection.copy_in_raw(&copy).await?;
    let mut buffer = CopyBuffer::default();
    let now = Utc::now().naive_utc();
    for row in rows {
        FILING_TABLE.write_fields(row, &mut buffer);
        buffer.date_time(now).integer(fetch_id).end_row();
        if buffer.len() >= COPY_CHUNK_BYTES {
            sink.send(buffer.take_bytes()).await?;
        }
    }
    sink.send(buffer.take_bytes()).await?;
    sink.finish().await?;
    Ok(started.elapsed())
}
