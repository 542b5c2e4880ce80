//! The sidecar of an export: facts about its data that the files do not contain.

use chrono::{DateTime, Utc};
use serde::Serialize;
use vintem_domain::Dataset;
use vintem_domain::series::License;

use super::{ExportDataset, ManifestFile, SourceFetch};
use crate::table::Column;

/// It has no timestamp of its own, because the same rows must give the same bytes.
#[derive(Serialize)]
pub struct SidecarBody<'a> {
    name: &'a str,
    dataset: &'a str,
    title: &'a str,
    source: &'a str,
    licence: &'a str,
    attribution: String,
    synthetic: bool,
    generation: i64,
    as_of: DateTime<Utc>,
    rows: u64,
    columns: Vec<SidecarColumn>,
    files: &'a [ManifestFile],
    sources: Vec<SourceFetch>,
}

#[derive(Serialize)]
struct SidecarColumn {
    name: String,
    r#type: String,
}

impl<'a> SidecarBody<'a> {
    pub fn new(export: &'a ExportDataset, rows: u64, files: &'a [ManifestFile], sources: Vec<SourceFetch>) -> Self {
        Self {
            name: &export.name,
            dataset: export.dataset.id(),
            title: export.subject.name().en,
            source: export.dataset.source_name(),
            licence: export.subject.license().id(),
            attribution: attribution_text(export.subject),
            synthetic: export.is_synthetic,
            generation: export.generation,
            as_of: export.as_of,
            rows,
            columns: (export.build_table)().columns.iter().map(SidecarColumn::from).collect(),
            files,
            sources,
        }
    }
}

impl From<&Column> for SidecarColumn {
    fn from(column: &Column) -> Self {
        Self { name: column.name.to_string(), r#type: column.column_type.type_name().into_owned() }
    }
}

fn attribution_text(subject: Dataset) -> String {
    let source = subject.source_name();
    match (subject.license(), subject) {
        (License::Undeclared, Dataset::Series(series)) => {
            format!("Contains data of {}, {} ({source}).", series.publisher.name().en, License::Undeclared.id())
        }
        (License::OfInputs, _) => {
            format!("Computed from data of {source}. The license is {}.", License::OfInputs.id())
        }
        _ => format!("Contains data from {source}, made available under the Open Database License (ODbL) 1.0."),
    }
}

#[cfg(test)]
mod tests {
    use vintem_domain::series::find_series;

    use super::*;

    #[test]
    fn only_data_with_an_open_license_is_attributed_to_it() {
        let attribution = |id: &str| attribution_text(Dataset::Series(find_series(id).unwrap()));
        assert!(attribution("selic").ends_with("under the Open Database License (ODbL) 1.0."));
        assert_eq!(
            attribution("ipca"),
            "Contains data of IBGE, redistributed through SGS, no open license declared (BCB SGS)."
        );
        assert_eq!(
            attribution("real-selic"),
            "Computed from data of BCB SGS. The license is that of the series it is computed from."
        );
    }
}
