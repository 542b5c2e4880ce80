//! Demo data: plausible, made up, and the same on every machine, so that the service can be tried without a download.
//!
//! The generators beside this file are pure; here their rows enter the store, one load for each dataset. What they
//! make depends on the size and the last day alone, never on the clock.

mod companies;
mod filings;
mod market;
mod random;
mod subjects;
mod words;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use sha2::{Digest, Sha256};
use vintem_domain::series::SERIES;
use vintem_domain::{Company, Dataset, Origin};
use vintem_store::Store;
use vintem_store::load::{Fetch, Security};

use crate::IngestError;
use filings::Filings;

/// Raised whenever the same size would give other rows than before: it is part of what the provenance hashes.
pub const GENERATOR_VERSION: u32 = 2;

/// Rows held in memory at a time: some tens of megabytes, and few enough round trips.
const PIECE_ROWS: usize = 50_000;

/// How long before the load the renamed companies still bore their former names.
const FORMER_NAMES_AGE: TimeDelta = TimeDelta::days(400);

/// Filings begin in 2003: with a year of them there is something to spread over.
const EARLIEST_END: NaiveDate = NaiveDate::from_ymd_opt(2004, 1, 1).expect("a day of the calendar");

/// How much to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoSize {
    pub filings: usize,
    pub companies: usize,
    /// The last day of the data, included.
    pub until: NaiveDate,
}

/// What was loaded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DemoSummary {
    pub observations: u64,
    pub quotes: u64,
    pub companies: u64,
    pub filings: u64,
}

/// Told what is being loaded, rows done, rows in all.
type Progress<'a> = &'a (dyn Fn(&str, u64, u64) + Sync);

/// Fills an empty database. Each dataset is committed by itself, so what is loaded can be served while the rest is
/// still on its way.
pub async fn load(
    store: &Store,
    size: &DemoSize,
    now: DateTime<Utc>,
    progress: Progress<'_>,
) -> Result<DemoSummary, IngestError> {
    check(size)?;
    let states = store.dataset_states().await?;
    // Real data is refused too, by the store itself.
    if states.values().any(|state| state.origin == Origin::Synthetic) {
        return Err(IngestError::DemoAlreadyLoaded);
    }
    let observations = load_series(store, size, now, progress).await?;
    let quotes = load_bulletins(store, size, now, progress).await?;
    let registry = companies::registry(size.companies, size.until);
    let companies = load_companies(store, size, &registry, now, progress).await?;
    let filings = load_filings(store, size, &registry.current, now, progress).await?;
    Ok(DemoSummary { observations, quotes, companies, filings })
}

fn check(size: &DemoSize) -> Result<(), IngestError> {
    if size.companies > companies::MOST {
        return Err(IngestError::DemoSize("at most 500,000 companies have a name and a code of their own"));
    }
    if !(EARLIEST_END..=vintem_domain::dates::LAST_DAY).contains(&size.until) {
        return Err(IngestError::DemoSize("its last day must lie between 2004-01-01 and 2199-12-31"));
    }
    Ok(())
}

async fn load_series(
    store: &Store,
    size: &DemoSize,
    now: DateTime<Utc>,
    progress: Progress<'_>,
) -> Result<u64, IngestError> {
    let mut appended = 0;
    for series in &SERIES {
        let dataset = Dataset::Series(series);
        let rows = market::observations(series, size.until);
        progress(dataset.id(), 0, count(rows.len()));
        let mut load = store.begin_load(dataset, Origin::Synthetic, &fetch(dataset, size, now)).await?;
        load.append_observations(series, &rows).await?;
        appended += load.commit().await?;
        progress(dataset.id(), count(rows.len()), count(rows.len()));
    }
    Ok(appended)
}

async fn load_bulletins(
    store: &Store,
    size: &DemoSize,
    now: DateTime<Utc>,
    progress: Progress<'_>,
) -> Result<u64, IngestError> {
    let dataset = Dataset::Fx;
    let rows = market::bulletins(size.until);
    progress(dataset.id(), 0, count(rows.len()));
    let mut load = store.begin_load(dataset, Origin::Synthetic, &fetch(dataset, size, now)).await?;
    let mut done = 0;
    for piece in rows.chunks(PIECE_ROWS) {
        load.append_bulletins(piece).await?;
        done += piece.len();
        progress(dataset.id(), count(done), count(rows.len()));
    }
    Ok(load.commit().await?)
}

