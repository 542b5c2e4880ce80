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
}

const TITLE: Text = Text::new("Dashboard", "Painel");
const DESCRIPTION: Text = Text::new(
    "Usage of a key up to its last request, its plan, rotation and webhooks.",
    "Uso de uma chave até a última requisição, seu plano, troca e webhooks.",
);

pub(crate) async fn show_dashboard(State(settings): State<Shared>, asked: Asked) -> Response {
    let head = Head::new(asked.lang(), "/dashboard", TITLE, DESCRIPTION).not_to_be_found();
    let dashboard = DashboardPage {
        page: Layout::new(&settings, &asked, head),
        webhooks: Feature::Webhooks.plan(),
        plans: Plan::ALL,
    };
    html_response(&dashboard, &dashboard.page, Styles::File)
}
