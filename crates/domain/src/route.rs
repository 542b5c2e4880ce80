//! The route table: for each route its plan, accepted parameters, rate limit, feature and deprecation.
//!
//! Access control, the check for unknown parameters, the plan list, the pricing page, the indexes at `/api/v1` and
//! `/api/v1/market`, and the plan badges in `openapi.yaml` are all derived from it.

use chrono::NaiveDate;

use crate::feature::Feature;
use crate::plan::Plan;

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

/// The longest URL that is accepted, in bytes of path and query. No legitimate request needs a longer one.
pub const MAX_URL_BYTES: usize = 8192;

/// The limit that a request counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateLimitKind {
    /// The caller's own quota.
    Quota,
    /// Only the generous limit per address, so that a caller over its quota can still read the pricing page.
    Page,
    /// Like a page, but with its own limit, because a search costs more than a page.
    Search,
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
    /// The query parameters that it accepts, in groups. The API rejects all others; pages ignore them.
    pub params: ParamGroups,
    /// Set if the route will be removed. Its responses announce that in `Deprecation` and `Sunset`.
    pub deprecation: Option<Deprecation>,
    /// Browsers may call it only from the service's own pages, not from other websites.
    pub is_same_origin_only: bool,
}

/// The notice that callers get before a route is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deprecation {
    /// The day on which the route was deprecated.
    pub since: NaiveDate,
    /// The first day on which it may be removed, at least twelve months later.
    pub sunset: NaiveDate,
}

