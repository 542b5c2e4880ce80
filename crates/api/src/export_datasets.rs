//! What the bulk export consists of: the same rows as the API's own lists, without its pages.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use chrono::{Datelike, NaiveDate};
use vintem_deliver::export::{ExportDataset, SourceFetch};
use vintem_deliver::table::OutputTable;
use vintem_domain::text::hex_encode;
use vintem_domain::{Currency, CurrencyPair, Dataset, DateRange, Lang, Series, series};
use vintem_snapshot::{CompanyFilter, FilingFilter, Filings, RowPage, Snapshot};
use vintem_store::reader::RowProvenance;

use crate::routes::market::{
    FX_DECIMALS, FxRateBody, RateBody, RateRowBody, RateSource, RowOptions, fx_source, rate_table, series_body,
    series_datasets, series_source,
};
use crate::routes::provenance::TraceOptions;
use crate::routes::{companies, filings};

/// Rows are told as they are now, with no more than a list tells unasked.
const PLAIN_ROW_OPTIONS: RowOptions<'static> = RowOptions { as_text: false, provenance: None, with_certainty: false };

/// Every dataset that was ever loaded, as of this day.
pub fn list_export_datasets(snapshot: &Arc<Snapshot>, today: NaiveDate) -> Vec<ExportDataset> {
    let mut exported: Vec<ExportDataset> =
        series::served_series().filter_map(|series| series_export(snapshot, series, today)).collect();
    exported.extend(fx_export(snapshot, today));
    exported.extend(companies_export(snapshot, today));
    exported.extend(filings_exports(snapshot, today));
    exported
}

/// An export of these datasets, of which the first is its own; `more` is what else its rows follow from.
fn build_export_dataset(
    snapshot: &Snapshot,
    name: String,
    datasets: &[Dataset],
    extra_state: impl Hash,
    sources: impl Fn() -> Vec<SourceFetch> + Send + Sync + 'static,
    table: impl Fn() -> OutputTable + Send + Sync + 'static,
) -> Option<ExportDataset> {
    let own = *datasets.first()?;
    let state = snapshot.state(own)?;
    let mut hasher = DefaultHasher::new();
    extra_state.hash(&mut hasher);
    Some(ExportDataset {
        name,
        dataset: own,
        lineage: state.lineage.clone(),
        generation: state.generation,
        state_fingerprint: format!("{:016x}", hasher.finish()),
        as_of: state.loaded_at,
        is_synthetic: snapshot.is_synthetic(),
        list_sources: Box::new(sources),
        build_table: Box::new(table),
    })
}

fn dataset_generations(snapshot: &Snapshot, datasets: &[Dataset]) -> Vec<i64> {
    datasets.iter().map(|dataset| snapshot.generation(*dataset)).collect()
}

/// Each fetch once, the oldest first.
fn collect_source_fetches(snapshot: &Snapshot, known: impl Iterator<Item = RowProvenance>) -> Vec<SourceFetch> {
    let fetches: HashSet<u32> = known.map(|known| known.fetch_id).collect();
    let origin = |fetch: u32| {
        let row = snapshot.find_fetch(RowProvenance { known_at_seconds: 0, fetch_id: fetch })?;
        Some(SourceFetch {
            fetched_at: row.fetched_at,
            address: row.source_url.clone(),
            sha256: hex_encode(&row.sha256),
        })
    };
    let origins: BTreeSet<SourceFetch> = fetches.into_iter().filter_map(origin).collect();
    origins.into_iter().collect()
}

fn series_export(snapshot: &Arc<Snapshot>, series: &'static Series, today: NaiveDate) -> Option<ExportDataset> {
    let (datasets, days) = (series_datasets(series), DateRange::ALL.capped_at(today));
    let source = series_source(snapshot, series.id).ok()?;
    let more =
        (dataset_generations(snapshot, &datasets), source.base_generation(snapshot), source.latest_row_until(today));
    let (of_sources, of_table) = (snapshot.clone(), snapshot.clone());
    let sources = move || {
        let inputs = series.source_series().into_iter().chain(series.gap_fill_series.and_then(series::find_series));
        let values = inputs.filter_map(|input| of_sources.series(input));
        collect_source_fetches(&of_sources, values.flat_map(|values| (0..values.len()).map(|at| values.provenance(at))))
    };
    let table = move || {
        let source = series_source(&of_table, series.id).ok();
        let rows: Vec<RateBody> = source
            .iter()
            .flat_map(|source| source.row_range(days).filter_map(|at| source.row(at, PLAIN_ROW_OPTIONS)))
            .collect();
        let decimals = rows.iter().map(|row| row.value.value.normalize().scale()).fold(series.decimals, u32::max);
        rate_table(series_body(series, Lang::En), decimals, rows, Vec::new())
    };
    build_export_dataset(snapshot, series.id.to_owned(), &datasets, more, sources, table)
}

