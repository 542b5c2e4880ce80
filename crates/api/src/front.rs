//! The outermost layer of the API. It checks a request in this order: caller → rate limit → key → route → plan →
//! handler. It also sets the headers that every response has, and records the outcome. Before all of that,
//! `load_shedding.rs` rejects requests when the process is overloaded.

mod load_shedding;
mod response_cache;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use tower::ServiceExt;
use vintem_domain::problem::ErrorCode;
use vintem_domain::route::{self, ROUTES, RateLimitKind, Route};
use vintem_domain::usage::{RequestOutcome, RouteGroup};
use vintem_domain::{AddressBucket, KeyId, Lang, Plan, Problem, ip_address};
use vintem_meter::{AdmissionDecision, AdmissionRequest, QuotaOwner};

use crate::api_error::{self, ApiError};
use crate::caller::{Caller, CallerDetails};
use crate::cpu_gate::CpuGate;
use crate::csv::{CSV_FORMAT_PARAM, prefers_csv};
use crate::identity::{Credential, client_address, parse_credential};
use crate::keyring::KeyVerdict;
use crate::load_limiter::LoadLimiter;
use crate::params::QueryParams;
use crate::request_metrics::{RouteMetrics, UNMATCHED_OPERATION};
use crate::{App, ProblemPageRenderer};
pub use response_cache::CacheableResponse;
use response_cache::{CacheValidity, ResponseCache};

/// Pages, documents and preflights that one address may request per window.
const PAGE_LIMIT_PER_WINDOW: u32 = 600;
/// Page searches per address and window. A search costs more than a page; the API's search counts against its own
/// quota.
const PAGE_SEARCH_LIMIT_PER_WINDOW: u32 = 60;
/// No legitimate request needs a longer URL, in bytes of path and query.
const MAX_URL_LENGTH: usize = 8192;

/// Wraps the handlers and looks up routes by itself.
pub struct FrontLayer {
    app: Arc<App>,
    /// The routes of each path, matched with the same library that axum uses.
    route_matcher: matchit::Router<Vec<RouteEntry>>,
    router: Router,
    /// The same handlers with compression, for clients that accept it.
    compressed_router: Router,
    /// Indexed by the plan's rank.
    plan_headers: [PlanHeaders; 4],
    load_limiter: LoadLimiter,
    cpu_gate: CpuGate,
    problem_page: ProblemPageRenderer,
    /// For requests that match no route.
    unmatched_metrics: &'static RouteMetrics,
}

/// A route with its response cache and metrics.
struct RouteEntry {
    route: &'static Route,
    cache: ResponseCache,
    metrics: &'static RouteMetrics,
}

/// Header values that depend only on the plan.
struct PlanHeaders {
    plan: HeaderValue,
    limit: HeaderValue,
    policy: HeaderValue,
}

impl FrontLayer {
    pub fn new(app: Arc<App>, router: Router, compressed_router: Router, problem_page: ProblemPageRenderer) -> Self {
        let mut by_path: HashMap<&'static str, Vec<RouteEntry>> = HashMap::new();
        for route in ROUTES {
            let cache = ResponseCache::default();
            let metrics = RouteMetrics::for_operation(route.operation);
            by_path.entry(route.path).or_default().push(RouteEntry { route, cache, metrics });
        }
        let mut route_matcher = matchit::Router::new();
        for (path, routes) in by_path {
            route_matcher.insert(path, routes).expect("axum has taken the same paths");
        }

        let limits = &app.settings.offer.limits;
        let policy = |plan: Plan| format!("\"{}\";q={};w={}", plan.id(), limits.for_plan(plan), limits.window_seconds);
        let plan_headers = Plan::ALL.map(|plan| PlanHeaders {
            plan: HeaderValue::from_static(plan.id()),
            limit: leak_header_value(limits.for_plan(plan).to_string()),
            policy: leak_header_value(policy(plan)),
        });

        let load_limiter = load_shedding::build_load_limiter(app.settings.max_in_flight);
        let cpu_gate = CpuGate::new();
        let unmatched_metrics = RouteMetrics::for_operation(UNMATCHED_OPERATION);
        Self {
            app,
            route_matcher,
            router,
            compressed_router,
            plan_headers,
            load_limiter,
            cpu_gate,
            problem_page,
            unmatched_metrics,
        }
    }

