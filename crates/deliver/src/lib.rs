//! Everything that Vintém sends out as files or webhooks: tables as CSV, NDJSON and Parquet, the bulk export, and webhook
//! deliveries.
//!
//! This crate has no SQL and handles no requests. Callers supply the rows and events; this crate formats, stores and
//! sends them.

pub mod export;
pub mod table;
pub mod webhook;

/// Compiles and runs the Rust examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/webhooks.md")]
struct WebhookGuideDoctests;
