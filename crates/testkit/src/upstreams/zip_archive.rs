//! Writes ZIP archives like CVM's, and malicious ones.

use std::io::{Cursor, Read, Write};

use anyhow::Context;
use chrono::{Datelike, NaiveDate};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

pub struct ZipMember {
    pub name: String,
    pub content: Vec<u8>,
}

impl ZipMember {
    pub fn new(name: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), content: content.into() }
    }
}

/// Writes a deflated archive whose members are dated the morning of the dump.
pub fn write_zip(members: &[ZipMember], dumped_on: NaiveDate) -> anyhow::Result<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for member in members {
        writer.start_file(member.name.as_str(), zip_file_options(dumped_on)?)?;
        writer.write_all(&member.content)?;
    }
    Ok(writer.finish()?.into_inner())
}

pub fn read_zip(archive: &[u8]) -> anyhow::Result<Vec<ZipMember>> {
    let mut archive = ZipArchive::new(Cursor::new(archive))?;
    let mut members = Vec::new();
    for index in 0..archive.len() {
        let mut file = archive.by_index(index)?;
        let name = file.name()?.into_owned();
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        members.push(ZipMember { name, content });
    }
    Ok(members)
}

/// A small archive whose one member inflates to more than `megabytes`.
pub fn build_zip_bomb(member: &str, header: &[u8], megabytes: usize, dumped_on: NaiveDate) -> anyhow::Result<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    writer.start_file(member, zip_file_options(dumped_on)?)?;
    writer.write_all(header)?;
    let zeros = vec![b'0'; 1 << 20];
    for _ in 0..megabytes {
        writer.write_all(&zeros)?;
    }
    Ok(writer.finish()?.into_inner())
}

fn zip_file_options(dumped_on: NaiveDate) -> anyhow::Result<SimpleFileOptions> {
    let year = u16::try_from(dumped_on.year())?;
    let month = dumped_on.month() as u8;
    let day = dumped_on.day() as u8;
    let time =
        zip::DateTime::from_date_and_time(year, month, day, 5, 0, 0).ok().context("a time that ZIP can state")?;

    // Somewhat larger than the real archives, but written in half the time.
    let level = Some(3);
    let deflated = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    Ok(deflated.compression_level(level).last_modified_time(time))
}
