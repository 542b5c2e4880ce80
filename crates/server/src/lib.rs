//! The one binary's inside: environment, command line, wiring, shutdown.
//!
//! It holds no logic of its own. `start` brings up a whole replica and is what both `vintem serve` and the tests use.

pub mod cli;
mod commands;
mod follow;
mod head_timer;
mod http;
mod operator;
pub mod replica;
pub mod settings;
mod stall;
mod strict_heads;
pub mod work;
