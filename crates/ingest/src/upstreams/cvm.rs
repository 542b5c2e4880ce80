//! The regulator's files (CVM): the company registry and the yearly archives of filings.

use std::collections::BTreeMap;

use chrono::{Datelike, NaiveDate};
use sha2::{Digest, Sha256};
use vintem_domain::{Company, CvmDataset, DataOrigin, Dataset, VERSION};
use vintem_store::load::{Filing, ListedSecurity, NewFetch, RawBody};
use vintem_store::sources::{FileValidators, SourcePartState};

use super::archive::{ArchiveFetch, ArchiveRequest, fetch_archive};
use super::{LoadContext, PartError, PartReport, RejectionError, record_success};
use crate::drift::{DailyRowNorm, DriftAlert, compare_blanks, compare_days};
use crate::fetch::{FetchError, FetchRequest, ResponseVerdict, UpstreamResponse, compress_for_archive};
use crate::parsers::zip::CheckedZipArchive;
use crate::parsers::{FormatError, ParsedRows, company_registry, fca_securities, ipe, structured_filings};
use crate::validation::{to_quarantined_rows, validate_bad_row_count, validate_row_count};

pub const REGISTRY_PATH: &str = "/dados/CIA_ABERTA/CAD/DADOS/cad_cia_aberta.csv";

/// A parsed file: rows that are loaded together, and the copy of the file to archive.
pub struct ParsedFile<T> {
    /// The name inside its archive, if it comes from one.
    pub member_name: Option<String>,
    pub sha256: [u8; 32],
    pub archived_body: RawBody,
    pub parsed: ParsedRows<T>,
}

/// The parsed members of a yearly archive.
pub struct ParsedFilingYear {
    pub filings: ParsedFile<Filing>,
    pub securities: Option<ParsedFile<ListedSecurity>>,
}

pub async fn load_registry(context: &LoadContext<'_>, state: &mut SourcePartState) -> Result<PartReport, PartError> {
    let known = known_version(state);
    let request = FetchRequest { path: REGISTRY_PATH, known: known.validators.clone(), ..FetchRequest::default() };
    let response = context.get(request, judge_file).await?;
    if response.status == 304 {
        known.problem.map_or(Ok(()), |problem| Err(PartError::StillRejected { problem }))?;
        return Ok(report_unchanged(context, state, None));
    }
    if has_same_content(state, &response) {
        return Ok(report_unchanged(context, state, Some(response.validators)));
    }

    let (response, registry) =
        parse_on_blocking_thread(response, |response| parse_registry_file(&response.body)).await?;
    // The registry contains personal data; the copy that we keep, even of a rejected file, must not.
    let redacted_body = || company_registry::redact_personal_data(&response.body);
    let registry =
        validate_or_quarantine(context, state, &response, registry, |file| &file.parsed, redacted_body).await?;

    let mut report = PartReport { bytes: response.body.len() as u64, ..PartReport::default() };
    let fetch = build_fetch_record(context, &response, &registry);
    let mut load = context.begin_load(Dataset::Companies, &fetch).await?;
    report.vanished = load.append_full_registry(&registry.parsed.rows).await?;
    load.quarantine_rows(context.source_id, &state.part, &to_quarantined_rows(&registry.parsed.bad_rows)).await?;
    report.appended = load.commit().await?;
    state.sha256 = Some(response.body_sha256().to_vec());
    finish_part(context, state, response.validators, &registry.parsed, report)
}

