//! Series: published ones, and those computed from them.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use chrono::NaiveDate;
use vintem_domain::dates::month_end;
use vintem_domain::decimal::annualize_daily_rate;
use vintem_domain::series::{self, DatedValue, Formula, derived_series, published_series};
use vintem_domain::{Dataset, DateRange, Series};
use vintem_store::load::Observation;
use vintem_store::reader::RowProvenance;
use vintem_store::sources::CheckedValues;

use crate::disk_cache::{DiskCacheError, DiskCacheReader, DiskCacheWriter};
use crate::error::Result;
use crate::series_values::SeriesValues;
use crate::snapshot::Snapshot;
use crate::snapshot_dataset::{BuildFuture, SnapshotBuild, SnapshotDataset};

pub struct SeriesData;

impl SnapshotDataset for SeriesData {
    fn datasets(&self) -> Vec<Dataset> {
        published_series().map(Dataset::Series).collect()
    }

    fn build<'b>(&'b self, build: &'b mut SnapshotBuild<'_>) -> BuildFuture<'b> {
        Box::pin(async {
            for series in published_series() {
                build_published_series(build, series).await?;
            }
            for series in derived_series() {
                build_derived_series(build, series);
            }
            Ok(())
        })
    }

    fn row_count_and_newest_date(
        &self,
        snapshot: &Snapshot,
        dataset: Dataset,
        today: NaiveDate,
    ) -> (usize, Option<NaiveDate>) {
        let Dataset::Series(series) = dataset else { return (0, None) };
        let Some(values) = snapshot.series(series) else { return (0, None) };
        let served = values.range(DateRange::ALL.capped_at(today));
        (served.len(), served.last().map(|index| values.get(index).0))
    }

    fn save(&self, snapshot: &Snapshot, directory: &Path) -> Result<Vec<String>> {
        let mut writer = DiskCacheWriter::create(directory)?;
        let loaded = published_series().filter_map(|series| Some((series, snapshot.series(series)?)));
        let loaded: Vec<(&Series, &SeriesValues)> = loaded.collect();
        writer.write_strings(&loaded.iter().map(|(series, _)| series.id.to_owned()).collect::<Vec<_>>())?;
        for (_, values) in loaded {
            let rows = values.published_rows();
            writer.write_dates(rows.iter().map(|(row, _)| row.date))?;
            writer.write_decimals(rows.iter().map(|(row, _)| row.value))?;
            writer.write_provenances(rows.iter().map(|(_, provenance)| *provenance))?;
            // Few series have these; the others have two empty columns. A row without an end repeats its date.
            let has_periods = rows.iter().any(|(row, _)| row.period_end.is_some());
            let period_ends = rows.iter().filter(|_| has_periods);
            writer.write_dates(period_ends.map(|(row, _)| row.period_end.unwrap_or(row.date)))?;
            writer.write_dates(rows.iter().filter(|(row, _)| row.is_provisional).map(|(row, _)| row.date))?;
            writer.write_dates(values.disputed_days().iter().copied())?;
        }
        Ok(vec![writer.finish(|checksum| format!("series-{checksum:08x}"))?])
    }

    fn open(&self, snapshot: &mut Snapshot, files: &[String], directory: &Path) -> Result<()> {
        for file in files {
            let mut reader = DiskCacheReader::open(&directory.join(file))?;
            let mut published: HashMap<String, PublishedSeries> = HashMap::new();
            for id in reader.read_strings()? {
                let series = PublishedSeries { rows: read_rows(&mut reader)?, disputed_days: reader.read_dates()? };
                published.insert(id, series);
            }
            insert_series(snapshot, &published);
        }
        Ok(())
    }
}

/// A series as its publisher has it.
struct PublishedSeries {
    rows: Vec<(Observation, RowProvenance)>,
    disputed_days: Vec<NaiveDate>,
}

fn read_rows(reader: &mut DiskCacheReader) -> Result<Vec<(Observation, RowProvenance)>> {
    let dates = reader.read_dates()?;
    let values = reader.read_decimals()?;
    let provenances = reader.read_provenances()?;
    if values.len() != dates.len() || provenances.len() != dates.len() {
        return Err(DiskCacheError::Damaged("a column of a series is shorter than another").into());
    }
    let period_ends = reader.read_dates()?;
    let provisional_days = reader.read_dates()?;
    if !period_ends.is_empty() && period_ends.len() != dates.len() {
        return Err(DiskCacheError::Damaged("some rows of a series lack the end of their period").into());
    }

    let rows = dates.into_iter().zip(values).zip(provenances).enumerate();
    let to_row = |(index, ((date, value), provenance))| {
        let period_end = period_ends.get(index).copied().filter(|end| *end != date);
        let is_provisional = provisional_days.binary_search(&date).is_ok();
        (Observation { date, value, period_end, is_provisional }, provenance)
    };
    Ok(rows.map(to_row).collect())
}

