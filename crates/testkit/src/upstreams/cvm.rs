//! CVM's open data files, as `dados.cvm.gov.br` serves them: directories, the company registry, and archives of filings
//! by year.
//!
//! The registry is rewritten every morning, archives every Sunday; their modification times show it. Archives are built
//! on first request and cached compressed, so that whole decades of filings fit into memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use bytes::Bytes;
use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Utc};
use http::StatusCode;

use super::calendar::{sunday_on_or_before, ymd};
use super::company_registry::{self, RegistryCompany};
use super::fake_response::{FakeResponse, HTML_CONTENT_TYPE};
use super::ipe::{self, IpeRow};
use super::statements::{self, StatementOptions};
use super::structured_filings::{self, StructuredSet};
use super::zip_archive::{self, ZipMember};

pub const PATH_PREFIX: &str = "/dados/CIA_ABERTA/";

const REGISTRY_FILE_NAME: &str = "cad_cia_aberta.csv";

/// Changes made by tests.
#[derive(Debug, Clone, Default)]
pub struct CvmEdits {
    pub registry_override: Option<Bytes>,
    pub added_filings: BTreeMap<i32, Vec<IpeRow>>,
    /// Files that respond 404 and are not listed.
    pub hidden_files: BTreeSet<String>,
    /// How often a file was changed; each change moves its modification time forward by a second.
    pub change_counts: BTreeMap<String, u32>,
}

#[derive(Debug)]
pub struct FakeCvm {
    data_dir: Option<PathBuf>,
    /// By ascending month. A synthetic registry is the only entry, dated `NaiveDate::MIN`.
    registries: Vec<(NaiveDate, Bytes)>,
    companies: Vec<RegistryCompany>,
    ipe_rows_per_year: usize,
    ipe_years: RangeInclusive<i32>,
    statements: StatementOptions,
    archive_cache: Mutex<BTreeMap<String, Arc<CachedArchive>>>,
}

/// An archive as of one weekly dump.
#[derive(Debug)]
struct CachedArchive {
    dumped_on: NaiveDate,
    change_count: u32,
    content: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArchiveKind {
    Ipe,
    Structured(StructuredSet),
}

impl ArchiveKind {
    const ALL: [Self; 5] = [
        Self::Ipe,
        Self::Structured(StructuredSet::Dfp),
        Self::Structured(StructuredSet::Itr),
        Self::Structured(StructuredSet::Fre),
        Self::Structured(StructuredSet::Fca),
    ];

    const fn id(self) -> &'static str {
        match self {
            Self::Ipe => "ipe",
            Self::Structured(set) => set.id(),
        }
    }

    fn directory(self) -> String {
        format!("{PATH_PREFIX}DOC/{}/DADOS/", self.id().to_uppercase())
    }

    /// `ipe_cia_aberta_2026`: the name of the archive and of its first member, without extension.
    fn file_stem(self, year: i32) -> String {
        format!("{}_cia_aberta_{year}", self.id())
    }

    const fn csv_header(self) -> &'static str {
        match self {
            Self::Ipe => ipe::CSV_HEADER,
            Self::Structured(_) => structured_filings::INDEX_HEADER,
        }
    }

    /// The column with the delivery date.
    const fn received_column(self) -> usize {
        match self {
            Self::Ipe => 8,
            Self::Structured(_) => 7,
        }
    }

    /// When a year's archive was last written. The current year and some earlier ones are rewritten every Sunday.
    fn dump_date(self, year: i32, today: NaiveDate) -> NaiveDate {
        let years_updated = match self {
            Self::Ipe => 1,
            Self::Structured(_) => 5,
        };
        sunday_on_or_before(today.min(ymd(year + years_updated, 12, 31)))
    }
}

