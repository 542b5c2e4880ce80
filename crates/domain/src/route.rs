//! The route table: which plan each route requires, which limit it counts against, and which feature it belongs to.
//!
//! Access control, the plan list, the pricing page and the plan badges in `openapi.yaml` are all derived from it.

use crate::lang::{Lang, LocalizedText};
use crate::plan::{Plan, PlanConfig};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpMethod {
    Get,
    Post,
    Patch,
    Delete,
}

impl HttpMethod {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// The longest URL that is answered, in bytes of path and query. No legitimate request needs a longer one.
pub const MAX_URL_BYTES: usize = 8192;

/// Which limit a request counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateLimitKind {
    /// The caller's own quota.
    Quota,
    /// Only the generous limit per address, so that a caller over its quota can still read the pricing page.
    Page,
    /// Like a page, but with its own limit, because a search costs more than a page.
    Search,
}

/// The feature that a route belongs to, as the plan list and the pricing page show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Open to everybody and not a reason to choose a plan: pages, plans, health.
    Service,
    Market,
    Calendar,
    Companies,
    Search,
    Filings,
    History,
    Export,
    Csv,
    Events,
    Webhooks,
    /// Priority support. It has no route; the operator offers it.
    Support,
}

impl Feature {
    /// In display order.
    const ALL: [Self; 11] = [
        Self::Market,
        Self::Calendar,
        Self::Companies,
        Self::Search,
        Self::Filings,
        Self::History,
        Self::Export,
        Self::Csv,
        Self::Events,
        Self::Webhooks,
        Self::Support,
    ];

    /// The features that this installation offers. Others are not listed.
    pub fn available(config: &PlanConfig) -> impl Iterator<Item = Self> {
        let priority_support = config.priority_support;
        Self::ALL.into_iter().filter(move |feature| *feature != Self::Support || priority_support)
    }

    pub const fn description(self) -> LocalizedText {
        match self {
            Self::Service => LocalizedText::new("Plans, status and documentation", "Planos, situação e documentação"),
            Self::Market => LocalizedText::new(
                "Market data with its whole history, also accumulated: Selic, CDI, IPCA, exchange rates",
                "Dados de mercado com todo o histórico, também acumulados: Selic, CDI, IPCA e câmbio",
            ),
            Self::Calendar => {
                LocalizedText::new("Business days of banks and of the exchange", "Dias úteis dos bancos e da bolsa")
            }
            Self::Companies => LocalizedText::new(
                "Companies: list, filters, search and look-up by code or CNPJ",
                "Companhias: lista, filtros, busca e consulta por código ou CNPJ",
            ),
            Self::Search => {
                LocalizedText::new("One search over companies and filings", "Uma só busca em companhias e documentos")
            }
            Self::Filings => LocalizedText::new(
                "Filings since 2003: list, filters, full-text search, by company",
                "Documentos desde 2003: lista, filtros, busca textual, por companhia",
            ),
            Self::History => LocalizedText::new(
                "Historical data: what could be known on a day (as_of), revisions, versions of filings",
                "Dados históricos: o que se podia saber em um dia (as_of), revisões, versões de documentos",
            ),
            Self::Export => LocalizedText::new(
                "Bulk export: every dataset as a file, in CSV, NDJSON and Parquet",
                "Exportação em massa: cada conjunto de dados como arquivo, em CSV, NDJSON e Parquet",
            ),
            Self::Events => LocalizedText::new(
                "Events: what is new, in order, to be read on from where one was",
                "Eventos: o que é novo, em ordem, para continuar de onde se parou",
            ),
            Self::Webhooks => LocalizedText::new(
                "Webhooks: signed, filtered, tried again for more than a day, with a log and replay",
                "Webhooks: assinados, com filtros, repetidos por mais de um dia, com registro e reenvio",
            ),
            Self::Support => LocalizedText::new("Priority support", "Suporte prioritário"),
            Self::Csv => LocalizedText::new(
                "Every list as CSV, also as Brazilian spreadsheets read it; up to 1,000,000 filings at once",
                "Todas as listas em CSV, também como as planilhas brasileiras o leem; até 1.000.000 de documentos de uma vez",
            ),
        }
    }