pub async fn load_filing_year(
    context: &LoadContext<'_>,
    set: CvmDataset,
    year: i32,
    state: &mut SourcePartState,
) -> Result<PartReport, PartError> {
    let received_before = context.client.received_bytes();
    let fetched = fetch_year_archive(context, set, year, &index_members(set, year), state).await?;
    let Some(YearArchive { response, fingerprint }) = fetched else {
        let bytes = context.client.received_bytes() - received_before;
        return Ok(PartReport { bytes, ..report_unchanged(context, state, None) });
    };
    let bytes = context.client.received_bytes() - received_before;
    let mut report = PartReport { bytes, ..PartReport::default() };

    let (today, is_whole) = (context.today, fingerprint.is_none());
    let parse = move |response: &UpstreamResponse| {
        parse_year_archive(&mut open_archive(&response.body, is_whole)?, set, year, today)
    };
    let (response, parsed_year) = parse_on_blocking_thread(response, parse).await?;
    let ParsedFilingYear { mut filings, securities } = validate_or_quarantine(
        context,
        state,
        &response,
        parsed_year,
        |year| &year.filings.parsed,
        || redact_rejected_archive(&response.body, set, year),
    )
    .await?;

    let fetch = build_fetch_record(context, &response, &filings);
    let mut load = context.begin_load(Dataset::Filings, &fetch).await?;
    report.vanished = load.append_full_filings(&filings.parsed.rows, set, year).await?;
    load.quarantine_rows(context.source_id, &state.part, &to_quarantined_rows(&filings.parsed.bad_rows)).await?;
    report.appended = load.commit().await?;

    if let Some(securities) = securities {
        let fetch = build_fetch_record(context, &response, &securities);
        let mut load = context.store.begin_load(Dataset::Companies, DataOrigin::Real, &fetch).await?;
        load.append_securities(&securities.parsed.rows).await?;
        load.quarantine_rows(context.source_id, &state.part, &to_quarantined_rows(&securities.parsed.bad_rows)).await?;
        report.appended += load.commit().await?;
        report.add_problems(&securities.parsed);
        filings.parsed.blanks.extend(securities.parsed.blanks);
    }

    if set == CvmDataset::Ipe && year == today.year() {
        report.add_alerts(compare_delivery_days(&filings.parsed.rows));
    }
    state.sha256 = is_whole.then(|| response.body_sha256().to_vec());
    state.member_fingerprint = fingerprint;
    finish_part(context, state, response.validators, &filings.parsed, report)
}

/// The file is some days old, so its newest day may be incomplete.
fn compare_delivery_days(filings: &[Filing]) -> Option<DriftAlert> {
    let mut counts: BTreeMap<NaiveDate, u64> = BTreeMap::new();
    for filing in filings {
        *counts.entry(filing.delivered_on).or_default() += 1;
    }
    let newest = *counts.keys().next_back()?;
    compare_days(DailyRowNorm::FILINGS, &counts, newest)
}

pub(super) fn open_archive(bytes: &[u8], is_whole: bool) -> Result<CheckedZipArchive<'_>, FormatError> {
    if is_whole { CheckedZipArchive::open(bytes) } else { CheckedZipArchive::open_pieces(bytes) }
}

/// A changed archive.
pub(super) struct YearArchive {
    pub response: UpstreamResponse,
    /// Of its members, if they alone were fetched.
    pub fingerprint: Option<String>,
}

/// `None` if we have what it holds.
pub(super) async fn fetch_year_archive(
    context: &LoadContext<'_>,
    set: CvmDataset,
    year: i32,
    members: &[String],
    state: &mut SourcePartState,
) -> Result<Option<YearArchive>, PartError> {
    let path = archive_path(set, year);
    let known = known_version(state);
    let request = ArchiveRequest {
        path: &path,
        known: &known.validators,
        known_fingerprint: state.member_fingerprint.as_deref(),
        members,
    };
    let fetched = match fetch_archive(context, &request, judge_file).await {
        Err(FetchError::Failed { last_response: Some(last_response), .. })
            if last_response.status == 404 && may_be_unpublished(set, year, context.today) =>
        {
            return Err(PartError::NotPublishedYet);
        }
        fetched => fetched?,
    };

    Ok(match fetched {
        ArchiveFetch::NotModified => match known.problem {
            Some(problem) => return Err(PartError::StillRejected { problem }),
            None => None,
        },
        ArchiveFetch::SameMembers { validators } => {
            state.validators = validators;
            None
        }
        ArchiveFetch::Whole(response) if has_same_content(state, &response) => {
            state.validators = response.validators;
            None
        }
        ArchiveFetch::Whole(response) => Some(YearArchive { response, fingerprint: None }),
        ArchiveFetch::Pieces { response, fingerprint } => {
            Some(YearArchive { response, fingerprint: Some(fingerprint) })
        }
    })
}

/// The path of the archive of a year.
pub fn archive_path(set: CvmDataset, year: i32) -> String {
    format!("/dados/CIA_ABERTA/DOC/{}/DADOS/{}_cia_aberta_{year}.zip", set.id().to_uppercase(), set.id())
}

