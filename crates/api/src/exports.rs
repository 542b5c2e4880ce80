//! What the bulk export consists of: the same rows as the API's own lists, without its pages.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use chrono::{Datelike, NaiveDate};
use vintem_deliver::export::{Exported, Origin};
use vintem_deliver::table::Table;
use vintem_domain::text::hex;
use vintem_domain::{Currency, Dataset, DateRange, Lang, Pair, Series, series};
use vintem_snapshot::{CompanyFilter, FilingFilter, Filings, Found, Snapshot};
use vintem_store::read::Known;

use crate::routes::market::{
    FX_DECIMALS, FxRateBody, RateBody, RowBody, Shown, Source, datasets_of, describe, fx_source, rows_table,
    series_source,
};
use crate::routes::provenance::Traced;
use crate::routes::{companies, filings};

/// Rows are told as they are now, with no more than a list tells unasked.
const PLAINLY: Shown<'static> = Shown { as_text: false, provenance: None, certainty: false };

/// Every dataset that was ever loaded, as of this day.
pub fn exported(snapshot: &Arc<Snapshot>, today: NaiveDate) -> Vec<Exported> {
    let mut exported: Vec<Exported> =
        series::served().filter_map(|series| of_series(snapshot, series, today)).collect();
    exported.extend(of_fx(snapshot, today));
    exported.extend(of_companies(snapshot, today));
    exported.extend(of_filings(snapshot, today));
    exported
}

/// An export of these datasets, of which the first is its own; `more` is what else its rows follow from.
fn export(
    snapshot: &Snapshot,
    name: String,
    datasets: &[Dataset],
    more: impl Hash,
    sources: impl Fn() -> Vec<Origin> + Send + Sync + 'static,
    table: impl Fn() -> Table + Send + Sync + 'static,
) -> Option<Exported> {
    let own = *datasets.first()?;
    let state = snapshot.state(own)?;
    let mut hasher = DefaultHasher::new();
    more.hash(&mut hasher);
    Some(Exported {
        name,
        dataset: own,
        lineage: state.lineage.clone(),
        generation: state.generation,
        state: format!("{:016x}", hasher.finish()),
        as_of: state.loaded_at,
        is_synthetic: snapshot.is_synthetic(),
        sources: Box::new(sources),
        table: Box::new(table),
    })
}

fn generations(snapshot: &Snapshot, datasets: &[Dataset]) -> Vec<i64> {
    datasets.iter().map(|dataset| snapshot.generation(*dataset)).collect()
}

/// Each fetch once, the oldest first.
fn origins(snapshot: &Snapshot, known: impl Iterator<Item = Known>) -> Vec<Origin> {
    let fetches: HashSet<u32> = known.map(|known| known.fetch).collect();
    let origin = |fetch: u32| {
        let row = snapshot.fetch(Known { at: 0, fetch })?;
        Some(Origin { fetched_at: row.fetched_at, address: row.address.clone(), sha256: hex(&row.sha256) })
    };
    let origins: BTreeSet<Origin> = fetches.into_iter().filter_map(origin).collect();
    origins.into_iter().collect()
}

fn of_series(snapshot: &Arc<Snapshot>, series: &'static Series, today: NaiveDate) -> Option<Exported> {
    let (datasets, days) = (datasets_of(series), DateRange::ALL.until(today));
    let source = series_source(snapshot, series.id).ok()?;
    let more = (generations(snapshot, &datasets), source.further_generation(snapshot), source.newest(today));
    let (of_sources, of_table) = (snapshot.clone(), snapshot.clone());
    let sources = move || {
        let inputs = series.made_of().into_iter().chain(series.derived_from.and_then(series::by_id));
        let values = inputs.filter_map(|input| of_sources.series(input));
        origins(&of_sources, values.flat_map(|values| (0..values.len()).map(|at| values.known(at))))
    };
    let table = move || {
        let source = series_source(&of_table, series.id).ok();
        let rows: Vec<RateBody> =
            source.iter().flat_map(|source| source.range(days).filter_map(|at| source.row(at, PLAINLY))).collect();
        let decimals = rows.iter().map(|row| row.value.value.normalize().scale()).fold(series.decimals, u32::max);
        rows_table(describe(series, Lang::En), decimals, rows, Vec::new())
    };
    export(snapshot, series.id.to_owned(), &datasets, more, sources, table)
}

