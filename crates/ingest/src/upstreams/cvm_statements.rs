//! The regulator's yearly archives of statements (CVM), each document kept as it was published.

use sha2::{Digest, Sha256};
use vintem_domain::statement::{StatementContent, StatementTable, changed_values};
use vintem_domain::{Dataset, StatementSet};
use vintem_store::load::{LoadTransaction, RawBody, ReplacedBodies, StatementDocument};
use vintem_store::sources::SourcePartState;

use super::cvm::{
    YearArchive, fetch_year_archive, finish_part, open_archive, parse_on_blocking_thread, report_unchanged,
    validate_or_quarantine,
};
use super::{LoadContext, PartError, PartReport, RejectionError};
use crate::fetch::{UpstreamResponse, compress_for_archive, compress_statement_for_archive, decompress_from_archive};
use crate::parsers::statements::StatementCollector;
use crate::parsers::zip::CheckedZipArchive;
use crate::parsers::{FormatAlert, FormatError, ParsedRows};
use crate::validation::{to_quarantined_rows, validate_bad_row_count};

/// A few accounts of a year are stated with two values. More withheld rows than this mean that a label has changed.
const MAX_WITHHELD_ROWS: u64 = 100;

/// The parsed tables of a year of statements.
pub struct ParsedStatementYear {
    pub documents: Vec<StatementDocument>,
    /// The rows themselves are in the documents.
    pub lines: ParsedRows<()>,
    /// One line for each table: its name in the archive, its size and its SHA-256. Archived in place of the tables, whose
    /// content the documents have.
    pub manifest: RawBody,
}

/// Archives the statements of a year. The regulator replaces each document by its next version, so what we don't keep is
/// gone.
pub async fn load_statement_year(
    context: &LoadContext<'_>,
    set: StatementSet,
    year: i32,
    state: &mut SourcePartState,
) -> Result<PartReport, PartError> {
    let received_before = context.client.received_bytes();
    let members: Vec<String> =
        StatementTable::all_of_year(year).map(|table| table.archive_member_name(set, year)).collect();
    let fetched = fetch_year_archive(context, set.cvm_dataset(), year, &members, state).await?;
    let bytes = context.client.received_bytes() - received_before;
    let Some(YearArchive { response, fingerprint }) = fetched else {
        return Ok(PartReport { bytes, ..report_unchanged(context, state, None) });
    };

    let is_whole = fingerprint.is_none();
    let parse = move |response: &UpstreamResponse| {
        parse_statement_year(&mut open_archive(&response.body, is_whole)?, set, year)
    };
    let (response, parsed_year) = parse_on_blocking_thread(response, parse).await?;
    let statements = validate_or_quarantine(
        context,
        state,
        &response,
        parsed_year,
        |year| &year.lines,
        || first_lines(&response.body, &members),
    )
    .await?;

    let manifest = statements.manifest;
    let fetch = response.to_fetch_record(response.address.clone(), context.now, manifest.sha256, manifest);
    let mut report = PartReport { bytes, ..PartReport::default() };
    let mut load = context.begin_load(Dataset::Statements, &fetch).await?;
    load.append_statements(&statements.documents).await?;
    announce_restatements(&mut load).await?;
    load.quarantine_rows(context.source_id, &state.part, &to_quarantined_rows(&statements.lines.bad_rows)).await?;
    report.appended = load.commit().await?;

    state.sha256 = is_whole.then(|| response.body_sha256().to_vec());
    state.member_fingerprint = fingerprint;
    finish_part(context, state, response.validators, &statements.lines, report)
}

/// Emits an event for every document that changes figures of its previous version or form.
async fn announce_restatements(load: &mut LoadTransaction) -> Result<(), PartError> {
    for replacement in load.statement_replacements().await? {
        let ReplacedBodies { new, previous } = load.replaced_bodies(&replacement).await?;
        let texts = [previous, new].map(|body| decompress_from_archive(&body).map(String::from_utf8));
        let [Ok(Ok(previous)), Ok(Ok(new))] = &texts else {
            tracing::error!(?replacement, "an archived statement cannot be decompressed");
            continue;
        };
        let contents = [previous, new].map(|text| StatementContent::parse(text));
        let [Ok(previous), Ok(new)] = &contents else {
            tracing::error!(?replacement, "an archived statement cannot be read");
            continue;
        };
        let changes = changed_values(previous, new);
        if !changes.is_empty() {
            load.emit_restatement(&replacement, &changes).await?;
        }
    }
    Ok(())
}

/// The columns of each of these members, to see what changed in an archive of statements that was rejected.
fn first_lines(archive: &[u8], members: &[String]) -> Vec<u8> {
    let Ok(mut archive) = CheckedZipArchive::open_pieces(archive) else { return Vec::new() };
    let mut lines = Vec::new();
    for name in members {
        if let Ok(table) = archive.read_member(name) {
            lines.extend(table.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default());
        }
    }
    lines
}

pub fn parse_whole_statement_archive(
    bytes: &[u8],
    set: StatementSet,
    year: i32,
) -> Result<ParsedStatementYear, RejectionError> {
    parse_statement_year(&mut CheckedZipArchive::open(bytes)?, set, year)
}

fn parse_statement_year(
    archive: &mut CheckedZipArchive<'_>,
    set: StatementSet,
    year: i32,
) -> Result<ParsedStatementYear, RejectionError> {
    let mut collector = StatementCollector::default();
    let mut manifest = String::new();
    for table in StatementTable::all_of_year(year) {
        let name = table.archive_member_name(set, year);
        let bytes = archive.read_member(&name)?;
        manifest += &format!("{name} {} {:x}\n", bytes.len(), Sha256::digest(&bytes));
        collector.add_table(table, &bytes).map_err(|error| FormatError::InMember { name, error: Box::new(error) })?;
    }

    let (canonical_statements, mut lines) = collector.finish();
    validate_bad_row_count(&lines)?;
    let documents = canonical_statements
        .map(|statement| {
            let not_compressed = |error: std::io::Error| FormatError::CorruptArchive(error.to_string());
            let statement = statement.map_err(not_compressed)?;
            statement.withhold_rows(&mut lines)?;
            Ok(StatementDocument {
                set,
                company_id: statement.key.company_id,
                reference_date: statement.key.reference_date,
                version: statement.key.version,
                tables: statement.tables.into_iter().map(str::to_owned).collect(),
                row_count: statement.row_count,
                body: compress_statement_for_archive(&statement.body).map_err(not_compressed)?,
            })
        })
        .collect::<Result<Vec<_>, FormatError>>()?;

    let withheld =
        lines.count_bad_rows().iter().filter(|(kind, _)| kind.is_of_archived_row()).map(|(_, count)| count).sum();
    if withheld > MAX_WITHHELD_ROWS {
        lines.alerts.push(FormatAlert::WithheldRows { withheld, total: lines.total });
    }
    Ok(ParsedStatementYear { documents, lines, manifest: compress_for_archive(manifest.as_bytes()) })
}