    const fn missing_description(self) -> LocalizedText {
        match self {
            Self::Service => LocalizedText::new("No service", "Sem serviço"),
            Self::Market => LocalizedText::new("No market data", "Sem dados de mercado"),
            Self::Calendar => LocalizedText::new("No business days", "Sem dias úteis"),
            Self::Companies => LocalizedText::new("No companies", "Sem companhias"),
            Self::Search => LocalizedText::new("No search", "Sem busca"),
            Self::Filings => LocalizedText::new("No filings", "Sem documentos"),
            Self::History => LocalizedText::new("No historical data", "Sem dados históricos"),
            Self::Export => LocalizedText::new("No bulk export", "Sem exportação em massa"),
            Self::Csv => LocalizedText::new("No CSV of lists", "Sem CSV das listas"),
            Self::Events => LocalizedText::new("No events", "Sem eventos"),
            Self::Webhooks => LocalizedText::new("No webhooks", "Sem webhooks"),
            Self::Support => LocalizedText::new("No priority support", "Sem suporte prioritário"),
        }
    }

    /// The lowest plan that includes it: that of its routes, or of its gated parameter if it has no route.
    pub fn required_plan(self) -> Plan {
        if self == Self::Support {
            return Plan::Platinum;
        }

        let route_plans = ROUTES.iter().filter(|route| route.feature == self).map(|route| route.plan);
        let parameter_plans =
            GATED_PARAMETERS.iter().filter(|parameter| parameter.feature == self).map(|parameter| parameter.plan);
        route_plans.chain(parameter_plans).next().unwrap_or(Plan::Free)
    }
}

#[derive(Debug)]
pub struct Route {
    /// The handler's name and the OpenAPI operation id.
    pub operation: &'static str,
    pub method: HttpMethod,
    pub path: &'static str,
    pub plan: Plan,
    pub rate_limit: RateLimitKind,
    pub feature: Feature,
}

const fn page(operation: &'static str, path: &'static str) -> Route {
    Route {
        operation,
        method: HttpMethod::Get,
        path,
        plan: Plan::Free,
        rate_limit: RateLimitKind::Page,
        feature: Feature::Service,
    }
}

const fn get(operation: &'static str, path: &'static str, plan: Plan, feature: Feature) -> Route {
    Route { operation, method: HttpMethod::Get, path, plan, rate_limit: RateLimitKind::Quota, feature }
}

const fn post(operation: &'static str, path: &'static str, plan: Plan, feature: Feature) -> Route {
    Route { operation, method: HttpMethod::Post, path, plan, rate_limit: RateLimitKind::Quota, feature }
}

/// A route by which owners manage their webhooks.
const fn webhook_route(operation: &'static str, method: HttpMethod, path: &'static str) -> Route {
    Route {
        operation,
        method,
        path,
        plan: Plan::Platinum,
        rate_limit: RateLimitKind::Quota,
        feature: Feature::Webhooks,
    }
}

/// A route by which owners manage their key, on any plan.
const fn key_owner_route(operation: &'static str, method: HttpMethod, path: &'static str) -> Route {
    Route { operation, method, path, plan: Plan::Free, rate_limit: RateLimitKind::Quota, feature: Feature::Service }
}