    /// Runs the handler. Pages bypass the CPU gate: they cost next to nothing, and `/health`, which is one of them,
    /// must not wait behind other requests.
    async fn run_handler(&self, request: Request, is_page: bool) -> Response {
        let router = if request.headers().contains_key(header::ACCEPT_ENCODING) {
            &self.compressed_router
        } else {
            &self.router
        };

        let handler = router.clone().oneshot(request);
        let result = if is_page { handler.await } else { self.cpu_gate.run(handler).await };
        match result {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn find_routes(&self, path: &str) -> &[RouteEntry] {
        self.route_matcher.at(path).map_or(&[], |matched| matched.value.as_slice())
    }
}

/// The caller, as identified by the request's key.
struct CallerIdentity {
    plan: Plan,
    key: Option<KeyId>,
    /// Why the request's key was rejected.
    key_problem: Option<Problem>,
}

/// The state of the caller's quota.
struct QuotaStatus {
    remaining: u32,
    reset_at_seconds: u64,
    /// `t` of the `RateLimit` header: seconds until the reset, or on 429 until the next request is admitted.
    reset_after_seconds: u64,
}

impl FrontLayer {
    async fn handle_request(&self, mut request: Request, peer: IpAddr) -> Response {
        let started = Instant::now();
        let app = &self.app;
        let headers = request.headers();
        let client = client_address(peer, headers, &app.settings.trusted_proxies);
        let lang = accepted_language(headers);
        let method = request.method().clone();
        let path = request.uri().path();
        let preflight = is_preflight(&method, headers);
        let routes = self.find_routes(path);
        let route_entry = routes.iter().find(|entry| accepts_method(entry.route, &method));
        let route = route_entry.map(|entry| entry.route);
        let browser = BrowserRequest::from_request(&request);

        let identity = identify_caller(app, headers).await;
        let admission = build_admission_request(app, &identity, client, preflight, route, path);
        let decision = app.meter.admit(&admission).await;
        let is_page = admission.charge != vintem_meter::AdmissionCharge::OwnQuota;
        let request_id = RequestId::new(decision.now_us, rand::random());
        let mut quota = quota_status(&decision);

        let access = if decision.admitted {
            check_access(&identity, preflight, &request, routes, route)
        } else {
            Err(rate_limit_problem(micros_to_seconds_ceil(decision.wait_us), is_page))
        };

        let cache_slot = route_entry.and_then(|entry| entry.cache.slot_for(entry.route, &request, &identity, lang));
        let cached =
            cache_slot.filter(|_| access.is_ok()).and_then(|slot| slot.get(&app.live_snapshot, app.clock.now()));
        let response = if let Some(mut response) = cached {
            self.write_quota_headers(response.headers_mut(), identity.plan, &quota, &request_id);
            response
        } else {
            let validity = cache_slot.and_then(|_| CacheValidity::current(&app.live_snapshot, app.clock.now()));
            let mut handler_time = None;
            let mut response = match access {
                Err(problem) => ApiError(problem).into_response(),
                Ok(()) if preflight => preflight_response(),
                Ok(()) => {
                    let caller = CallerDetails {
                        plan: identity.plan,
                        key: identity.key,
                        lang,
                        address: client,
                        admitted_at_us: decision.now_us,
                        if_none_match: request.headers().get(header::IF_NONE_MATCH).cloned(),
                        uri: request.uri().clone(),
                        prefers_csv: prefers_csv(request.headers()),
                    };
                    request.extensions_mut().insert(Caller(Arc::new(caller)));

                    let handler_started = Instant::now();
                    let response = self.run_handler(request, is_page).await;
                    handler_time = Some(handler_started.elapsed());
                    response
                }
            };

            if let Some(problem) = response.extensions_mut().remove::<Problem>() {
                response = self.render_problem(&problem, browser.as_ref(), lang, &request_id);
                if problem == Problem::MethodNotAllowed {
                    response.headers_mut().insert(header::ALLOW, allow_header(routes));
                }
                if let (ErrorCode::RateLimited, Some(wait)) = (problem.code(), problem.retry_after_seconds()) {
                    quota.reset_after_seconds = wait;
                }
            }

            self.write_common_headers(response.headers_mut(), &identity, &quota, &request_id);
            if let Some(handler_time) = handler_time.filter(|_| is_page) {
                write_server_timing(response.headers_mut(), handler_time, started.elapsed());
            }
            if let (Some(slot), Some(validity)) = (cache_slot, validity) {
                slot.store_if_cacheable(validity, &app.live_snapshot, app.clock.now(), &mut response);
            }
            response
        };

        let status = response.status();
        if let (Some(key), Some(group)) = (identity.key, admission.usage_group) {
            app.meter.record_outcome(key, group, decision.now_us, RequestOutcome::from_status(status.as_u16()));
        }
        let route_metrics = route_entry.map_or(self.unmatched_metrics, |entry| entry.metrics);
        route_metrics.record_request(identity.plan, status, started);
        tracing::info!(
            request_id = request_id.as_str(),
            method = method.as_str(),
            route = route.map_or("none", |route| route.path),
            status = status.as_u16(),
            plan = identity.plan.id(),
            key = identity.key,
            address = ip_address::anonymize_for_log(client),
            micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
            "request"
        );
        response
    }
}

/// A browser's request outside `/api/`: its problems are rendered as HTML pages.
struct BrowserRequest {
    headers: HeaderMap,
    uri: Uri,
}

impl BrowserRequest {
    fn from_request(request: &Request) -> Option<Self> {
        let accepted = request.headers().get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let is_browser = !request.uri().path().starts_with("/api/")
            && accepted.flat_map(|list| list.split(',')).any(is_html_media_type);

        is_browser.then(|| Self { headers: request.headers().clone(), uri: request.uri().clone() })
    }
}

fn is_html_media_type(range: &str) -> bool {
    range.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/html"))
}

impl FrontLayer {
    fn render_problem(
        &self,
        problem: &Problem,
        browser: Option<&BrowserRequest>,
        lang: Lang,
        request_id: &RequestId,
    ) -> Response {
        match browser {
            Some(browser) => (self.problem_page)(problem, &browser.headers, &browser.uri, request_id.as_str()),
            None => api_error::problem_response(problem, lang, request_id.as_str(), &self.app.settings.public_url),
        }
    }
}

fn accepted_language(headers: &HeaderMap) -> Lang {
    let accept_language = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
    accept_language.map_or(Lang::En, Lang::from_accept_language)
}

/// A request with an invalid key, or with two keys that conflict, is limited by its address, on the Free plan.
async fn identify_caller(app: &App, headers: &HeaderMap) -> CallerIdentity {
    let as_address = |key_problem| CallerIdentity { plan: Plan::Free, key: None, key_problem };

    match parse_credential(headers) {
        Credential::None => as_address(None),
        Credential::Malformed => as_address(Some(Problem::InvalidKey)),
        Credential::Conflicting => as_address(Some(Problem::ConflictingKeys)),
        Credential::Key(key) => match app.keyring.verify(&key).await {
            KeyVerdict::Valid { id, plan } => CallerIdentity { plan, key: Some(id), key_problem: None },
            KeyVerdict::Invalid => as_address(Some(Problem::InvalidKey)),
            KeyVerdict::LookupFailed => as_address(Some(Problem::DependencyUnavailable)),
        },
    }
}

fn build_admission_request(
    app: &App,
    identity: &CallerIdentity,
    client: IpAddr,
    preflight: bool,
    route: Option<&Route>,
    path: &str,
) -> AdmissionRequest {
    let address = AddressBucket::from_ip(client);
    let charge =
        if preflight { RateLimitKind::Page } else { route.map_or(RateLimitKind::Quota, |route| route.rate_limit) };

    AdmissionRequest {
        quota_owner: identity.key.map_or(QuotaOwner::Address(address), QuotaOwner::Key),
        limit: app.settings.offer.limits.for_plan(identity.plan),
        charge: match charge {
            RateLimitKind::Quota => vintem_meter::AdmissionCharge::OwnQuota,
            RateLimitKind::Page => vintem_meter::AdmissionCharge::PageView { address, limit: PAGE_LIMIT_PER_WINDOW },
            RateLimitKind::Search => {
                vintem_meter::AdmissionCharge::PageSearch { address, limit: PAGE_SEARCH_LIMIT_PER_WINDOW }
            }
        },
        usage_group: RouteGroup::from_path(path).filter(|_| charge == RateLimitKind::Quota && identity.key.is_some()),
    }
}

fn rate_limit_problem(retry_after_seconds: u64, is_page: bool) -> Problem {
    if is_page {
        Problem::TooManyPageViews { retry_after_seconds }
    } else {
        Problem::RateLimited { retry_after_seconds }
    }
}

/// Checks an admitted request before its handler runs. The order of the checks decides which problem is reported.
fn check_access(
    identity: &CallerIdentity,
    preflight: bool,
    request: &Request,
    routes: &[RouteEntry],
    route: Option<&Route>,
) -> Result<(), Problem> {
    if let Some(key_problem) = &identity.key_problem {
        return Err(key_problem.clone());
    }
    if preflight {
        return Ok(());
    }

    let Some(route) = route else {
        return Err(if routes.is_empty() { Problem::NoSuchPath } else { Problem::MethodNotAllowed });
    };
    let required = required_plan(route, request);
    if identity.plan < required {
        let has_key = identity.key.is_some();
        return Err(Problem::UpgradeRequired { current: identity.plan, required, has_key });
    }

    if request.uri().path_and_query().is_some_and(|url| url.as_str().len() > MAX_URL_LENGTH) {
        return Err(Problem::UrlTooLong);
    }
    Ok(())
}

/// The plan that the route requires with the requested options.
fn required_plan(route: &Route, request: &Request) -> Plan {
    let prefers_csv = prefers_csv(request.headers());
    let Some(query) = request.uri().query() else {
        return if prefers_csv { route.required_plan([CSV_FORMAT_PARAM].into_iter()) } else { route.plan };
    };

    let query = QueryParams::parse(query);
    let is_csv_by_accept = prefers_csv && !query.pairs().any(|(name, _)| name == CSV_FORMAT_PARAM.0);
    route.required_plan(query.pairs().chain(is_csv_by_accept.then_some(CSV_FORMAT_PARAM)))
}

/// Routes that accept GET also accept HEAD.
fn accepts_method(route: &Route, method: &Method) -> bool {
    match route.method {
        route::HttpMethod::Get => *method == Method::GET || *method == Method::HEAD,
        other => method.as_str() == other.as_str(),
    }
}

fn allow_header(routes: &[RouteEntry]) -> HeaderValue {
    let methods: Vec<&str> = routes
        .iter()
        .map(|entry| match entry.route.method {
            route::HttpMethod::Get => "GET, HEAD",
            other => other.as_str(),
        })
        .collect();
    HeaderValue::from_str(&methods.join(", ")).expect("plain text")
}

fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight_response() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, POST, PATCH, DELETE"));
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("X-API-Key, Authorization, Content-Type, If-None-Match"),
    );
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

fn quota_status(decision: &AdmissionDecision) -> QuotaStatus {
    QuotaStatus {
        remaining: decision.remaining,
        reset_at_seconds: micros_to_seconds_ceil(decision.reset_at_us),
        reset_after_seconds: micros_to_seconds_ceil(decision.reset_at_us.saturating_sub(decision.now_us)),
    }
}

const EXPOSED_HEADERS: &str = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit, RateLimit-Policy, X-Plan, \
     X-Request-Id, X-Data-Source, X-Data-As-Of, X-Data-Stale, ETag, Link, Retry-After, Content-Location, Content-Disposition";

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_PLAN: HeaderName = HeaderName::from_static("x-plan");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const X_DATA_SOURCE: HeaderName = HeaderName::from_static("x-data-source");
const VARY: HeaderValue =
    HeaderValue::from_static("Accept-Encoding, Accept, Accept-Language, X-API-Key, Authorization");
/// Pages also depend on the cookie with the language the reader chose.
const PAGE_VARY: HeaderValue =
    HeaderValue::from_static("Accept-Encoding, Accept, Accept-Language, X-API-Key, Authorization, Cookie");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const DEFAULT_CSP: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

impl FrontLayer {
    /// Writes the headers that every response has.
    fn write_common_headers(
        &self,
        headers: &mut HeaderMap,
        identity: &CallerIdentity,
        quota: &QuotaStatus,
        request_id: &RequestId,
    ) {
        let plan_headers = &self.plan_headers[identity.plan as usize];
        headers.reserve(20);
        headers.insert(X_RATELIMIT_LIMIT, plan_headers.limit.clone());
        headers.insert(RATELIMIT_POLICY, plan_headers.policy.clone());
        headers.insert(X_PLAN, plan_headers.plan.clone());

        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
        let varies_by_cookie = headers.get_all(header::VARY).iter().any(|value| value == "Cookie");
        headers.insert(header::VARY, if varies_by_cookie { PAGE_VARY } else { VARY });
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(DEFAULT_CSP);

        if self.app.live_snapshot.get().is_some_and(|snapshot| snapshot.is_synthetic()) {
            headers.insert(X_DATA_SOURCE, HeaderValue::from_static("synthetic"));
        }
        self.write_quota_headers(headers, identity.plan, quota, request_id);
    }

