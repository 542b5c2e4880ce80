//! The keys on disk, so that a replica that starts while PostgreSQL is unavailable knows them.
//!
//! Changes are appended in batches, each with the position in the history of keys that the file has reached with it, and
//! with a code that only the pepper can make: nobody without it can add a key, and a half-written batch is noticed. The
//! file has fingerprints of keys, never keys.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use vintem_domain::Plan;
use vintem_store::change_id::ChangeId;
use vintem_store::keys::KeyHistoryPosition;

use super::Pepper;
use super::key_table::KeyEntry;

/// Begins what the code of a batch is made of. Raise the number with every change of the format.
const BATCH_MARK: &[u8] = b"vintem keys on disk 1 ";
const CODE_BYTES: usize = 32;
const ENTRY_BYTES: usize = 16 + 8 + 8 + 8 + 1 + 1;
/// Entries in one batch of a file that is rewritten.
const BATCH_ENTRIES: usize = 10_000;
/// A file with fewer bytes is never worth rewriting.
const MIN_COMPACTED_BYTES: u64 = 1 << 20;

/// The keys as they are on disk.
#[derive(Debug, Default)]
pub struct SavedKeys {
    pub entries: Vec<KeyEntry>,
    /// All changes up to this position are among the entries.
    pub position: KeyHistoryPosition,
    /// When the position was last known to be the newest.
    pub checked_at: Option<DateTime<Utc>>,
}

#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    file: File,
    /// Where the last complete batch ends.
    length: u64,
    pepper: Pepper,
}

impl KeyFile {
    /// Opens the file, or creates it. Whatever follows the last complete batch is dropped.
    pub fn open(path: &Path, pepper: &Pepper) -> io::Result<(Self, SavedKeys)> {
        let mut file = open_private(path)?;
        let modified_at = file.metadata()?.modified()?;
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;

        let mut saved = SavedKeys::default();
        let mut length = 0;
        while let Some(batch_length) = read_batch(&content, length, pepper, &mut saved) {
            length += batch_length;
        }
        if length > 0 {
            saved.checked_at = Some(modified_at.into());
        }

        let length = length as u64;
        file.set_len(length)?;
        Ok((Self { path: path.to_owned(), file, length, pepper: pepper.clone() }, saved))
    }

    /// Adds changes. If it fails, the file stays as it was.
    pub fn append(&mut self, entries: &[KeyEntry], position: &KeyHistoryPosition) -> io::Result<()> {
        let batch = encode_batch(self.length, entries, position, &self.pepper);
        if let Err(error) = self.file.write_all(&batch) {
            self.file.set_len(self.length)?;
            return Err(error);
        }
        self.length += batch.len() as u64;
        Ok(())
    }

    /// Notes that there were no changes after the last position at this moment.
    pub fn set_checked_at(&self, at: DateTime<Utc>) -> io::Result<()> {
        self.file.set_modified(at.into())
    }

    /// Removes all keys from the file.
    pub fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.length = 0;
        Ok(())
    }

    /// Whether most of the file is changes that later ones replaced.
    pub fn is_mostly_outdated(&self, entry_count: usize) -> bool {
        self.length > MIN_COMPACTED_BYTES && self.length > 3 * (entry_count * ENTRY_BYTES) as u64
    }

    /// Rewrites the file with these keys. The former file stays until the new one is complete.
    pub fn rewrite(&mut self, entries: &[KeyEntry], position: &KeyHistoryPosition) -> io::Result<()> {
        let temporary_path = self.path.with_extension("unfinished");
        let written = write_new_file(&temporary_path, entries, position, &self.pepper);
        let renamed = written.and_then(|(file, length)| {
            fs::rename(&temporary_path, &self.path)?;
            Ok((file, length))
        });
        match renamed {
            Ok((file, length)) => {
                (self.file, self.length) = (file, length);
                Ok(())
            }
            Err(error) => {
                let _ = fs::remove_file(&temporary_path);
                Err(error)
            }
        }
    }
}

/// Only the owner may read it.
fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

