//! The regulator's files: the registry of companies, and the yearly archives of filings.

use chrono::{Datelike, NaiveDate};
use sha2::{Digest, Sha256};
use vintem_domain::{Company, CvmDataset, DataOrigin, Dataset, Filing};
use vintem_store::load::{ListedSecurity, MissingRowCounts, NewFetch, RawBody};
use vintem_store::sources::SourcePartState;

use super::{LoadContext, PartError, PartReport, RejectionError, record_success};
use crate::fetch::{CacheValidators, FetchError, ResponseVerdict, UpstreamResponse, compress_for_archive};
use crate::parsers::zip::CheckedZipArchive;
use crate::parsers::{ParsedRows, company_registry, fca_securities, ipe, structured_filings};
use crate::validation::{to_quarantined_rows, validate_bad_row_count, validate_row_count};

const REGISTRY_PATH: &str = "/dados/CIA_ABERTA/CAD/DADOS/cad_cia_aberta.csv";

/// What is read of a file: rows that are loaded at once, with what is kept of the bytes they came in.
pub struct ParsedFile<T> {
    /// Its name within an archive.
    pub member_name: Option<String>,
    pub sha256: [u8; 32],
    pub archived_body: RawBody,
    pub parsed: ParsedRows<T>,
}

/// The members of a year's archive that we read.
pub struct ParsedFilingYear {
    pub filings: ParsedFile<Filing>,
    pub securities: Option<ParsedFile<ListedSecurity>>,
}

pub async fn load_registry(context: &LoadContext<'_>, state: &mut SourcePartState) -> Result<PartReport, PartError> {
    let Some(answer) = fetch_if_changed(context, REGISTRY_PATH, state, &|_| false).await? else {
        return Ok(report_unchanged(context, state));
    };
    let (answer, member) = parse_on_blocking_thread(answer, |answer| parse_registry_file(&answer.body)).await?;
    // The registry names people: what is kept of it, even of one that is refused, does not.
    let redacted_body = || company_registry::redact_personal_data(&answer.body);
    let member =
        validate_or_quarantine(context, state, &answer, member, |member| &member.parsed, redacted_body).await?;
    let mut report = PartReport { bytes: answer.body.len() as u64, ..PartReport::default() };
    let fetch = build_fetch_record(context, &answer, &member);
    let mut load = context.store.begin_load(Dataset::Companies, DataOrigin::Real, &fetch).await?;
    if let Some(since) = context.announce_since() {
        load.emit_events_since(since);
    }
    report.vanished = load.append_full_registry(&member.parsed.rows).await?;
    load.quarantine_rows(context.source_id, &state.part, &to_quarantined_rows(&member.parsed.bad_rows)).await?;
    report.appended = load.commit().await?;
    finish_part(context, state, &answer, &member.parsed, report)
}

pub async fn load_filing_year(
    context: &LoadContext<'_>,
    set: CvmDataset,
    year: i32,
    state: &mut SourcePartState,
) -> Result<PartReport, PartError> {
    let path = format!("/dados/CIA_ABERTA/DOC/{}/DADOS/{}_cia_aberta_{year}.zip", set.id().to_uppercase(), set.id());
    let may_be_unpublished = |today: NaiveDate| may_be_unpublished(set, year, today);
    let Some(answer) = fetch_if_changed(context, &path, state, &may_be_unpublished).await? else {
        return Ok(report_unchanged(context, state));
    };
    let today = context.today;
    let (answer, read) =
        parse_on_blocking_thread(answer, move |answer| parse_year_archive(&answer.body, set, year, today)).await?;
    let ParsedFilingYear { filings, securities } = validate_or_quarantine(
        context,
        state,
        &answer,
        read,
        |year| &year.filings.parsed,
        || redact_rejected_archive(&answer.body, set, year),
    )
    .await?;
    let mut report = PartReport { bytes: answer.body.len() as u64, ..PartReport::default() };
    let mut load = context
        .store
        .begin_load(Dataset::Filings, DataOrigin::Real, &build_fetch_record(context, &answer, &filings))
        .await?;
    if let Some(since) = context.announce_since() {
        load.emit_events_since(since);
    }
    report.vanished = load.append_full_filings(&filings.parsed.rows, set, year).await?;
    load.quarantine_rows(context.source_id, &state.part, &to_quarantined_rows(&filings.parsed.bad_rows)).await?;
    report.appended = load.commit().await?;
    if let Some(securities) = securities {
        let fetch = build_fetch_record(context, &answer, &securities);
        let mut load = context.store.begin_load(Dataset::Companies, DataOrigin::Real, &fetch).await?;
        load.append_securities(&securities.parsed.rows).await?;
        load.quarantine_rows(context.source_id, &state.part, &to_quarantined_rows(&securities.parsed.bad_rows)).await?;
        report.appended += load.commit().await?;
        report.quarantined += securities.parsed.bad_rows.len() as u64;
        report.add_alerts(&securities.parsed.alerts);
    }
    finish_part(context, state, &answer, &filings.parsed, report)
}

/// What may be kept of an archive that is refused. Those of structured filings also hold tables that name people: of
/// them no more than the one that we read.
fn redact_rejected_archive(archive: &[u8], set: CvmDataset, year: i32) -> Vec<u8> {
    if set == CvmDataset::Ipe {
        return archive.to_vec();
    }
    let index = CheckedZipArchive::open(archive)
        .and_then(|mut archive| archive.read_member(&structured_filings::archive_member_name(set, year)));
    index.unwrap_or_default()
}

