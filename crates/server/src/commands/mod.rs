//! The subcommands of `vintem`, one file each.

pub mod demo;
pub mod doctor;
pub mod health;
pub mod ingest;
pub mod init;
pub mod keys;
mod live_survey;
pub mod migrate;
pub mod serve;
pub mod status;
pub mod work;

use std::future::pending;
use std::time::Duration;

use vintem_store::Store;
use vintem_store::diagnosis::DatabaseProblem;

const SCHEMA_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Waits until the database answers, and returns if this version cannot use its schema. Processes that also start without
/// PostgreSQL cannot check it before.
async fn wait_for_unusable_schema(store: &Store) -> DatabaseProblem {
    loop {
        match store.check_schema().await {
            Ok(()) => return pending().await,
            Err(
                problem @ (DatabaseProblem::NoSchema
                | DatabaseProblem::OldSchema { .. }
                | DatabaseProblem::NewSchema { .. }),
            ) => return problem,
            Err(_) => tokio::time::sleep(SCHEMA_CHECK_INTERVAL).await,
        }
    }
}
