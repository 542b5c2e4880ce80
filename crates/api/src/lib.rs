//! JSON over HTTP: routes, parameters, bodies, problems, headers.
//!
//! It knows no SQL and no Redis key. With Postgres away all reads go on from the snapshot, known keys keep their plan,
//! and what needs Postgres answers 503. With Redis away all goes on: the meter limits and counts by itself.

mod api_error;
mod blocking_pool;
mod caller;
mod cpu_gate;
mod csv;
pub mod event_body;
mod event_feed;
pub mod export_datasets;
mod front;
mod identity;
mod json_number;
mod keyring;
mod load_limiter;
mod params;
mod per_key_limit;
mod request_body;
mod request_metrics;
mod responses;
mod routes;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::MethodRouter;
use http::{Extensions, HeaderMap, StatusCode, Uri, Version};
use ipnet::IpNet;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate};
use vintem_deliver::export::ExportDirectory;
use vintem_deliver::webhook::{AddressGuard, SecretBox};
use vintem_domain::plan::PlanConfig;
use vintem_domain::route::route_by_operation;
use vintem_domain::{Clock, Problem};
use vintem_meter::Meter;
use vintem_snapshot::{LiveSnapshot, Snapshot};
use vintem_store::Store;

use event_feed::EventFeed;
use front::FrontLayer;
pub use identity::{Credential, client_address, parse_credential};
pub use keyring::{Keyring, Pepper, generate_key};
use responses::SkipCompression;
pub use routes::search::search_all;

/// What an operator may set of the API.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    pub offer: PlanConfig,
    /// Where the service is reached from outside, without a slash at the end.
    pub public_url: String,
    /// Proxies whose word on the client's address is taken.
    pub trusted_proxies: Vec<IpNet>,
    /// New keys a day for an address, and for an e-mail.
    pub registrations_per_day: u32,
    /// Requests under way at once, beyond which further ones are shed.
    pub max_in_flight: usize,
    /// Where the files of the bulk export are, if anywhere.
    pub export_directory: Option<PathBuf>,
    /// How the highest plan reaches its support, if there is any.
    pub support_contact: Option<String>,
    /// Where webhooks may lead.
    pub webhook_guard: AddressGuard,
    /// What their secrets are sealed with.
    pub webhook_secrets: SecretBox,
}

/// Everything that answering needs.
pub struct App {
    pub settings: ApiSettings,
    pub store: Store,
    pub meter: Meter,
    pub keyring: Keyring,
    pub live_snapshot: Arc<LiveSnapshot>,
    pub exports: Option<Arc<ExportDirectory>>,
    pub event_feed: EventFeed,
    pub clock: Arc<dyn Clock>,
    /// Whether Postgres answered when it was last asked.
    is_store_up: AtomicBool,
}

impl App {
    pub fn new(
        settings: ApiSettings,
        store: Store,
        meter: Meter,
        pepper: Pepper,
        live_snapshot: Arc<LiveSnapshot>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let keyring = Keyring::new(store.clone(), pepper, clock.clone());
        let exports = settings.export_directory.clone().map(|path| Arc::new(ExportDirectory::new(path)));
        let event_feed = EventFeed::default();
        Self {
            settings,
            store,
            meter,
            keyring,
            live_snapshot,
            exports,
            event_feed,
            clock,
            is_store_up: AtomicBool::new(true),
        }
    }

    pub fn set_store_up(&self, is_up: bool) {
        self.is_store_up.store(is_up, Ordering::Relaxed);
    }

    /// Whether Postgres and every Redis answered when they were last asked.
    pub fn are_dependencies_up(&self) -> bool {
        self.is_store_up.load(Ordering::Relaxed) && self.meter.redis_availability().all(|is_shared| is_shared)
    }

    /// What is served now. Before the first snapshot stands there is nothing true to say.
    fn current_snapshot(&self) -> Result<Arc<Snapshot>, api_error::ApiError> {
        self.live_snapshot.get().ok_or(api_error::ApiError(Problem::DependencyUnavailable))
    }
}

/// A problem as a page, for who asks as a browser does: of the problem, the request's headers and address, and its number.
pub type ProblemPageRenderer = Arc<dyn Fn(&Problem, &HeaderMap, &Uri, &str) -> Response + Send + Sync>;

/// The whole service. `pages` are the handlers of the HTML pages.
pub fn build_service(
    app: Arc<App>,
    pages: Vec<(&'static str, MethodRouter)>,
    problem_page: ProblemPageRenderer,
) -> ApiService {
    let mut router = Router::new();
    let handlers =
        routes::handlers().into_iter().map(|(operation, handler)| (operation, handler.with_state(app.clone())));
    for (operation, handler) in handlers.chain(pages) {
        router = router.route(route_by_operation(operation).path, handler);
    }
    let routes = router.clone().layer(CatchPanicLayer::custom(api_error::panic_response));
    let is_to_change =
        |_: StatusCode, _: Version, _: &HeaderMap, said: &Extensions| said.get::<SkipCompression>().is_none();
    let compression = CompressionLayer::new().compress_when(DefaultPredicate::new().and(is_to_change));
    let compressed = router.layer(compression).layer(CatchPanicLayer::custom(api_error::panic_response));
    ApiService(Arc::new(FrontLayer::new(app, routes, compressed, problem_page)))
}

/// Answers requests: judged by the front, then by the handlers of their routes.
#[derive(Clone)]
pub struct ApiService(Arc<FrontLayer>);

impl ApiService {
    /// The answer to a request that came from this address.
    pub async fn respond(self, request: Request, peer: IpAddr) -> Response {
        self.0.handle_or_shed(request, peer).await
    }
}
