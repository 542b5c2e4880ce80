//! `/status`: how fresh each source is, its last 90 days, and the health of the API; also as an Atom feed.

use std::collections::{BTreeMap, HashSet};

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Days, NaiveDate, SecondsFormat, Utc};
use http::header;
use vintem_domain::dates::{sao_paulo_date, sao_paulo_day_end};
use vintem_domain::lang::{Lang, LocalizedText};
use vintem_domain::series::{FX_SCHEDULE, Frequency, Schedule};
use vintem_domain::{Currency, Dataset, DateRange, Problem};
use vintem_snapshot::{DatasetFreshness, FilingFilter, Snapshot};

use crate::context::{PageContext, SharedSettings};
use crate::formatting::{format_date, format_date_time, format_integer, format_period};
use crate::layout::{Layout, PageMetadata, PageRequest, StylePolicy, html_response};
use crate::market::SeriesOrRate;
use crate::problem_response::problem_response;

const HISTORY_DAYS: u64 = 90;
const FULL_BAR_HEIGHT: u32 = 28;
const EMPTY_BAR_HEIGHT: u32 = 6;
/// How many days after the newest value to search for the day when a source became stale.
const MAX_OVERDUE_SEARCH_DAYS: usize = 400;

#[derive(Template)]
#[template(path = "status.html")]
struct StatusPage {
    page: Layout,
    /// The backends are healthy, and no data is stale.
    healthy: bool,
    backends_healthy: bool,
    now: String,
    now_label: String,
    /// The sources whose days are shown, and those that have a few values a year.
    sources: Vec<SourceStatusCard>,
    slow_sources: Vec<SourceStatusCard>,
}

struct SourceStatusCard {
    name: &'static str,
    /// Its own page, if it has one.
    link: Option<String>,
    publisher: &'static str,
    rows: String,
    newest: Option<String>,
    next_expected: Option<String>,
    last_success: Option<String>,
    never_loaded: bool,
    late: bool,
    stale: bool,
    bars: Vec<DayBar>,
    bars_description: String,
}

