//! A directory that is removed on drop.

use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct TempDirectory(PathBuf);

impl TempDirectory {
    pub fn create() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("vintem-test-{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} was left behind: {error}", self.0.display());
        }
    }
}