pub const ROUTES: &[Route] = &[
    page("get_health", "/health"),
    page("show_home", "/"),
    page("show_pricing", "/pricing"),
    page("show_docs", "/docs"),
    page("show_guides", "/docs/guides"),
    page("show_guide", "/docs/guides/{guide}"),
    page("show_dashboard", "/dashboard"),
    page("show_status", "/status"),
    page("get_status_feed", "/status.atom"),
    page("show_series", "/series/{id}"),
    page("show_company", "/companies/{id}"),
    Route { rate_limit: RateLimitKind::Search, ..page("show_search", "/search") },
    page("show_terms", "/terms"),
    page("show_privacy", "/privacy"),
    page("show_data", "/data"),
    page("get_robots", "/robots.txt"),
    page("get_sitemap", "/sitemap.xml"),
    page("get_security_contact", "/.well-known/security.txt"),
    page("get_llms", "/llms.txt"),
    page("get_openapi", "/docs/openapi.yaml"),
    page("get_docs_bundle", "/docs/scalar.js"),
    page("get_asset", "/assets/{file}"),
    page("get_icon", "/favicon.ico"),
    page("get_openapi_json", "/docs/openapi.json"),
    get("list_selic", "/api/v1/market/selic", Plan::Free, Feature::Market),
    get("get_selic", "/api/v1/market/selic/current", Plan::Free, Feature::Market),
    get("list_cdi", "/api/v1/market/cdi", Plan::Free, Feature::Market),
    get("get_cdi", "/api/v1/market/cdi/current", Plan::Free, Feature::Market),
    get("list_ipca", "/api/v1/market/ipca", Plan::Free, Feature::Market),
    get("get_ipca", "/api/v1/market/ipca/current", Plan::Free, Feature::Market),
    get("accumulate_selic", "/api/v1/market/selic/accumulated", Plan::Free, Feature::Market),
    get("accumulate_cdi", "/api/v1/market/cdi/accumulated", Plan::Free, Feature::Market),
    get("accumulate_ipca", "/api/v1/market/ipca/accumulated", Plan::Free, Feature::Market),
    get("accumulate_fx", "/api/v1/market/fx/accumulated", Plan::Free, Feature::Market),
    get("list_series", "/api/v1/market/series", Plan::Free, Feature::Market),
    get("list_observations", "/api/v1/market/series/{id}", Plan::Free, Feature::Market),
    get("get_observation", "/api/v1/market/series/{id}/current", Plan::Free, Feature::Market),
    get("list_revisions", "/api/v1/market/series/{id}/revisions", Plan::Gold, Feature::History),
    get("get_coverage", "/api/v1/market/series/{id}/coverage", Plan::Free, Feature::Market),
    get("compare_series", "/api/v1/market/compare", Plan::Free, Feature::Market),
    get("list_fx", "/api/v1/market/fx", Plan::Free, Feature::Market),
    get("get_fx", "/api/v1/market/fx/current", Plan::Free, Feature::Market),
    get("list_latest_fx", "/api/v1/market/fx/latest", Plan::Free, Feature::Market),
    get("list_bulletins", "/api/v1/market/fx/bulletins", Plan::Free, Feature::Market),
    get("get_overview", "/api/v1/market/overview", Plan::Free, Feature::Market),
    get("list_business_days", "/api/v1/calendar/business-days", Plan::Free, Feature::Calendar),
    get("add_business_days", "/api/v1/calendar/add", Plan::Free, Feature::Calendar),
    get("check_day", "/api/v1/calendar/check", Plan::Free, Feature::Calendar),
    get("list_companies", "/api/v1/companies", Plan::Bronze, Feature::Companies),
    get("count_companies", "/api/v1/companies/facets", Plan::Bronze, Feature::Companies),
    get("resolve_company", "/api/v1/companies/resolve", Plan::Bronze, Feature::Companies),
    get("search_companies", "/api/v1/companies/search", Plan::Bronze, Feature::Companies),
    get("get_company", "/api/v1/companies/{id}", Plan::Bronze, Feature::Companies),
    get("list_company_filings", "/api/v1/companies/{id}/filings", Plan::Gold, Feature::Filings),
    get("list_filings", "/api/v1/filings", Plan::Gold, Feature::Filings),
    get("count_filings", "/api/v1/filings/facets", Plan::Gold, Feature::Filings),
    get("search_filings", "/api/v1/filings/search", Plan::Gold, Feature::Filings),
    get("list_recent_filings", "/api/v1/filings/recent", Plan::Gold, Feature::Filings),
    get("get_filing", "/api/v1/filings/{id}", Plan::Gold, Feature::Filings),
    get("list_filing_versions", "/api/v1/filings/{id}/versions", Plan::Gold, Feature::History),
    get("search", "/api/v1/search", Plan::Bronze, Feature::Search),
    get("list_exports", "/api/v1/export", Plan::Gold, Feature::Export),
    get("get_export", "/api/v1/export/{file}", Plan::Gold, Feature::Export),
    get("list_events", "/api/v1/events", Plan::Platinum, Feature::Events),
    webhook_route("create_webhook", HttpMethod::Post, "/api/v1/webhooks"),
    webhook_route("list_webhooks", HttpMethod::Get, "/api/v1/webhooks"),
    webhook_route("get_webhook", HttpMethod::Get, "/api/v1/webhooks/{id}"),
    webhook_route("update_webhook", HttpMethod::Patch, "/api/v1/webhooks/{id}"),
    webhook_route("delete_webhook", HttpMethod::Delete, "/api/v1/webhooks/{id}"),
    webhook_route("test_webhook", HttpMethod::Post, "/api/v1/webhooks/{id}/test"),
    webhook_route("rotate_webhook", HttpMethod::Post, "/api/v1/webhooks/{id}/rotate"),
    webhook_route("list_deliveries", HttpMethod::Get, "/api/v1/webhooks/{id}/deliveries"),
    webhook_route("replay_delivery", HttpMethod::Post, "/api/v1/webhooks/{id}/deliveries/{delivery}/replay"),
    get("list_plans", "/api/v1/plans", Plan::Free, Feature::Service),
    post("register_key", "/api/v1/plans/register", Plan::Free, Feature::Service),
    get("get_usage", "/api/v1/plans/usage", Plan::Free, Feature::Service),
    key_owner_route("get_key", HttpMethod::Get, "/api/v1/keys/me"),
    key_owner_route("update_key", HttpMethod::Patch, "/api/v1/keys/me"),
    key_owner_route("revoke_key", HttpMethod::Delete, "/api/v1/keys/me"),
    key_owner_route("rotate_key", HttpMethod::Post, "/api/v1/keys/rotate"),
    get("get_status", "/api/v1/status", Plan::Free, Feature::Service),
];

