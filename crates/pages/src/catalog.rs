//! `/series` and `/series/group/{id}`: all series and exchange rates by group, with their latest values, and a search.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use chrono::NaiveDate;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use vintem_domain::catalog_search::{CatalogSearch, MatchRank};
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::lang::{Lang, LocalizedText};
use vintem_domain::series::SeriesGroup;
use vintem_domain::{DateRange, Problem};
use vintem_snapshot::Snapshot;

use crate::context::SharedSettings;
use crate::formatting::format_decimal;
use crate::layout::{Layout, PageMetadata, PageRequest, StylePolicy, html_response};
use crate::market::SeriesOrRate;
use crate::problem_response::problem_response;
use crate::search::parse_search_query;

/// As in the API. Longer queries are truncated, because a page shows no error.
const MAX_QUERY_CHARS: usize = 200;

const TITLE: LocalizedText = LocalizedText::new("All series", "Todas as séries");
const DESCRIPTION: LocalizedText = LocalizedText::new(
    "Interest rates, price indices, credit, public debt and exchange rates of Brazil: each series with its code, unit and source.",
    "Juros, índices de preços, crédito, dívida pública e câmbio do Brasil: cada série com código, unidade e fonte.",
);

#[derive(Template)]
#[template(path = "catalog.html")]
struct CatalogPage {
    page: Layout,
    heading: &'static str,
    introduction: &'static str,
    query: String,
    groups: Vec<GroupLink>,
    sections: Vec<GroupSection>,
    api_path: String,
}

struct GroupLink {
    path: String,
    name: &'static str,
    is_current: bool,
}

struct GroupSection {
    id: &'static str,
    name: &'static str,
    rows: Vec<CatalogRow>,
}

struct CatalogRow {
    rank: MatchRank,
    id: String,
    name: &'static str,
    value: String,
    unit: String,
    date: String,
}

pub(crate) async fn show_catalog(State(settings): State<SharedSettings>, request: PageRequest) -> Response {
    let query = parse_search_query(request.uri.query().unwrap_or_default());
    let query = query.chars().take(MAX_QUERY_CHARS).collect();
    catalog_response(&settings, &request, None, query)
}

pub(crate) async fn show_series_group(
    State(settings): State<SharedSettings>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Response {
    match SeriesGroup::from_id(&id) {
        Some(group) => catalog_response(&settings, &request, Some(group), String::new()),
        None => problem_response(Problem::NoSuchPath),
    }
}

fn catalog_response(
    settings: &SharedSettings,
    request: &PageRequest,
    group: Option<SeriesGroup>,
    query: String,
) -> Response {
    let lang = request.lang();
    let snapshot = settings.snapshot.get();
    let search = CatalogSearch::new(&query, group);
    let today = sao_paulo_date(settings.clock.now());
    let sections = SeriesGroup::ALL.into_iter().filter_map(|group| {
        let subjects = SeriesOrRate::all().filter(|subject| subject.group() == group);
        let mut rows: Vec<CatalogRow> = subjects
            .filter_map(|subject| {
                let rank = subject.rank(&search)?;
                Some(catalog_row(subject, rank, snapshot.as_deref(), today, lang))
            })
            .collect();
        rows.sort_by_key(|row| row.rank);
        (!rows.is_empty()).then(|| GroupSection { id: group.id(), name: group.name().in_lang(lang), rows })
    });
    let mut sections: Vec<GroupSection> = sections.collect();
    if !query.trim().is_empty() {
        sections.sort_by_key(|section| section.rows.first().map(|row| row.rank));
    }

    let api_path = match group {
        Some(group) => format!("/api/v1/market/series?group={}", group.id()),
        None if query.trim().is_empty() => "/api/v1/market/series".to_owned(),
        None => format!("/api/v1/market/series?q={}", utf8_percent_encode(query.trim(), NON_ALPHANUMERIC)),
    };
    let path = group.map_or("/series".to_owned(), group_path);
    let title = group.map_or(TITLE, SeriesGroup::name);
    let metadata = PageMetadata::new(lang, &path, title, DESCRIPTION);
    let groups = SeriesGroup::ALL.map(|other| GroupLink {
        path: group_path(other),
        name: other.name().in_lang(lang),
        is_current: group == Some(other),
    });
    let catalog = CatalogPage {
        page: Layout::new(settings, request, metadata),
        heading: title.in_lang(lang),
        introduction: DESCRIPTION.in_lang(lang),
        query,
        groups: groups.into(),
        sections,
        api_path,
    };
    html_response(&catalog, &catalog.page, StylePolicy::ExternalOnly)
}

pub(crate) fn group_path(group: SeriesGroup) -> String {
    format!("/series/group/{}", group.id())
}

/// Series that were never loaded have no value.
fn catalog_row(
    subject: SeriesOrRate,
    rank: MatchRank,
    snapshot: Option<&Snapshot>,
    today: NaiveDate,
    lang: Lang,
) -> CatalogRow {
    let newest = snapshot.and_then(|snapshot| {
        let values = subject.values(snapshot)?;
        let index = values.range(DateRange::ALL.capped_at(today)).next_back()?;
        let (_, value) = values.get(index)?;
        Some((format_decimal(value, lang), values.date_label(index, subject.frequency(), lang)))
    });
    let (value, date) = newest.unwrap_or_else(|| ("–".to_owned(), String::new()));
    CatalogRow { rank, id: subject.id(), name: subject.name(lang), value, unit: subject.unit(lang), date }
}
