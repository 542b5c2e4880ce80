//! Demo data: plausible, made up and identical on every machine, so that the service can be tried without a download.
//!
//! The generators in the submodules are pure; this file loads their rows into the store, one load per dataset. The rows
//! depend only on the size and the last day, never on the clock.

mod books;
mod companies;
mod filing_subjects;
mod filings;
mod market;
mod plain_series;
mod random_walk;
mod reporting;
mod rng;
mod statement_accounts;
mod statements;
mod vocabulary;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use sha2::{Digest, Sha256};
use vintem_domain::series::published_series;
use vintem_domain::{Company, DataOrigin, Dataset};
use vintem_store::Store;
use vintem_store::load::{Filing, ListedSecurity, NewFetch};

use crate::IngestError;
use filings::FilingGenerator;
use reporting::pick_reporters;
use statements::{DeliveredReport, StatementGenerator, delivered_reports};

/// Increment it whenever the same size gives different rows than before: it is part of the provenance hash.
pub const GENERATOR_VERSION: u32 = 4;

/// Rows held in memory at a time: some tens of megabytes, and few enough round trips.
const BATCH_ROWS: usize = 50_000;

/// Documents held in memory at a time.
const BATCH_STATEMENTS: usize = 200;

/// How long before the load the renamed companies still had their former names.
const FORMER_NAMES_AGE: TimeDelta = TimeDelta::days(400);

/// Filings begin in 2003; the generator needs about a year to spread them over.
const EARLIEST_LAST_DAY: NaiveDate = NaiveDate::from_ymd_opt(2004, 1, 1).expect("a day of the calendar");

/// How much data to generate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoSize {
    pub filings: usize,
    pub companies: usize,
    /// The last day of the data, inclusive.
    pub until: NaiveDate,
}

/// The number of rows loaded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DemoSummary {
    pub observations: u64,
    pub quotes: u64,
    pub companies: u64,
    pub filings: u64,
    pub statements: u64,
}

/// Receives the id of the dataset being loaded, its rows loaded so far, and its total rows.
type ProgressCallback<'a> = &'a (dyn Fn(&str, u64, u64) + Sync);

/// Fills an empty database. Each dataset is committed separately, so the first ones can be served while the rest is
/// still loading.
pub async fn load_demo_data(
    store: &Store,
    size: &DemoSize,
    now: DateTime<Utc>,
    progress: ProgressCallback<'_>,
) -> Result<DemoSummary, IngestError> {
    validate_size(size)?;

    let states = store.dataset_states().await?;
    // The store itself rejects a database with real data.
    if states.values().any(|state| state.origin == DataOrigin::Synthetic) {
        return Err(IngestError::DemoAlreadyLoaded);
    }

    let observations = load_series(store, size, now, progress).await?;
    let quotes = load_bulletins(store, size, now, progress).await?;
    let registry = companies::generate_registry(size.companies, size.until);
    let companies = load_companies(store, size, &registry, now, progress).await?;
    let reporters = pick_reporters(&registry.current, size.filings, size.until);
    let generator = StatementGenerator::new(&reporters, size.until);
    let mut filings = FilingGenerator::new(size.filings, &registry.current, &reporters, size.until);
    let (filings, reports) = load_filings(store, size, &mut filings, &generator, now, progress).await?;
    let statements = load_statements(store, size, &generator, &reports, now, progress).await?;

    Ok(DemoSummary { observations, quotes, companies, filings, statements })
}

fn validate_size(size: &DemoSize) -> Result<(), IngestError> {
    if size.companies > companies::MAX_COMPANIES {
        return Err(IngestError::InvalidDemoSize("the maximum is 500,000 companies"));
    }
    if !(EARLIEST_LAST_DAY..=vintem_domain::dates::MAX_DATE).contains(&size.until) {
        return Err(IngestError::InvalidDemoSize("the last day must be between 2004-01-01 and 2199-12-31"));
    }
    Ok(())
}

