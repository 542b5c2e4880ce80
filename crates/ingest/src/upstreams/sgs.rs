//! The central bank's time series (SGS), fetched in date windows that the API accepts.

use std::collections::VecDeque;

use chrono::{Days, Months, NaiveDate};
use vintem_domain::series::Frequency;
use vintem_domain::{Dataset, Series};
use vintem_store::load::Observation;
use vintem_store::sources::SourcePartState;

use super::{DateWindow, LoadContext, PartError, PartReport, RejectionError, record_success};
use crate::fetch::{FetchError, ResponseVerdict, UpstreamResponse};
use crate::parsers::sgs::{SgsError, SgsResponse, parse_response};
use crate::parsers::{BadRow, ParsedRows};
use crate::validation::{to_quarantined_rows, validate_bad_row_count, validate_observations, validate_row_count};

/// The API allows ten years, but they take twenty seconds, close to its timeout; three years take three seconds.
const WINDOW_YEARS: u32 = 3;
/// Days that are fetched again, so that revisions of the last weeks are noticed.
const OVERLAP_DAYS: u64 = 40;

/// Fetches what is new, or the whole series the first time, window by window. Each window is its own load, so an
/// interrupted run resumes where it stopped.
pub async fn load_series(
    context: &LoadContext<'_>,
    series: &'static Series,
    state: &mut SourcePartState,
) -> Result<PartReport, PartError> {
    let mut report = PartReport { unchanged: true, ..PartReport::default() };
    let is_monthly = series.frequency == Frequency::Monthly;
    let needs_backfill = state.backfilled_at.is_none();
    let from = match (context.since, state.covered_until) {
        (Some(since), _) => since,
        (None, Some(until)) if !is_monthly && !needs_backfill => until - Days::new(OVERLAP_DAYS),
        _ => series.starts_on,
    };

    let mut windows = split_into_windows(from, context.today, is_monthly);
    if needs_backfill && context.since.is_none() {
        // The same windows as without an interruption, so that the same rows come from the same responses.
        windows.retain(|(_, end)| state.covered_until.is_none_or(|until| *end > until));
    }

    while let Some(window) = windows.pop_front() {
        if load_window(context, series, window, &mut report).await? {
            if context.since.is_none() {
                state.covered_until = state.covered_until.max(Some(window.1));
                context.store.save_part_state(state).await?;
            }
        } else {
            let (first_half, second_half) = split_window(window);
            windows.push_front(second_half);
            windows.push_front(first_half);
        }
    }

    // Not every series documents its real start: go back until a window is empty.
    if state.backfilled_at.is_none() && context.since.is_none() {
        let mut end = series.starts_on - Days::new(1);
        loop {
            let window = (end - Months::new(12 * WINDOW_YEARS), end);
            let rows_before = report.rows;
            if !load_window(context, series, window, &mut report).await? || report.rows == rows_before {
                break;
            }
            end = window.0 - Days::new(1);
        }
        state.backfilled_at = Some(context.now);
    }

    state.rows = context.store.count_observations(series.id, (series.starts_on, context.today)).await?;
    record_success(state, context.now, &report);
    Ok(report)
}

/// Returns `false` if the window is too wide for the API.
async fn load_window(
    context: &LoadContext<'_>,
    series: &'static Series,
    window: DateWindow,
    report: &mut PartReport,
) -> Result<bool, PartError> {
    let (from, to) = window;
    let code = series.sgs_code.expect("a source is made of published series alone");
    let path = format!(
        "/dados/serie/bcdata.sgs.{code}/dados?formato=json&dataInicial={}&dataFinal={}",
        from.format("%d/%m/%Y"),
        to.format("%d/%m/%Y")
    );

    let response = context.fetch_or_quarantine(series.id, &path, judge_response).await?;
    report.bytes += response.body.len() as u64;
    let parsed = match parse_response(response.status, &response.body) {
        Ok(SgsResponse::Rows(parsed)) => retain_rows_in_window(parsed, window, context.today),
        Ok(SgsResponse::Empty) => no_rows(),
        Ok(SgsResponse::WindowTooWide) if from < to => return Ok(false),
        Ok(SgsResponse::WindowTooWide) => {
            let problem = "a single day is said to be too many".to_owned();
            return Err(FetchError::Failed { address: response.address, problem, last_response: None }.into());
        }
        Err(error) => {
            return Err(FetchError::Failed {
                address: response.address,
                problem: error.to_string(),
                last_response: None,
            }
            .into());
        }
    };

    let rows_before = context.store.count_observations(series.id, window).await?;
    if let Err(error) = validate_rows(series, &parsed, rows_before) {
        let reason = error.to_string();
        context.quarantine_response(series.id, &response, &response.body, &reason).await?;
        return Err(PartError::Rejected(reason));
    }

    report.add_alerts(&parsed.alerts);
    report.rows += parsed.rows.len() as u64;
    if parsed.rows.is_empty() && parsed.bad_rows.is_empty() {
        return Ok(true);
    }

    let mut load = context.begin_load(Dataset::Series(series), &context.fetch_record(&response)).await?;
    load.append_observations(series, &parsed.rows).await?;
    load.quarantine_rows(context.source_id, series.id, &to_quarantined_rows(&parsed.bad_rows)).await?;

    report.add_load(load.commit().await?, parsed.bad_rows.len());
    Ok(true)
}

fn validate_rows(
    series: &'static Series,
    parsed: &ParsedRows<Observation>,
    rows_before: u64,
) -> Result<(), RejectionError> {
    validate_bad_row_count(parsed)?;
    validate_row_count(parsed.rows.len() as u64, rows_before)?;
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

fn no_rows() -> ParsedRows<Observation> {
    ParsedRows { rows: vec![], bad_rows: vec![], alerts: vec![], total: 0, merged: 0, skipped: 0 }
}

/// Skips future dates: the Selic target is published up to the next meeting and is not a fact yet. Rows outside the
/// requested window are bad.
fn retain_rows_in_window(
    mut parsed: ParsedRows<Observation>,
    (from, to): DateWindow,
    today: NaiveDate,
) -> ParsedRows<Observation> {
    let rows = std::mem::take(&mut parsed.rows);
    for (line, row) in (1..).zip(rows) {
        if row.date > today {
            parsed.skipped += 1;
        } else if row.date < from || row.date > to {
            let text = format!("{} {}", row.date, row.value);
            parsed.bad_rows.push(BadRow { line, text, reason: "it is outside the requested window".into() });
        } else {
            parsed.rows.push(row);
        }
    }
    parsed
}

fn split_into_windows(from: NaiveDate, to: NaiveDate, single_window: bool) -> VecDeque<DateWindow> {
    let mut windows = VecDeque::new();
    let mut start = from;
    while start <= to {
        // The API limits the window only for daily series.
        let end = if single_window { to } else { (start + Months::new(12 * WINDOW_YEARS) - Days::new(1)).min(to) };
        windows.push_back((start, end));
        start = end + Days::new(1);
    }
    windows
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
    fn windows_cover_the_range_without_gaps_or_overlaps() {
        let windows = split_into_windows(parse_date("1999-03-05"), parse_date("2026-11-13"), false);
        assert_eq!(windows.len(), 10);
        assert_eq!(
            (windows[0], windows[9].1),
            ((parse_date("1999-03-05"), parse_date("2002-03-04")), parse_date("2026-11-13"))
        );
        for pair in windows.iter().zip(windows.iter().skip(1)) {
            assert_eq!(pair.0.1 + Days::new(1), pair.1.0);
        }
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
