//! The inside of the `vintem` binary: settings, command line, wiring, graceful shutdown.
//!
//! It has no domain logic of its own. [`replica::start_replica`] starts a whole replica; `vintem serve` and the tests use
//! it.

mod background;
pub mod cli;
mod commands;
mod head_timer;
mod http_server;
mod operator;
pub mod replica;
pub mod settings;
mod smuggling_guard;
pub mod worker;
mod write_timeout;
