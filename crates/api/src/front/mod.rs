//! The outermost layer of the API. A request passes these steps, each in a file of its own:
//!
//! 1. `shed.rs`: reject it at once if the process is overloaded.
//! 2. `routing.rs`: find its route, or the one that it is redirected to.
//! 3. `identify.rs`: find the caller by the key.
//! 4. `admit.rs`: limit and count it.
//! 5. `authorize.rs`: check key, path, method, plan and URL.
//! 6. Answer it from `response_cache.rs` or by the route's handler.
//! 7. `respond.rs`, `headers.rs` and `deprecation.rs`: render a problem, and write the headers that every response has.
//! 8. Record the outcome: usage, metrics, log.

mod admit;
mod authorize;
mod deprecation;
mod headers;
mod identify;
mod request_id;
mod respond;
mod response_cache;
mod routing;
mod shed;

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, StatusCode, header};
use tower::ServiceExt;
use vintem_domain::problem::ErrorCode;
use vintem_domain::route::Route;
use vintem_domain::usage::{RequestOutcome, RouteGroup};
use vintem_domain::{Lang, Problem, ip_address};
use vintem_meter::{AdmissionCharge, AdmissionDecision};

use crate::api_error::ApiError;
use crate::app::App;
use crate::caller::{Caller, CallerDetails};
use crate::csv::prefers_csv;
use crate::identity::client_address;
use crate::request_metrics::{RouteMetrics, UNMATCHED_OPERATION};
use admit::{QuotaStatus, build_admission_request, rate_limit_problem};
use authorize::check_access;
use headers::{HeaderWriter, write_server_timing};
use identify::{CallerIdentity, accepted_language, identify_caller};
use request_id::RequestId;
pub use respond::ProblemPageRenderer;
use respond::{BrowserRequest, ProblemResponder, is_preflight, preflight_response, redirect_response};
use response_cache::CacheValidity;
use routing::{PathRoutes, RouteEntry, RouteTable, SlashRedirect};
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
    header_writer: HeaderWriter,
    problem_responder: ProblemResponder,
    /// For requests that match no route.
    unmatched_metrics: &'static RouteMetrics,
}

