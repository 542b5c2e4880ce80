//! HTML error pages (404, 429, 500 and so on) for browsers. Programs get the same problems as JSON.

use askama::Template;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use vintem_domain::Problem;
use vintem_domain::lang::LocalizedText;
use vintem_domain::problem::ErrorCode;

use crate::context::PageContext;
use crate::layout::{Layout, PageMetadata, PageRequest, StylePolicy, html_response};

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    page: Layout,
    status: u16,
    heading: &'static str,
    message: String,
    request_id: &'a str,
}

pub(crate) fn render_problem_page(
    settings: &PageContext,
    problem: &Problem,
    headers: &HeaderMap,
    uri: &Uri,
    request_id: &str,
) -> Response {
    let request = PageRequest { headers: headers.clone(), uri: uri.clone() };
    let lang = request.lang();
    let heading = problem_heading(problem.code()).in_lang(lang);
    // The path of the request, so that the language switch leads back to this page.
    let metadata = PageMetadata::with_title(uri.path(), format!("{heading} · Vintém"), problem.message(lang)).noindex();
    let page = ProblemPage {
        page: Layout::new(settings, &request, metadata),
        status: problem.status(),
        heading,
        message: problem.message(lang),
        request_id,
    };

    let mut response = html_response(&page, &page.page, StylePolicy::ExternalOnly);
    *response.status_mut() = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(seconds) = problem.retry_after_seconds() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

const fn problem_heading(code: ErrorCode) -> LocalizedText {
    match code {
        ErrorCode::NotFound => LocalizedText::new("Page not found", "Página não encontrada"),
        ErrorCode::RateLimited => LocalizedText::new("Too many requests", "Muitas requisições"),
        ErrorCode::DataUnavailable => LocalizedText::new("Data not loaded yet", "Dados ainda não carregados"),
        ErrorCode::ServiceUnavailable | ErrorCode::Overloaded => {
            LocalizedText::new("Temporarily unavailable", "Temporariamente indisponível")
        }
        ErrorCode::InternalError => LocalizedText::new("Internal error", "Erro interno"),
        _ => LocalizedText::new("Request refused", "Requisição recusada"),
    }
}
