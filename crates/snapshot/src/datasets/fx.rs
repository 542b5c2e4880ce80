//! Exchange rates: every bulletin of every currency.

use std::sync::Arc;

use chrono::NaiveDate;
use vintem_domain::{Currency, Dataset};
use vintem_store::reader::SnapshotReader;

use crate::error::Result;
use crate::market::{FxBulletin, FxRates};
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
}

async fn read_fx_rates(reader: &mut SnapshotReader) -> Result<FxRates> {
    let mut bulletins: [Vec<FxBulletin>; Currency::ALL.len()] = Default::default();
    let mut parities = ParityTableBuilder::default();
    for currency in Currency::ALL {
        let of_currency = &mut bulletins[currency as usize];
        reader.for_each_bulletin(currency, |row| of_currency.push(FxBulletin::from_row(&row, &mut parities))).await?;
    }
    Ok(FxRates::new(bulletins, parities.finish()))
}
