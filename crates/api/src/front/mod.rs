//! The outermost layer of the API. A request passes these steps, each in a file of its own:
//!
//! 1. `identify.rs`: find the caller by the key. A key that is not in memory is looked up, before the request takes any
//!    capacity that others need.
//! 2. `shed.rs`: reject it at once if the process is overloaded.
//! 3. `routing.rs`: find its route, or the one that it is redirected to.
//! 4. `admit.rs`: limit and count it.
//! 5. `authorize.rs`: check key, path, method, plan and URL.
//! 6. Answer it from `response_cache.rs` or by the route's handler.
//! 7. `respond.rs`, `headers.rs` and `deprecation.rs`: render a problem, compress and cache what is the same for every
//!    caller, and write the headers that every response has.
//! 8. Record the outcome: usage, metrics, log.

mod admit;
mod authorize;
mod deprecation;
mod headers;
mod identify;
mod request_id;
mod request_log;
mod respond;
mod response_cache;
mod routing;
mod shared_body;
mod shed;

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};
use tower::ServiceExt;
use tracing::Instrument;
use vintem_domain::problem::ErrorCode;
use vintem_domain::route::Route;
use vintem_domain::spans::step_span;
use vintem_domain::usage::{RequestOutcome, RouteGroup};
use vintem_domain::{AddressBucket, Lang, Problem};
use vintem_meter::{AdmissionCharge, AdmissionDecision};

use crate::api_error::ApiError;
use crate::app::App;
use crate::caller::{Caller, CallerDetails};
use crate::content_encoding::{ContentEncoding, MIN_COMPRESSED_BYTES};
use crate::csv::prefers_csv;
use crate::identity::client_address;
use crate::load::{OwnerBudget, OwnerPermit, Resource, WorkOwner};
use crate::request_metrics::{RouteMetrics, UNMATCHED_OPERATION};
use crate::responses::{MAX_CACHED_BODY_BYTES, SharedResponse, cache_control};
use admit::{QuotaStatus, build_admission_request, rate_limit_problem};
use authorize::{check_access, check_origin};
use headers::{HeaderWriter, remove_cross_origin_headers, write_server_timing};
use identify::{CallerIdentity, accepted_language, identify_caller};
use request_id::RequestId;
use request_log::{FinishedRequest, RequestLogSampler, begin_span};
pub use respond::ProblemPageRenderer;
use respond::{BrowserRequest, ProblemResponder, is_preflight, preflight_response, redirect_response};
use response_cache::{CacheKey, ResponseCache};
use routing::{PathRoutes, RouteEntry, RouteTable, SlashRedirect};
use shared_body::{charge_body, compress, hold_until_sent, stream_in_turns};
use shed::shed_request;

/// Never shed: health checks must always get an answer.
const HEALTH_PATH: &str = "/health";

/// Wraps the handlers and looks up routes by itself.
pub struct FrontLayer {
    app: Arc<App>,
    routes: RouteTable,
    router: Router,
    /// The same handlers with compression, for clients that accept it.
    compressed_router: Router,
    cache: ResponseCache,
    header_writer: HeaderWriter,
    problem_responder: ProblemResponder,
    /// For requests that match no route.
    unmatched_metrics: &'static RouteMetrics,
    log_sampler: RequestLogSampler,
}

/// What the front layer knows about a request before it is admitted.
struct RequestContext<'f> {
    started: Instant,
    client: IpAddr,
    /// What the work is charged to.
    budget: Arc<OwnerBudget>,
    lang: Lang,
    method: Method,
    is_preflight: bool,
    path_routes: PathRoutes<'f>,
    route_entry: Option<&'f RouteEntry>,
    metrics: &'static RouteMetrics,
    /// Set if the path has no route only because of the slash at its end.
    redirect: Option<SlashRedirect>,
    browser: Option<BrowserRequest>,
}

/// The caller and the meter's decision.
struct Admission {
    identity: CallerIdentity,
    decision: AdmissionDecision,
    request_id: RequestId,
    usage_group: Option<RouteGroup>,
    /// Whether it counts as a page view and not against the caller's quota.
    is_page: bool,
}

impl FrontLayer {
    pub fn new(app: Arc<App>, router: Router, compressed_router: Router, problem_page: ProblemPageRenderer) -> Self {
        let cache = ResponseCache::new(app.settings.response_cache_bytes);
        let header_writer = HeaderWriter::new(&app.settings.offer.limits);
        let log_sampler = RequestLogSampler::new(app.settings.logged_requests_per_second);
        let problem_responder = ProblemResponder { page: problem_page, public_url: app.settings.public_url.clone() };
        Self {
            app,
            routes: RouteTable::new(),
            router,
            compressed_router,
            cache,
            header_writer,
            problem_responder,
            unmatched_metrics: RouteMetrics::for_operation(UNMATCHED_OPERATION),
            log_sampler,
        }
    }

