//! The central bank's exchange-rate bulletins (PTAX), fetched one calendar year of a currency at a time.

use chrono::{Datelike, Days, NaiveDate};
use vintem_domain::{Currency, Dataset};
use vintem_store::load::{IncompleteFetch, NewBulletin};
use vintem_store::sources::SourcePartState;
use vintem_store::{Store, StoreError};

use super::{DateWindow, LoadContext, PartError, PartReport, RejectionError, record_success};
use crate::fetch::{ResponseVerdict, UpstreamResponse, decompress_from_archive};
use crate::parsers::{ParsedRows, ptax};
use crate::validation::{to_quarantined_rows, validate_bad_row_count, validate_bulletins, validate_row_count};

/// The first dollar bulletin. Other currencies begin later, and a year without bulletins is not an error.
const FIRST_BULLETIN_DATE: NaiveDate = NaiveDate::from_ymd_opt(1984, 11, 28).expect("a day of the calendar");
/// Days that are fetched again: today's bulletins appear one by one, and a close has been published twice.
const OVERLAP_DAYS: u64 = 10;

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

    let is_backfill = state.backfilled_at.is_none() && context.since.is_none();
    for year in from.year()..=context.today.year() {
        let first = NaiveDate::from_ymd_opt(year, 1, 1).unwrap_or(from);
        let last = NaiveDate::from_ymd_opt(year, 12, 31).unwrap_or(context.today);
        let window = (first.max(from), last.min(context.today));
        // An interrupted backfill resumes with the same years.
        if is_backfill && state.covered_until.is_some_and(|until| window.1 <= until) {
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

/// Fills in the parities of bulletins that were stored without them, from the archived responses, one fetch at a time.
/// It downloads nothing and reads each fetch once. Returns the number of completed bulletins.
pub async fn backfill_parities(store: &Store, today: NaiveDate) -> Result<u64, StoreError> {
    let mut completed = 0;
    while let Some(fetch) = store.next_incomplete_fetch().await? {
        let rows = parse_archived_bulletins(&fetch, today);
        let mut completion = store.begin_completion(&fetch).await?;
        completed += completion.complete_bulletins(&rows).await?;
        completion.commit().await?;
    }

    if completed > 0 {
        tracing::info!(completed, "read parities from archived bulletins");
    }
    Ok(completed)
}

/// No rows if the body can't be read: its bulletins stay without parities.
fn parse_archived_bulletins(fetch: &IncompleteFetch, today: NaiveDate) -> Vec<NewBulletin> {
    let body = match decompress_from_archive(&fetch.body) {
        Ok(body) => body,
        Err(error) => {
            tracing::warn!(currency = fetch.currency.code(), %error, "archived response is damaged");
            return Vec::new();
        }
    };

    match ptax::parse_bulletins(fetch.currency, &body, today) {
        Ok(parsed) => parsed.rows,
        Err(error) => {
            tracing::warn!(currency = fetch.currency.code(), %error, "archived response has no bulletins");
            Vec::new()
        }
    }
}

async fn load_window(
    context: &LoadContext<'_>,
    currency: Currency,
    window: DateWindow,
    report: &mut PartReport,
) -> Result<(), PartError> {
    let code = currency.code();
    let date_format = "%m-%d-%Y";
    // Built by hand: the API does not decode `+` as a space, and it returns no rows for other date formats.
    let path = format!(
        "/olinda/servico/PTAX/versao/v1/odata/CotacaoMoedaPeriodo(moeda=@moeda,dataInicial=@dataInicial,\
         dataFinalCotacao=@dataFinalCotacao)?@moeda='{code}'&@dataInicial='{}'&@dataFinalCotacao='{}'\
         &$format=json&$top=10000",
        window.0.format(date_format),
        window.1.format(date_format)
    );
    let judge_response = |response: &UpstreamResponse| match (
        response.status,
        ptax::parse_bulletins(currency, &response.body, context.today),
    ) {
        (200, Ok(_)) => ResponseVerdict::Accept,
        (200, Err(error)) => ResponseVerdict::Retry(format!("sent what is no bulletin: {error}")),
        (400, _) => ResponseVerdict::GiveUp("rejected the request as invalid".to_owned()),
        (status, _) => ResponseVerdict::Retry(format!("answered with status {status}")),
    };

    let response = context.fetch_or_quarantine(code, &path, judge_response).await?;
    report.bytes += response.body.len() as u64;
    let Ok(parsed) = ptax::parse_bulletins(currency, &response.body, context.today) else { return Ok(()) };

    let rows_before = context.store.count_bulletins(currency, window).await?;
    if let Err(error) = validate_rows(&parsed, rows_before) {
        let reason = error.to_string();
        context.quarantine_response(code, &response, &response.body, &reason).await?;
        return Err(PartError::Rejected(reason));
    }

    report.add_alerts(&parsed.alerts);
    report.rows += parsed.rows.len() as u64;
    if parsed.rows.is_empty() && parsed.bad_rows.is_empty() {
        return Ok(());
    }

    let mut load = context.begin_load(Dataset::Fx, &context.fetch_record(&response)).await?;
    load.append_bulletins(&parsed.rows).await?;
    load.quarantine_rows(context.source_id, code, &to_quarantined_rows(&parsed.bad_rows)).await?;

    report.add_load(load.commit().await?, parsed.bad_rows.len());
    Ok(())
}

fn validate_rows(parsed: &ParsedRows<NewBulletin>, rows_before: u64) -> Result<(), RejectionError> {
    validate_bad_row_count(parsed)?;
    validate_row_count(parsed.rows.len() as u64, rows_before)?;
    validate_bulletins(&parsed.rows)?;
    Ok(())
}