/// Adds published series to a snapshot, and what is computed from them.
fn insert_series(snapshot: &mut Snapshot, published: &HashMap<String, PublishedSeries>) {
    for series in published_series() {
        let Some(PublishedSeries { rows, disputed_days }) = published.get(series.id) else { continue };
        let daily = series.gap_fill_series.and_then(|gap_fill| published.get(gap_fill));
        let derived = daily.map(|daily| annualize_missing_days(rows, &daily.rows)).unwrap_or_default();
        let values = SeriesValues::new(rows.clone(), derived).with_disputed_days(disputed_days.clone());
        snapshot.series.insert(series.id, Arc::new(values));
    }
    for series in derived_series() {
        if let Some(values) = compute_series(snapshot, series) {
            snapshot.series.insert(series.id, Arc::new(values));
        }
    }
}

/// `None` until every input has been loaded once.
fn compute_series(snapshot: &Snapshot, series: &Series) -> Option<SeriesValues> {
    let inputs = series::source_series(series);
    let inputs: Vec<_> =
        inputs.iter().map(|input| Some(snapshot.series(input)?.rows_with_provenance())).collect::<Option<_>>()?;
    Some(SeriesValues::new(apply_formula(series.formula.as_ref()?, &inputs), Vec::new()))
}

async fn build_published_series(build: &mut SnapshotBuild<'_>, series: &'static Series) -> Result<()> {
    let dataset = Dataset::Series(series);
    let gap_fill = series.gap_fill_series.and_then(series::find_series);
    let is_gap_fill_unchanged = gap_fill.is_none_or(|gap_fill| build.is_unchanged(Dataset::Series(gap_fill)));

    if build.is_unchanged(dataset) && is_gap_fill_unchanged {
        share_served_series(build, series);
    } else if build.is_loaded(dataset) {
        let published = build.reader.observations(series).await?;
        let derived = match gap_fill {
            Some(gap_fill) => annualize_missing_days(&published, &build.reader.observations(gap_fill).await?),
            None => Vec::new(),
        };
        let disputed_days = build.reader.disputed_days(CheckedValues::Series(series)).await?;
        let values = SeriesValues::new(published, derived).with_disputed_days(disputed_days);
        build.next.series.insert(series.id, Arc::new(values));
    }
    Ok(())
}

fn build_derived_series(build: &mut SnapshotBuild<'_>, series: &'static Series) {
    let inputs = series::source_series(series);
    if inputs.iter().all(|input| build.is_unchanged(Dataset::Series(input))) {
        share_served_series(build, series);
        return;
    }

    if let Some(values) = compute_series(&build.next, series) {
        build.next.series.insert(series.id, Arc::new(values));
    }
}

fn share_served_series(build: &mut SnapshotBuild<'_>, series: &'static Series) {
    if let Some(values) = build.served.series.get(series.id) {
        build.next.series.insert(series.id, values.clone());
    }
}

/// Computes a formula over its inputs. Each value is dated as newly known as the newest input it may depend on: too new
/// is safer than too old.
pub fn apply_formula(
    formula: &Formula,
    inputs: &[Vec<(Observation, RowProvenance)>],
) -> Vec<(Observation, RowProvenance)> {
    let dated = |rows: &Vec<(Observation, RowProvenance)>| rows.iter().map(|(row, _)| (row.date, row.value)).collect();
    let values = (formula.compute)(&inputs.iter().map(dated).collect::<Vec<Vec<DatedValue>>>());

    let provenance = |date: NaiveDate| {
        let until = inputs.iter().flatten().filter(|(row, _)| row.date <= month_end(date));
        until.map(|(_, provenance)| *provenance).max_by_key(|known| known.known_at_seconds).unwrap_or_default()
    };
    values.into_iter().map(|(date, value)| (Observation::new(date, value), provenance(date))).collect()
}

/// Computes the days that the annual series lacks from the daily rates.
pub fn annualize_missing_days(
    published: &[(Observation, RowProvenance)],
    daily: &[(Observation, RowProvenance)],
) -> Vec<(Observation, RowProvenance)> {
    let published_days: HashSet<NaiveDate> = published.iter().map(|(row, _)| row.date).collect();
    let missing = daily.iter().filter(|(row, _)| !published_days.contains(&row.date));
    let annualize = |(row, provenance): &(Observation, RowProvenance)| {
        Some((Observation::new(row.date, annualize_daily_rate(row.value)?), *provenance))
    };
    missing.filter_map(annualize).collect()
}
