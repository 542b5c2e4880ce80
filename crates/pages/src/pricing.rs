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

/// The highlighted plan: the lowest one that includes filings.
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

/// Links to request an upgrade from the operator.
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
    "Compare four plans with exact rate limits and get a free API key right away.",
    "Compare quatro planos com limites exatos e obtenha uma chave de API gratuita na hora.",
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
        // The plan list in the API has the same sentence, but without digit grouping.
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
        LocalizedText::new("How is the rate limit counted?", "Como o limite de requisições é contado?"),
        LocalizedText::new(
            "With a sliding window. In any 60-second period, we accept as many requests as your plan allows and refuse only the rest. Refused requests do not count. Every response says how many requests remain and when the full limit is available again.",
            "Com uma janela deslizante: em qualquer intervalo de 60 segundos, aceitamos todas as requisições que o seu plano permite e recusamos só as que passam disso. Requisições recusadas não contam. Cada resposta informa quantas requisições restam e quando o limite volta a ficar completo.",
        ),
    ),
    (
        LocalizedText::new("What happens when I reach the limit?", "O que acontece quando atinjo o limite?"),
        LocalizedText::new(
            "The API responds with status 429. The Retry-After header says how many seconds to wait before the next request. Web pages, the API reference and /health keep working, and there is no extra charge.",
            "A API responde com o status 429. O cabeçalho Retry-After informa quantos segundos esperar até a próxima requisição. As páginas, a referência da API e /health continuam funcionando, e não há cobrança extra.",
        ),
    ),
    (
        LocalizedText::new("How do I change plans?", "Como mudo de plano?"),
        LocalizedText::new(
            "Contact the operator of this service, who will change the plan of your key. You keep the same key, and the new plan applies within a second. Vintém itself does not process payments.",
            "Fale com o operador deste serviço, que muda o plano da sua chave. A chave continua a mesma, e o novo plano passa a valer em até um segundo. O Vintém não processa pagamentos.",
        ),
    ),
    (
        LocalizedText::new("Can I use the data in my own product?", "Posso usar os dados no meu produto?"),
        LocalizedText::new(
            "Yes. Banco Central do Brasil and CVM publish most of the data under the Open Database License. Credit them, and check what the license requires of derived databases. For some series, such as IPCA, CDI and IGP-M, no open license is declared; the catalog says which.",
            "Sim. O Banco Central do Brasil e a CVM publicam a maior parte dos dados sob a Open Database License. Cite as fontes e confira o que a licença exige de bancos de dados derivados. Algumas séries, como IPCA, CDI e IGP-M, não têm licença aberta declarada; o catálogo diz quais.",
        ),
    ),
    (
        LocalizedText::new("How do you handle upstream errors?", "E se uma fonte sair do ar ou publicar um erro?"),
        LocalizedText::new(
            "Upstream errors never reach you. Vintém keeps serving the last good data and marks it as stale when newer data is overdue. Implausible values are quarantined instead of loaded.",
            "Os erros das fontes não chegam até você. O Vintém continua entregando os últimos dados válidos e os marca como desatualizados quando os novos atrasam. Valores implausíveis ficam em quarentena e não são carregados.",
        ),
    ),
    (
        LocalizedText::new("How do I replace a lost or leaked key?", "Perdi minha chave, ou ela vazou. E agora?"),
        LocalizedText::new(
            "We store only a hash of the key, so we cannot show it again. If you lost it, register a new one. If it leaked, rotate or revoke it in the dashboard right away.",
            "Guardamos só um hash da chave, por isso não podemos mostrá-la de novo. Se você a perdeu, crie outra. Se ela vazou, entre no painel na hora e troque o segredo ou revogue a chave.",
        ),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_card_limits_use_digit_grouping() {
        let sentences = |lang| build_plan_card(Plan::Platinum, &PlanConfig::default(), None, lang).features;
        assert_eq!(sentences(Lang::En)[0], "2,000 requests per minute");
        assert_eq!(sentences(Lang::Pt)[0], "2.000 requisições por minuto");
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