/// The closing rate in reais of every currency.
fn fx_export(snapshot: &Arc<Snapshot>, today: NaiveDate) -> Option<ExportDataset> {
    let days = DateRange::ALL.capped_at(today);
    let (of_sources, of_table) = (snapshot.clone(), snapshot.clone());
    let sources = move || {
        let pairs = Currency::ALL
            .into_iter()
            .filter_map(|currency| fx_source(&of_sources, CurrencyPair::Published(currency)).ok());
        let known: Vec<RowProvenance> = pairs
            .flat_map(|source| source.row_range(days).flat_map(|at| source.first_known(at)).collect::<Vec<_>>())
            .collect();
        collect_source_fetches(&of_sources, known.into_iter())
    };
    let table = move || {
        let pairs = Currency::ALL
            .into_iter()
            .filter_map(|currency| fx_source(&of_table, CurrencyPair::Published(currency)).ok());
        let rows: Vec<FxRateBody> = pairs
            .flat_map(|source| {
                source.row_range(days).filter_map(|at| source.row(at, PLAIN_ROW_OPTIONS)).collect::<Vec<_>>()
            })
            .collect();
        OutputTable::from_rows("fx", FxRateBody::columns(FX_DECIMALS), rows, |row, cells| row.write_cells(cells))
    };
    let newest = Currency::ALL.map(|currency| {
        let source = fx_source(snapshot, CurrencyPair::Published(currency)).ok()?;
        source.latest_row_until(today)
    });
    let more = (snapshot.generation(Dataset::Fx), newest);
    build_export_dataset(snapshot, Dataset::Fx.id().to_owned(), &[Dataset::Fx], more, sources, table)
}

fn companies_export(snapshot: &Arc<Snapshot>, today: NaiveDate) -> Option<ExportDataset> {
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
        collect_source_fetches(&of_sources, all(&of_sources).rows.into_iter().map(|row| companies.provenance(row)))
    };
    let table = move || companies::companies_table(&of_table, None, all(&of_table), TraceOptions::disabled(today));
    // Issuers that only filings name are companies too.
    let datasets = [Dataset::Companies, Dataset::Filings];
    let more = dataset_generations(snapshot, &datasets);
    build_export_dataset(snapshot, Dataset::Companies.id().to_owned(), &datasets, more, sources, table)
}

/// Those of each year of delivery, and all of them.
fn filings_exports(snapshot: &Arc<Snapshot>, today: NaiveDate) -> Vec<ExportDataset> {
    let Some(filings) = snapshot.filings() else { return Vec::new() };
    let all = filings.list(&FilingFilter::for_days(DateRange::ALL.capped_at(today)), 0, usize::MAX).rows;
    // Newest first, so those of a year lie together.
    let year_of = |row: &u32| filings.get(*row).filing.delivered_on.year();
    let years: Vec<(i32, u64)> = all
        .chunk_by(|one, other| year_of(one) == year_of(other))
        .map(|rows| (year_of(&rows[0]), hash_filing_rows(filings, rows)))
        .collect();
    let mut exported: Vec<ExportDataset> = years
        .iter()
        .rev()
        .filter_map(|(year, fingerprint)| {
            let days =
                DateRange { from: NaiveDate::from_ymd_opt(*year, 1, 1)?, to: NaiveDate::from_ymd_opt(*year, 12, 31)? };
            filings_export_in_range(snapshot, format!("filings-{year}"), days.capped_at(today), fingerprint, today)
        })
        .collect();
    exported.extend(filings_export_in_range(
        snapshot,
        Dataset::Filings.id().to_owned(),
        DateRange::ALL.capped_at(today),
        &years,
        today,
    ));
    exported
}

/// Another one where a row is another one, so that the years that nothing happened to are not written anew.
fn hash_filing_rows(filings: &Filings, rows: &[u32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for view in rows.iter().map(|row| filings.get(*row)) {
        (view.filing.id, view.filing.provenance.known_at_seconds, view.filing.provenance.fetch_id, view.is_latest)
            .hash(&mut hasher);
    }
    hasher.finish()
}

fn filings_export_in_range(
    snapshot: &Arc<Snapshot>,
    name: String,
    days: DateRange,
    extra_state: impl Hash,
    today: NaiveDate,
) -> Option<ExportDataset> {
    let found = move |filings: &Filings| filings.list(&FilingFilter::for_days(days), 0, usize::MAX);
    let (of_sources, of_table) = (snapshot.clone(), snapshot.clone());
    let sources = move || {
        let Some(filings) = of_sources.filings() else { return Vec::new() };
        let known = found(filings).rows.into_iter().map(|row| filings.get(row).filing.provenance);
        collect_source_fetches(&of_sources, known)
    };
    let table = move || match of_table.filings() {
        Some(filings) => filings::filings_table(&of_table, filings, found(filings), TraceOptions::disabled(today)),
        None => {
            filings::filings_table(&of_table, &Filings::default(), RowPage::default(), TraceOptions::disabled(today))
        }
    };
    build_export_dataset(snapshot, name, &[Dataset::Filings], extra_state, sources, table)
}
