//! `/dashboard`: shows the usage of a key and lets its owner manage it. The page contains no key: the browser has it
//! and calls the API.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use vintem_domain::event::EventKind;
use vintem_domain::feature::Feature;
use vintem_domain::lang::LocalizedText;
use vintem_domain::plan::Plan;

use crate::context::SharedSettings;
use crate::layout::{Layout, PageMetadata, PageRequest, StylePolicy, html_response};

#[derive(Template)]
#[template(path = "dashboard.html")]
struct DashboardPage {
    page: Layout,
    /// The lowest plan with webhooks.
    webhooks_plan: Plan,
    plans: [Plan; 4],
    /// The outcomes of requests: the field name in the usage response, and its label.
    outcomes: [(&'static str, &'static str); 5],
    /// The ID and the description of each event type.
    event_types: [(&'static str, &'static str); EventKind::ALL.len()],
}

const REQUEST_OUTCOMES: [(&str, LocalizedText); 5] = [
    ("successful", LocalizedText::new("Successful", "Com sucesso")),
    ("client_errors", LocalizedText::new("Client errors", "Erros do cliente")),
    ("rate_limited", LocalizedText::new("Rate limited", "Acima do limite")),
    ("server_errors", LocalizedText::new("Server errors", "Erros do servidor")),
    ("unfinished", LocalizedText::new("Unfinished", "Não concluídas")),
];

const TITLE: LocalizedText = LocalizedText::new("Dashboard", "Painel");
const DESCRIPTION: LocalizedText = LocalizedText::new(
    "See the plan and live usage of your API key, rotate its secret and manage its webhooks.",
    "Veja o plano e o uso da sua chave de API até a última requisição, troque o segredo e gerencie os webhooks.",
);

pub(crate) async fn show_dashboard(State(settings): State<SharedSettings>, request: PageRequest) -> Response {
    let lang = request.lang();
    let metadata = PageMetadata::new(lang, "/dashboard", TITLE, DESCRIPTION).noindex();
    let dashboard = DashboardPage {
        page: Layout::new(&settings, &request, metadata),
        webhooks_plan: Feature::Webhooks.required_plan(),
        plans: Plan::ALL,
        event_types: EventKind::ALL.map(|kind| (kind.id(), kind.description().in_lang(lang))),
        outcomes: REQUEST_OUTCOMES.map(|(outcome, name)| (outcome, name.in_lang(lang))),
    };
    html_response(&dashboard, &dashboard.page, StylePolicy::ExternalOnly)
}