/// The members that say which filings there are.
fn index_members(set: CvmDataset, year: i32) -> Vec<String> {
    let mut members = vec![index_member_name(set, year)];
    if set == CvmDataset::Fca {
        members.push(fca_securities::archive_member_name(year));
    }
    members
}

fn index_member_name(set: CvmDataset, year: i32) -> String {
    match set {
        CvmDataset::Ipe => ipe::archive_member_name(year),
        _ => structured_filings::archive_member_name(set, year),
    }
}

/// The part of a rejected archive that may be kept. Archives of structured filings also contain tables with personal
/// data, so we keep only the index that we read.
fn redact_rejected_archive(archive: &[u8], set: CvmDataset, year: i32) -> Vec<u8> {
    if set == CvmDataset::Ipe {
        return archive.to_vec();
    }
    let index = CheckedZipArchive::open_pieces(archive)
        .and_then(|mut archive| archive.read_member(&structured_filings::archive_member_name(set, year)));
    index.unwrap_or_default()
}

pub fn parse_registry_file(bytes: &[u8]) -> Result<ParsedFile<Company>, RejectionError> {
    let parsed = company_registry::parse_companies(bytes)?;
    validate_bad_row_count(&parsed)?;

    let archived_body = compress_for_archive(&company_registry::redact_personal_data(bytes));
    Ok(ParsedFile { member_name: None, sha256: Sha256::digest(bytes).into(), archived_body, parsed })
}

pub fn parse_whole_archive(
    bytes: &[u8],
    set: CvmDataset,
    year: i32,
    today: NaiveDate,
) -> Result<ParsedFilingYear, RejectionError> {
    parse_year_archive(&mut CheckedZipArchive::open(bytes)?, set, year, today)
}

fn parse_year_archive(
    archive: &mut CheckedZipArchive<'_>,
    set: CvmDataset,
    year: i32,
    today: NaiveDate,
) -> Result<ParsedFilingYear, RejectionError> {
    let name = index_member_name(set, year);
    let table = archive.read_member(&name)?;
    let filings = parse_filings_file(&table, Some(name), set, today)?;

    let securities = if set == CvmDataset::Fca {
        let name = fca_securities::archive_member_name(year);
        let table = archive.read_member(&name)?;
        let parsed = fca_securities::parse_securities(&table)?;
        validate_bad_row_count(&parsed)?;
        let sha256 = Sha256::digest(&table).into();
        Some(ParsedFile { member_name: Some(name), sha256, archived_body: compress_for_archive(&table), parsed })
    } else {
        None
    };

    Ok(ParsedFilingYear { filings, securities })
}

pub fn parse_filings_file(
    table: &[u8],
    member_name: Option<String>,
    set: CvmDataset,
    today: NaiveDate,
) -> Result<ParsedFile<Filing>, RejectionError> {
    let parsed = if set == CvmDataset::Ipe {
        ipe::parse_filings(table, today)?
    } else {
        structured_filings::parse_filings(set, table, today)?
    };

    validate_bad_row_count(&parsed)?;
    Ok(ParsedFile {
        member_name,
        sha256: Sha256::digest(table).into(),
        archived_body: compress_for_archive(table),
        parsed,
    })
}

/// The IPE file of the current year appears some days into the year. Annual and quarterly statements of a year are
/// delivered after its first quarter or in the next year, so their newest two files may be missing.
fn may_be_unpublished(set: CvmDataset, year: i32, today: NaiveDate) -> bool {
    match set {
        CvmDataset::Ipe => year == today.year() && today.ordinal() <= 10,
        _ => year == today.year() || (year + 1 == today.year() && today.month() <= 6),
    }
}

/// A version of a file that the upstream need not send again.
struct KnownVersion {
    validators: FileValidators,
    /// Why it was rejected, if it was.
    problem: Option<String>,
}

/// The last good version, or a later one that was rejected. A later version of the service may read that one, though.
fn known_version(state: &SourcePartState) -> KnownVersion {
    if let Some(failure) = &state.failure
        && let Some(file) = failure.rejected_file.as_ref().filter(|file| file.rejected_by == VERSION)
    {
        return KnownVersion { validators: file.validators.clone(), problem: Some(failure.problem.clone()) };
    }
    KnownVersion { validators: state.validators.clone(), problem: None }
}