type ParamGroups = &'static [&'static [&'static str]];

const NO_PARAMS: ParamGroups = &[];
const PAGE_OF_LIST: &[&str] = &["limit", "offset"];
const CSV: &[&str] = &["format", "locale", "download"];
const PAIR: &[&str] = &["pair"];
const RANGE_IN_ORDER: &[&str] = &["from", "to", "order"];
const VALUE_OF_DAY: &[&str] = &["on", "numbers", "provenance", "as_of"];
const ACCUMULATED: &[&str] = &["from", "to", "year", "amount", "percent", "spread", "detail", "numbers"];
/// The source of rows, and when we learned of them.
const ROW_HISTORY: &[&str] = &["provenance", "updated_since", "as_of"];
const ISSUER: &[&str] = &["company_id", "ticker"];
const FILING_FILTERS: &[&str] = &["category", "type", "year", "from", "to", "q"];

const CURRENT_RATE: ParamGroups = &[VALUE_OF_DAY];
const FX_CURRENT: ParamGroups = &[PAIR, VALUE_OF_DAY];
const RATE_LIST: ParamGroups = &[RANGE_IN_ORDER, PAGE_OF_LIST, &["numbers"], ROW_HISTORY, CSV];
const FX_LIST: ParamGroups = &[PAIR, RANGE_IN_ORDER, PAGE_OF_LIST, &["numbers"], ROW_HISTORY, CSV];
const LATEST_FX: ParamGroups = &[&["on", "numbers", "provenance"], CSV];
const BULLETINS: ParamGroups = &[&["pair", "date", "numbers"], CSV];
const CONVERSION: ParamGroups = &[&["amount", "pair", "on", "side", "numbers"]];
const ACCUMULATION: ParamGroups = &[ACCUMULATED];
const SERIES_ACCUMULATION: ParamGroups = &[ACCUMULATED, &["day"]];
const FX_ACCUMULATION: ParamGroups = &[PAIR, ACCUMULATED];
const REVISIONS: ParamGroups = &[&["from", "to"], PAGE_OF_LIST, &["numbers"], CSV];
const COMPARISON: ParamGroups = &[&["ids", "align"], RANGE_IN_ORDER, PAGE_OF_LIST, &["numbers"], CSV];
const COMPANY_LIST: ParamGroups = &[&["status", "sector", "state", "ticker", "q"], PAGE_OF_LIST, ROW_HISTORY, CSV];
const FILING_LIST: ParamGroups = &[ISSUER, FILING_FILTERS, PAGE_OF_LIST, ROW_HISTORY, CSV];
const COMPANY_FILING_LIST: ParamGroups = &[FILING_FILTERS, PAGE_OF_LIST, ROW_HISTORY, CSV];
const ROWS_OF_STATEMENTS: &[&str] = &["statement", "scope", "period", "comparatives", "numbers"];
const DOCUMENTS: &[&str] = &["from", "to", "version", "as_of"];
const STATEMENT_LIST: ParamGroups = &[ROWS_OF_STATEMENTS, DOCUMENTS, &["layout"], PAGE_OF_LIST, CSV];
const STATEMENTS_OF_FILING: ParamGroups = &[ROWS_OF_STATEMENTS, PAGE_OF_LIST, CSV];
const STATEMENT_PERIODS: ParamGroups = &[&["from", "to", "as_of"], PAGE_OF_LIST, CSV];
const SHARES: ParamGroups = &[DOCUMENTS, &["numbers"], PAGE_OF_LIST, CSV];
const STATEMENT_ACCOUNTS: ParamGroups = &[&["chart", "statement"], PAGE_OF_LIST, CSV];
const SEARCH: ParamGroups = &[&["q"], PAGE_OF_LIST, &["facets", "highlight"], CSV];
const SINGLE_ROW: ParamGroups = &[&["provenance", "as_of"]];

const fn page(operation: &'static str, path: &'static str) -> Route {
    Route {
        operation,
        method: HttpMethod::Get,
        path,
        plan: Plan::Free,
        rate_limit: RateLimitKind::Page,
        feature: Feature::Service,
        params: NO_PARAMS,
        deprecation: None,
        is_same_origin_only: false,
    }
}

const fn get(operation: &'static str, path: &'static str, plan: Plan, feature: Feature, params: ParamGroups) -> Route {
    Route {
        operation,
        method: HttpMethod::Get,
        path,
        plan,
        rate_limit: RateLimitKind::Quota,
        feature,
        params,
        deprecation: None,
        is_same_origin_only: false,
    }
}

/// A route for owners to manage their webhooks.
const fn webhook_route(operation: &'static str, method: HttpMethod, path: &'static str) -> Route {
    Route {
        operation,
        method,
        path,
        plan: Plan::Platinum,
        rate_limit: RateLimitKind::Quota,
        feature: Feature::Webhooks,
        params: NO_PARAMS,
        deprecation: None,
        is_same_origin_only: false,
    }
}

/// A route for owners to manage their key, on any plan.
const fn key_route(operation: &'static str, method: HttpMethod, path: &'static str) -> Route {
    Route {
        operation,
        method,
        path,
        plan: Plan::Free,
        rate_limit: RateLimitKind::Quota,
        feature: Feature::Service,
        params: NO_PARAMS,
        deprecation: None,
        is_same_origin_only: false,
    }
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
    page("show_catalog", "/series"),
    page("show_series_group", "/series/group/{group}"),
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
    page("get_docs_bundle", "/docs/scalar.js"),
    page("get_asset", "/assets/{file}"),
    page("get_icon", "/favicon.ico"),
    page("get_openapi", "/docs/openapi.yaml"),
    page("get_openapi_json", "/docs/openapi.json"),
    page("get_openapi_pt", "/docs/openapi.pt-BR.yaml"),
    page("get_openapi_pt_json", "/docs/openapi.pt-BR.json"),
    get("get_index", "/api/v1", Plan::Free, Feature::Service, NO_PARAMS),
    get("get_market_index", "/api/v1/market", Plan::Free, Feature::Market, NO_PARAMS),
    get("list_selic", "/api/v1/market/selic", Plan::Free, Feature::Market, RATE_LIST),
    get("get_selic", "/api/v1/market/selic/current", Plan::Free, Feature::Market, CURRENT_RATE),
    get("list_cdi", "/api/v1/market/cdi", Plan::Free, Feature::Market, RATE_LIST),
    get("get_cdi", "/api/v1/market/cdi/current", Plan::Free, Feature::Market, CURRENT_RATE),
    get("list_ipca", "/api/v1/market/ipca", Plan::Free, Feature::Market, RATE_LIST),
    get("get_ipca", "/api/v1/market/ipca/current", Plan::Free, Feature::Market, CURRENT_RATE),
    get("accumulate_selic", "/api/v1/market/selic/accumulated", Plan::Free, Feature::Market, ACCUMULATION),
    get("accumulate_cdi", "/api/v1/market/cdi/accumulated", Plan::Free, Feature::Market, ACCUMULATION),
    get("accumulate_ipca", "/api/v1/market/ipca/accumulated", Plan::Free, Feature::Market, ACCUMULATION),
    get("accumulate_fx", "/api/v1/market/fx/accumulated", Plan::Free, Feature::Market, FX_ACCUMULATION),
    get("list_series", "/api/v1/market/series", Plan::Free, Feature::Market, &[&["q", "group"], CSV]),
    get("list_observations", "/api/v1/market/series/{id}", Plan::Free, Feature::Market, RATE_LIST),
    get("get_observation", "/api/v1/market/series/{id}/current", Plan::Free, Feature::Market, CURRENT_RATE),
    get(
        "accumulate_series",
        "/api/v1/market/series/{id}/accumulated",
        Plan::Free,
        Feature::Market,
        SERIES_ACCUMULATION,
    ),
    get("list_revisions", "/api/v1/market/series/{id}/revisions", Plan::Gold, Feature::History, REVISIONS),
    get("get_coverage", "/api/v1/market/series/{id}/coverage", Plan::Free, Feature::Market, &[&["from", "to"]]),
    get("compare_series", "/api/v1/market/compare", Plan::Free, Feature::Market, COMPARISON),
    get("list_fx", "/api/v1/market/fx", Plan::Free, Feature::Market, FX_LIST),
    get("get_fx", "/api/v1/market/fx/current", Plan::Free, Feature::Market, FX_CURRENT),
    get("list_latest_fx", "/api/v1/market/fx/latest", Plan::Free, Feature::Market, LATEST_FX),
    get("convert_currency", "/api/v1/market/fx/convert", Plan::Free, Feature::Market, CONVERSION),
    get("list_bulletins", "/api/v1/market/fx/bulletins", Plan::Free, Feature::Market, BULLETINS),
    get("get_overview", "/api/v1/market/overview", Plan::Free, Feature::Market, &[&["numbers", "provenance"]]),
    get(
        "list_business_days",
        "/api/v1/calendar/business-days",
        Plan::Free,
        Feature::Calendar,
        &[&["from", "to", "calendar"], CSV],
    ),
    get("add_business_days", "/api/v1/calendar/add", Plan::Free, Feature::Calendar, &[&["date", "days", "calendar"]]),
    get("list_holidays", "/api/v1/calendar/holidays", Plan::Free, Feature::Calendar, &[&["year", "calendar"], CSV]),
    get("get_holidays_ics", "/api/v1/calendar/holidays.ics", Plan::Free, Feature::Calendar, &[&["year", "calendar"]]),
    get("check_day", "/api/v1/calendar/check", Plan::Free, Feature::Calendar, &[&["date", "calendar"]]),
    get("list_companies", "/api/v1/companies", Plan::Bronze, Feature::Companies, COMPANY_LIST),
    get("count_companies", "/api/v1/companies/facets", Plan::Bronze, Feature::Companies, NO_PARAMS),
    get(
        "resolve_company",
        "/api/v1/companies/resolve",
        Plan::Bronze,
        Feature::Companies,
        &[&["cnpj", "code", "ticker", "name"]],
    ),
    get("search_companies", "/api/v1/companies/search", Plan::Bronze, Feature::Companies, SEARCH),
    get("get_company", "/api/v1/companies/{id}", Plan::Bronze, Feature::Companies, SINGLE_ROW),
    get("list_company_filings", "/api/v1/companies/{id}/filings", Plan::Gold, Feature::Filings, COMPANY_FILING_LIST),
    get("list_filings", "/api/v1/filings", Plan::Gold, Feature::Filings, FILING_LIST),
    get("count_filings", "/api/v1/filings/facets", Plan::Gold, Feature::Filings, NO_PARAMS),
    get("search_filings", "/api/v1/filings/search", Plan::Gold, Feature::Filings, SEARCH),
    get("list_recent_filings", "/api/v1/filings/recent", Plan::Gold, Feature::Filings, &[&["limit"], CSV]),
    get("get_filing", "/api/v1/filings/{id}", Plan::Gold, Feature::Filings, SINGLE_ROW),
    get("list_filing_versions", "/api/v1/filings/{id}/versions", Plan::Gold, Feature::History, &[PAGE_OF_LIST, CSV]),
    get("list_statements", "/api/v1/companies/{id}/statements", Plan::Gold, Feature::Statements, STATEMENT_LIST),
    get(
        "list_statement_periods",
        "/api/v1/companies/{id}/statements/periods",
        Plan::Gold,
        Feature::Statements,
        STATEMENT_PERIODS,
    ),
    get("list_shares", "/api/v1/companies/{id}/shares", Plan::Gold, Feature::Statements, SHARES),
    get(
        "get_filing_statements",
        "/api/v1/filings/{id}/statements",
        Plan::Gold,
        Feature::Statements,
        STATEMENTS_OF_FILING,
    ),
    get("list_statement_accounts", "/api/v1/statements/accounts", Plan::Gold, Feature::Statements, STATEMENT_ACCOUNTS),
    get("search", "/api/v1/search", Plan::Bronze, Feature::Search, &[&["q", "limit"]]),
    get("list_exports", "/api/v1/export", Plan::Gold, Feature::Export, NO_PARAMS),
    get("get_export", "/api/v1/export/{file}", Plan::Gold, Feature::Export, NO_PARAMS),
    get("list_events", "/api/v1/events", Plan::Platinum, Feature::Events, &[&["after", "types", "wait", "limit"]]),
    webhook_route("create_webhook", HttpMethod::Post, "/api/v1/webhooks"),
    webhook_route("list_webhooks", HttpMethod::Get, "/api/v1/webhooks"),
    webhook_route("get_webhook", HttpMethod::Get, "/api/v1/webhooks/{id}"),
    webhook_route("update_webhook", HttpMethod::Patch, "/api/v1/webhooks/{id}"),
    webhook_route("delete_webhook", HttpMethod::Delete, "/api/v1/webhooks/{id}"),
    webhook_route("test_webhook", HttpMethod::Post, "/api/v1/webhooks/{id}/test"),
    webhook_route("rotate_webhook", HttpMethod::Post, "/api/v1/webhooks/{id}/rotate"),
    Route {
        params: &[&["state"], PAGE_OF_LIST],
        ..webhook_route("list_deliveries", HttpMethod::Get, "/api/v1/webhooks/{id}/deliveries")
    },
    webhook_route("replay_delivery", HttpMethod::Post, "/api/v1/webhooks/{id}/deliveries/{delivery}/replay"),
    get("list_plans", "/api/v1/plans", Plan::Free, Feature::Service, NO_PARAMS),
    Route { is_same_origin_only: true, ..key_route("register_key", HttpMethod::Post, "/api/v1/plans/register") },
    get("get_usage", "/api/v1/plans/usage", Plan::Free, Feature::Service, &[&["from", "to", "detail"], CSV]),
    key_route("get_key", HttpMethod::Get, "/api/v1/keys/me"),
    key_route("update_key", HttpMethod::Patch, "/api/v1/keys/me"),
    key_route("revoke_key", HttpMethod::Delete, "/api/v1/keys/me"),
    key_route("rotate_key", HttpMethod::Post, "/api/v1/keys/rotate"),
    get("get_status", "/api/v1/status", Plan::Free, Feature::Service, NO_PARAMS),
];

/// A parameter, or a value of a parameter, that requires a higher plan than the routes that accept it.
#[derive(Debug)]
pub struct GatedParameter {
    pub name: &'static str,
    /// `None` gates every value.
    pub value: Option<&'static str>,
    pub plan: Plan,
    pub feature: Feature,
}

pub const GATED_PARAMETERS: &[GatedParameter] = &[
    GatedParameter { name: "as_of", value: None, plan: Plan::Gold, feature: Feature::History },
    // Also applies to an `Accept` header that prefers CSV.
    GatedParameter { name: "format", value: Some("csv"), plan: Plan::Platinum, feature: Feature::Csv },
];

impl GatedParameter {
    /// The routes that accept it.
    pub fn routes(&self) -> impl Iterator<Item = &'static Route> {
        let name = self.name;
        ROUTES.iter().filter(move |route| route.takes_param(name))
    }
}

