//! `/status`: how new each source is, its last 90 days, and whether the API itself is well; the same as an Atom feed.

use std::collections::{BTreeMap, HashSet};

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Days, NaiveDate, SecondsFormat, Utc};
use http::header;
use vintem_domain::dates::{sao_paulo_day, sao_paulo_end};
use vintem_domain::lang::{Lang, Text};
use vintem_domain::series::Frequency;
use vintem_domain::{Currency, Dataset, DateRange, Problem};
use vintem_snapshot::{FilingFilter, Freshness, Snapshot};

use crate::layout::{Asked, Head, Layout, Styles, html_response};
use crate::market::Subject;
use crate::notation::{day, grouped, instant, period};
use crate::{PageSettings, Shared, refuse};

const SHOWN_DAYS: u64 = 90;
const TALL: u32 = 28;
const SHORT: u32 = 6;
/// So far ahead it is looked for the day on which a source became overdue.
const LONGEST_SILENCE: usize = 400;

#[derive(Template)]
#[template(path = "status.html")]
struct StatusPage {
    page: Layout,
    /// The engines answer, and nothing is overdue.
    healthy: bool,
    engines: bool,
    now: String,
    now_shown: String,
    sources: Vec<SourceShown>,
}

struct SourceShown {
    name: &'static str,
    /// Its own page, if it has one.
    link: Option<String>,
    publisher: &'static str,
    rows: String,
    newest: Option<String>,
    next: Option<String>,
    asked: Option<String>,
    never: bool,
    stale: bool,
    bars: Vec<Bar>,
    spoken: String,
}

struct Bar {
    class: &'static str,
    height: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OnDay {
    There,
    /// A value was to be expected, and is not there.
    Absent,
    Nothing,
}

const TITLE: Text = Text::new("Status", "Situação");
const DESCRIPTION: Text = Text::new(
    "How new each source is, when the next value is expected, and its last 90 days.",
    "Quão nova é cada fonte, quando se espera o próximo valor e seus últimos 90 dias.",
);

pub(crate) async fn show_status(State(settings): State<Shared>, asked: Asked) -> Response {
    let (lang, now) = (asked.lang(), settings.clock.now());
    let snapshot = settings.snapshot.get();
    let engines = (settings.engines_answer)();
    let whole = snapshot.as_deref().is_some_and(|snapshot| settings.snapshot.is_whole(snapshot, now));
    let sources = snapshot
        .as_deref()
        .map(|snapshot| Dataset::all().map(|dataset| shown(&settings, snapshot, dataset, lang)).collect());
    let status = StatusPage {
        page: Layout::new(&settings, &asked, Head::new(lang, "/status", TITLE, DESCRIPTION)),
        healthy: engines && whole,
        engines,
        now: seconds(now),
        now_shown: instant(now, lang),
        sources: sources.unwrap_or_default(),
    };
    html_response(&status, &status.page, Styles::File)
}

fn shown(settings: &PageSettings, snapshot: &Snapshot, dataset: Dataset, lang: Lang) -> SourceShown {
    let now = settings.clock.now();
    let fresh = settings.snapshot.freshness(snapshot, dataset, now);
    let frequency = frequency(dataset);
    let days = on_days(snapshot, dataset, sao_paulo_day(now));
    let link = match dataset {
        Dataset::Series(series) => Some(Subject::Series(series)),
        Dataset::Fx => Some(Subject::Rate(Currency::Usd)),
        Dataset::Companies | Dataset::Filings => None,
    };
    SourceShown {
        name: dataset.name().in_lang(lang),
        link: link.map(|subject| format!("/series/{}", subject.id())),
        publisher: dataset.source(),
        rows: grouped(fresh.rows, lang),
        newest: fresh.newest.map(|newest| period(newest, frequency, lang)),
        next: fresh.next_expected_on.map(|next| day(next, lang)),
        asked: fresh.last_success_at.map(|at| instant(at, lang)),
        never: fresh.rows == 0,
        stale: fresh.stale,
        spoken: in_words(&days, lang),
        bars: days.into_iter().map(bar).collect(),
    }
}

fn bar(day: OnDay) -> Bar {
    match day {
        OnDay::There => Bar { class: "there", height: TALL },
        OnDay::Absent => Bar { class: "absent", height: TALL },
        OnDay::Nothing => Bar { class: "none", height: SHORT },
    }
}

fn in_words(days: &[OnDay], lang: Lang) -> String {
    let count = |wanted: OnDay| days.iter().filter(|day| **day == wanted).count();
    let (there, absent) = (count(OnDay::There), count(OnDay::Absent));
    match lang {
        Lang::En => format!("Last 90 days: {there} with data, {absent} expected and missing"),
        Lang::Pt => format!("Últimos 90 dias: {there} com dados, {absent} esperados e ausentes"),
    }
}

fn frequency(dataset: Dataset) -> Frequency {
    match dataset {
        Dataset::Series(series) => series.frequency,
        Dataset::Fx => Frequency::BusinessDaily,
        Dataset::Companies | Dataset::Filings => Frequency::Daily,
    }
}

/// What the last 90 days brought, oldest first. Of series and rates the values of these days; of filings what was
/// delivered on them; of companies what the registry told us on them.
fn on_days(snapshot: &Snapshot, dataset: Dataset, today: NaiveDate) -> Vec<OnDay> {
    let days = DateRange { from: today - Days::new(SHOWN_DAYS - 1), to: today };
    let (there, expected) = match dataset {
        Dataset::Series(series) => {
            (days_of(Subject::Series(series), snapshot, days), expected(series.frequency, days, today))
        }
        Dataset::Fx => {
            (days_of(Subject::Rate(Currency::Usd), snapshot, days), expected(Frequency::BusinessDaily, days, today))
        }
        Dataset::Companies => (days_of_companies(snapshot), HashSet::new()),
        Dataset::Filings => (days_of_filings(snapshot, days), HashSet::new()),
    };
    let all = days.from.iter_days().take_while(|day| *day <= days.to);
    all.map(|day| match (there.contains(&day), expected.contains(&day)) {
        (true, _) => OnDay::There,
        (false, true) => OnDay::Absent,
        (false, false) => OnDay::Nothing,
    })
    .collect()
}

fn days_of(subject: Subject, snapshot: &Snapshot, days: DateRange) -> HashSet<NaiveDate> {
    let values = subject.values(snapshot);
    values.map(|values| values.points(days).into_iter().map(|(day, _)| day).collect()).unwrap_or_default()
}

/// What must be published by now.
fn expected(frequency: Frequency, days: DateRange, today: NaiveDate) -> HashSet<NaiveDate> {
    let is_due = |day: &NaiveDate| frequency.published_on(*day) < today;
    frequency.expected_days(days).into_iter().filter(is_due).collect()
}

fn days_of_companies(snapshot: &Snapshot) -> HashSet<NaiveDate> {
    let Some(companies) = snapshot.companies() else { return HashSet::new() };
    let rows = 0..u32::try_from(companies.len()).unwrap_or(u32::MAX);
    let mut seconds: Vec<u32> = rows.map(|row| companies.known(row).at).collect();
    // Most were told at the same moment.
    seconds.sort_unstable();
    seconds.dedup();
    let at = |second| DateTime::from_timestamp(i64::from(second), 0).map(sao_paulo_day);
    seconds.into_iter().filter_map(at).collect()
}

fn days_of_filings(snapshot: &Snapshot, days: DateRange) -> HashSet<NaiveDate> {
    let Some(filings) = snapshot.filings() else { return HashSet::new() };
    let is_there =
        |day: &NaiveDate| filings.list(&FilingFilter::of_days(DateRange { from: *day, to: *day }), 0, 0).total > 0;
    days.from.iter_days().take_while(|day| *day <= days.to).filter(is_there).collect()
}

/// An entry for how each source stands now: a new one when it has news, is overdue, or no longer is.
pub(crate) async fn get_status_feed(State(settings): State<Shared>, asked: Asked) -> Response {
    let Some(snapshot) = settings.snapshot.get() else { return refuse(Problem::DependencyAway) };
    let lang = asked.lang();
    let now = settings.clock.now();
    let mut entries: BTreeMap<(DateTime<Utc>, &str), String> = BTreeMap::new();
    for dataset in Dataset::all() {
        let fresh = settings.snapshot.freshness(&snapshot, dataset, now);
        let since = since(dataset, &fresh, now);
        entries.insert((since, dataset.id()), feed_entry(&settings.public_url, dataset, &fresh, since, lang));
    }
    let updated = entries.keys().map(|(at, _)| *at).max().unwrap_or(now);
    let url = xml(&settings.public_url);
    let title = Text::new("Vintém: status of the data", "Vintém: situação dos dados").in_lang(lang);
    let entries: String = entries.into_values().rev().collect();
    let feed = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<feed xmlns=\"http://www.w3.org/2005/Atom\">\n<title>{title}</title>\n\
         <id>{url}/status</id>\n<link href=\"{url}/status\"/>\n<link rel=\"self\" href=\"{url}/status.atom\"/>\n\
         <author><name>Vintém</name></author>\n<updated>{}</updated>\n{entries}</feed>\n",
        seconds(updated)
    );
    let headers =
        [(header::CONTENT_TYPE, "application/atom+xml; charset=utf-8"), (header::CACHE_CONTROL, "private, max-age=60")];
    (headers, feed).into_response()
}

