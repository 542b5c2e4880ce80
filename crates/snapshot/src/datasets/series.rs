//! Series: published ones, and those computed from them.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use chrono::NaiveDate;
use vintem_domain::dates::month_end;
use vintem_domain::decimal::annualize_daily_rate;
use vintem_domain::series::{self, DERIVED_SERIES, DatedValue, Formula, PUBLISHED_SERIES};
use vintem_domain::{Dataset, DateRange, Series};
use vintem_store::load::Observation;
use vintem_store::reader::RowProvenance;

use crate::disk_cache::{DiskCacheError, DiskCacheReader, DiskCacheWriter};
use crate::error::Result;
use crate::market::SeriesValues;
use crate::snapshot::Snapshot;
use crate::snapshot_dataset::{BuildFuture, SnapshotBuild, SnapshotDataset};

pub struct SeriesData;

impl SnapshotDataset for SeriesData {
    fn datasets(&self) -> Vec<Dataset> {
        PUBLISHED_SERIES.iter().map(Dataset::Series).collect()
    }

    fn build<'b>(&'b self, build: &'b mut SnapshotBuild<'_>) -> BuildFuture<'b> {
        Box::pin(async {
            for series in &PUBLISHED_SERIES {
                build_published_series(build, series).await?;
            }
            for series in &DERIVED_SERIES {
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
        let loaded = PUBLISHED_SERIES.iter().filter_map(|series| Some((series.id, snapshot.series(series)?)));
        let loaded: Vec<(&str, &SeriesValues)> = loaded.collect();
        writer.write_strings(&loaded.iter().map(|(id, _)| (*id).to_owned()).collect::<Vec<_>>())?;
        for (_, values) in loaded {
            let rows = values.published_rows();
            writer.write_dates(rows.iter().map(|(row, _)| row.date))?;
            writer.write_decimals(rows.iter().map(|(row, _)| row.value))?;
            writer.write_provenances(rows.iter().map(|(_, provenance)| *provenance))?;
        }
        Ok(vec![writer.finish(|checksum| format!("series-{checksum:08x}"))?])
    }

    fn open(&self, snapshot: &mut Snapshot, files: &[String], directory: &Path) -> Result<()> {
        for file in files {
            let mut reader = DiskCacheReader::open(&directory.join(file))?;
            let mut published: HashMap<String, PublishedRows> = HashMap::new();
            for id in reader.read_strings()? {
                published.insert(id, read_rows(&mut reader)?);
            }
            insert_series(snapshot, &published);
        }
        Ok(())
    }
}

type PublishedRows = Vec<(Observation, RowProvenance)>;

fn read_rows(reader: &mut DiskCacheReader) -> Result<PublishedRows> {
    let (dates, values, provenances) = (reader.read_dates()?, reader.read_decimals()?, reader.read_provenances()?);
    if values.len() != dates.len() || provenances.len() != dates.len() {
        return Err(DiskCacheError::Damaged("a column of a series is shorter than another").into());
    }
    let rows = dates.into_iter().zip(values).zip(provenances);
    Ok(rows.map(|((date, value), provenance)| (Observation { date, value }, provenance)).collect())
}

/// Adds published series to a snapshot, and what is computed from them.
fn insert_series(snapshot: &mut Snapshot, published: &HashMap<String, PublishedRows>) {
    for series in &PUBLISHED_SERIES {
        let Some(rows) = published.get(series.id) else { continue };
        let daily = series.gap_fill_series.and_then(|gap_fill| published.get(gap_fill));
        let derived = daily.map(|daily| annualize_missing_days(rows, daily)).unwrap_or_default();
        snapshot.series.insert(series.id, Arc::new(SeriesValues::new(rows.clone(), derived)));
    }
    for series in &DERIVED_SERIES {
        if let Some(values) = compute_series(snapshot, series) {
            snapshot.series.insert(series.id, Arc::new(values));
        }
    }
}

/// `None` until every input has been loaded once.
fn compute_series(snapshot: &Snapshot, series: &Series) -> Option<SeriesValues> {
    let inputs = series.source_series();
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
        build.next.series.insert(series.id, Arc::new(SeriesValues::new(published, derived)));
    }
    Ok(())
}

fn build_derived_series(build: &mut SnapshotBuild<'_>, series: &'static Series) {
    let inputs = series.source_series();
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
    values.into_iter().map(|(date, value)| (Observation { date, value }, provenance(date))).collect()
}

/// Computes the days that the annual series lacks from the daily rates.
pub fn annualize_missing_days(
    published: &[(Observation, RowProvenance)],
    daily: &[(Observation, RowProvenance)],
) -> Vec<(Observation, RowProvenance)> {
    let published_days: HashSet<NaiveDate> = published.iter().map(|(row, _)| row.date).collect();
    let missing = daily.iter().filter(|(row, _)| !published_days.contains(&row.date));
    let annualize = |(row, provenance): &(Observation, RowProvenance)| {
        Some((Observation { date: row.date, value: annualize_daily_rate(row.value)? }, *provenance))
    };
    missing.filter_map(annualize).collect()
}
