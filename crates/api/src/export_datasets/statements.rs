//! Financial statements in the bulk export: one file for each set and year of the reference date, with one row for each
//! account of every version that we have.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use chrono::{Datelike, NaiveDate};
use vintem_deliver::export::ExportDataset;
use vintem_deliver::table::{CellWriter, OutputTable};
use vintem_domain::statement::StatementContent;
use vintem_domain::{CompanyId, Dataset, StatementSet};
use vintem_snapshot::{Snapshot, Statements, VersionedDocument, statement_documents};
use vintem_store::reader::RowProvenance;

use super::building::{build_export_dataset, collect_source_fetches};
use crate::bodies::statement::{DocumentOfRows, ExportedRow, StatementRowBody};

pub fn statements_exports(snapshot: &Arc<Snapshot>, today: NaiveDate) -> Vec<ExportDataset> {
    let Some(statements) = snapshot.statements() else { return Vec::new() };
    let mut parts: BTreeMap<ExportPart, (DefaultHasher, Vec<RowProvenance>)> = BTreeMap::new();
    for company_id in statements.companies() {
        for document in statement_documents(statements, snapshot.filings(), company_id, today) {
            let part = ExportPart { set: document.set, year: document.reference_date.year() };
            for version in &document.versions {
                let Some(form) = version.form else { continue };
                let filing = version.filing.map(|filing| (filing.id, filing.delivered_on));
                let known = (form.provenance.known_at_seconds, form.provenance.fetch_id);
                let (hasher, provenances) = parts.entry(part).or_default();
                (company_id, document.reference_date, version.version, filing, known).hash(hasher);
                provenances.push(form.provenance);
            }
        }
    }
    let exports = parts.into_iter().filter_map(|(part, (hasher, provenances))| {
        let sources_snapshot = snapshot.clone();
        let list_sources = move || collect_source_fetches(&sources_snapshot, provenances.iter().copied());
        let table_snapshot = snapshot.clone();
        let build_table = move || part_table(&table_snapshot, part, today);
        let name = format!("statements-{}-{}", part.set.id(), part.year);
        build_export_dataset(snapshot, name, &[Dataset::Statements], hasher.finish(), list_sources, build_table)
    });
    exports.collect()
}

/// What one file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ExportPart {
    set: StatementSet,
    year: i32,
}

/// Reads one company after the other: a year of quarterly statements has 1.6 million rows.
fn part_table(snapshot: &Arc<Snapshot>, part: ExportPart, today: NaiveDate) -> OutputTable {
    let snapshot = snapshot.clone();
    let companies: Vec<CompanyId> = snapshot.statements().map_or_else(Vec::new, |all| all.companies().collect());
    let mut companies = companies.into_iter();
    let mut waiting: VecDeque<ExportedRow> = VecDeque::new();
    OutputTable::fallible("statements", ExportedRow::columns(), move |cells: &mut dyn CellWriter| {
        while waiting.is_empty() {
            let Some(company_id) = companies.next() else { return Ok(false) };
            waiting.extend(read_company(&snapshot, part, company_id, today)?);
        }
        Ok(waiting.pop_front().map(|row| row.write_cells(cells)).is_some())
    })
}

fn read_company(
    snapshot: &Snapshot,
    part: ExportPart,
    company_id: CompanyId,
    today: NaiveDate,
) -> Result<Vec<ExportedRow>, String> {
    let Some(statements) = snapshot.statements() else { return Ok(Vec::new()) };
    let mut rows = Vec::new();
    let documents = statement_documents(statements, snapshot.filings(), company_id, today);
    for document in documents.iter().filter(|document| document.set == part.set) {
        if document.reference_date.year() == part.year {
            rows.extend(
                read_document(statements, company_id, document)
                    .map_err(|error| format!("{} {company_id} {}: {error}", part.set.id(), document.reference_date))?,
            );
        }
    }
    Ok(rows)
}

fn read_document(
    statements: &Statements,
    company_id: CompanyId,
    document: &VersionedDocument<'_>,
) -> Result<Vec<ExportedRow>, String> {
    let mut rows = Vec::new();
    let available = document.versions.iter().filter_map(|version| Some((version, version.form?)));
    for (index, (version, form)) in available.enumerate() {
        let VersionedDocument { set, reference_date, .. } = *document;
        let rows_of = DocumentOfRows { set, reference_date, version: *version, certainty: None };
        let body = statements.read_body(form).map_err(|error| error.to_string())?;
        let content = StatementContent::parse(&body).map_err(|error| error.to_string())?;
        rows.extend(content.accounts.iter().map(|row| ExportedRow {
            company_id,
            row: StatementRowBody::new(row, &rows_of, false),
            is_latest: index == 0,
        }));
    }
    Ok(rows)
}
