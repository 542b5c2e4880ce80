//! The central bank's time series (SGS), fetched some years at a time.

use std::collections::VecDeque;

use chrono::{Days, NaiveDate};
use vintem_domain::series::Shape;
use vintem_domain::{Dataset, Series};
use vintem_store::load::Observation;
use vintem_store::sources::{FileValidators, SourcePartState};

use super::{DateWindow, LoadContext, PartError, PartReport, RejectionError, record_success};
use crate::fetch::{FetchError, ResponseVerdict, UpstreamResponse};
use crate::parsers::sgs::{SgsError, SgsResponse, parse_response};
use crate::parsers::{BadRow, FormatAlert, ParsedRows};
use crate::source::SourcePart;
use crate::validation::{to_quarantined_rows, validate_bad_row_count, validate_observations, validate_row_count};

/// SGS sometimes leaves out the first rows of a response: https://github.com/msperlin/GetBCBData/issues/7.
const MAX_DROPPED_FIRST_ROWS: u64 = 10;

/// Fetches some years of a series, or what may be new in them. A window that is too wide for the API is halved.
pub async fn load_years(
    context: &LoadContext<'_>,
    series: &'static Series,
    part: SourcePart,
    state: &mut SourcePartState,
) -> Result<PartReport, PartError> {
    let mut report = PartReport { unchanged: true, ..PartReport::default() };
    let mut windows = VecDeque::from([context.window_to_fetch(part, state)]);
    while let Some(window) = windows.pop_front() {
        match load_window(context, series, window, &mut report).await? {
            Some(newest) => state.newest_date = state.newest_date.max(newest),
            None => {
                let (first_half, second_half) = split_window(window);
                windows.push_front(first_half);
                windows.push_front(second_half);
            }
        }
    }

    state.rows = state.rows.max(report.rows);
    state.alerts.clone_from(&report.alerts);
    record_success(context, state, &report);
    Ok(report)
}

/// Returns the newest day with a value, or `None` if the window is too wide for the API.
async fn load_window(
    context: &LoadContext<'_>,
    series: &'static Series,
    window: DateWindow,
    report: &mut PartReport,
) -> Result<Option<Option<NaiveDate>>, PartError> {
    let (from, to) = window;
    let path = window_path(series, window);
    let response = context.fetch_or_quarantine(series.id, &path, judge_response).await?;
    report.bytes += response.body.len() as u64;
    let parsed = match parse_response(response.status, &response.body) {
        Ok(SgsResponse::Rows(parsed)) => retain_valid_rows(parsed, series, window, context.today),
        Ok(SgsResponse::Empty) => ParsedRows::new(Vec::new()),
        Ok(SgsResponse::WindowTooWide) if from < to => return Ok(None),
        Ok(SgsResponse::WindowTooWide) => {
            let problem = "a single day is said to be too many".to_owned();
            return Err(FetchError::Unusable { address: response.address, problem }.into());
        }
        Err(error) => {
            return Err(FetchError::Unusable { address: response.address, problem: error.to_string() }.into());
        }
    };

    let rows_before = count_expected_rows(context, series, window, &parsed).await?;
    if let Err(error) = validate_rows(series, &parsed, rows_before) {
        let reason = error.to_string();
        context.quarantine_response(series.id, &response, &response.body, &reason).await?;
        return Err(PartError::Rejected { reason, validators: FileValidators::default() });
    }
    let newest = parsed.rows.last().map(|row| row.date);

    if parsed.rows.is_empty() && parsed.bad_rows.is_empty() {
        report.add_alerts(&parsed.alerts);
        return Ok(Some(newest));
    }

    let mut load = context.begin_load(Dataset::Series(series), &context.fetch_record(&response)).await?;
    load.append_observations(series, &parsed.rows).await?;
    load.quarantine_rows(context.source_id, series.id, &to_quarantined_rows(&parsed.bad_rows)).await?;

    report.add_load(load.commit().await?, &parsed);
    Ok(Some(newest))
}

