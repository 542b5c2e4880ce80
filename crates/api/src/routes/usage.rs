//! `GET /api/v1/plans/usage`: the usage of a key by UTC day, including the current request.

use std::collections::{BTreeMap, HashMap};

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use chrono::{Days, NaiveDate};
use http::StatusCode;
use serde::Serialize;
use vintem_deliver::table::{Column, OutputTable};
use vintem_domain::usage::{RouteGroup, UsageChunkId, UsageCounts, UsageRow, utc_date_from_micros};
use vintem_domain::{KeyId, LocalizedText, Problem};

use crate::api_error::ApiError;
use crate::app::{App, AppState, Handlers};
use crate::bodies::format_instant;
use crate::caller::Caller;
use crate::csv::ListFormat;
use crate::params::{QueryParams, invalid_param, ordered_date_range};
use crate::responses;

#[derive(Serialize)]
struct UsageBody {
    key: String,
    plan: &'static str,
    rate_limit: u32,
    timezone: &'static str,
    from: NaiveDate,
    to: NaiveDate,
    total_requests: u64,
    data: Vec<UsageDayBody>,
    /// False while the counts of the last seconds cannot be read, and if counts of these days may have been lost.
    complete: bool,
    as_of: String,
}

#[derive(Serialize)]
struct UsageDayBody {
    date: NaiveDate,
    #[serde(flatten)]
    counts: UsageCountsBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<UsageGroupBody>>,
}

#[derive(Serialize)]
struct UsageGroupBody {
    group: &'static str,
    #[serde(flatten)]
    counts: UsageCountsBody,
}

#[derive(Serialize)]
struct UsageCountsBody {
    requests: u64,
    successful: u64,
    client_errors: u64,
    server_errors: u64,
    rate_limited: u64,
    unfinished: u64,
}

/// In the order of [`UsageCountsBody`].
const COUNT_COLUMNS: [&str; 6] =
    ["requests", "successful", "client_errors", "server_errors", "rate_limited", "unfinished"];

/// The counts of one day by route group.
type CountsByGroup = BTreeMap<RouteGroup, UsageCounts>;

pub const DEFAULT_DAYS: u64 = 30;
pub const MAX_DAYS: i64 = 366;

pub fn handlers() -> Handlers {
    vec![("get_usage", get(get_usage))]
}

async fn get_usage(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let key = caller.require_key()?;
    // The meter counts days by Redis' clock, so use the same clock here.
    let today = utc_date_from_micros(i64::try_from(caller.admitted_at_us).unwrap_or(0));
    let (from, to) = parse_usage_days(&query, today)?;
    let detail = query.flag("detail")?;
    let format = ListFormat::from_query(&query, caller.prefers_csv)?;

    let Some(display_prefix) = app.store.key_display_prefix(key).await? else {
        return Err(Problem::InvalidKey.into());
    };
    let (mut counts, complete) = load_usage_counts(&app, key, from, to).await?;
    // The current request is still running; by the time the caller reads this, it has succeeded.
    if (from..=to).contains(&today) {
        counts.entry(today).or_default().entry(RouteGroup::Plans).or_default().successful += 1;
    }

    let days: Vec<NaiveDate> = from.iter_days().take_while(|day| *day <= to).collect();
    let day_body = |date: NaiveDate| usage_day_body(date, counts.get(&date).unwrap_or(&CountsByGroup::new()), detail);
    let data: Vec<UsageDayBody> = days.into_iter().rev().map(day_body).collect();
    if let ListFormat::Csv(options) = format {
        return Ok(responses::uncached_csv(usage_table(data, detail), options, today));
    }

    let body = UsageBody {
        key: format!("{display_prefix}…"),
        plan: caller.plan.id(),
        rate_limit: app.settings.offer.limits.for_plan(caller.plan),
        timezone: "UTC",
        from,
        to,
        total_requests: data.iter().map(|day| day.counts.requests).sum(),
        data,
        complete,
        as_of: format_instant(app.clock.now()),
    };
    Ok(responses::uncached_json(StatusCode::OK, &body))
}