/// What the front layer knows about a request before it is admitted.
struct RequestContext<'f> {
    started: Instant,
    client: IpAddr,
    lang: Lang,
    method: Method,
    is_preflight: bool,
    path_routes: PathRoutes<'f>,
    route_entry: Option<&'f RouteEntry>,
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
        let header_writer = HeaderWriter::new(&app.settings.offer.limits);
        let problem_responder = ProblemResponder { page: problem_page, public_url: app.settings.public_url.clone() };
        Self {
            app,
            routes: RouteTable::new(),
            router,
            compressed_router,
            header_writer,
            problem_responder,
            unmatched_metrics: RouteMetrics::for_operation(UNMATCHED_OPERATION),
        }
    }

    pub async fn handle_or_shed(&self, request: Request, peer: IpAddr) -> Response {
        let limiter = &self.app.load.requests;
        let is_health = request.uri().path() == HEALTH_PATH;
        let permit = if is_health { Some(limiter.acquire_unlimited()) } else { limiter.try_acquire() };
        let Some(mut permit) = permit else {
            return shed_request(&self.app, &self.problem_responder, &self.header_writer, &request);
        };

        let mut response = pin!(self.handle_request(request, peer));
        poll_fn(|context| permit.poll_timed(|| response.as_mut().poll(context))).await
    }

    async fn handle_request(&self, request: Request, peer: IpAddr) -> Response {
        let context = self.describe_request(&request, peer);
        let route = context.route();
        let admission = self.admit(request.headers(), request.uri().path(), &context).await;

        let access = if admission.decision.admitted {
            let redirect = context.redirect.as_ref();
            check_access(&admission.identity, context.is_preflight, &request, context.path_routes, route, redirect)
        } else {
            Err(rate_limit_problem(&admission.decision, admission.is_page))
        };

        let response = self.respond(request, &context, &admission, access).await;
        self.record_outcome(&context, &admission, response.status());
        response
    }

    fn describe_request(&self, request: &Request, peer: IpAddr) -> RequestContext<'_> {
        let started = Instant::now();
        let headers = request.headers();
        let path_routes = self.routes.find(request.uri().path());
        let redirect = if path_routes.is_empty() {
            self.routes.find_slash_redirect(request.method(), request.uri())
        } else {
            None
        };
        RequestContext {
            started,
            client: client_address(peer, headers, &self.app.settings.trusted_proxies),
            lang: accepted_language(headers),
            method: request.method().clone(),
            is_preflight: is_preflight(request),
            path_routes,
            route_entry: path_routes.for_method(request.method()),
            redirect,
            browser: BrowserRequest::from_request(request),
        }
    }

    async fn admit(&self, headers: &HeaderMap, path: &str, context: &RequestContext<'_>) -> Admission {
        let app = &self.app;
        let identity = identify_caller(app, headers).await;
        let admission_request =
            build_admission_request(app, &identity, context.client, context.is_preflight, context.route(), path);

        let decision = app.meter.admit(&admission_request).await;
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
        access: Result<(), Problem>,
    ) -> Response {
        let app = &self.app;
        let plan = admission.identity.plan;
        let mut quota = QuotaStatus::from_decision(&admission.decision);

        let cache_slot = context
            .route_entry
            .and_then(|entry| entry.cache.slot_for(entry.route, &request, &admission.identity, context.lang));
        let cached =
            cache_slot.filter(|_| access.is_ok()).and_then(|slot| slot.get(&app.live_snapshot, app.clock.now()));
        if let Some(mut response) = cached {
            self.header_writer.write_quota(response.headers_mut(), plan, &quota, &admission.request_id);
            return response;
        }

        let validity = cache_slot.and_then(|_| CacheValidity::current(&app.live_snapshot, app.clock.now()));
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

        if let Some(problem) = response.extensions_mut().remove::<Problem>() {
            response = self.render_problem(&problem, context, admission, &mut quota);
        }
        let headers = response.headers_mut();
        self.header_writer.write_common(headers, plan, &quota, &admission.request_id, app.is_synthetic());
        if let Some(deprecation) = context.route_entry.and_then(|entry| entry.deprecation.as_ref()) {
            deprecation.write(headers);
        }
        if let Some(handler_time) = handler_time.filter(|_| admission.is_page) {
            write_server_timing(headers, handler_time, context.started.elapsed());
        }

        if let (Some(slot), Some(validity)) = (cache_slot, validity) {
            slot.store_if_cacheable(validity, &app.live_snapshot, app.clock.now(), &mut response);
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
            lang: context.lang,
            address: context.client,
            admitted_at_us: admission.decision.now_us,
            if_none_match: headers.get(header::IF_NONE_MATCH).cloned(),
            uri: request.uri().clone(),
            prefers_csv: prefers_csv(headers),
        };
        request.extensions_mut().insert(Caller(Arc::new(caller)));

        let started = Instant::now();
        let handler = router.clone().oneshot(request);
        let result = if admission.is_page { handler.await } else { self.app.load.handlers.run(handler).await };
        match result {
            Ok(response) => (response, started.elapsed()),
            Err(never) => match never {},
        }
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

        let route_metrics = context.route_entry.map_or(self.unmatched_metrics, |entry| entry.metrics);
        route_metrics.record_request(identity.plan, status, context.started);
        tracing::info!(
            request_id = admission.request_id.as_str(),
            method = context.method.as_str(),
            route = context.route().map_or("none", |route| route.path),
            status = status.as_u16(),
            plan = identity.plan.id(),
            key = identity.key,
            address = ip_address::anonymize_for_log(context.client),
            micros = u64::try_from(context.started.elapsed().as_micros()).unwrap_or(u64::MAX),
            "request"
        );
    }
}

impl<'f> RequestContext<'f> {
    fn route(&self) -> Option<&'f Route> {
        self.route_entry.map(|entry| entry.route)
    }
}
