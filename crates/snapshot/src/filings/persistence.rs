//! Filings in the disk cache: a list with the changes to the rows of each layer, and one file for each layer.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::layer::FilingLayer;
use super::{Filings, HiddenRows, LayerView};
use crate::disk_cache::{DiskCacheError, DiskCacheReader, DiskCacheWriter};
use crate::error::Result;

impl Filings {
    /// Writes the list and the layers that are not on disk yet. Returns the names of all files, the list first.
    pub fn save(&self, directory: &Path) -> Result<Vec<String>> {
        let layers: Vec<String> = self.layers.iter().map(|view| view.layer.save(directory)).collect::<Result<_>>()?;

        let mut writer = DiskCacheWriter::create(directory)?;
        for view in &self.layers {
            writer.write_numbers(&view.hidden.all)?;
            let (rows, latest): (Vec<u32>, Vec<u8>) =
                view.latest_overrides.iter().map(|(row, is_latest)| (*row, u8::from(*is_latest))).unzip();
            writer.write_numbers(&rows)?;
            writer.write_numbers(&latest)?;
        }
        let list = writer.finish(|checksum| format!("filings-{checksum:08x}"))?;
        Ok([vec![list], layers].concat())
    }

    /// Loads the filings from the files that `save` wrote.
    pub fn load(directory: &Path, files: &[String]) -> Result<Self> {
        let (list, layers) = files.split_first().ok_or(DiskCacheError::Damaged("it has no list of filings"))?;
        let mut reader = DiskCacheReader::open(&directory.join(list))?;

        let mut filings = Self::default();
        for file in layers {
            filings.push_layer(Arc::new(FilingLayer::load(directory, file)?));
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

        Ok(filings)
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
