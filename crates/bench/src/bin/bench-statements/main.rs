//! Measures requests for five years of one statement of one company, at the size of the country and at a fixed rate, and
//! compares them with the same query on one PostgreSQL table of account rows: `just bench-statements`.
//!
//! First the local file with the documents is in the page cache; then it has been dropped from it.

mod generated;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use chrono::{NaiveDate, NaiveTime};
use clap::Parser;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use sqlx::{PgConnection, Row};
use vintem_bench::open_loop::{LoadSample, run_open_loop};
use vintem_domain::statement::Statement;
use vintem_domain::{CompanyId, DataOrigin, Dataset, Plan};
use vintem_ingest::demo::{self, DemoSize};
use vintem_store::Store;
use vintem_store::copy_buffer::CopyBuffer;
use vintem_store::load::NewFetch;
use vintem_testkit::timed_requests::percentile;
use vintem_testkit::{DedicatedRedis, HIGH_LIMIT_FLAGS, ServerProcess, TempDirectory, TestDatabase, create_key};

use generated::{
    CREATE_ACCOUNT_TABLE, GeneratedDocument, INDEX_ACCOUNT_TABLE, LAST_YEAR, SELECT_FIVE_YEARS, generate_documents,
};

const MAX_WARM_P99_MS: f64 = 5.0;
const MAX_COLD_P99_MS: f64 = 25.0;
const CONNECTIONS: usize = 16;
const WARM_UP_REQUESTS: usize = 200;
const COMPANIES_PER_BATCH: usize = 8;
const STATEMENTS: [Statement; 4] =
    [Statement::BalanceSheetAssets, Statement::BalanceSheetLiabilities, Statement::Income, Statement::CashFlow];

#[derive(Debug, Parser)]
struct Arguments {
    /// The service's binary
    #[arg(long, default_value = "target/release/vintem")]
    vintem: PathBuf,

    /// Companies with 64 documents each
    #[arg(long, default_value_t = 675)]
    companies: usize,

    /// Filings of all kinds beside them
    #[arg(long, default_value_t = 1_100_000)]
    filings: usize,

    /// Requests per second
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let today = NaiveDate::from_ymd_opt(LAST_YEAR + 1, 11, 13).context("a day")?;
    let size = DemoSize { filings: arguments.filings, companies: 2_600, until: today };
    demo::load_demo_data(&store, &size, today.and_time(NaiveTime::MIN).and_utc(), &|_, _, _| ()).await?;

    let mut connection = database.connect().await?;
    let companies = companies_without_statements(&mut connection, arguments.companies).await?;
    let rows = fill(&store, &mut connection, &companies).await?;
    let sizes = measure_sizes(&mut connection).await?;

    let redis = DedicatedRedis::start()?;
    let (_, key) = create_key(&store, Plan::Gold).await?;
    let data_directory = TempDirectory::create()?;
    let data_path = data_directory.path().to_str().context("a path")?.to_owned();
    let environment = [("VINTEM_DATA_DIR", &*data_path)];
    let service = ServerProcess::start_with_env(
        &arguments.vintem,
        &database.url(),
        &redis.url(),
        &HIGH_LIMIT_FLAGS,
        &environment,
    )?;
    let address: SocketAddr = service.address.parse()?;
    let body_file = find_body_file(data_directory.path())?;

    // No request is one that the response cache has seen, and no two cold ones read the same documents.
    let (mut cold_queries, mut warm_queries) = (Vec::new(), Vec::new());
    for (number, company) in companies.iter().enumerate() {
        let of_company = STATEMENTS.map(|statement| (*company, statement));
        for (index, query) in of_company.into_iter().enumerate() {
            let queries = if index == number % STATEMENTS.len() { &mut cold_queries } else { &mut warm_queries };
            queries.push(query);
        }
    }
    let mut random = StdRng::seed_from_u64(1);
    cold_queries.shuffle(&mut random);
    warm_queries.shuffle(&mut random);
    read_whole_file(&body_file)?;
    // Connections, pools and code are warm, too, and the copy of the snapshot is written.
    wait_for_snapshot_copy(data_directory.path())?;
    let (warm_up, warm_queries) = warm_queries.split_at(WARM_UP_REQUESTS.min(warm_queries.len() / 4));
    send_queries(address, &key, warm_up, arguments.rate).await?;
    let warm = send_queries(address, &key, warm_queries, arguments.rate).await?;
    drop_from_page_cache(&body_file)?;
    let cold = send_queries(address, &key, &cold_queries, arguments.rate).await?;