struct DayBar {
    class: &'static str,
    height: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DayCoverage {
    Present,
    /// A value was expected, but there is none.
    Missing,
    NotExpected,
}

const TITLE: LocalizedText = LocalizedText::new("Status", "Status");
const DESCRIPTION: LocalizedText = LocalizedText::new(
    "Freshness of each source, its next expected value and its last 90 days.",
    "Última atualização, próximo valor previsto e últimos 90 dias de cada fonte.",
);

pub(crate) async fn show_status(State(settings): State<SharedSettings>, request: PageRequest) -> Response {
    let lang = request.lang();
    let now = settings.clock.now();
    let snapshot = settings.snapshot.get();
    let backends_healthy = (settings.backends_healthy)();
    let is_up_to_date =
        snapshot.as_deref().is_some_and(|snapshot| settings.snapshot.is_complete_and_fresh(snapshot, now));
    let all_datasets = snapshot.as_deref().into_iter().flat_map(|_| Dataset::all());
    let (slow, daily): (Vec<Dataset>, Vec<Dataset>) =
        all_datasets.partition(|dataset| dataset_frequency(*dataset).months().is_some());
    let cards = |datasets: Vec<Dataset>| -> Vec<SourceStatusCard> {
        let snapshot = snapshot.as_deref().into_iter();
        let pairs = snapshot.flat_map(|snapshot| datasets.iter().map(move |dataset| (snapshot, *dataset)));
        pairs.map(|(snapshot, dataset)| source_status_card(&settings, snapshot, dataset, lang)).collect()
    };

    let status = StatusPage {
        page: Layout::new(&settings, &request, PageMetadata::new(lang, "/status", TITLE, DESCRIPTION)),
        healthy: backends_healthy && is_up_to_date,
        backends_healthy,
        now: format_rfc3339(now),
        now_label: format_date_time(now, lang),
        sources: cards(daily),
        slow_sources: cards(slow),
    };
    html_response(&status, &status.page, StylePolicy::ExternalOnly)
}

fn source_status_card(settings: &PageContext, snapshot: &Snapshot, dataset: Dataset, lang: Lang) -> SourceStatusCard {
    let now = settings.clock.now();
    let freshness = settings.snapshot.freshness(snapshot, dataset, now);
    let frequency = dataset_frequency(dataset);
    let days = recent_day_coverage(snapshot, dataset, sao_paulo_date(now));
    let link = match dataset {
        Dataset::Series(series) => Some(SeriesOrRate::Series(series)),
        Dataset::Fx => Some(SeriesOrRate::ExchangeRate(Currency::Usd)),
        Dataset::Companies | Dataset::Filings | Dataset::Statements => None,
    };

    SourceStatusCard {
        name: dataset.name().in_lang(lang),
        link: link.map(|subject| format!("/series/{}", subject.id())),
        publisher: dataset.source_name(),
        rows: format_integer(freshness.rows, lang),
        newest: freshness.newest_date.map(|newest| format_period(newest, frequency, lang)),
        next_expected: freshness.next_expected_on.map(|next| format_date(next, lang)),
        last_success: freshness.last_success_at.map(|at| format_date_time(at, lang)),
        never_loaded: freshness.rows == 0,
        late: freshness.late,
        stale: freshness.stale,
        bars_description: describe_days(&days, lang),
        bars: days.into_iter().map(day_bar).collect(),
    }
}

fn day_bar(day: DayCoverage) -> DayBar {
    match day {
        DayCoverage::Present => DayBar { class: "there", height: FULL_BAR_HEIGHT },
        DayCoverage::Missing => DayBar { class: "absent", height: FULL_BAR_HEIGHT },
        DayCoverage::NotExpected => DayBar { class: "none", height: EMPTY_BAR_HEIGHT },
    }
}

fn describe_days(days: &[DayCoverage], lang: Lang) -> String {
    let count = |coverage: DayCoverage| days.iter().filter(|day| **day == coverage).count();
    let present = count(DayCoverage::Present);
    let missing = count(DayCoverage::Missing);
    match lang {
        Lang::En => format!("Last 90 days: {present} with data, {missing} with a missing value"),
        Lang::Pt => format!("Últimos 90 dias: {present} com dados, {missing} com um valor faltando"),
    }
}

fn dataset_frequency(dataset: Dataset) -> Frequency {
    match dataset {
        Dataset::Series(series) => series.frequency,
        Dataset::Fx => FX_SCHEDULE.frequency,
        Dataset::Companies | Dataset::Filings | Dataset::Statements => Frequency::Daily,
    }
}

/// The last 90 days, oldest first. A day is present if a series or rate has a value for that day, if filings were
/// delivered on that day, or if the company registry changed.
fn recent_day_coverage(snapshot: &Snapshot, dataset: Dataset, today: NaiveDate) -> Vec<DayCoverage> {
    let days = DateRange { from: today - Days::new(HISTORY_DAYS - 1), to: today };
    let (present, expected) = match dataset {
        Dataset::Series(series) => {
            (days_with_values(SeriesOrRate::Series(series), snapshot, days), due_days(series.schedule(), days, today))
        }
        Dataset::Fx => (
            days_with_values(SeriesOrRate::ExchangeRate(Currency::Usd), snapshot, days),
            due_days(FX_SCHEDULE, days, today),
        ),
        Dataset::Companies => (days_with_company_updates(snapshot), HashSet::new()),
        Dataset::Filings => (days_with_filings(snapshot, days), HashSet::new()),
        Dataset::Statements => Default::default(),
    };

    let all = days.from.iter_days().take_while(|day| *day <= days.to);
    all.map(|day| match (present.contains(&day), expected.contains(&day)) {
        (true, _) => DayCoverage::Present,
        (false, true) => DayCoverage::Missing,
        (false, false) => DayCoverage::NotExpected,
    })
    .collect()
}

fn days_with_values(subject: SeriesOrRate, snapshot: &Snapshot, days: DateRange) -> HashSet<NaiveDate> {
    let values = subject.values(snapshot);
    values.map(|values| values.points(days).into_iter().map(|(day, _)| day).collect()).unwrap_or_default()
}

/// The days whose values should be published by now.
fn due_days(schedule: Schedule, days: DateRange, today: NaiveDate) -> HashSet<NaiveDate> {
    let is_due = |day: &NaiveDate| schedule.certainly_published_on(*day) < today;
    schedule.frequency.expected_dates(days).into_iter().filter(is_due).collect()
}

fn days_with_company_updates(snapshot: &Snapshot) -> HashSet<NaiveDate> {
    let Some(companies) = snapshot.companies() else { return HashSet::new() };
    let rows = 0..u32::try_from(companies.len()).unwrap_or(u32::MAX);
    let mut seconds: Vec<u32> = rows.map(|row| companies.provenance(row).known_at_seconds).collect();

    // Most rows have the same time.
    seconds.sort_unstable();
    seconds.dedup();

    let date = |second| DateTime::from_timestamp(i64::from(second), 0).map(sao_paulo_date);
    seconds.into_iter().filter_map(date).collect()
}

fn days_with_filings(snapshot: &Snapshot, days: DateRange) -> HashSet<NaiveDate> {
    let Some(filings) = snapshot.filings() else { return HashSet::new() };
    let has_filings =
        |day: &NaiveDate| filings.list(&FilingFilter::for_days(DateRange { from: *day, to: *day }), 0, 0).total > 0;
    days.from.iter_days().take_while(|day| *day <= days.to).filter(has_filings).collect()
}

/// One entry for the current status of each source. A source gets a new entry when it has new data, becomes stale or
/// recovers.
pub(crate) async fn get_status_feed(State(settings): State<SharedSettings>, request: PageRequest) -> Response {
    let Some(snapshot) = settings.snapshot.get() else { return problem_response(Problem::DependencyUnavailable) };
    let lang = request.lang();
    let now = settings.clock.now();

    let mut entries: BTreeMap<(DateTime<Utc>, &str), String> = BTreeMap::new();
    for dataset in Dataset::all() {
        let freshness = settings.snapshot.freshness(&snapshot, dataset, now);
        let since = status_since(dataset, &freshness, now);
        let entry = render_feed_entry(&settings.public_url, dataset, &freshness, since, lang);
        entries.insert((since, dataset.id()), entry);
    }

    let updated = entries.keys().map(|(at, _)| *at).max().unwrap_or(now);
    let url = escape_xml(&settings.public_url);
    let title = LocalizedText::new("Vintém: data status", "Vintém: status dos dados").in_lang(lang);
    let entries: String = entries.into_values().rev().collect();
    let feed = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<feed xmlns=\"http://www.w3.org/2005/Atom\">\n<title>{title}</title>\n\
         <id>{url}/status</id>\n<link href=\"{url}/status\"/>\n<link rel=\"self\" href=\"{url}/status.atom\"/>\n\
         <author><name>Vintém</name></author>\n<updated>{}</updated>\n{entries}</feed>\n",
        format_rfc3339(updated)
    );
    let headers =
        [(header::CONTENT_TYPE, "application/atom+xml; charset=utf-8"), (header::CACHE_CONTROL, "private, max-age=60")];
    (headers, feed).into_response()
}

