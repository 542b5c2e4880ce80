//! The subcommands of `vintem`, one file each.

pub mod demo;
pub mod doctor;
pub mod health;
pub mod ingest;
pub mod init;
pub mod keys;
pub mod migrate;
pub mod serve;
pub mod status;
pub mod work;