pub fn parse_registry_file(bytes: &[u8]) -> Result<ParsedFile<Company>, RejectionError> {
    let parsed = company_registry::parse_companies(bytes)?;
    validate_bad_row_count(&parsed)?;
    let archived_body = compress_for_archive(&company_registry::redact_personal_data(bytes));
    Ok(ParsedFile { member_name: None, sha256: Sha256::digest(bytes).into(), archived_body, parsed })
}

pub fn parse_year_archive(
    bytes: &[u8],
    set: CvmDataset,
    year: i32,
    today: NaiveDate,
) -> Result<ParsedFilingYear, RejectionError> {
    let mut archive = CheckedZipArchive::open(bytes)?;
    let name = if set == CvmDataset::Ipe {
        ipe::archive_member_name(year)
    } else {
        structured_filings::archive_member_name(set, year)
    };
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
    name: Option<String>,
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
        member_name: name,
        sha256: Sha256::digest(table).into(),
        archived_body: compress_for_archive(table),
        parsed,
    })
}

/// The file of the current year comes some days into it. Annual and quarterly statements of a year are delivered from
/// its first quarter's end on, or in the next year: of those the newest two files need not be there.
fn may_be_unpublished(set: CvmDataset, year: i32, today: NaiveDate) -> bool {
    match set {
        CvmDataset::Ipe => year == today.year() && today.ordinal() <= 10,
        _ => year == today.year() || (year + 1 == today.year() && today.month() <= 6),
    }
}

/// A file that is not the one that we have; `None` where it is.
async fn fetch_if_changed(
    context: &LoadContext<'_>,
    path: &str,
    state: &mut SourcePartState,
    may_be_unpublished: &(dyn Fn(NaiveDate) -> bool + Sync),
) -> Result<Option<UpstreamResponse>, PartError> {
    let validators = CacheValidators { etag: state.etag.clone(), last_modified: state.last_modified.clone() };
    let judge_response = |answer: &UpstreamResponse| match answer.status {
        200 => ResponseVerdict::Accept,
        404 => ResponseVerdict::GiveUp("is not there, which for this file is an outage (404)".to_owned()),
        429 | 500.. => ResponseVerdict::Retry(format!("answered with status {}", answer.status)),
        status => ResponseVerdict::GiveUp(format!("answered with status {status}")),
    };
    let answer = match context.client.get_with_retries(path, &validators, judge_response).await {
        Ok(answer) => answer,
        Err(FetchError::Failed { last_response: Some(last), .. })
            if last.status == 404 && may_be_unpublished(context.today) =>
        {
            return Err(PartError::NotPublishedYet);
        }
        Err(error) => return Err(error.into()),
    };
    let is_unchanged = answer.status == 304 || state.sha256.as_deref() == Some(answer.body_sha256().as_slice());
    if is_unchanged && answer.status != 304 {
        (state.etag, state.last_modified) = (answer.validators.etag, answer.validators.last_modified);
        return Ok(None);
    }
    Ok((!is_unchanged).then_some(answer))
}

/// Inflating and reading a year takes a good part of a second: not on a thread that others wait for.
async fn parse_on_blocking_thread<T: Send + 'static>(
    answer: UpstreamResponse,
    parse: impl FnOnce(&UpstreamResponse) -> Result<T, RejectionError> + Send + 'static,
) -> Result<(UpstreamResponse, Result<T, RejectionError>), PartError> {
    let parsed = tokio::task::spawn_blocking(move || {
        let parsed = parse(&answer);
        (answer, parsed)
    });
    Ok(parsed.await?)
}

/// What passes the gate; what does not is set aside whole.
async fn validate_or_quarantine<T, Row>(
    context: &LoadContext<'_>,
    state: &SourcePartState,
    answer: &UpstreamResponse,
    parsed: Result<T, RejectionError>,
    rows: impl Fn(&T) -> &ParsedRows<Row>,
    body_to_keep: impl Fn() -> Vec<u8>,
) -> Result<T, PartError> {
    let validated = parsed.and_then(|read| {
        validate_row_count(rows(&read).rows.len() as u64, state.rows)?;
        Ok(read)
    });
    match validated {
        Ok(read) => Ok(read),
        Err(error) => {
            let reason = error.to_string();
            context.quarantine_response(&state.part, answer, &body_to_keep(), &reason).await?;
            Err(PartError::Rejected(reason))
        }
    }
}

fn build_fetch_record<T>(context: &LoadContext<'_>, answer: &UpstreamResponse, member: &ParsedFile<T>) -> NewFetch {
    let address = match &member.member_name {
        Some(name) => format!("{}#{name}", answer.address),
        None => answer.address.clone(),
    };
    answer.to_fetch_record(address, context.now, member.sha256, member.archived_body.clone())
}

fn report_unchanged(context: &LoadContext<'_>, state: &mut SourcePartState) -> PartReport {
    let report = PartReport { unchanged: true, ..PartReport::default() };
    record_success(state, context.now, &report);
    report
}

fn finish_part<T>(
    context: &LoadContext<'_>,
    state: &mut SourcePartState,
    answer: &UpstreamResponse,
    parsed: &ParsedRows<T>,
    mut report: PartReport,
) -> Result<PartReport, PartError> {
    report.rows = parsed.rows.len() as u64;
    report.quarantined += parsed.bad_rows.len() as u64;
    report.add_alerts(&parsed.alerts);
    if report.vanished.rejected > 0 {
        let MissingRowCounts { rejected: disbelieved, .. } = report.vanished;
        report.alerts.push(format!("{disbelieved} rows are gone for the second time, too many at once to be believed"));
    }
    (state.etag, state.last_modified) = (answer.validators.etag.clone(), answer.validators.last_modified.clone());
    state.sha256 = Some(answer.body_sha256().to_vec());
    state.rows = report.rows;
    state.backfilled_at = state.backfilled_at.or(Some(context.now));
    record_success(state, context.now, &report);
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