/// Since when a source is as it is: since it was loaded, or became overdue.
fn since(dataset: Dataset, fresh: &Freshness, now: DateTime<Utc>) -> DateTime<Utc> {
    let loaded_at = fresh.loaded_at.unwrap_or(now);
    let Some(newest) = fresh.newest.filter(|_| fresh.stale) else { return loaded_at };
    let overdue = newest.iter_days().take(LONGEST_SILENCE).find(|day| dataset.is_stale(newest, *day));
    overdue.and_then(|day| day.pred_opt()).map_or(loaded_at, sao_paulo_end)
}

fn feed_entry(url: &str, dataset: Dataset, fresh: &Freshness, since: DateTime<Utc>, lang: Lang) -> String {
    let name = dataset.name().in_lang(lang);
    let state = match (fresh.rows, fresh.stale) {
        (0, _) => Text::new("never loaded", "nunca carregada"),
        (_, true) => Text::new("overdue", "atrasada"),
        (_, false) => Text::new("up to date", "em dia"),
    };
    let newest = fresh.newest.map(|newest| newest.to_string()).unwrap_or_default();
    let (url, state) = (xml(url), state.in_lang(lang));
    let summary = match lang {
        Lang::En => format!("{} rows, newest {newest}", fresh.rows),
        Lang::Pt => format!("{} linhas, mais recente {newest}", fresh.rows),
    };
    let id =
        format!("{url}/status#{}-{}-{}", dataset.id(), since.timestamp(), if fresh.stale { "overdue" } else { "ok" });
    format!(
        "<entry><title>{}: {state}</title><id>{id}</id><link href=\"{url}/status\"/><updated>{}</updated><summary>{summary}</summary></entry>\n",
        xml(name),
        seconds(since)
    )
}

/// Text of an element or an attribute.
pub(crate) fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn seconds(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}