/// When the current status of a source began: when it was loaded, or when it became stale.
fn status_since(dataset: Dataset, freshness: &DatasetFreshness, now: DateTime<Utc>) -> DateTime<Utc> {
    let loaded_at = freshness.loaded_at.unwrap_or(now);
    let Some(newest) = freshness.newest_date.filter(|_| freshness.stale) else { return loaded_at };
    let overdue = newest.iter_days().take(MAX_OVERDUE_SEARCH_DAYS).find(|day| dataset.is_stale(newest, *day));
    overdue.and_then(|day| day.pred_opt()).map_or(loaded_at, sao_paulo_day_end)
}

fn render_feed_entry(
    url: &str,
    dataset: Dataset,
    freshness: &DatasetFreshness,
    since: DateTime<Utc>,
    lang: Lang,
) -> String {
    let name = dataset.name().in_lang(lang);
    let state = match (freshness.rows, freshness.stale) {
        (0, _) => LocalizedText::new("never loaded", "nunca carregada"),
        (_, true) => LocalizedText::new("stale", "desatualizada"),
        (_, false) => LocalizedText::new("up to date", "em dia"),
    };
    let newest = freshness.newest_date.map(|newest| newest.to_string()).unwrap_or_default();
    let url = escape_xml(url);
    let state = state.in_lang(lang);

    let summary = match lang {
        Lang::En => format!("{} rows, latest {newest}", freshness.rows),
        Lang::Pt => format!("{} registros, mais recente: {newest}", freshness.rows),
    };
    let id = format!(
        "{url}/status#{}-{}-{}",
        dataset.id(),
        since.timestamp(),
        if freshness.stale { "overdue" } else { "ok" }
    );
    format!(
        "<entry><title>{}: {state}</title><id>{id}</id><link href=\"{url}/status\"/><updated>{}</updated><summary>{summary}</summary></entry>\n",
        escape_xml(name),
        format_rfc3339(since)
    )
}

/// Escapes the text of an element or attribute.
pub(crate) fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn format_rfc3339(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}
