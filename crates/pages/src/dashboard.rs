//! `/dashboard`: what the owner of a key sees and does. The page knows no key: the browser holds it, and asks the API.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use vintem_domain::lang::Text;
use vintem_domain::plan::Plan;
use vintem_domain::route::Feature;

use crate::Shared;
use crate::layout::{Asked, Head, Layout, Styles, html_response};

#[derive(Template)]
#[template(path = "dashboard.html")]
struct DashboardPage {
    page: Layout,
    /// The plan from which on there are webhooks.
    webhooks: Plan,
    plans: [Plan; 4],
    /// How requests end, as the usage names it and as people read it.
    outcomes: [(&'static str, &'static str); 5],
}

const OUTCOMES: [(&str, Text); 5] = [
    ("successful", Text::new("Successful", "Com sucesso")),
    ("client_errors", Text::new("Client errors", "Erros do cliente")),
    ("rate_limited", Text::new("Rate limited", "Barradas pelo limite")),
    ("server_errors", Text::new("Server errors", "Erros do servidor")),
    ("unfinished", Text::new("Unfinished", "Inacabadas")),
];

const TITLE: Text = Text::new("Dashboard", "Painel");
const DESCRIPTION: Text = Text::new(
    "Usage of a key up to its last request, its plan, rotation and webhooks.",
    "Uso de uma chave até a última requisição, seu plano, troca e webhooks.",
);

pub(crate) async fn show_dashboard(State(settings): State<Shared>, asked: Asked) -> Response {
    let lang = asked.lang();
    let head = Head::new(lang, "/dashboard", TITLE, DESCRIPTION).not_to_be_found();
    let dashboard = DashboardPage {
        page: Layout::new(&settings, &asked, head),
        webhooks: Feature::Webhooks.plan(),
        plans: Plan::ALL,
        outcomes: OUTCOMES.map(|(outcome, name)| (outcome, name.in_lang(lang))),
    };
    html_response(&dashboard, &dashboard.page, Styles::File)
}
