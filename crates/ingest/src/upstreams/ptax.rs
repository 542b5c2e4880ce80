//! The central bank's exchange-rate bulletins (PTAX), fetched one calendar year of a currency at a time.

use std::collections::BTreeMap;

use chrono::NaiveDate;
use vintem_domain::{Currency, Dataset};
use vintem_store::load::{BulletinKind, IncompleteFetch, NewBulletin};
use vintem_store::sources::{FileValidators, SourcePartState};
use vintem_store::{Store, StoreError};

use super::{DateWindow, LoadContext, PartError, PartReport, RejectionError, record_success};
use crate::drift::{DailyRowNorm, compare_days};
use crate::fetch::{FetchRequest, ResponseVerdict, UpstreamResponse, decompress_from_archive};
use crate::parsers::{ParsedRows, ptax, ptax_currencies};
use crate::source::{FIRST_BULLETIN_DATE, SourcePart};
use crate::validation::{to_quarantined_rows, validate_bad_row_count, validate_bulletins, validate_row_count};

/// Fetches a year of a currency, or the days that may be new in it.
pub async fn load_year(
    context: &LoadContext<'_>,
    currency: Currency,
    part: SourcePart,
    state: &mut SourcePartState,
) -> Result<PartReport, PartError> {
    let mut report = PartReport { unchanged: true, ..PartReport::default() };
    let (from, to) = context.window_to_fetch(part, state);
    let newest = load_window(context, currency, (from.max(FIRST_BULLETIN_DATE), to), &mut report).await?;
    if currency == Currency::ALL[0] && part.is_current(context.today) && state.backfilled_at.is_some() {
        check_currency_list(context, &mut report).await;
    }

    state.newest_date = state.newest_date.max(newest);
    state.rows = state.rows.max(report.rows);
    state.alerts.clone_from(&report.alerts);
    record_success(context, state, &report);
    Ok(report)
}

/// Notices when the central bank begins to quote another currency. Rates do not depend on it, so a failure changes nothing.
async fn check_currency_list(context: &LoadContext<'_>, report: &mut PartReport) {
    let path = "/olinda/servico/PTAX/versao/v1/odata/Moedas?$format=json";
    let judge_response = |response: &UpstreamResponse| match ptax_currencies::compare_currency_list(&response.body) {
        Ok(_) if response.status == 200 => ResponseVerdict::Accept,
        _ => ResponseVerdict::GiveUp("sent what is no list of currencies".to_owned()),
    };
    match context.get(FetchRequest { path, ..FetchRequest::default() }, judge_response).await {
        Ok(response) => {
            report.bytes += response.body.len() as u64;
            report.add_alerts(ptax_currencies::compare_currency_list(&response.body).unwrap_or_default());
        }
        Err(error) => tracing::debug!(%error, "no list of currencies"),
    }
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

/// Returns the newest day with a closing rate.
async fn load_window(
    context: &LoadContext<'_>,
    currency: Currency,
    window: DateWindow,
    report: &mut PartReport,
) -> Result<Option<NaiveDate>, PartError> {
    let code = currency.code();
    let path = bulletin_path(currency, window);
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
    let Ok(parsed) = ptax::parse_bulletins(currency, &response.body, context.today) else { return Ok(None) };

    let rows_before = context.store.count_bulletins(currency, window).await?;
    if let Err(error) = validate_rows(&parsed, rows_before) {
        let reason = error.to_string();
        context.quarantine_response(code, &response, &response.body, &reason).await?;
        return Err(PartError::Rejected { reason, validators: FileValidators::default() });
    }
    let closings = parsed.rows.iter().filter(|row| row.kind == BulletinKind::Closing);
    let newest = closings.map(|row| row.date).max();

    if window.1 == context.today {
        report.add_alerts(compare_days(DailyRowNorm::BULLETINS, &count_by_day(&parsed.rows), context.today));
    }
    if parsed.rows.is_empty() && parsed.bad_rows.is_empty() {
        report.add_alerts(&parsed.alerts);
        return Ok(newest);
    }

    let mut load = context.begin_load(Dataset::Fx, &context.fetch_record(&response)).await?;
    load.append_bulletins(&parsed.rows).await?;
    load.quarantine_rows(context.source_id, code, &to_quarantined_rows(&parsed.bad_rows)).await?;

    report.add_load(load.commit().await?, &parsed);
    Ok(newest)
}

/// The path of the bulletins of a window. Built by hand: the API does not decode `+` as a space, and it returns no rows for
/// other date formats.
pub fn bulletin_path(currency: Currency, (from, to): DateWindow) -> String {
    let date_format = "%m-%d-%Y";
    format!(
        "/olinda/servico/PTAX/versao/v1/odata/CotacaoMoedaPeriodo(moeda=@moeda,dataInicial=@dataInicial,\
         dataFinalCotacao=@dataFinalCotacao)?@moeda='{}'&@dataInicial='{}'&@dataFinalCotacao='{}'\
         &$format=json&$top=10000",
        currency.code(),
        from.format(date_format),
        to.format(date_format)
    )
}

fn count_by_day(bulletins: &[NewBulletin]) -> BTreeMap<NaiveDate, u64> {
    let mut counts = BTreeMap::new();
    for bulletin in bulletins {
        *counts.entry(bulletin.date).or_default() += 1;
    }
    counts
}

fn validate_rows(parsed: &ParsedRows<NewBulletin>, rows_before: u64) -> Result<(), RejectionError> {
    validate_bad_row_count(parsed)?;
    validate_row_count(parsed.comparable_row_count(), rows_before)?;
    validate_bulletins(&parsed.rows)?;
    Ok(())
}
