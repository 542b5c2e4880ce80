//! What a person is told where a program would be told a problem: 404, 429, 500 and the like.

use askama::Template;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use vintem_domain::Problem;
use vintem_domain::lang::Text;
use vintem_domain::problem::Code;

use crate::PageSettings;
use crate::layout::{Asked, Head, Layout, Styles, html_response};

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    page: Layout,
    status: u16,
    heading: &'static str,
    message: String,
    request_id: &'a str,
}

pub(crate) fn show(
    settings: &PageSettings,
    problem: &Problem,
    headers: &HeaderMap,
    uri: &Uri,
    request_id: &str,
) -> Response {
    let asked = Asked { headers: headers.clone(), uri: uri.clone() };
    let lang = asked.lang();
    let heading = heading(problem.code()).in_lang(lang);
    // The switch of the language leads back to here.
    let head = Head::named(uri.path(), format!("{heading} · Vintém"), problem.message(lang)).not_to_be_found();
    let page = ProblemPage {
        page: Layout::new(settings, &asked, head),
        status: problem.status(),
        heading,
        message: problem.message(lang),
        request_id,
    };
    let mut response = html_response(&page, &page.page, Styles::File);
    *response.status_mut() = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(seconds) = problem.retry_after_seconds() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

const fn heading(code: Code) -> Text {
    match code {
        Code::NotFound => Text::new("There is no such page", "Página não encontrada"),
        Code::RateLimited => Text::new("That was a little fast", "Um pouco rápido demais"),
        Code::DataUnavailable => Text::new("The data is not there yet", "Os dados ainda não estão aqui"),
        Code::ServiceUnavailable | Code::Overloaded => Text::new("One moment, please", "Um momento, por favor"),
        Code::InternalError => Text::new("That was our fault", "O erro foi nosso"),
        _ => Text::new("That cannot be answered", "Isso não pode ser respondido"),
    }
}