async fn load_series(
    store: &Store,
    size: &DemoSize,
    now: DateTime<Utc>,
    progress: ProgressCallback<'_>,
) -> Result<u64, IngestError> {
    let mut appended = 0;
    for series in published_series() {
        let dataset = Dataset::Series(series);
        let rows = market::generate_observations(series, size.until);
        progress(dataset.id(), 0, to_u64(rows.len()));

        let mut load = store.begin_load(dataset, DataOrigin::Synthetic, &demo_fetch_record(dataset, size, now)).await?;
        load.append_observations(series, &rows).await?;
        appended += load.commit().await?;
        progress(dataset.id(), to_u64(rows.len()), to_u64(rows.len()));
    }
    Ok(appended)
}

async fn load_bulletins(
    store: &Store,
    size: &DemoSize,
    now: DateTime<Utc>,
    progress: ProgressCallback<'_>,
) -> Result<u64, IngestError> {
    let dataset = Dataset::Fx;
    let rows = market::generate_bulletins(size.until);
    progress(dataset.id(), 0, to_u64(rows.len()));

    let mut load = store.begin_load(dataset, DataOrigin::Synthetic, &demo_fetch_record(dataset, size, now)).await?;
    let mut done = 0;
    for batch in rows.chunks(BATCH_ROWS) {
        load.append_bulletins(batch).await?;
        done += batch.len();
        progress(dataset.id(), to_u64(done), to_u64(rows.len()));
    }

    Ok(load.commit().await?)
}

/// Loads the earlier registry entries of renamed companies, then the current registry. Two loads, because former names
/// are derived from earlier versions.
async fn load_companies(
    store: &Store,
    size: &DemoSize,
    registry: &companies::DemoRegistry,
    now: DateTime<Utc>,
    progress: ProgressCallback<'_>,
) -> Result<u64, IngestError> {
    let total = to_u64(registry.current.len());
    progress(Dataset::Companies.id(), 0, total);

    append_companies(store, size, &registry.former, now - FORMER_NAMES_AGE).await?;
    let appended = append_companies(store, size, &registry.current, now).await?;

    progress(Dataset::Companies.id(), total, total);
    Ok(appended)
}

async fn append_companies(
    store: &Store,
    size: &DemoSize,
    rows: &[Company],
    known_at: DateTime<Utc>,
) -> Result<u64, IngestError> {
    if rows.is_empty() {
        return Ok(0);
    }

    let dataset = Dataset::Companies;
    let mut load =
        store.begin_load(dataset, DataOrigin::Synthetic, &demo_fetch_record(dataset, size, known_at)).await?;
    for batch in rows.chunks(BATCH_ROWS) {
        load.append_companies(batch).await?;
        load.append_securities(&build_securities(batch, size.until)).await?;
    }

    load.commit().await?;
    Ok(to_u64(rows.len()))
}

/// One load in batches: readers see all filings or none, and memory holds one batch. Returns the reports among them, too.
async fn load_filings(
    store: &Store,
    size: &DemoSize,
    filings: &mut FilingGenerator<'_>,
    generator: &StatementGenerator<'_>,
    now: DateTime<Utc>,
    progress: ProgressCallback<'_>,
) -> Result<(u64, Vec<DeliveredReport>), IngestError> {
    let dataset = Dataset::Filings;
    let total = to_u64(size.filings);
    progress(dataset.id(), 0, total);

    let mut reports: Vec<Filing> = Vec::new();
    let mut load = store.begin_load(dataset, DataOrigin::Synthetic, &demo_fetch_record(dataset, size, now)).await?;
    let mut done = 0;
    loop {
        let batch: Vec<_> = filings.by_ref().take(BATCH_ROWS).collect();
        if batch.is_empty() {
            break;
        }
        load.append_filings(&batch).await?;
        done += to_u64(batch.len());
        reports.extend(batch.into_iter().filter(|filing| generator.reports(filing)));
        progress(dataset.id(), done, total);
    }

    Ok((load.commit().await?, delivered_reports(&reports)))
}

