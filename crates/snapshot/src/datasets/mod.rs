//! The kinds of data of the read model, one file each. A new kind is a file here, an entry in [`SNAPSHOT_DATASETS`] and
//! a part of [`crate::snapshot::Snapshot`].

pub mod companies;
mod filings;
mod fx;
pub mod series;
mod statements;

use vintem_domain::Dataset;

use crate::snapshot_dataset::SnapshotDataset;

/// In the order in which they are built: issuers that appear only in filings are companies too.
pub static SNAPSHOT_DATASETS: [&dyn SnapshotDataset; 5] =
    [&series::SeriesData, &fx::FxData, &filings::FilingsData, &companies::CompaniesData, &statements::StatementsData];

/// The kind of data that a dataset belongs to.
pub fn snapshot_dataset(dataset: Dataset) -> &'static dyn SnapshotDataset {
    let found = SNAPSHOT_DATASETS.into_iter().find(|part| part.datasets().contains(&dataset));
    found.expect("every dataset has a part of the snapshot")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dataset_belongs_to_one_kind_of_data() {
        for dataset in Dataset::all() {
            let parts = SNAPSHOT_DATASETS.into_iter().filter(|part| part.datasets().contains(&dataset));
            assert_eq!(parts.count(), 1, "{}", dataset.id());
        }
    }
}
