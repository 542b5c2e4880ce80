//! The regulator's open files, as `dados.cvm.gov.br` answers: directories, the registry of companies, and archives of
//! filings by year.
//!
//! The registry is written anew every morning, archives every Sunday; each with the time of that. Archives are made
//! when they are first asked for and kept as they are sent, so that whole decades of filings fit into memory.

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
use super::structured_filings::{self, StructuredSet};
use super::zip_archive::{self, ZipMember};

pub const PATH_PREFIX: &str = "/dados/CIA_ABERTA/";

const REGISTRY_FILE_NAME: &str = "cad_cia_aberta.csv";

/// What tests have changed.
#[derive(Debug, Clone, Default)]
pub struct CvmEdits {
    pub registry_override: Option<Bytes>,
    pub added_filings: BTreeMap<i32, Vec<IpeRow>>,
    /// Files that are not there, and not listed.
    pub hidden_files: BTreeSet<String>,
    /// How often a file was changed: each time makes it a second younger.
    pub change_counts: BTreeMap<String, u32>,
}

#[derive(Debug)]
pub struct FakeCvm {
    data_dir: Option<PathBuf>,
    /// By rising month; one without a month if it was made up.
    registries: Vec<(NaiveDate, Bytes)>,
    companies: Vec<RegistryCompany>,
    ipe_rows_per_year: usize,
    ipe_years: RangeInclusive<i32>,
    archive_cache: Mutex<BTreeMap<String, Arc<CachedArchive>>>,
}

/// An archive as it was at one of its dumps.
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

    /// `ipe_cia_aberta_2026`: the archive's name and that of its first member, but for their endings.
    fn file_stem(self, year: i32) -> String {
        format!("{}_cia_aberta_{year}", self.id())
    }

    const fn csv_header(self) -> &'static str {
        match self {
            Self::Ipe => ipe::CSV_HEADER,
            Self::Structured(_) => structured_filings::INDEX_HEADER,
        }
    }

    /// The column that says when a document came.
    const fn received_column(self) -> usize {
        match self {
            Self::Ipe => 8,
            Self::Structured(_) => 7,
        }
    }

    /// When the archive of a year was last written: the current year and some before are written every Sunday.
    fn dump_date(self, year: i32, today: NaiveDate) -> NaiveDate {
        let years_kept_up = match self {
            Self::Ipe => 1,
            Self::Structured(_) => 5,
        };
        sunday_on_or_before(today.min(ymd(year + years_kept_up, 12, 31)))
    }
}

impl FakeCvm {
    pub fn new(
        data: Option<PathBuf>,
        companies: usize,
        ipe_rows_per_year: usize,
        ipe_years: RangeInclusive<i32>,
    ) -> anyhow::Result<Self> {
        let mut registries = match &data {
            Some(directory) => load_registries(&directory.join("cvm"))?,
            None => Vec::new(),
        };
        if registries.is_empty() {
            registries.push((NaiveDate::MIN, company_registry::generate_registry(companies).into()));
        }
        let newest = &registries[registries.len() - 1].1;
        Ok(Self {
            companies: company_registry::parse_companies(newest),
            data_dir: data,
            registries,
            ipe_rows_per_year,
            ipe_years,
            archive_cache: Mutex::default(),
        })
    }

    pub fn companies(&self) -> &[RegistryCompany] {
        &self.companies
    }

    /// The newest one that was written by this day, or else the oldest.
    pub fn registry_on(&self, today: NaiveDate, edits: &CvmEdits) -> Bytes {
        let known = self.registries.iter().rev().find(|(month, _)| *month <= today);
        let (_, registry) = known.unwrap_or(&self.registries[0]);
        edits.registry_override.clone().unwrap_or_else(|| registry.clone())
    }