async fn load_statements(
    store: &Store,
    size: &DemoSize,
    generator: &StatementGenerator<'_>,
    reports: &[DeliveredReport],
    now: DateTime<Utc>,
    progress: ProgressCallback<'_>,
) -> Result<u64, IngestError> {
    let dataset = Dataset::Statements;
    let total = to_u64(reports.len());
    progress(dataset.id(), 0, total);

    let mut load = store.begin_load(dataset, DataOrigin::Synthetic, &demo_fetch_record(dataset, size, now)).await?;
    let mut done = 0;
    for batch in reports.chunks(BATCH_STATEMENTS) {
        let documents: Vec<_> = batch.iter().filter_map(|report| generator.generate(report)).collect();
        load.append_statements(&documents).await?;
        done += batch.len();
        progress(dataset.id(), to_u64(done), total);
    }

    Ok(load.commit().await?)
}

/// The tickers of companies, as their registration forms would state them.
fn build_securities(companies: &[Company], until: NaiveDate) -> Vec<ListedSecurity> {
    let securities_of = |company: &Company| -> Vec<ListedSecurity> {
        let Some(cnpj) = company.cnpj else { return Vec::new() };
        let to_security = |ticker: &String| ListedSecurity {
            document_id: u64::from(company.id),
            cnpj,
            ticker: ticker.clone(),
            reference_date: until,
            version: 1,
            market: "Bolsa".to_owned(),
            segment: String::new(),
            traded_from: company.registered_on,
            traded_until: None,
        };
        company.tickers.iter().map(to_security).collect()
    };

    companies.iter().flat_map(securities_of).collect()
}

/// Nothing was fetched, so the hash covers the parameters that determine every row.
fn demo_fetch_record(dataset: Dataset, size: &DemoSize, fetched_at: DateTime<Utc>) -> NewFetch {
    let recipe = format!(
        "vintem demo generator {GENERATOR_VERSION}: {}, {} companies, {} filings, until {}",
        dataset.id(),
        size.companies,
        size.filings,
        size.until
    );
    NewFetch::without_response(format!("demo:{}", dataset.id()), fetched_at, Sha256::digest(recipe).into())
}

fn to_u64(rows: usize) -> u64 {
    u64::try_from(rows).expect("no more rows than a 64-bit number counts")
}

#[cfg(test)]
mod tests {
    use super::*;
    use vintem_domain::dates::parse_date;

    fn demo_size(companies: usize, until: &str) -> DemoSize {
        DemoSize { filings: 10, companies, until: parse_date(until).unwrap() }
    }

    #[test]
    fn invalid_sizes_are_rejected() {
        assert!(validate_size(&demo_size(2_700, "2026-11-13")).is_ok());
        assert!(validate_size(&demo_size(500_001, "2026-11-13")).is_err());
        assert!(validate_size(&demo_size(2_700, "2003-12-31")).is_err());
    }

    #[test]
    fn the_provenance_hash_depends_on_size_and_dataset() {
        let now = DateTime::<Utc>::UNIX_EPOCH;
        let fetch_record = |dataset, size: &DemoSize| demo_fetch_record(dataset, size, now);
        let small = fetch_record(Dataset::Filings, &demo_size(10, "2026-11-13"));
        assert_eq!(small.source_url, "demo:filings");
        assert_eq!(small.sha256, fetch_record(Dataset::Filings, &demo_size(10, "2026-11-13")).sha256);
        assert_ne!(small.sha256, fetch_record(Dataset::Filings, &demo_size(11, "2026-11-13")).sha256);
        assert_ne!(small.sha256, fetch_record(Dataset::Companies, &demo_size(10, "2026-11-13")).sha256);
    }
}
