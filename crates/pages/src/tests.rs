//! What holds for all pages: both languages, nothing foreign, nothing inline, the exact headers.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Uri, header};
use vintem_domain::plan::{Limits, Plan};
use vintem_domain::route::{Charge, ROUTES};

use super::*;

const PUBLIC_URL: &str = "https://api.example.com";
const PAGES: [&str; 3] = ["/", "/pricing", "/docs"];

fn settings(synthetic: bool) -> PageSettings {
    PageSettings {
        limits: Limits::default(),
        public_url: PUBLIC_URL.to_owned(),
        openapi_yaml: "openapi: 3.0.3\n",
        synthetic: Arc::new(move || synthetic),
    }
}

async fn visit(settings: PageSettings, address: &str, accept_language: &'static str) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT_LANGUAGE, HeaderValue::from_static(accept_language));
    let uri: Uri = address.parse().unwrap();
    let state = State(Arc::new(settings));
    match uri.path() {
        "/" => home::show_home(state, headers, uri).await,
        "/pricing" => pricing::show_pricing(state, headers, uri).await,
        "/docs" => docs::show_docs(state, headers, uri).await,
        other => panic!("{other} is no page"),
    }
}

async fn text(response: Response) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn html(address: &str) -> String {
    text(visit(settings(false), address, "").await).await
}

/// Every page in both languages, over synthetic and over real data.
async fn all_pages() -> Vec<(String, String)> {
    let mut pages = Vec::new();
    for path in PAGES {
        for lang in ["en", "pt"] {
            for synthetic in [false, true] {
                let address = format!("{path}?lang={lang}");
                let html = text(visit(settings(synthetic), &address, "").await).await;
                pages.push((address, html));
            }
        }
    }
    pages
}

#[test]
fn every_page_of_the_route_table_has_a_handler() {
    let handlers = handlers(settings(false));
    let served: Vec<_> = handlers.iter().map(|(operation, _)| *operation).collect();
    let wanted = ROUTES.iter().filter(|route| route.charge == Charge::Page && route.operation != "get_health");
    assert_eq!(served, wanted.map(|route| route.operation).collect::<Vec<_>>());
}

#[tokio::test]
async fn pricing_shows_all_plans_in_both_languages() {
    for (lang, platinum_limit, month) in [("en", "2,000", "/ month"), ("pt", "2.000", "/ mês")] {
        let html = html(&format!("/pricing?lang={lang}")).await;
        for plan in Plan::ALL {
            assert!(html.contains(&format!("<h2>{}</h2>", plan.name())), "{lang}: {plan:?}");
            assert!(html.contains(&format!("<strong>US$ {}</strong> {month}", plan.price_usd())), "{lang}: {plan:?}");
        }
        for limit in ["30", "100", "500", platinum_limit] {
            assert!(html.contains(&format!("<td>{limit}</td>")), "{lang}: {limit}");
        }
    }
}

#[tokio::test]
async fn the_limits_shown_are_those_configured() {
    let mut settings = settings(false);
    settings.limits = Limits { window_seconds: 10, by_rank: [7, 11, 13, 1017] };
    let html = text(visit(settings, "/pricing", "").await).await;
    assert!(html.contains("1,017 requests in any 10 seconds"));
    assert!(html.contains("<td>11</td>"));
    assert!(!html.contains("2,000"));
}

#[tokio::test]
async fn the_address_decides_the_language_before_the_header_does() {
    for (address, accepted, html_lang) in [
        ("/", "", "en"),
        ("/", "pt-BR,pt;q=0.9", "pt-BR"),
        ("/?lang=en", "pt-BR", "en"),
        ("/?lang=pt", "en", "pt-BR"),
        ("/?lang=de", "pt", "pt-BR"),
    ] {
        let response = visit(settings(false), address, accepted).await;
        assert_eq!(response.headers()[header::CONTENT_LANGUAGE], html_lang);
        let html = text(response).await;
        assert!(html.contains(&format!("<html lang=\"{html_lang}\">")), "{address} {accepted}");
    }
    assert!(html("/pricing?lang=pt").await.contains("href=\"/pricing?lang=en\""));
    assert!(html("/pricing?lang=pt").await.contains("href=\"/docs?lang=pt\""));
    assert!(html("/pricing").await.contains("href=\"/docs\""));
}