fn write_new_file(
    path: &Path,
    entries: &[KeyEntry],
    position: &KeyHistoryPosition,
    pepper: &Pepper,
) -> io::Result<(File, u64)> {
    let mut file = open_private(path)?;
    file.set_len(0)?;
    let mut length = 0;
    for chunk in entries.chunks(BATCH_ENTRIES) {
        let batch = encode_batch(length, chunk, position, pepper);
        file.write_all(&batch)?;
        length += batch.len() as u64;
    }
    file.sync_all()?;
    Ok((file, length))
}

/// The length of what follows, then the content, then its code.
fn encode_batch(offset: u64, entries: &[KeyEntry], position: &KeyHistoryPosition, pepper: &Pepper) -> Vec<u8> {
    let mut content = Vec::with_capacity(64 + entries.len() * ENTRY_BYTES);
    // A UUID and a number, so its length always fits.
    content.push(position.epoch.len() as u8);
    content.extend_from_slice(position.epoch.as_bytes());
    content.extend_from_slice(&position.revision.to_le_bytes());
    content.extend_from_slice(&position.change_id.map_or(0, ChangeId::to_u128).to_le_bytes());
    for entry in entries {
        content.extend_from_slice(&entry.fingerprint);
        content.extend_from_slice(&entry.id.to_le_bytes());
        content.extend_from_slice(&entry.revision.to_le_bytes());
        content.extend_from_slice(&entry.valid_until.to_le_bytes());
        content.push(entry.plan as u8);
        content.push(entry.is_former.into());
    }

    let code = batch_code(offset, &content, pepper);
    let length = (content.len() + CODE_BYTES) as u32;
    [length.to_le_bytes().as_slice(), &content, &code].concat()
}

/// A batch belongs to its place in the file, so none can be moved or repeated.
fn batch_code(offset: u64, content: &[u8], pepper: &Pepper) -> [u8; CODE_BYTES] {
    pepper.authenticate(&[BATCH_MARK, &offset.to_le_bytes(), content])
}

/// Adds the batch at this offset to `saved` and returns its length. `None` if there is no complete one.
fn read_batch(file: &[u8], offset: usize, pepper: &Pepper, saved: &mut SavedKeys) -> Option<usize> {
    let (length, rest) = file.get(offset..)?.split_first_chunk::<4>()?;
    let batch = rest.get(..u32::from_le_bytes(*length) as usize)?;
    let (content, code) = batch.split_last_chunk::<CODE_BYTES>()?;
    if batch_code(offset as u64, content, pepper) != *code {
        return None;
    }

    let (epoch_length, rest) = content.split_first()?;
    let (epoch, rest) = rest.split_at_checked(usize::from(*epoch_length))?;
    let (revision, rest) = rest.split_first_chunk::<8>()?;
    let (change_id, entries) = rest.split_first_chunk::<16>()?;
    let entries: Vec<KeyEntry> = entries.chunks(ENTRY_BYTES).map(read_entry).collect::<Option<_>>()?;

    saved.entries.extend(entries);
    saved.position = KeyHistoryPosition {
        epoch: String::from_utf8(epoch.to_vec()).ok()?,
        revision: i64::from_le_bytes(*revision),
        change_id: Some(u128::from_le_bytes(*change_id)).filter(|id| *id != 0).map(ChangeId::from_u128),
    };
    Some(4 + batch.len())
}

