//! Filings in the disk cache: one file for each layer, and a manifest that lists them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use chrono::DateTime;
use vintem_domain::DataOrigin;
use vintem_store::reader::DatasetState;

use super::layer::{FilingLayer, LAYER_FILE_PREFIX};
use super::{Filings, HiddenRows, LayerView};
use crate::disk_cache::{DiskCacheError, DiskCacheReader, DiskCacheWriter, remove_unlisted_files};
use crate::error::Result;

/// The manifest, which lists the layer files.
const MANIFEST_FILE_NAME: &str = "served";

impl Filings {
    /// Writes the layers that are not on disk yet, and removes those that are no longer served.
    pub fn save(&self, state: &DatasetState, directory: &Path) -> Result<()> {
        let files: Vec<String> = self.layers.iter().map(|view| view.layer.save(directory)).collect::<Result<_>>()?;

        let mut writer = DiskCacheWriter::create(directory)?;
        writer.write_bytes(state.lineage.as_bytes())?;
        writer.write_u64(state.generation.unsigned_abs())?;
        writer.write_u64(state.loaded_at.timestamp_micros().unsigned_abs())?;
        writer.write_bytes(state.origin.id().as_bytes())?;
        writer.write_strings(&files)?;
        for view in &self.layers {
            writer.write_numbers(&view.hidden.all)?;
            let (rows, latest): (Vec<u32>, Vec<u8>) =
                view.latest_overrides.iter().map(|(row, is_latest)| (*row, u8::from(*is_latest))).unzip();
            writer.write_numbers(&rows)?;
            writer.write_numbers(&latest)?;
        }

        writer.finish(|_| MANIFEST_FILE_NAME.to_owned())?;
        remove_unlisted_files(directory, LAYER_FILE_PREFIX, &files)?;
        Ok(())
    }

    /// Loads the filings that were last saved, and the state of their dataset at that time.
    pub fn load(directory: &Path) -> Result<(DatasetState, Self)> {
        let mut reader = DiskCacheReader::open(&directory.join(MANIFEST_FILE_NAME))?;
        let state = DatasetState {
            lineage: reader.read_string()?,
            generation: i64::try_from(reader.read_u64()?)
                .map_err(|_| DiskCacheError::Damaged("it has no generation"))?,
            loaded_at: i64::try_from(reader.read_u64()?)
                .ok()
                .and_then(DateTime::from_timestamp_micros)
                .ok_or(DiskCacheError::Damaged("it was never loaded"))?,
            origin: DataOrigin::from_id(&reader.read_string()?).ok_or(DiskCacheError::Damaged("it has no origin"))?,
        };

        let mut filings = Self::default();
        for file in reader.read_strings()? {
            filings.push_layer(Arc::new(FilingLayer::load(directory, &file)?));
        }
        for view in &mut filings.layers {
            let hidden = reader.read_numbers()?;
            let rows: Vec<u32> = reader.read_numbers()?;
            let latest: Vec<u8> = reader.read_numbers()?;
            let is_row = |row: &u32| (*row as usize) < view.layer.len();
            if !hidden.iter().chain(&rows).all(is_row) {
                return Err(DiskCacheError::Damaged("it names rows that are not there").into());
            }

            view.hidden = Arc::new(HiddenRows::new(&view.layer, hidden));
            view.latest_overrides = Arc::new(
                rows.into_iter().zip(latest).map(|(row, is_latest)| (row, is_latest != 0)).collect::<HashMap<_, _>>(),
            );
        }

        Ok((state, filings))
    }

    /// Whether both have the same layers with the same changes.
    pub fn has_same_layers_as(&self, other: &Self) -> bool {
        let is_same_layer = |(one, other): (&LayerView, &LayerView)| {
            Arc::ptr_eq(&one.layer, &other.layer)
                && Arc::ptr_eq(&one.hidden, &other.hidden)
                && Arc::ptr_eq(&one.latest_overrides, &other.latest_overrides)
        };
        self.layers.len() == other.layers.len() && self.layers.iter().zip(&other.layers).all(is_same_layer)
    }
}
