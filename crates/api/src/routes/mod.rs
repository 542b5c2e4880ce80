//! The routes, one file per resource with its parameters and handlers. The bodies are in [`crate::bodies`].

mod calendar;
mod companies;
mod events;
mod export;
mod filings;
mod health;
mod keys;
mod market;
mod plans;
pub mod search;
mod status;
mod usage;
mod webhooks;

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
