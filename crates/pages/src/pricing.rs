//! `/pricing`: the plans as cards, the same as a table, and the form that gives a free key.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Uri};
use vintem_domain::lang::Lang;
use vintem_domain::plan::{Limits, Plan};
use vintem_domain::route::{self, Feature};

use crate::Shared;
use crate::layout::{Layout, Styles, grouped, html_response};

/// The plan whose card stands out: the first that includes everything.
const HIGHLIGHTED: Plan = Plan::Gold;

#[derive(Template)]
#[template(path = "pricing.html")]
struct PricingPage {
    page: Layout,
    cards: Vec<Card>,
    rows: Vec<FeatureRow>,
    window_seconds: u32,
}

struct Card {
    id: &'static str,
    name: &'static str,
    price: u32,
    /// Only the number, for the table.
    limit: String,
    /// The limit in words, first; then what is included.
    features: Vec<String>,
    restrictions: Vec<String>,
    highlighted: bool,
}

struct FeatureRow {
    sentence: &'static str,
    /// In the order of the plans.
    included: Vec<bool>,
}

pub(crate) async fn show_pricing(State(settings): State<Shared>, headers: HeaderMap, uri: Uri) -> Response {
    let page = Layout::new(&settings, "/pricing", &headers, &uri);
    let lang = page.lang;
    let cards = Plan::ALL.into_iter().map(|plan| card(plan, &settings.limits, lang)).collect();
    let rows = Feature::SOLD.into_iter().map(|feature| feature_row(feature, lang)).collect();
    let window_seconds = settings.limits.window_seconds;
    html_response(&PricingPage { page, cards, rows, window_seconds }, lang, Styles::File)
}

fn card(plan: Plan, limits: &Limits, lang: Lang) -> Card {
    let limit = grouped(limits.of(plan), lang);
    let mut features = route::features(plan, limits, lang);
    if let Some(first) = features.first_mut() {
        // The sentence is shared with the JSON of the plan list, which writes its numbers plain.
        *first = first.replacen(&limits.of(plan).to_string(), &limit, 1);
    }
    Card {
        id: plan.id(),
        name: plan.name(),
        price: plan.price_usd(),
        limit,
        features,
        restrictions: route::restrictions(plan, lang),
        highlighted: plan == HIGHLIGHTED,
    }
}

fn feature_row(feature: Feature, lang: Lang) -> FeatureRow {
    let included = Plan::ALL.into_iter().map(|plan| feature.plan() <= plan).collect();
    FeatureRow { sentence: feature.sentence().in_lang(lang), included }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_a_card_is_grouped() {
        let sentences = |lang| card(Plan::Platinum, &Limits::default(), lang).features;
        assert_eq!(sentences(Lang::En)[0], "2,000 requests in any minute");
        assert_eq!(sentences(Lang::Pt)[0], "2.000 requisições em qualquer minuto");
    }

    #[test]
    fn a_feature_is_included_from_its_plan_on() {
        assert_eq!(feature_row(Feature::Market, Lang::En).included, [true, true, true, true]);
        assert_eq!(feature_row(Feature::Filings, Lang::En).included, [false, false, true, true]);
    }
}
