//! The central bank's time series, asked for by windows that it takes.

use std::collections::VecDeque;

use chrono::{Days, Months, NaiveDate};
use vintem_domain::series::Frequency;
use vintem_domain::{Dataset, Origin, Series};
use vintem_store::load::Observation;
use vintem_store::sources::PartState;

use super::{Asked, PartError, PartReport, Unbelievable, note_success};
use crate::fetch::{Answer, FetchError, Validators, Worth, archived};
use crate::gate::{few_bad_rows, misfits, not_shrunk, plausible};
use crate::read::sgs::{Sgs, SgsError, judge};
use crate::read::{BadRow, Read};

/// Ten years are allowed and take twenty seconds, close to where the other side cuts; three take three.
const WINDOW_YEARS: u32 = 3;
/// What is asked for again, so that a revision of the last weeks is seen.
const OVERLAP_DAYS: u64 = 40;

type Window = (NaiveDate, NaiveDate);

/// Asks for what is new, or for all of it the first time, window by window. Each is a load of its own, so a run that is
/// cut off goes on where it was.
pub async fn load(asked: &Asked<'_>, series: &'static Series, state: &mut PartState) -> Result<PartReport, PartError> {
    let mut report = PartReport { unchanged: true, ..PartReport::default() };
    let is_monthly = series.frequency == Frequency::Monthly;
    let is_first = state.filled_at.is_none();
    let from = match (asked.since, state.covered_until) {
        (Some(since), _) => since,
        (None, Some(until)) if !is_monthly && !is_first => until - Days::new(OVERLAP_DAYS),
        _ => series.starts,
    };
    let mut windows = windows(from, asked.today, is_monthly);
    if is_first && asked.since.is_none() {
        // The same windows as if it had not been cut off, so that the same rows come from the same answers.
        windows.retain(|(_, end)| state.covered_until.is_none_or(|until| *end > until));
    }
    while let Some(window) = windows.pop_front() {
        if load_window(asked, series, window, &mut report).await? {
            if asked.since.is_none() {
                state.covered_until = state.covered_until.max(Some(window.1));
                asked.store.save_part(state).await?;
            }
        } else {
            windows.push_front(half(window, 1));
            windows.push_front(half(window, 0));
        }
    }
    // Where a series really begins is not documented for all of them: look back until there is nothing.
    if state.filled_at.is_none() && asked.since.is_none() {
        let mut end = series.starts - Days::new(1);
        loop {
            let (window, rows) = ((end - Months::new(12 * WINDOW_YEARS), end), report.rows);
            if !load_window(asked, series, window, &mut report).await? || report.rows == rows {
                break;
            }
            end = window.0 - Days::new(1);
        }
        state.filled_at = Some(asked.now);
    }
    state.rows = asked.store.count_observations(series.id, (series.starts, asked.today)).await?;
    note_success(state, asked.now, &report);
    Ok(report)
}