#[tokio::test]
async fn synthetic_data_is_named_so_on_every_page() {
    for path in PAGES {
        for (accepted, words) in [
            ("en", "Demonstration data: everything shown here is synthetic"),
            ("pt", "Dados de demonstração: tudo o que se mostra aqui é sintético"),
        ] {
            assert!(text(visit(settings(true), path, accepted).await).await.contains(words), "{path}");
            assert!(!text(visit(settings(false), path, accepted).await).await.contains(words), "{path}");
        }
    }
}

#[tokio::test]
async fn no_page_names_another_host() {
    for (address, html) in all_pages().await {
        let rest = html.replace(PUBLIC_URL, "");
        assert!(!rest.contains("http://") && !rest.contains("https://"), "{address}");
        assert!(!rest.contains("=\"//"), "{address}");
    }
}

#[tokio::test]
async fn no_page_has_inline_script_or_style() {
    for (address, html) in all_pages().await {
        for script in html.split("<script").skip(1) {
            assert!(script.starts_with(" src=\"/") && script.contains("></script>"), "{address}");
        }
        let tags = html.split('<').filter_map(|piece| piece.split_once('>')).map(|(tag, _)| tag);
        for tag in tags {
            assert!(!tag.starts_with("style") && !tag.contains(" style="), "{address}: {tag}");
            let handler = tag.split_whitespace().any(|word| word.starts_with("on") && word.contains('='));
            assert!(!handler && !tag.contains("javascript:"), "{address}: {tag}");
        }
    }
}

#[tokio::test]
async fn pages_carry_the_exact_headers() {
    for path in PAGES {
        let style = if path == "/docs" { "'self' 'unsafe-inline'" } else { "'self'" };
        let policy = format!(
            "default-src 'none'; script-src 'self'; style-src {style}; img-src 'self' data:; font-src 'self'; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        let response = visit(settings(false), path, "").await;
        assert_eq!(response.headers()[header::CONTENT_SECURITY_POLICY], policy, "{path}");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8", "{path}");
        assert_eq!(response.headers()[header::CACHE_CONTROL], "public, max-age=60", "{path}");
    }
}

#[tokio::test]
async fn assets_carry_type_and_cache_time() {
    for (response, content_type) in [
        (assets::get_style().await, "text/css; charset=utf-8"),
        (assets::get_pricing_script().await, "text/javascript; charset=utf-8"),
        (assets::get_docs_script().await, "text/javascript; charset=utf-8"),
        (assets::get_icon().await, "image/svg+xml; charset=utf-8"),
    ] {
        assert_eq!(response.headers()[header::CONTENT_TYPE], content_type);
        assert_eq!(response.headers()[header::CACHE_CONTROL], "public, max-age=3600");
    }
}

#[tokio::test]
async fn docs_without_scripts_list_every_operation_with_its_plan() {
    let html = html("/docs").await;
    for route in ROUTES.iter().filter(|route| route.charge == Charge::Quota) {
        assert!(html.contains(&format!("<code>{}</code>", route.path)), "{}", route.path);
    }
    assert!(html.contains(&format!("/docs/scalar.js?v={}", bundle::version())));
}

#[tokio::test]
async fn what_the_operator_configures_is_escaped() {
    let mut settings = settings(false);
    settings.public_url = "https://x\"><script>alert(1)</script>".to_owned();
    for path in PAGES {
        assert!(!text(visit(settings.clone(), path, "").await).await.contains("<script>"), "{path}");
    }
}

#[tokio::test]
async fn the_openapi_file_is_served_as_it_is() {
    let response = docs::get_openapi(State(Arc::new(settings(false)))).await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/yaml; charset=utf-8");
    assert_eq!(text(response).await, "openapi: 3.0.3\n");
}