impl Feature {
    /// The lowest plan that includes it: the plan of its routes or, if it has no route, of its gated parameter.
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

impl Route {
    /// Whether this is an operation of the API, and not a page.
    pub fn is_api(&self) -> bool {
        self.path.starts_with("/api/")
    }

    pub fn param_names(&self) -> impl Iterator<Item = &'static str> {
        self.params.iter().flat_map(|group| group.iter().copied())
    }

    pub fn takes_param(&self, name: &str) -> bool {
        self.param_names().any(|param_name| param_name == name)
    }

    /// The plan that a request with these parameters and values requires: the highest plan among them.
    pub fn required_plan<'q>(&self, parameters: impl Iterator<Item = (&'q str, Option<&'q str>)>) -> Plan {
        let parameter_plan = |(name, value): (&str, Option<&str>)| {
            let applies = |gated: &&GatedParameter| {
                gated.name == name
                    && gated.value.is_none_or(|gated_value| value == Some(gated_value))
                    && self.takes_param(gated.name)
            };
            GATED_PARAMETERS.iter().filter(applies).map(|gated| gated.plan).max()
        };
        parameters.filter_map(parameter_plan).fold(self.plan, Plan::max)
    }
}

/// The route of this operation. Panics if the table has none, so such a bug shows at startup.
pub fn route_by_operation(operation: &str) -> &'static Route {
    ROUTES
        .iter()
        .find(|route| route.operation == operation)
        .unwrap_or_else(|| panic!("the route table has no operation {operation}"))
}

#[cfg(test)]
mod tests {
    use chrono::Months;

    use super::*;

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

        assert!(GATED_PARAMETERS.iter().all(|parameter| parameter.routes().count() > 10));
    }

    #[test]
    fn a_deprecated_route_has_at_least_twelve_months_until_its_sunset() {
        let has_enough_notice = |deprecation: Deprecation| deprecation.sunset >= deprecation.since + Months::new(12);
        for route in ROUTES {
            assert!(route.deprecation.is_none_or(has_enough_notice), "{}", route.operation);
        }

        let since: NaiveDate = "2026-01-31".parse().unwrap();
        for (sunset, is_enough) in [("2027-01-30", false), ("2027-01-31", true)] {
            let sunset: NaiveDate = sunset.parse().unwrap();
            assert_eq!(has_enough_notice(Deprecation { since, sunset }), is_enough, "{sunset}");
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
}
