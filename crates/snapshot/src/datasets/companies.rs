//! Companies: the registry, and issuers that appear only in filings.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use chrono::NaiveDate;
use vintem_domain::dates::MAX_DATE;
use vintem_domain::{Cnpj, Company, Dataset};
use vintem_store::reader::RowProvenance;

use crate::companies::Companies;
use crate::disk_cache::{DiskCacheError, DiskCacheReader, DiskCacheWriter};
use crate::error::Result;
use crate::filings::Filings;
use crate::snapshot::Snapshot;
use crate::snapshot_dataset::{BuildFuture, SnapshotBuild, SnapshotDataset};

pub struct CompaniesData;

impl SnapshotDataset for CompaniesData {
    fn datasets(&self) -> Vec<Dataset> {
        vec![Dataset::Companies]
    }

    fn build<'b>(&'b self, build: &'b mut SnapshotBuild<'_>) -> BuildFuture<'b> {
        Box::pin(async {
            if build.is_loaded(Dataset::Companies) {
                let is_unchanged = build.is_unchanged(Dataset::Companies);
                let registered = if is_unchanged { None } else { Some(build.reader.companies().await?) };
                build.next.companies = build_companies(build.served, registered, build.next.filings.clone()).await?;
            }
            Ok(())
        })
    }

    /// The registry's rows carry no date that advances.
    fn row_count_and_newest_date(&self, snapshot: &Snapshot, _: Dataset, _: NaiveDate) -> (usize, Option<NaiveDate>) {
        (snapshot.companies().map_or(0, Companies::len), None)
    }

    fn save(&self, snapshot: &Snapshot, directory: &Path) -> Result<Vec<String>> {
        let Some(companies) = snapshot.companies() else { return Ok(Vec::new()) };
        let (registered, provenances): (Vec<Company>, Vec<RowProvenance>) = companies.registered().unzip();

        let mut writer = DiskCacheWriter::create(directory)?;
        writer.write_provenances(provenances.into_iter())?;
        for company in registered {
            write_company(&mut writer, company)?;
        }
        Ok(vec![writer.finish(|checksum| format!("companies-{checksum:08x}"))?])
    }

    /// Needs the filings, whose issuers are companies too.
    fn open(&self, snapshot: &mut Snapshot, files: &[String], directory: &Path) -> Result<()> {
        for file in files {
            let mut reader = DiskCacheReader::open(&directory.join(file))?;
            let mut registered = Vec::new();
            for provenance in reader.read_provenances()? {
                registered.push((read_company(&mut reader)?, provenance));
            }
            let issuers = unregistered_issuers(&registered, snapshot.filings(), MAX_DATE);
            snapshot.companies = Some(Arc::new(Companies::build(registered, issuers)?));
        }
        Ok(())
    }
}

/// Names every field, so that a new one cannot be forgotten.
fn write_company(writer: &mut DiskCacheWriter, company: Company) -> Result<()> {
    let Company {
        id,
        name,
        cnpj,
        status,
        sector,
        trade_name,
        former_names,
        former_trade_names,
        tickers,
        markets,
        registered_on,
        cancelled_on,
        status_since,
        category,
        situation,
        control,
        city,
        state,
        auditor,
        is_registered,
    } = company;

    writer.write_u64(id.into())?;
    writer.write_u64(is_registered.into())?;
    writer.write_strings(&[name, status, sector, trade_name, category, situation, control, city, state, auditor])?;
    for texts in [former_names, former_trade_names, tickers, markets] {
        writer.write_strings(&texts)?;
    }
    writer.write_strings(&cnpj.map(|cnpj| cnpj.to_string()).into_iter().collect::<Vec<_>>())?;
    for date in [registered_on, cancelled_on, status_since] {
        writer.write_dates(date.into_iter())?;
    }
    Ok(())
}

fn read_company(reader: &mut DiskCacheReader) -> Result<Company> {
    let damaged = DiskCacheError::Damaged("a company is incomplete");
    let id = u32::try_from(reader.read_u64()?);
    let is_registered = reader.read_u64()? != 0;
    let texts: std::result::Result<[String; 10], _> = reader.read_strings()?.try_into();
    let (Ok(id), Ok([name, status, sector, trade_name, category, situation, control, city, state, auditor])) =
        (id, texts)
    else {
        return Err(damaged.into());
    };

    let [former_names, former_trade_names, tickers, markets] = [(); 4].map(|()| reader.read_strings());
    let cnpj = reader.read_strings()?.first().and_then(|cnpj| Cnpj::parse(cnpj));
    let mut read_date = || -> Result<Option<NaiveDate>> { Ok(reader.read_dates()?.first().copied()) };
    Ok(Company {
        id,
        name,
        cnpj,
        status,
        sector,
        trade_name,
        former_names: former_names?,
        former_trade_names: former_trade_names?,
        tickers: tickers?,
        markets: markets?,
        registered_on: read_date()?,
        cancelled_on: read_date()?,
        status_since: read_date()?,
        category,
        situation,
        control,
        city,
        state,
        auditor,
        is_registered,
    })
}

/// The companies, shared with the served snapshot if neither the registry nor the unregistered issuers changed.
async fn build_companies(
    served: &Snapshot,
    registered: Option<Vec<(Company, RowProvenance)>>,
    filings: Option<Arc<Filings>>,
) -> Result<Option<Arc<Companies>>> {
    let served = served.companies.clone();
    let build = move || {
        let reusable = served.as_ref().filter(|_| registered.is_none());
        let registered = registered.unwrap_or_else(|| served.iter().flat_map(|served| served.registered()).collect());
        let issuers = unregistered_issuers(&registered, filings.as_deref(), MAX_DATE);

        match reusable {
            // A further filing of the same issuers changes nothing.
            Some(companies) if companies.unregistered().iter().eq(issuers.iter().map(|(company, _)| company)) => {
                Ok(Some(companies.clone()))
            }
            _ => Ok(Some(Arc::new(Companies::build(registered, issuers)?))),
        }
    };

    tokio::task::spawn_blocking(build).await?
}

/// Issuers of filings until a day that are not in the registry, as companies, in ascending order of code.
pub fn unregistered_issuers(
    registered: &[(Company, RowProvenance)],
    filings: Option<&Filings>,
    until: NaiveDate,
) -> Vec<(Company, RowProvenance)> {
    let registered_ids: HashSet<u32> = registered.iter().map(|(company, _)| company.id).collect();
    let issuers = filings.into_iter().flat_map(|filings| filings.issuer_names(until));
    let unregistered = issuers.filter(|(id, _)| !registered_ids.contains(id));

    unregistered
        .map(|(id, (name, provenance))| (Company { id, name: name.to_owned(), ..Company::default() }, provenance))
        .collect()
}