    pub fn respond(&self, path: &str, now: NaiveDateTime, edits: &CvmEdits) -> anyhow::Result<FakeResponse> {
        let registry_directory = format!("{PATH_PREFIX}CAD/DADOS/");
        if let Some(name) = path.strip_prefix(&registry_directory) {
            let (registry, modified) = (self.registry_on(now.date(), edits), registry_modified_at(now, edits));
            let is_there = !edits.hidden_files.contains(REGISTRY_FILE_NAME);
            return Ok(match name {
                "" if is_there => {
                    let file = DirectoryEntry {
                        name: REGISTRY_FILE_NAME.to_owned(),
                        modified_at: modified,
                        size: registry.len(),
                    };
                    render_directory(&registry_directory, &[file])
                }
                "" => render_directory(&registry_directory, &[]),
                REGISTRY_FILE_NAME if is_there => FakeResponse::file("text/csv", registry, modified),
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

    /// Those whose archive exists: on the first days of January that of the new year does not.
    fn available_years(&self, kind: ArchiveKind, today: NaiveDate) -> RangeInclusive<i32> {
        let last = sunday_on_or_before(today).year();
        match kind {
            ArchiveKind::Ipe => (*self.ipe_years.start()).max(ipe::FIRST_YEAR)..=last.min(*self.ipe_years.end()),
            ArchiveKind::Structured(set) => set.first_year()..=last,
        }
    }

    /// Nothing if the year has no documents yet.
    fn get_or_build_archive(
        &self,
        kind: ArchiveKind,
        year: i32,
        today: NaiveDate,
        edits: &CvmEdits,
    ) -> anyhow::Result<Option<Arc<CachedArchive>>> {
        let name = format!("{}.zip", kind.file_stem(year));
        let dumped_on = kind.dump_date(year, today);
        let changes = edits.change_counts.get(&name).copied().unwrap_or(0);
        // Held while it is made: who asks for the same meanwhile gets it then.
        let mut archives = self.archive_cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(archive) = archives.get(&name)
            && (archive.dumped_on, archive.change_count) == (dumped_on, changes)
        {
            return Ok(Some(archive.clone()));
        }
        let Some(members) = self.build_members(kind, year, dumped_on, edits)? else { return Ok(None) };
        let content = zip_archive::write_zip(&members, dumped_on)?.into();
        let archive = Arc::new(CachedArchive { dumped_on, change_count: changes, content });
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
        let real = self.data_dir.as_ref().map(|directory| directory.join("cvm").join(&index_name));
        let real = real.filter(|file| file.exists());
        let index = match (&real, kind) {
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
            members.extend(structured_filings::build_other_members(set, year, &documents));
        }
        Ok(Some(members))
    }

    /// What a directory shows. Years of filings that nobody has asked for yet have about the size that they will have:
    /// to make all of them for this would take half a minute.
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
            let changes = edits.change_counts.get(&name).copied().unwrap_or(0);
            files.push(DirectoryEntry {
                name,
                modified_at: dump_timestamp(kind.dump_date(year, today), changes),
                size,
            });
        }
        Ok(files)
    }

    fn cached_size(&self, name: &str) -> Option<usize> {
        let archives = self.archive_cache.lock().unwrap_or_else(PoisonError::into_inner);
        archives.get(name).map(|archive| archive.content.len())
    }
}

/// A line of a directory.
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

/// `cad_cia_aberta_2026-05.csv` is the registry of May 2026.
fn load_registries(directory: &Path) -> anyhow::Result<Vec<(NaiveDate, Bytes)>> {
    let mut registries = Vec::new();
    let entries = std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    for entry in entries {
        let file = entry?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let month = name.strip_prefix("cad_cia_aberta_").and_then(|rest| rest.strip_suffix(".csv"));
        let first = month.and_then(|month| NaiveDate::parse_from_str(&format!("{month}-01"), "%Y-%m-%d").ok());
        if let Some(first) = first {
            registries.push((first, std::fs::read(&file)?.into()));
        }
    }
    registries.sort_by_key(|(first, _)| *first);
    Ok(registries)
}

/// The lines of a real file, byte for byte, without those of documents that had not come by then.
fn keep_rows_received_by(file: &[u8], column: usize, until: NaiveDate) -> Vec<u8> {
    let until = until.to_string().into_bytes();
    let lines = file.split_inclusive(|byte| *byte == b'\n').enumerate();
    let received = |line: &[u8]| line.split(|byte| *byte == b';').nth(column).is_some_and(|date| date <= &until[..]);
    lines.filter(|(number, line)| *number == 0 || received(line)).flat_map(|(_, line)| line).copied().collect()
}

/// Written at five in the morning, eight by Greenwich.
fn registry_modified_at(now: NaiveDateTime, edits: &CvmEdits) -> DateTime<Utc> {
    let five = NaiveTime::from_hms_opt(5, 0, 0).expect("a time of the day");
    let date = if now.time() >= five { now.date() } else { now.date() - Days::new(1) };
    dump_timestamp(date, edits.change_counts.get(REGISTRY_FILE_NAME).copied().unwrap_or(0))
}

fn dump_timestamp(date: NaiveDate, changes: u32) -> DateTime<Utc> {
    date.and_hms_opt(8, 0, 0).expect("a time of the day").and_utc() + TimeDelta::seconds(changes.into())
}

/// A directory as Apache shows it.
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
    for DirectoryEntry { name, modified_at: modified, size } in files {
        // Times are shown as they are in Brasília.
        let shown = (*modified - TimeDelta::hours(3)).format("%Y-%m-%d %H:%M");
        let size = if *size < 1 << 20 {
            format!("{}K", size.div_ceil(1024))
        } else {
            format!("{:.1}M", *size as f64 / 1_048_576.0)
        };
        page += &format!("      <a href=\"{name}\">{name}</a> {shown}  {size:>5}  \n");
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
