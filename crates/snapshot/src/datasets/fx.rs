//! Exchange rates: every bulletin of every currency.

use std::path::Path;
use std::sync::Arc;

use chrono::{DateTime, NaiveDate};
use vintem_domain::{Currency, Dataset, Decimal, Quote};
use vintem_store::load::BulletinKind;
use vintem_store::reader::{BulletinRow, SnapshotReader};
use vintem_store::sources::CheckedValues;

use crate::disk_cache::{DiskCacheError, DiskCacheReader, DiskCacheWriter};
use crate::error::Result;
use crate::fx_rates::{DisputedFxDays, FxBulletin, FxRates};
use crate::parities::ParityTableBuilder;
use crate::snapshot::Snapshot;
use crate::snapshot_dataset::{BuildFuture, SnapshotBuild, SnapshotDataset};

pub struct FxData;

impl SnapshotDataset for FxData {
    fn datasets(&self) -> Vec<Dataset> {
        vec![Dataset::Fx]
    }

    fn build<'b>(&'b self, build: &'b mut SnapshotBuild<'_>) -> BuildFuture<'b> {
        Box::pin(async {
            if build.is_unchanged(Dataset::Fx) {
                build.next.fx.clone_from(&build.served.fx);
            } else if build.is_loaded(Dataset::Fx) {
                build.next.fx = Some(Arc::new(read_fx_rates(&mut build.reader).await?));
            }
            Ok(())
        })
    }

    fn row_count_and_newest_date(
        &self,
        snapshot: &Snapshot,
        _: Dataset,
        today: NaiveDate,
    ) -> (usize, Option<NaiveDate>) {
        snapshot.fx().map_or((0, None), |fx| (fx.len(), fx.newest_date().map(|day| day.min(today))))
    }

    fn save(&self, snapshot: &Snapshot, directory: &Path) -> Result<Vec<String>> {
        let Some(fx) = snapshot.fx() else { return Ok(Vec::new()) };
        let mut writer = DiskCacheWriter::create(directory)?;
        for currency in Currency::ALL {
            write_bulletins(&mut writer, fx, currency)?;
            let disputed = fx.disputed_days(currency);
            writer.write_dates(disputed.rates.iter().copied())?;
            writer.write_dates(disputed.parities.iter().copied())?;
        }
        Ok(vec![writer.finish(|checksum| format!("fx-{checksum:08x}"))?])
    }

    fn open(&self, snapshot: &mut Snapshot, files: &[String], directory: &Path) -> Result<()> {
        for file in files {
            let mut reader = DiskCacheReader::open(&directory.join(file))?;
            let mut parities = ParityTableBuilder::default();
            let mut bulletins: [Vec<FxBulletin>; Currency::ALL.len()] = Default::default();
            let mut disputed_days: [DisputedFxDays; Currency::ALL.len()] = Default::default();
            for (bulletins, disputed_days) in bulletins.iter_mut().zip(&mut disputed_days) {
                *bulletins = read_bulletins(&mut reader, &mut parities)?;
                *disputed_days = DisputedFxDays { rates: reader.read_dates()?, parities: reader.read_dates()? };
            }
            let rates = FxRates::new(bulletins, parities.finish()).with_disputed_days(disputed_days);
            snapshot.fx = Some(Arc::new(rates));
        }
        Ok(())
    }
}

fn write_bulletins(writer: &mut DiskCacheWriter, fx: &FxRates, currency: Currency) -> Result<()> {
    let rows = fx.all_bulletins(currency);
    writer.write_dates(rows.iter().map(|row| row.date))?;
    writer.write_numbers(&rows.iter().map(|row| row.published_at.and_utc().timestamp_micros()).collect::<Vec<_>>())?;
    writer.write_numbers(&rows.iter().map(|row| row.kind as u8).collect::<Vec<_>>())?;
    writer.write_strings(&rows.iter().map(|row| row.quote_currency().to_owned()).collect::<Vec<_>>())?;
    writer.write_decimals(rows.iter().flat_map(|row| [row.quote.buy, row.quote.sell]))?;
    writer.write_provenances(rows.iter().map(|row| row.provenance))?;

    let parities: Vec<Option<Quote>> = rows.iter().map(|row| fx.parity(row)).collect();
    writer.write_numbers(&parities.iter().map(|parity| u8::from(parity.is_some())).collect::<Vec<_>>())?;
    writer.write_decimals(parities.into_iter().flatten().flat_map(|parity| [parity.buy, parity.sell]))?;
    Ok(())
}

fn read_bulletins(reader: &mut DiskCacheReader, parities: &mut ParityTableBuilder) -> Result<Vec<FxBulletin>> {
    let dates = reader.read_dates()?;
    let published: Vec<i64> = reader.read_numbers()?;
    let kinds: Vec<u8> = reader.read_numbers()?;
    let quote_currencies = reader.read_strings()?;
    let mut quotes = reader.read_decimals()?.into_iter();
    let provenances = reader.read_provenances()?;
    let has_parity: Vec<u8> = reader.read_numbers()?;
    let mut parity_quotes = reader.read_decimals()?.into_iter();
    let next_quote =
        |quotes: &mut std::vec::IntoIter<Decimal>| Some(Quote { buy: quotes.next()?, sell: quotes.next()? });

    let mut read_row = |row: usize| {
        let parity = if *has_parity.get(row)? == 0 { None } else { Some(next_quote(&mut parity_quotes)?) };
        let bulletin = BulletinRow {
            date: dates[row],
            published_at: DateTime::from_timestamp_micros(*published.get(row)?)?.naive_utc(),
            kind: *BulletinKind::ALL.get(usize::from(*kinds.get(row)?))?,
            quote_currency: quote_currencies.get(row)?,
            quote: next_quote(&mut quotes)?,
            parity,
            provenance: *provenances.get(row)?,
        };
        Some(FxBulletin::from_row(&bulletin, parities))
    };
    let rows = (0..dates.len()).map(|row| read_row(row).ok_or(DiskCacheError::Damaged("a bulletin is incomplete")));
    Ok(rows.collect::<std::result::Result<_, _>>()?)
}

async fn read_fx_rates(reader: &mut SnapshotReader) -> Result<FxRates> {
    let mut bulletins: [Vec<FxBulletin>; Currency::ALL.len()] = Default::default();
    let mut disputed_days: [DisputedFxDays; Currency::ALL.len()] = Default::default();
    let mut parities = ParityTableBuilder::default();
    for currency in Currency::ALL {
        let of_currency = &mut bulletins[currency as usize];
        reader.for_each_bulletin(currency, |row| of_currency.push(FxBulletin::from_row(&row, &mut parities))).await?;
        disputed_days[currency as usize] = DisputedFxDays {
            rates: reader.disputed_days(CheckedValues::ClosingRates(currency)).await?,
            parities: reader.disputed_days(CheckedValues::Parities(currency)).await?,
        };
    }
    Ok(FxRates::new(bulletins, parities.finish()).with_disputed_days(disputed_days))
}
