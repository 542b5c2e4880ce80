//! Companies: the registry, and issuers that appear only in filings.

use std::collections::HashSet;
use std::sync::Arc;

use chrono::NaiveDate;
use vintem_domain::dates::MAX_DATE;
use vintem_domain::{Company, Dataset};
use vintem_store::reader::RowProvenance;

use crate::companies::Companies;
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
