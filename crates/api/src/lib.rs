//! The HTTP API: routes, query parameters, JSON bodies, problems and headers.
//!
//! This crate contains no SQL and no Redis keys. While Postgres is unavailable, all reads are served from the snapshot,
//! cached keys keep their plan, and requests that need Postgres get 503. While Redis is unavailable, everything keeps
//! working: the meter limits and counts locally.

mod api_error;
mod app;
mod app_metrics;
mod bodies;
mod cache_validity;
mod caller;
mod content_encoding;
mod csv;
pub mod event_body;
mod event_feed;
pub mod export_datasets;
mod front;
mod health;
mod icalendar;
mod identity;
mod json_date;
mod json_list;
mod json_number;
mod keyring;
pub mod limits;
mod load;
mod params;
mod request_body;
mod request_metrics;
mod response_body;
mod responses;
mod routes;
mod snapshot_request;
mod task_health;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::MethodRouter;
use http::{Extensions, HeaderMap, StatusCode, Version};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate, SizeAbove};
use vintem_domain::route::route_by_operation;

pub use app::{ApiSettings, App, RequestTracer, TraceStart};
use content_encoding::MIN_COMPRESSED_BYTES;
pub use content_encoding::{ContentEncoding, Encoder};
use front::FrontLayer;
pub use front::ProblemPageRenderer;
pub use identity::{Credential, client_address, parse_credential};
pub use keyring::{Keyring, Pepper, generate_key};
use responses::{SharedResponse, SkipCompression};
pub use routes::search::{run_page_work, search_all};
pub use task_health::TaskHealth;

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
        extensions.get::<SkipCompression>().is_none() && extensions.get::<SharedResponse>().is_none()
    };
    let compression = CompressionLayer::new()
        .compress_when(DefaultPredicate::new().and(SizeAbove::new(MIN_COMPRESSED_BYTES as u64)).and(may_compress));
    let compressed_router = router.layer(compression).layer(CatchPanicLayer::custom(api_error::panic_response));

    ApiService(Arc::new(FrontLayer::new(app, uncompressed_router, compressed_router, problem_page)))
}

/// Answers requests: the front layer admits them, then the handler of the route runs.
#[derive(Clone)]
pub struct ApiService(Arc<FrontLayer>);

impl ApiService {
    /// Answers a request from `peer`, the address at the other end of the connection.
    pub async fn respond(self, request: Request, peer: IpAddr) -> Response {
        self.0.handle_traced(request, peer).await
    }
}