    /// Writes the headers that differ from one response to the next, so a cached response needs them again.
    fn write_quota_headers(&self, headers: &mut HeaderMap, plan: Plan, quota: &QuotaStatus, request_id: &RequestId) {
        let remaining = DecimalDigits::from_number(quota.remaining.into());
        let reset_after = DecimalDigits::from_number(quota.reset_after_seconds);

        let mut buffer = [0; 64];
        let parts = [b"\"", plan.id().as_bytes(), b"\";r=", remaining.as_bytes(), b";t=", reset_after.as_bytes()];
        let mut length = 0;
        for part in parts {
            buffer[length..length + part.len()].copy_from_slice(part);
            length += part.len();
        }

        let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).expect("digits and plan names");
        headers.insert(X_RATELIMIT_REMAINING, value(remaining.as_bytes()));
        headers.insert(X_RATELIMIT_RESET, value(DecimalDigits::from_number(quota.reset_at_seconds).as_bytes()));
        headers.insert(RATELIMIT, value(&buffer[..length]));
        headers.insert(X_REQUEST_ID, value(&request_id.0));
    }
}

/// Reports how long a page took: the handler alone, and the whole request including admission.
fn write_server_timing(headers: &mut HeaderMap, handler: Duration, total: Duration) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    if let Ok(value) = HeaderValue::from_str(&format!("handler;dur={:.3}, total;dur={:.3}", ms(handler), ms(total))) {
        headers.insert(SERVER_TIMING, value);
    }
}