/// The path of the values of a window.
pub fn window_path(series: &Series, (from, to): DateWindow) -> String {
    let code = series.sgs_code.expect("a source is made of published series alone");
    format!(
        "/dados/serie/bcdata.sgs.{code}/dados?formato=json&dataInicial={}&dataFinal={}",
        from.format("%d/%m/%Y"),
        to.format("%d/%m/%Y")
    )
}

/// The stored rows of a window that a good response has. Some of the first ones may be left out.
async fn count_expected_rows(
    context: &LoadContext<'_>,
    series: &'static Series,
    (from, to): DateWindow,
    parsed: &ParsedRows<Observation>,
) -> Result<u64, PartError> {
    let stored = context.store.count_observations(series.id, (from, to)).await?;
    let Some(first) = parsed.rows.first() else { return Ok(stored) };
    let left_out = context.store.count_observations(series.id, (from, first.date - Days::new(1))).await?;
    Ok(stored - left_out.min(MAX_DROPPED_FIRST_ROWS).min(stored))
}

fn validate_rows(
    series: &'static Series,
    parsed: &ParsedRows<Observation>,
    rows_before: u64,
) -> Result<(), RejectionError> {
    validate_bad_row_count(parsed)?;
    validate_row_count(parsed.comparable_row_count(), rows_before)?;
    validate_observations(series, &parsed.rows)?;
    Ok(())
}

fn judge_response(response: &UpstreamResponse) -> ResponseVerdict {
    match parse_response(response.status, &response.body) {
        Ok(_) => ResponseVerdict::Accept,
        Err(SgsError::Retry(problem)) => ResponseVerdict::Retry(problem),
        Err(SgsError::GiveUp(problem)) => ResponseVerdict::GiveUp(problem),
    }
}

/// Skips future dates: the Selic target is published up to the next meeting and is not a fact yet. Amounts from before
/// the real are skipped, too. Rows outside the requested window are bad, and so are those without the end of their period
/// in a series that has periods.
pub fn retain_valid_rows(
    mut parsed: ParsedRows<Observation>,
    series: &Series,
    (from, to): DateWindow,
    today: NaiveDate,
) -> ParsedRows<Observation> {
    let rows = std::mem::take(&mut parsed.rows);
    let has_periods = series.shape == Shape::Period;
    if !has_periods && rows.iter().any(|row| row.period_end.is_some()) {
        parsed.alerts.push(FormatAlert::AdditionalColumns(vec!["\"dataFim\"".to_owned()]));
    }
    for (line, mut row) in (1..).zip(rows) {
        row.period_end = row.period_end.filter(|_| has_periods);
        if row.date > today || row.date < series.served_since() {
            parsed.skipped += 1;
        } else if has_periods && row.period_end.is_none() {
            let text = format!("{} {}", row.date, row.value);
            parsed.bad_rows.push(BadRow::new(line, &text, "it does not say when its period ends".to_owned()));
        } else if row.date < from || row.date > to {
            let text = format!("{} {}", row.date, row.value);
            parsed.bad_rows.push(BadRow::new(line, &text, "it is outside the requested window".to_owned()));
        } else {
            parsed.rows.push(row);
        }
    }
    parsed
}

fn split_window((from, to): DateWindow) -> (DateWindow, DateWindow) {
    let middle = from + (to - from) / 2;
    ((from, middle), (middle + Days::new(1), to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_date(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    #[test]
    fn the_two_halves_cover_the_window() {
        for window in
            [(parse_date("2020-01-01"), parse_date("2020-12-31")), (parse_date("2020-01-01"), parse_date("2020-01-02"))]
        {
            let (first, second) = split_window(window);
            assert_eq!((first.0, first.1 + Days::new(1), second.1), (window.0, second.0, window.1));
        }
    }
}
