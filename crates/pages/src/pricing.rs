//! `/pricing`: the plans as cards and as a table, the form for a free key, and frequently asked questions.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use vintem_domain::feature::Feature;
use vintem_domain::lang::{Lang, LocalizedText};
use vintem_domain::plan::{Plan, PlanConfig};
use vintem_domain::plan_description::{describe_features, describe_restrictions};

use crate::context::SharedSettings;
use crate::formatting::format_integer;
use crate::layout::{Layout, PageMetadata, PageRequest, StylePolicy, html_response};

/// The highlighted plan: the first one with the filings themselves.
const HIGHLIGHTED_PLAN: Plan = Plan::Gold;

#[derive(Template)]
#[template(path = "pricing.html")]
struct PricingPage {
    page: Layout,
    cards: Vec<PlanCard>,
    rows: Vec<FeatureRow>,
    window_seconds: u32,
    faq: Vec<FaqItem>,
}

struct PlanCard {
    id: &'static str,
    name: &'static str,
    price: u32,
    /// The bare number, for the table.
    limit: String,
    /// The limit in words first, then the included features.
    features: Vec<String>,
    restrictions: Vec<String>,
    highlighted: bool,
    upgrade_links: Option<UpgradeLinks>,
}

/// Links that ask the operator for a plan.
struct UpgradeLinks {
    without_key: String,
    /// `KEY` is a placeholder for the first characters of the reader's key, which only the browser knows.
    with_key: String,
}

struct FeatureRow {
    sentence: &'static str,
    /// In the order of the plans.
    included: Vec<bool>,
}

struct FaqItem {
    question: &'static str,
    answer: &'static str,
}

const TITLE: LocalizedText = LocalizedText::new("Plans and prices", "Planos e preços");
const DESCRIPTION: LocalizedText = LocalizedText::new(
    "Four plans with exact limits, side by side, and a free key at once.",
    "Quatro planos com limites exatos, lado a lado, e uma chave gratuita na hora.",
);

pub(crate) async fn show_pricing(State(settings): State<SharedSettings>, request: PageRequest) -> Response {
    let lang = request.lang();
    let offer = &settings.offer;
    let contact = settings.contact.as_deref();

    let pricing = PricingPage {
        page: Layout::new(&settings, &request, PageMetadata::new(lang, "/pricing", TITLE, DESCRIPTION)),
        cards: Plan::ALL.into_iter().map(|plan| build_plan_card(plan, offer, contact, lang)).collect(),
        rows: Feature::available(offer).map(|feature| feature_row(feature, lang)).collect(),
        window_seconds: offer.limits.window_seconds,
        faq: FAQ
            .map(|(question, answer)| FaqItem { question: question.in_lang(lang), answer: answer.in_lang(lang) })
            .into(),
    };
    html_response(&pricing, &pricing.page, StylePolicy::ExternalOnly)
}

fn build_plan_card(plan: Plan, offer: &PlanConfig, contact: Option<&str>, lang: Lang) -> PlanCard {
    let requests = offer.limits.for_plan(plan);
    let limit = format_integer(requests as usize, lang);
    let mut features = describe_features(plan, offer, lang);
    if let Some(first) = features.first_mut() {
        // The JSON of the plan list has the same sentence, with numbers without digit grouping.
        *first = first.replacen(&requests.to_string(), &limit, 1);
    }

    PlanCard {
        id: plan.id(),
        name: plan.name(),
        price: plan.monthly_price_usd(),
        limit,
        features,
        restrictions: describe_restrictions(plan, offer, lang),
        highlighted: plan == HIGHLIGHTED_PLAN,
        upgrade_links: contact.map(|contact| upgrade_links(contact, plan)),
    }
}

/// A prefilled e-mail, or the operator's page with the plan and, once known, the key as parameters.
fn upgrade_links(contact: &str, plan: Plan) -> UpgradeLinks {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let name = plan.name();
    let id = plan.id();

    if is_web_url(contact) {
        let separator = if contact.contains('?') { '&' } else { '?' };
        let without_key = format!("{contact}{separator}plan={id}");
        UpgradeLinks { with_key: format!("{without_key}&key=KEY"), without_key }
    } else {
        let subject = encode(&format!("Vintém: {name}"));
        let without_key =
            format!("mailto:{contact}?subject={subject}&body={}", encode(&format!("Plan: {name}\nKey: ")));
        UpgradeLinks { with_key: format!("{without_key}KEY"), without_key }
    }
}

/// Whether the contact is a web page; otherwise it is an e-mail address.
pub(crate) fn is_web_url(contact: &str) -> bool {
    contact.starts_with("https://") || contact.starts_with("http://")
}