/// A parameter, or one value of it, that requires a higher plan than the operations that accept it.
#[derive(Debug)]
pub struct GatedParameter {
    pub name: &'static str,
    /// `None` gates every value.
    pub value: Option<&'static str>,
    pub plan: Plan,
    pub feature: Feature,
    pub operations: &'static [&'static str],
}

pub const GATED_PARAMETERS: &[GatedParameter] = &[
    GatedParameter {
        name: "as_of",
        value: None,
        plan: Plan::Gold,
        feature: Feature::History,
        operations: &[
            "list_selic",
            "get_selic",
            "list_cdi",
            "get_cdi",
            "list_ipca",
            "get_ipca",
            "list_observations",
            "get_observation",
            "list_fx",
            "get_fx",
            "list_companies",
            "get_company",
            "list_filings",
            "list_company_filings",
            "get_filing",
        ],
    },
    // Applies to an `Accept` header that prefers CSV, too.
    GatedParameter {
        name: "format",
        value: Some("csv"),
        plan: Plan::Platinum,
        feature: Feature::Csv,
        operations: &[
            "list_selic",
            "list_cdi",
            "list_ipca",
            "list_series",
            "list_observations",
            "list_revisions",
            "compare_series",
            "list_fx",
            "list_latest_fx",
            "list_bulletins",
            "list_business_days",
            "list_companies",
            "search_companies",
            "list_company_filings",
            "list_filings",
            "search_filings",
            "list_recent_filings",
            "list_filing_versions",
            "get_usage",
        ],
    },
];

impl Route {
    /// The plan that a request with these parameters and values requires: the highest of all.
    pub fn required_plan<'q>(&self, parameters: impl Iterator<Item = (&'q str, Option<&'q str>)>) -> Plan {
        let parameter_plan = |(name, value): (&str, Option<&str>)| {
            let applies = |gated: &&GatedParameter| {
                gated.name == name
                    && gated.value.is_none_or(|gated_value| value == Some(gated_value))
                    && gated.operations.contains(&self.operation)
            };
            GATED_PARAMETERS.iter().filter(applies).map(|gated| gated.plan).max()
        };
        parameters.filter_map(parameter_plan).fold(self.plan, Plan::max)
    }
}

/// The route of this operation. Panics if the table has none, which is a bug that shows at the first start.
pub fn route_by_operation(operation: &str) -> &'static Route {
    ROUTES
        .iter()
        .find(|route| route.operation == operation)
        .unwrap_or_else(|| panic!("no line of the route table is called {operation}"))
}

