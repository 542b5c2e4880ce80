//! Domain types and rules: series, plans, routes, problems, keys, companies, dates and decimals.
//!
//! This crate is pure: no I/O, no async, no JSON bodies. Clock and randomness are passed in. Values stay decimal from
//! the upstream's text to the response, so floating-point arithmetic is denied in this crate.
#![deny(clippy::float_arithmetic)]

pub mod accumulation;
pub mod calendar;
pub mod catalog_search;
pub mod clock;
pub mod cnpj;
pub mod company;
pub mod cvm_dataset;
pub mod dataset;
pub mod dates;
pub mod decimal;
pub mod email;
pub mod event;
pub mod feature;
pub mod fx;
pub mod ip_address;
pub mod key;
pub mod lang;
mod last_time;
pub mod plan;
pub mod plan_description;
pub mod point_in_time;
pub mod problem;
pub mod quality_list;
pub mod route;
pub mod series;
pub mod spans;
pub mod statement;
pub mod text;
pub mod unit;
pub mod usage;
pub mod webhook;

pub use calendar::{Calendar, Holiday};
pub use clock::{Clock, ManualClock, SystemClock};
pub use cnpj::Cnpj;
pub use company::{Company, CompanyId};
pub use cvm_dataset::CvmDataset;
pub use dataset::{DataOrigin, Dataset};
pub use dates::DateRange;
pub use fx::{Currency, CurrencyPair, ParityBasis, PublishedRates, Quote};
pub use ip_address::AddressBucket;
pub use key::{ApiKey, KeyActor, KeyChange, KeyId};
pub use lang::{Lang, LocalizedText};
pub use last_time::LastTime;
pub use plan::Plan;
pub use problem::Problem;
pub use rust_decimal::Decimal;
pub use series::Series;
pub use statement::StatementSet;

/// The version that the binary, `/health` and `openapi.yaml` report.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
