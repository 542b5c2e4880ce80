//! `GET /api/v1/plans/usage`: what a key has used, by UTC day, its own last request included.

use std::collections::HashMap;

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use chrono::{Days, NaiveDate};
use http::StatusCode;
use serde::Serialize;
use vintem_domain::usage::{Counts, utc_day};
use vintem_domain::{KeyId, Problem, Text};

use super::status::instant;
use super::{AppState, Handlers};
use crate::caller::Caller;
use crate::params::{Query, ordered, refuse};
use crate::problem::Refusal;
use crate::{App, answer};

#[derive(Serialize)]
struct UsageBody {
    key: String,
    plan: &'static str,
    rate_limit: u32,
    timezone: &'static str,
    from: NaiveDate,
    to: NaiveDate,
    total_requests: u64,
    data: Vec<DayBody>,
    as_of: String,
}

#[derive(Serialize)]
struct DayBody {
    date: NaiveDate,
    requests: u64,
    successful: u64,
    client_errors: u64,
    server_errors: u64,
    rate_limited: u64,
    unfinished: u64,
}

const DEFAULT_DAYS: u64 = 30;
const MOST_DAYS: i64 = 366;

pub fn handlers() -> Handlers {
    vec![("get_usage", get(get_usage))]
}

async fn get_usage(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let key = caller.required_key()?;
    // Days as the meter counts them: by its clock.
    let today = utc_day(i64::try_from(caller.admitted_at_us).unwrap_or(0));
    let (from, to) = days(&query, today)?;
    let Some(shown) = app.store.key_shown(key).await? else { return Err(Problem::InvalidKey.into()) };
    let mut counts = count(&app, key, from, to).await?;
    // The request that asks is under way; by the time this is read it has succeeded.
    if (from..=to).contains(&today) {
        counts.entry(today).or_default().successful += 1;
    }
    let data: Vec<DayBody> = from
        .iter_days()
        .take_while(|day| *day <= to)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .map(|day| body(day, counts.get(&day).copied().unwrap_or_default()))
        .collect();
    let body = UsageBody {
        key: format!("{shown}…"),
        plan: caller.plan.id(),
        rate_limit: app.settings.limits.of(caller.plan),
        timezone: "UTC",
        from,
        to,
        total_requests: data.iter().map(|day| day.requests).sum(),
        data,
        as_of: instant(app.clock.now()),
    };
    Ok(answer::uncached(StatusCode::OK, &body))
}

fn days(query: &Query, today: NaiveDate) -> Result<(NaiveDate, NaiveDate), Problem> {
    let (given_from, given_to) = (query.day("from")?, query.day("to")?);
    let to = given_to.unwrap_or(given_from.map_or(today, |from| today.max(from)));
    let from = given_from.unwrap_or(to - Days::new(DEFAULT_DAYS - 1));
    let range = ordered(from, to)?;
    if (range.to - range.from).num_days() >= MOST_DAYS {
        return refuse(
            "from",
            Text::new(
                "lie at most 366 days before `to`, both included",
                "estar a no máximo 366 dias de `to`, ambos incluídos",
            ),
        );
    }
    Ok((range.from, range.to))
}

/// Stored counts and live ones. The live ones are read first, each batch by its id; those that the store's ledger
/// knows by then are in the stored counts already.
async fn count(app: &App, key: KeyId, from: NaiveDate, to: NaiveDate) -> Result<HashMap<NaiveDate, Counts>, Refusal> {
    app.meter.flush_outcomes().await?;
    let live = app.meter.live_usage(key).await?;
    let batches: Vec<String> = live.iter().map(|batch| batch.batch_id.clone()).collect();
    let (stored, drained) = app.store.usage(key, from, to, &batches).await?;
    let mut counts: HashMap<NaiveDate, Counts> = stored.into_iter().collect();
    for batch in live.iter().filter(|batch| !drained.contains(&batch.batch_id)) {
        for day in &batch.days {
            counts.entry(day.day).or_default().add(&day.counts);
        }
    }
    Ok(counts)
}

fn body(date: NaiveDate, counts: Counts) -> DayBody {
    DayBody {
        date,
        requests: counts.requests,
        successful: counts.successful,
        client_errors: counts.client_errors,
        server_errors: counts.server_errors,
        rate_limited: counts.rate_limited,
        unfinished: counts.unfinished(),
    }
}