/// Describes what a plan includes, one sentence per feature.
pub fn describe_features(plan: Plan, config: &PlanConfig, lang: Lang) -> Vec<String> {
    let limits = &config.limits;
    let mut sentences = vec![describe_rate_limit(limits.for_plan(plan), limits.window_seconds, lang)];

    if plan == Plan::Free {
        let text = LocalizedText::new(
            "No API key needed: counted per address; with a free key, per key",
            "Não é preciso chave: contado por endereço; com uma chave gratuita, por chave",
        );
        sentences.push(text.in_lang(lang).to_owned());
    }

    let included = Feature::available(config).filter(|feature| feature.required_plan() <= plan);
    sentences.extend(included.map(|feature| feature.description().in_lang(lang).to_owned()));
    sentences
}

/// Describes what a plan does not include, each with the plan that does.
pub fn describe_restrictions(plan: Plan, config: &PlanConfig, lang: Lang) -> Vec<String> {
    Feature::available(config)
        .filter(|feature| feature.required_plan() > plan)
        .map(|feature| {
            let missing = feature.missing_description().in_lang(lang);
            let required_plan = feature.required_plan().name();
            match lang {
                Lang::En => format!("{missing} (from {required_plan} on)"),
                Lang::Pt => format!("{missing} (a partir do {required_plan})"),
            }
        })
        .collect()
}

fn describe_rate_limit(limit: u32, window_seconds: u32, lang: Lang) -> String {
    match (lang, window_seconds) {
        (Lang::En, 60) => format!("{limit} requests in any minute"),
        (Lang::Pt, 60) => format!("{limit} requisições em qualquer minuto"),
        (Lang::En, _) => format!("{limit} requests in any {window_seconds} seconds"),
        (Lang::Pt, _) => format!("{limit} requisições em quaisquer {window_seconds} segundos"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_support_is_listed_only_when_offered() {
        let with_support = PlanConfig { priority_support: true, ..PlanConfig::default() };
        let last_feature = |config: &PlanConfig| describe_features(Plan::Platinum, config, Lang::En).pop().unwrap();
        assert_eq!(last_feature(&with_support), "Priority support");
        assert!(last_feature(&PlanConfig::default()).starts_with("Webhooks"));
        assert_eq!(
            describe_restrictions(Plan::Gold, &with_support, Lang::En).pop().unwrap(),
            "No priority support (from Platinum on)"
        );
    }

    #[test]
    fn all_routes_of_a_feature_require_the_same_plan() {
        for route in ROUTES {
            assert_eq!(route.plan, route.feature.required_plan(), "{}", route.operation);
        }
    }

    #[test]
    fn a_parameter_can_require_a_higher_plan_than_its_route() {
        let limit = ("limit", Some("2"));
        let as_of = ("as_of", Some("2026-01-01"));
        let csv = ("format", Some("csv"));
        let json = ("format", Some("json"));

        let selic = route_by_operation("list_selic");
        assert_eq!(selic.required_plan([limit, json].into_iter()), Plan::Free);
        assert_eq!(selic.required_plan([limit, as_of].into_iter()), Plan::Gold);
        assert_eq!(selic.required_plan([csv, json, as_of].into_iter()), Plan::Platinum);
        assert_eq!(route_by_operation("get_overview").required_plan([as_of, csv].into_iter()), Plan::Free);

        for parameter in GATED_PARAMETERS {
            assert!(parameter.operations.iter().all(|operation| route_by_operation(operation).operation == *operation));
        }
    }

    #[test]
    fn operations_and_paths_are_unique() {
        for (index, route) in ROUTES.iter().enumerate() {
            for other in &ROUTES[index + 1..] {
                assert_ne!(route.operation, other.operation);
                assert!(route.path != other.path || route.method != other.method, "{}", route.path);
            }
        }
    }

    #[test]
    fn platinum_has_no_restrictions_and_free_only_reaches_market_data() {
        assert_eq!(describe_restrictions(Plan::Platinum, &PlanConfig::default(), Lang::En), Vec::<String>::new());
        assert_eq!(
            describe_restrictions(Plan::Free, &PlanConfig::default(), Lang::En),
            [
                "No companies (from Bronze on)",
                "No search (from Bronze on)",
                "No filings (from Gold on)",
                "No historical data (from Gold on)",
                "No bulk export (from Gold on)",
                "No CSV of lists (from Platinum on)",
                "No events (from Platinum on)",
                "No webhooks (from Platinum on)"
            ]
        );
        assert_eq!(describe_features(Plan::Free, &PlanConfig::default(), Lang::En).len(), 4);
    }
}
