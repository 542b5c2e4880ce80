//! The central bank's time series, asked for by windows that it takes.

use std::collections::VecDeque;

use chrono::{Days, Months, NaiveDate};
use vintem_domain::series::Frequency;
use vintem_domain::{DataOrigin, Dataset, Series};
use vintem_store::load::Observation;
use vintem_store::sources::SourcePartState;

use super::{LoadContext, PartError, PartReport, RejectionError, record_success};
use crate::fetch::{CacheValidators, FetchError, ResponseVerdict, UpstreamResponse, compress_for_archive};
use crate::parsers::sgs::{SgsError, SgsResponse, parse_response};
use crate::parsers::{BadRow, ParsedRows};
use crate::validation::{to_quarantined_rows, validate_bad_row_count, validate_observations, validate_row_count};

/// Ten years are allowed and take twenty seconds, close to where the other side cuts; three take three.
const WINDOW_YEARS: u32 = 3;
/// What is asked for again, so that a revision of the last weeks is seen.
const OVERLAP_DAYS: u64 = 40;

type SgsWindow = (NaiveDate, NaiveDate);

/// Asks for what is new, or for all of it the first time, window by window. Each is a load of its own, so a run that is
/// cut off goes on where it was.
pub async fn load_series(
    context: &LoadContext<'_>,
    series: &'static Series,
    state: &mut SourcePartState,
) -> Result<PartReport, PartError> {
    let mut report = PartReport { unchanged: true, ..PartReport::default() };
    let is_monthly = series.frequency == Frequency::Monthly;
    let is_first = state.backfilled_at.is_none();
    let from = match (context.since, state.covered_until) {
        (Some(since), _) => since,
        (None, Some(until)) if !is_monthly && !is_first => until - Days::new(OVERLAP_DAYS),
        _ => series.starts_on,
    };
    let mut windows = split_into_windows(from, context.today, is_monthly);
    if is_first && context.since.is_none() {
        // The same windows as if it had not been cut off, so that the same rows come from the same answers.
        windows.retain(|(_, end)| state.covered_until.is_none_or(|until| *end > until));
    }
    while let Some(window) = windows.pop_front() {
        if load_window(context, series, window, &mut report).await? {
            if context.since.is_none() {
                state.covered_until = state.covered_until.max(Some(window.1));
                context.store.save_part_state(state).await?;
            }
        } else {
            windows.push_front(half_of_window(window, 1));
            windows.push_front(half_of_window(window, 0));
        }
    }
    // Where a series really begins is not documented for all of them: look back until there is nothing.
    if state.backfilled_at.is_none() && context.since.is_none() {
        let mut end = series.starts_on - Days::new(1);
        loop {
            let (window, rows) = ((end - Months::new(12 * WINDOW_YEARS), end), report.rows);
            if !load_window(context, series, window, &mut report).await? || report.rows == rows {
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

/// Whether the window was taken; if not it is too wide.
async fn load_window(
    context: &LoadContext<'_>,
    series: &'static Series,
    window: SgsWindow,
    report: &mut PartReport,
) -> Result<bool, PartError> {
    let (from, to) = window;
    let code = series.sgs_code.expect("a source is made of published series alone");
    let path = format!(
        "/dados/serie/bcdata.sgs.{code}/dados?formato=json&dataInicial={}&dataFinal={}",
        from.format("%d/%m/%Y"),
        to.format("%d/%m/%Y")
    );
    let answer = match context.client.get_with_retries(&path, &CacheValidators::default(), judge_response).await {
        Ok(answer) => answer,
        Err(FetchError::Failed { address, problem, last_response: last }) => {
            // What pretended to be data is kept, so that somebody can look at it.
            if let Some(last) = last.as_ref().filter(|last| last.status == 200) {
                context.quarantine_response(series.id, last, &last.body, &problem).await?;
            }
            return Err(FetchError::Failed { address, problem, last_response: last }.into());
        }
        Err(error) => return Err(error.into()),
    };
    report.bytes += answer.body.len() as u64;
    let parsed = match parse_response(answer.status, &answer.body) {
        Ok(SgsResponse::Rows(parsed)) => retain_rows_in_window(parsed, window, context.today),
        Ok(SgsResponse::Empty) => no_rows(),
        Ok(SgsResponse::WindowTooWide) if from < to => return Ok(false),
        Ok(SgsResponse::WindowTooWide) => {
            let problem = "a single day is said to be too many".to_owned();
            return Err(FetchError::Failed { address: answer.address, problem, last_response: None }.into());
        }
        Err(error) => {
            return Err(FetchError::Failed {
                address: answer.address,
                problem: error.to_string(),
                last_response: None,
            }
            .into());
        }
    };
    let before = context.store.count_observations(series.id, window).await?;
    if let Err(error) = validate_rows(series, &parsed, before) {
        let reason = error.to_string();
        context.quarantine_response(series.id, &answer, &answer.body, &reason).await?;
        return Err(PartError::Rejected(reason));
    }
    report.add_alerts(&parsed.alerts);
    report.rows += parsed.rows.len() as u64;
    if parsed.rows.is_empty() && parsed.bad_rows.is_empty() {
        return Ok(true);
    }
    let fetch = answer.to_fetch_record(
        answer.address.clone(),
        context.now,
        answer.body_sha256(),
        compress_for_archive(&answer.body),
    );
    let mut load = context.store.begin_load(Dataset::Series(series), DataOrigin::Real, &fetch).await?;
    if let Some(since) = context.announce_since() {
        load.emit_events_since(since);
    }
    load.append_observations(series, &parsed.rows).await?;
    load.quarantine_rows(context.source_id, series.id, &to_quarantined_rows(&parsed.bad_rows)).await?;
    let appended = load.commit().await?;
    report.appended += appended;
    report.quarantined += parsed.bad_rows.len() as u64;
    report.unchanged &= appended == 0;
    Ok(true)
}

fn validate_rows(series: &'static Series, parsed: &ParsedRows<Observation>, before: u64) -> Result<(), RejectionError> {
    validate_bad_row_count(parsed)?;
    validate_row_count(parsed.rows.len() as u64, before)?;
    validate_observations(series, &parsed.rows)?;
    Ok(())
}

fn judge_response(answer: &UpstreamResponse) -> ResponseVerdict {
    match parse_response(answer.status, &answer.body) {
        Ok(_) => ResponseVerdict::Accept,
        Err(SgsError::Retry(trouble)) => ResponseVerdict::Retry(trouble),
        Err(SgsError::GiveUp(problem)) => ResponseVerdict::GiveUp(problem),
    }
}

fn no_rows() -> ParsedRows<Observation> {
    ParsedRows { rows: vec![], bad_rows: vec![], alerts: vec![], total: 0, merged: 0, skipped: 0 }
}

/// Future days are the target's until the next meeting: not yet facts. What lies outside of the window was not asked for.
fn retain_rows_in_window(
    mut parsed: ParsedRows<Observation>,
    (from, to): SgsWindow,
    today: NaiveDate,
) -> ParsedRows<Observation> {
    let rows = std::mem::take(&mut parsed.rows);
    for (line, row) in (1..).zip(rows) {
        if row.date > today {
            parsed.skipped += 1;
        } else if row.date < from || row.date > to {
            let text = format!("{} {}", row.date, row.value);
            parsed.bad_rows.push(BadRow {
                line,
                text,
                reason: "it lies outside of the window that was asked for".into(),
            });
        } else {
            parsed.rows.push(row);
        }
    }
    parsed
}

fn split_into_windows(from: NaiveDate, to: NaiveDate, single_window: bool) -> VecDeque<SgsWindow> {
    let mut windows = VecDeque::new();
    let mut start = from;
    while start <= to {
        // Only daily series are bounded.
        let end = if single_window { to } else { (start + Months::new(12 * WINDOW_YEARS) - Days::new(1)).min(to) };
        windows.push_back((start, end));
        start = end + Days::new(1);
    }
    windows
}

fn half_of_window((from, to): SgsWindow, which: u8) -> SgsWindow {
    let middle = from + (to - from) / 2;
    if which == 0 { (from, middle) } else { (middle + Days::new(1), to) }
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
            let (first, second) = (half_of_window(window, 0), half_of_window(window, 1));
            assert_eq!((first.0, first.1 + Days::new(1), second.1), (window.0, second.0, window.1));
        }
    }
}
