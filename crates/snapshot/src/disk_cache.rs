//! The disk cache, from which a replica starts faster than from Postgres.
//!
//! Each part of the snapshot is one or more files that are written once; a manifest lists those that belong together
//! ([`crate::cached_snapshot`]). Every file ends with a checksum of everything before it, and is used only if the
//! checksum matches. Whatever else is wrong with the cache, the worst outcome is a start without it.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use chrono::{Datelike, NaiveDate};
use crc32fast::Hasher;
use vintem_domain::Decimal;
use vintem_store::reader::RowProvenance;
use vintem_store::tables::filing::FILING_TABLE;
use vintem_store::tables::observation::OBSERVATION_TABLE;

/// Raise the number with every change of the file format or of the tokenizer; a new column of filings or observations
/// changes the version without that. Files with another version are ignored.
const FORMAT_VERSION: u64 = 6 ^ FILING_TABLE.fingerprint() ^ OBSERVATION_TABLE.fingerprint();
const MAGIC: &[u8; 8] = b"vintem\x1a\n";
const CHECKSUM_BYTES: u64 = 4;
const BUFFER_BYTES: usize = 1 << 20;
/// Name of a file while it is being written; nothing reads it.
const TEMPORARY_FILE_NAME: &str = "unfinished";

#[derive(Debug, thiserror::Error)]
pub enum DiskCacheError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Damaged(&'static str),
}

type Result<T> = std::result::Result<T, DiskCacheError>;

/// Writes a file that appears whole or not at all.
pub struct DiskCacheWriter {
    file: BufWriter<File>,
    checksum: Hasher,
    temporary: TemporaryFile,
}

/// Removed when dropped, unless it was renamed: a full disk must not stay full because of it.
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Reads a file whose checksum has been verified.
pub struct DiskCacheReader {
    file: BufReader<File>,
    remaining_bytes: u64,
}

impl DiskCacheWriter {
    pub fn create(directory: &Path) -> Result<Self> {
        let temporary = TemporaryFile(directory.join(TEMPORARY_FILE_NAME));
        let file = BufWriter::with_capacity(BUFFER_BYTES, File::create(&temporary.0)?);
        let mut writer = Self { file, checksum: Hasher::new(), temporary };
        writer.write_raw(MAGIC)?;
        writer.write_u64(FORMAT_VERSION)?;
        Ok(writer)
    }

    /// Closes the file and renames it to its final name, which may contain the checksum. Returns that name.
    pub fn finish(mut self, file_name: impl FnOnce(u32) -> String) -> Result<String> {
        let checksum = self.checksum.clone().finalize();
        self.file.write_all(&checksum.to_le_bytes())?;
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;

        let name = file_name(checksum);
        fs::rename(&self.temporary.0, self.temporary.0.with_file_name(&name))?;
        Ok(name)
    }

    fn write_raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.checksum.update(bytes);
        self.file.write_all(bytes)?;
        Ok(())
    }

    pub fn write_u64(&mut self, number: u64) -> Result<()> {
        self.write_raw(&number.to_le_bytes())
    }

    pub fn write_u128(&mut self, number: u128) -> Result<()> {
        self.write_raw(&number.to_le_bytes())
    }

    pub fn write_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.write_u64(bytes.len() as u64)?;
        self.write_raw(bytes)
    }

    pub fn write_numbers<T: FixedWidthInteger>(&mut self, numbers: &[T]) -> Result<()> {
        self.write_u64((numbers.len() * T::BYTES) as u64)?;
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        for chunk in numbers.chunks(BUFFER_BYTES / T::BYTES) {
            buffer.clear();
            for number in chunk {
                number.write(&mut buffer);
            }
            self.write_raw(&buffer)?;
        }
        Ok(())
    }

    pub fn write_strings(&mut self, texts: &[String]) -> Result<()> {
        self.write_u64(texts.len() as u64)?;
        texts.iter().try_for_each(|text| self.write_bytes(text.as_bytes()))
    }

    pub fn write_dates(&mut self, dates: impl Iterator<Item = NaiveDate>) -> Result<()> {
        self.write_numbers(&dates.map(|date| date.num_days_from_ce()).collect::<Vec<_>>())
    }

    /// Every digit is kept, trailing zeros too.
    pub fn write_decimals(&mut self, numbers: impl Iterator<Item = Decimal>) -> Result<()> {
        self.write_numbers(&numbers.map(|number| u128::from_le_bytes(number.serialize())).collect::<Vec<_>>())
    }

    pub fn write_provenances(&mut self, provenances: impl Iterator<Item = RowProvenance>) -> Result<()> {
        let (known_at, fetch_ids): (Vec<u32>, Vec<u32>) =
            provenances.map(|provenance| (provenance.known_at_seconds, provenance.fetch_id)).unzip();
        self.write_numbers(&known_at)?;
        self.write_numbers(&fetch_ids)
    }
}

