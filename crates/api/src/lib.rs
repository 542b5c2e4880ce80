//! The HTTP API: routes, query parameters, JSON bodies, problems and headers.
//!
//! This crate contains no SQL and no Redis keys. While Postgres is unavailable, all reads are served from the snapshot,
//! cached keys keep their plan, and requests that need Postgres get 503. While Redis is unavailable, everything keeps
//! working: the meter limits and counts locally.

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
pub mod limits;
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

/// The API settings an operator can change.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    pub offer: PlanConfig,
    /// The base URL that clients use, without a trailing slash.
    pub public_url: String,
    /// Proxies whose `X-Forwarded-For` and `Forwarded` headers we trust.
    pub trusted_proxies: Vec<IpNet>,
    /// New keys per day, for one address and for one e-mail.
    pub registrations_per_day: u32,
    /// Maximum concurrent requests; above this, new requests are shed.
    pub max_in_flight: usize,
    /// Directory of the bulk export files. `None` disables the export.
    pub export_directory: Option<PathBuf>,
    /// Support contact for the highest plan, if there is one.
    pub support_contact: Option<String>,
    /// Decides which addresses webhooks may call.
    pub webhook_guard: AddressGuard,
    /// Encrypts webhook secrets.
    pub webhook_secrets: SecretBox,
}

/// The state that handlers share.
pub struct App {
    pub settings: ApiSettings,
    pub store: Store,
    pub meter: Meter,
    pub keyring: Keyring,
    pub live_snapshot: Arc<LiveSnapshot>,
    pub exports: Option<Arc<ExportDirectory>>,
    pub event_feed: EventFeed,
    pub clock: Arc<dyn Clock>,
    /// Whether Postgres answered the last refresh of the keys.
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

    /// Whether Postgres and every Redis answered when they were last used.
    pub fn are_dependencies_up(&self) -> bool {
        self.is_store_up.load(Ordering::Relaxed) && self.meter.redis_availability().all(|is_up| is_up)
    }

    /// The snapshot that requests are served from. Fails until the first snapshot is loaded.
    fn current_snapshot(&self) -> Result<Arc<Snapshot>, api_error::ApiError> {
        self.live_snapshot.get().ok_or(api_error::ApiError(Problem::DependencyUnavailable))
    }
}

/// Renders a problem as an HTML page for browsers, from the problem, the request's headers and URI, and the request ID.
pub type ProblemPageRenderer = Arc<dyn Fn(&Problem, &HeaderMap, &Uri, &str) -> Response + Send + Sync>;

/// Builds the whole service. `pages` are the handlers of the HTML pages.
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

    let uncompressed_router = router.clone().layer(CatchPanicLayer::custom(api_error::panic_response));
    let may_compress = |_: StatusCode, _: Version, _: &HeaderMap, extensions: &Extensions| {
        extensions.get::<SkipCompression>().is_none()
    };
    let compression = CompressionLayer::new().compress_when(DefaultPredicate::new().and(may_compress));
    let compressed_router = router.layer(compression).layer(CatchPanicLayer::custom(api_error::panic_response));

    ApiService(Arc::new(FrontLayer::new(app, uncompressed_router, compressed_router, problem_page)))
}

/// Answers requests: the front layer admits them, then the handler of the route runs.
#[derive(Clone)]
pub struct ApiService(Arc<FrontLayer>);

impl ApiService {
    /// Answers a request from `peer`, the address at the other end of the connection.
    pub async fn respond(self, request: Request, peer: IpAddr) -> Response {
        self.0.handle_or_shed(request, peer).await
    }
}