fn read_entry(bytes: &[u8]) -> Option<KeyEntry> {
    let (fingerprint, rest) = bytes.split_first_chunk::<16>()?;
    let (id, rest) = rest.split_first_chunk::<8>()?;
    let (revision, rest) = rest.split_first_chunk::<8>()?;
    let (valid_until, rest) = rest.split_first_chunk::<8>()?;
    let [plan, is_former] = *rest else { return None };
    Some(KeyEntry {
        fingerprint: *fingerprint,
        id: i64::from_le_bytes(*id),
        revision: i64::from_le_bytes(*revision),
        valid_until: i64::from_le_bytes(*valid_until),
        plan: Plan::ALL.into_iter().find(|known| *known as u8 == plan)?,
        is_former: is_former != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pepper() -> Pepper {
        Pepper::new("a pepper for tests, long enough to be one").expect("it is long enough")
    }

    fn entry(number: u8) -> KeyEntry {
        let plan = Plan::ALL[usize::from(number) % Plan::ALL.len()];
        KeyEntry {
            fingerprint: [number; 16],
            id: number.into(),
            revision: i64::from(number) + 1,
            valid_until: i64::MAX - i64::from(number),
            plan,
            is_former: number.is_multiple_of(2),
        }
    }

    fn position(revision: i64) -> KeyHistoryPosition {
        KeyHistoryPosition {
            epoch: "0b5c9f0e/16384".to_owned(),
            revision,
            change_id: Some(ChangeId::from_u128(revision.unsigned_abs().into())),
        }
    }

    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Self {
            let directory = Self(std::env::temp_dir().join(format!("vintem-key-file-{:016x}", rand::random::<u64>())));
            fs::create_dir(&directory.0).expect("a new directory");
            directory
        }

        fn file(&self) -> PathBuf {
            self.0.join("keys")
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("the directory of this test");
        }
    }

    #[test]
    fn appended_keys_are_read_again_and_survive_a_rewrite() {
        let directory = Directory::new();
        let (mut file, saved) = KeyFile::open(&directory.file(), &pepper()).expect("a new file");
        assert_eq!((saved.entries.len(), saved.checked_at), (0, None));

        file.append(&[entry(1), entry(2)], &position(3)).expect("room on the disk");
        file.append(&[entry(3)], &position(4)).expect("room on the disk");
        let at = "2026-11-17T12:00:00Z".parse().expect("a time");
        file.set_checked_at(at).expect("our file");

        let (mut file, saved) = KeyFile::open(&directory.file(), &pepper()).expect("the file");
        assert_eq!(saved.entries, [entry(1), entry(2), entry(3)]);
        assert_eq!((saved.position, saved.checked_at), (position(4), Some(at)));

        file.rewrite(&[entry(2)], &position(5)).expect("room on the disk");
        file.append(&[entry(9)], &position(6)).expect("room on the disk");
        let (mut file, saved) = KeyFile::open(&directory.file(), &pepper()).expect("the file");
        assert_eq!((saved.entries, saved.position), (vec![entry(2), entry(9)], position(6)));

        file.clear().expect("our file");
        let (_, saved) = KeyFile::open(&directory.file(), &pepper()).expect("the file");
        assert!(saved.entries.is_empty());
    }

    #[test]
    fn a_file_that_was_cut_off_or_changed_anywhere_ends_before_the_damage() {
        let directory = Directory::new();
        let (mut file, _) = KeyFile::open(&directory.file(), &pepper()).expect("a new file");
        file.append(&[entry(1)], &position(1)).expect("room on the disk");
        let first_batch = fs::metadata(directory.file()).expect("the file").len() as usize;
        file.append(&[entry(2)], &position(2)).expect("room on the disk");
        let content = fs::read(directory.file()).expect("the file");

        let entries_of = |content: &[u8]| {
            fs::write(directory.file(), content).expect("our file");
            KeyFile::open(&directory.file(), &pepper()).expect("the file").1.entries
        };
        for at in 0..content.len() {
            let expected: &[KeyEntry] = if at < first_batch { &[] } else { &[entry(1)] };
            assert_eq!(entries_of(&content[..at]), expected, "cut off at {at}");
            let mut changed = content.clone();
            changed[at] ^= 0x10;
            assert_eq!(entries_of(&changed), expected, "changed at {at}");
        }
        // A batch in another place is not one.
        let repeated = [&content[..first_batch], &content[..first_batch]].concat();
        assert_eq!(entries_of(&repeated), [entry(1)]);
    }

    #[test]
    fn a_file_of_another_pepper_has_no_keys() {
        let directory = Directory::new();
        let (mut file, _) = KeyFile::open(&directory.file(), &pepper()).expect("a new file");
        file.append(&[entry(1)], &position(1)).expect("room on the disk");

        let other = Pepper::new("another pepper, also long enough to be one").expect("it is long enough");
        let (_, saved) = KeyFile::open(&directory.file(), &other).expect("the file");
        assert!(saved.entries.is_empty());
    }
}