    let by_sql = time_queries(&mut connection, warm_queries).await?;
    let sql_p50 = percentile(by_sql.iter().copied(), 50);
    println!("documents: {}", companies.len() * 64);
    println!("account_rows: {rows}");
    println!("documents_mb: {:.0}", sizes.documents as f64 / 1e6);
    println!("account_table_mb: {:.0}", sizes.account_table as f64 / 1e6);
    println!("warm_p50_ms: {:.2}", percentile_ms(&warm, 50));
    println!("cold_p50_ms: {:.2}", percentile_ms(&cold, 50));
    println!("account_table_p50_ms: {:.2}", sql_p50.as_secs_f64() * 1_000.0);
    println!("size_ratio: {:.1}", sizes.account_table as f64 / sizes.documents as f64);
    println!("account_table_to_ours: {:.2}", sql_p50.as_secs_f64() * 1_000.0 / percentile_ms(&warm, 50));
    println!("cold_p99_ms: {:.2}", percentile_ms(&cold, 99));
    println!("warm_p99_ms: {:.2}", percentile_ms(&warm, 99));
    ensure!(percentile_ms(&warm, 99) <= MAX_WARM_P99_MS, "warm requests take longer than {MAX_WARM_P99_MS} ms");
    ensure!(percentile_ms(&cold, 99) <= MAX_COLD_P99_MS, "cold requests take longer than {MAX_COLD_P99_MS} ms");
    Ok(())
}

async fn companies_without_statements(connection: &mut PgConnection, count: usize) -> anyhow::Result<Vec<CompanyId>> {
    let codes: Vec<i32> = sqlx::query_scalar(
        "select distinct cvm_code::integer
         from company_version
         where cvm_code not in (select cvm_code from statement_document)
         order by 1
         limit $1",
    )
    .bind(i64::try_from(count)?)
    .fetch_all(connection)
    .await?;
    ensure!(codes.len() == count, "the demo has too few companies");
    codes.into_iter().map(|code| Ok(CompanyId::try_from(code)?)).collect()
}

/// Stores the documents, their filings, and the table of account rows. Returns the number of account rows.
async fn fill(store: &Store, connection: &mut PgConnection, companies: &[CompanyId]) -> anyhow::Result<u64> {
    let fetch = |name: &str| NewFetch::without_response(format!("bench:{name}"), chrono::Utc::now(), [1; 32]);
    let mut statements = store.begin_load(Dataset::Statements, DataOrigin::Synthetic, &fetch("statements")).await?;
    let mut filings = Vec::new();
    let mut rows = 0;
    sqlx::raw_sql(CREATE_ACCOUNT_TABLE).execute(&mut *connection).await?;
    for batch in companies.chunks(COMPANIES_PER_BATCH) {
        let generated: Vec<GeneratedDocument> = batch.iter().copied().flat_map(generate_documents).collect();
        let mut buffer = CopyBuffer::default();
        generated.iter().for_each(|document| document.copy_rows(&mut buffer));
        let mut sink = connection.copy_in_raw("copy account_row from stdin").await?;
        sink.send(buffer.take_bytes()).await?;
        sink.finish().await?;

        let mut documents = Vec::new();
        for GeneratedDocument { document, filing, .. } in generated {
            rows += u64::from(document.row_count);
            documents.push(document);
            filings.push(filing);
        }
        statements.append_statements(&documents).await?;
    }
    statements.commit().await?;

    let mut load = store.begin_load(Dataset::Filings, DataOrigin::Synthetic, &fetch("filings")).await?;
    load.append_filings(&filings).await?;
    load.commit().await?;
    sqlx::raw_sql(INDEX_ACCOUNT_TABLE).execute(&mut *connection).await?;
    sqlx::raw_sql("vacuum analyze account_row").execute(&mut *connection).await?;
    Ok(rows)
}

/// Bytes on the disks of PostgreSQL.
struct StoredSizes {
    documents: i64,
    account_table: i64,
}

