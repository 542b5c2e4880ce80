//! Filings on disk: the layers, each in its file, and a file that names them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use chrono::DateTime;
use vintem_domain::Origin;
use vintem_store::read::DatasetState;

use super::layer::{FILE_BEGINNING, Layer};
use super::{Filings, Hidden, Laid};
use crate::Result;
use crate::copy::{CopyError, CopyReader, CopyWriter, remove_others};

/// The file that names the others.
const SERVED: &str = "served";

impl Filings {
    /// Writes what is not on disk yet, and takes away what is not served any more.
    pub fn save(&self, state: &DatasetState, directory: &Path) -> Result<()> {
        let files: Vec<String> = self.layers.iter().map(|laid| laid.layer.save(directory)).collect::<Result<_>>()?;
        let mut copy = CopyWriter::create(directory)?;
        copy.bytes(state.lineage.as_bytes())?;
        copy.number(state.generation.unsigned_abs())?;
        copy.number(state.loaded_at.timestamp_micros().unsigned_abs())?;
        copy.bytes(state.origin.id().as_bytes())?;
        copy.texts(&files)?;
        for laid in &self.layers {
            copy.numbers(&laid.hidden.all)?;
            let (rows, latest): (Vec<u32>, Vec<u8>) =
                laid.latest.iter().map(|(row, is_latest)| (*row, u8::from(*is_latest))).unzip();
            copy.numbers(&rows)?;
            copy.numbers(&latest)?;
        }
        copy.finish(|_| SERVED.to_owned())?;
        remove_others(directory, FILE_BEGINNING, &files)?;
        Ok(())
    }

    /// What was last saved, and how far its dataset had come then.
    pub fn load(directory: &Path) -> Result<(DatasetState, Self)> {
        let mut copy = CopyReader::open(&directory.join(SERVED))?;
        let state = DatasetState {
            lineage: copy.text()?,
            generation: i64::try_from(copy.number()?).map_err(|_| CopyError::Damaged("it has no generation"))?,
            loaded_at: i64::try_from(copy.number()?)
                .ok()
                .and_then(DateTime::from_timestamp_micros)
                .ok_or(CopyError::Damaged("it was never loaded"))?,
            origin: Origin::from_id(&copy.text()?).ok_or(CopyError::Damaged("it has no origin"))?,
        };
        let mut filings = Self::default();
        for file in copy.texts()? {
            filings.lay(Arc::new(Layer::load(directory, &file)?));
        }
        for laid in &mut filings.layers {
            let hidden = copy.numbers()?;
            let (rows, latest): (Vec<u32>, Vec<u8>) = (copy.numbers()?, copy.numbers()?);
            let is_row = |row: &u32| (*row as usize) < laid.layer.len();
            if !hidden.iter().chain(&rows).all(is_row) {
                return Err(CopyError::Damaged("it names rows that are not there").into());
            }
            laid.hidden = Arc::new(Hidden::new(&laid.layer, hidden));
            laid.latest = Arc::new(
                rows.into_iter().zip(latest).map(|(row, is_latest)| (row, is_latest != 0)).collect::<HashMap<_, _>>(),
            );
        }
        Ok((state, filings))
    }

    /// Whether both have the same layers, and nothing happened to them in between.
    pub fn is_same(&self, other: &Self) -> bool {
        let same_layer = |(one, other): (&Laid, &Laid)| {
            Arc::ptr_eq(&one.layer, &other.layer)
                && Arc::ptr_eq(&one.hidden, &other.hidden)
                && Arc::ptr_eq(&one.latest, &other.latest)
        };
        self.layers.len() == other.layers.len() && self.layers.iter().zip(&other.layers).all(same_layer)
    }
}
