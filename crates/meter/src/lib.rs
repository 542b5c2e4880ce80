//! Rate limits and live usage in Redis, shared by all replicas. Every Redis key name and script lives in this crate.
//!
//! All requests that wait in a process go to Redis in one call. A script admits each one by an exact sliding log and
//! counts its usage in the same step, so every answered request is in the usage. Redis' clock is the only clock.
//! Several servers share the callers by hash. This crate never touches SQL: a caller with access to both drains the
//! counts into Postgres. While Redis is unavailable, the process decides by itself, each replica for its share of the
//! limit, and keeps its counts until they are stored.

mod admission;
mod admit_call;
mod circuit;
mod connection;
mod daily_caps;
#[cfg(test)]
mod limiter_model_tests;
mod local_usage;
mod redis_keys;
mod shard;
mod sliding_log;
mod usage;

use std::sync::Arc;
use std::time::Duration;

pub use admission::{AdmissionCharge, AdmissionDecision, AdmissionRequest, QuotaOwner};
pub use daily_caps::DailyCap;
pub use usage::{LiveUsage, LiveUsageBatch, UsageBatch, UsageSource};

use circuit::ReplicaCount;
use shard::{RedisShard, SharedState};

#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    #[error("asking Redis: {0}")]
    Redis(#[from] redis::RedisError),
    #[error("Redis did not answer within {0:?}")]
    Timeout(Duration),
    #[error("Redis answered in a form that no script of ours has: {0}")]
    UnexpectedReply(String),
}

pub type Result<T> = std::result::Result<T, MeterError>;

#[derive(Debug, Clone)]
pub struct MeterSettings<'a> {
    /// One server, or several that share the callers. All replicas must list the same servers in the same order.
    pub redis_urls: Vec<&'a str>,
    /// Prefix of every key in Redis.
    pub prefix: &'a str,
    /// Window of the rate limit.
    pub window: Duration,
    /// How long an admission waits for Redis before this process decides.
    pub redis_timeout: Duration,
    /// Number of replicas assumed to share the limit until Redis reports it.
    pub assumed_replicas: u32,
}

/// Handle to the meter. Cheap to clone.
#[derive(Clone)]
pub struct Meter {
    shared: Arc<SharedState>,
    shards: Arc<[Arc<RedisShard>]>,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("servers", &self.shards.len()).finish_non_exhaustive()
    }
}

impl Meter {
    /// Connects lazily, so a replica can start while Redis is unavailable. Must be called within a Tokio runtime.
    pub fn open(settings: &MeterSettings<'_>) -> Result<Self> {
        let shared = Arc::new(SharedState {
            window_us: admission::duration_micros(settings.window),
            redis_timeout: settings.redis_timeout,
            replica_count: ReplicaCount::with_assumed(settings.assumed_replicas),
            local_usage: local_usage::LocalUsage::default(),
            local_caps: daily_caps::LocalDailyCaps::default(),
        });

        let start_shard = |url: &&str| {
            let client = redis::Client::open(*url)?;
            Ok(RedisShard::start(client, redis_keys::RedisKeys::new(settings.prefix), shared.clone()))
        };
        let shards = settings.redis_urls.iter().map(start_shard).collect::<Result<_>>()?;

        Ok(Self { shared, shards })
    }

    /// Signs this replica off, so that the others get its share of the limit should Redis become unavailable.
    pub async fn shutdown(&self) {
        for shard in self.shards.iter() {
            shard.shutdown().await;
        }
    }

    /// For each server: true if Redis decides, false if this process decides alone.
    pub fn redis_availability(&self) -> impl Iterator<Item = bool> {
        self.shards.iter().map(|shard| shard.is_redis_available())
    }

    /// Number of usage counts that only this process has until they are stored, such as those from a Redis outage.
    pub fn local_usage_count(&self) -> usize {
        self.shared.local_usage.len()
    }
}

/// Checks that a server answers.
pub async fn ping_redis(url: &str) -> Result<()> {
    let connection = connection::LazyConnection::new(redis::Client::open(url)?);
    connection.run(async |redis| redis::cmd("PING").exec_async(redis).await).await
}
