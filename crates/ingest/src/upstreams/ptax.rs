//! The central bank's exchange-rate bulletins (PTAX), a calendar year of a currency at a time.

use chrono::{Datelike, Days, NaiveDate};
use vintem_domain::{Currency, DataOrigin, Dataset};
use vintem_store::load::NewBulletin;
use vintem_store::sources::SourcePartState;

use super::{LoadContext, PartError, PartReport, RejectionError, record_success};
use crate::fetch::{CacheValidators, FetchError, ResponseVerdict, UpstreamResponse, compress_for_archive};
use crate::parsers::{ParsedRows, ptax};
use crate::validation::{to_quarantined_rows, validate_bad_row_count, validate_bulletins, validate_row_count};

/// Of the dollar; the other currencies begin later, and a year without bulletins is nothing bad.
const FIRST_BULLETIN_DATE: NaiveDate = NaiveDate::from_ymd_opt(1984, 11, 28).expect("a day of the calendar");
/// What is asked for again: today's bulletins come one by one, and a close was published twice before.
const OVERLAP_DAYS: u64 = 10;

type PtaxWindow = (NaiveDate, NaiveDate);

pub async fn load_currency(
    context: &LoadContext<'_>,
    currency: Currency,
    state: &mut SourcePartState,
) -> Result<PartReport, PartError> {
    let mut report = PartReport { unchanged: true, ..PartReport::default() };
    let from = match (context.since, state.covered_until) {
        (Some(since), _) => since.max(FIRST_BULLETIN_DATE),
        (None, Some(until)) if state.backfilled_at.is_some() => until - Days::new(OVERLAP_DAYS),
        _ => FIRST_BULLETIN_DATE,
    };
    let is_first = state.backfilled_at.is_none() && context.since.is_none();
    for year in from.year()..=context.today.year() {
        let (first, last) = (NaiveDate::from_ymd_opt(year, 1, 1), NaiveDate::from_ymd_opt(year, 12, 31));
        let window = (first.unwrap_or(from).max(from), last.unwrap_or(context.today).min(context.today));
        // A first filling that was cut off goes on with the same years.
        if is_first && state.covered_until.is_some_and(|until| window.1 <= until) {
            continue;
        }
        load_window(context, currency, window, &mut report).await?;
        if context.since.is_none() {
            state.covered_until = state.covered_until.max(Some(window.1));
            context.store.save_part_state(state).await?;
        }
    }
    if context.since.is_none() {
        state.backfilled_at = state.backfilled_at.or(Some(context.now));
    }
    state.rows = context.store.count_bulletins(currency, (FIRST_BULLETIN_DATE, context.today)).await?;
    record_success(state, context.now, &report);
    Ok(report)
}

async fn load_window(
    context: &LoadContext<'_>,
    currency: Currency,
    window: PtaxWindow,
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
    let judge_response =
        |answer: &UpstreamResponse| match (answer.status, ptax::parse_bulletins(currency, &answer.body, context.today))
        {
            (200, Ok(_)) => ResponseVerdict::Accept,
            (200, Err(refused)) => ResponseVerdict::Retry(format!("sent what is no bulletin: {refused}")),
            (400, _) => ResponseVerdict::GiveUp("refused the request as wrong".to_owned()),
            (status, _) => ResponseVerdict::Retry(format!("answered with status {status}")),
        };
    let answer = match context.client.get_with_retries(&path, &CacheValidators::default(), judge_response).await {
        Ok(answer) => answer,
        Err(FetchError::Failed { address, problem, last_response: last }) => {
            if let Some(last) = last.as_ref().filter(|last| last.status == 200) {
                context.quarantine_response(code, last, &last.body, &problem).await?;
            }
            return Err(FetchError::Failed { address, problem, last_response: last }.into());
        }
        Err(error) => return Err(error.into()),
    };
    report.bytes += answer.body.len() as u64;
    let Ok(parsed) = ptax::parse_bulletins(currency, &answer.body, context.today) else { return Ok(()) };
    let before = context.store.count_bulletins(currency, window).await?;
    if let Err(error) = validate_rows(&parsed, before) {
        let reason = error.to_string();
        context.quarantine_response(code, &answer, &answer.body, &reason).await?;
        return Err(PartError::Rejected(reason));
    }
    report.add_alerts(&parsed.alerts);
    report.rows += parsed.rows.len() as u64;
    if parsed.rows.is_empty() && parsed.bad_rows.is_empty() {
        return Ok(());
    }
    let fetch = answer.to_fetch_record(
        answer.address.clone(),
        context.now,
        answer.body_sha256(),
        compress_for_archive(&answer.body),
    );
    let mut load = context.store.begin_load(Dataset::Fx, DataOrigin::Real, &fetch).await?;
    if let Some(since) = context.announce_since() {
        load.emit_events_since(since);
    }
    load.append_bulletins(&parsed.rows).await?;
    load.quarantine_rows(context.source_id, code, &to_quarantined_rows(&parsed.bad_rows)).await?;
    let appended = load.commit().await?;
    report.appended += appended;
    report.quarantined += parsed.bad_rows.len() as u64;
    report.unchanged &= appended == 0;
    Ok(())
}

fn validate_rows(parsed: &ParsedRows<NewBulletin>, before: u64) -> Result<(), RejectionError> {
    validate_bad_row_count(parsed)?;
    validate_row_count(parsed.rows.len() as u64, before)?;
    validate_bulletins(&parsed.rows)?;
    Ok(())
}
