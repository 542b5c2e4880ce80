//! The regulator's files: the registry of companies, and the yearly archives of filings.

use chrono::{Datelike, NaiveDate};
use sha2::{Digest, Sha256};
use vintem_domain::{Company, Dataset, Filing, FilingSet, Origin};
use vintem_store::load::{Fetch, RawBody, Security, Vanished};
use vintem_store::sources::PartState;

use super::{Asked, PartError, PartReport, Unbelievable, note_success};
use crate::fetch::{Answer, FetchError, Validators, Worth, archived};
use crate::gate::{few_bad_rows, misfits, not_shrunk};
use crate::read::zip::Archive;
use crate::read::{Read, fca, index, ipe, registry};

const REGISTRY: &str = "/dados/CIA_ABERTA/CAD/DADOS/cad_cia_aberta.csv";

/// What is read of a file: rows that are loaded at once, with what is kept of the bytes they came in.
pub struct Member<T> {
    /// Its name within an archive.
    pub name: Option<String>,
    pub sha256: [u8; 32],
    pub kept: RawBody,
    pub read: Read<T>,
}

/// The members of a year's archive that we read.
pub struct Year {
    pub filings: Member<Filing>,
    pub securities: Option<Member<Security>>,
}

pub async fn load_registry(asked: &Asked<'_>, state: &mut PartState) -> Result<PartReport, PartError> {
    let Some(answer) = news(asked, REGISTRY, state, &|_| false).await? else { return Ok(unchanged(asked, state)) };
    let (answer, member) = aside(answer, |answer| read_registry(&answer.body)).await?;
    // The registry names people: what is kept of it, even of one that is refused, does not.
    let kept = || registry::without_persons(&answer.body);
    let member = believed(asked, state, &answer, member, |member| &member.read, kept).await?;
    let mut report = PartReport { bytes: answer.body.len() as u64, ..PartReport::default() };
    let fetch = provenance(asked, &answer, &member);
    let mut load = asked.store.begin_load(Dataset::Companies, Origin::Real, &fetch).await?;
    if let Some(since) = asked.announce_since() {
        load.announce_since(since);
    }
    report.vanished = load.append_whole_registry(&member.read.rows).await?;
    load.set_aside(asked.source, &state.part, &misfits(&member.read.bad)).await?;
    report.appended = load.commit().await?;
    finish(asked, state, &answer, &member.read, report)
}

pub async fn load_year(
    asked: &Asked<'_>,
    set: FilingSet,
    year: i32,
    state: &mut PartState,
) -> Result<PartReport, PartError> {
    let path = format!("/dados/CIA_ABERTA/DOC/{}/DADOS/{}_cia_aberta_{year}.zip", set.id().to_uppercase(), set.id());
    let may_be_missing = |today: NaiveDate| may_be_missing(set, year, today);
    let Some(answer) = news(asked, &path, state, &may_be_missing).await? else { return Ok(unchanged(asked, state)) };
    let today = asked.today;
    let (answer, read) = aside(answer, move |answer| read_year(&answer.body, set, year, today)).await?;
    let Year { filings, securities } =
        believed(asked, state, &answer, read, |year| &year.filings.read, || harmless(&answer.body, set, year)).await?;
    let mut report = PartReport { bytes: answer.body.len() as u64, ..PartReport::default() };
    let mut load =
        asked.store.begin_load(Dataset::Filings, Origin::Real, &provenance(asked, &answer, &filings)).await?;
    if let Some(since) = asked.announce_since() {
        load.announce_since(since);
    }
    report.vanished = load.append_whole_filings(&filings.read.rows, set, year).await?;
    load.set_aside(asked.source, &state.part, &misfits(&filings.read.bad)).await?;
    report.appended = load.commit().await?;
    if let Some(securities) = securities {
        let fetch = provenance(asked, &answer, &securities);
        let mut load = asked.store.begin_load(Dataset::Companies, Origin::Real, &fetch).await?;
        load.append_securities(&securities.read.rows).await?;
        load.set_aside(asked.source, &state.part, &misfits(&securities.read.bad)).await?;
        report.appended += load.commit().await?;
        report.set_aside += securities.read.bad.len() as u64;
        report.note_alerts(&securities.read.alerts);
    }
    finish(asked, state, &answer, &filings.read, report)
}

/// What may be kept of an archive that is refused. Those of structured filings also hold tables that name people: of
/// them no more than the one that we read.
fn harmless(archive: &[u8], set: FilingSet, year: i32) -> Vec<u8> {
    if set == FilingSet::Ipe {
        return archive.to_vec();
    }
    let index = Archive::open(archive).and_then(|mut archive| archive.member(&index::member_name(set, year)));
    index.unwrap_or_default()
}

pub fn read_registry(bytes: &[u8]) -> Result<Member<Company>, Unbelievable> {
    let read = registry::read(bytes)?;
    few_bad_rows(&read)?;
    let kept = archived(&registry::without_persons(bytes));
    Ok(Member { name: None, sha256: Sha256::digest(bytes).into(), kept, read })
}

pub fn read_year(bytes: &[u8], set: FilingSet, year: i32, today: NaiveDate) -> Result<Year, Unbelievable> {
    let mut archive = Archive::open(bytes)?;
    let name = if set == FilingSet::Ipe { ipe::member_name(year) } else { index::member_name(set, year) };
    let table = archive.member(&name)?;
    let filings = read_filings(&table, Some(name), set, today)?;
    let securities = if set == FilingSet::Fca {
        let name = fca::member_name(year);
        let table = archive.member(&name)?;
        let read = fca::read(&table)?;
        few_bad_rows(&read)?;
        let sha256 = Sha256::digest(&table).into();
        Some(Member { name: Some(name), sha256, kept: archived(&table), read })
    } else {
        None
    };
    Ok(Year { filings, securities })
}

