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

use super::answer::{Answer, HTML};
use super::archive::{self, Member};
use super::calendar::{day, last_sunday};
use super::ipe::{self, IpeRow};
use super::registry::{self, Company};
use super::structured::{self, Set};

pub const PREFIX: &str = "/dados/CIA_ABERTA/";

const REGISTRY: &str = "cad_cia_aberta.csv";

/// What tests have changed.
#[derive(Debug, Clone, Default)]
pub struct Edits {
    pub registry: Option<Bytes>,
    pub filings: BTreeMap<i32, Vec<IpeRow>>,
    /// Files that are not there, and not listed.
    pub hidden: BTreeSet<String>,
    /// How often a file was changed: each time makes it a second younger.
    pub changes: BTreeMap<String, u32>,
}

#[derive(Debug)]
pub struct Cvm {
    data: Option<PathBuf>,
    /// By rising month; one without a month if it was made up.
    registries: Vec<(NaiveDate, Bytes)>,
    companies: Vec<Company>,
    ipe_rows_per_year: usize,
    ipe_years: RangeInclusive<i32>,
    archives: Mutex<BTreeMap<String, Arc<Archive>>>,
}

/// An archive as it was at one of its dumps.
#[derive(Debug)]
struct Archive {
    dumped_on: NaiveDate,
    changes: u32,
    content: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ipe,
    Structured(Set),
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Ipe,
        Self::Structured(Set::Dfp),
        Self::Structured(Set::Itr),
        Self::Structured(Set::Fre),
        Self::Structured(Set::Fca),
    ];

    const fn id(self) -> &'static str {
        match self {
            Self::Ipe => "ipe",
            Self::Structured(set) => set.id(),
        }
    }

    fn directory(self) -> String {
        format!("{PREFIX}DOC/{}/DADOS/", self.id().to_uppercase())
    }

    /// `ipe_cia_aberta_2026`: the archive's name and that of its first member, but for their endings.
    fn stem(self, year: i32) -> String {
        format!("{}_cia_aberta_{year}", self.id())
    }

    const fn header(self) -> &'static str {
        match self {
            Self::Ipe => ipe::HEADER,
            Self::Structured(_) => structured::HEADER,
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
    fn dumped_on(self, year: i32, today: NaiveDate) -> NaiveDate {
        let years_kept_up = match self {
            Self::Ipe => 1,
            Self::Structured(_) => 5,
        };
        last_sunday(today.min(day(year + years_kept_up, 12, 31)))
    }
}

impl Cvm {
    pub fn new(
        data: Option<PathBuf>,
        companies: usize,
        ipe_rows_per_year: usize,
        ipe_years: RangeInclusive<i32>,
    ) -> anyhow::Result<Self> {
        let mut registries = match &data {
            Some(directory) => real_registries(&directory.join("cvm"))?,
            None => Vec::new(),
        };
        if registries.is_empty() {
            registries.push((NaiveDate::MIN, registry::generate(companies).into()));
        }
        let newest = &registries[registries.len() - 1].1;
        Ok(Self {
            companies: registry::companies(newest),
            data,
            registries,
            ipe_rows_per_year,
            ipe_years,
            archives: Mutex::default(),
        })
    }

    pub fn companies(&self) -> &[Company] {
        &self.companies
    }

    /// The newest one that was written by this day, or else the oldest.
    pub fn registry(&self, today: NaiveDate, edits: &Edits) -> Bytes {
        let known = self.registries.iter().rev().find(|(month, _)| *month <= today);
        let (_, registry) = known.unwrap_or(&self.registries[0]);
        edits.registry.clone().unwrap_or_else(|| registry.clone())
    }

