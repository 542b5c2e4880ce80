//! What tests stand on: a database per test copied from one migrated template, a Redis prefix per test, ports that
//! nobody else has, a clock that the test holds. Real PostgreSQL, real Redis, real HTTP; never a product dependency.

mod database;
mod description;
mod engines;
pub mod journal;
pub mod load;
pub mod open_load;
mod own_redis;
pub mod pace;
mod process;
pub mod processor;
mod raw;
pub mod receiver;
mod replica;
pub mod sliding;
pub mod stillness;
pub mod upstreams;
pub mod webhooks;

pub use database::TestDatabase;
pub use description::{Description, Operation, Seen};
pub use engines::{OwnPostgres, Wire, free_port, postgres_url, redis_url};
pub use own_redis::OwnRedis;
pub use process::{ServedProcess, WorkerProcess, make_key, run_vintem};
pub use raw::{RawAnswer, exchange};
pub use replica::{
    PEPPER, ROOMY, SECRET_KEY, TestReplica, TestReplicaOptions, USUAL_POSTGRES_BUDGET, create_key, redis_prefix,
    settings,
};

use std::time::{Duration, Instant};

/// A client for tests.
pub fn http_client() -> reqwest::ClientBuilder {
    provide_cryptography();
    // Sooner than the service closes them: who sends on a connection that is just being closed gets no answer.
    reqwest::Client::builder().pool_idle_timeout(Duration::from_secs(3))
}

/// Tests speak plain HTTP, but no client can be built without a provider; the product installs the same one.
fn provide_cryptography() {
    // That it is there already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// What a recipe of the justfile asks for by the environment; none in the short form that CI runs.
pub fn asked_for<T: std::str::FromStr>(variable: &str) -> Option<T> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} cannot be read: {value}")))
}

/// Waits until something holds, looking often; panics with `what` when it has not held after `at_most`.
pub async fn eventually<F: Future<Output = bool>>(what: &str, at_most: Duration, mut holds: impl FnMut() -> F) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < at_most, "still not after {at_most:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
