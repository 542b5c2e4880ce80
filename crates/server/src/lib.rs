//! The one binary's inside: environment, command line, wiring, shutdown.
//!
//! It holds no logic of its own. `start` brings up a whole replica and is what both `vintem serve` and the tests use.

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
