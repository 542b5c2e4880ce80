//! One file a resource: its parameters, its bodies, its handlers.

mod calendar;
pub mod companies;
mod events;
mod export;
pub mod filings;
mod health;
mod keys;
pub mod market;
mod plans;
pub mod provenance;
pub mod search;
pub mod search_bodies;
pub mod status;
mod usage;
mod webhooks;

use std::sync::{Arc, LazyLock};

use axum::routing::MethodRouter;
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::{Dataset, Problem};

use crate::App;
use crate::api_error::ApiError;
use crate::blocking_pool::BlockingPool;

/// Operations of the route table with their handlers, as each file below lists its own.
type Handlers = Vec<(&'static str, MethodRouter<Arc<App>>)>;

pub fn handlers() -> Handlers {
    let files = [
        calendar::handlers(),
        companies::handlers(),
        events::handlers(),
        export::handlers(),
        filings::handlers(),
        health::handlers(),
        keys::handlers(),
        market::handlers(),
        plans::handlers(),
        search::handlers(),
        status::handlers(),
        usage::handlers(),
        webhooks::handlers(),
    ];
    files.into_iter().flatten().collect()
}

/// The day in São Paulo: nothing of a later one is served.
pub fn today(app: &App) -> chrono::NaiveDate {
    sao_paulo_date(app.clock.now())
}

/// A part of the snapshot, or the answer that it was never loaded: unknown is not empty.
fn require_loaded<T>(part: Option<T>, dataset: Dataset) -> Result<T, ApiError> {
    part.ok_or(ApiError(Problem::DatasetNotLoaded { dataset: dataset.id() }))
}

static SEARCH_POOL: LazyLock<BlockingPool> = LazyLock::new(BlockingPool::new);
/// Their own: who looks back also waits for Postgres, and searches go on without it.
static HISTORY_POOL: LazyLock<BlockingPool> = LazyLock::new(BlockingPool::new);

/// Runs a search where it cannot hold up other requests: a common word takes tens of milliseconds.
async fn run_search<T: Send + 'static>(
    search: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let _turn = SEARCH_POOL.acquire().await?;
    match tokio::task::spawn_blocking(search).await {
        Ok(found) => found,
        Err(error) => {
            tracing::error!(%error, "a search was cut off");
            Err(ApiError(Problem::Internal))
        }
    }
}

type AppState = axum::extract::State<Arc<App>>;