/// Whether the window was taken; if not it is too wide.
async fn load_window(
    asked: &Asked<'_>,
    series: &'static Series,
    window: Window,
    report: &mut PartReport,
) -> Result<bool, PartError> {
    let (from, to) = window;
    let code = series.code.expect("a source is made of published series alone");
    let path = format!(
        "/dados/serie/bcdata.sgs.{code}/dados?formato=json&dataInicial={}&dataFinal={}",
        from.format("%d/%m/%Y"),
        to.format("%d/%m/%Y")
    );
    let answer = match asked.host.get(&path, &Validators::default(), worth).await {
        Ok(answer) => answer,
        Err(FetchError::Failed { address, problem, last }) => {
            // What pretended to be data is kept, so that somebody can look at it.
            if let Some(last) = last.as_ref().filter(|last| last.status == 200) {
                asked.set_aside_whole(series.id, last, &last.body, &problem).await?;
            }
            return Err(FetchError::Failed { address, problem, last }.into());
        }
        Err(error) => return Err(error.into()),
    };
    report.bytes += answer.body.len() as u64;
    let read = match judge(answer.status, &answer.body) {
        Ok(Sgs::Rows(read)) => within(read, window, asked.today),
        Ok(Sgs::Empty) => empty(),
        Ok(Sgs::WindowTooWide) if from < to => return Ok(false),
        Ok(Sgs::WindowTooWide) => {
            let problem = "a single day is said to be too many".to_owned();
            return Err(FetchError::Failed { address: answer.address, problem, last: None }.into());
        }
        Err(error) => {
            return Err(FetchError::Failed { address: answer.address, problem: error.to_string(), last: None }.into());
        }
    };
    let before = asked.store.count_observations(series.id, window).await?;
    if let Err(disbelief) = believe(series, &read, before) {
        let reason = disbelief.to_string();
        asked.set_aside_whole(series.id, &answer, &answer.body, &reason).await?;
        return Err(PartError::Refused(reason));
    }
    report.note_alerts(&read.alerts);
    report.rows += read.rows.len() as u64;
    if read.rows.is_empty() && read.bad.is_empty() {
        return Ok(true);
    }
    let fetch = answer.provenance(answer.address.clone(), asked.now, answer.sha256(), archived(&answer.body));
    let mut load = asked.store.begin_load(Dataset::Series(series), Origin::Real, &fetch).await?;
    if let Some(since) = asked.announce_since() {
        load.announce_since(since);
    }
    load.append_observations(series, &read.rows).await?;
    load.set_aside(asked.source, series.id, &misfits(&read.bad)).await?;
    let appended = load.commit().await?;
    report.appended += appended;
    report.set_aside += read.bad.len() as u64;
    report.unchanged &= appended == 0;
    Ok(true)
}

fn believe(series: &'static Series, read: &Read<Observation>, before: u64) -> Result<(), Unbelievable> {
    few_bad_rows(read)?;
    not_shrunk(read.rows.len() as u64, before)?;
    plausible(series, &read.rows)?;
    Ok(())
}

fn worth(answer: &Answer) -> Worth {
    match judge(answer.status, &answer.body) {
        Ok(_) => Worth::Taken,
        Err(SgsError::Retry(trouble)) => Worth::Retry(trouble),
        Err(SgsError::GiveUp(problem)) => Worth::GiveUp(problem),
    }
}

fn empty() -> Read<Observation> {
    Read { rows: vec![], bad: vec![], alerts: vec![], total: 0, merged: 0, passed_over: 0 }
}

/// Future days are the target's until the next meeting: not yet facts. What lies outside of the window was not asked for.
fn within(mut read: Read<Observation>, (from, to): Window, today: NaiveDate) -> Read<Observation> {
    let rows = std::mem::take(&mut read.rows);
    for (line, row) in (1..).zip(rows) {
        if row.date > today {
            read.passed_over += 1;
        } else if row.date < from || row.date > to {
            let text = format!("{} {}", row.date, row.value);
            read.bad.push(BadRow { line, text, reason: "it lies outside of the window that was asked for".into() });
        } else {
            read.rows.push(row);
        }
    }
    read
}

fn windows(from: NaiveDate, to: NaiveDate, whole: bool) -> VecDeque<Window> {
    let mut windows = VecDeque::new();
    let mut start = from;
    while start <= to {
        // Only daily series are bounded.
        let end = if whole { to } else { (start + Months::new(12 * WINDOW_YEARS) - Days::new(1)).min(to) };
        windows.push_back((start, end));
        start = end + Days::new(1);
    }
    windows
}

fn half((from, to): Window, which: u8) -> Window {
    let middle = from + (to - from) / 2;
    if which == 0 { (from, middle) } else { (middle + Days::new(1), to) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    #[test]
    fn windows_touch_and_cover_everything_once() {
        let windows = windows(day("1999-03-05"), day("2026-11-13"), false);
        assert_eq!(windows.len(), 10);
        assert_eq!((windows[0], windows[9].1), ((day("1999-03-05"), day("2002-03-04")), day("2026-11-13")));
        for pair in windows.iter().zip(windows.iter().skip(1)) {
            assert_eq!(pair.0.1 + Days::new(1), pair.1.0);
        }
    }

    #[test]
    fn halves_are_the_whole() {
        for window in [(day("2020-01-01"), day("2020-12-31")), (day("2020-01-01"), day("2020-01-02"))] {
            let (first, second) = (half(window, 0), half(window, 1));
            assert_eq!((first.0, first.1 + Days::new(1), second.1), (window.0, second.0, window.1));
        }
    }
}
