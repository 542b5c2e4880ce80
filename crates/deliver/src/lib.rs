//! What leaves the house: tables as CSV, NDJSON and Parquet, the files of the bulk export, and webhooks.
//!
//! It knows no SQL and answers no request. What the rows and the events are is said by whoever has them; here is how they
//! are written, kept and sent.

pub mod export;
pub mod table;
pub mod webhook;

/// The Rust of the guide is compiled and run as it stands there.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/webhooks.md")]
struct WebhookGuideDoctests;
