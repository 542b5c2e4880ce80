//! The files as whoever serves them sees them.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::{Manifest, ManifestEntry, ManifestFile, Result};

pub const MANIFEST_FILE: &str = "manifest.json";

/// A name that no other file has.
pub fn temp_file_name() -> String {
    format!(".unfinished-{:016x}", rand::random::<u64>())
}

/// Nothing where none was ever written.
pub fn read_manifest(directory: &Path) -> Result<Option<Manifest>> {
    match fs::read(directory.join(MANIFEST_FILE)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The directory of the export, and the manifest as it was last read.
#[derive(Debug)]
pub struct ExportDirectory {
    path: PathBuf,
    cached_manifest: ArcSwapOption<(FileFingerprint, Arc<Manifest>)>,
}

/// Tells one written file from the next: its number, and the seconds and nanoseconds of its time.
type FileFingerprint = (u64, i64, i64);

impl ExportDirectory {
    pub fn new(path: PathBuf) -> Self {
        Self { path, cached_manifest: ArcSwapOption::empty() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is current; nothing where nothing was ever made. Reads from the disk.
    pub fn load_manifest(&self) -> Result<Option<Arc<Manifest>>> {
        let identity = match fs::metadata(self.path.join(MANIFEST_FILE)) {
            Ok(metadata) => (metadata.ino(), metadata.mtime(), metadata.mtime_nsec()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if let Some((_, manifest)) = self.cached_manifest.load().as_deref().filter(|(read, _)| *read == identity) {
            return Ok(Some(manifest.clone()));
        }
        // Should it be replaced in between, it is read once more next time.
        let Some(manifest) = read_manifest(&self.path)?.map(Arc::new) else { return Ok(None) };
        self.cached_manifest.store(Some(Arc::new((identity, manifest.clone()))));
        Ok(Some(manifest))
    }

    /// A current file, opened: whoever reads it reads it to its end, whatever becomes current meanwhile.
    pub fn open_file(&self, name: &str) -> Result<Option<(ManifestEntry, ManifestFile, File)>> {
        let Some(manifest) = self.load_manifest()? else { return Ok(None) };
        let Some((entry, file)) = manifest.find_file(name) else { return Ok(None) };
        let opened = File::open(self.path.join(file.stored_name()))?;
        Ok(Some((entry.clone(), file.clone(), opened)))
    }
}
