//! `/pricing`: the plans as cards, the same as a table, the form that gives a free key, and what people ask.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use vintem_domain::lang::{Lang, Text};
use vintem_domain::plan::{Offer, Plan};
use vintem_domain::route::{self, Feature};

use crate::Shared;
use crate::layout::{Asked, Head, Layout, Styles, html_response};
use crate::notation::grouped;

/// The plan whose card stands out: the first with the filings themselves.
const HIGHLIGHTED: Plan = Plan::Gold;

#[derive(Template)]
#[template(path = "pricing.html")]
struct PricingPage {
    page: Layout,
    cards: Vec<Card>,
    rows: Vec<FeatureRow>,
    window_seconds: u32,
    questions: Vec<Question>,
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
    upgrade: Option<Upgrade>,
}

/// Where the operator is asked for a plan.
struct Upgrade {
    without_key: String,
    /// `KEY` stands for the first characters of the reader's key, which only its browser knows.
    with_key: String,
}

struct FeatureRow {
    sentence: &'static str,
    /// In the order of the plans.
    included: Vec<bool>,
}

struct Question {
    asked: &'static str,
    answer: &'static str,
}

const TITLE: Text = Text::new("Plans and prices", "Planos e preços");
const DESCRIPTION: Text = Text::new(
    "Four plans with exact limits, side by side, and a free key at once.",
    "Quatro planos com limites exatos, lado a lado, e uma chave gratuita na hora.",
);

pub(crate) async fn show_pricing(State(settings): State<Shared>, asked: Asked) -> Response {
    let lang = asked.lang();
    let (offer, contact) = (&settings.offer, settings.contact.as_deref());
    let pricing = PricingPage {
        page: Layout::new(&settings, &asked, Head::new(lang, "/pricing", TITLE, DESCRIPTION)),
        cards: Plan::ALL.into_iter().map(|plan| card(plan, offer, contact, lang)).collect(),
        rows: Feature::sold(offer).map(|feature| feature_row(feature, lang)).collect(),
        window_seconds: offer.limits.window_seconds,
        questions: QUESTIONS
            .map(|(asked, answer)| Question { asked: asked.in_lang(lang), answer: answer.in_lang(lang) })
            .into(),
    };
    html_response(&pricing, &pricing.page, Styles::File)
}

fn card(plan: Plan, offer: &Offer, contact: Option<&str>, lang: Lang) -> Card {
    let allowed = offer.limits.of(plan);
    let limit = grouped(allowed as usize, lang);
    let mut features = route::features(plan, offer, lang);
    if let Some(first) = features.first_mut() {
        // The sentence is shared with the JSON of the plan list, which writes its numbers plain.
        *first = first.replacen(&allowed.to_string(), &limit, 1);
    }
    Card {
        id: plan.id(),
        name: plan.name(),
        price: plan.price_usd(),
        limit,
        features,
        restrictions: route::restrictions(plan, offer, lang),
        highlighted: plan == HIGHLIGHTED,
        upgrade: contact.map(|contact| upgrade(contact, plan)),
    }
}

/// A mail that is begun, or the operator's own page, told which plan and, once known, which key.
fn upgrade(contact: &str, plan: Plan) -> Upgrade {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let (name, id) = (plan.name(), plan.id());
    if is_page(contact) {
        let joint = if contact.contains('?') { '&' } else { '?' };
        let without_key = format!("{contact}{joint}plan={id}");
        Upgrade { with_key: format!("{without_key}&key=KEY"), without_key }
    } else {
        let subject = encoded(&format!("Vintém: {name}"));
        let without_key =
            format!("mailto:{contact}?subject={subject}&body={}", encoded(&format!("Plan: {name}\nKey: ")));
        Upgrade { with_key: format!("{without_key}KEY"), without_key }
    }
}

/// Whether the operator is reached by a page; else by mail.
pub(crate) fn is_page(contact: &str) -> bool {
    contact.starts_with("https://") || contact.starts_with("http://")
}

fn feature_row(feature: Feature, lang: Lang) -> FeatureRow {
    let included = Plan::ALL.into_iter().map(|plan| feature.plan() <= plan).collect();
    FeatureRow { sentence: feature.sentence().in_lang(lang), included }
}

