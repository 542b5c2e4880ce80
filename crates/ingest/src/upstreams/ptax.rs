//! The central bank's exchange-rate bulletins (PTAX), a calendar year of a currency at a time.

use chrono::{Datelike, Days, NaiveDate};
use vintem_domain::{Currency, Dataset, Origin};
use vintem_store::load::Bulletin;
use vintem_store::sources::PartState;

use super::{Asked, PartError, PartReport, Unbelievable, note_success};
use crate::fetch::{Answer, FetchError, Validators, Worth, archived};
use crate::gate::{few_bad_rows, misfits, not_shrunk, plausible_rates};
use crate::read::{Read, ptax};

/// Of the dollar; the other currencies begin later, and a year without bulletins is nothing bad.
const FIRST_DAY: NaiveDate = NaiveDate::from_ymd_opt(1984, 11, 28).expect("a day of the calendar");
/// What is asked for again: today's bulletins come one by one, and a close was published twice before.
const OVERLAP_DAYS: u64 = 10;

type Window = (NaiveDate, NaiveDate);

pub async fn load(asked: &Asked<'_>, currency: Currency, state: &mut PartState) -> Result<PartReport, PartError> {
    let mut report = PartReport { unchanged: true, ..PartReport::default() };
    let from = match (asked.since, state.covered_until) {
        (Some(since), _) => since.max(FIRST_DAY),
        (None, Some(until)) if state.filled_at.is_some() => until - Days::new(OVERLAP_DAYS),
        _ => FIRST_DAY,
    };
    let is_first = state.filled_at.is_none() && asked.since.is_none();
    for year in from.year()..=asked.today.year() {
        let (first, last) = (NaiveDate::from_ymd_opt(year, 1, 1), NaiveDate::from_ymd_opt(year, 12, 31));
        let window = (first.unwrap_or(from).max(from), last.unwrap_or(asked.today).min(asked.today));
        // A first filling that was cut off goes on with the same years.
        if is_first && state.covered_until.is_some_and(|until| window.1 <= until) {
            continue;
        }
        load_window(asked, currency, window, &mut report).await?;
        if asked.since.is_none() {
            state.covered_until = state.covered_until.max(Some(window.1));
            asked.store.save_part(state).await?;
        }
    }
    if asked.since.is_none() {
        state.filled_at = state.filled_at.or(Some(asked.now));
    }
    state.rows = asked.store.count_bulletins(currency, (FIRST_DAY, asked.today)).await?;
    note_success(state, asked.now, &report);
    Ok(report)
}

async fn load_window(
    asked: &Asked<'_>,
    currency: Currency,
    window: Window,
    report: &mut PartReport,
) -> Result<(), PartError> {
    let (code, us_date) = (currency.code(), "%m-%d-%Y");
    // Written by hand: a plus for a space is not understood there, and other spellings of a date are empty answers.
    let path = format!(
        "/olinda/servico/PTAX/versao/v1/odata/CotacaoMoedaPeriodo(moeda=@moeda,dataInicial=@dataInicial,\
         dataFinalCotacao=@dataFinalCotacao)?@moeda='{code}'&@dataInicial='{}'&@dataFinalCotacao='{}'\
         &$format=json&$top=10000",
        window.0.format(us_date),
        window.1.format(us_date)
    );
    let worth = |answer: &Answer| match (answer.status, ptax::read(currency, &answer.body, asked.today)) {
        (200, Ok(_)) => Worth::Taken,
        (200, Err(refused)) => Worth::Retry(format!("sent what is no bulletin: {refused}")),
        (400, _) => Worth::GiveUp("refused the request as wrong".to_owned()),
        (status, _) => Worth::Retry(format!("answered with status {status}")),
    };
    let answer = match asked.host.get(&path, &Validators::default(), worth).await {
        Ok(answer) => answer,
        Err(FetchError::Failed { address, problem, last }) => {
            if let Some(last) = last.as_ref().filter(|last| last.status == 200) {
                asked.set_aside_whole(code, last, &last.body, &problem).await?;
            }
            return Err(FetchError::Failed { address, problem, last }.into());
        }
        Err(error) => return Err(error.into()),
    };
    report.bytes += answer.body.len() as u64;
    let Ok(read) = ptax::read(currency, &answer.body, asked.today) else { return Ok(()) };
    let before = asked.store.count_bulletins(currency, window).await?;
    if let Err(disbelief) = believe(&read, before) {
        let reason = disbelief.to_string();
        asked.set_aside_whole(code, &answer, &answer.body, &reason).await?;
        return Err(PartError::Refused(reason));
    }
    report.note_alerts(&read.alerts);
    report.rows += read.rows.len() as u64;
    if read.rows.is_empty() && read.bad.is_empty() {
        return Ok(());
    }
    let fetch = answer.provenance(answer.address.clone(), asked.now, answer.sha256(), archived(&answer.body));
    let mut load = asked.store.begin_load(Dataset::Fx, Origin::Real, &fetch).await?;
    if let Some(since) = asked.announce_since() {
        load.announce_since(since);
    }
    load.append_bulletins(&read.rows).await?;
    load.set_aside(asked.source, code, &misfits(&read.bad)).await?;
    let appended = load.commit().await?;
    report.appended += appended;
    report.set_aside += read.bad.len() as u64;
    report.unchanged &= appended == 0;
    Ok(())
}

fn believe(read: &Read<Bulletin>, before: u64) -> Result<(), Unbelievable> {
    few_bad_rows(read)?;
    not_shrunk(read.rows.len() as u64, before)?;
    plausible_rates(&read.rows)?;
    Ok(())
}
