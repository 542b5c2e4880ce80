//! JSON over HTTP: routes, parameters, bodies, problems, headers.
//!
//! It knows no SQL and no Redis key. With Postgres away all reads go on from the snapshot, known keys keep their plan,
//! and what needs Postgres answers 503. With Redis away requests that are counted answer 503; pages and `/health` go on.

mod answer;
mod caller;
mod front;
mod identity;
mod keyring;
mod number;
mod params;
mod problem;
mod routes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::routing::MethodRouter;
use ipnet::IpNet;
use tower::Layer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use vintem_domain::Clock;
use vintem_domain::plan::Limits;
use vintem_domain::route::route;
use vintem_meter::Meter;
use vintem_snapshot::{LiveSnapshot, Snapshot};
use vintem_store::Store;

pub use identity::PeerAddress;
pub use keyring::{Keyring, Pepper, new_key};

/// What an operator may set of the API.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    pub limits: Limits,
    /// Where the service is reached from outside, without a slash at the end.
    pub public_url: String,
    /// Proxies whose word on the client's address is taken.
    pub trusted_proxies: Vec<IpNet>,
    /// New keys a day for an address, and for an e-mail.
    pub registrations_per_day: u32,
}

/// Everything that answering needs.
pub struct App {
    pub settings: ApiSettings,
    pub store: Store,
    pub meter: Meter,
    pub keyring: Keyring,
    pub snapshot: Arc<LiveSnapshot>,
    pub clock: Arc<dyn Clock>,
    /// Whether Postgres and Redis answered when they were last asked.
    store_answers: AtomicBool,
    meter_answers: AtomicBool,
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
        let [store_answers, meter_answers] = [AtomicBool::new(true), AtomicBool::new(true)];
        Self { settings, store, meter, keyring, snapshot, clock, store_answers, meter_answers }
    }

    pub fn note_store_answers(&self, answers: bool) {
        self.store_answers.store(answers, Ordering::Relaxed);
    }

    fn note_meter_answers(&self, answers: bool) {
        self.meter_answers.store(answers, Ordering::Relaxed);
    }

    fn dependencies_answer(&self) -> bool {
        self.store_answers.load(Ordering::Relaxed) && self.meter_answers.load(Ordering::Relaxed)
    }

    /// What is served now. Before the first snapshot stands there is nothing true to say.
    fn snapshot(&self) -> Result<Arc<Snapshot>, problem::Refusal> {
        self.snapshot.get().ok_or(problem::Refusal(vintem_domain::Problem::DependencyAway))
    }
}

/// The whole service: the layers, outermost first, then the routes. `pages` are the handlers of the HTML pages.
pub fn service(app: Arc<App>, pages: Vec<(&'static str, MethodRouter)>) -> Router {
    let mut router = Router::new();
    let handlers =
        routes::handlers().into_iter().map(|(operation, handler)| (operation, handler.with_state(app.clone())));
    for (operation, handler) in handlers.chain(pages) {
        router = router.route(route(operation).path, handler);
    }
    let routed = router.layer(CompressionLayer::new()).layer(CatchPanicLayer::custom(problem::panicked));
    // Around the router and not within it: what no route takes is answered by the front layer alone.
    let front = axum::middleware::from_fn_with_state(Arc::new(front::Front::new(app)), front::front);
    Router::new().fallback_service(front.layer(routed))
}