    pub async fn handle_traced(&self, request: Request, peer: IpAddr) -> Response {
        let span = begin_span(&self.app.settings, &self.routes, &request, peer);
        self.handle_or_shed(request, peer).instrument(span).await
    }

    async fn handle_or_shed(&self, request: Request, peer: IpAddr) -> Response {
        let client = client_address(peer, request.headers(), &self.app.settings.trusted_proxies);
        let identity = identify_caller(&self.app, request.headers(), client).await;

        let load = &self.app.load;
        let budget = load.budgets.get(WorkOwner::new(identity.plan, identity.key, client));
        let is_health = request.uri().path() == HEALTH_PATH;
        let own_permit = if is_health { None } else { Some(budget.acquire(Resource::Requests).await) };
        let permit = match &own_permit {
            None => Some(load.requests.acquire_unlimited()),
            Some(Ok(_)) => load.try_acquire_request(budget.owner),
            Some(Err(_)) => None,
        };
        let Some(mut permit) = permit else {
            let mut response =
                shed_request(&self.app, &self.problem_responder, &self.header_writer, &request, &identity);
            if self.routes.find(request.uri().path()).is_same_origin_only() {
                remove_cross_origin_headers(response.headers_mut());
            }
            return response;
        };

        let mut response = pin!(self.handle_request(request, client, identity, budget));
        poll_fn(|context| permit.poll_timed(|| response.as_mut().poll(context))).await
    }

    async fn handle_request(
        &self,
        request: Request,
        client: IpAddr,
        identity: CallerIdentity,
        budget: Arc<OwnerBudget>,
    ) -> Response {
        let context = self.describe_request(&request, client, budget);
        let route = context.route();
        let admission = self.admit(identity, request.uri().path(), &context).await;

        let access = if admission.decision.admitted {
            let redirect = context.redirect.as_ref();
            check_access(&admission.identity, context.is_preflight, &request, context.path_routes, route, redirect)
                .and_then(|()| self.check_origin(&request, route))
        } else {
            Err(rate_limit_problem(&admission.decision, admission.is_page))
        };

        let response = self.respond(request, &context, &admission, access).await;
        self.record_outcome(&context, &admission, response.status());
        response
    }

    fn check_origin(&self, request: &Request, route: Option<&Route>) -> Result<(), Problem> {
        match route {
            Some(route) if route.is_same_origin_only => check_origin(request.headers(), &self.app.settings.public_url),
            _ => Ok(()),
        }
    }