pub fn read_filings(
    table: &[u8],
    name: Option<String>,
    set: FilingSet,
    today: NaiveDate,
) -> Result<Member<Filing>, Unbelievable> {
    let read = if set == FilingSet::Ipe { ipe::read(table, today)? } else { index::read(set, table, today)? };
    few_bad_rows(&read)?;
    Ok(Member { name, sha256: Sha256::digest(table).into(), kept: archived(table), read })
}

/// The file of the current year comes some days into it. Annual and quarterly statements of a year are delivered from
/// its first quarter's end on, or in the next year: of those the newest two files need not be there.
fn may_be_missing(set: FilingSet, year: i32, today: NaiveDate) -> bool {
    match set {
        FilingSet::Ipe => year == today.year() && today.ordinal() <= 10,
        _ => year == today.year() || (year + 1 == today.year() && today.month() <= 6),
    }
}

/// A file that is not the one that we have; `None` where it is.
async fn news(
    asked: &Asked<'_>,
    path: &str,
    state: &mut PartState,
    may_be_missing: &(dyn Fn(NaiveDate) -> bool + Sync),
) -> Result<Option<Answer>, PartError> {
    let validators = Validators { etag: state.etag.clone(), last_modified: state.last_modified.clone() };
    let worth = |answer: &Answer| match answer.status {
        200 => Worth::Taken,
        404 => Worth::GiveUp("is not there, which for this file is an outage (404)".to_owned()),
        429 | 500.. => Worth::Retry(format!("answered with status {}", answer.status)),
        status => Worth::GiveUp(format!("answered with status {status}")),
    };
    let answer = match asked.host.get(path, &validators, worth).await {
        Ok(answer) => answer,
        Err(FetchError::Failed { last: Some(last), .. }) if last.status == 404 && may_be_missing(asked.today) => {
            return Err(PartError::NotThereYet);
        }
        Err(error) => return Err(error.into()),
    };
    let is_held = answer.status == 304 || state.sha256.as_deref() == Some(answer.sha256().as_slice());
    if is_held && answer.status != 304 {
        (state.etag, state.last_modified) = (answer.validators.etag, answer.validators.last_modified);
        return Ok(None);
    }
    Ok((!is_held).then_some(answer))
}

/// Inflating and reading a year takes a good part of a second: not on a thread that others wait for.
async fn aside<T: Send + 'static>(
    answer: Answer,
    read: impl FnOnce(&Answer) -> Result<T, Unbelievable> + Send + 'static,
) -> Result<(Answer, Result<T, Unbelievable>), PartError> {
    let read = tokio::task::spawn_blocking(move || {
        let read = read(&answer);
        (answer, read)
    });
    Ok(read.await?)
}

/// What passes the gate; what does not is set aside whole.
async fn believed<T, Row>(
    asked: &Asked<'_>,
    state: &PartState,
    answer: &Answer,
    read: Result<T, Unbelievable>,
    rows: impl Fn(&T) -> &Read<Row>,
    kept: impl Fn() -> Vec<u8>,
) -> Result<T, PartError> {
    let judged = read.and_then(|read| {
        not_shrunk(rows(&read).rows.len() as u64, state.rows)?;
        Ok(read)
    });
    match judged {
        Ok(read) => Ok(read),
        Err(disbelief) => {
            let reason = disbelief.to_string();
            asked.set_aside_whole(&state.part, answer, &kept(), &reason).await?;
            Err(PartError::Refused(reason))
        }
    }
}

fn provenance<T>(asked: &Asked<'_>, answer: &Answer, member: &Member<T>) -> Fetch {
    let address = match &member.name {
        Some(name) => format!("{}#{name}", answer.address),
        None => answer.address.clone(),
    };
    answer.provenance(address, asked.now, member.sha256, member.kept.clone())
}

fn unchanged(asked: &Asked<'_>, state: &mut PartState) -> PartReport {
    let report = PartReport { unchanged: true, ..PartReport::default() };
    note_success(state, asked.now, &report);
    report
}

fn finish<T>(
    asked: &Asked<'_>,
    state: &mut PartState,
    answer: &Answer,
    read: &Read<T>,
    mut report: PartReport,
) -> Result<PartReport, PartError> {
    report.rows = read.rows.len() as u64;
    report.set_aside += read.bad.len() as u64;
    report.note_alerts(&read.alerts);
    if report.vanished.disbelieved > 0 {
        let Vanished { disbelieved, .. } = report.vanished;
        report.alerts.push(format!("{disbelieved} rows are gone for the second time, too many at once to be believed"));
    }
    (state.etag, state.last_modified) = (answer.validators.etag.clone(), answer.validators.last_modified.clone());
    state.sha256 = Some(answer.sha256().to_vec());
    state.rows = report.rows;
    state.filled_at = state.filled_at.or(Some(asked.now));
    note_success(state, asked.now, &report);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_an_outage_but_where_it_is_early() {
        let day = |text: &str| text.parse::<NaiveDate>().unwrap();
        assert!(may_be_missing(FilingSet::Ipe, 2027, day("2027-01-02")));
        assert!(!may_be_missing(FilingSet::Ipe, 2026, day("2026-08-23")));
        assert!(may_be_missing(FilingSet::Dfp, 2026, day("2026-11-13")));
        assert!(may_be_missing(FilingSet::Dfp, 2025, day("2026-02-01")));
        assert!(!may_be_missing(FilingSet::Dfp, 2025, day("2026-11-13")));
    }
}