/// A value that is cloned into every response. Cloning a static `HeaderValue` costs nothing, so the text is leaked.
fn leak_header_value(text: String) -> HeaderValue {
    HeaderValue::from_static(text.leak())
}

/// A number as decimal text on the stack: every response has several, and none should allocate.
struct DecimalDigits {
    text: [u8; 20],
    start: usize,
}

impl DecimalDigits {
    fn from_number(mut number: u64) -> Self {
        let mut text = [b'0'; 20];
        let mut start = 20;
        loop {
            start -= 1;
            text[start] += (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return Self { text, start };
            }
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.text[self.start..]
    }
}

/// The time of admission, so that IDs sort by time, then a random number that makes them unique; both in hexadecimal.
struct RequestId([u8; 25]);

impl RequestId {
    fn new(now_us: u64, random: u64) -> Self {
        const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut id = [b'-'; 25];
        let mut write = |range: std::ops::Range<usize>, mut rest: u64| {
            for digit in id[range].iter_mut().rev() {
                *digit = HEX_DIGITS[(rest % 16) as usize];
                rest /= 16;
            }
        };

        write(0..14, now_us);
        write(15..25, random);
        Self(id)
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("hexadecimal digits")
    }
}

fn micros_to_seconds_ceil(micros: u64) -> u64 {
    micros.div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_match_the_formatted_number() {
        for number in [0, 7, 10, 2000, 1_763_233_000, u64::MAX] {
            assert_eq!(DecimalDigits::from_number(number).as_bytes(), number.to_string().as_bytes());
        }
    }
}
