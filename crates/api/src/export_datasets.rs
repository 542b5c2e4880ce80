//! The datasets of the bulk export: the same rows as the API's lists, without pagination.

mod building;
mod statements;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use chrono::{Datelike, NaiveDate};
use vintem_deliver::export::ExportDataset;
use vintem_deliver::table::OutputTable;
use vintem_domain::{Currency, CurrencyPair, Dataset, DateRange, Lang, Series, series};
use vintem_snapshot::{Companies, FilingFilter, Filings, RowPage, Snapshot};
use vintem_store::change_id::ChangeId;
use vintem_store::reader::RowProvenance;

use crate::bodies::company::{COMPANY_DATASETS, companies_table};
use crate::bodies::filing::filings_table;
use crate::bodies::market::{
    FX_DECIMALS, FxRateBody, RateBody, RateRowBody, RateSource, RowOptions, fx_source, rate_table, series_source,
};
use crate::bodies::provenance::TraceOptions;
use crate::bodies::series::{series_body, series_datasets};
use building::{build_export_dataset, collect_source_fetches};
use statements::statements_exports;

/// Rows in their current version, with only the fields that lists have by default.
const PLAIN_ROW_OPTIONS: RowOptions<'static> = RowOptions { as_text: false, provenance: None, with_certainty: false };

/// Every dataset that has been loaded, as of `today`.
pub fn list_export_datasets(snapshot: &Arc<Snapshot>, today: NaiveDate) -> Vec<ExportDataset> {
    let mut exports: Vec<ExportDataset> =
        series::served_series().filter_map(|series| series_export(snapshot, series, today)).collect();
    exports.extend(fx_export(snapshot, today));
    exports.extend(companies_export(snapshot, today));
    exports.extend(filings_exports(snapshot, today));
    exports.extend(statements_exports(snapshot, today));
    exports
}

fn load_ids(snapshot: &Snapshot, datasets: &[Dataset]) -> Vec<Option<ChangeId>> {
    datasets.iter().map(|dataset| snapshot.load_id(*dataset)).collect()
}

fn series_export(snapshot: &Arc<Snapshot>, series: &'static Series, today: NaiveDate) -> Option<ExportDataset> {
    let datasets = series_datasets(series);
    let days = DateRange::ALL.capped_at(today);
    let source = series_source(snapshot, series.id).ok()?;
    let extra_state = (load_ids(snapshot, &datasets), source.base_load_id(snapshot), source.latest_row_until(today));

    let sources_snapshot = snapshot.clone();
    let list_sources = move || {
        let inputs =
            series::source_series(series).into_iter().chain(series.gap_fill_series.and_then(series::find_series));
        let values = inputs.filter_map(|input| sources_snapshot.series(input));
        let provenances = values.flat_map(|values| (0..values.len()).map(|at| values.provenance(at)));
        collect_source_fetches(&sources_snapshot, provenances)
    };

    let table_snapshot = snapshot.clone();
    let build_table = move || {
        let source = series_source(&table_snapshot, series.id).ok();
        let rows: Vec<RateBody> = source
            .iter()
            .flat_map(|source| source.row_range(days).filter_map(|at| source.row(at, PLAIN_ROW_OPTIONS)))
            .collect();
        let decimals = rows.iter().map(|row| row.value.value.normalize().scale()).fold(series.decimals, u32::max);
        rate_table(series_body(series, Lang::En), Some(series.id), (decimals, series.shape), rows, Vec::new())
    };

    let name = series.id.to_owned();
    let export = build_export_dataset(snapshot, name, &datasets, extra_state, list_sources, build_table)?;
    Some(ExportDataset { subject: Dataset::Series(series), ..export })
}

