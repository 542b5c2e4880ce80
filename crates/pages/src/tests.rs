//! Tests of the pages without any data: both languages, nothing inline, and the settings of the operator.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Uri, header};
use vintem_domain::SystemClock;
use vintem_domain::lang::{Lang, LocalizedText};
use vintem_domain::plan::{Plan, PlanConfig, PlanLimits};
use vintem_domain::route::{ROUTES, RateLimitKind};

use super::*;
use crate::layout::PageRequest;

const PUBLIC_URL: &str = "https://api.example.com";

fn test_settings() -> PageContext {
    PageContext {
        offer: PlanConfig::default(),
        public_url: PUBLIC_URL.to_owned(),
        contact: None,
        openapi_yaml: LocalizedText::new("openapi: 3.0.3\n", "openapi: 3.0.3 # pt\n"),
        snapshot: Arc::default(),
        clock: Arc::new(SystemClock),
        backends_healthy: Arc::new(|| true),
        search: Arc::new(|_, _, _| Box::pin(async { Err(Problem::DependencyUnavailable) })),
        run_work: Arc::new(|_, _| Box::pin(async { Err(Problem::DependencyUnavailable) })),
    }
}

async fn fetch_page(settings: PageContext, address: &str) -> Response {
    let uri: Uri = address.parse().unwrap();
    let path = uri.path().to_owned();
    let request = PageRequest { headers: HeaderMap::new(), uri };
    let state = State(Arc::new(settings));

    match path.as_str() {
        "/" => home::show_home(state, request).await,
        "/pricing" => pricing::show_pricing(state, request).await,
        "/docs" => docs::show_docs(state, request).await,
        "/status" => status::show_status(state, request).await,
        "/dashboard" => dashboard::show_dashboard(state, request).await,
        "/privacy" => guides::show_privacy(state, request).await,
        other => panic!("{other} is no page"),
    }
}

const PAGE_PATHS: [&str; 6] = ["/", "/pricing", "/docs", "/status", "/dashboard", "/privacy"];

async fn body_text(response: Response) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn fetch_html(address: &str) -> String {
    body_text(fetch_page(test_settings(), address).await).await
}

#[test]
fn every_page_of_the_route_table_has_a_handler() {
    let handlers = handlers(test_settings());
    let served: Vec<_> = handlers.iter().map(|(operation, _)| *operation).collect();
    let expected =
        ROUTES.iter().filter(|route| route.rate_limit != RateLimitKind::Quota && route.operation != "get_health");
    assert_eq!(served, expected.map(|route| route.operation).collect::<Vec<_>>());
}

#[tokio::test]
async fn pricing_shows_all_plans_in_both_languages() {
    for (lang, platinum_limit, month) in [("en", "2,000", "/ month"), ("pt", "2.000", "/ mês")] {
        let html = fetch_html(&format!("/pricing?lang={lang}")).await;
        for plan in Plan::ALL {
            assert!(html.contains(&format!("<h2>{}", plan.name())), "{lang}: {plan:?}");
            assert!(
                html.contains(&format!("<strong>US$ {}</strong> {month}", plan.monthly_price_usd())),
                "{lang}: {plan:?}"
            );
        }
        for limit in ["30", "100", "500", platinum_limit] {
            assert!(html.contains(&format!("<td>{limit}</td>")), "{lang}: {limit}");
        }
    }
}

#[tokio::test]
async fn pricing_shows_the_configured_limits() {
    let mut settings = test_settings();
    settings.offer.limits = PlanLimits { window_seconds: 10, requests_by_plan: [7, 11, 13, 1017] };
    let html = body_text(fetch_page(settings, "/pricing").await).await;
    assert!(html.contains("1,017 requests per 10 seconds"));
    assert!(html.contains("<td>11</td>"));
    assert!(!html.contains("2,000"));
}

#[tokio::test]
async fn upgrade_links_and_priority_support_show_only_when_configured() {
    let default = fetch_html("/pricing").await;
    assert!(!default.contains("data-upgrade") && !default.contains("Priority support"));

    let mut settings = test_settings();
    settings.contact = Some("sales@example.com".to_owned());
    settings.offer.priority_support = true;
    let html = body_text(fetch_page(settings, "/pricing").await).await;
    assert_eq!(html.matches("data-upgrade=\"mailto:sales@example.com?subject=").count(), 3);
    // Once in its card, in the three cards without it, and in the table.
    assert_eq!(html.matches("riority support").count(), 5);
}

#[tokio::test]
async fn docs_without_scripts_list_every_operation_with_its_plan() {
    let html = fetch_html("/docs").await;
    for route in ROUTES.iter().filter(|route| route.rate_limit == RateLimitKind::Quota) {
        assert!(html.contains(&format!("<code>{}</code>", route.path)), "{}", route.path);
    }
    assert!(html.contains(&format!("/docs/scalar.js?v={}", docs_bundle::bundle_hash())));
}

#[tokio::test]
async fn operator_settings_are_escaped() {
    let mut settings = test_settings();
    settings.public_url = "https://x\"><script>alert(1)</script>".to_owned();
    settings.contact = Some("https://x\"><script>alert(2)</script>".to_owned());
    for path in PAGE_PATHS {
        let html = body_text(fetch_page(settings.clone(), path).await).await;
        assert!(!html.contains("<script>alert"), "{path}");
    }
}

#[tokio::test]
async fn openapi_file_is_served_unchanged() {
    let response = docs::get_openapi(State(test_settings().openapi_yaml.in_lang(Lang::En))).await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/yaml; charset=utf-8");
    assert_eq!(body_text(response).await, "openapi: 3.0.3\n");
}

#[tokio::test]
async fn internal_error_page_hides_details_and_shows_the_request_id() {
    let render = problem_renderer(test_settings());
    let response = render(&Problem::Internal, &HeaderMap::new(), &"/status?lang=pt".parse().unwrap(), "0123-abc");
    assert_eq!(response.status(), 500);
    assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
    let html = body_text(response).await;
    assert!(html.contains("Erro interno") && html.contains("0123-abc"), "{html}");
}
