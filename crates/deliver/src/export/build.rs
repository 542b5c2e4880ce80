//! Builds the export files and the manifest.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, TimeDelta, Utc};
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use vintem_domain::text::hex_encode;

use super::directory::{MANIFEST_FILE, read_manifest, temp_file_name};
use super::sidecar::SidecarBody;
use super::{ExportDataset, ExportError, ExportFormat, Manifest, ManifestEntry, ManifestFile, Result};
use crate::table::OutputTable;
use crate::table::csv::{CsvChunks, CsvDialect};
use crate::table::ndjson::write_ndjson;
use crate::table::parquet::write_parquet;

/// The files of a dataset are rebuilt at most this often.
const MIN_BUILD_INTERVAL: TimeDelta = TimeDelta::hours(1);
/// How long superseded files stay for those who are still reading them.
const OLD_FILE_RETENTION: Duration = Duration::from_secs(6 * 3600);
const LOCK_FILE: &str = "lock";

/// The result of a build.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BuildReport {
    pub built_datasets: Vec<String>,
    /// Their old files stay.
    pub failed_datasets: Vec<String>,
    /// Datasets that changed less than an hour after their last build.
    pub postponed_count: usize,
    /// Another process is building.
    pub is_locked_elsewhere: bool,
}

/// Builds the files of the datasets that changed since their last build, and drops datasets that are not listed from the
/// manifest. Takes minutes if there are many filings.
pub fn build_export_files(directory: &Path, datasets: &[ExportDataset], now: DateTime<Utc>) -> Result<BuildReport> {
    fs::create_dir_all(directory)?;
    let lock = File::create(directory.join(LOCK_FILE))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            return Ok(BuildReport { is_locked_elsewhere: true, ..BuildReport::default() });
        }
        Err(fs::TryLockError::Error(error)) => return Err(error.into()),
    }

    let before = read_manifest(directory).unwrap_or_else(|error| {
        tracing::warn!(%error, "export manifest is damaged or from another version; rewriting it");
        None
    });
    let before = before.unwrap_or_default();

    let mut report = BuildReport::default();
    let mut after = Manifest::default();
    for dataset in datasets {
        let entry = before.datasets.iter().find(|entry| entry.name == dataset.name);
        // An entry from another database, from before a restore, or from the future because the clock was set back does
        // not delay a build.
        let is_earlier = |entry: &&ManifestEntry| {
            entry.lineage == dataset.lineage && entry.generation <= dataset.generation && entry.generated_at <= now
        };
        let entry = entry.filter(is_earlier);
        let is_fresh = |entry: &&ManifestEntry| {
            entry.state == dataset.state_fingerprint || now - entry.generated_at < MIN_BUILD_INTERVAL
        };
        if let Some(entry) = entry.filter(is_fresh) {
            report.postponed_count += usize::from(entry.state != dataset.state_fingerprint);
            after.datasets.push(entry.clone());
            continue;
        }

        match build_dataset_files(directory, dataset, now) {
            Ok(built) => {
                after.datasets.push(built);
                report.built_datasets.push(dataset.name.clone());
            }
            Err(error) => {
                tracing::error!(dataset = dataset.name, %error, "cannot build export files");
                after.datasets.extend(entry.cloned());
                report.failed_datasets.push(dataset.name.clone());
                continue;
            }
        }

        // Publish each dataset as soon as it is built.
        let rest = before.datasets.iter().filter(|entry| !after.datasets.iter().any(|built| built.name == entry.name));
        let datasets = after.datasets.iter().chain(rest).cloned().collect();
        write_manifest(directory, &Manifest { datasets })?;
    }

    if before != after {
        write_manifest(directory, &after)?;
    }
    remove_old_files(directory, &before, &after)?;
    Ok(report)
}

