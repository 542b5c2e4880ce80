//! The file with the bodies of statements: written once at its end, and read by offset.
//!
//! Every body has a checksum, which is compared when it is read: to check 400 MB at each start would take too long.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::disk_cache::DiskCacheError;

const FILE_NAME_PREFIX: &str = "statement-bodies-";

/// Where a body is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLocation {
    pub offset: u64,
    pub length: u32,
    pub checksum: u32,
}

#[derive(Debug)]
pub struct BodyFile {
    file: File,
    path: PathBuf,
    /// Whether it stays when nothing refers to it any more. A file that was begun but never served does not.
    is_kept: AtomicBool,
}

impl BodyLocation {
    pub fn end(self) -> u64 {
        self.offset + u64::from(self.length)
    }
}

impl BodyFile {
    pub fn create(directory: &Path) -> io::Result<Self> {
        // The time makes the name new: an index that was saved with another file must not meet this one.
        let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let name = format!("{FILE_NAME_PREFIX}{nanoseconds:x}");
        fs::create_dir_all(directory)?;
        let path = directory.join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        Ok(Self { file, path, is_kept: AtomicBool::new(false) })
    }

    /// A file for a snapshot that is not cached on disk. It has no name, so nothing is left of it after the process.
    pub fn create_unnamed(directories: &[PathBuf]) -> io::Result<Self> {
        let mut created = Err(io::ErrorKind::NotFound.into());
        for directory in directories {
            created = Self::create(directory);
            if created.is_ok() {
                break;
            }
        }
        let file = created?;
        fs::remove_file(&file.path)?;
        Ok(file)
    }

    /// The file of this name, of which the first `used_bytes` are in use.
    pub fn open(directory: &Path, name: &str, used_bytes: u64) -> Result<Self, DiskCacheError> {
        if !is_body_file(name) {
            return Err(DiskCacheError::Damaged("a file with another name has the statements"));
        }
        let path = directory.join(name);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        if file.metadata()?.len() < used_bytes {
            return Err(DiskCacheError::Damaged("the file with the statements is too short"));
        }
        Ok(Self { file, path, is_kept: AtomicBool::new(true) })
    }

    pub fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Returns when everything is on disk.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub fn read(&self, location: BodyLocation) -> Result<Vec<u8>, DiskCacheError> {
        let mut bytes = vec![0; location.length as usize];
        self.file.read_exact_at(&mut bytes, location.offset)?;
        if crc32fast::hash(&bytes) != location.checksum {
            return Err(DiskCacheError::Damaged("the checksum of a statement is wrong"));
        }
        Ok(bytes)
    }

    /// From now on the file is served: it outlives the process.
    pub fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Removes the file as soon as nothing refers to it.
    pub fn supersede(&self) {
        self.is_kept.store(false, Ordering::Relaxed);
    }
}

impl Drop for BodyFile {
    fn drop(&mut self) {
        if !self.is_kept.load(Ordering::Relaxed) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

pub fn is_body_file(name: &str) -> bool {
    name.starts_with(FILE_NAME_PREFIX)
}

/// Removes the files of earlier runs, which nothing refers to.
pub fn remove_other_body_files(directory: &Path, used: Option<&str>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| is_body_file(name) && Some(name) != used) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
