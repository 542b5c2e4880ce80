//! The routes, one file per resource with its parameters, bodies and handlers.

pub mod calendar;
pub mod companies;
mod events;
mod export;
pub mod filings;
mod health;
pub mod keys;
pub mod market;
pub mod plans;
pub mod provenance;
pub mod search;
pub mod search_bodies;
pub mod status;
pub mod usage;
pub mod webhooks;

use std::sync::{Arc, LazyLock};

use axum::routing::MethodRouter;
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::{Dataset, Problem};

use crate::App;
use crate::api_error::ApiError;
use crate::blocking_pool::BlockingPool;

/// Handlers by operation of the route table. Each file below lists its own.
type Handlers = Vec<(&'static str, MethodRouter<Arc<App>>)>;

pub fn handlers() -> Handlers {
    let handlers_by_file = [
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
    handlers_by_file.into_iter().flatten().collect()
}

/// Today's date in São Paulo. No data of a later date is served.
pub fn today(app: &App) -> chrono::NaiveDate {
    sao_paulo_date(app.clock.now())
}

/// A part of the snapshot, or an error if it was never loaded: unknown is not the same as empty.
fn require_loaded<T>(part: Option<T>, dataset: Dataset) -> Result<T, ApiError> {
    part.ok_or(ApiError(Problem::DatasetNotLoaded { dataset: dataset.id() }))
}

static SEARCH_POOL: LazyLock<BlockingPool> = LazyLock::new(BlockingPool::new);
/// A pool of its own, because point-in-time queries also wait for Postgres and searches must not wait for them.
static HISTORY_POOL: LazyLock<BlockingPool> = LazyLock::new(BlockingPool::new);

/// Runs a search on a blocking thread, so that it does not hold up other requests: a common word takes tens of
/// milliseconds.
async fn run_search<T: Send + 'static>(
    search: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let _slot = SEARCH_POOL.acquire().await?;
    match tokio::task::spawn_blocking(search).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "a search was cut off");
            Err(ApiError(Problem::Internal))
        }
    }
}

type AppState = axum::extract::State<Arc<App>>;
