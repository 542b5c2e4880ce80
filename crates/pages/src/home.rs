//! `/`: what this is, a first request, and where to go on.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Uri};
use vintem_domain::route::Feature;

use crate::Shared;
use crate::layout::{Layout, Styles, html_response};

#[derive(Template)]
#[template(path = "home.html")]
struct HomePage {
    page: Layout,
    features: Vec<HomeFeature>,
}

struct HomeFeature {
    sentence: &'static str,
    /// The plan from which on it is included.
    plan: &'static str,
}

pub(crate) async fn show_home(State(settings): State<Shared>, headers: HeaderMap, uri: Uri) -> Response {
    let page = Layout::new(&settings, "/", &headers, &uri);
    let lang = page.lang;
    let features = Feature::SOLD
        .into_iter()
        .map(|feature| HomeFeature { sentence: feature.sentence().in_lang(lang), plan: feature.plan().name() })
        .collect();
    html_response(&HomePage { page, features }, lang, Styles::File)
}