fn judge_file(response: &UpstreamResponse) -> ResponseVerdict {
    match response.status {
        200 => ResponseVerdict::Accept,
        404 => ResponseVerdict::GiveUp("is missing, which for this file means an outage (404)".to_owned()),
        429 | 500.. => ResponseVerdict::Retry(format!("answered with status {}", response.status)),
        status => ResponseVerdict::GiveUp(format!("answered with status {status}")),
    }
}

/// Whether a file is the last good one, although the upstream does not say so.
fn has_same_content(state: &SourcePartState, response: &UpstreamResponse) -> bool {
    state.sha256.as_deref() == Some(response.body_sha256().as_slice())
}

/// Decompressing and parsing a year takes a good part of a second, which would block an async worker thread.
pub(super) async fn parse_on_blocking_thread<T: Send + 'static>(
    response: UpstreamResponse,
    parse: impl FnOnce(&UpstreamResponse) -> Result<T, RejectionError> + Send + 'static,
) -> Result<(UpstreamResponse, Result<T, RejectionError>), PartError> {
    let task = tokio::task::spawn_blocking(move || {
        let parsed = parse(&response);
        (response, parsed)
    });
    Ok(task.await?)
}

/// Returns the parsed data if it is valid; otherwise quarantines the whole response.
pub(super) async fn validate_or_quarantine<T, Row>(
    context: &LoadContext<'_>,
    state: &SourcePartState,
    response: &UpstreamResponse,
    parsed: Result<T, RejectionError>,
    rows: impl Fn(&T) -> &ParsedRows<Row>,
    body_to_keep: impl Fn() -> Vec<u8>,
) -> Result<T, PartError> {
    let validated = parsed.and_then(|parsed| {
        validate_row_count(rows(&parsed).comparable_row_count(), state.rows)?;
        Ok(parsed)
    });

    match validated {
        Ok(parsed) => Ok(parsed),
        Err(error) => {
            let reason = error.to_string();
            context.quarantine_response(&state.part, response, &body_to_keep(), &reason).await?;
            Err(PartError::Rejected { reason, validators: response.validators.clone() })
        }
    }
}

fn build_fetch_record<T>(context: &LoadContext<'_>, response: &UpstreamResponse, file: &ParsedFile<T>) -> NewFetch {
    let address = match &file.member_name {
        Some(name) => format!("{}#{name}", response.address),
        None => response.address.clone(),
    };
    response.to_fetch_record(address, context.now, file.sha256, file.archived_body.clone())
}

/// `validators` if they changed.
pub(super) fn report_unchanged(
    context: &LoadContext<'_>,
    state: &mut SourcePartState,
    validators: Option<FileValidators>,
) -> PartReport {
    if let Some(validators) = validators {
        state.validators = validators;
    }
    let report = PartReport { unchanged: true, ..PartReport::default() };
    record_success(context, state, &report);
    report
}

pub(super) fn finish_part<T>(
    context: &LoadContext<'_>,
    state: &mut SourcePartState,
    validators: FileValidators,
    parsed: &ParsedRows<T>,
    mut report: PartReport,
) -> Result<PartReport, PartError> {
    report.rows = parsed.rows.len() as u64;
    report.add_problems(parsed);
    report.add_alerts(compare_blanks(&mut state.usual, &parsed.blanks));
    if report.vanished.rejected > 0 {
        let rejected = report.vanished.rejected;
        report.alerts.push(format!("{rejected} rows disappeared again; too many at once to accept"));
    }

    state.validators = validators;
    state.rows = report.rows;
    state.alerts.clone_from(&report.alerts);
    record_success(context, state, &report);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_an_outage_unless_it_may_be_unpublished() {
        let day = |text: &str| text.parse::<NaiveDate>().unwrap();
        assert!(may_be_unpublished(CvmDataset::Ipe, 2027, day("2027-01-02")));
        assert!(!may_be_unpublished(CvmDataset::Ipe, 2026, day("2026-08-23")));
        assert!(may_be_unpublished(CvmDataset::Dfp, 2026, day("2026-11-13")));
        assert!(may_be_unpublished(CvmDataset::Dfp, 2025, day("2026-02-01")));
        assert!(!may_be_unpublished(CvmDataset::Dfp, 2025, day("2026-11-13")));
    }
}
