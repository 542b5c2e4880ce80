//! Load generators that the benchmark programs in `bin/` share. The product and the tests don't use them.

pub mod bare_server;
pub mod closed_loop;
pub mod cpu_time;
pub mod open_loop;
pub mod probes;
pub mod process_memory;
pub mod slow_connections;