impl FakeCvm {
    pub fn new(
        data_dir: Option<PathBuf>,
        companies: usize,
        ipe_rows_per_year: usize,
        ipe_years: RangeInclusive<i32>,
        statements: StatementOptions,
    ) -> anyhow::Result<Self> {
        let mut registries = match &data_dir {
            Some(directory) => load_registries(&directory.join("cvm"))?,
            None => Vec::new(),
        };
        if registries.is_empty() {
            registries.push((NaiveDate::MIN, company_registry::generate_registry(companies).into()));
        }

        let newest = &registries[registries.len() - 1].1;
        Ok(Self {
            companies: company_registry::parse_companies(newest),
            data_dir,
            registries,
            ipe_rows_per_year,
            ipe_years,
            statements,
            archive_cache: Mutex::default(),
        })
    }

    pub fn companies(&self) -> &[RegistryCompany] {
        &self.companies
    }

    /// The newest registry of this day or earlier, or else the oldest one.
    pub fn registry_on(&self, today: NaiveDate, edits: &CvmEdits) -> Bytes {
        let newest = self.registries.iter().rev().find(|(month, _)| *month <= today);
        let (_, registry) = newest.unwrap_or(&self.registries[0]);
        edits.registry_override.clone().unwrap_or_else(|| registry.clone())
    }

    pub fn respond(&self, path: &str, now: NaiveDateTime, edits: &CvmEdits) -> anyhow::Result<FakeResponse> {
        let registry_directory = format!("{PATH_PREFIX}CAD/DADOS/");
        if let Some(name) = path.strip_prefix(&registry_directory) {
            let registry = self.registry_on(now.date(), edits);
            let modified_at = registry_modified_at(now, edits);
            let is_visible = !edits.hidden_files.contains(REGISTRY_FILE_NAME);
            return Ok(match name {
                "" if is_visible => {
                    let file =
                        DirectoryEntry { name: REGISTRY_FILE_NAME.to_owned(), modified_at, size: registry.len() };
                    render_directory(&registry_directory, &[file])
                }
                "" => render_directory(&registry_directory, &[]),
                REGISTRY_FILE_NAME if is_visible => FakeResponse::file("text/csv", registry, modified_at),
                _ => not_found(path),
            });
        }

        for kind in ArchiveKind::ALL {
            let directory = kind.directory();
            let Some(name) = path.strip_prefix(&directory) else { continue };
            if name.is_empty() {
                return Ok(render_directory(&directory, &self.list_archives(kind, now.date(), edits)?));
            }

            let year =
                self.available_years(kind, now.date()).find(|year| name == format!("{}.zip", kind.file_stem(*year)));
            let archive = match year {
                Some(year) if !edits.hidden_files.contains(name) => {
                    self.get_or_build_archive(kind, year, now.date(), edits)?
                }
                _ => None,
            };
            return Ok(match archive {
                Some(archive) => FakeResponse::file("application/zip", archive.content.clone(), archive.modified_at()),
                None => not_found(path),
            });
        }
        Ok(not_found(path))
    }

    /// The years with an archive. In the first days of January the new year has none yet.
    fn available_years(&self, kind: ArchiveKind, today: NaiveDate) -> RangeInclusive<i32> {
        let last = sunday_on_or_before(today).year();
        match kind {
            ArchiveKind::Ipe => (*self.ipe_years.start()).max(ipe::FIRST_YEAR)..=last.min(*self.ipe_years.end()),
            ArchiveKind::Structured(set) => set.first_year()..=last,
        }
    }

    /// `None` if the year has no documents yet.
    fn get_or_build_archive(
        &self,
        kind: ArchiveKind,
        year: i32,
        today: NaiveDate,
        edits: &CvmEdits,
    ) -> anyhow::Result<Option<Arc<CachedArchive>>> {
        let name = format!("{}.zip", kind.file_stem(year));
        let dumped_on = kind.dump_date(year, today);
        let change_count = edits.change_counts.get(&name).copied().unwrap_or(0);

        // Locked while the archive is built, so that concurrent requests wait for it instead of building it again.
        let mut archives = self.archive_cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(archive) = archives.get(&name)
            && (archive.dumped_on, archive.change_count) == (dumped_on, change_count)
        {
            return Ok(Some(archive.clone()));
        }

        let Some(members) = self.build_members(kind, year, dumped_on, edits)? else { return Ok(None) };
        let content = zip_archive::write_zip(&members, dumped_on)?.into();
        let archive = Arc::new(CachedArchive { dumped_on, change_count, content });
        archives.insert(name, archive.clone());
        Ok(Some(archive))
    }

