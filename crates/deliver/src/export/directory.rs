//! Read access to the export directory, for serving its files.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::{Manifest, ManifestEntry, ManifestFile, Result};

pub const MANIFEST_FILE: &str = "manifest.json";

/// A random name, so that it is unique.
pub fn temp_file_name() -> String {
    format!(".unfinished-{:016x}", rand::random::<u64>())
}

/// `None` if no manifest was ever written.
pub fn read_manifest(directory: &Path) -> Result<Option<Manifest>> {
    match fs::read(directory.join(MANIFEST_FILE)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The export directory, with a cached copy of its manifest.
#[derive(Debug)]
pub struct ExportDirectory {
    path: PathBuf,
    cached_manifest: ArcSwapOption<(FileFingerprint, Arc<Manifest>)>,
}

/// Changes with each write of the file: its inode number, and its modification time in seconds and nanoseconds.
type FileFingerprint = (u64, i64, i64);

impl ExportDirectory {
    pub fn new(path: PathBuf) -> Self {
        Self { path, cached_manifest: ArcSwapOption::empty() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The current manifest; `None` if nothing was ever exported. Blocks on the disk.
    pub fn load_manifest(&self) -> Result<Option<Arc<Manifest>>> {
        let fingerprint = match fs::metadata(self.path.join(MANIFEST_FILE)) {
            Ok(metadata) => (metadata.ino(), metadata.mtime(), metadata.mtime_nsec()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };

        let cached = self.cached_manifest.load();
        if let Some((_, manifest)) = cached.as_deref().filter(|(cached, _)| *cached == fingerprint) {
            return Ok(Some(manifest.clone()));
        }

        // If the manifest is replaced between the two reads, the next call reads it once more.
        let Some(manifest) = read_manifest(&self.path)?.map(Arc::new) else { return Ok(None) };
        self.cached_manifest.store(Some(Arc::new((fingerprint, manifest.clone()))));
        Ok(Some(manifest))
    }

    /// Opens a current file. It stays readable to its end even if it is superseded meanwhile.
    pub fn open_file(&self, name: &str) -> Result<Option<(ManifestEntry, ManifestFile, File)>> {
        let Some(manifest) = self.load_manifest()? else { return Ok(None) };
        let Some((entry, file)) = manifest.find_file(name) else { return Ok(None) };
        let opened = File::open(self.path.join(file.stored_name()))?;
        Ok(Some((entry.clone(), file.clone(), opened)))
    }
}