/// The closing rate in reais of every currency.
fn fx_export(snapshot: &Arc<Snapshot>, today: NaiveDate) -> Option<ExportDataset> {
    let days = DateRange::ALL.capped_at(today);

    let sources_snapshot = snapshot.clone();
    let list_sources = move || {
        let pairs = Currency::ALL
            .into_iter()
            .filter_map(|currency| fx_source(&sources_snapshot, CurrencyPair::Published(currency)).ok());
        let provenances: Vec<RowProvenance> = pairs
            .flat_map(|source| source.row_range(days).flat_map(|at| source.row_provenances(at)).collect::<Vec<_>>())
            .collect();
        collect_source_fetches(&sources_snapshot, provenances.into_iter())
    };

    let table_snapshot = snapshot.clone();
    let build_table = move || {
        let pairs = Currency::ALL
            .into_iter()
            .filter_map(|currency| fx_source(&table_snapshot, CurrencyPair::Published(currency)).ok());
        let rows: Vec<FxRateBody> = pairs
            .flat_map(|source| {
                source.row_range(days).filter_map(|at| source.row(at, PLAIN_ROW_OPTIONS)).collect::<Vec<_>>()
            })
            .collect();
        OutputTable::from_rows("fx", FxRateBody::columns(FX_DECIMALS), rows, |row, cells| row.write_cells(cells))
    };

    let latest_rows = Currency::ALL.map(|currency| {
        let source = fx_source(snapshot, CurrencyPair::Published(currency)).ok()?;
        source.latest_row_until(today)
    });
    let extra_state = (snapshot.load_id(Dataset::Fx), latest_rows);
    build_export_dataset(snapshot, Dataset::Fx.id().to_owned(), &[Dataset::Fx], extra_state, list_sources, build_table)
}

fn companies_export(snapshot: &Arc<Snapshot>, today: NaiveDate) -> Option<ExportDataset> {
    snapshot.companies()?;
    let all_companies = |snapshot: &Snapshot| snapshot.companies().map(Companies::all_rows).unwrap_or_default();

    let sources_snapshot = snapshot.clone();
    let list_sources = move || {
        let Some(companies) = sources_snapshot.companies() else { return Vec::new() };
        let rows = all_companies(&sources_snapshot).rows;
        collect_source_fetches(&sources_snapshot, rows.into_iter().map(|row| companies.provenance(row)))
    };

    let table_snapshot = snapshot.clone();
    let build_table = move || {
        let companies = all_companies(&table_snapshot);
        companies_table(&table_snapshot, None, companies, TraceOptions::disabled(today))
    };

    let extra_state = load_ids(snapshot, &COMPANY_DATASETS);
    build_export_dataset(
        snapshot,
        Dataset::Companies.id().to_owned(),
        &COMPANY_DATASETS,
        extra_state,
        list_sources,
        build_table,
    )
}

/// One export for each year of delivery, and one with all filings.
fn filings_exports(snapshot: &Arc<Snapshot>, today: NaiveDate) -> Vec<ExportDataset> {
    let Some(filings) = snapshot.filings() else { return Vec::new() };
    let all = filings.list(&FilingFilter::for_days(DateRange::ALL.capped_at(today)), 0, usize::MAX).rows;

    // The list is sorted newest first, so the rows of a year are adjacent.
    let year_of = |row: &u32| filings.get(*row).filing.delivered_on.year();
    let years: Vec<(i32, u64)> = all
        .chunk_by(|one, other| year_of(one) == year_of(other))
        .map(|rows| (year_of(&rows[0]), hash_filing_rows(filings, rows)))
        .collect();

    let mut exports: Vec<ExportDataset> = years
        .iter()
        .rev()
        .filter_map(|(year, fingerprint)| {
            let days =
                DateRange { from: NaiveDate::from_ymd_opt(*year, 1, 1)?, to: NaiveDate::from_ymd_opt(*year, 12, 31)? };
            filings_export_in_range(snapshot, format!("filings-{year}"), days.capped_at(today), fingerprint, today)
        })
        .collect();
    exports.extend(filings_export_in_range(
        snapshot,
        Dataset::Filings.id().to_owned(),
        DateRange::ALL.capped_at(today),
        &years,
        today,
    ));
    exports
}

/// Changes when any of the rows changes, so that years without changes are not exported again.
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
    let list_rows = move |filings: &Filings| filings.list(&FilingFilter::for_days(days), 0, usize::MAX);

    let sources_snapshot = snapshot.clone();
    let list_sources = move || {
        let Some(filings) = sources_snapshot.filings() else { return Vec::new() };
        let provenances = list_rows(filings).rows.into_iter().map(|row| filings.get(row).filing.provenance);
        collect_source_fetches(&sources_snapshot, provenances)
    };

    let table_snapshot = snapshot.clone();
    let build_table = move || {
        let trace = TraceOptions::disabled(today);
        match table_snapshot.filings() {
            Some(filings) => filings_table(&table_snapshot, filings, list_rows(filings), trace),
            None => filings_table(&table_snapshot, &Filings::default(), RowPage::default(), trace),
        }
    };

    build_export_dataset(snapshot, name, &[Dataset::Filings], extra_state, list_sources, build_table)
}
