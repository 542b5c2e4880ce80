//! The outermost layer, in the order in which a request is judged: who calls → limit → key → route → plan → handler.
//! It puts the headers on every answer, whoever gave it, and notes the outcome. Before all of that it is asked whether
//! there is room for one more (`shed.rs`).

mod kept;
mod shed;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use tower::ServiceExt;
use vintem_domain::problem::Code;
use vintem_domain::route::{self, Charge, ROUTES, Route};
use vintem_domain::usage::{Outcome, RouteGroup};
use vintem_domain::{AddressBucket, KeyId, Lang, Plan, Problem, address};
use vintem_meter::{Verdict, Visit, Visitor};

use crate::caller::{Caller, CallerDetails};
use crate::csv::{CSV, prefers_csv};
use crate::doorway::Doorway;
use crate::identity::{Credential, client_address, credential};
use crate::keyring::KeyVerdict;
use crate::observe::{NO_OPERATION, RouteMetrics};
use crate::params::Query;
use crate::problem::{self, Refusal};
use crate::turns::Turns;
use crate::{App, ProblemPage};
pub use kept::Lasting;
use kept::{KeptAnswers, MadeOf};

/// What an address may read of pages, documents and preflights in one window.
const PAGES_PER_WINDOW: u32 = 600;
/// What it may search for on the pages: each costs more than a page, and the API has its own.
const SEARCHES_PER_WINDOW: u32 = 60;
/// What is longer is no request that anyone needs.
const LONGEST_ADDRESS: usize = 8192;

/// The service and its routes as the front layer looks them up.
pub struct Front {
    app: Arc<App>,
    /// The methods of each path, found as axum finds them.
    paths: matchit::Router<Vec<Served>>,
    /// The handlers, and the same for who takes compressed answers.
    routes: Router,
    compressed: Router,
    /// By rank of the plan.
    policies: [PlanHeaders; 4],
    doorway: Doorway,
    turns: Turns,
    problem_page: ProblemPage,
    /// Of requests that no route takes.
    no_metrics: &'static RouteMetrics,
}

/// A route, the answers of it that were made already, and what is recorded of it.
struct Served {
    route: &'static Route,
    kept: KeptAnswers,
    metrics: &'static RouteMetrics,
}

/// What the headers of a plan say of every request.
struct PlanHeaders {
    plan: HeaderValue,
    limit: HeaderValue,
    policy: HeaderValue,
}

impl Front {
    pub fn new(app: Arc<App>, routes: Router, compressed: Router, problem_page: ProblemPage) -> Self {
        let mut by_path: HashMap<&'static str, Vec<Served>> = HashMap::new();
        for route in ROUTES {
            let (kept, metrics) = (KeptAnswers::default(), RouteMetrics::of(route.operation));
            by_path.entry(route.path).or_default().push(Served { route, kept, metrics });
        }
        let mut paths = matchit::Router::new();
        for (path, routes) in by_path {
            paths.insert(path, routes).expect("axum has taken the same paths");
        }
        let limits = &app.settings.offer.limits;
        let policy = |plan: Plan| format!("\"{}\";q={};w={}", plan.id(), limits.of(plan), limits.window_seconds);
        let policies = Plan::ALL.map(|plan| PlanHeaders {
            plan: HeaderValue::from_static(plan.id()),
            limit: for_ever(limits.of(plan).to_string()),
            policy: for_ever(policy(plan)),
        });
        let (doorway, turns) = (shed::doorway(app.settings.most_in_flight), Turns::new());
        let no_metrics = RouteMetrics::of(NO_OPERATION);
        Self { app, paths, routes, compressed, policies, doorway, turns, problem_page, no_metrics }
    }

