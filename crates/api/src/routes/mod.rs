//! The routes, one file per resource with its parameters and handlers. The bodies are in [`crate::bodies`].

pub mod calendar;
mod companies;
mod events;
mod export;
pub mod filings;
mod health;
mod index;
pub mod keys;
pub mod market;
pub mod plans;
pub mod search;
mod statements;
mod status;
pub mod usage;
pub mod webhooks;

use crate::app::Handlers;

/// All handlers. Each file lists its own.
pub fn handlers() -> Handlers {
    let handlers_by_file = [
        calendar::handlers(),
        companies::handlers(),
        events::handlers(),
        export::handlers(),
        filings::handlers(),
        health::handlers(),
        index::handlers(),
        keys::handlers(),
        market::handlers(),
        plans::handlers(),
        search::handlers(),
        statements::handlers(),
        status::handlers(),
        usage::handlers(),
        webhooks::handlers(),
    ];
    handlers_by_file.into_iter().flatten().collect()
}
