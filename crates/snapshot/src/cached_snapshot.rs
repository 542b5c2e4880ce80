//! A snapshot in the disk cache: the files of its parts, and a manifest that lists them. The manifest is replaced last, so
//! that the parts of a cached snapshot always belong together.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use chrono::DateTime;
use vintem_domain::{DataOrigin, Dataset};
use vintem_store::change_id::ChangeId;
use vintem_store::reader::{DatasetState, FetchRow};

use crate::datasets::SNAPSHOT_DATASETS;
use crate::disk_cache::{DiskCacheError, DiskCacheReader, DiskCacheWriter};
use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::statements::is_body_file;

const MANIFEST_FILE_NAME: &str = "served";

/// A snapshot that is on disk.
#[derive(Debug, Default)]
pub struct CachedSnapshot {
    pub snapshot: Snapshot,
    /// The files of each part, in the order of [`SNAPSHOT_DATASETS`].
    part_files: Vec<Vec<String>>,
    fetches_file: String,
}

impl CachedSnapshot {
    /// Opens what was last saved. A part is left out if one of its files is missing, damaged, or of another version.
    pub fn open(directory: &Path) -> Result<Self> {
        let mut reader = DiskCacheReader::open(&directory.join(MANIFEST_FILE_NAME))?;
        let mut snapshot = Snapshot { states: read_states(&mut reader)?, ..Snapshot::default() };
        let fetches_file = reader.read_string()?;
        snapshot.fetches = Arc::new(load_fetches(&directory.join(&fetches_file))?);

        let mut part_files = Vec::new();
        for part in SNAPSHOT_DATASETS {
            let mut files = reader.read_strings()?;
            let is_loaded = part.datasets().into_iter().any(|dataset| snapshot.states.contains_key(&dataset));
            let opened = if is_loaded { part.open(&mut snapshot, &files, directory) } else { Ok(()) };
            if let Err(error) = opened {
                tracing::warn!(%error, "a part of the snapshot copy is unusable");
                files.clear();
                snapshot.states.retain(|dataset, _| !part.datasets().contains(dataset));
            }
            part_files.push(files);
        }
        Ok(Self { snapshot, part_files, fetches_file })
    }

    /// Writes the parts that differ from what is on disk, and removes files that are no longer needed. `None` if
    /// nothing differs.
    pub fn save(&self, served: &Snapshot, directory: &Path) -> Result<Option<Self>> {
        let has_same_fetches = Arc::ptr_eq(&self.snapshot.fetches, &served.fetches) && !self.fetches_file.is_empty();
        let mut is_same = has_same_fetches;
        let fetches_file =
            if has_same_fetches { self.fetches_file.clone() } else { save_fetches(&served.fetches, directory)? };

        let mut part_files = Vec::new();
        for (index, part) in SNAPSHOT_DATASETS.into_iter().enumerate() {
            let saved_files = self.part_files.get(index).filter(|_| part.is_same(&self.snapshot, served));
            is_same &= saved_files.is_some();
            part_files.push(match saved_files {
                Some(files) => files.clone(),
                None => part.save(served, directory)?,
            });
        }
        if is_same {
            return Ok(None);
        }

        let mut writer = DiskCacheWriter::create(directory)?;
        write_states(&mut writer, &served.states)?;
        writer.write_bytes(fetches_file.as_bytes())?;
        for files in &part_files {
            writer.write_strings(files)?;
        }
        writer.finish(|_| MANIFEST_FILE_NAME.to_owned())?;

        let saved = Self { snapshot: served.clone(), part_files, fetches_file };
        saved.remove_other_files(directory)?;
        Ok(Some(saved))
    }

    fn remove_other_files(&self, directory: &Path) -> Result<()> {
        let is_needed = |name: &str| {
            name == MANIFEST_FILE_NAME
                || name == self.fetches_file
                || self.part_files.iter().flatten().any(|file| file == name)
        };
        // A file with statements removes itself: another one may just be written.
        for entry in fs::read_dir(directory).map_err(DiskCacheError::from)? {
            let entry = entry.map_err(DiskCacheError::from)?;
            if !entry.file_name().to_str().is_some_and(|name| is_needed(name) || is_body_file(name)) {
                fs::remove_file(entry.path()).map_err(DiskCacheError::from)?;
            }
        }
        Ok(())
    }
}

fn write_states(writer: &mut DiskCacheWriter, states: &HashMap<Dataset, DatasetState>) -> Result<()> {
    writer.write_u64(states.len() as u64)?;
    for (dataset, state) in states {
        writer.write_strings(&[dataset.id().to_owned(), state.lineage.clone(), state.origin.id().to_owned()])?;
        writer.write_numbers(&[state.generation, state.loaded_at.timestamp_micros()])?;
        writer.write_u128(state.load_id.to_u128())?;
    }
    Ok(())
}

fn read_states(reader: &mut DiskCacheReader) -> Result<HashMap<Dataset, DatasetState>> {
    let mut states = HashMap::new();
    for _ in 0..reader.read_u64()? {
        let damaged = DiskCacheError::Damaged("the state of a dataset is incomplete");
        let texts: std::result::Result<[String; 3], _> = reader.read_strings()?.try_into();
        let numbers: std::result::Result<[i64; 2], _> = reader.read_numbers()?.try_into();
        let load_id = ChangeId::from_u128(reader.read_u128()?);
        let (Ok([id, lineage, origin]), Ok([generation, loaded_at])) = (texts, numbers) else {
            return Err(damaged.into());
        };
        let (Some(origin), Some(loaded_at)) =
            (DataOrigin::from_id(&origin), DateTime::from_timestamp_micros(loaded_at))
        else {
            return Err(damaged.into());
        };
        // A dataset that this version does not have is left out.
        if let Some(dataset) = Dataset::from_id(&id) {
            states.insert(dataset, DatasetState { lineage, generation, load_id, loaded_at, origin });
        }
    }
    Ok(states)
}

fn save_fetches(fetches: &HashMap<u32, FetchRow>, directory: &Path) -> Result<String> {
    let mut writer = DiskCacheWriter::create(directory)?;
    writer.write_numbers(&fetches.keys().copied().collect::<Vec<_>>())?;
    for fetch in fetches.values() {
        writer.write_bytes(fetch.source_url.as_bytes())?;
        writer.write_numbers(&[fetch.fetched_at.timestamp_micros()])?;
        writer.write_bytes(&fetch.sha256)?;
    }
    Ok(writer.finish(|checksum| format!("fetches-{checksum:08x}"))?)
}

fn load_fetches(path: &Path) -> Result<HashMap<u32, FetchRow>> {
    let mut reader = DiskCacheReader::open(path)?;
    let mut fetches = HashMap::new();
    for id in reader.read_numbers::<u32>()? {
        let source_url = reader.read_string()?;
        let fetched_at = reader.read_numbers::<i64>()?.first().copied().and_then(DateTime::from_timestamp_micros);
        let sha256: std::result::Result<[u8; 32], _> = reader.read_bytes()?.try_into();
        let (Some(fetched_at), Ok(sha256)) = (fetched_at, sha256) else {
            return Err(DiskCacheError::Damaged("a fetch is incomplete").into());
        };
        fetches.insert(id, FetchRow { source_url, fetched_at, sha256 });
    }
    Ok(fetches)
}
