//! JSON over HTTP: routes, parameters, bodies, problems, headers.
//!
//! It knows no SQL and no Redis key. With Postgres away all reads go on from the snapshot, known keys keep their plan,
//! and what needs Postgres answers 503. With Redis away all goes on: the meter limits and counts by itself.

mod answer;
mod aside;
mod body;
mod caller;
mod csv;
mod doorway;
pub mod events;
pub mod exports;
mod feed;
mod few;
mod front;
mod identity;
mod keyring;
mod number;
mod observe;
mod params;
mod problem;
mod routes;
mod turns;

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
use vintem_domain::plan::Offer;
use vintem_domain::route::route;
use vintem_domain::{Clock, Problem};
use vintem_meter::Meter;
use vintem_snapshot::{LiveSnapshot, Snapshot};
use vintem_store::Store;

use answer::AsItIs;
use feed::Feed;
use front::Front;
pub use identity::{Credential, client_address, credential};
pub use keyring::{Keyring, Pepper, new_key};
pub use routes::search::find;

/// What an operator may set of the API.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    pub offer: Offer,
    /// Where the service is reached from outside, without a slash at the end.
    pub public_url: String,
    /// Proxies whose word on the client's address is taken.
    pub trusted_proxies: Vec<IpNet>,
    /// New keys a day for an address, and for an e-mail.
    pub registrations_per_day: u32,
    /// Requests under way at once, beyond which further ones are shed.
    pub most_in_flight: usize,
    /// Where the files of the bulk export are, if anywhere.
    pub export_directory: Option<PathBuf>,
    /// How the highest plan reaches its support, if there is any.
    pub support: Option<String>,
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
    pub snapshot: Arc<LiveSnapshot>,
    pub exports: Option<Arc<ExportDirectory>>,
    pub feed: Feed,
    pub clock: Arc<dyn Clock>,
    /// Whether Postgres answered when it was last asked.
    store_answers: AtomicBool,
}

impl App {
    pub fn new(
        settings: ApiSettings,
        store: Store,
        meter: Meter,
        pepper: Pepper,
        snapshot: Arc<LiveSnapshot>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let keyring = Keyring::new(store.clone(), pepper, clock.clone());
        let exports = settings.export_directory.clone().map(|path| Arc::new(ExportDirectory::new(path)));
        let feed = Feed::default();
        Self { settings, store, meter, keyring, snapshot, exports, feed, clock, store_answers: AtomicBool::new(true) }
    }

    pub fn note_store_answers(&self, answers: bool) {
        self.store_answers.store(answers, Ordering::Relaxed);
    }

    /// Whether Postgres and every Redis answered when they were last asked.
    pub fn dependencies_answer(&self) -> bool {
        self.store_answers.load(Ordering::Relaxed) && self.meter.are_shared().all(|is_shared| is_shared)
    }

    /// What is served now. Before the first snapshot stands there is nothing true to say.
    fn snapshot(&self) -> Result<Arc<Snapshot>, problem::Refusal> {
        self.snapshot.get().ok_or(problem::Refusal(Problem::DependencyAway))
    }
}

/// A problem as a page, for who asks as a browser does: of the problem, the request's headers and address, and its number.
pub type ProblemPage = Arc<dyn Fn(&Problem, &HeaderMap, &Uri, &str) -> Response + Send + Sync>;

/// The whole service. `pages` are the handlers of the HTML pages.
pub fn service(app: Arc<App>, pages: Vec<(&'static str, MethodRouter)>, problem_page: ProblemPage) -> Service {
    let mut router = Router::new();
    let handlers =
        routes::handlers().into_iter().map(|(operation, handler)| (operation, handler.with_state(app.clone())));
    for (operation, handler) in handlers.chain(pages) {
        router = router.route(route(operation).path, handler);
    }
    let routes = router.clone().layer(CatchPanicLayer::custom(problem::panicked));
    let is_to_change = |_: StatusCode, _: Version, _: &HeaderMap, said: &Extensions| said.get::<AsItIs>().is_none();
    let compression = CompressionLayer::new().compress_when(DefaultPredicate::new().and(is_to_change));
    let compressed = router.layer(compression).layer(CatchPanicLayer::custom(problem::panicked));
    Service(Arc::new(Front::new(app, routes, compressed, problem_page)))
}

/// Answers requests: judged by the front, then by the handlers of their routes.
#[derive(Clone)]
pub struct Service(Arc<Front>);

impl Service {
    /// The answer to a request that came from this address.
    pub async fn answer(self, request: Request, peer: IpAddr) -> Response {
        self.0.answer_if_there_is_room(request, peer).await
    }
}
