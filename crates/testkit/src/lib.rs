//! Test fixtures: a database per test copied from one migrated template, a Redis prefix per test, free ports, and a
//! clock that the test controls. Real PostgreSQL, real Redis, real HTTP; never a product dependency.

pub mod background_load;
pub mod cpu_stalls;
mod database;
mod dedicated_redis;
mod openapi_spec;
mod process;
mod quiet_clock;
pub mod rate_limit_check;
mod raw_http;
mod replica;
mod temp_directory;
mod test_servers;
pub mod timed_requests;
pub mod upstreams;
pub mod webhook_receiver;
pub mod webhooks;

pub use database::TestDatabase;
pub use dedicated_redis::{DedicatedRedis, SlowRedisCall};
pub use openapi_spec::{ObservedResponse, OpenApiSpec, SpecOperation};
pub use process::{ServerProcess, WorkerProcess, create_key_by_cli, run_vintem};
pub use quiet_clock::QuietClock;
pub use raw_http::{RawResponse, build_keyed_get, send_raw_request};
pub use replica::{
    DEFAULT_POSTGRES_BUDGET_FLAGS, HIGH_LIMIT_FLAGS, TEST_PEPPER, TEST_SECRET_KEY, TestReplica, TestReplicaOptions,
    create_key, parse_serve_settings, random_redis_prefix,
};
pub use temp_directory::TempDirectory;
pub use test_servers::{DedicatedPostgres, TcpProxy, find_free_port, postgres_url, redis_url};

use std::time::Duration;

/// An HTTP client for tests.
pub fn http_client_builder() -> reqwest::ClientBuilder {
    install_crypto_provider();
    // Shorter than the service's own idle timeout: a request sent on a connection that is just closing gets no response.
    reqwest::Client::builder().pool_idle_timeout(Duration::from_secs(3))
}

/// Tests speak plain HTTP, but no client can be built without a provider; the product installs the same one.
pub fn install_crypto_provider() {
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Reads a setting that a justfile recipe passes by environment variable. CI runs the short form and sets none.
pub fn parse_env_var<T: std::str::FromStr>(variable: &str) -> Option<T> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} cannot be read: {value}")))
}

/// Waits until a condition holds, checking often. Panics with `what` if it doesn't within `at_most` of a [`QuietClock`].
pub async fn wait_until<F: Future<Output = bool>>(what: &str, at_most: Duration, mut condition: impl FnMut() -> F) {
    let clock = QuietClock::start();
    while !condition().await {
        assert!(clock.elapsed() < at_most, "still not after {at_most:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
