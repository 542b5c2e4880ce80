//! Business days: those of a range, the so-manieth from a day, and what a single day is.

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use chrono::{Months, NaiveDate};
use serde::Serialize;
use vintem_deliver::table::{Column, Table};
use vintem_domain::{Calendar, Problem, Text};
use vintem_snapshot::Snapshot;

use super::{AppState, Handlers};
use crate::App;
use crate::answer::Tag;
use crate::caller::Caller;
use crate::csv::Form;
use crate::params::{Query, ordered, refuse};
use crate::problem::Refusal;

/// The longest range of a call, and the furthest step.
const MOST_YEARS: u32 = 40;
const MOST_DAYS: i64 = 40 * 252;

#[derive(Serialize)]
struct BusinessDaysBody {
    calendar: &'static str,
    from: NaiveDate,
    to: NaiveDate,
    total: usize,
    data: Vec<NaiveDate>,
}

#[derive(Serialize)]
struct AddedBody {
    calendar: &'static str,
    date: NaiveDate,
    days: i64,
    result: NaiveDate,
}

#[derive(Serialize)]
struct DayBody {
    calendar: &'static str,
    date: NaiveDate,
    business_day: bool,
    /// `business-day`, `weekend` or `holiday`.
    kind: &'static str,
    previous: Option<NaiveDate>,
    next: Option<NaiveDate>,
}

pub fn handlers() -> Handlers {
    vec![
        ("list_business_days", get(list_business_days)),
        ("add_business_days", get(add_business_days)),
        ("check_day", get(check_day)),
    ]
}

async fn list_business_days(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (from, to, calendar) = (query.required_day("from")?, query.required_day("to")?, calendar(&query)?);
    let form = Form::read(&caller, &query)?;
    let range = ordered(from, to)?;
    if from + Months::new(12 * MOST_YEARS) < to {
        return Ok(refuse("to", Text::new("be at most 40 years after `from`", "ser no máximo 40 anos após `from`"))?);
    }
    let data: Vec<NaiveDate> = calendar.days(range).collect();
    let body = |data: Vec<NaiveDate>| BusinessDaysBody { calendar: calendar.id(), from, to, total: data.len(), data };
    Ok(tag(&caller, &app).list(form, data, body, |data| {
        let columns = vec![Column::day("date"), Column::text("calendar")];
        Table::of("business-days", columns, data, move |date, cells| {
            cells.day(Some(*date));
            cells.text(calendar.id());
        })
    }))
}

async fn add_business_days(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (date, calendar) = (query.required_day("date")?, calendar(&query)?);
    let must = Text::new(
        "be given: a whole number from -10080 to 10080 that leads to a day from 1900-01-01 to 2199-12-31",
        "ser informado: um número inteiro de -10080 a 10080 que leve a um dia de 1900-01-01 a 2199-12-31",
    );
    let days = query.value("days")?.and_then(whole_number).filter(|days| days.abs() <= MOST_DAYS);
    let result = days.and_then(|days| Some((days, calendar.add(date, days)?)));
    let Some((days, result)) = result else { return Ok(refuse("days", must)?) };
    Ok(tag(&caller, &app).answer(|| AddedBody { calendar: calendar.id(), date, days, result }))
}

async fn check_day(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (date, calendar) = (query.required_day("date")?, calendar(&query)?);
    let body = DayBody {
        calendar: calendar.id(),
        date,
        business_day: calendar.is_business_day(date),
        kind: calendar.kind(date).id(),
        previous: calendar.add(date, -1),
        next: calendar.add(date, 1),
    };
    Ok(tag(&caller, &app).answer(|| body))
}

/// The days of a calendar are part of the software: no dataset changes them.
fn tag<'a>(caller: &'a Caller, app: &'a App) -> Tag<'a> {
    Tag::new(caller, app, &Snapshot::default(), &[], ())
}

fn calendar(query: &Query) -> Result<Calendar, Problem> {
    let Some(id) = query.value("calendar")? else { return Ok(Calendar::Settlement) };
    let must = Text::new("be `settlement` or `exchange`", "ser `settlement` ou `exchange`");
    Calendar::from_id(id).map_or_else(|| refuse("calendar", must), Ok)
}

/// Digits, after a minus or nothing.
fn whole_number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}