const QUESTIONS: [(Text, Text); 6] = [
    (
        Text::new("How exactly is the limit counted?", "Como exatamente o limite é contado?"),
        Text::new(
            "In any 60 seconds, wherever they begin, at most your limit passes, and nothing is refused while fewer passed. A refused request takes nothing. Every answer says what is left and when all of it is free again.",
            "Em quaisquer 60 segundos, onde quer que comecem, passa no máximo o seu limite, e nada é recusado enquanto menos passou. Uma requisição recusada não conta. Cada resposta diz quanto resta e quando tudo volta a estar livre.",
        ),
    ),
    (
        Text::new("What happens when I reach it?", "O que acontece quando eu o atinjo?"),
        Text::new(
            "You get 429 with Retry-After: the seconds after which one request will pass. Pages, the reference and /health go on, and nothing is charged.",
            "Você recebe 429 com Retry-After: os segundos após os quais uma requisição passará. Páginas, referência e /health seguem, e nada é cobrado.",
        ),
    ),
    (
        Text::new("How do I change the plan?", "Como mudo de plano?"),
        Text::new(
            "By asking the operator of this service, who moves your key. The key stays the same, and the new plan holds everywhere within a second. There is no payment within this software.",
            "Pedindo ao operador deste serviço, que muda o plano da sua chave. A chave continua a mesma, e o novo plano vale em um segundo. Não há pagamento dentro deste software.",
        ),
    ),
    (
        Text::new("May I use the data in my own product?", "Posso usar os dados em meu próprio produto?"),
        Text::new(
            "The data is published by Banco Central do Brasil and by CVM under the Open Database License: use it, name them, and see what the licence asks of derived databases.",
            "Os dados são publicados pelo Banco Central do Brasil e pela CVM sob a Open Database License: use-os, cite-os e veja o que a licença pede de bases derivadas.",
        ),
    ),
    (
        Text::new("What if a publisher is down or errs?", "E se um publicador sair do ar ou errar?"),
        Text::new(
            "You never get its error. What was served before is served on, marked as overdue once it is; what cannot be true is set aside instead of being loaded.",
            "Você nunca recebe o erro dele. O que era servido continua sendo, marcado como atrasado quando estiver; o que não pode ser verdade é separado em vez de carregado.",
        ),
    ),
    (
        Text::new("I lost my key, or it leaked.", "Perdi minha chave, ou ela vazou."),
        Text::new(
            "We cannot show it again: only a fingerprint is stored. Rotate it in the dashboard while you have it, or register another. A leaked key can be revoked there at once.",
            "Não podemos mostrá-la de novo: só se guarda uma impressão digital. Troque-a no painel enquanto a tiver, ou crie outra. Uma chave vazada pode ser revogada ali na hora.",
        ),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_a_card_is_grouped() {
        let sentences = |lang| card(Plan::Platinum, &Offer::default(), None, lang).features;
        assert_eq!(sentences(Lang::En)[0], "2,000 requests in any minute");
        assert_eq!(sentences(Lang::Pt)[0], "2.000 requisições em qualquer minuto");
    }

    #[test]
    fn a_feature_is_included_from_its_plan_on() {
        assert_eq!(feature_row(Feature::Market, Lang::En).included, [true, true, true, true]);
        assert_eq!(feature_row(Feature::Filings, Lang::En).included, [false, false, true, true]);
        assert_eq!(feature_row(Feature::Support, Lang::En).included, [false, false, false, true]);
    }

    #[test]
    fn who_asks_for_a_plan_says_which_and_for_which_key() {
        let mail = upgrade("sales@example.com", Plan::Gold);
        assert_eq!(
            mail.with_key,
            "mailto:sales@example.com?subject=Vint%C3%A9m%3A%20Gold&body=Plan%3A%20Gold%0AKey%3A%20KEY"
        );
        let page = upgrade("https://example.com/buy?from=api", Plan::Gold);
        assert_eq!(page.without_key, "https://example.com/buy?from=api&plan=gold");
        assert_eq!(page.with_key, "https://example.com/buy?from=api&plan=gold&key=KEY");
    }
}
