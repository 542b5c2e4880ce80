//! The inside of the `vintem` binary: settings, command line, wiring, graceful shutdown.
//!
//! It has no domain logic of its own. [`replica::start_replica`] starts a whole replica; `vintem serve` and the tests use
//! it.

mod background;
pub mod cli;
mod commands;
mod connections;
mod env_file;
mod head_timer;
mod http_server;
mod listening;
pub mod operator;
pub mod replica;
mod secret_files;
pub mod settings;
mod slow_reader_guard;
mod smuggling_guard;
mod supervision;
mod traces;
mod usage_error;
pub mod worker;

/// An error with its causes. Causes that an outer message repeats are left out.
pub fn describe_error(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}