    fn describe_request(&self, request: &Request, client: IpAddr, budget: Arc<OwnerBudget>) -> RequestContext<'_> {
        let started = Instant::now();
        let headers = request.headers();
        let path_routes = self.routes.find(request.uri().path());
        let route_entry = path_routes.for_method(request.method());
        let redirect = if path_routes.is_empty() {
            self.routes.find_slash_redirect(request.method(), request.uri())
        } else {
            None
        };
        RequestContext {
            started,
            client,
            budget,
            lang: accepted_language(headers),
            method: request.method().clone(),
            is_preflight: is_preflight(request),
            path_routes,
            route_entry,
            metrics: route_entry.map_or(self.unmatched_metrics, |entry| entry.metrics),
            redirect,
            browser: BrowserRequest::from_request(request),
        }
    }

    async fn admit(&self, identity: CallerIdentity, path: &str, context: &RequestContext<'_>) -> Admission {
        let app = &self.app;
        let admission_request =
            build_admission_request(app, &identity, context.client, context.is_preflight, context.route(), path);

        let decision = app.meter.admit(&admission_request).instrument(step_span("redis")).await;
        Admission {
            identity,
            request_id: RequestId::new(decision.now_us, rand::random()),
            decision,
            usage_group: admission_request.usage_group,
            is_page: admission_request.charge != AdmissionCharge::OwnQuota,
        }
    }

    /// Answers from the cache, with the handler, or with the problem that forbids access.
    async fn respond(
        &self,
        request: Request,
        context: &RequestContext<'_>,
        admission: &Admission,
        mut access: Result<(), Problem>,
    ) -> Response {
        let app = &self.app;
        let quota = QuotaStatus::from_decision(&admission.decision);

        let is_api = context.route().is_some_and(Route::is_api);
        let cache_key = if is_api { CacheKey::for_request(&request, context.lang) } else { None };
        if let (Some(key), Ok(())) = (&cache_key, &access)
            && let Some(cached) = self.cache.get(key, &app.live_snapshot, app.clock.now())
        {
            match charge_body(&app.load, &context.budget, cached.body_length()).await {
                Ok(permit) => {
                    let if_none_match = request.headers().get(header::IF_NONE_MATCH);
                    let response = cached.to_response(&context.method, if_none_match, permit);
                    return self.finish_cached(response, context, admission, &quota);
                }
                Err(problem) => access = Err(problem),
            }
        }

        // Boxed, because it is large: every connection has room for the future of its next request, and most requests are
        // answered from the cache.
        Box::pin(self.respond_uncached(request, context, admission, access, cache_key, quota)).await
    }

    /// Answers with the handler, or with the problem that forbids access.
    async fn respond_uncached(
        &self,
        request: Request,
        context: &RequestContext<'_>,
        admission: &Admission,
        access: Result<(), Problem>,
        cache_key: Option<CacheKey>,
        mut quota: QuotaStatus,
    ) -> Response {
        let app = &self.app;
        let identity = &admission.identity;
        let mut handler_time = None;
        let mut response = match (access, &context.redirect) {
            (Err(problem), _) => ApiError(problem).into_response(),
            (Ok(()), _) if context.is_preflight => preflight_response(),
            (Ok(()), Some(redirect)) => redirect_response(&redirect.location),
            (Ok(()), None) => {
                let (response, time) = self.run_handler(request, context, admission).await;
                handler_time = Some(time);
                response
            }
        };

        let shared = response.extensions_mut().remove::<SharedResponse>();
        let permit = match &shared {
            Some(shared) => self.charge_response(shared, is_stream(&response), context).await,
            None => Ok(None),
        };
        let problem = permit.as_ref().err().cloned().or_else(|| response.extensions_mut().remove::<Problem>());
        if let Some(problem) = problem {
            response = self.render_problem(&problem, context, admission, &mut quota);
        }
        self.header_writer.write_common(response.headers_mut(), app.is_synthetic());
        if context.path_routes.is_same_origin_only() {
            remove_cross_origin_headers(response.headers_mut());
        }
        if let Some(deprecation) = context.route_entry.and_then(|entry| entry.deprecation.as_ref()) {
            deprecation.write(response.headers_mut());
        }
        if let (Some(shared), Ok(permit)) = (shared, permit) {
            response = self.finish_shared(response, shared, cache_key, context, permit).await;
            response.headers_mut().insert(header::CACHE_CONTROL, cache_control(identity.key.is_some()));
        }

        let headers = response.headers_mut();
        self.header_writer.write_caller(headers, identity.plan, &quota, &admission.request_id);
        if let Some(handler_time) = handler_time.filter(|_| admission.is_page) {
            write_server_timing(headers, handler_time, context.started.elapsed());
        }
        response
    }

    /// Adds what belongs to this caller, in the same order as for a new response.
    fn finish_cached(
        &self,
        mut response: Response,
        context: &RequestContext<'_>,
        admission: &Admission,
        quota: &QuotaStatus,
    ) -> Response {
        context.metrics.record_cache_hit();
        let identity = &admission.identity;
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, cache_control(identity.key.is_some()));
        self.header_writer.write_caller(headers, identity.plan, quota, &admission.request_id);
        response
    }

    /// Charges what is not sent yet to the caller.
    async fn charge_response(
        &self,
        shared: &SharedResponse,
        is_stream: bool,
        context: &RequestContext<'_>,
    ) -> Result<Option<OwnerPermit>, Problem> {
        let load = &self.app.load;
        match &shared.body {
            Some(body) => charge_body(load, &context.budget, body.len()).await,
            None if is_stream && shared.stream_permit.is_none() => load.acquire_stream(&context.budget).await.map(Some),
            None => Ok(None),
        }
    }

    /// Compresses and caches a response that is the same for every caller.
    async fn finish_shared(
        &self,
        mut response: Response,
        shared: SharedResponse,
        cache_key: Option<CacheKey>,
        context: &RequestContext<'_>,
        permit: Option<OwnerPermit>,
    ) -> Response {
        // The router has counted the bytes of a body that is not there yet.
        response.headers_mut().remove(header::CONTENT_LENGTH);
        let encoding = cache_key.as_ref().map_or(ContentEncoding::Identity, |key| key.encoding);
        let gate = &self.app.load.handlers;
        let owner = context.budget.owner;
        let is_stream = is_stream(&response);
        let is_long = shared.body.as_ref().map_or(is_stream, |body| body.len() >= MIN_COMPRESSED_BYTES);
        let encoding = if is_long { encoding } else { ContentEncoding::Identity };
        if encoding != ContentEncoding::Identity {
            response.headers_mut().insert(header::CONTENT_ENCODING, encoding.header_value());
        }

        let Some(body) = shared.body else {
            return match shared.stream_permit.or(permit.map(Arc::new)) {
                Some(permit) if is_stream => {
                    response.map(|body| stream_in_turns(body, encoding, gate.clone(), owner, permit))
                }
                // 304, or the response to a HEAD request.
                _ => response,
            };
        };
        let body = compress(gate, owner, encoding, body).await;

        if let (Some(key), Some(validity)) = (cache_key, shared.validity)
            && body.len() <= MAX_CACHED_BODY_BYTES
        {
            context.metrics.record_cache_miss();
            let cached = self.cache.insert(key, validity, response.headers().clone(), body);
            return cached.to_response(&context.method, None, permit);
        }
        if context.method == Method::HEAD {
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        } else {
            *response.body_mut() = Body::from(hold_until_sent(body, permit));
        }
        response
    }

    /// Runs the handler and measures its time. Pages bypass the CPU gate: they cost next to nothing, and `/health`,
    /// which is one of them, must not wait behind other requests.
    async fn run_handler(
        &self,
        mut request: Request,
        context: &RequestContext<'_>,
        admission: &Admission,
    ) -> (Response, Duration) {
        let headers = request.headers();
        let router = if headers.contains_key(header::ACCEPT_ENCODING) { &self.compressed_router } else { &self.router };
        let caller = CallerDetails {
            plan: admission.identity.plan,
            key: admission.identity.key,
            budget: context.budget.clone(),
            lang: context.lang,
            address: context.client,
            admitted_at_us: admission.decision.now_us,
            if_none_match: headers.get(header::IF_NONE_MATCH).cloned(),
            uri: request.uri().clone(),
            prefers_csv: prefers_csv(headers),
        };
        if admission.is_page {
            request.extensions_mut().insert(AddressBucket::from_ip(context.client));
        }
        request.extensions_mut().insert(Caller(Arc::new(caller)));

        let started = Instant::now();
        let handler = router.clone().oneshot(request);
        let result = if admission.is_page {
            Ok(handler.await)
        } else {
            self.app.load.handlers.run_handler(context.budget.owner, handler).await
        };
        let response = match result {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(problem) => ApiError(problem).into_response(),
        };
        (response, started.elapsed())
    }

    fn render_problem(
        &self,
        problem: &Problem,
        context: &RequestContext<'_>,
        admission: &Admission,
        quota: &mut QuotaStatus,
    ) -> Response {
        let browser = context.browser.as_ref();
        let mut response = self.problem_responder.render(problem, browser, context.lang, &admission.request_id);

        if *problem == Problem::MethodNotAllowed {
            response.headers_mut().insert(header::ALLOW, context.path_routes.allowed_methods());
        }
        if let (ErrorCode::RateLimited, Some(wait)) = (problem.code(), problem.retry_after_seconds()) {
            quota.reset_after_seconds = wait;
        }
        response
    }

    fn record_outcome(&self, context: &RequestContext<'_>, admission: &Admission, status: StatusCode) {
        let Admission { identity, decision, usage_group, .. } = admission;
        if let (Some(key), Some(group)) = (identity.key, *usage_group) {
            let outcome = RequestOutcome::from_status(status.as_u16());
            self.app.meter.record_outcome(key, group, decision.now_us, outcome);
        }

        context.metrics.record_request(identity.plan, status, context.started);
        let request = FinishedRequest {
            request_id: &admission.request_id,
            method: &context.method,
            route: context.route().map_or("none", |route| route.path),
            status,
            plan: identity.plan,
            key: identity.key,
            client: context.client,
            started: context.started,
        };
        if self.app.settings.request_tracer.is_some() {
            request.record_span();
        }
        if let Some(skipped) = self.log_sampler.sample(status) {
            request.log(skipped);
        }
    }
}

/// Whether the body is written while it is sent. Responses without a body are no streams.
fn is_stream(response: &Response) -> bool {
    response.body().size_hint().exact().is_none()
}

impl<'f> RequestContext<'f> {
    fn route(&self) -> Option<&'f Route> {
        self.route_entry.map(|entry| entry.route)
    }
}