    pub fn answer(&self, path: &str, now: NaiveDateTime, edits: &Edits) -> anyhow::Result<Answer> {
        let registry_directory = format!("{PREFIX}CAD/DADOS/");
        if let Some(name) = path.strip_prefix(&registry_directory) {
            let (registry, modified) = (self.registry(now.date(), edits), registry_modified(now, edits));
            let is_there = !edits.hidden.contains(REGISTRY);
            return Ok(match name {
                "" if is_there => {
                    let file = Listed { name: REGISTRY.to_owned(), modified, size: registry.len() };
                    listing(&registry_directory, &[file])
                }
                "" => listing(&registry_directory, &[]),
                REGISTRY if is_there => Answer::file("text/csv", registry, modified),
                _ => not_found(path),
            });
        }
        for kind in Kind::ALL {
            let directory = kind.directory();
            let Some(name) = path.strip_prefix(&directory) else { continue };
            if name.is_empty() {
                return Ok(listing(&directory, &self.listed(kind, now.date(), edits)?));
            }
            let year = self.years(kind, now.date()).find(|year| name == format!("{}.zip", kind.stem(*year)));
            let archive = match year {
                Some(year) if !edits.hidden.contains(name) => self.archive(kind, year, now.date(), edits)?,
                _ => None,
            };
            return Ok(match archive {
                Some(archive) => Answer::file("application/zip", archive.content.clone(), archive.modified()),
                None => not_found(path),
            });
        }
        Ok(not_found(path))
    }

    /// Those whose archive exists: on the first days of January that of the new year does not.
    fn years(&self, kind: Kind, today: NaiveDate) -> RangeInclusive<i32> {
        let last = last_sunday(today).year();
        match kind {
            Kind::Ipe => (*self.ipe_years.start()).max(ipe::FIRST_YEAR)..=last.min(*self.ipe_years.end()),
            Kind::Structured(set) => set.first_year()..=last,
        }
    }

    /// Nothing if the year has no documents yet.
    fn archive(&self, kind: Kind, year: i32, today: NaiveDate, edits: &Edits) -> anyhow::Result<Option<Arc<Archive>>> {
        let name = format!("{}.zip", kind.stem(year));
        let dumped_on = kind.dumped_on(year, today);
        let changes = edits.changes.get(&name).copied().unwrap_or(0);
        // Held while it is made: who asks for the same meanwhile gets it then.
        let mut archives = self.archives.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(archive) = archives.get(&name)
            && (archive.dumped_on, archive.changes) == (dumped_on, changes)
        {
            return Ok(Some(archive.clone()));
        }
        let Some(members) = self.members(kind, year, dumped_on, edits)? else { return Ok(None) };
        let content = archive::pack(&members, dumped_on)?.into();
        let archive = Arc::new(Archive { dumped_on, changes, content });
        archives.insert(name, archive.clone());
        Ok(Some(archive))
    }

    fn members(&self, kind: Kind, year: i32, until: NaiveDate, edits: &Edits) -> anyhow::Result<Option<Vec<Member>>> {
        let index_name = format!("{}.csv", kind.stem(year));
        let real = self.data.as_ref().map(|directory| directory.join("cvm").join(&index_name));
        let real = real.filter(|file| file.exists());
        let index = match (&real, kind) {
            (Some(file), _) => received_by(&std::fs::read(file)?, kind.received_column(), until),
            (None, Kind::Ipe) => {
                let mut file = format!("{}\r\n", kind.header()).into_bytes();
                file.extend(ipe::generate(year, self.ipe_rows_per_year, &self.companies, until));
                file
            }
            (None, Kind::Structured(set)) => {
                structured::index(set, &structured::documents(set, year, &self.companies, until))
            }
        };
        if kind == Kind::Ipe {
            let mut index = index;
            for row in edits.filings.get(&year).into_iter().flatten() {
                index.extend(row.line());
            }
            return Ok(Some(vec![Member::new(index_name, index)]));
        }
        if index.len() <= kind.header().len() + 2 {
            return Ok(None);
        }
        let mut members = vec![Member::new(index_name, index)];
        if let Kind::Structured(set) = kind {
            let documents = structured::documents(set, year, &self.companies, until);
            members.extend(structured::other_members(set, year, &documents));
        }
        Ok(Some(members))
    }