async fn measure_sizes(connection: &mut PgConnection) -> anyhow::Result<StoredSizes> {
    let row = sqlx::query(
        "select pg_total_relation_size('statement_document') + pg_total_relation_size('raw_body') as documents,
                pg_total_relation_size('account_row') as account_table",
    )
    .fetch_one(connection)
    .await?;
    Ok(StoredSizes { documents: row.try_get("documents")?, account_table: row.try_get("account_table")? })
}

fn first_day() -> NaiveDate {
    NaiveDate::from_ymd_opt(LAST_YEAR - 4, 1, 1).expect("a day of the calendar")
}

fn last_day() -> NaiveDate {
    NaiveDate::from_ymd_opt(LAST_YEAR, 12, 31).expect("a day of the calendar")
}

async fn send_queries(
    address: SocketAddr,
    key: &str,
    queries: &[(CompanyId, Statement)],
    rate: f64,
) -> anyhow::Result<Vec<LoadSample>> {
    let request = |(company, statement): &(CompanyId, Statement)| {
        format!(
            "GET /api/v1/companies/{company}/statements?statement={}&scope=consolidated&period=annual&from={}&to={}&limit=1000 \
             HTTP/1.1\r\nHost: vintem.example\r\nX-API-Key: {key}\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n\
             User-Agent: python-requests/2.32\r\nConnection: keep-alive\r\n\r\n",
            statement.id(),
            first_day(),
            last_day()
        )
        .into_bytes()
    };
    let requests: Arc<Vec<Vec<u8>>> = Arc::new(queries.iter().map(request).collect());
    let time = Duration::from_secs_f64(requests.len() as f64 / rate);
    let samples = run_open_loop(address, &requests, CONNECTIONS, rate, time).await;
    let failed: Vec<u16> = samples.iter().map(|sample| sample.status).filter(|status| *status != 200).collect();
    ensure!(failed.is_empty(), "{} of {} requests failed with status {failed:?}", failed.len(), samples.len());
    Ok(samples)
}

fn percentile_ms(samples: &[LoadSample], percent: usize) -> f64 {
    percentile(samples.iter().map(|sample| sample.latency), percent).as_secs_f64() * 1_000.0
}

/// One after the other on one connection; the statement is prepared once. A first pass warms PostgreSQL's cache.
async fn time_queries(
    connection: &mut PgConnection,
    queries: &[(CompanyId, Statement)],
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..2 {
        times.clear();
        for (company, statement) in queries {
            let started = Instant::now();
            let rows = sqlx::query(SELECT_FIVE_YEARS)
                .bind(i32::try_from(*company)?)
                .bind(statement.id())
                .bind(first_day())
                .bind(last_day())
                .fetch_all(&mut *connection)
                .await?;
            times.push(started.elapsed());
            ensure!(!rows.is_empty(), "no rows of {company}");
        }
    }
    Ok(times)
}

fn find_body_file(data_directory: &Path) -> anyhow::Result<PathBuf> {
    let entries = std::fs::read_dir(data_directory.join("snapshot"))?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_body_file =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("statement-bodies-"));
    paths.find(is_body_file).context("the service has no file with statements")
}

fn wait_for_snapshot_copy(data_directory: &Path) -> anyhow::Result<()> {
    let started = Instant::now();
    while !data_directory.join("snapshot/served").exists() {
        ensure!(started.elapsed() < Duration::from_secs(60), "the service writes no copy of its snapshot");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn read_whole_file(path: &Path) -> anyhow::Result<()> {
    std::io::copy(&mut std::fs::File::open(path)?, &mut std::io::sink())?;
    Ok(())
}

/// `dd` advises the kernel to drop the file (`posix_fadvise` with `POSIX_FADV_DONTNEED`). Only written pages can be.
fn drop_from_page_cache(path: &Path) -> anyhow::Result<()> {
    let run = |command: &mut Command| -> anyhow::Result<String> {
        let output = command.output()?;
        ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    run(Command::new("sync").arg(path))?;
    run(Command::new("dd").arg(format!("if={}", path.display())).args(["iflag=nocache", "count=0", "status=none"]))?;
    let resident = run(Command::new("fincore").args(["--bytes", "--noheadings", "--output", "RES"]).arg(path))?;
    let resident: u64 = resident.trim().parse()?;
    ensure!(resident < 1 << 20, "{resident} bytes of the file are still in the page cache");
    Ok(())
}