    /// The handler's own answer. Pages cost next to nothing, and of them `/health` must not wait for others.
    async fn handle(&self, request: Request, is_page: bool) -> Response {
        let routes =
            if request.headers().contains_key(header::ACCEPT_ENCODING) { &self.compressed } else { &self.routes };
        let handled = routes.clone().oneshot(request);
        match if is_page { handled.await } else { self.turns.take(handled).await } {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn routes(&self, path: &str) -> &[Served] {
        self.paths.at(path).map_or(&[], |found| found.value.as_slice())
    }
}

/// Who calls, as far as the request itself says.
struct Identity {
    plan: Plan,
    key: Option<KeyId>,
    /// Why the key it shows is not taken.
    objection: Option<Problem>,
}

/// How the caller stands with its quota.
struct Standing {
    remaining: u32,
    reset_at_seconds: u64,
    /// `t` of the `RateLimit` header: to the reset, on 429 until one will pass.
    seconds: u64,
}

impl Front {
    async fn answer(&self, mut request: Request, peer: IpAddr) -> Response {
        let started = Instant::now();
        let app = &self.app;
        let headers = request.headers();
        let client = client_address(peer, headers, &app.settings.trusted_proxies);
        let lang = language(headers);
        let (method, path) = (request.method().clone(), request.uri().path());
        let preflight = is_preflight(&method, headers);
        let routes = self.routes(path);
        let served = routes.iter().find(|served| takes(served.route, &method));
        let route = served.map(|served| served.route);
        let reader = Reader::of(&request);

        let identity = identify(app, headers).await;
        let visit = visit(app, &identity, client, preflight, route, path);
        let verdict = app.meter.admit(&visit).await;
        let is_page = visit.charge != vintem_meter::Charge::Quota;
        let request_id = RequestId::new(verdict.now_us, rand::random());

        let judged = if verdict.admitted {
            judge(&identity, preflight, &request, routes, route)
        } else {
            Err(refused(seconds_up(verdict.wait_us), is_page))
        };
        let place = served.and_then(|served| served.kept.place(served.route, &request, &identity, lang));
        let (mut standing, mut handled_in) = (standing(&verdict), None);
        let kept = place.filter(|_| judged.is_ok()).and_then(|place| place.answer(&app.snapshot, app.clock.now()));
        let response = if let Some(mut response) = kept {
            self.write_standing(response.headers_mut(), identity.plan, &standing, &request_id);
            response
        } else {
            let made_of = place.and_then(|_| MadeOf::now(&app.snapshot, app.clock.now()));
            let mut response = match judged {
                Err(problem) => Refusal(problem).into_response(),
                Ok(()) if preflight => preflight_answer(),
                Ok(()) => {
                    let caller = CallerDetails {
                        plan: identity.plan,
                        key: identity.key,
                        lang,
                        address: client,
                        admitted_at_us: verdict.now_us,
                        if_none_match: request.headers().get(header::IF_NONE_MATCH).cloned(),
                        uri: request.uri().clone(),
                        prefers_csv: prefers_csv(request.headers()),
                    };
                    request.extensions_mut().insert(Caller(Arc::new(caller)));
                    let began = Instant::now();
                    let handled = self.handle(request, is_page).await;
                    handled_in = Some(began.elapsed());
                    handled
                }
            };
            if let Some(problem) = response.extensions_mut().remove::<Problem>() {
                response = self.tell(&problem, reader.as_ref(), lang, &request_id);
                if problem == Problem::MethodNotAllowed {
                    response.headers_mut().insert(header::ALLOW, allow(routes));
                }
                if let (Code::RateLimited, Some(wait)) = (problem.code(), problem.retry_after_seconds()) {
                    standing.seconds = wait;
                }
            }
            self.write_headers(response.headers_mut(), &identity, &standing, &request_id);
            if let Some(handled_in) = handled_in.filter(|_| is_page) {
                write_timing(response.headers_mut(), handled_in, started.elapsed());
            }
            if let (Some(place), Some(made_of)) = (place, made_of) {
                place.keep(made_of, &app.snapshot, app.clock.now(), &mut response);
            }
            response
        };

        let status = response.status();
        if let (Some(key), Some(group)) = (identity.key, visit.counted) {
            app.meter.note_outcome(key, group, verdict.now_us, Outcome::of_status(status.as_u16()));
        }
        served.map_or(self.no_metrics, |served| served.metrics).note(identity.plan, status, started);
        tracing::info!(
            request_id = request_id.as_str(),
            method = method.as_str(),
            route = route.map_or("none", |route| route.path),
            status = status.as_u16(),
            plan = identity.plan.id(),
            key = identity.key,
            address = address::for_log(client),
            micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
            "request"
        );
        response
    }
}

/// A person at a browser who asked for something outside of the API, and is told of problems by a page.
struct Reader {
    headers: HeaderMap,
    uri: Uri,
}

impl Reader {
    fn of(request: &Request) -> Option<Self> {
        let accepted = request.headers().get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let is_browser =
            !request.uri().path().starts_with("/api/") && accepted.flat_map(|list| list.split(',')).any(is_html);
        is_browser.then(|| Self { headers: request.headers().clone(), uri: request.uri().clone() })
    }
}

fn is_html(range: &str) -> bool {
    range.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/html"))
}

impl Front {
    fn tell(&self, problem: &Problem, reader: Option<&Reader>, lang: Lang, request_id: &RequestId) -> Response {
        match reader {
            Some(reader) => (self.problem_page)(problem, &reader.headers, &reader.uri, request_id.as_str()),
            None => problem::write(problem, lang, request_id.as_str(), &self.app.settings.public_url),
        }
    }
}

fn language(headers: &HeaderMap) -> Lang {
    let said = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
    said.map_or(Lang::En, Lang::from_accept_language)
}

/// A bad or contradictory key counts as its address, on the Free plan.
async fn identify(app: &App, headers: &HeaderMap) -> Identity {
    let as_address = |objection| Identity { plan: Plan::Free, key: None, objection };
    match credential(headers) {
        Credential::None => as_address(None),
        Credential::Malformed => as_address(Some(Problem::InvalidKey)),
        Credential::Contradictory => as_address(Some(Problem::TwoKeys)),
        Credential::Key(key) => match app.keyring.verdict(&key).await {
            KeyVerdict::Valid { id, plan } => Identity { plan, key: Some(id), objection: None },
            KeyVerdict::Invalid => as_address(Some(Problem::InvalidKey)),
            KeyVerdict::Unknown => as_address(Some(Problem::DependencyAway)),
        },
    }
}

fn visit(app: &App, identity: &Identity, client: IpAddr, preflight: bool, route: Option<&Route>, path: &str) -> Visit {
    let address = AddressBucket::of(client);
    let charge = if preflight { Charge::Page } else { route.map_or(Charge::Quota, |route| route.charge) };
    Visit {
        visitor: identity.key.map_or(Visitor::Address(address), Visitor::Key),
        limit: app.settings.offer.limits.of(identity.plan),
        charge: match charge {
            Charge::Quota => vintem_meter::Charge::Quota,
            Charge::Page => vintem_meter::Charge::Page { address, limit: PAGES_PER_WINDOW },
            Charge::Search => vintem_meter::Charge::Search { address, limit: SEARCHES_PER_WINDOW },
        },
        counted: RouteGroup::of_path(path).filter(|_| charge == Charge::Quota && identity.key.is_some()),
    }
}

fn refused(retry_after_seconds: u64, is_page: bool) -> Problem {
    if is_page { Problem::TooManyPages { retry_after_seconds } } else { Problem::RateLimited { retry_after_seconds } }
}

/// What is wrong with an admitted request before its handler sees it, in the decided order.
fn judge(
    identity: &Identity,
    preflight: bool,
    request: &Request,
    routes: &[Served],
    route: Option<&Route>,
) -> Result<(), Problem> {
    if let Some(objection) = &identity.objection {
        return Err(objection.clone());
    }
    if preflight {
        return Ok(());
    }
    let Some(route) = route else {
        return Err(if routes.is_empty() { Problem::NoSuchPath } else { Problem::MethodNotAllowed });
    };
    let required = required_plan(route, request);
    if identity.plan < required {
        let with_key = identity.key.is_some();
        return Err(Problem::UpgradeRequired { current: identity.plan, required, with_key });
    }
    if request.uri().path_and_query().is_some_and(|address| address.as_str().len() > LONGEST_ADDRESS) {
        return Err(Problem::AddressTooLong);
    }
    Ok(())
}

/// What the route takes with the options that are asked for.
fn required_plan(route: &Route, request: &Request) -> Plan {
    let prefers_csv = prefers_csv(request.headers());
    let Some(query) = request.uri().query() else {
        return if prefers_csv { route.plan_with([CSV].into_iter()) } else { route.plan };
    };
    let query = Query::parse(query);
    let by_accept = prefers_csv && !query.pairs().any(|(name, _)| name == CSV.0);
    route.plan_with(query.pairs().chain(by_accept.then_some(CSV)))
}

/// HEAD wherever GET.
fn takes(route: &Route, method: &Method) -> bool {
    match route.method {
        route::Method::Get => *method == Method::GET || *method == Method::HEAD,
        other => method.as_str() == other.name(),
    }
}

fn allow(routes: &[Served]) -> HeaderValue {
    let methods: Vec<&str> = routes
        .iter()
        .map(|served| match served.route.method {
            route::Method::Get => "GET, HEAD",
            other => other.name(),
        })
        .collect();
    HeaderValue::from_str(&methods.join(", ")).expect("plain text")
}

fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight_answer() -> Response {
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

fn standing(verdict: &Verdict) -> Standing {
    let seconds = seconds_up(verdict.reset_at_us.saturating_sub(verdict.now_us));
    Standing { remaining: verdict.remaining, reset_at_seconds: seconds_up(verdict.reset_at_us), seconds }
}

const EXPOSED: &str = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit, RateLimit-Policy, X-Plan, \
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
/// A page is also in the language that its reader chose.
const VARY_OF_PAGES: HeaderValue =
    HeaderValue::from_static("Accept-Encoding, Accept, Accept-Language, X-API-Key, Authorization, Cookie");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const NO_CONTENT_OF_OTHERS: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

impl Front {
    /// What every answer carries, whoever gave it.
    fn write_headers(&self, headers: &mut HeaderMap, identity: &Identity, standing: &Standing, request_id: &RequestId) {
        let of_plan = &self.policies[identity.plan as usize];
        headers.reserve(20);
        headers.insert(X_RATELIMIT_LIMIT, of_plan.limit.clone());
        headers.insert(RATELIMIT_POLICY, of_plan.policy.clone());
        headers.insert(X_PLAN, of_plan.plan.clone());
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        let by_cookie = headers.get_all(header::VARY).iter().any(|value| value == "Cookie");
        headers.insert(header::VARY, if by_cookie { VARY_OF_PAGES } else { VARY });
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(NO_CONTENT_OF_OTHERS);
        if self.app.snapshot.get().is_some_and(|snapshot| snapshot.is_synthetic()) {
            headers.insert(X_DATA_SOURCE, HeaderValue::from_static("synthetic"));
        }
        self.write_standing(headers, identity.plan, standing, request_id);
    }

    /// What of it differs from one answer to the next.
    fn write_standing(&self, headers: &mut HeaderMap, plan: Plan, standing: &Standing, request_id: &RequestId) {
        let (remaining, seconds) = (Digits::of(standing.remaining.into()), Digits::of(standing.seconds));
        let mut draft = [0; 64];
        let parts = [b"\"", plan.id().as_bytes(), b"\";r=", remaining.as_bytes(), b";t=", seconds.as_bytes()];
        let mut length = 0;
        for part in parts {
            draft[length..length + part.len()].copy_from_slice(part);
            length += part.len();
        }
        let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).expect("digits and plan names");
        headers.insert(X_RATELIMIT_REMAINING, value(remaining.as_bytes()));
        headers.insert(X_RATELIMIT_RESET, value(Digits::of(standing.reset_at_seconds).as_bytes()));
        headers.insert(RATELIMIT, value(&draft[..length]));
        headers.insert(X_REQUEST_ID, value(&request_id.0));
    }
}

/// How long a page took: its handler, and all of it with admission.
fn write_timing(headers: &mut HeaderMap, handler: Duration, total: Duration) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    if let Ok(value) = HeaderValue::from_str(&format!("handler;dur={:.3}, total;dur={:.3}", ms(handler), ms(total))) {
        headers.insert(SERVER_TIMING, value);
    }
}

/// A value that is copied into every answer: of what is never freed a copy costs nothing.
fn for_ever(text: String) -> HeaderValue {
    HeaderValue::from_static(text.leak())
}

/// A number as text, without a place in memory of its own: every answer has several.
struct Digits {
    text: [u8; 20],
    from: usize,
}

impl Digits {
    fn of(mut number: u64) -> Self {
        let (mut text, mut from) = ([b'0'; 20], 20);
        loop {
            from -= 1;
            text[from] += (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return Self { text, from };
            }
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.text[self.from..]
    }
}

/// The instant of admission, so that ids sort by time, and what tells apart those of one instant; both in hexadecimal.
struct RequestId([u8; 25]);

impl RequestId {
    fn new(now_us: u64, random: u64) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut id = [b'-'; 25];
        let mut write = |range: std::ops::Range<usize>, mut rest: u64| {
            for place in id[range].iter_mut().rev() {
                *place = DIGITS[(rest % 16) as usize];
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

fn seconds_up(micros: u64) -> u64 {
    micros.div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_number() {
        for number in [0, 7, 10, 2000, 1_763_233_000, u64::MAX] {
            assert_eq!(Digits::of(number).as_bytes(), number.to_string().as_bytes());
        }
    }
}