fn feature_row(feature: Feature, lang: Lang) -> FeatureRow {
    let included = Plan::ALL.into_iter().map(|plan| feature.required_plan() <= plan).collect();
    FeatureRow { sentence: feature.description().in_lang(lang), included }
}

const FAQ: [(LocalizedText, LocalizedText); 6] = [
    (
        LocalizedText::new("How exactly is the limit counted?", "Como exatamente o limite é contado?"),
        LocalizedText::new(
            "In any 60 seconds, wherever they begin, at most your limit passes, and nothing is refused while fewer passed. A refused request takes nothing. Every answer says what is left and when all of it is free again.",
            "Em quaisquer 60 segundos, onde quer que comecem, passa no máximo o seu limite, e nada é recusado enquanto menos passou. Uma requisição recusada não conta. Cada resposta diz quanto resta e quando tudo volta a estar livre.",
        ),
    ),
    (
        LocalizedText::new("What happens when I reach it?", "O que acontece quando eu o atinjo?"),
        LocalizedText::new(
            "You get 429 with Retry-After: the seconds after which one request will pass. Pages, the reference and /health go on, and nothing is charged.",
            "Você recebe 429 com Retry-After: os segundos após os quais uma requisição passará. Páginas, referência e /health seguem, e nada é cobrado.",
        ),
    ),
    (
        LocalizedText::new("How do I change the plan?", "Como mudo de plano?"),
        LocalizedText::new(
            "By asking the operator of this service, who moves your key. The key stays the same, and the new plan holds everywhere within a second. There is no payment within this software.",
            "Pedindo ao operador deste serviço, que muda o plano da sua chave. A chave continua a mesma, e o novo plano vale em um segundo. Não há pagamento dentro deste software.",
        ),
    ),
    (
        LocalizedText::new("May I use the data in my own product?", "Posso usar os dados em meu próprio produto?"),
        LocalizedText::new(
            "The data is published by Banco Central do Brasil and by CVM under the Open Database License: use it, name them, and see what the licence asks of derived databases.",
            "Os dados são publicados pelo Banco Central do Brasil e pela CVM sob a Open Database License: use-os, cite-os e veja o que a licença pede de bases derivadas.",
        ),
    ),
    (
        LocalizedText::new("What if a publisher is down or errs?", "E se um publicador sair do ar ou errar?"),
        LocalizedText::new(
            "You never get its error. What was served before is served on, marked as overdue once it is; what cannot be true is set aside instead of being loaded.",
            "Você nunca recebe o erro dele. O que era servido continua sendo, marcado como atrasado quando estiver; o que não pode ser verdade é separado em vez de carregado.",
        ),
    ),
    (
        LocalizedText::new("I lost my key, or it leaked.", "Perdi minha chave, ou ela vazou."),
        LocalizedText::new(
            "We cannot show it again: only a fingerprint is stored. Rotate it in the dashboard while you have it, or register another. A leaked key can be revoked there at once.",
            "Não podemos mostrá-la de novo: só se guarda uma impressão digital. Troque-a no painel enquanto a tiver, ou crie outra. Uma chave vazada pode ser revogada ali na hora.",
        ),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_card_limits_use_digit_grouping() {
        let sentences = |lang| build_plan_card(Plan::Platinum, &PlanConfig::default(), None, lang).features;
        assert_eq!(sentences(Lang::En)[0], "2,000 requests in any minute");
        assert_eq!(sentences(Lang::Pt)[0], "2.000 requisições em qualquer minuto");
    }

    #[test]
    fn features_are_included_in_their_plan_and_higher_ones() {
        assert_eq!(feature_row(Feature::Market, Lang::En).included, [true, true, true, true]);
        assert_eq!(feature_row(Feature::Filings, Lang::En).included, [false, false, true, true]);
        assert_eq!(feature_row(Feature::Support, Lang::En).included, [false, false, false, true]);
    }

    #[test]
    fn upgrade_links_name_the_plan_and_the_key() {
        let mail = upgrade_links("sales@example.com", Plan::Gold);
        assert_eq!(
            mail.with_key,
            "mailto:sales@example.com?subject=Vint%C3%A9m%3A%20Gold&body=Plan%3A%20Gold%0AKey%3A%20KEY"
        );
        let page = upgrade_links("https://example.com/buy?from=api", Plan::Gold);
        assert_eq!(page.without_key, "https://example.com/buy?from=api&plan=gold");
        assert_eq!(page.with_key, "https://example.com/buy?from=api&plan=gold&key=KEY");
    }
}
