//! Rate limits and live usage in Redis, shared by all replicas. Every Redis key name and script lives in this crate.
//!
//! All requests that wait in a process go to Redis in one call. A script admits each one by an exact sliding log and
//! counts its usage in the same step, so every answered request is in the usage. Redis' clock is the only clock.
//! Several servers share the callers by hash. This crate never touches SQL: a caller with access to both stores the
//! counts in Postgres. While Redis is unavailable, the process decides by itself, each replica for its share of the
//! limit, and keeps its counts until they are stored.

mod admission;
mod admit_call;
mod circuit;
mod connection;
mod daily_caps;
mod error;
#[cfg(test)]
mod limiter_model_tests;
mod local_usage;
mod meter;
mod redis_keys;
mod shard;
mod sliding_log;
mod usage;
mod usage_chunks;

pub use admission::{AdmissionCharge, AdmissionDecision, AdmissionRequest, QuotaOwner};
pub use connection::ping_redis;
pub use daily_caps::DailyCap;
pub use error::{MeterError, Result};
pub use meter::{Meter, MeterSettings};
pub use shard::UsageGap;
pub use sliding_log::{LimitStatus, LocalRateLimiter};
pub use usage::{LiveUsage, LiveUsageChunk};
pub use usage_chunks::{UsageBacklog, UsageChunk, UsageSource};
