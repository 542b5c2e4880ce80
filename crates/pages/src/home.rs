//! `/`: what this is, where the market stands, a first request, and a key.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use chrono::NaiveDate;
use vintem_domain::dates::sao_paulo_day;
use vintem_domain::lang::{Lang, Text};
use vintem_domain::plan::Plan;
use vintem_domain::route::{Feature, features};
use vintem_domain::series;
use vintem_domain::{Currency, Dataset, DateRange};
use vintem_snapshot::{Freshness, Snapshot};

use crate::layout::{Asked, Head, Layout, Styles, html_response};
use crate::market::{Indicator, Subject, indicator};
use crate::notation::{day, grouped};
use crate::{PageSettings, Shared};

#[derive(Template)]
#[template(path = "home.html")]
struct HomePage {
    page: Layout,
    requests: Vec<Request>,
    indicators: Vec<Indicator>,
    all_series: Vec<Named>,
    /// What a key gives beyond the data.
    promises: Vec<String>,
    coverage: Vec<Fact>,
    whole: bool,
    features: Vec<HomeFeature>,
}

/// A request that the reader can run, needing no key.
struct Request {
    name: &'static str,
    path: &'static str,
}

struct Named {
    id: String,
    name: &'static str,
}

struct Fact {
    title: String,
    text: String,
}

struct HomeFeature {
    sentence: &'static str,
    /// The plan from which on it is included.
    plan: &'static str,
}

/// Those of `/api/v1/market/overview`.
const SHOWN: [&str; 4] = ["selic", "cdi", "ipca", "usd-brl"];

const REQUESTS: [(Text, &str); 4] = [
    (Text::new("Selic now", "Selic agora"), "/api/v1/market/selic/current"),
    (Text::new("Overview", "Panorama"), "/api/v1/market/overview"),
    (Text::new("Euro, 5 days", "Euro, 5 dias"), "/api/v1/market/fx?pair=EUR-BRL&limit=5"),
    (
        Text::new("110 % of CDI", "110 % do CDI"),
        "/api/v1/market/cdi/accumulated?from=2025-01-02&to=2026-01-02&percent=110&amount=1000.00",
    ),
];

pub(crate) async fn show_home(State(settings): State<Shared>, asked: Asked) -> Response {
    let (lang, now) = (asked.lang(), settings.clock.now());
    let head = Head::named(
        "/",
        Text::new("Vintém: Brazilian financial data as an API", "Vintém: dados financeiros do Brasil em uma API")
            .in_lang(lang)
            .to_owned(),
        Text::new(
            "Selic, CDI, IPCA, exchange rates, companies and filings as JSON, with exact decimals and a free key in one step.",
            "Selic, CDI, IPCA, câmbio, companhias e documentos em JSON, com decimais exatos e chave gratuita em um passo.",
        )
        .in_lang(lang)
        .to_owned(),
    );
    let page = Layout::new(&settings, &asked, head);
    let subjects = SHOWN.into_iter().filter_map(Subject::from_id);
    let snapshot = settings.snapshot.get();
    let features = Feature::sold(&settings.offer)
        .map(|feature| HomeFeature { sentence: feature.sentence().in_lang(lang), plan: feature.plan().name() });
    let home = HomePage {
        requests: REQUESTS.map(|(name, path)| Request { name: name.in_lang(lang), path }).into(),
        indicators: subjects.filter_map(|subject| indicator(subject, &settings.snapshot, now, lang)).collect(),
        all_series: Subject::all().map(|subject| Named { id: subject.id(), name: subject.name(lang) }).collect(),
        promises: promises(&settings, lang),
        coverage: snapshot.as_deref().map(|snapshot| coverage(&settings, snapshot, lang)).unwrap_or_default(),
        whole: snapshot.is_some_and(|snapshot| settings.snapshot.is_whole(&snapshot, now)),
        features: features.collect(),
        page,
    };
    html_response(&home, &home.page, Styles::File)
}

fn promises(settings: &PageSettings, lang: Lang) -> Vec<String> {
    let limit = features(Plan::Free, &settings.offer, lang).into_iter().next().unwrap_or_default();
    let further = [
        Text::new("Your usage in the dashboard, up to the last request", "Seu uso no painel, até a última requisição"),
        Text::new(
            "The same key when you move to another plan, in force within a second",
            "A mesma chave quando você muda de plano, valendo em um segundo",
        ),
        Text::new("Rotate or revoke it yourself, at any time", "Troque-a ou revogue-a você mesmo, a qualquer momento"),
    ];
    [limit].into_iter().chain(further.map(|text| text.in_lang(lang).to_owned())).collect()
}

/// How much there is of what, and up to when.
fn coverage(settings: &PageSettings, snapshot: &Snapshot, lang: Lang) -> Vec<Fact> {
    let now = settings.clock.now();
    let fresh = |dataset| settings.snapshot.freshness(snapshot, dataset, now);
    let until = |newest: Option<NaiveDate>| newest.map(|newest| day(newest, lang)).unwrap_or_default();
    let values: usize =
        Dataset::all().filter(|dataset| matches!(dataset, Dataset::Series(_))).map(|one| fresh(one).rows).sum();
    let today = sao_paulo_day(now);
    let first = |subject: Subject| {
        let values = subject.values(snapshot)?;
        values.get(values.range(DateRange::ALL.until(today)).next()?).map(|(date, _)| date)
    };
    let first_value = series::served().filter_map(|series| first(Subject::Series(series))).min();
    let first_rate = Currency::ALL.into_iter().filter_map(|currency| first(Subject::Rate(currency))).min();
    let year = |date: Option<NaiveDate>| date.map(|date| date.format("%Y").to_string()).unwrap_or_default();
    let (fx, companies, filings): (Freshness, Freshness, Freshness) =
        (fresh(Dataset::Fx), fresh(Dataset::Companies), fresh(Dataset::Filings));
    let number = |count: usize| grouped(count, lang);
    let facts = match lang {
        Lang::En => [
            (
                format!("{} values", number(values)),
                format!("{} series of interest and inflation since {}.", series::served().count(), year(first_value)),
            ),
            (
                format!("{} exchange rates", number(fx.rows)),
                format!("10 currencies and all their crosses since {}, until {}.", year(first_rate), until(fx.newest)),
            ),
            (
                format!("{} companies", number(companies.rows)),
                "The whole register: listed and cancelled, with former names, tickers and CNPJ.".to_owned(),
            ),
            (
                format!("{} filings", number(filings.rows)),
                format!("Every version, searchable in full, until {}.", until(filings.newest)),
            ),
        ],
        Lang::Pt => [
            (
                format!("{} valores", number(values)),
                format!("{} séries de juros e inflação desde {}.", series::served().count(), year(first_value)),
            ),
            (
                format!("{} cotações", number(fx.rows)),
                format!("10 moedas e todos os seus cruzamentos desde {}, até {}.", year(first_rate), until(fx.newest)),
            ),
            (
                format!("{} companhias", number(companies.rows)),
                "Todo o cadastro: abertas e canceladas, com nomes anteriores, tickers e CNPJ.".to_owned(),
            ),
            (
                format!("{} documentos", number(filings.rows)),
                format!("Todas as versões, com busca textual, até {}.", until(filings.newest)),
            ),
        ],
    };
    facts.map(|(title, text)| Fact { title, text }).into()
}
