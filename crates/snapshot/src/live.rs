//! The served snapshot, and how it follows the store.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use chrono::NaiveDate;
use vintem_domain::decimal::annualised;
use vintem_domain::series::{self, SERIES};
use vintem_domain::{Company, Currency, Dataset};
use vintem_store::Store;
use vintem_store::load::Observation;
use vintem_store::read::Reader;
use vintem_store::sources::SourceState;

use crate::companies::Companies;
use crate::filings::{Filings, FilingsBuilder};
use crate::market::{FxRates, SeriesValues};
use crate::{Result, Snapshot};

/// What all requests read. Empty until the first snapshot stands; an empty database is a snapshot.
#[derive(Debug, Default)]
pub struct LiveSnapshot {
    current: ArcSwapOption<Snapshot>,
    /// How the sources stood when they were last looked at. Beside the snapshot: that a source was asked and had
    /// nothing new changes nothing that is served.
    sources: ArcSwapOption<Vec<SourceState>>,
    /// One build at a time.
    building: tokio::sync::Mutex<()>,
}

impl LiveSnapshot {
    pub fn get(&self) -> Option<Arc<Snapshot>> {
        self.current.load_full()
    }

    /// Empty where nothing was ever asked for, as in a demonstration.
    pub fn sources(&self) -> Arc<Vec<SourceState>> {
        self.sources.load_full().unwrap_or_default()
    }

    pub async fn refresh_sources(&self, store: &Store) -> Result<()> {
        let states = store.source_states().await?;
        self.sources.store(Some(Arc::new(states)));
        Ok(())
    }

    /// Builds what has a newer generation than what is served, beside it, and swaps it in whole. True if it did.
    pub async fn refresh(&self, store: &Store) -> Result<bool> {
        let _one_at_a_time = self.building.lock().await;
        let served = self.get();
        let states = store.dataset_states().await?;
        if served.as_ref().is_some_and(|served| served.states == states) {
            return Ok(false);
        }
        let next = build(store, served.as_deref().unwrap_or(&Snapshot::default())).await?;
        self.current.store(Some(Arc::new(next)));
        Ok(true)
    }
}

/// The next snapshot; parts whose generation did not rise are shared with the served one.
async fn build(store: &Store, served: &Snapshot) -> Result<Snapshot> {
    // One view of the database: generations and rows belong together.
    let mut reader = store.reader().await?;
    let states = reader.dataset_states().await?;
    let mut next = Snapshot { states, ..Snapshot::default() };
    let is_loaded = |next: &Snapshot, dataset| next.states.contains_key(&dataset);
    let unchanged = |next: &Snapshot, dataset| next.states.get(&dataset) == served.states.get(&dataset);

    for series in &SERIES {
        let dataset = Dataset::Series(series);
        let base = series.derived_from.and_then(series::by_id);
        let is_base_unchanged = base.is_none_or(|base| unchanged(&next, Dataset::Series(base)));
        if unchanged(&next, dataset) && is_base_unchanged {
            next.series.extend(served.series.get_key_value(series.id).map(|(id, values)| (*id, values.clone())));
        } else if is_loaded(&next, dataset) {
            let published = reader.observations(series).await?;
            let derived = match base {
                Some(base) => derived(&published, &reader.observations(base).await?),
                None => Vec::new(),
            };
            let values = SeriesValues::new(published, derived);
            next.series.insert(series.id, Arc::new(values));
        }
    }
    if unchanged(&next, Dataset::Fx) {
        next.fx.clone_from(&served.fx);
    } else if is_loaded(&next, Dataset::Fx) {
        next.fx = Some(Arc::new(read_fx(&mut reader).await?));
    }
    if unchanged(&next, Dataset::Filings) {
        next.filings.clone_from(&served.filings);
    } else if is_loaded(&next, Dataset::Filings) {
        next.filings = Some(Arc::new(read_filings(&mut reader).await?));
    }
    // Issuers that only filings name are companies too.
    if unchanged(&next, Dataset::Companies) && unchanged(&next, Dataset::Filings) {
        next.companies.clone_from(&served.companies);
    } else if is_loaded(&next, Dataset::Companies) {
        let registered = reader.companies().await?;
        let filings = next.filings.clone();
        let companies =
            tokio::task::spawn_blocking(move || Companies::build(with_issuers(registered, filings.as_deref())));
        next.companies = Some(Arc::new(companies.await??));
    }
    Ok(next)
}

/// What the daily rates make of the days that the annual series lacks.
fn derived(published: &[Observation], daily: &[Observation]) -> Vec<Observation> {
    let days: HashSet<NaiveDate> = published.iter().map(|row| row.date).collect();
    let missing = daily.iter().filter(|row| !days.contains(&row.date));
    missing.filter_map(|row| Some(Observation { date: row.date, value: annualised(row.value)? })).collect()
}

async fn read_fx(reader: &mut Reader) -> Result<FxRates> {
    let mut currencies: [_; Currency::ALL.len()] = Default::default();
    for currency in Currency::ALL {
        currencies[currency as usize] = reader.closing_quotes(currency).await?;
    }
    Ok(FxRates::new(currencies))
}

async fn read_filings(reader: &mut Reader) -> Result<Filings> {
    let mut builder = FilingsBuilder::default();
    reader.for_each_filing(|filing| builder.push(&filing)).await?;
    tokio::task::spawn_blocking(move || builder.build()).await?
}

fn with_issuers(mut companies: Vec<Company>, filings: Option<&Filings>) -> Vec<Company> {
    let registered: HashSet<u32> = companies.iter().map(|company| company.id).collect();
    let issuers = filings.into_iter().flat_map(Filings::issuers).filter(|(id, _)| !registered.contains(id));
    let unregistered: Vec<Company> =
        issuers.map(|(id, name)| Company { id, name: name.to_owned(), ..Company::default() }).collect();
    companies.extend(unregistered);
    companies
}
