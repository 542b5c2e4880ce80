//! Statements in the disk cache: their index. The file with the bodies lies beside it.

use std::path::Path;
use std::sync::Arc;

use vintem_domain::StatementSet;
use vintem_domain::statement::StatementTableSet;

use super::bodies::{BodyFile, BodyLocation};
use super::{StatementForm, Statements};
use crate::disk_cache::{DiskCacheError, DiskCacheReader, DiskCacheWriter};
use crate::error::Result;

impl Statements {
    /// Writes the index. Returns the names of its file and of the file with the bodies.
    pub fn save(&self, directory: &Path) -> Result<Vec<String>> {
        self.bodies.sync().map_err(DiskCacheError::from)?;

        let forms = &self.forms;
        let mut writer = DiskCacheWriter::create(directory)?;
        writer.write_u64(self.used_bytes)?;
        writer.write_numbers(&forms.iter().map(|form| form.company_id).collect::<Vec<_>>())?;
        writer.write_numbers(&forms.iter().map(|form| form.set as u8).collect::<Vec<_>>())?;
        writer.write_dates(forms.iter().map(|form| form.reference_date))?;
        writer.write_numbers(&forms.iter().map(|form| form.version).collect::<Vec<_>>())?;
        writer.write_numbers(&forms.iter().map(|form| form.tables.bits()).collect::<Vec<_>>())?;
        writer.write_numbers(&forms.iter().map(|form| form.row_count).collect::<Vec<_>>())?;
        writer.write_provenances(forms.iter().map(|form| form.provenance))?;
        // The bodies of a company are beside each other, but those of a later load are at the end of the file.
        writer.write_numbers(&forms.iter().map(|form| u128::from(form.body.offset)).collect::<Vec<_>>())?;
        writer.write_numbers(&forms.iter().map(|form| form.body.length).collect::<Vec<_>>())?;
        writer.write_numbers(&forms.iter().map(|form| form.body.checksum).collect::<Vec<_>>())?;
        let index = writer.finish(|checksum| format!("statements-{checksum:08x}"))?;
        Ok(vec![index, self.body_file().to_owned()])
    }

    /// Loads the index that `save` wrote, and opens the file with the bodies.
    pub fn load(directory: &Path, index: &str, body_file: &str) -> Result<Self> {
        let mut reader = DiskCacheReader::open(&directory.join(index))?;
        let used_bytes = reader.read_u64()?;
        let company_ids: Vec<u32> = reader.read_numbers()?;
        let sets: Vec<u8> = reader.read_numbers()?;
        let dates = reader.read_dates()?;
        let versions: Vec<u16> = reader.read_numbers()?;
        let tables: Vec<u32> = reader.read_numbers()?;
        let row_counts: Vec<u32> = reader.read_numbers()?;
        let provenances = reader.read_provenances()?;
        let offsets: Vec<u128> = reader.read_numbers()?;
        let lengths: Vec<u32> = reader.read_numbers()?;
        let checksums: Vec<u32> = reader.read_numbers()?;

        let mut forms = Vec::with_capacity(company_ids.len());
        for (at, company_id) in company_ids.iter().enumerate() {
            let form = || {
                let offset = u64::try_from(*offsets.get(at)?).ok()?;
                let body = BodyLocation { offset, length: *lengths.get(at)?, checksum: *checksums.get(at)? };
                Some(StatementForm {
                    company_id: *company_id,
                    set: StatementSet::ALL.into_iter().find(|set| Some(&(*set as u8)) == sets.get(at))?,
                    reference_date: *dates.get(at)?,
                    version: *versions.get(at)?,
                    tables: StatementTableSet::from_bits(*tables.get(at)?),
                    row_count: *row_counts.get(at)?,
                    provenance: *provenances.get(at)?,
                    body: Some(body).filter(|body| body.end() <= used_bytes)?,
                })
            };
            forms.push(form().ok_or(DiskCacheError::Damaged("the index of the statements is incomplete"))?);
        }
        Ok(Self::new(forms, Arc::new(BodyFile::open(directory, body_file, used_bytes)?), used_bytes))
    }
}