/// The closing rate in reais of every currency.
fn of_fx(snapshot: &Arc<Snapshot>, today: NaiveDate) -> Option<Exported> {
    let days = DateRange::ALL.until(today);
    let (of_sources, of_table) = (snapshot.clone(), snapshot.clone());
    let sources = move || {
        let pairs =
            Currency::ALL.into_iter().filter_map(|currency| fx_source(&of_sources, Pair::Published(currency)).ok());
        let known: Vec<Known> =
            pairs.flat_map(|source| source.range(days).flat_map(|at| source.known(at)).collect::<Vec<_>>()).collect();
        origins(&of_sources, known.into_iter())
    };
    let table = move || {
        let pairs =
            Currency::ALL.into_iter().filter_map(|currency| fx_source(&of_table, Pair::Published(currency)).ok());
        let rows: Vec<FxRateBody> = pairs
            .flat_map(|source| source.range(days).filter_map(|at| source.row(at, PLAINLY)).collect::<Vec<_>>())
            .collect();
        Table::of("fx", FxRateBody::columns(FX_DECIMALS), rows, |row, cells| row.write(cells))
    };
    let newest = Currency::ALL.map(|currency| {
        let source = fx_source(snapshot, Pair::Published(currency)).ok()?;
        source.newest(today)
    });
    let more = (snapshot.generation(Dataset::Fx), newest);
    export(snapshot, Dataset::Fx.id().to_owned(), &[Dataset::Fx], more, sources, table)
}

fn of_companies(snapshot: &Arc<Snapshot>, today: NaiveDate) -> Option<Exported> {
    snapshot.companies()?;
    let all = |snapshot: &Snapshot| {
        snapshot
            .companies()
            .map(|companies| companies.list(&CompanyFilter::default(), 0, usize::MAX))
            .unwrap_or_default()
    };
    let (of_sources, of_table) = (snapshot.clone(), snapshot.clone());
    let sources = move || {
        let Some(companies) = of_sources.companies() else { return Vec::new() };
        origins(&of_sources, all(&of_sources).rows.into_iter().map(|row| companies.known(row)))
    };
    let table = move || companies::table(&of_table, None, all(&of_table), Traced::nothing(today));
    // Issuers that only filings name are companies too.
    let datasets = [Dataset::Companies, Dataset::Filings];
    let more = generations(snapshot, &datasets);
    export(snapshot, Dataset::Companies.id().to_owned(), &datasets, more, sources, table)
}

/// Those of each year of delivery, and all of them.
fn of_filings(snapshot: &Arc<Snapshot>, today: NaiveDate) -> Vec<Exported> {
    let Some(filings) = snapshot.filings() else { return Vec::new() };
    let all = filings.list(&FilingFilter::of_days(DateRange::ALL.until(today)), 0, usize::MAX).rows;
    // Newest first, so those of a year lie together.
    let year_of = |row: &u32| filings.get(*row).filing.delivered_on.year();
    let years: Vec<(i32, u64)> = all
        .chunk_by(|one, other| year_of(one) == year_of(other))
        .map(|rows| (year_of(&rows[0]), fingerprint(filings, rows)))
        .collect();
    let mut exported: Vec<Exported> = years
        .iter()
        .rev()
        .filter_map(|(year, fingerprint)| {
            let days =
                DateRange { from: NaiveDate::from_ymd_opt(*year, 1, 1)?, to: NaiveDate::from_ymd_opt(*year, 12, 31)? };
            filings_of(snapshot, format!("filings-{year}"), days.until(today), fingerprint, today)
        })
        .collect();
    exported.extend(filings_of(snapshot, Dataset::Filings.id().to_owned(), DateRange::ALL.until(today), &years, today));
    exported
}

/// Another one where a row is another one, so that the years that nothing happened to are not written anew.
fn fingerprint(filings: &Filings, rows: &[u32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for view in rows.iter().map(|row| filings.get(*row)) {
        (view.filing.id, view.filing.known.at, view.filing.known.fetch, view.is_latest).hash(&mut hasher);
    }
    hasher.finish()
}

fn filings_of(
    snapshot: &Arc<Snapshot>,
    name: String,
    days: DateRange,
    more: impl Hash,
    today: NaiveDate,
) -> Option<Exported> {
    let found = move |filings: &Filings| filings.list(&FilingFilter::of_days(days), 0, usize::MAX);
    let (of_sources, of_table) = (snapshot.clone(), snapshot.clone());
    let sources = move || {
        let Some(filings) = of_sources.filings() else { return Vec::new() };
        let known = found(filings).rows.into_iter().map(|row| filings.get(row).filing.known);
        origins(&of_sources, known)
    };
    let table = move || match of_table.filings() {
        Some(filings) => filings::table(&of_table, filings, found(filings), Traced::nothing(today)),
        None => filings::table(&of_table, &Filings::default(), Found::default(), Traced::nothing(today)),
    };
    export(snapshot, name, &[Dataset::Filings], more, sources, table)
}