fn build_dataset_files(directory: &Path, dataset: &ExportDataset, now: DateTime<Utc>) -> Result<ManifestEntry> {
    let sources = (dataset.list_sources)();
    let metadata = [
        ("dataset", dataset.name.as_str()),
        ("source", dataset.dataset.source_name()),
        ("licence", dataset.subject.license().id()),
        ("synthetic", if dataset.is_synthetic { "true" } else { "false" }),
    ];

    let mut files = Vec::new();
    let mut rows = None;
    for format in ExportFormat::DATA_FORMATS {
        let table = (dataset.build_table)();
        let failure = table.failure();
        let (file, rows_written) = write_hashed_file(directory, &dataset.name, format, |writer| {
            write_table(table, format, &metadata, writer)
        })?;
        if let Some(message) = failure.message() {
            return Err(ExportError::UnreadableRows(message.to_owned()));
        }
        if *rows.get_or_insert(rows_written) != rows_written {
            return Err(ExportError::InconsistentRows(dataset.name.clone()));
        }
        files.push(file);
    }
    let rows = rows.unwrap_or_default();

    let sidecar = SidecarBody::new(dataset, rows, &files, sources);
    let (sidecar, _) = write_hashed_file(directory, &dataset.name, ExportFormat::Sidecar, |writer| {
        serde_json::to_writer_pretty(writer, &sidecar)?;
        Ok(0)
    })?;

    Ok(ManifestEntry {
        name: dataset.name.clone(),
        dataset: dataset.dataset.id().to_owned(),
        lineage: dataset.lineage.clone(),
        state: dataset.state_fingerprint.clone(),
        generation: dataset.generation,
        generated_at: now,
        as_of: dataset.as_of,
        rows,
        files,
        sidecar,
    })
}

/// Writes the table in this format, and returns its rows. A sidecar has none.
fn write_table(
    table: OutputTable,
    format: ExportFormat,
    metadata: &[(&str, &str)],
    writer: impl Write + Send,
) -> Result<u64> {
    match format {
        ExportFormat::Csv => {
            let mut chunks = CsvChunks::new(table, CsvDialect::Plain);
            let mut writer = gzip_writer(writer);
            for chunk in chunks.by_ref() {
                writer.write_all(&chunk)?;
            }
            writer.finish()?;
            Ok(chunks.rows_written())
        }
        ExportFormat::Ndjson => {
            let mut writer = gzip_writer(writer);
            let rows = write_ndjson(table, &mut writer)?;
            writer.finish()?;
            Ok(rows)
        }
        ExportFormat::Parquet => Ok(write_parquet(table, metadata, writer)?),
        ExportFormat::Sidecar => Ok(0),
    }
}

/// Writes no modification time, so that the same rows give the same bytes.
fn gzip_writer<W: Write>(writer: W) -> flate2::write::GzEncoder<W> {
    GzBuilder::new().mtime(0).write(writer, Compression::default())
}