    fn build_members(
        &self,
        kind: ArchiveKind,
        year: i32,
        until: NaiveDate,
        edits: &CvmEdits,
    ) -> anyhow::Result<Option<Vec<ZipMember>>> {
        let index_name = format!("{}.csv", kind.file_stem(year));
        let real_file = self.data_dir.as_ref().map(|directory| directory.join("cvm").join(&index_name));
        let real_file = real_file.filter(|file| file.exists());
        let index = match (&real_file, kind) {
            (Some(file), _) => keep_rows_received_by(&std::fs::read(file)?, kind.received_column(), until),
            (None, ArchiveKind::Ipe) => {
                let mut file = format!("{}\r\n", kind.csv_header()).into_bytes();
                file.extend(ipe::generate_rows(year, self.ipe_rows_per_year, &self.companies, until));
                file
            }
            (None, ArchiveKind::Structured(set)) => structured_filings::render_index(
                set,
                &structured_filings::generate_documents(set, year, &self.companies, until),
            ),
        };

        if kind == ArchiveKind::Ipe {
            let mut index = index;
            for row in edits.added_filings.get(&year).into_iter().flatten() {
                index.extend(row.to_csv_line());
            }
            return Ok(Some(vec![ZipMember::new(index_name, index)]));
        }
        if index.len() <= kind.csv_header().len() + 2 {
            return Ok(None);
        }

        let mut members = vec![ZipMember::new(index_name, index)];
        if let ArchiveKind::Structured(set) = kind {
            let documents = structured_filings::generate_documents(set, year, &self.companies, until);
            if matches!(set, StructuredSet::Dfp | StructuredSet::Itr) {
                members.extend(statements::build_tables(set, year, &documents, until, self.statements));
            }
            members.extend(structured_filings::build_other_members(set, year, &documents));
        }
        Ok(Some(members))
    }

    /// The entries of a directory. The size of a filings archive that nobody has requested yet is an estimate, because
    /// building all of them would take half a minute.
    fn list_archives(
        &self,
        kind: ArchiveKind,
        today: NaiveDate,
        edits: &CvmEdits,
    ) -> anyhow::Result<Vec<DirectoryEntry>> {
        let mut files = Vec::new();
        for year in self.available_years(kind, today) {
            let name = format!("{}.zip", kind.file_stem(year));
            if edits.hidden_files.contains(&name) {
                continue;
            }
            let size = match kind {
                ArchiveKind::Ipe => self.cached_size(&name).unwrap_or(48 * self.ipe_rows_per_year + 400),
                ArchiveKind::Structured(_) => match self.get_or_build_archive(kind, year, today, edits)? {
                    Some(archive) => archive.content.len(),
                    None => continue,
                },
            };
            let change_count = edits.change_counts.get(&name).copied().unwrap_or(0);
            let modified_at = dump_timestamp(kind.dump_date(year, today), change_count);
            files.push(DirectoryEntry { name, modified_at, size });
        }
        Ok(files)
    }

    fn cached_size(&self, name: &str) -> Option<usize> {
        let archives = self.archive_cache.lock().unwrap_or_else(PoisonError::into_inner);
        archives.get(name).map(|archive| archive.content.len())
    }
}

struct DirectoryEntry {
    name: String,
    modified_at: DateTime<Utc>,
    size: usize,
}

impl CachedArchive {
    fn modified_at(&self) -> DateTime<Utc> {
        dump_timestamp(self.dumped_on, self.change_count)
    }
}

