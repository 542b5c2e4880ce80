//! `/`: an introduction, the latest indicators, a first request and a free key.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use chrono::NaiveDate;
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::feature::Feature;
use vintem_domain::lang::{Lang, LocalizedText};
use vintem_domain::plan::Plan;
use vintem_domain::plan_description::describe_features;
use vintem_domain::series::{self, SeriesGroup};
use vintem_domain::{Currency, Dataset, DateRange};
use vintem_snapshot::{DatasetFreshness, Snapshot};

use crate::catalog::group_path;
use crate::context::{PageContext, SharedSettings};
use crate::formatting::{format_date, format_integer};
use crate::layout::{Layout, PageMetadata, PageRequest, StylePolicy, html_response};
use crate::market::{Indicator, SeriesOrRate, build_indicator};

#[derive(Template)]
#[template(path = "home.html")]
struct HomePage {
    page: Layout,
    requests: Vec<SampleRequest>,
    indicators: Vec<Indicator>,
    /// Path and name of each group of series.
    groups: Vec<(String, &'static str)>,
    key_benefits: Vec<String>,
    coverage: Vec<CoverageFact>,
    is_up_to_date: bool,
    features: Vec<HomeFeature>,
}

/// A request that the reader can run without a key.
struct SampleRequest {
    name: &'static str,
    path: &'static str,
}

struct CoverageFact {
    title: String,
    text: String,
}

/// How many rows each kind of data has, and the dates that they cover.
struct DataCoverage {
    value_count: usize,
    first_value: Option<NaiveDate>,
    first_rate: Option<NaiveDate>,
    fx: DatasetFreshness,
    companies: DatasetFreshness,
    filings: DatasetFreshness,
}

struct HomeFeature {
    sentence: &'static str,
    /// The lowest plan that includes it.
    plan: &'static str,
}

/// The same as in `/api/v1/market/overview`.
const HOME_INDICATORS: [&str; 4] = ["selic", "cdi", "ipca", "usd-brl"];

const SAMPLE_REQUESTS: [(LocalizedText, &str); 4] = [
    (LocalizedText::new("Current Selic", "Selic atual"), "/api/v1/market/selic/current"),
    (LocalizedText::new("Market overview", "Visão geral"), "/api/v1/market/overview"),
    (LocalizedText::new("Euro, last 5 days", "Euro, últimos 5 dias"), "/api/v1/market/fx?pair=EUR-BRL&limit=5"),
    (
        LocalizedText::new("110% of CDI", "110% do CDI"),
        "/api/v1/market/cdi/accumulated?from=2025-01-02&to=2026-01-02&percent=110&amount=1000.00",
    ),
];

pub(crate) async fn show_home(State(settings): State<SharedSettings>, request: PageRequest) -> Response {
    let lang = request.lang();
    let now = settings.clock.now();
    let metadata = PageMetadata::with_title(
        "/",
        LocalizedText::new(
            "Vintém: Brazilian financial data as an API",
            "Vintém: dados financeiros do Brasil em uma API",
        )
        .in_lang(lang)
        .to_owned(),
        LocalizedText::new(
            "Selic, CDI, IPCA, exchange rates, companies and filings as JSON. Exact decimals and a free API key.",
            "Selic, CDI, IPCA, câmbio, companhias e documentos em JSON. Decimais exatos e chave de API gratuita.",
        )
        .in_lang(lang)
        .to_owned(),
    );
    let page = Layout::new(&settings, &request, metadata);

    let subjects = HOME_INDICATORS.into_iter().filter_map(SeriesOrRate::from_id);
    let snapshot = settings.snapshot.get();
    let features = Feature::available(&settings.offer).map(|feature| HomeFeature {
        sentence: feature.description().in_lang(lang),
        plan: feature.required_plan().name(),
    });

    let home = HomePage {
        requests: SAMPLE_REQUESTS.map(|(name, path)| SampleRequest { name: name.in_lang(lang), path }).into(),
        indicators: subjects.filter_map(|subject| build_indicator(subject, &settings.snapshot, now, lang)).collect(),
        groups: SeriesGroup::ALL.map(|group| (group_path(group), group.name().in_lang(lang))).into(),
        key_benefits: key_benefits(&settings, lang),
        coverage: snapshot
            .as_deref()
            .map(|snapshot| coverage_facts(&DataCoverage::of_snapshot(&settings, snapshot), lang))
            .unwrap_or_default(),
        is_up_to_date: snapshot.is_some_and(|snapshot| settings.snapshot.is_complete_and_fresh(&snapshot, now)),
        features: features.collect(),
        page,
    };
    html_response(&home, &home.page, StylePolicy::ExternalOnly)
}

fn key_benefits(settings: &PageContext, lang: Lang) -> Vec<String> {
    let limit = describe_features(Plan::Free, &settings.offer, lang).into_iter().next().unwrap_or_default();
    let more = [
        LocalizedText::new(
            "Your usage in the dashboard, up to the last request",
            "Painel com o seu uso até a última requisição",
        ),
        LocalizedText::new(
            "The same key when you change plans; new limits apply within a second",
            "A mesma chave quando você muda de plano; os novos limites passam a valer em até um segundo",
        ),
        LocalizedText::new(
            "Rotation and revocation whenever you want, without contacting us",
            "Troca e revogação quando você quiser, sem falar com ninguém",
        ),
    ];
    [limit].into_iter().chain(more.map(|text| text.in_lang(lang).to_owned())).collect()
}

impl DataCoverage {
    fn of_snapshot(settings: &PageContext, snapshot: &Snapshot) -> Self {
        let now = settings.clock.now();
        let freshness = |dataset| settings.snapshot.freshness(snapshot, dataset, now);
        let is_series = |dataset: &Dataset| matches!(dataset, Dataset::Series(_));

        let today = sao_paulo_date(now);
        let first_date = |subject: SeriesOrRate| {
            let values = subject.values(snapshot)?;
            values.get(values.range(DateRange::ALL.capped_at(today)).next()?).map(|(date, _)| date)
        };
        let first_values = series::served_series().filter_map(|series| first_date(SeriesOrRate::Series(series)));
        let first_rates =
            Currency::ALL.into_iter().filter_map(|currency| first_date(SeriesOrRate::ExchangeRate(currency)));

        Self {
            value_count: Dataset::all().filter(is_series).map(|dataset| freshness(dataset).rows).sum(),
            first_value: first_values.min(),
            first_rate: first_rates.min(),
            fx: freshness(Dataset::Fx),
            companies: freshness(Dataset::Companies),
            filings: freshness(Dataset::Filings),
        }
    }
}

fn coverage_facts(coverage: &DataCoverage, lang: Lang) -> Vec<CoverageFact> {
    let DataCoverage { value_count, first_value, first_rate, fx, companies, filings } = coverage;

    let year = |date: Option<NaiveDate>| date.map(|date| date.format("%Y").to_string()).unwrap_or_default();
    let until = |newest: Option<NaiveDate>| newest.map(|newest| format_date(newest, lang)).unwrap_or_default();
    let number = |count: usize| format_integer(count, lang);
    let facts = match lang {
        Lang::En => [
            (
                format!("{} values", number(*value_count)),
                format!(
                    "{} series of interest rates, prices, activity, credit and public debt since {}.",
                    series::served_series().count(),
                    year(*first_value)
                ),
            ),
            (
                format!("{} exchange rates", number(fx.rows)),
                format!("10 currencies and all cross rates, from {} to {}.", year(*first_rate), until(fx.newest_date)),
            ),
            (
                format!("{} companies", number(companies.rows)),
                "All active and canceled companies, with former names, tickers and CNPJ numbers.".to_owned(),
            ),
            (
                format!("{} filings", number(filings.rows)),
                format!("Every version up to {}, with full-text search.", until(filings.newest_date)),
            ),
        ],
        Lang::Pt => [
            (
                format!("{} valores", number(*value_count)),
                format!(
                    "{} séries de juros, preços, atividade, crédito e dívida pública desde {}.",
                    series::served_series().count(),
                    year(*first_value)
                ),
            ),
            (
                format!("{} cotações", number(fx.rows)),
                format!("10 moedas e todos os pares cruzados, de {} a {}.", year(*first_rate), until(fx.newest_date)),
            ),
            (
                format!("{} companhias", number(companies.rows)),
                "O cadastro completo, com companhias ativas e canceladas, nomes anteriores, tickers e CNPJ.".to_owned(),
            ),
            (
                format!("{} documentos", number(filings.rows)),
                format!("Todas as versões até {}, com busca textual.", until(filings.newest_date)),
            ),
        ],
    };
    facts.map(|(title, text)| CoverageFact { title, text }).into()
}
