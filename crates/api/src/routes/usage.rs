//! `GET /api/v1/plans/usage`: what a key has used, by UTC day, its own last request included.

use std::collections::{BTreeMap, HashMap};

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use chrono::{Days, NaiveDate};
use http::StatusCode;
use serde::Serialize;
use vintem_deliver::table::{Column, Table};
use vintem_domain::usage::{Counts, RouteGroup, UsageRow, utc_day};
use vintem_domain::{KeyId, Problem, Text};

use super::status::instant;
use super::{AppState, Handlers};
use crate::caller::Caller;
use crate::csv::Form;
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
    /// False while the counts of the last seconds cannot be read.
    complete: bool,
    as_of: String,
}

#[derive(Serialize)]
struct DayBody {
    date: NaiveDate,
    #[serde(flatten)]
    counts: CountsBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<GroupBody>>,
}

#[derive(Serialize)]
struct GroupBody {
    group: &'static str,
    #[serde(flatten)]
    counts: CountsBody,
}

#[derive(Serialize)]
struct CountsBody {
    requests: u64,
    successful: u64,
    client_errors: u64,
    server_errors: u64,
    rate_limited: u64,
    unfinished: u64,
}

/// The columns of the counts.
const COUNTS: [&str; 6] = ["requests", "successful", "client_errors", "server_errors", "rate_limited", "unfinished"];

/// The counts of one day by part of the API.
type DayCounts = BTreeMap<RouteGroup, Counts>;

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
    let (detail, form) = (query.flag("detail")?, Form::read(&caller, &query)?);
    let Some(shown) = app.store.key_shown(key).await? else { return Err(Problem::InvalidKey.into()) };
    let (mut counts, complete) = count(&app, key, from, to).await?;
    // The request that asks is under way; by the time this is read it has succeeded.
    if (from..=to).contains(&today) {
        counts.entry(today).or_default().entry(RouteGroup::Plans).or_default().successful += 1;
    }
    let days: Vec<NaiveDate> = from.iter_days().take_while(|day| *day <= to).collect();
    let day_body = |date: NaiveDate| day_body(date, counts.get(&date).unwrap_or(&DayCounts::new()), detail);
    let data: Vec<DayBody> = days.into_iter().rev().map(day_body).collect();
    if let Form::Csv(style) = form {
        return Ok(answer::uncached_table(table(data, detail), style, today));
    }
    let body = UsageBody {
        key: format!("{shown}…"),
        plan: caller.plan.id(),
        rate_limit: app.settings.offer.limits.of(caller.plan),
        timezone: "UTC",
        from,
        to,
        total_requests: data.iter().map(|day| day.counts.requests).sum(),
        data,
        complete,
        as_of: instant(app.clock.now()),
    };
    Ok(answer::uncached(StatusCode::OK, &body))
}

/// A row for each day, or for each part of the API on each day.
fn table(days: Vec<DayBody>, detail: bool) -> Table {
    let group = detail.then_some(Column::text("group"));
    let columns = std::iter::once(Column::day("date")).chain(group).chain(COUNTS.map(Column::whole)).collect();
    let rows: Vec<(NaiveDate, Option<&'static str>, CountsBody)> = days
        .into_iter()
        .flat_map(|day| match day.groups {
            Some(groups) => groups.into_iter().map(|row| (day.date, Some(row.group), row.counts)).collect(),
            None => vec![(day.date, None, day.counts)],
        })
        .collect();
    Table::of("usage", columns, rows, |(date, group, counts), cells| {
        cells.day(Some(*date));
        group.iter().for_each(|group| cells.text(group));
        let CountsBody { requests, successful, client_errors, server_errors, rate_limited, unfinished } = counts;
        for count in [requests, successful, client_errors, server_errors, rate_limited, unfinished] {
            cells.whole(i64::try_from(*count).unwrap_or(i64::MAX));
        }
    })
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

/// Stored counts and live ones, and whether these are all. The live ones are read first, each batch by its id; those
/// that the store's ledger knows by then are in the stored counts already.
async fn count(
    app: &App,
    key: KeyId,
    from: NaiveDate,
    to: NaiveDate,
) -> Result<(HashMap<NaiveDate, DayCounts>, bool), Refusal> {
    let live = app.meter.live_usage(key).await;
    let batches: Vec<String> = live.batches.iter().filter_map(|batch| batch.id.clone()).collect();
    let stored = app.store.usage(key, from, to, &batches).await?;
    let is_stored = |id: &Option<String>| id.as_ref().is_some_and(|id| stored.drained.contains(id));
    let waiting = live.batches.into_iter().filter(|batch| !is_stored(&batch.id)).flat_map(|batch| batch.rows);
    let mut days: HashMap<NaiveDate, DayCounts> = HashMap::new();
    for UsageRow { day, group, counts, .. } in waiting.chain(stored.rows) {
        days.entry(day).or_default().entry(group).or_default().add(&counts);
    }
    Ok((days, live.is_complete))
}

fn day_body(date: NaiveDate, groups: &DayCounts, detail: bool) -> DayBody {
    let mut all = Counts::default();
    groups.values().for_each(|counts| all.add(counts));
    let group_body =
        |(group, counts): (&RouteGroup, &Counts)| GroupBody { group: group.id(), counts: counts_body(counts) };
    DayBody { date, counts: counts_body(&all), groups: detail.then(|| groups.iter().map(group_body).collect()) }
}

fn counts_body(counts: &Counts) -> CountsBody {
    CountsBody {
        requests: counts.requests,
        successful: counts.successful,
        client_errors: counts.client_errors,
        server_errors: counts.server_errors,
        rate_limited: counts.rate_limited,
        unfinished: counts.unfinished(),
    }
}
