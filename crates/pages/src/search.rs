//! `/search?q=`: ten hits at most, of series, companies and filings. It finds, it does not list.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use percent_encoding::percent_decode_str;
use vintem_domain::lang::{Lang, Text};
use vintem_domain::route::route;
use vintem_domain::text::fold;
use vintem_snapshot::{Found, Snapshot};

use crate::companies::filing;
use crate::layout::{Asked, Head, Layout, Styles, html_response};
use crate::market::Subject;
use crate::notation::grouped;
use crate::{MOST_SHOWN, Shared, refuse};

const LONGEST_QUERY: usize = 200;
const MOST_SERIES: usize = 3;
/// Of companies, where there are filings too.
const MOST_COMPANIES: usize = 5;

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage {
    page: Layout,
    q: String,
    problem: Option<&'static str>,
    summary: String,
    hits: Vec<Hit>,
    /// From which plan on all of them are found.
    plan: &'static str,
}

struct Hit {
    title: String,
    text: String,
    link: String,
    /// Leads to the publisher.
    external: bool,
}

const TITLE: Text = Text::new("Search", "Busca");
const DESCRIPTION: Text = Text::new(
    "Companies by name, ticker or CNPJ, and filings by what they are about.",
    "Companhias por nome, ticker ou CNPJ, e documentos pelo assunto.",
);
const TOO_LONG: Text = Text::new("Please search for at most 200 characters.", "Busque por no máximo 200 caracteres.");

pub(crate) async fn show_search(State(settings): State<Shared>, asked: Asked) -> Response {
    let (lang, q) = (asked.lang(), searched_for(asked.uri.query().unwrap_or("")));
    let mut search = SearchPage {
        page: Layout::new(&settings, &asked, Head::new(lang, "/search", TITLE, DESCRIPTION).not_to_be_found()),
        problem: None,
        summary: String::new(),
        hits: Vec::new(),
        plan: route("search").plan.name(),
        q,
    };
    if search.q.chars().count() > LONGEST_QUERY {
        search.problem = Some(TOO_LONG.in_lang(lang));
        let mut response = html_response(&search, &search.page, Styles::File);
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    }
    if !search.q.is_empty() {
        match (settings.search)(search.q.clone(), MOST_SHOWN).await {
            Ok((snapshot, [companies, filings])) => {
                search.summary = summary(companies.total, filings.total, lang);
                search.hits = hits(&search.q, &snapshot, &companies, &filings, lang);
            }
            Err(problem) => return refuse(problem),
        }
    }
    html_response(&search, &search.page, Styles::File)
}

/// What was typed, as forms send it.
fn searched_for(query: &str) -> String {
    let typed = query.split('&').find_map(|pair| pair.strip_prefix("q=")).unwrap_or("");
    let typed = typed.replace('+', " ");
    percent_decode_str(&typed).decode_utf8_lossy().trim().to_owned()
}

fn summary(companies: usize, filings: usize, lang: Lang) -> String {
    let (companies, filings) = (grouped(companies, lang), grouped(filings, lang));
    match lang {
        Lang::En => format!("Companies: {companies}. Filings: {filings}."),
        Lang::Pt => format!("Companhias: {companies}. Documentos: {filings}."),
    }
}

fn hits(q: &str, snapshot: &Snapshot, companies: &Found, filings: &Found, lang: Lang) -> Vec<Hit> {
    let mut hits: Vec<Hit> = series_hits(q, lang).collect();
    let all_companies = snapshot.companies().into_iter().flat_map(|all| companies.rows.iter().map(|row| all.get(*row)));
    let mut companies = all_companies.map(|company| Hit {
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
    hits.extend(companies.by_ref().take(MOST_COMPANIES));
    let views = snapshot.filings().into_iter().flat_map(|all| filings.rows.iter().map(|row| all.get(*row)));
    hits.extend(
        views
            .map(|view| {
                let shown = filing(&view, lang);
                let own = format!("/companies/{}", view.filing.company_id);
                let text = format!("{} · {} · {}", view.filing.company_name, shown.day, shown.category);
                Hit { title: shown.title, text, external: shown.url.is_some(), link: shown.url.unwrap_or(own) }
            })
            .take(MOST_SHOWN.saturating_sub(hits.len())),
    );
    hits.extend(companies);
    hits.truncate(MOST_SHOWN);
    hits
}

/// Series whose name or id has what was typed.
fn series_hits(q: &str, lang: Lang) -> impl Iterator<Item = Hit> {
    let q = fold(q);
    let has = move |subject: &Subject| {
        let names = [subject.id(), subject.name(Lang::En).to_owned(), subject.name(Lang::Pt).to_owned()];
        q.len() > 2 && names.iter().any(|name| fold(name).contains(&q))
    };
    Subject::all().filter(has).take(MOST_SERIES).map(move |subject| Hit {
        title: subject.name(lang).to_owned(),
        text: subject.unit(lang),
        link: format!("/series/{}", subject.id()),
        external: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_forms_send_is_read() {
        assert_eq!(searched_for("lang=pt&q=Petr%C3%B3leo+brasileiro+"), "Petróleo brasileiro");
        assert_eq!(searched_for("q="), "");
        assert_eq!(searched_for(""), "");
        assert_eq!(searched_for("q=%FF"), "\u{fffd}");
    }

    #[test]
    fn series_are_found_by_name_and_code() {
        let found = |q| series_hits(q, Lang::En).map(|hit| hit.link).collect::<Vec<_>>();
        assert_eq!(found("DÓLAR AMERICANO"), ["/series/usd-brl"]);
        assert_eq!(found("cdi"), ["/series/cdi", "/series/cdi-daily"]);
        assert!(found("se").is_empty());
    }
}