    /// What a directory shows. Years of filings that nobody has asked for yet have about the size that they will have:
    /// to make all of them for this would take half a minute.
    fn listed(&self, kind: Kind, today: NaiveDate, edits: &Edits) -> anyhow::Result<Vec<Listed>> {
        let mut files = Vec::new();
        for year in self.years(kind, today) {
            let name = format!("{}.zip", kind.stem(year));
            if edits.hidden.contains(&name) {
                continue;
            }
            let size = match kind {
                Kind::Ipe => self.made_size(&name).unwrap_or(48 * self.ipe_rows_per_year + 400),
                Kind::Structured(_) => match self.archive(kind, year, today, edits)? {
                    Some(archive) => archive.content.len(),
                    None => continue,
                },
            };
            let changes = edits.changes.get(&name).copied().unwrap_or(0);
            files.push(Listed { name, modified: dump_time(kind.dumped_on(year, today), changes), size });
        }
        Ok(files)
    }

    fn made_size(&self, name: &str) -> Option<usize> {
        let archives = self.archives.lock().unwrap_or_else(PoisonError::into_inner);
        archives.get(name).map(|archive| archive.content.len())
    }
}

/// A line of a directory.
struct Listed {
    name: String,
    modified: DateTime<Utc>,
    size: usize,
}

impl Archive {
    fn modified(&self) -> DateTime<Utc> {
        dump_time(self.dumped_on, self.changes)
    }
}

/// `cad_cia_aberta_2026-05.csv` is the registry of May 2026.
fn real_registries(directory: &Path) -> anyhow::Result<Vec<(NaiveDate, Bytes)>> {
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
fn received_by(file: &[u8], column: usize, until: NaiveDate) -> Vec<u8> {
    let until = until.to_string().into_bytes();
    let lines = file.split_inclusive(|byte| *byte == b'\n').enumerate();
    let received = |line: &[u8]| line.split(|byte| *byte == b';').nth(column).is_some_and(|date| date <= &until[..]);
    lines.filter(|(number, line)| *number == 0 || received(line)).flat_map(|(_, line)| line).copied().collect()
}

/// Written at five in the morning, eight by Greenwich.
fn registry_modified(now: NaiveDateTime, edits: &Edits) -> DateTime<Utc> {
    let five = NaiveTime::from_hms_opt(5, 0, 0).expect("a time of the day");
    let date = if now.time() >= five { now.date() } else { now.date() - Days::new(1) };
    dump_time(date, edits.changes.get(REGISTRY).copied().unwrap_or(0))
}

fn dump_time(date: NaiveDate, changes: u32) -> DateTime<Utc> {
    date.and_hms_opt(8, 0, 0).expect("a time of the day").and_utc() + TimeDelta::seconds(changes.into())
}

/// A directory as Apache shows it.
fn listing(directory: &str, files: &[Listed]) -> Answer {
    let title = directory.trim_end_matches('/');
    let parent = &title[..title.rfind('/').map_or(0, |at| at + 1)];
    let mut page = format!(
        "<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 3.2 Final//EN\">\n<html>\n <head>\n  \
         <title>Index of {title}</title>\n </head>\n <body>\n<h1>Index of {title}</h1>\n\
         <pre>      <a href=\"?C=N;O=D\">Name</a>                    \
         <a href=\"?C=M;O=A\">Last modified</a>      <a href=\"?C=S;O=A\">Size</a>  <hr>      \
         <a href=\"{parent}\">Parent Directory</a>                             -   \n"
    );
    for Listed { name, modified, size } in files {
        // Times are shown as they are in Brasília.
        let shown = (*modified - TimeDelta::hours(3)).format("%Y-%m-%d %H:%M");
        let size = if *size < 1 << 20 {
            format!("{}K", size.div_ceil(1024))
        } else {
            format!("{:.1}M", *size as f64 / 1_048_576.0)
        };
        page += &format!("      <a href=\"{name}\">{name}</a> {shown}  {size:>5}  \n");
    }
    Answer::new(StatusCode::OK, HTML, page + "<hr></pre>\n</body></html>\n")
}

fn not_found(path: &str) -> Answer {
    let page = format!(
        "<!DOCTYPE HTML PUBLIC \"-//IETF//DTD HTML 2.0//EN\">\n<html><head>\n<title>404 Not Found</title>\n\
         </head><body>\n<h1>Not Found</h1>\n\
         <p>The requested URL {path} was not found on this server.</p>\n</body></html>\n"
    );
    Answer::new(StatusCode::NOT_FOUND, "text/html; charset=iso-8859-1", page)
}