/// Counts and hashes the bytes that it passes on.
struct HashingWriter<W> {
    inner: W,
    hasher: Sha256,
    bytes_written: u64,
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes_written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes a temporary file, then renames it to the hash of its content.
fn write_hashed_file(
    directory: &Path,
    name: &str,
    format: ExportFormat,
    write: impl FnOnce(&mut HashingWriter<BufWriter<File>>) -> Result<u64>,
) -> Result<(ManifestFile, u64)> {
    let temp_file = TempFile(directory.join(temp_file_name()));
    let buffered = BufWriter::with_capacity(256 * 1024, File::create_new(&temp_file.0)?);
    let mut writer = HashingWriter { inner: buffered, hasher: Sha256::new(), bytes_written: 0 };
    let rows = write(&mut writer)?;

    let HashingWriter { inner, hasher, bytes_written: bytes } = writer;
    inner.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;

    let sha256 = hex_encode(&hasher.finalize());
    let file = ManifestFile { name: format!("{name}.{}", format.file_extension()), format, bytes, sha256 };
    fs::rename(&temp_file.0, directory.join(file.stored_name()))?;
    Ok((file, rows))
}

/// A file that is removed unless it was renamed.
struct TempFile(std::path::PathBuf);

impl Drop for TempFile {
    fn drop(&mut self) {
        // Fails after the rename, when the file is gone.
        let _ = fs::remove_file(&self.0);
    }
}

fn write_manifest(directory: &Path, manifest: &Manifest) -> Result<()> {
    let temp_file = TempFile(directory.join(temp_file_name()));
    let mut writer = BufWriter::new(File::create_new(&temp_file.0)?);
    serde_json::to_writer(&mut writer, manifest)?;
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;

    fs::rename(&temp_file.0, directory.join(MANIFEST_FILE))?;
    // Renames are durable only after the directory is synced.
    File::open(directory)?.sync_all()?;
    Ok(())
}

/// Removes files that were superseded a while ago, and temporary files that a killed process left.
fn remove_old_files(directory: &Path, before: &Manifest, after: &Manifest) -> Result<()> {
    let before = stored_names(before);
    let current = stored_names(after);

    // A reader that has the old manifest may still open a superseded file, so its retention starts now.
    for superseded in before.difference(&current) {
        match File::options().append(true).open(directory.join(superseded)) {
            Ok(file) => file.set_modified(SystemTime::now())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }

    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_needed = |name: &str| name == MANIFEST_FILE || name == LOCK_FILE || current.contains(name);
        let is_needed = entry.file_name().to_str().is_some_and(is_needed);
        let age = entry.metadata()?.modified()?.elapsed().unwrap_or_default();
        if !is_needed && age > OLD_FILE_RETENTION {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn stored_names(manifest: &Manifest) -> HashSet<String> {
    let files = manifest.datasets.iter().flat_map(|entry| entry.files.iter().chain([&entry.sidecar]));
    files.map(ManifestFile::stored_name).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use vintem_domain::{Dataset, Decimal};

    use super::super::ExportDirectory;
    use super::*;
    use crate::table::Column;

    struct ExportTempDirectory(std::path::PathBuf);

    impl ExportTempDirectory {
        fn new() -> Self {
            Self(std::env::temp_dir().join(format!("vintem-export-{:016x}", rand::random::<u64>())))
        }

        fn file_names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for ExportTempDirectory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn number_dataset(name: &str, state: &str, rows: i64) -> ExportDataset {
        ExportDataset {
            name: name.to_owned(),
            dataset: Dataset::Companies,
            subject: Dataset::Companies,
            generation: 7,
            lineage: "one".to_owned(),
            state_fingerprint: state.to_owned(),
            as_of: DateTime::UNIX_EPOCH,
            is_synthetic: true,
            list_sources: Box::new(Vec::new),
            build_table: Box::new(move || {
                OutputTable::from_rows("numbers", vec![Column::integer("number")], 0..rows, |row, cells| {
                    cells.write_integer(*row);
                })
            }),
        }
    }

    fn noon() -> DateTime<Utc> {
        DateTime::from_timestamp(1_794_744_000, 0).unwrap()
    }

    #[test]
    fn files_are_rebuilt_on_change_at_most_once_an_hour() {
        let directory = ExportTempDirectory::new();
        let build = |datasets: &[ExportDataset], minute: i64| {
            build_export_files(&directory.0, datasets, noon() + TimeDelta::minutes(minute)).unwrap().built_datasets
        };
        assert_eq!(build(&[number_dataset("a", "1", 3), number_dataset("b", "1", 0)], 0), ["a", "b"]);
        assert!(build(&[number_dataset("a", "1", 3), number_dataset("b", "1", 0)], 90).is_empty(), "nothing changed");
        assert_eq!(build(&[number_dataset("a", "2", 4), number_dataset("b", "1", 0)], 90), ["a"]);
        assert!(build(&[number_dataset("a", "3", 5), number_dataset("b", "1", 0)], 149).is_empty(), "within the hour");
        assert_eq!(build(&[number_dataset("a", "3", 5), number_dataset("b", "1", 0)], 150), ["a"]);
        assert_eq!(
            build(&[number_dataset("a", "4", 6), number_dataset("b", "1", 0)], 10),
            ["a"],
            "the clock was put back"
        );
        let other = ExportDataset { lineage: "another".to_owned(), ..number_dataset("b", "1", 0) };
        assert_eq!(build(&[number_dataset("a", "4", 6), other], 11), ["b"], "it is of another database");

        let manifest = ExportDirectory::new(directory.0.clone()).load_manifest().unwrap().unwrap();
        let rows: Vec<(&str, u64)> = manifest.datasets.iter().map(|entry| (entry.name.as_str(), entry.rows)).collect();
        assert_eq!(rows, [("a", 6), ("b", 0)]);
        build_export_files(&directory.0, &[number_dataset("b", "1", 0)], noon()).unwrap();
        let manifest = read_manifest(&directory.0).unwrap().unwrap();
        assert_eq!(manifest.datasets.len(), 1, "what is there no longer is not listed");
    }

    #[test]
    fn an_open_file_stays_readable_after_a_rebuild() {
        let directory = ExportTempDirectory::new();
        build_export_files(&directory.0, &[number_dataset("a", "1", 100_000)], noon()).unwrap();
        let served = ExportDirectory::new(directory.0.clone());
        let (entry, file, mut opened) = served.open_file("a.csv.gz").unwrap().unwrap();
        assert_eq!(entry.rows, 100_000);
        let mut content = vec![0; 1000];
        opened.read_exact(&mut content).unwrap();

        build_export_files(&directory.0, &[number_dataset("a", "2", 5)], noon() + TimeDelta::hours(2)).unwrap();
        let (_, newer, _) = served.open_file("a.csv.gz").unwrap().unwrap();
        assert_ne!(newer.sha256, file.sha256);
        opened.read_to_end(&mut content).unwrap();
        let sha256 = hex_encode(&Sha256::digest(&content));
        assert_eq!((sha256, content.len() as u64), (file.sha256.clone(), file.bytes));
        assert!(directory.0.join(file.stored_name()).exists(), "for those who have read the old manifest");
        assert_eq!(served.open_file("b.csv.gz").unwrap().map(|_| ()), None);
        assert_eq!(served.open_file("manifest.json").unwrap().map(|_| ()), None);
    }

    #[test]
    fn same_rows_give_same_bytes_and_old_temp_files_are_removed() {
        let directory = ExportTempDirectory::new();
        build_export_files(&directory.0, &[number_dataset("a", "1", 1000)], noon()).unwrap();
        let names = directory.file_names();
        build_export_files(&directory.0, &[number_dataset("a", "2", 1000)], noon() + TimeDelta::hours(1)).unwrap();
        assert_eq!(directory.file_names(), names);

        let temp_file = directory.0.join(temp_file_name());
        let file = File::create(&temp_file).unwrap();
        build_export_files(&directory.0, &[number_dataset("a", "2", 1000)], noon()).unwrap();
        assert!(temp_file.exists(), "another process may be writing it");
        file.set_modified(SystemTime::now() - OLD_FILE_RETENTION - Duration::from_secs(60)).unwrap();
        build_export_files(&directory.0, &[number_dataset("a", "2", 1000)], noon()).unwrap();
        assert_eq!(directory.file_names(), names);
    }

    #[test]
    fn a_failed_dataset_keeps_its_old_files_and_does_not_stop_others() {
        let too_fine = || ExportDataset {
            build_table: Box::new(|| {
                OutputTable::from_rows(
                    "rates",
                    vec![Column::decimal("rate", 1)],
                    vec![Decimal::new(155, 2)],
                    |rate, cells| {
                        cells.write_decimal(Some(*rate));
                    },
                )
            }),
            ..number_dataset("a", "2", 0)
        };
        let directory = ExportTempDirectory::new();
        let first = build_export_files(&directory.0, &[too_fine(), number_dataset("b", "1", 2)], noon()).unwrap();
        assert_eq!((first.built_datasets, first.failed_datasets), (vec!["b".to_owned()], vec!["a".to_owned()]));

        build_export_files(&directory.0, &[number_dataset("a", "1", 3), number_dataset("b", "1", 2)], noon()).unwrap();
        let later =
            build_export_files(&directory.0, &[too_fine(), number_dataset("b", "1", 2)], noon() + TimeDelta::hours(2))
                .unwrap();
        assert_eq!(later.failed_datasets, ["a"]);
        let manifest = read_manifest(&directory.0).unwrap().unwrap();
        assert_eq!(manifest.find_file("a.parquet").unwrap().0.rows, 3);
        let temp_files = directory.file_names().into_iter().filter(|name| name.starts_with('.')).count();
        assert_eq!(temp_files, 0);

        fs::write(directory.0.join(MANIFEST_FILE), "{\"of\": \"another version\"}").unwrap();
        assert_eq!(
            build_export_files(&directory.0, &[number_dataset("b", "1", 2)], noon()).unwrap().built_datasets,
            ["b"]
        );
    }

    #[test]
    fn a_dataset_whose_rows_become_unreadable_keeps_its_old_files() {
        let unreadable = || ExportDataset {
            build_table: Box::new(|| {
                let mut rows = 0;
                OutputTable::fallible("numbers", vec![Column::integer("number")], move |cells| {
                    rows += 1;
                    cells.write_integer(rows);
                    if rows < 3 { Ok(true) } else { Err("the disk is broken".to_owned()) }
                })
            }),
            ..number_dataset("a", "2", 0)
        };
        let directory = ExportTempDirectory::new();
        build_export_files(&directory.0, &[number_dataset("a", "1", 5)], noon()).unwrap();
        let later = build_export_files(&directory.0, &[unreadable()], noon() + TimeDelta::hours(2)).unwrap();
        assert_eq!(later.failed_datasets, ["a"]);
        assert_eq!(read_manifest(&directory.0).unwrap().unwrap().find_file("a.parquet").unwrap().0.rows, 5);
    }

    #[test]
    fn only_one_process_builds_at_a_time() {
        let directory = ExportTempDirectory::new();
        build_export_files(&directory.0, &[], noon()).unwrap();
        let lock = File::open(directory.0.join(LOCK_FILE)).unwrap();
        lock.lock().unwrap();
        let report = build_export_files(&directory.0, &[number_dataset("a", "1", 1)], noon()).unwrap();
        assert_eq!(report, BuildReport { is_locked_elsewhere: true, ..BuildReport::default() });
        drop(lock);
        let report = build_export_files(&directory.0, &[number_dataset("a", "1", 1)], noon()).unwrap();
        assert_eq!(report.built_datasets, ["a"]);
    }
}