/// The registry of some time ago, as far as it differs in names, and then that of today. Two loads, because former
/// names are nothing but what earlier versions said.
async fn load_companies(
    store: &Store,
    size: &DemoSize,
    registry: &companies::Registry,
    now: DateTime<Utc>,
    progress: Progress<'_>,
) -> Result<u64, IngestError> {
    let total = count(registry.current.len());
    progress(Dataset::Companies.id(), 0, total);
    append_companies(store, size, &registry.earlier, now - FORMER_NAMES_AGE).await?;
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
    let mut load = store.begin_load(dataset, Origin::Synthetic, &fetch(dataset, size, known_at)).await?;
    for piece in rows.chunks(PIECE_ROWS) {
        load.append_companies(piece).await?;
        load.append_securities(&securities(piece, size.until)).await?;
    }
    load.commit().await?;
    Ok(count(rows.len()))
}

/// One load in pieces: readers see all filings or none, and memory holds one piece.
async fn load_filings(
    store: &Store,
    size: &DemoSize,
    companies: &[Company],
    now: DateTime<Utc>,
    progress: Progress<'_>,
) -> Result<u64, IngestError> {
    let dataset = Dataset::Filings;
    let total = count(size.filings);
    progress(dataset.id(), 0, total);
    let mut filings = Filings::new(size.filings, companies, size.until);
    let mut load = store.begin_load(dataset, Origin::Synthetic, &fetch(dataset, size, now)).await?;
    let mut done = 0;
    loop {
        let piece: Vec<_> = filings.by_ref().take(PIECE_ROWS).collect();
        if piece.is_empty() {
            break;
        }
        load.append_filings(&piece).await?;
        done += count(piece.len());
        progress(dataset.id(), done, total);
    }
    Ok(load.commit().await?)
}

/// The tickers of companies as the registration form of each would state them.
fn securities(companies: &[Company], until: NaiveDate) -> Vec<Security> {
    let of_company = |company: &Company| -> Vec<Security> {
        let Some(cnpj) = company.cnpj else { return Vec::new() };
        let security = |ticker: &String| Security {
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
        company.tickers.iter().map(security).collect()
    };
    companies.iter().flat_map(of_company).collect()
}

/// Nothing was fetched, so the hash is of the text that determines every row.
fn fetch(dataset: Dataset, size: &DemoSize, fetched_at: DateTime<Utc>) -> Fetch {
    let recipe = format!(
        "vintem demo generator {GENERATOR_VERSION}: {}, {} companies, {} filings, until {}",
        dataset.id(),
        size.companies,
        size.filings,
        size.until
    );
    Fetch::made_here(format!("demo:{}", dataset.id()), fetched_at, Sha256::digest(recipe).into())
}

fn count(rows: usize) -> u64 {
    u64::try_from(rows).expect("no more rows than a 64-bit number counts")
}

#[cfg(test)]
mod tests {
    use super::*;
    use vintem_domain::dates::parse_day;

    fn size(companies: usize, until: &str) -> DemoSize {
        DemoSize { filings: 10, companies, until: parse_day(until).unwrap() }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(check(&size(2_700, "2026-11-13")).is_ok());
        assert!(check(&size(500_001, "2026-11-13")).is_err());
        assert!(check(&size(2_700, "2003-12-31")).is_err());
    }

    #[test]
    fn provenance_states_what_determines_the_rows() {
        let now = DateTime::<Utc>::UNIX_EPOCH;
        let of = |dataset, size: &DemoSize| fetch(dataset, size, now);
        let small = of(Dataset::Filings, &size(10, "2026-11-13"));
        assert_eq!(small.address, "demo:filings");
        assert_eq!(small.sha256, of(Dataset::Filings, &size(10, "2026-11-13")).sha256);
        assert_ne!(small.sha256, of(Dataset::Filings, &size(11, "2026-11-13")).sha256);
        assert_ne!(small.sha256, of(Dataset::Companies, &size(10, "2026-11-13")).sha256);
    }
}
