//! Machine-readable files: `robots.txt`, `sitemap.xml`, `security.txt`, `llms.txt`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use chrono::{Days, SecondsFormat};
use http::header;
use vintem_domain::Problem;
use vintem_domain::lang::Lang;
use vintem_domain::series::SeriesGroup;

use crate::catalog::group_path;
use crate::context::SharedSettings;
use crate::guides;
use crate::market::SeriesOrRate;
use crate::pricing::is_web_url;
use crate::problem_response::problem_response;
use crate::status::escape_xml;

const PLAIN_TEXT_MIME: &str = "text/plain; charset=utf-8";
const SITEMAP_PATHS: [&str; 9] =
    ["/", "/series", "/pricing", "/docs", "/docs/guides", "/status", "/data", "/terms", "/privacy"];
/// RFC 9116 requires an expiry date. Each response computes it again, so the file never expires.
const SECURITY_TXT_VALID_DAYS: u64 = 180;

fn text_response(content_type: &'static str, text: String) -> Response {
    let headers = [(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "public, max-age=3600")];
    (headers, text).into_response()
}

pub(crate) async fn get_robots(State(settings): State<SharedSettings>) -> Response {
    let body = format!(
        "User-agent: *\nDisallow: /api/\nDisallow: /search\nDisallow: /dashboard\n\nSitemap: {}/sitemap.xml\n",
        settings.public_url
    );
    text_response(PLAIN_TEXT_MIME, body)
}

/// Leaves out companies: only some plans include a list of them.
pub(crate) async fn get_sitemap(State(settings): State<SharedSettings>) -> Response {
    let guides = guides::list_guides(Lang::En).into_iter().map(|guide| guide.path);
    let groups = SeriesGroup::ALL.map(group_path);
    let series = SeriesOrRate::all().map(|subject| format!("/series/{}", subject.id()));
    let url = escape_xml(&settings.public_url);
    let entry = |path: String| format!("<url><loc>{url}{path}</loc></url>\n");
    let entries: String =
        SITEMAP_PATHS.map(str::to_owned).into_iter().chain(guides).chain(groups).chain(series).map(entry).collect();
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n{entries}</urlset>\n"
    );
    text_response("application/xml; charset=utf-8", body)
}

/// Not found unless the operator has configured a contact.
pub(crate) async fn get_security_contact(State(settings): State<SharedSettings>) -> Response {
    let Some(contact) = &settings.contact else { return problem_response(Problem::NoSuchPath) };
    let scheme = if is_web_url(contact) { "" } else { "mailto:" };
    let expires =
        (settings.clock.now() + Days::new(SECURITY_TXT_VALID_DAYS)).to_rfc3339_opts(SecondsFormat::Secs, true);
    let body = format!(
        "Contact: {scheme}{contact}\nExpires: {expires}\nPreferred-Languages: pt, en\nCanonical: {}/.well-known/security.txt\n",
        settings.public_url
    );
    text_response(PLAIN_TEXT_MIME, body)
}

/// An introduction to the API for language models, in the format of llmstxt.org.
pub(crate) async fn get_llms(State(settings): State<SharedSettings>) -> Response {
    let url = &settings.public_url;
    let guides: String = guides::list_guides(Lang::En)
        .into_iter()
        .map(|guide| format!("- [{}]({url}{}.md): {}\n", guide.title, guide.path, guide.summary))
        .collect();
    let series: String = SeriesOrRate::all()
        .map(|subject| format!("- `{}`: {}, {}\n", subject.id(), subject.name(Lang::En), subject.unit(Lang::En)))
        .collect();

    let body = format!(
        "# Vintém\n\n> Brazilian financial data as a JSON API: Selic, CDI, IPCA and exchange rates from the central \
         bank (BCB), and companies and filings from the securities regulator (CVM). Values are exact decimals. Market \
         data needs no key; if you have one, send it in the `X-API-Key` header. The `X-RateLimit-*` headers state your \
         rate limit; on 429, wait `Retry-After` seconds.\n\n\
         ## Reference\n\n\
         - [OpenAPI, YAML]({url}/docs/openapi.yaml): every operation with its parameters, responses and plan\n\
         - [OpenAPI, JSON]({url}/docs/openapi.json): the same description as JSON\n\
         - [Plans]({url}/api/v1/plans): rate limits and features of each plan\n\
         - [Status]({url}/api/v1/status): freshness of each source\n\n## Guides\n\n{guides}\n## Series\n\n{series}"
    );
    text_response("text/markdown; charset=utf-8", body)
}