/// One row per day, or with `detail` one row per day and route group.
fn usage_table(days: Vec<UsageDayBody>, detail: bool) -> OutputTable {
    let group_column = detail.then_some(Column::text("group"));
    let columns =
        std::iter::once(Column::date("date")).chain(group_column).chain(COUNT_COLUMNS.map(Column::integer)).collect();

    let rows: Vec<(NaiveDate, Option<&'static str>, UsageCountsBody)> = days
        .into_iter()
        .flat_map(|day| match day.groups {
            Some(groups) => groups.into_iter().map(|row| (day.date, Some(row.group), row.counts)).collect(),
            None => vec![(day.date, None, day.counts)],
        })
        .collect();

    OutputTable::from_rows("usage", columns, rows, |(date, group, counts), cells| {
        cells.write_date(Some(*date));
        group.iter().for_each(|group| cells.write_text(group));
        let UsageCountsBody { requests, successful, client_errors, server_errors, rate_limited, unfinished } = counts;
        for count in [requests, successful, client_errors, server_errors, rate_limited, unfinished] {
            cells.write_integer(i64::try_from(*count).unwrap_or(i64::MAX));
        }
    })
}

fn parse_usage_days(query: &QueryParams, today: NaiveDate) -> Result<(NaiveDate, NaiveDate), Problem> {
    let requested_from = query.date("from")?;
    let requested_to = query.date("to")?;
    let to = requested_to.unwrap_or(requested_from.map_or(today, |from| today.max(from)));
    let from = requested_from.unwrap_or(to - Days::new(DEFAULT_DAYS - 1));

    let range = ordered_date_range(from, to)?;
    if (range.to - range.from).num_days() >= MAX_DAYS {
        return invalid_param(
            "from",
            LocalizedText::new(
                "must be within 366 days of `to`, counting both dates",
                "deve estar a no máximo 366 dias de `to`, contando as duas datas",
            ),
        );
    }
    Ok((range.from, range.to))
}

/// The sum of stored and live counts, and whether it is complete. Live chunks are read first; chunks that are in the
/// store's ledger by then are already part of the stored counts and are skipped.
async fn load_usage_counts(
    app: &App,
    key: KeyId,
    from: NaiveDate,
    to: NaiveDate,
) -> Result<(HashMap<NaiveDate, CountsByGroup>, bool), ApiError> {
    let live = app.meter.live_usage(key).await;
    let chunk_ids: Vec<UsageChunkId> = live.chunks.iter().filter_map(|chunk| chunk.id.clone()).collect();
    let stored = app.store.key_usage(key, from, to, &chunk_ids).await?;

    let is_stored = |id: &Option<UsageChunkId>| id.as_ref().is_some_and(|id| stored.stored_chunks.contains(id));
    let live_rows = live.chunks.into_iter().filter(|chunk| !is_stored(&chunk.id)).flat_map(|chunk| chunk.rows);
    let mut days: HashMap<NaiveDate, CountsByGroup> = HashMap::new();
    for UsageRow { day, group, counts, .. } in live_rows.chain(stored.rows) {
        days.entry(day).or_default().entry(group).or_default().add(&counts);
    }
    Ok((days, live.is_complete && !stored.has_gaps))
}

fn usage_day_body(date: NaiveDate, groups: &CountsByGroup, detail: bool) -> UsageDayBody {
    let mut total = UsageCounts::default();
    groups.values().for_each(|counts| total.add(counts));

    let group_body = |(group, counts): (&RouteGroup, &UsageCounts)| UsageGroupBody {
        group: group.id(),
        counts: usage_counts_body(counts),
    };
    UsageDayBody {
        date,
        counts: usage_counts_body(&total),
        groups: detail.then(|| groups.iter().map(group_body).collect()),
    }
}

fn usage_counts_body(counts: &UsageCounts) -> UsageCountsBody {
    UsageCountsBody {
        requests: counts.requests,
        successful: counts.successful,
        client_errors: counts.client_errors,
        server_errors: counts.server_errors,
        rate_limited: counts.rate_limited,
        unfinished: counts.unfinished_requests(),
    }
}
