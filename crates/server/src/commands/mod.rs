//! One file a command.

pub mod demo;
pub mod doctor;
pub mod ingest;
pub mod keys;
pub mod migrate;
pub mod serve;
pub mod work;
