//! `/search?q=`: at most ten hits among series, companies and filings. The API returns longer lists.

use askama::Template;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::StatusCode;
use percent_encoding::percent_decode_str;
use vintem_domain::AddressBucket;
use vintem_domain::catalog_search::{CatalogSearch, MatchRank};
use vintem_domain::lang::{Lang, LocalizedText};
use vintem_domain::route::route_by_operation;
use vintem_snapshot::{RowPage, Snapshot};

use crate::companies::filing_list_item;
use crate::context::SharedSettings;
use crate::formatting::format_integer;
use crate::layout::{Layout, MAX_PAGE_ROWS, PageMetadata, PageRequest, StylePolicy, html_response};
use crate::market::SeriesOrRate;
use crate::problem_response::problem_response;

const MAX_QUERY_CHARS: usize = 200;
const MAX_SERIES_HITS: usize = 3;
/// Shorter texts begin the words of too many series.
const MIN_SERIES_QUERY_CHARS: usize = 3;
/// More companies are shown only if filings leave room.
const MAX_COMPANY_HITS: usize = 5;

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage {
    page: Layout,
    q: String,
    problem: Option<&'static str>,
    summary: String,
    hits: Vec<SearchPageHit>,
    /// The lowest plan that includes the search of the API.
    plan: &'static str,
}

struct SearchPageHit {
    title: String,
    text: String,
    link: String,
    /// Whether it links to the site of the publisher.
    external: bool,
}

const TITLE: LocalizedText = LocalizedText::new("Search", "Busca");
const DESCRIPTION: LocalizedText = LocalizedText::new(
    "Find companies by name, ticker or CNPJ, and filings by subject.",
    "Encontre companhias por nome, ticker ou CNPJ, e documentos pelo assunto.",
);
const QUERY_TOO_LONG: LocalizedText = LocalizedText::new(
    "The search text is too long. Use at most 200 characters.",
    "O texto da busca é longo demais. Use no máximo 200 caracteres.",
);

pub(crate) async fn show_search(
    State(settings): State<SharedSettings>,
    Extension(address): Extension<AddressBucket>,
    request: PageRequest,
) -> Response {
    let lang = request.lang();
    let q = parse_search_query(request.uri.query().unwrap_or(""));
    let mut search = SearchPage {
        page: Layout::new(&settings, &request, PageMetadata::new(lang, "/search", TITLE, DESCRIPTION).noindex()),
        problem: None,
        summary: String::new(),
        hits: Vec::new(),
        plan: route_by_operation("search").plan.name(),
        q,
    };

    if search.q.chars().count() > MAX_QUERY_CHARS {
        search.problem = Some(QUERY_TOO_LONG.in_lang(lang));
        let mut response = html_response(&search, &search.page, StylePolicy::ExternalOnly);
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    }

    if !search.q.is_empty() {
        match (settings.search)(address, search.q.clone(), MAX_PAGE_ROWS).await {
            Ok((snapshot, [companies, filings])) => {
                search.summary = format_totals(companies.total, filings.total, lang);
                search.hits = collect_hits(&search.q, &snapshot, &companies, &filings, lang);
            }
            Err(problem) => return problem_response(problem),
        }
    }
    html_response(&search, &search.page, StylePolicy::ExternalOnly)
}

/// Decodes `q` from a form-encoded query string.
pub(crate) fn parse_search_query(query: &str) -> String {
    let typed = query.split('&').find_map(|pair| pair.strip_prefix("q=")).unwrap_or("");
    let typed = typed.replace('+', " ");
    percent_decode_str(&typed).decode_utf8_lossy().trim().to_owned()
}

fn format_totals(companies: usize, filings: usize, lang: Lang) -> String {
    let companies = format_integer(companies, lang);
    let filings = format_integer(filings, lang);
    match lang {
        Lang::En => format!("Companies: {companies}. Filings: {filings}."),
        Lang::Pt => format!("Companhias: {companies}. Documentos: {filings}."),
    }
}

fn collect_hits(
    q: &str,
    snapshot: &Snapshot,
    companies: &RowPage,
    filings: &RowPage,
    lang: Lang,
) -> Vec<SearchPageHit> {
    let mut hits: Vec<SearchPageHit> = find_series_hits(q, lang);

    let found_companies =
        snapshot.companies().into_iter().flat_map(|all| companies.rows.iter().map(|row| all.get(*row)));
    let mut company_hits = found_companies.map(|company| SearchPageHit {
        title: company.name.clone(),
        text: [
            company.tickers.join(", "),
            company.cnpj.map(|cnpj| cnpj.to_string()).unwrap_or_default(),
            company.sector.clone(),
            company.status.clone(),
        ]
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join(" · "),
        link: format!("/companies/{}", company.id),
        external: false,
    });
    hits.extend(company_hits.by_ref().take(MAX_COMPANY_HITS));

    let views = snapshot.filings().into_iter().flat_map(|all| filings.rows.iter().map(|row| all.get(*row)));
    hits.extend(
        views
            .map(|view| {
                let item = filing_list_item(&view, lang);
                let company_url = format!("/companies/{}", view.filing.company_id);
                let text = format!("{} · {} · {}", view.filing.company_name, item.date_label, item.category);
                SearchPageHit {
                    title: item.title,
                    text,
                    external: item.url.is_some(),
                    link: item.url.unwrap_or(company_url),
                }
            })
            .take(MAX_PAGE_ROWS.saturating_sub(hits.len())),
    );

    hits.extend(company_hits);
    hits.truncate(MAX_PAGE_ROWS);
    hits
}

/// The series that match best, as in the catalog. Words of a publisher rather mean a company.
fn find_series_hits(q: &str, lang: Lang) -> Vec<SearchPageHit> {
    let is_long = q.chars().count() >= MIN_SERIES_QUERY_CHARS;
    let search = CatalogSearch::new(q, None);
    let max_rank = if is_long { MatchRank::Tag } else { MatchRank::Identifier };
    let ranked = SeriesOrRate::all().filter_map(|subject| Some((subject.rank(&search)?, subject)));
    let mut found: Vec<(MatchRank, SeriesOrRate)> = ranked.filter(|(rank, _)| *rank <= max_rank).collect();
    found.sort_by_key(|(rank, _)| *rank);
    let best = found.into_iter().map(|(_, subject)| subject).take(MAX_SERIES_HITS);
    best.map(|subject| SearchPageHit {
        title: subject.name(lang).to_owned(),
        text: subject.unit(lang),
        link: format!("/series/{}", subject.id()),
        external: false,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_encoded_query_is_decoded() {
        assert_eq!(parse_search_query("lang=pt&q=Petr%C3%B3leo+brasileiro+"), "Petróleo brasileiro");
        assert_eq!(parse_search_query("q="), "");
        assert_eq!(parse_search_query(""), "");
        assert_eq!(parse_search_query("q=%FF"), "\u{fffd}");
    }

    #[test]
    fn series_are_found_by_name_and_code() {
        let links = |q| find_series_hits(q, Lang::En).into_iter().map(|hit| hit.link).collect::<Vec<_>>();
        assert_eq!(links("DÓLAR AMERICANO"), ["/series/usd-brl"]);
        assert_eq!(links("cdi"), ["/series/cdi", "/series/cdi-daily", "/series/cdi-month"]);
        assert_eq!(links("aluguel"), ["/series/igp-m"]);
        assert_eq!(links("tr"), ["/series/tr"]);
        assert!(links("se").is_empty());
        assert!(links("banco do brasil").is_empty());
        assert!(links("").is_empty());
    }
}