impl DiskCacheReader {
    /// Reads the whole file once to verify its checksum.
    pub fn open(path: &Path) -> Result<Self> {
        let mut file = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
        let size = file.get_ref().metadata()?.len();
        let content_bytes = size.checked_sub(CHECKSUM_BYTES).ok_or(DiskCacheError::Damaged("it is too short"))?;

        let mut checksum = Hasher::new();
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut unread = content_bytes;
        while unread > 0 {
            let count = buffer.len().min(usize::try_from(unread).unwrap_or(usize::MAX));
            file.read_exact(&mut buffer[..count])?;
            checksum.update(&buffer[..count]);
            unread -= count as u64;
        }
        let mut expected = [0; 4];
        file.read_exact(&mut expected)?;
        if checksum.finalize() != u32::from_le_bytes(expected) {
            return Err(DiskCacheError::Damaged("its checksum is wrong"));
        }

        file.rewind()?;
        let mut reader = Self { file, remaining_bytes: content_bytes };
        let mut magic = [0; MAGIC.len()];
        reader.read_raw(&mut magic)?;
        if magic != *MAGIC || reader.read_u64()? != FORMAT_VERSION {
            return Err(DiskCacheError::Damaged("it was written by another version"));
        }
        Ok(reader)
    }

    fn read_raw(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.remaining_bytes =
            self.remaining_bytes.checked_sub(bytes.len() as u64).ok_or(DiskCacheError::Damaged("it ends too soon"))?;
        self.file.read_exact(bytes)?;
        Ok(())
    }

    pub fn read_u64(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read_raw(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub fn read_u128(&mut self) -> Result<u128> {
        let mut bytes = [0; 16];
        self.read_raw(&mut bytes)?;
        Ok(u128::from_le_bytes(bytes))
    }

    pub fn read_bytes(&mut self) -> Result<Vec<u8>> {
        let length = self.read_u64()?;
        if length > self.remaining_bytes {
            return Err(DiskCacheError::Damaged("it ends too soon"));
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| DiskCacheError::Damaged("it is too large"))?];
        self.read_raw(&mut bytes)?;
        Ok(bytes)
    }

    pub fn read_numbers<T: FixedWidthInteger>(&mut self) -> Result<Vec<T>> {
        let bytes = self.read_bytes()?;
        if bytes.len() % T::BYTES != 0 {
            return Err(DiskCacheError::Damaged("a column ends within a number"));
        }
        Ok(bytes.chunks_exact(T::BYTES).map(T::read).collect())
    }

    pub fn read_string(&mut self) -> Result<String> {
        String::from_utf8(self.read_bytes()?).map_err(|_| DiskCacheError::Damaged("a text is no UTF-8"))
    }

    pub fn read_strings(&mut self) -> Result<Vec<String>> {
        let count = self.read_u64()?;
        (0..count).map(|_| self.read_string()).collect()
    }

    pub fn read_dates(&mut self) -> Result<Vec<NaiveDate>> {
        let days: Vec<i32> = self.read_numbers()?;
        let dates = days.into_iter().map(NaiveDate::from_num_days_from_ce_opt);
        dates.collect::<Option<_>>().ok_or(DiskCacheError::Damaged("a number is no date"))
    }

    pub fn read_decimals(&mut self) -> Result<Vec<Decimal>> {
        let numbers: Vec<u128> = self.read_numbers()?;
        Ok(numbers.into_iter().map(|number| Decimal::deserialize(number.to_le_bytes())).collect())
    }

    pub fn read_provenances(&mut self) -> Result<Vec<RowProvenance>> {
        let known_at: Vec<u32> = self.read_numbers()?;
        let fetch_ids: Vec<u32> = self.read_numbers()?;
        if known_at.len() != fetch_ids.len() {
            return Err(DiskCacheError::Damaged("one of two columns is shorter"));
        }
        let pairs = known_at.into_iter().zip(fetch_ids);
        Ok(pairs.map(|(known_at_seconds, fetch_id)| RowProvenance { known_at_seconds, fetch_id }).collect())
    }
}

/// An integer that is stored with a fixed width, in little-endian order.
pub trait FixedWidthInteger: Sized {
    const BYTES: usize;
    fn write(&self, bytes: &mut Vec<u8>);
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! impl_fixed_width_integer {
    ($($type:ty),*) => {$(
        impl FixedWidthInteger for $type {
            const BYTES: usize = size_of::<$type>();

            fn write(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }

            fn read(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<$type>()];
                array.copy_from_slice(bytes);
                Self::from_le_bytes(array)
            }
        }
    )*};
}

impl_fixed_width_integer!(u8, u16, u32, i32, i64, u128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_finished_is_removed() {
        let directory = std::env::temp_dir().join(format!("vintem-disk-cache-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();

        let mut writer = DiskCacheWriter::create(&directory).unwrap();
        writer.write_u64(7).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        drop(writer);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);

        let writer = DiskCacheWriter::create(&directory).unwrap();
        assert_eq!(writer.finish(|_| "whole".to_owned()).unwrap(), "whole");
        assert!(DiskCacheReader::open(&directory.join("whole")).is_ok());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn every_digit_of_a_number_is_kept() {
        let numbers = ["0.70", "0.7", "-0.0000000000000000000000000001", "79228162514264337593543950335", "0.00"];
        let directory = std::env::temp_dir().join(format!("vintem-disk-numbers-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();

        let mut writer = DiskCacheWriter::create(&directory).unwrap();
        writer.write_decimals(numbers.iter().map(|number| number.parse().unwrap())).unwrap();
        let file = writer.finish(|_| "numbers".to_owned()).unwrap();
        let read = DiskCacheReader::open(&directory.join(file)).unwrap().read_decimals().unwrap();
        assert_eq!(read.iter().map(ToString::to_string).collect::<Vec<_>>(), numbers);
        fs::remove_dir_all(&directory).unwrap();
    }
}