/// Reads all registries of a directory: `cad_cia_aberta_2026-05.csv` is that of May 2026.
fn load_registries(directory: &Path) -> anyhow::Result<Vec<(NaiveDate, Bytes)>> {
    let mut registries = Vec::new();
    let entries = std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    for entry in entries {
        let file = entry?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let month = name.strip_prefix("cad_cia_aberta_").and_then(|rest| rest.strip_suffix(".csv"));
        let first_day = month.and_then(|month| NaiveDate::parse_from_str(&format!("{month}-01"), "%Y-%m-%d").ok());
        if let Some(first_day) = first_day {
            registries.push((first_day, std::fs::read(&file)?.into()));
        }
    }

    registries.sort_by_key(|(first_day, _)| *first_day);
    Ok(registries)
}

/// The lines of a real file, byte for byte, without documents received after `until`.
fn keep_rows_received_by(file: &[u8], column: usize, until: NaiveDate) -> Vec<u8> {
    let until = until.to_string().into_bytes();
    let lines = file.split_inclusive(|byte| *byte == b'\n').enumerate();
    let is_received = |line: &[u8]| line.split(|byte| *byte == b';').nth(column).is_some_and(|date| date <= &until[..]);
    lines.filter(|(number, line)| *number == 0 || is_received(line)).flat_map(|(_, line)| line).copied().collect()
}

/// The registry is written at 05:00 in Brasília, 08:00 UTC.
fn registry_modified_at(now: NaiveDateTime, edits: &CvmEdits) -> DateTime<Utc> {
    let five = NaiveTime::from_hms_opt(5, 0, 0).expect("a time of the day");
    let date = if now.time() >= five { now.date() } else { now.date() - Days::new(1) };
    dump_timestamp(date, edits.change_counts.get(REGISTRY_FILE_NAME).copied().unwrap_or(0))
}

fn dump_timestamp(date: NaiveDate, change_count: u32) -> DateTime<Utc> {
    date.and_hms_opt(8, 0, 0).expect("a time of the day").and_utc() + TimeDelta::seconds(change_count.into())
}

/// Renders a directory listing like Apache's.
fn render_directory(directory: &str, files: &[DirectoryEntry]) -> FakeResponse {
    let title = directory.trim_end_matches('/');
    let parent = &title[..title.rfind('/').map_or(0, |at| at + 1)];
    let mut page = format!(
        "<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 3.2 Final//EN\">\n<html>\n <head>\n  \
         <title>Index of {title}</title>\n </head>\n <body>\n<h1>Index of {title}</h1>\n\
         <pre>      <a href=\"?C=N;O=D\">Name</a>                    \
         <a href=\"?C=M;O=A\">Last modified</a>      <a href=\"?C=S;O=A\">Size</a>  <hr>      \
         <a href=\"{parent}\">Parent Directory</a>                             -   \n"
    );

    for DirectoryEntry { name, modified_at, size } in files {
        // Listings show local time in Brasília.
        let local_time = (*modified_at - TimeDelta::hours(3)).format("%Y-%m-%d %H:%M");
        let size = if *size < 1 << 20 {
            format!("{}K", size.div_ceil(1024))
        } else {
            format!("{:.1}M", *size as f64 / 1_048_576.0)
        };
        page += &format!("      <a href=\"{name}\">{name}</a> {local_time}  {size:>5}  \n");
    }
    FakeResponse::new(StatusCode::OK, HTML_CONTENT_TYPE, page + "<hr></pre>\n</body></html>\n")
}

fn not_found(path: &str) -> FakeResponse {
    let page = format!(
        "<!DOCTYPE HTML PUBLIC \"-//IETF//DTD HTML 2.0//EN\">\n<html><head>\n<title>404 Not Found</title>\n\
         </head><body>\n<h1>Not Found</h1>\n\
         <p>The requested URL {path} was not found on this server.</p>\n</body></html>\n"
    );
    FakeResponse::new(StatusCode::NOT_FOUND, "text/html; charset=iso-8859-1", page)
}
