//! `GET /api/v1/status`: per source what is held, how new it is, and whether it is real.

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use chrono::{DateTime, NaiveDate, SecondsFormat, TimeDelta, Utc};
use http::StatusCode;
use serde::Serialize;
use vintem_domain::{Dataset, DateRange, FilingSet, Origin, VERSION};
use vintem_snapshot::{FilingFilter, Snapshot};
use vintem_store::sources::SourceState;

use super::{AppState, Handlers, today};
use crate::caller::Caller;
use crate::problem::Refusal;
use crate::{App, answer};

#[derive(Serialize)]
struct StatusBody {
    status: &'static str,
    version: &'static str,
    synthetic: bool,
    as_of: String,
    sources: Vec<SourceBody>,
}

#[derive(Serialize)]
struct SourceBody {
    id: &'static str,
    name: &'static str,
    source: &'static str,
    rows: usize,
    newest_date: Option<NaiveDate>,
    generation: i64,
    loaded_at: Option<String>,
    /// When its publisher last gave a good answer, whether or not it was news.
    last_success_at: Option<String>,
    age_seconds: Option<i64>,
    next_expected_on: Option<NaiveDate>,
    quarantined: u64,
    synthetic: Option<bool>,
    stale: bool,
}

pub fn handlers() -> Handlers {
    vec![("get_status", get(get_status))]
}

async fn get_status(caller: Caller, State(app): AppState) -> Result<Response, Refusal> {
    let snapshot = app.snapshot()?;
    let today = today(&app);
    let sources = Dataset::all().map(|dataset| {
        let state = snapshot.state(dataset);
        let (rows, newest_date) = held(&snapshot, dataset, today);
        let asked = sources_of(&app, dataset);
        let last_success_at = last_success_at(&asked);
        let (now, quarantined) = (app.clock.now(), asked.iter().map(|source| source.quarantined).sum());
        SourceBody {
            id: dataset.id(),
            name: dataset.name().in_lang(caller.lang),
            source: dataset.source(),
            rows,
            newest_date,
            generation: snapshot.generation(dataset),
            loaded_at: state.map(|state| instant(state.loaded_at)),
            last_success_at: last_success_at.map(instant),
            age_seconds: last_success_at.map(|at| (now - at).num_seconds().max(0)),
            next_expected_on: newest_date.map(|newest| dataset.next_expected_on(newest)),
            quarantined,
            synthetic: state.map(|state| state.origin == Origin::Synthetic),
            stale: is_stale(&app, &snapshot, dataset),
        }
    });
    let body = StatusBody {
        status: verdict(&app, Some(&snapshot)),
        version: VERSION,
        synthetic: snapshot.is_synthetic(),
        as_of: instant(app.clock.now()),
        sources: sources.collect(),
    };
    Ok(answer::uncached(StatusCode::OK, &body))
}

/// `ok`, or `degraded` where something is missing, overdue, or a dependency is away.
pub fn verdict(app: &App, snapshot: Option<&Snapshot>) -> &'static str {
    let whole = |snapshot: &Snapshot| Dataset::all().all(|dataset| !is_stale(app, snapshot, dataset));
    if app.dependencies_answer() && snapshot.is_some_and(whole) { "ok" } else { "degraded" }
}

/// What was never loaded is overdue.
pub fn is_stale(app: &App, snapshot: &Snapshot, dataset: Dataset) -> bool {
    let today = today(app);
    match held(snapshot, dataset, today) {
        (0, _) => true,
        (_, Some(newest)) => dataset.is_stale(newest, today),
        // The registry's rows carry no date that moves: that nobody could read it is what makes it old.
        (_, None) => last_success_at(&sources_of(app, dataset))
            .is_some_and(|asked| app.clock.now() - asked > TimeDelta::days(REGISTRY_DAYS)),
    }
}

/// The registry is rewritten each day; a long weekend's silence is nothing.
const REGISTRY_DAYS: i64 = 4;

/// The sources that fill a dataset.
fn sources_of(app: &App, dataset: Dataset) -> Vec<SourceState> {
    let fills = |source: &&SourceState| {
        source.source == dataset.id() || (dataset == Dataset::Filings && FilingSet::from_id(&source.source).is_some())
    };
    app.snapshot.sources().iter().filter(fills).cloned().collect()
}

/// That of the source which was answered the longest ago; none while one never was.
fn last_success_at(sources: &[SourceState]) -> Option<DateTime<Utc>> {
    sources.iter().map(|source| source.checked_at).collect::<Option<Vec<_>>>()?.into_iter().min()
}

/// The rows that are served, and the newest of their dates.
pub fn held(snapshot: &Snapshot, dataset: Dataset, today: NaiveDate) -> (usize, Option<NaiveDate>) {
    match dataset {
        Dataset::Series(series) => snapshot.series(series).map_or((0, None), |values| {
            let served = values.range(DateRange::ALL.until(today));
            (served.len(), served.last().map(|at| values.get(at).0))
        }),
        Dataset::Fx => snapshot.fx().map_or((0, None), |fx| (fx.len(), fx.newest().map(|day| day.min(today)))),
        Dataset::Companies => (snapshot.companies().map_or(0, vintem_snapshot::Companies::len), None),
        Dataset::Filings => snapshot.filings().map_or((0, None), |filings| {
            let days = DateRange::ALL.until(today);
            let served = filings.list(&FilingFilter::of_days(days), 0, 1);
            (served.total, served.rows.first().map(|row| filings.get(*row).filing.delivered_on))
        }),
    }
}

pub fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}
